//! Blocks of pasted lines: fenced blocks, and runs of lines that look pasted.

use std::ops::Range;

use super::Kind;
use super::documents::documents;
use super::fences::{Line, fence};
use super::lines::{ENOUGH, HALF, Sign, begins_mail, is_bare_key, sign};
use super::shape::{Words, is_addressed, without_strings};
use crate::lists::lists;

/// Lines that were pasted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) kind: Kind,
    /// Numbers of its lines.
    pub(super) lines: Range<usize>,
    /// Sentences among them, which can be the request if no other line is.
    pub(super) doubtful: Vec<Range<usize>>,
}

/// The blocks of a text, in their order and without overlap.
pub(super) fn blocks(lines: &[Line<'_>]) -> Vec<Block> {
    let signs = Signs::of(lines);
    let mut found = Vec::new();
    let mut before = 0;
    for document in documents(lines, &signs.of) {
        between(lines, &signs, before..document.start, &mut found);
        before = document.end;
        found.push(Block { kind: Kind::Document, lines: document, doubtful: Vec::new() });
    }
    between(lines, &signs, before..lines.len(), &mut found);
    found
}

/// The blocks of the lines before, between and behind documents.
fn between(lines: &[Line<'_>], signs: &Signs, within: Range<usize>, found: &mut Vec<Block>) {
    let lines = lines.get(..within.end).unwrap_or_default();
    let mut at = within.start;
    while let Some(line) = lines.get(at) {
        if line.is_blank() {
            at += 1;
            continue;
        }
        let (block, end) = match fenced(lines, signs, at).or_else(|| letter(lines, signs, at)) {
            Some(block) => (Some(block), at),
            None => run(lines, signs, at),
        };
        at = block.as_ref().map_or(end, |block| block.lines.end).max(at + 1);
        found.extend(block);
    }
}

/// The evidence of each line, alone and with its neighbours.
struct Signs {
    of: Vec<Option<Sign>>,
    /// For each line, the first line from there on that closes a letter.
    closings: Vec<Option<usize>>,
}

impl Signs {
    fn of(lines: &[Line<'_>]) -> Self {
        let mut of: Vec<Option<Sign>> = lines.iter().map(|line| sign(line.text)).collect();
        columns(lines, &mut of);
        enclosed(lines, &mut of);
        odd_paragraphs(lines, &mut of);
        cues(lines, &mut of);
        heads(lines, &mut of);
        talks(lines, &mut of);
        // A bare key needs members; without members, it introduces the text below it.
        for (number, line) in lines.iter().enumerate() {
            if is_bare_key(line.text) {
                let next = lines
                    .get(number + 1..)
                    .and_then(|rest| rest.iter().find(|line| !line.is_blank()));
                let has_members = next.is_some_and(|next| {
                    next.indent() > line.indent()
                        || (line.indent() > 0 && next.text.trim_start().starts_with("- "))
                });
                if let Some(entry) = of.get_mut(number) {
                    *entry = has_members.then_some(Sign { kind: Kind::Config, weight: 2 });
                }
            }
        }
        attributions(lines, &mut of);
        let mut closings = vec![None; lines.len()];
        let mut next = None;
        for (number, line) in lines.iter().enumerate().rev() {
            if is_closing(line.text) {
                next = Some(number);
            }
            if let Some(entry) = closings.get_mut(number) {
                *entry = next;
            }
        }
        Self { of, closings }
    }

    fn at(&self, number: usize) -> Option<Sign> {
        self.of.get(number).copied().flatten()
    }
}

/// Marks the lines of a paragraph if two or more of them, and at least half, look printed, but none
/// alone proves it.
fn odd_paragraphs(lines: &[Line<'_>], signs: &mut [Option<Sign>]) {
    let mut at = 0;
    for group in lines.chunk_by(|one, next| one.is_blank() == next.is_blank()) {
        let paragraph = signs.get_mut(at..at + group.len()).unwrap_or_default();
        at += group.len();
        let is_odd = |(sign, line): (&Option<Sign>, &Line<'_>)| {
            let weight = sign.map_or(0, |sign| sign.weight);
            weight >= HALF || (weight > 0 && !Words::of(line.text).are_a_sentence())
        };
        let odd: Vec<bool> = paragraph.iter().zip(group).map(is_odd).collect();
        let first = odd.iter().position(|is_odd| *is_odd);
        let last = odd.iter().rposition(|is_odd| *is_odd);
        let (Some(first), Some(last)) = (first, last) else { continue };
        let odd = odd.iter().filter(|is_odd| **is_odd).count();
        let sum: usize = paragraph.iter().flatten().map(|sign| usize::from(sign.weight)).sum();
        let Some(Some(kind)) = paragraph.get(first).map(|sign| sign.map(|sign| sign.kind)) else {
            continue;
        };
        if odd < 2 || odd * 2 < group.len() || sum >= usize::from(ENOUGH) {
            continue;
        }
        for (sign, line) in paragraph.iter_mut().zip(group).take(last + 1).skip(first) {
            if sign.is_some() || !Words::of(line.text).are_prose() {
                sign.get_or_insert(Sign { kind, weight: 0 }).weight = ENOUGH;
            }
        }
    }
}

/// Marks the lines between a line that opens something by name and the line that closes it:
/// `BEGIN:VCARD` and `END:VCARD`, `\begin{table}` and `\end{table}`.
fn enclosed(lines: &[Line<'_>], signs: &mut [Option<Sign>]) {
    const MARKS: [(&str, &str, Kind); 3] = [
        ("BEGIN:V", "END:V", Kind::Config),
        ("-----BEGIN ", "-----END ", Kind::Dump),
        ("\\begin{", "\\end{", Kind::Code),
    ];
    for (opens, closes, kind) in MARKS {
        let mut from = None;
        for (number, line) in lines.iter().enumerate() {
            let text = line.text.trim();
            if text.starts_with(opens) {
                from = from.or(Some(number));
            } else if text.starts_with(closes)
                && let Some(first) = from.take()
            {
                for one in signs.get_mut(first..=number).unwrap_or_default() {
                    *one = Some(Sign { kind, weight: ENOUGH });
                }
            }
        }
    }
}

/// Marks the texts of subtitles: the lines below their times, and the numbers above these.
fn cues(lines: &[Line<'_>], signs: &mut [Option<Sign>]) {
    let is_time = |line: &Line<'_>| {
        let starts = |text: &str| text.trim().starts_with(|letter: char| letter.is_ascii_digit());
        line.text.split_once(" --> ").is_some_and(|(from, to)| starts(from) && starts(to))
    };
    let times: Vec<usize> =
        (0..lines.len()).filter(|at| lines.get(*at).is_some_and(is_time)).collect();
    for (place, at) in times.iter().enumerate() {
        let next = times.get(place + 1).copied();
        // Behind the last time, the second line may be the request.
        let end = next.unwrap_or(at + 2).min(at + 1 + LONGEST_CUE).min(lines.len());
        let blank = (at + 1..end).find(|number| lines.get(*number).is_none_or(Line::is_blank));
        let number = at.checked_sub(1).filter(|before| {
            lines.get(*before).is_some_and(|line| line.text.trim().parse::<u32>().is_ok())
        });
        for one in number.unwrap_or(*at)..blank.unwrap_or(end) {
            if let Some(entry) = signs.get_mut(one) {
                *entry = Some(Sign { kind: Kind::Quotation, weight: ENOUGH });
            }
        }
    }
}

/// How many lines a subtitle may have.
const LONGEST_CUE: usize = 4;

/// Marks a line that only the next one explains: the root of a tree of files, or a rule of a makefile.
fn heads(lines: &[Line<'_>], signs: &mut [Option<Sign>]) {
    for (number, pair) in lines.windows(2).enumerate() {
        let [head, next] = pair else { continue };
        let text = head.text.trim();
        let is_root = next.text.starts_with(['├', '└']) && !text.contains(' ') && !text.is_empty();
        let target = text.split_once(':').is_some_and(|(target, _)| !target.contains(' '));
        let is_rule = target
            && next.text.starts_with('\t')
            && head.indent() == 0
            && !Words::of(next.text).are_a_sentence()
            && signs.get(number).copied().flatten().is_none_or(|letter| letter.weight < ENOUGH);
        // A file above its findings: `src/deck.ts` before `  12:5  error ...`.
        let is_file = !text.contains(' ')
            && text.contains(['/', '.', '\\'])
            && head.indent() == 0
            && next.indent() >= 2
            && signs.get(number + 1).copied().flatten().is_some_and(|letter| letter.weight >= 3);
        let kind = match (is_root, is_rule) {
            (true, _) => Kind::Table,
            (_, true) => Kind::Config,
            _ => Kind::Log,
        };
        if is_root || is_rule || is_file {
            for one in signs.get_mut(number..=number + usize::from(is_rule)).unwrap_or_default() {
                *one = Some(Sign { kind, weight: ENOUGH });
            }
        }
    }
}

/// Marks a conversation: names with times above the messages, or names before them.
fn talks(lines: &[Line<'_>], signs: &mut [Option<Sign>]) {
    // `Ines Pohl  10:02 AM`
    let is_turn = |line: &Line<'_>| {
        let text = line.text.trim();
        let (name, time) = text.split_once(char::is_numeric).unwrap_or((text, ""));
        let time = time.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let clock = time.strip_prefix(':').map(|rest| rest.trim_start_matches(char::is_numeric));
        let words = name.split_whitespace().count();
        (1..=3).contains(&words)
            && name.split_whitespace().all(|word| word.starts_with(char::is_uppercase))
            && matches!(clock, Some("" | " AM" | " PM" | "AM" | "PM"))
    };
    // `ines — Today at 10:02 AM`
    let is_dated = |line: &Line<'_>| {
        let text = line.text.trim();
        let time = text.rsplit_once(" at ").map_or("", |(_, time)| time);
        let marked = text.contains(" — ") || text.contains("  ");
        let at = marked && time.contains(':') && time.starts_with(char::is_numeric);
        // `Ines, [02.03.26 10:02]`
        let bracket = text.strip_suffix(']').and_then(|text| text.split_once(", ["));
        let dated = bracket
            .is_some_and(|(_, time)| time.contains(':') && time.starts_with(char::is_numeric));
        text.len() <= 60 && (at || dated)
    };
    let is_turn = |line: &Line<'_>| is_turn(line) || is_dated(line);
    let turns: Vec<usize> =
        (0..lines.len()).filter(|at| lines.get(*at).is_some_and(is_turn)).collect();
    if turns.len() >= 2 {
        for at in turns {
            for one in signs.get_mut(at..(at + 2).min(lines.len())).unwrap_or_default() {
                *one = Some(Sign { kind: Kind::Quotation, weight: ENOUGH });
            }
        }
    }
    // A name, a time below it, and the message
    let is_name = |line: &Line<'_>| {
        let text = line.text.trim();
        (1..=3).contains(&text.split_whitespace().count())
            && text.split_whitespace().all(|word| word.starts_with(char::is_uppercase))
            && text.chars().all(|letter| letter.is_alphabetic() || letter == ' ')
    };
    let is_clock = |line: &Line<'_>| {
        let text = line.text.trim().trim_end_matches(" AM").trim_end_matches(" PM");
        text.split_once(':').is_some_and(|(hour, minute)| {
            [hour, minute].iter().all(|part| {
                (1..=2).contains(&part.len()) && part.bytes().all(|letter| letter.is_ascii_digit())
            })
        })
    };
    let headed: Vec<usize> = lines
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| matches!(pair, [name, clock] if is_name(name) && is_clock(clock)))
        .map(|(at, _)| at)
        .collect();
    if headed.len() >= 2 {
        for at in headed {
            for one in signs.get_mut(at..(at + 3).min(lines.len())).unwrap_or_default() {
                *one = Some(Sign { kind: Kind::Quotation, weight: ENOUGH });
            }
        }
    }
    // `Ines: which deck?`, in three lines or more, of two speakers or more, one of whom speaks twice
    let speaker = |line: &Line<'_>| {
        let (name, said) = line.text.split_once(": ")?;
        let is_name = name.split_whitespace().count() <= 2
            && name.starts_with(char::is_uppercase)
            && name.chars().all(|letter| letter.is_alphabetic() || letter == ' ');
        (is_name && !said.trim().is_empty()).then(|| name.to_owned())
    };
    let speakers: Vec<Option<String>> = lines.iter().map(speaker).collect();
    let mut at = 0;
    for group in speakers.chunk_by(|one, next| one.is_some() == next.is_some()) {
        let range = at..at + group.len();
        at = range.end;
        let names: std::collections::HashSet<&String> = group.iter().flatten().collect();
        if group.len() >= 3 && names.len() >= 2 && names.len() < group.len() {
            for one in signs.get_mut(range).unwrap_or_default() {
                *one = Some(Sign { kind: Kind::Quotation, weight: ENOUGH });
            }
        }
    }
}

/// Marks the line that names the author of the mail quoted below it, in any language.
fn attributions(lines: &[Line<'_>], signs: &mut [Option<Sign>]) {
    let mut quoted = false;
    for (number, line) in lines.iter().enumerate().rev() {
        let text = line.text.trim();
        if text.is_empty() {
            continue;
        }
        let digits = text.bytes().filter(u8::is_ascii_digit).count();
        let wrote = quoted
            && text.ends_with(':')
            && (text.contains(['@', '<']) || digits >= 4 || text == "wrote:");
        // The date may be in a line of its own.
        quoted = text.starts_with('>') || (wrote && text == "wrote:");
        if wrote && let Some(entry) = signs.get_mut(number) {
            *entry = Some(Sign { kind: Kind::Quotation, weight: ENOUGH });
        }
        if quoted
            && text == "wrote:"
            && let Some(entry) = number.checked_sub(1).and_then(|before| signs.get_mut(before))
        {
            *entry = Some(Sign { kind: Kind::Quotation, weight: ENOUGH });
        }
    }
}

/// Marks runs of lines with the same columns: separated values, and tables made of spaces.
fn columns(lines: &[Line<'_>], signs: &mut [Option<Sign>]) {
    // With a space after each comma, only fields of one or two words count.
    let spaced = |line: &Line<'_>| -> Option<usize> {
        let fields: Vec<&str> = line.text.trim().split(", ").collect();
        let short = fields.iter().all(|field| (1..=2).contains(&field.split_whitespace().count()));
        let ends = line.text.trim_end().ends_with(['.', ':', '?', ',', ';', '{', '(']);
        (fields.len() >= 3 && short && !ends).then_some(fields.len())
    };
    let separated = |separator: char| {
        move |line: &Line<'_>| -> Option<usize> {
            // A separator between quotation marks does not count.
            let text = without_strings(line.text.trim());
            let fields: Vec<&str> = text.split(separator).collect();
            let spaced = fields.iter().skip(1).filter(|field| field.starts_with(' ')).count();
            let sentence = Words::of(&text).are_a_sentence()
                || fields.iter().any(|field| field.split_whitespace().count() > 6)
                || (separator != '\t' && spaced * 2 > fields.len() - 1)
                || text.ends_with([':', '?', '{', ';']);
            (fields.len() >= if separator == '\t' { 2 } else { 3 } && !sentence)
                .then_some(fields.len())
        }
    };
    mark(lines, signs, Kind::Csv, 3, spaced);
    mark(lines, signs, Kind::Csv, 2, separated(','));
    mark(lines, signs, Kind::Csv, 2, separated(';'));
    mark(lines, signs, Kind::Csv, 2, separated('\t'));
    mark(lines, signs, Kind::Table, 3, |line| {
        let text = line.text.trim();
        let wide = text.split("  ").filter(|part| !part.trim().is_empty()).count();
        (wide >= 3 && !text.ends_with(['.', '?', ':'])).then_some(3)
    });
    mark(lines, signs, Kind::Table, 3, |line| {
        let text = line.text.trim();
        let wide = text.split("  ").filter(|part| !part.trim().is_empty()).count();
        (wide >= 2 && !Words::of(text).are_a_sentence()).then_some(2)
    });
    // Two lines with many columns are the head and a row.
    mark(lines, signs, Kind::Table, 2, |line| {
        let text = line.text.trim();
        let wide = text.split("  ").filter(|part| !part.trim().is_empty()).count();
        (wide >= 4 && !text.ends_with(['.', '?', ':'])).then_some(4)
    });
    mark(lines, signs, Kind::Csv, 3, |line| line.text.trim().parse::<f64>().is_ok().then_some(1));
    underlined(lines, signs);
}

/// How many rows below an underlined head are marked.
const MOST_ROWS: usize = 200;

/// Marks a table whose head is underlined column by column: `------- ----`.
fn underlined(lines: &[Line<'_>], signs: &mut [Option<Sign>]) {
    for (number, line) in lines.iter().enumerate() {
        let text = line.text.trim();
        // A database indents the head of its only column.
        let head = number.checked_sub(1).and_then(|above| lines.get(above));
        let is_head = |head: &Line<'_>| {
            head.indent() > 0 || head.text.split("  ").filter(|part| !part.is_empty()).count() >= 3
        };
        let is_single = text.starts_with("---") && head.is_some_and(is_head);
        let is_rule = is_single || text.contains("-- ") || text.contains("== ");
        if !is_rule || !text.chars().all(|c| matches!(c, '-' | '=' | ' ')) {
            continue;
        }
        let columns = |line: &Line<'_>| {
            let parts = line.text.split("  ").filter(|part| !part.trim().is_empty()).count();
            parts >= 2 || (is_single && line.indent() > 0 && !line.is_blank())
        };
        let below = lines.iter().skip(number + 1).take(MOST_ROWS);
        let rows = below.take_while(|line| columns(line)).count();
        for one in signs.get_mut(number.saturating_sub(1)..=number + rows).unwrap_or_default() {
            *one = Some(Sign { kind: Kind::Table, weight: ENOUGH });
        }
    }
}

/// Marks runs of at least `least` lines for which `shape` returns the same.
fn mark(
    lines: &[Line<'_>],
    signs: &mut [Option<Sign>],
    kind: Kind,
    least: usize,
    shape: impl Fn(&Line<'_>) -> Option<usize>,
) {
    let shapes: Vec<Option<usize>> = lines.iter().map(shape).collect();
    let mut at = 0;
    for group in shapes.chunk_by(Option::eq) {
        let range = at..at + group.len();
        at = range.end;
        if group.len() >= least && group.first().is_some_and(Option::is_some) {
            for slot in signs.get_mut(range).unwrap_or_default() {
                if slot.is_none_or(|sign| sign.weight < ENOUGH) {
                    *slot = Some(Sign { kind, weight: ENOUGH });
                }
            }
        }
    }
}

/// A fenced block, up to its closing fence or to the end of the text; also between two lines of
/// three quotation marks.
fn fenced(lines: &[Line<'_>], signs: &Signs, at: usize) -> Option<Block> {
    let text = lines.get(at)?.text.trim();
    let quotes = matches!(text, "\"\"\"" | "'''");
    let mark = if quotes { text } else { fence(text)?.0 };
    let closes = |other: &Line<'_>| {
        let other = other.text.trim();
        if quotes {
            return other == text;
        }
        fence(other).is_some_and(|(end, named)| !named && end.starts_with(mark))
    };
    let end = (at + 1..lines.len()).find(|number| lines.get(*number).is_some_and(closes));
    if quotes && end.is_none() {
        return None;
    }
    let inside = at + 1..end.unwrap_or(lines.len());
    let mut evidence = Evidence::default();
    for sign in inside.clone().filter_map(|number| signs.at(number)) {
        evidence.add(sign);
    }
    let kind = evidence.kind().unwrap_or(if quotes { Kind::Quotation } else { Kind::Code });
    // Without a closing fence, the last paragraph may be a request.
    let doubtful = match end {
        None => last_paragraph(lines, signs, inside),
        Some(_) => None,
    };
    let lines = at..end.map_or(lines.len(), |end| end + 1);
    Some(Block { kind, lines, doubtful: doubtful.into_iter().collect() })
}

/// The last paragraph of some lines, if it is made of sentences.
fn last_paragraph(lines: &[Line<'_>], signs: &Signs, within: Range<usize>) -> Option<Range<usize>> {
    let blank = |number: &usize| lines.get(*number).is_none_or(Line::is_blank);
    let last = within.clone().rev().find(|number| !blank(number))?;
    let first = (within.start..last).rev().find(blank).map_or(within.start, |blank| blank + 1);
    let prose =
        |number: usize| lines.get(number).is_some_and(|line| Words::of(line.text).are_prose());
    let whole = |number: usize| signs.at(number).is_some_and(|sign| sign.weight >= ENOUGH);
    let mut paragraph = first..=last;
    (paragraph.clone().any(prose) && !paragraph.any(whole)).then_some(first..within.end)
}

lists!("line_words.txt": CLOSINGS);

const GREETINGS: [&str; 7] =
    ["Dear ", "Hi ", "Hello ", "Hey ", "Good morning", "Good afternoon", "Good evening"];

/// Whether all words except function words are capitalised, as in "Head of Design".
fn is_title(text: &str) -> bool {
    text.split_whitespace().all(|word| {
        word.starts_with(char::is_uppercase)
            || matches!(word, "of" | "and" | "for" | "at" | "in" | "&")
    })
}

fn is_greeting(text: &str) -> bool {
    let text = text.trim();
    text.ends_with(',') && text.len() <= 60 && GREETINGS.iter().any(|start| text.starts_with(start))
}

fn is_closing(text: &str) -> bool {
    let text = text.trim();
    let phrase =
        text.split_once(',').map_or(text, |(phrase, _)| phrase).trim_end_matches(['!', '.']);
    text.len() <= 60 && CLOSINGS.binary_search(&phrase.to_lowercase().as_str()).is_ok()
}

/// Maximum lines of a letter that has only a greeting and a closing.
const LONGEST_LETTER: usize = 80;

/// Maximum lines after the closing of a letter: name, role, telephone.
const SIGNATURE: usize = 4;

/// A letter: from its fields, or from its greeting, up to its signature.
fn letter(lines: &[Line<'_>], signs: &Signs, at: usize) -> Option<Block> {
    let line = lines.get(at)?;
    let closing = |from: usize| signs.closings.get(from).copied().flatten();
    let signed = |closing: usize| {
        let mut rest = closing + 1..lines.len().min(closing + 1 + SIGNATURE);
        let end = rest.end;
        let belongs = |line: &Line<'_>| {
            let small = line.text.trim_start().starts_with(char::is_lowercase);
            let sentence = Words::of(line.text).are_a_sentence() && !is_title(line.text);
            !line.is_blank() && !small && !sentence && !is_addressed(line.text)
        };
        rest.find(|number| !lines.get(*number).is_some_and(belongs)).unwrap_or(end)
    };
    if is_greeting(line.text) {
        let closing = closing(at + 1)
            .filter(|closing| closing - at <= LONGEST_LETTER && closing - at >= 2)?;
        let whole = at..signed(closing);
        return Some(Block { kind: Kind::Mail, lines: whole.clone(), doubtful: vec![whole] });
    }
    // Outlook draws a line above the fields.
    let ruled = line.text.len() >= 8 && line.text.trim().chars().all(|letter| letter == '_');
    let first = at + usize::from(ruled);
    if !lines.get(first).is_some_and(|line| begins_mail(line.text)) {
        return None;
    }
    let mut weight = 0;
    let mut body = first;
    while let Some(line) = lines.get(body).filter(|line| !line.is_blank()) {
        let sign = signs.at(body).filter(|_| begins_mail(line.text));
        // A field may go on in the next line.
        match sign {
            Some(sign) => weight += usize::from(sign.weight),
            None if weight > 0 && line.indent() > 0 => {}
            None => break,
        }
        body += 1;
    }
    let quoted = lines
        .iter()
        .skip(body)
        .find(|line| !line.is_blank())
        .is_some_and(|line| line.text.trim_start().starts_with('>'));
    if weight < usize::from(ENOUGH) || quoted {
        return None;
    }
    let (end, doubtful) = match closing(body) {
        Some(closing) => (signed(closing), None),
        None => (lines.len(), last_paragraph(lines, signs, body..lines.len())),
    };
    Some(Block { kind: Kind::Mail, lines: at..end, doubtful: doubtful.into_iter().collect() })
}

/// The evidence of some lines, by kind, in the order in which the kinds appeared.
#[derive(Debug, Default)]
struct Evidence {
    of: Vec<(Kind, usize)>,
}

impl Evidence {
    fn add(&mut self, sign: Sign) {
        let weight = usize::from(sign.weight);
        match self.of.iter_mut().find(|(kind, _)| *kind == sign.kind) {
            Some((_, sum)) => *sum += weight,
            None => self.of.push((sign.kind, weight)),
        }
    }

    fn has(&self, kind: Kind) -> bool {
        self.of.iter().any(|(known, _)| *known == kind)
    }

    fn is_enough(&self) -> bool {
        self.of.iter().map(|(_, sum)| sum).sum::<usize>() >= usize::from(ENOUGH)
    }

    /// The kind with the most evidence, the first of equal kinds.
    fn kind(&self) -> Option<Kind> {
        let mut best: Option<(Kind, usize)> = None;
        for (kind, sum) in self.of.iter().filter(|(_, sum)| *sum > 0) {
            if best.is_none_or(|(_, most)| *sum > most) {
                best = Some((*kind, *sum));
            }
        }
        best.map(|(kind, _)| kind)
    }
}

/// Whether lines of these kinds can follow each other in one paste.
fn go_together(kind: Kind, other: Kind) -> bool {
    let family = |kind| match kind {
        Kind::Log | Kind::Traceback | Kind::Dump | Kind::Terminal => 0,
        Kind::Mail | Kind::Quotation | Kind::Document => 1,
        Kind::Code | Kind::Json | Kind::Config | Kind::Sql | Kind::Markup => 2,
        Kind::Csv | Kind::Table => 3,
        Kind::Diff => 4,
        Kind::Url => 5,
    };
    family(kind) == family(other)
}

/// The block of pasted lines from a line on, if any, and the line to continue from.
fn run(lines: &[Line<'_>], signs: &Signs, at: usize) -> (Option<Block>, usize) {
    let mut evidence = Evidence::default();
    let mut end = at;
    let mut blank = false;
    let mut last = None;
    let mut doubtful = Vec::new();
    // The last line of an output, which may be a request.
    let mut output = None;
    // The first of the lines that only count if a sign follows.
    let mut waiting = None;
    for (number, line) in lines.iter().enumerate().skip(at) {
        // An empty line of a changed file is a space.
        let context = line.text == " " && evidence.kind() == Some(Kind::Diff);
        if line.is_blank() && !context {
            blank = true;
            continue;
        }
        if let Some(sign) = signs.at(number) {
            let kind = evidence.kind().unwrap_or(sign.kind);
            let goes_on = sign.kind == kind || sign.weight.saturating_mul(2) >= ENOUGH;
            let apart = blank || waiting.is_some();
            let counts = sign.weight > 0 || (line.indent() > 0 && waiting.is_some());
            if apart && end > at && !(counts && goes_on && go_together(kind, sign.kind)) {
                break;
            }
            if end > at && fence(line.text).is_some() {
                break;
            }
            if let Some(first) = waiting.take() {
                let own = lines.get(first..number).unwrap_or_default();
                if own.iter().all(|line| line.is_blank() || line.indent() == 0) {
                    doubtful.push(first..number);
                }
            }
            evidence.add(sign);
            last = Some(sign);
            end = number + 1;
            blank = false;
            continue;
        }
        let Some(before) = last else { break };
        // A line that introduces a list does not belong to the output before it.
        let announces = line.text.trim_end().ends_with(':')
            && lines.get(number + 1).is_some_and(|next| is_item(next.text.trim_start()));
        // Rust prints the message of a panic on the next line.
        let message =
            !blank && number == end && lines.get(end - 1).is_some_and(|line| is_panic(line.text));
        let enough = evidence.is_enough();
        let as_the_last = absorbed(line, before.kind, blank, enough);
        let as_most = || evidence.kind().map(|kind| absorbed(line, kind, blank, enough));
        let belongs = match as_the_last {
            Absorbed::No => as_most().unwrap_or(Absorbed::No),
            other => other,
        };
        match belongs {
            _ if message => end = number + 1,
            _ if announces => break,
            Absorbed::Yes => {
                waiting = None;
                end = number + 1;
                let printed = evidence.has(Kind::Terminal) && line.indent() == 0;
                output = printed.then_some(number..end);
            }
            Absorbed::IfMoreFollows => {
                let start = *waiting.get_or_insert(number);
                if number - start >= MOST_WAITING {
                    break;
                }
            }
            Absorbed::No => break,
        }
    }
    let Some(kind) = evidence.kind().filter(|_| evidence.is_enough()) else { return (None, end) };
    doubtful.extend(output.filter(|last: &Range<usize>| last.end == end));
    (Some(Block { kind, lines: at..end, doubtful }), end)
}

/// Maximum consecutive sentences between two lines of a paste.
const MOST_WAITING: usize = 40;

fn is_panic(line: &str) -> bool {
    line.ends_with(':') && line.contains("panicked at ")
}

enum Absorbed {
    Yes,
    IfMoreFollows,
    No,
}

/// Whether a line that gives no evidence belongs to the lines before it.
fn absorbed(line: &Line<'_>, kind: Kind, blank: bool, enough: bool) -> Absorbed {
    let deep = line.indent() >= 2 || line.text.starts_with('\t');
    let text = line.text.trim_start();
    if blank {
        let goes_on = match kind {
            Kind::Code | Kind::Config | Kind::Markup | Kind::Traceback => deep,
            Kind::Diff => is_changed(line.text),
            Kind::Log | Kind::Terminal if deep && enough => return Absorbed::Yes,
            _ => false,
        };
        return if goes_on { Absorbed::IfMoreFollows } else { Absorbed::No };
    }
    match kind {
        _ if !deep && kind != Kind::Diff && (is_addressed(text) || is_item(text)) => Absorbed::No,
        Kind::Terminal => Absorbed::Yes,
        Kind::Diff if line.text.starts_with([' ', '+', '-', '\t']) => Absorbed::Yes,
        Kind::Sql if is_clause(text) => Absorbed::Yes,
        _ if deep && enough => Absorbed::Yes,
        Kind::Log | Kind::Traceback | Kind::Dump | Kind::Markup | Kind::Sql | Kind::Json => {
            Absorbed::IfMoreFollows
        }
        _ if deep => Absorbed::IfMoreFollows,
        _ => Absorbed::No,
    }
}

/// Whether a line continues a statement that is not written in capitals.
fn is_clause(text: &str) -> bool {
    const WORDS: [&str; 16] = [
        "from", "where", "join", "left", "inner", "right", "and", "or", "on", "group", "order",
        "having", "limit", "values", "set", "union",
    ];
    let first = text.split_whitespace().next().unwrap_or_default();
    WORDS.contains(&first) && !Words::of(text).are_a_sentence()
}

/// Whether a line is an item of a list of sentences.
fn is_item(text: &str) -> bool {
    let item = text.strip_prefix(['-', '*', '•']).and_then(|rest| rest.strip_prefix(' '));
    item.is_some_and(|item| Words::of(item).are_prose())
}

/// Whether a line may belong to a diff; an item of a list has a space after its mark.
fn is_changed(line: &str) -> bool {
    let mut letters = line.chars();
    match letters.next() {
        Some(' ') => true,
        Some('+' | '-') => letters.next().is_some_and(|c| c != ' '),
        _ => false,
    }
}
