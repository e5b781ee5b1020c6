//! The purpose of a description: its text without the exclusions.
//!
//! "Do not use for spreadsheets" holds the very words of the prompts that it rules out, so that as
//! a part of the description it would be a reason for the document. So does "For spreadsheets, see
//! xlsx". Such clauses are left out of the purpose.
//!
//! English only: in another language hardly any clause is found, and the whole is the purpose.

use std::borrow::Cow;

mod forms;

use crate::lists::lists;
use crate::steps::{step, steps};
use crate::words::{Token, item_mark, sentences, tokens};
use forms::{Form, GENERAL, Object};

/// A description that has fewer words left is searched whole: there is too little else in it.
const FEWEST_WORDS: usize = 3;

/// In a sentence, parentheses that are never closed make many clauses that reach to its end: after
/// this many clauses of so many words, no further one is read.
const MOST_LOOKS: usize = 16;
const MANY_WORDS: usize = 50;

/// The purpose of a description.
///
/// A change of the purpose needs a new version of the index file, which holds its terms.
pub fn strip_exclusions(text: &str) -> Cow<'_, str> {
    let mut purpose = String::with_capacity(text.len());
    let mut under_heading = Heading::None;
    for sentence in sentences(text) {
        let read = Sentence::new(text, sentence.start, sentence.end);
        if read.tokens.is_empty() {
            purpose.push_str(text.get(sentence.start..sentence.end).unwrap_or_default());
            continue;
        }
        let item = sentence.is_item;
        let excluded = match under_heading {
            Heading::Items => item,
            Heading::Any => true,
            Heading::None => false,
        };
        let is_crossed = is_crossed(text.get(sentence.start..sentence.end).unwrap_or_default());
        let found = if excluded || is_crossed { read.whole() } else { read.clauses() };
        under_heading = match (&found, excluded) {
            (_, true) if item => Heading::Items,
            (Found { opens_list: true, .. }, false) => Heading::Any,
            _ => Heading::None,
        };
        let mut start = sentence.start;
        for (from, to) in found.cuts {
            purpose.push_str(text.get(start..from).unwrap_or_default());
            start = to.max(start);
        }
        purpose.push_str(text.get(start..sentence.end).unwrap_or_default());
    }
    let whole = purpose.len() == text.len() || purpose.split_whitespace().count() < FEWEST_WORDS;
    if whole { Cow::Borrowed(text) } else { Cow::Owned(purpose) }
}

/// Whether a sentence or an item begins with a mark that says no: "❌ spreadsheets".
fn is_crossed(sentence: &str) -> bool {
    let text = sentence.trim_start();
    let text = text.get(item_mark(text)..).unwrap_or_default().trim_start();
    text.starts_with(['❌', '🚫', '⛔', '✗', '✘'])
}

/// Whether the next sentences stand under a heading such as "When not to use:".
#[derive(Clone, Copy)]
enum Heading {
    None,
    /// The next sentence does, of whatever kind.
    Any,
    /// The next items of the list do.
    Items,
}

/// The findings in a sentence.
#[derive(Default)]
struct Found {
    /// Parts of the text, in bytes, that exclude something.
    cuts: Vec<(usize, usize)>,
    /// Whether it announces exclusions and names none itself.
    opens_list: bool,
}

struct Sentence<'a> {
    text: &'a str,
    start: usize,
    end: usize,
    /// Without the mark of an item or a heading; places count from the start of the text.
    tokens: Vec<Token<'a>>,
    is_question: bool,
    /// The first word that begins a condition or a relative clause.
    first_link: usize,
}

impl<'a> Sentence<'a> {
    fn new(text: &'a str, start: usize, end: usize) -> Self {
        let inside = text.get(start..end).unwrap_or_default();
        let mut tokens = tokens(inside);
        for token in &mut tokens {
            token.start += start;
            token.end += start;
        }
        let words = tokens.iter().position(Token::is_word).unwrap_or(tokens.len());
        // The number of an item is a word, too.
        let mark = item_mark(inside.trim_start());
        let number = start + inside.len() - inside.trim_start().len() + mark;
        let words = words.max(tokens.partition_point(|token| token.start < number));
        tokens.drain(..words);
        let is_question = tokens.last().is_some_and(|last| last.is("?"));
        while tokens.last().is_some_and(|last| ".!?…".contains(&*last.text)) {
            tokens.pop();
        }
        Self { text, start, end, is_question, first_link: first_link(&tokens), tokens }
    }

    /// The whole sentence, left out.
    fn whole(&self) -> Found {
        Found { cuts: vec![(self.start, self.end)], opens_list: false }
    }

    fn clauses(&self) -> Found {
        if self.is_question {
            return Found::default();
        }
        if let Some((object, from, to)) = self.opening() {
            let back = self.returns(from, to);
            let to = to.min(self.tokens.partition_point(|token| token.start < back));
            let opens_list = object == Object::After && from >= to;
            return Found { cuts: vec![(self.start, back)], opens_list };
        }
        if self.turns_away() || self.sends_elsewhere() {
            return self.whole();
        }
        self.inner()
    }

    /// The form at the start of the sentence, and the tokens that name the exclusions.
    fn opening(&self) -> Option<(Object, usize, usize)> {
        let all = self.tokens.len();
        forms::OPENING.iter().find_map(|form| {
            let end = form.end(&self.tokens, 0)?;
            match form.object {
                Object::Until(word) => {
                    let until = (end + 1..all).find(|at| self.is(*at, word))?;
                    Some((form.object, end, until))
                }
                _ => Some((form.object, self.object_from(form, end), all)),
            }
        })
    }

    /// The first token of the exclusions: the verb, unless it is a general verb such as "handle".
    fn object_from(&self, form: &Form, end: usize) -> usize {
        let general =
            |at: usize| self.tokens.get(at).is_some_and(|token| GENERAL.contains(&&*token.text));
        if form.names_a_verb() && !general(end - 1) { end - 1 } else { end }
    }

    /// Whether the sentence rules out what its first words name: "Maps are out of scope".
    fn turns_away(&self) -> bool {
        let all = self.tokens.len();
        let is_condition = self.opens_with(&CONDITIONS);
        let is_about = self.opens_with(&["for", "when", "if", "with", "on", "where", "to"]);
        let before = |forms: &'static [Form]| {
            let ends = |at: usize| forms.iter().any(|form| form.end(&self.tokens, at) == Some(all));
            (1..all).find(|at| !self.is_quoted(*at) && ends(*at))
        };
        let found =
            before(&forms::BEHIND).filter(|at| !is_condition && self.is_free(*at)).or_else(|| {
                // "Draws charts; for maps, do not use it": only the last clause turns something away.
                let is_first = |at: usize| !self.tokens.iter().take(at).any(|token| token.is(";"));
                before(&forms::TURNS_AWAY)
                    .filter(|at| is_about || (!is_condition && self.is_free(*at) && is_first(*at)))
            });
        found.is_some()
            || (is_about && (2..all).any(|at| self.refers(at)))
            // "Use atlas for maps instead."
            || self.behind_sent().is_some_and(|word| ["for", "when", "if", "to"].contains(&word))
    }

    /// Whether the sentence names nothing but another document: "Use atlas instead".
    fn sends_elsewhere(&self) -> bool {
        self.behind_sent() == Some("instead")
    }

    /// The word behind the name of another document, to which a sentence with "instead" at its end
    /// sends the reader.
    fn behind_sent(&self) -> Option<&str> {
        let last = self.tokens.len().checked_sub(1)?;
        let sends = forms::SENDS.end(&self.tokens, 0).filter(|_| self.is(last, "instead"))?;
        let name = self.tokens.get(sends).filter(|token| token.is_word())?;
        if CONDITIONS.contains(&&*name.text) || name.is("this") || name.is("it") {
            return None;
        }
        Some(self.tokens.get(sends + 1)?.text.as_ref())
    }

    fn opens_with(&self, words: &[&str]) -> bool {
        self.tokens.first().is_some_and(|token| words.contains(&&*token.text))
    }

    /// Whether another document is named here: ", see atlas", "use geo-plots", "use Atlas instead".
    fn refers(&self, at: usize) -> bool {
        let Some(mut name) = forms::SENDS.end(&self.tokens, at) else { return false };
        if self.is(at, "use") && self.is(at.wrapping_sub(1), "to") {
            return false;
        }
        let opens_with_for = self.is(0, "for");
        name += usize::from(self.is(name, "the"));
        let Some(named) = self.tokens.get(name) else { return false };
        if !named.is_word()
            || ["this", "it", "what", "how", "each", "a"].iter().any(|word| named.is(word))
        {
            return false;
        }
        // The name may be followed by "skill", "instead", a parenthesis or "or another-name".
        let mut rest = name + 1;
        rest +=
            usize::from(self.is(rest, "skill") || self.is(rest, "skills") || self.is(rest, "tool"));
        let is_instead = self.is(rest, "instead");
        rest += usize::from(is_instead);
        let ends = match self.tokens.get(rest) {
            None => true,
            Some(next) => {
                next.is("(")
                    || next.is(";")
                    || (next.is("or") && rest + 2 == self.tokens.len())
                    || (next.is(",") && self.is(rest + 1, "or") && rest + 3 == self.tokens.len())
            }
        };
        let behind_comma = self.is(at - 1, ",") && self.is(at, "see");
        let last_is_instead = self.tokens.last().is_some_and(|token| token.is("instead"));
        if opens_with_for {
            (ends && (named.is_name || behind_comma || is_instead)) || last_is_instead
        } else {
            (ends && is_instead)
                || (ends && named.is_name && self.is(at - 1, ","))
                || (last_is_instead && self.is(at - 1, ","))
        }
    }

    /// Clauses of a sentence that says what the document is for.
    fn inner(&self) -> Found {
        let mut found = Found::default();
        let mut at = 1;
        let mut looks = 0;
        while at < self.tokens.len() {
            if self.is_quoted(at) {
                at += 1;
                continue;
            }
            if let Some(stop) = self.referral_at(at, &mut looks) {
                found.cuts.push(self.cut(at, stop));
                at = stop;
                continue;
            }
            let Some(end) = self.clause_at(at) else {
                at += 1;
                continue;
            };
            let stop = self.clause_end(end);
            found.cuts.push(self.cut(at, stop));
            at = stop;
        }
        found
    }

    /// The end of a clause that begins here and sends the reader to another document.
    ///
    /// `looks` counts the attempts that read many words.
    fn referral_at(&self, at: usize, looks: &mut usize) -> Option<usize> {
        let mark = self.tokens.get(at.checked_sub(1)?)?;
        let is_about = ["for", "if", "when"].iter().any(|word| self.is(at, word));
        // "; satellite images are excluded"
        let is_clause = is_about || mark.is(";");
        if !is_clause || ![";", "-", "("].iter().any(|token| mark.is(token)) {
            return None;
        }
        if *looks >= MOST_LOOKS {
            return None;
        }
        let stop = self.clause_end(at);
        steps(stop - at);
        *looks += usize::from(stop - at > MANY_WORDS);
        let tokens = self.tokens.get(at..stop)?.to_vec();
        let clause = Self { first_link: first_link(&tokens), tokens, ..*self };
        clause.turns_away().then_some(stop)
    }

    /// The end of the form of a clause that begins here and excludes something.
    fn clause_at(&self, at: usize) -> Option<usize> {
        let mark = self.tokens.get(at.checked_sub(1)?).map_or("", |token| &*token.text);
        let free = self.is_free(at);
        let is_condition = self.opens_with(&CONDITIONS);
        // "Use for tables, not charts": in other sentences, such as "computed, not guessed", what
        // follows is only a contrast.
        // So does "Charts only, not maps".
        let is_only = at > 1 && self.is(at - 2, "only");
        let is_plain = is_condition || is_only || self.opens_with(&STATING);
        let mut lists: Vec<&'static [Form]> = match mark {
            ";" => vec![&forms::CLAUSE, &forms::BARE],
            "(" => vec![&forms::OPENING],
            "-" | ":" if !is_condition => vec![&forms::CLAUSE, &forms::AFTER_COMMA],
            "," | "-" | ":" => vec![&forms::AFTER_COMMA],
            _ => Vec::new(),
        };
        if is_plain && matches!(mark, "," | "-") {
            lists.push(&forms::BARE);
        }
        lists.push(&forms::EXCEPT);
        if free {
            lists.push(&forms::EXCEPT_PLAINLY);
        }
        let forms = lists.into_iter().flatten();
        let fits = forms.filter_map(|form| Some((form, form.end(&self.tokens, at)?)));
        // "when, not if, a server fails" excludes nothing.
        fits.into_iter()
            .find(|(form, end)| {
                form.object == Object::Nothing || self.tokens.get(*end).is_some_and(Token::is_word)
            })
            .map(|(_, end)| end)
    }

    /// Whether no condition or relative clause begins before this place.
    fn is_free(&self, at: usize) -> bool {
        at <= self.first_link
    }

    /// The token behind a clause, whose form ends at this token.
    fn clause_end(&self, end: usize) -> usize {
        let mut open = 0_usize;
        for place in end..self.tokens.len() {
            let Some(token) = self.tokens.get(place) else { break };
            match &*token.text {
                "(" => open += 1,
                ")" | ";" | "!" | "?" | "-" | "." | "unless" if open == 0 => return place,
                ")" => open -= 1,
                "," if open == 0 && self.is(place + 1, "but") => return place,
                "but" if open == 0 && self.comes_back(place) => return place,
                _ => {}
            }
        }
        self.tokens.len()
    }

    /// Where a sentence that excludes something comes back to what the document is for, in bytes.
    fn returns(&self, from: usize, to: usize) -> usize {
        let place = (from..to).find(|place| self.comes_back(*place));
        place.and_then(|place| self.tokens.get(place)).map_or(self.end, |token| token.start)
    }

    /// Whether the purpose continues here, as in "; use it for letters".
    fn comes_back(&self, at: usize) -> bool {
        let next = |words: &[&str]| words.iter().any(|word| self.is(at + 1, word));
        (self.is(at, "but") && next(&["for", "use", "only", "when", "do", "it", "this", "on"]))
            || (self.is(at, ";")
                && next(&["use", "trigger"])
                && ["when", "whenever", "for", "it", "this", "if", "only"]
                    .iter()
                    .any(|word| self.is(at + 2, word)))
    }

    fn is_quoted(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is_quoted)
    }

    fn is(&self, at: usize, word: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(word))
    }

    /// The bytes of a clause from what separates it to its end.
    fn cut(&self, at: usize, stop: usize) -> (usize, usize) {
        let before = at.checked_sub(1).and_then(|before| self.tokens.get(before));
        let mark = before.filter(|token| !token.is_word() && !token.is(")") && !token.is("]"));
        let first = mark.or(self.tokens.get(at)).map_or(self.end, |token| token.start);
        let head = self.text.get(self.start..first).unwrap_or_default().trim_end().len();
        let last = self.tokens.get(stop.saturating_sub(1)).map_or(self.end, |token| token.end);
        let last = match self.tokens.get(stop) {
            Some(closing) if closing.is(")") && mark.is_some_and(|token| token.is("(")) => {
                closing.end
            }
            _ => last,
        };
        (self.start + head, last)
    }
}

fn first_link(tokens: &[Token<'_>]) -> usize {
    tokens.iter().position(is_link).unwrap_or(tokens.len())
}

fn is_link(token: &Token<'_>) -> bool {
    step();
    token.text.split('\'').next().is_some_and(|word| LINKS.contains(&word))
}

lists!("exclusion_words.txt": CONDITIONS, STATING, LINKS);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::steps::assert_linear;

    #[test]
    fn sentences_that_rule_something_out_are_left_out() {
        for (whole, left) in [
            (
                "Measures what a service bears. Never writes unit tests.",
                "Measures what a service bears. ",
            ),
            ("Edits PDF files. Do not use for Word files.", "Edits PDF files. "),
            (
                "Edits PDF files. NOT for slides! Merges them too.",
                "Edits PDF files. Merges them too.",
            ),
            ("Plans lessons for teachers. Does not grade work.", "Plans lessons for teachers. "),
            ("Reads agreements for one side. No wills.", "Reads agreements for one side. "),
            (
                "Reads agreements for one side\n- Never writes filings\n",
                "Reads agreements for one side\n",
            ),
            (
                "Edits PDF files. Do not use for Word\nfiles, spreadsheets or slides.\n\nMerges them.",
                "Edits PDF files. Merges them.",
            ),
            (
                "Says \"TUI.\" Do not use for browsers. Draws in a terminal.",
                "Says \"TUI.\" Draws in a terminal.",
            ),
            (
                "Crops product photos (not for video), removes backgrounds and exports WebP.",
                "Crops product photos, removes backgrounds and exports WebP.",
            ),
            (
                "Writes formal letters, not for spam, but for support and onboarding.",
                "Writes formal letters, but for support and onboarding.",
            ),
            (
                "Edits PDF files, not for Word; merges PDF files, not for slides (or Keynote).",
                "Edits PDF files; merges PDF files.",
            ),
            (
                "Builds web apps with React, not for Vue.js or Next.js.",
                "Builds web apps with React.",
            ),
            (
                "Run before a release; do not use for drafts without a date.",
                "Run before a release.",
            ),
            ("Deploys to the edge. It should not be used for Render.", "Deploys to the edge. "),
            (
                "Fills in claims of employees and not for bookkeeping.",
                "Fills in claims of employees.",
            ),
            ("Tunes the fan curve; not for clock frequencies.", "Tunes the fan curve."),
            ("Draws charts of sales; for maps, do not use it.", "Draws charts of sales."),
            ("Draws charts of sales only, not maps.", "Draws charts of sales only."),
            (
                "Draws charts of sales.\n\nWhen not to use:\n1. maps\n2. tables\n",
                "Draws charts of sales.\n\n",
            ),
            ("Writes the first letter. For reminders, see dunning.", "Writes the first letter. "),
            (
                "Prunes old trees. For young ones (under two years), see `tree-nursery`.",
                "Prunes old trees. ",
            ),
            (
                "Plans the week of a team. For a single person, see the planner skill (or diary).",
                "Plans the week of a team. ",
            ),
            ("Draws line charts. For maps use geo-plots.", "Draws line charts. "),
            ("Draws line charts. For maps, use Atlas instead!", "Draws line charts. "),
            (
                "Mends bicycles at home.\n- For e-bikes, try the motor-repair skill instead.",
                "Mends bicycles at home.\n",
            ),
        ] {
            assert_eq!(strip_exclusions(whole), left, "{whole}");
        }
    }

    #[test]
    fn texts_without_exclusions_are_unchanged() {
        for text in [
            "",
            "Merges, splits and fills in PDF files. Use when a form has to be filled in.",
            "Use when the tests do not pass or a build does not finish.",
            "Finds out why users are not signing up.",
            "Notes for every meeting. Nothing is sent.",
            "Compares two folders. For each file, see what changed.",
            "Reads invoices. For scans, use this skill as well.",
            "Explains accidents. For causes, use cause-and-effect diagrams.",
            "For teams that see too many alerts: sorts them by what to do.",
            "For versioning, use semantic-release, changelogs and git tags.",
            "For failing calls, use circuit-breakers and retries with jitter.",
            "For scans, see this.",
            "For maps, see atlas or draw them by hand.",
            "For maps, see atlas, first choice.",
            "When maps are needed, use atlas.",
            "When maps are needed, use geo-plots and paper.",
            "When maps are needed, use paper and ink.",
            "When teams use paper maps instead.",
            "Use this for maps instead.",
            "Use it for maps instead.",
            "Use for features out of scope.",
            "Explains why some formats are not supported.",
            "Explains when not to use it.",
            "Defers to the style of the house.",
            "For maps, use atlas.",
            "Draws maps as well, see atlas for towns instead.",
            "Use for bars - it does not cover lines.",
            "Draws bars, do not use for (say) maps.",
            "It does not need maps.",
            "Draws bars unless maps are drawn.",
            "Use for bars unless the user draws maps.",
            "Not only bars.",
            "Draws bars - not lines - of costs.",
            "Draws bars [of costs] not for maps.",
            "Moves work between trackers. For teams that left Jira and want to use Linear instead.",
            "Use whenever somebody needs a pitch, even if they do not use the word deck.",
            "Explains when and when not to use useMemo, useCallback and memo.",
            "Runs a drill for when, not if, a server fails: failover, backups and recovery.",
            "Debugs test suites. Use when tests are\nnot passing, fixtures leak or mocks fail.",
            "Builds landing pages. No coding needed: describe colours, fonts and layout.",
            "Picks the right chart. Not sure whether bar, line or scatter fits your data?",
            "Keeps notes. Never lose context again.",
            "Draws page layouts. Never draw one without a sketch of its sections.",
            "Fixes office printers. Cannot connect to WiFi, paper jams, blank pages.",
            "Собирает сайты и приложения. Платформы no code и low code.",
        ] {
            assert!(matches!(strip_exclusions(text), Cow::Borrowed(_)), "{text}");
            // Alone, a text whose every sentence is left out is searched whole.
            let text = format!("Draws charts of sales. {text}");
            assert_eq!(strip_exclusions(&text), text);
        }
    }

    #[test]
    fn every_common_form_is_left_out() {
        for said in [
            "It does not handle board minutes.",
            "This skill does NOT cover board minutes.",
            "report-writer doesn't do board minutes.",
            "We do not support board minutes.",
            "It handles neither board minutes nor poems.",
            "Should NOT trigger on board minutes.",
            "Must not be used for board minutes.",
            "Should never be triggered by questions about board minutes.",
            "Please don't trigger this for board minutes.",
            "You should not use this tool for board minutes.",
            "Don't reach for this when somebody needs board minutes.",
            "Never invoke it when the user asks about board minutes.",
            "Use this except for board minutes.",
            "Applies to everything but board minutes.",
            "Use for any kind of report other than board minutes.",
            "Use for any report, with the exception of board minutes.",
            "Use for any report unless it is for board minutes.",
            "Use this skill for weekly reports, not board minutes.",
            "Drafts weekly reports but not board minutes.",
            "Drafts weekly reports (no board minutes).",
            "Drafts weekly reports; skip for board minutes.",
            "Excludes board minutes.",
            "Ignore for board minutes.",
            "Skip it for board minutes.",
            "Avoid using this for board minutes.",
            "Steer clear of it for board minutes.",
            "When not to use: board minutes, poems.",
            "Out of scope: board minutes; poems.",
            "Non-goals: board minutes.",
            "Anti-triggers: \"board minutes\", \"poems\".",
            "Do NOT activate: board minutes.",
            "When NOT to use this skill:\n- board minutes\n- poems",
            "\n\n## When not to use\n\n- board minutes\n- poems\n",
            "Everything but board minutes.",
            "For anything except board minutes.",
            "Board minutes are out of scope.",
            "Board minutes are not supported.",
            "Board minutes don't belong here.",
            "Board minutes are handled by `minute-taker`.",
            "Requests for board minutes should not trigger this skill.",
            "For board minutes, don't use this.",
            "If the user wants board minutes, use minute-taker instead.",
            "Use minute-taker for board minutes instead.",
            "Leave board minutes to minute-taker.",
            "Another skill handles board minutes.",
            "Has nothing to do with board minutes.",
            "The wrong tool for board minutes.",
            "Unsuitable for board minutes.",
            "Not applicable to board minutes.",
            "This isn't the right skill for board minutes.",
            "Not to be confused with board minutes.",
            "Refuse and route elsewhere for board minutes.",
            "Rejects requests for board minutes.",
            "No board minutes.",
            "Won't help with board minutes.",
            "Unlike minute-taker, it does not handle board minutes.",
            "In contrast to minute-taker, this does not cover board minutes.",
            "It knows nothing about board minutes.",
            "Negative scope: board minutes.",
            "❌ board minutes",
            "- ❌ board minutes",
            "Should be avoided for board minutes.",
            "Board minutes are someone else's job.",
            "Leave board minutes alone.",
            "Defer to `minute-taker` for board minutes.",
            "Limitations: no board minutes.",
            "Limitation: cannot handle board minutes.",
            "Use for reports; board minutes are excluded.",
            "You don't need this for board minutes.",
            "There is a separate skill for board minutes.",
            "What it doesn't do: board minutes.",
            "What this skill is not for: board minutes.",
            "Don'ts: board minutes.",
            "Disable for board minutes.",
            "Does nothing for board minutes.",
            "Bad at board minutes.",
            "It is a mistake to use this for board minutes.",
            "Deprecated for board minutes.",
            "Board minutes → use `minute-taker`.",
            "What it does not cover:\n- board minutes\n- poems",
            "When NOT to use this skill:\n1. board minutes\n2. poems",
            "What this skill is not: board minutes.",
            "Lacks support for board minutes.",
            "Without support for board minutes.",
            "Use something else for board minutes.",
            "Look elsewhere for board minutes.",
            "Exclude: board minutes.",
            "Beyond its scope: board minutes.",
            "Drafts weekly reports only, not board minutes.",
            "Drafts weekly reports; for board minutes, do not use it.",
        ] {
            let text = format!("Drafts status reports for teams and their leads. {said}");
            let purpose = strip_exclusions(&text);
            assert!(!purpose.to_lowercase().contains("board minutes"), "{said}");
            assert!(purpose.contains("status reports"), "{said}");
        }
    }

    /// Compares the purpose of a text behind a first sentence.
    fn assert_left(text: &str, left: &str) {
        let whole = format!("Draws charts of sales. {text}");
        assert_eq!(strip_exclusions(&whole), format!("Draws charts of sales. {left}"), "{text}");
    }

    #[test]
    fn a_heading_excludes_the_sentence_or_the_list_behind_it() {
        for (text, left) in [
            ("When not to use:\n- maps\n- forms\n\nAnd bars.", "\nAnd bars."),
            ("When not to use:\n1) Maps\n2) Forms\n\nAnd bars.", "\nAnd bars."),
            ("Out of scope:\n\nMaps, forms.\n- And bars.", "- And bars."),
            ("And bars.\n1) Not for maps.\n2) Not for forms.", "And bars.\n"),
            ("When not to use:\n- Route planning\n- or maps\n", ""),
            ("Do not use. And bars.", "And bars."),
            ("Not for non-tabular files. And bars.", "And bars."),
        ] {
            assert_left(text, left);
        }
    }

    #[test]
    fn a_sentence_that_sends_the_reader_to_another_document_is_left_out() {
        for text in [
            "Use atlas instead.",
            "For maps, but only of towns, see atlas.",
            "For maps to print, use geo-plots.",
            "For maps, see atlas or grid.",
            "For maps, see atlas, or grid.",
            "When maps are needed, use geo-plots.",
            "When maps are needed, use atlas and grid instead.",
            "When maps are needed, use atlas instead (it is free).",
            "Leaves maps to atlas.",
        ] {
            assert_left(text, "");
        }
    }

    #[test]
    fn a_clause_that_excludes_something_ends_where_the_purpose_goes_on() {
        for (text, left) in [
            ("Do not use for maps but for bars.", "but for bars."),
            ("Do not use for road maps; use it for bars.", "; use it for bars."),
            ("And bars (of costs, not for maps).", "And bars (of costs)."),
            ("And bars (not for maps (of towns) or forms) of costs.", "And bars of costs."),
            ("And bars, not for maps, but of costs.", "And bars, but of costs."),
            ("And bars, not for maps; of costs.", "And bars; of costs."),
            ("And bars (of costs), not for maps.", "And bars (of costs)."),
            ("And bars [of costs] except for maps.", "And bars [of costs]."),
            ("And bars (for maps, see atlas) of costs.", "And bars of costs."),
            ("And bars (if it fails, use atlas instead) of costs.", "And bars of costs."),
            ("Use for bars - not maps - of costs.", "Use for bars - of costs."),
            ("And bars - it does not cover lines.", "And bars."),
            ("And bars; do not use outside.", "And bars."),
            ("Not for road (or sea) maps.", ""),
            ("Not for maps (of roads) or forms.", ""),
            ("Not for maps (of roads).", ""),
            ("And bars, not for old but large maps.", "And bars."),
            ("And bars, not for maps but use for costs.", "And bars but use for costs."),
        ] {
            assert_left(text, left);
        }
    }

    #[test]
    fn a_long_sentence_takes_as_long_as_its_length() {
        for piece in ["y ", "(not ", "- not a ", "(for "] {
            assert_linear(piece, |text| strip_exclusions(text).len());
        }
    }

    #[test]
    fn a_description_of_exclusions_alone_is_searched_whole() {
        let text = "Do not use for Word files. Never for slides.";
        assert_eq!(strip_exclusions(text), text);
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_gets_no_longer(text in "\\PC{0,200}", other in "(?s).{0,80}") {
            for text in [&text, &other] {
                let kept = strip_exclusions(text);
                prop_assert!(kept.len() <= text.len());
                prop_assert_eq!(strip_exclusions(text), kept);
            }
        }
    }
}
