//! Material within a line of the request: code between marks, addresses, objects, long quotations.

use std::ops::Range;

use super::Kind;
use super::lines::{ENOUGH, LONGEST_WORD, is_level, sign};
use super::shape::{Reader, Words, after_time, without_strings};
use crate::steps::steps;

/// A quotation of this many bytes or more is material; a shorter quotation is part of the request.
const LONG_QUOTATION: usize = 160;

/// JSON or XML of fewer bytes is an example that belongs to the request.
const SHORT: usize = 16;

/// Adds the material within a part of the prompt, in its order.
pub(super) fn inline(prompt: &str, part: Range<usize>, pasted: &mut Vec<(Kind, Range<usize>)>) {
    let text = prompt.get(part.clone()).unwrap_or_default();
    let mut scan = Scan { text, at: 0, line: 0, done: Done::default() };
    while let Some((kind, range)) = scan.next_place() {
        pasted.push((kind, part.start + range.start..part.start + range.end));
    }
}

/// Positions up to which a search has failed, or has its result already.
#[derive(Debug, Default)]
struct Done {
    fences: bool,
    /// Ends of the lines or words in which these are not searched for again.
    objects: usize,
    tags: usize,
    statements: usize,
    addresses: usize,
    data: usize,
    /// The same, and the number of attempts in this line that read the rest of it.
    announced: (usize, usize),
    times: (usize, usize),
    /// Where a quotation ends that is too short, and so is each one within it.
    quotation: usize,
    /// Opening marks of quotations that have no closing mark.
    open: Vec<char>,
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// The end of the line that contains `at`.
    line: usize,
    done: Done,
}

impl<'a> Scan<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The rest of the line.
    fn line(&self) -> &'a str {
        self.text.get(self.at..self.line).unwrap_or_default()
    }

    fn next_place(&mut self) -> Option<(Kind, Range<usize>)> {
        let mut before = ' ';
        while let Some(letter) = self.rest().chars().next() {
            if self.at >= self.line {
                let end = self.rest().find('\n').map_or(self.text.len(), |end| self.at + end + 1);
                self.line = end;
            }
            let found = match letter {
                '`' => self.code(),
                '{' | '[' => self.object(),
                '<' => self.tags(),
                ':' => self.address().or_else(|| self.announced()),
                '"' | '“' | '«' | '„' => self.quotation(letter, before),
                _ if is_start(before) => self.word(letter),
                _ => None,
            };
            if let Some((kind, range)) = found {
                self.at = range.end;
                return Some((kind, range));
            }
            before = letter;
            self.at += letter.len_utf8();
        }
        None
    }

    /// Code between marks; names and short examples are words of the request.
    fn code(&mut self) -> Option<(Kind, Range<usize>)> {
        let rest = self.rest();
        let length = rest.len() - rest.trim_start_matches('`').len();
        let mark = rest.get(..length)?;
        let inner = rest.get(length..)?;
        // A fence may end on a later line, other marks end on the same line.
        let end = match length {
            1 | 2 => self.line().get(length..)?.find(mark),
            _ if self.done.fences => None,
            _ => inner.find("```"),
        };
        self.done.fences |= length >= 3 && end.is_none();
        let Some(end) = end else {
            self.at += length - 1;
            return None;
        };
        let inside = inner.get(..end)?;
        let after = inner.get(end..)?;
        let close = after.len() - after.trim_start_matches('`').len();
        let all = self.at..self.at + length + end + close;
        let is_long = inside.len() >= LONG_CODE && inside.trim().contains(char::is_whitespace);
        if is_long && inside.contains(['(', ';', '=', '{', '<', '\n']) {
            return Some((Kind::Code, all));
        }
        self.at = all.end - 1; // the last mark
        None
    }

    /// JSON, up to its end or to that of the line.
    fn object(&mut self) -> Option<(Kind, Range<usize>)> {
        if self.at < self.done.objects {
            return None;
        }
        let line = self.line();
        let inner = line.trim_start_matches(['{', '[', ' ']);
        let member = inner.strip_prefix('"').and_then(|key| key.split_once('"'));
        let is_json = member.is_some_and(|(key, rest)| {
            key.len() <= 100 && rest.trim_start().starts_with([':', ','])
        });
        if !is_json {
            self.done.objects = self.at + (line.len() - inner.len()).max(1);
            return None;
        }
        let end = end_of_object(line);
        if end.is_none() {
            self.done.objects = self.line;
        }
        let end = end.unwrap_or(line.trim_end().len());
        (end >= SHORT).then_some((Kind::Json, self.at..self.at + end))
    }

    /// XML or HTML, from a tag to the last closing tag of the line.
    fn tags(&mut self) -> Option<(Kind, Range<usize>)> {
        if self.at < self.done.tags {
            return None;
        }
        let line = self.line();
        let name = Reader::new(line)
            .text("<")?
            .run(1, 40, |c| c.is_ascii_alphanumeric() || matches!(c, '-' | ':'))?;
        if !name.rest.starts_with(['>', ' ', '/']) {
            return None;
        }
        self.done.tags = self.line;
        let last = line.rfind("</")?;
        let end = last + line.get(last..)?.find('>')? + 1;
        (end >= SHORT).then_some((Kind::Markup, self.at..self.at + end))
    }

    /// The path of an address. Its host and file type stay in the request as evidence.
    fn address(&mut self) -> Option<(Kind, Range<usize>)> {
        if self.at < self.done.addresses {
            return None;
        }
        let host = self.rest().strip_prefix("://")?;
        let word = host
            .split(|c: char| {
                c.is_whitespace()
                    || matches!(c, '"' | '\'' | '<' | '>' | ')' | ']' | '}' | '`' | '|')
            })
            .next()?;
        steps(word.len());
        let start = self.at + "://".len();
        // Without a path here, there is none from a later mark of this word on either.
        self.done.addresses = start + word.len();
        let whole = word.trim_end_matches(['.', ',', ';', ':', '!', '?', '*', '_', '—', '…', '/']);
        let from = whole.find(['/', '?', '#'])?;
        let path = whole.get(from..)?;
        let file = path.rsplit('/').next().unwrap_or_default();
        let kind = file.rsplit_once('.').filter(|(name, kind)| {
            !name.is_empty()
                && kind.len() <= 5
                && kind.starts_with(|c: char| c.is_ascii_alphabetic())
                && kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
                && !PAGES.contains(kind)
        });
        let end = whole.len() - kind.map_or(0, |(_, kind)| kind.len() + 1);
        if end < from + 2 {
            return None;
        }
        let closing = kind.is_none() && host.get(end..).is_some_and(|rest| rest.starts_with('/'));
        Some((Kind::Url, start + from..start + end + usize::from(closing)))
    }

    /// Code after a colon, up to the end of the line. An error message there belongs to the sentence.
    fn announced(&mut self) -> Option<(Kind, Range<usize>)> {
        if self.at < self.done.announced.0 {
            return None;
        }
        let line = self.line();
        let rest = line.strip_prefix(": ")?;
        look(&mut self.done.announced, self.line);
        steps(line.len());
        let kind = sign(rest).filter(|sign| sign.weight >= ENOUGH)?.kind;
        let says_more = Words::of(&without_strings(rest)).common > 2;
        let is_one =
            matches!(kind, Kind::Code | Kind::Sql) && rest.trim().len() >= SHORT && !says_more;
        is_one.then(|| (kind, self.at + ": ".len()..self.at + line.trim_end().len()))
    }

    /// A quotation that is too long to be a part of the request.
    fn quotation(&mut self, letter: char, before: char) -> Option<(Kind, Range<usize>)> {
        let opens = before.is_whitespace() || matches!(before, '(' | '[' | ':' | '—' | '-');
        if !opens {
            return None;
        }
        let start = self.at + letter.len_utf8();
        if start < self.done.quotation || self.done.open.contains(&letter) {
            return None;
        }
        let inner = self.text.get(start..)?;
        let Some(end) = end_of_quotation(inner, letter).map(|end| start + end) else {
            steps(inner.len());
            self.done.open.push(letter);
            return None;
        };
        steps(end - start);
        let words = Words::of(self.text.get(start..end)?).all;
        let is_long = end - start >= LONG_QUOTATION && words >= 20;
        self.done.quotation = end;
        is_long.then_some((Kind::Quotation, self.at..end))
    }

    /// A message of a log, a statement or data that begins with this word, up to the end of the line.
    fn word(&mut self, letter: char) -> Option<(Kind, Range<usize>)> {
        let line = self.line();
        if letter.is_ascii_digit() {
            if self.at < self.done.times.0 {
                return None;
            }
            let (rest, seconds) = after_time(line)?;
            if !seconds || Reader::new(line).digits(4, 4).is_none() {
                return None;
            }
            look(&mut self.done.times, self.line);
            steps(line.len());
            let first = rest.split_whitespace().next().unwrap_or_default();
            let says = is_level(first) || !Words::of(rest).are_prose();
            let end = self.at + line.trim_end().len();
            return says.then_some((Kind::Log, self.at..end));
        }
        if letter.is_ascii_uppercase() && self.at >= self.done.statements && is_statement(line) {
            self.done.statements = self.line;
            let end = line.find(';').map_or(line.trim_end().len(), |end| end + 1);
            let statement = line.get(..end)?;
            let sign =
                sign(statement).filter(|sign| sign.kind == Kind::Sql && sign.weight >= ENOUGH);
            return sign.map(|sign| (sign.kind, self.at..self.at + end));
        }
        if letter.is_ascii_graphic() && self.at >= self.done.data {
            let word = line.split(char::is_whitespace).next()?;
            steps(word.len());
            let foreign = word.rfind(|letter: char| !letter.is_ascii()).max(word.rfind("://"));
            let short = word.len() < LONGEST_WORD;
            if foreign.is_none() && !short {
                return Some((Kind::Dump, self.at..self.at + word.len()));
            }
            // Each end of the word with the same fault is none, too.
            self.done.data = self.at + if short { word.len() } else { foreign.unwrap_or(0) + 1 };
        }
        None
    }
}

/// Shorter code is an example that belongs to the request.
const LONG_CODE: usize = 60;

/// Maximum attempts in a line that read the rest of it.
const MOST_LOOKS: usize = 4;

/// Counts an attempt; after the last one, there is none up to the end of the line.
fn look(done: &mut (usize, usize), line: usize) {
    done.1 += 1;
    if done.1 >= MOST_LOOKS {
        *done = (line, 0);
    }
}

/// File types that only show that something is on the web.
const PAGES: [&str; 7] = ["html", "htm", "php", "asp", "aspx", "jsp", "cgi"];

/// Whether a word may begin after a character.
fn is_start(before: char) -> bool {
    before.is_whitespace() || matches!(before, ':' | '(' | '—')
}

fn is_statement(line: &str) -> bool {
    const STARTS: [&str; 7] = [
        "SELECT ",
        "INSERT INTO ",
        "UPDATE ",
        "DELETE FROM ",
        "CREATE ",
        "ALTER TABLE ",
        "DROP TABLE ",
    ];
    STARTS.iter().any(|start| line.starts_with(start))
}

/// The end of an object or list within a line; none if it does not end there.
fn end_of_object(line: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut quoted = false;
    let mut escaped = false;
    for (at, letter) in line.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => depth += 1,
            '}' | ']' if !quoted => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The end of a quotation, after its closing mark.
fn end_of_quotation(inner: &str, open: char) -> Option<usize> {
    let close = match open {
        '“' | '„' => '”',
        '«' => '»',
        open => open,
    };
    let mut before = ' ';
    let mut letters = inner.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let after = letters.peek().map_or(' ', |(_, after)| *after);
        let ends = !before.is_whitespace() && !after.is_alphanumeric();
        if (letter == close || (open == '„' && letter == '“')) && (ends || close != '"') {
            return Some(at + letter.len_utf8());
        }
        before = letter;
    }
    None
}
