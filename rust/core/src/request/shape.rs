//! Recognises times at the start of a line, and lines that read as sentences.

use crate::stop_words::is_stop_word;

/// Counts of the words in a line; numbers do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    /// Tokens between white space.
    pub(super) all: usize,
    /// Those made of letters alone, apart from punctuation at their ends.
    pub(super) plain: usize,
    /// Those that are English function words.
    pub(super) common: usize,
    /// Those that are operators or brackets of code.
    pub(super) symbols: usize,
}

impl Words {
    pub(super) fn of(text: &str) -> Self {
        let mut words = Self::default();
        for token in text.split_whitespace() {
            let inner = token
                .trim_start_matches(['(', '"', '\'', '“', '‘', '[', '*', '_', '¿', '¡', '«'])
                .trim_end_matches([
                    '.', ',', ';', ':', '!', '?', ')', '"', '\'', '”', '’', ']', '*', '_', '…', '»',
                ]);
            if inner.is_empty() || inner.chars().all(char::is_numeric) {
                continue;
            }
            words.all += 1;
            if !inner.contains(char::is_alphanumeric) {
                words.symbols += usize::from(!USED_IN_PROSE.contains(&inner));
                continue;
            }
            if !inner.chars().all(|c| c.is_alphabetic() || matches!(c, '\'' | '’' | '-')) {
                continue;
            }
            words.plain += 1;
            if inner.len() <= LONGEST_COMMON {
                let lower = inner.to_lowercase().replace('’', "'");
                words.common += usize::from(is_stop_word(&lower));
            }
        }
        words
    }

    /// Whether a line of these words is a sentence or a part of one.
    pub(super) fn are_prose(self) -> bool {
        let Self { all, plain, common, symbols } = self;
        let mostly = plain * 4 >= all * 3 || (common >= 2 && plain * 2 > all);
        plain == all || (all >= 4 && mostly && symbols * 5 <= all)
    }

    /// Whether a line of these words is a sentence, not a label or a name.
    pub(super) fn are_a_sentence(self) -> bool {
        self.are_prose() && self.plain >= 3 && self.common >= 1
    }
}

/// Whether a line was probably written to an agent by a person, not printed by a program.
pub(super) fn is_addressed(line: &str) -> bool {
    const WORDS: [&str; 16] = [
        "please", "pls", "my", "me", "i", "i'm", "i've", "we", "our", "us", "these", "those",
        "can", "could", "why", "how",
    ];
    // Programs print English.
    if line.chars().find(|c| c.is_alphabetic()).is_some_and(|c| c >= FIRST_BEYOND_LATIN) {
        return true;
    }
    let words = Words::of(line);
    words.are_prose()
        && words.plain >= 3
        && line.split_whitespace().any(|token| {
            let token = token.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
            WORDS.contains(&token.as_str())
        })
}

/// The first letter of the Greek alphabet; of the Latin letters, only those with rare accents follow.
const FIRST_BEYOND_LATIN: char = '\u{370}';

/// Tokens without a letter that are common in sentences.
const USED_IN_PROSE: [&str; 10] = ["-", "–", "—", "&", "/", "+", "*", "•", "->", "→"];

/// In bytes; no function word is longer.
const LONGEST_COMMON: usize = 12;

/// A line without the contents of its string literals, which may be sentences.
pub(super) fn without_strings(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut quote = None;
    let mut before = ' ';
    for letter in line.chars() {
        match quote {
            Some(open) if letter == open && before != '\\' => {
                quote = None;
                kept.push(letter);
            }
            Some(_) => {}
            None => {
                // After a letter it is an apostrophe.
                let opens =
                    matches!(letter, '"' | '`') || (letter == '\'' && !before.is_alphanumeric());
                if opens {
                    quote = Some(letter);
                }
                kept.push(letter);
            }
        }
        before = letter;
    }
    kept
}

/// Reads a line from its start, expectation by expectation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) rest: &'a str,
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a str) -> Self {
        Self { rest }
    }

    /// Passes over a text.
    pub(super) fn text(self, expected: &str) -> Option<Self> {
        self.rest.strip_prefix(expected).map(Self::new)
    }

    /// Passes over one of several characters.
    pub(super) fn one_of(self, expected: &[char]) -> Option<Self> {
        let mut rest = self.rest.chars();
        let next = rest.next()?;
        expected.contains(&next).then(|| Self::new(rest.as_str()))
    }

    /// Passes over a character, if it is there.
    pub(super) fn maybe(self, expected: &[char]) -> Self {
        self.one_of(expected).unwrap_or(self)
    }

    /// Passes over `least` to `most` digits.
    pub(super) fn digits(self, least: usize, most: usize) -> Option<Self> {
        self.run(least, most, |letter| letter.is_ascii_digit())
    }

    /// Passes over `least` to `most` characters of a kind; more of them are refused.
    pub(super) fn run(
        self,
        least: usize,
        most: usize,
        belongs: impl Fn(char) -> bool,
    ) -> Option<Self> {
        let mut count = 0;
        let mut rest = self.rest.chars();
        let mut after = rest.clone();
        while rest.next().is_some_and(&belongs) {
            count += 1;
            if count > most {
                return None;
            }
            after = rest.clone();
        }
        (count >= least).then(|| Self::new(after.as_str()))
    }

    /// Passes over white space, if any.
    pub(super) fn spaces(self) -> Self {
        Self::new(self.rest.trim_start())
    }

    pub(super) fn is_at_end(self) -> bool {
        self.rest.is_empty()
    }
}

/// Whether a character can be part of an identifier.
pub(super) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The text after the time at the start of a log line, and whether the time has seconds.
pub(super) fn after_time(line: &str) -> Option<(&str, bool)> {
    let start = Reader::new(line).maybe(&['[', '(', '<']);
    let (after, seconds) = instant(start)?;
    Some((after.maybe(&[']', ')', '>']).maybe(&[':', ',']).spaces().rest, seconds))
}

fn instant(start: Reader<'_>) -> Option<(Reader<'_>, bool)> {
    let date = date(start);
    let after = match date {
        Some(after) => after.one_of(&['T', ' ', '_', '-', ':', ','])?.spaces(),
        None => start,
    };
    let minutes = after.digits(1, 2)?.text(":")?.digits(2, 2)?;
    let seconds = minutes.text(":").and_then(|at| at.digits(2, 2));
    if date.is_none() && seconds.is_none() {
        return None; // a time of day in a sentence
    }
    let at = seconds.unwrap_or(minutes);
    let at = at.one_of(&['.', ',']).and_then(|at| at.digits(1, 9)).unwrap_or(at);
    let zone = at.maybe(&[' ']);
    let zone = zone
        .one_of(&['+', '-'])
        .and_then(|at| at.digits(4, 4).or_else(|| at.digits(2, 2)?.text(":")?.digits(2, 2)));
    let at = zone.or_else(|| at.text("Z")).unwrap_or(at);
    // A time ends with its digits.
    let ends = at.rest.chars().next().is_none_or(|next| !is_word(next));
    ends.then_some((at, seconds.is_some()))
}

fn date(start: Reader<'_>) -> Option<Reader<'_>> {
    let separators = ['-', '/', '.'];
    let iso = start
        .digits(4, 4)
        .and_then(|at| at.one_of(&separators)?.digits(2, 2)?.one_of(&separators)?.digits(2, 2));
    let day_first =
        || start.digits(1, 2)?.one_of(&separators)?.digits(1, 2)?.one_of(&separators)?.digits(2, 4);
    // `10/Oct/2000` and `10 Oct 2000`.
    let named_day_first = || {
        let at = start.digits(1, 2)?.one_of(&['/', ' ', '-'])?;
        month(at)?.one_of(&['/', ' ', '-'])?.digits(4, 4)
    };
    // `May  1` and `Wed May  1`.
    let named = || {
        let weekday = start.run(3, 3, char::is_alphabetic).and_then(|at| at.text(" "));
        let at = weekday.filter(|at| month(*at).is_some()).unwrap_or(start);
        let at = month(at)?.one_of(&[' '])?.spaces().digits(1, 2)?;
        Some(at.maybe(&[',']).one_of(&[' ']).and_then(|year| year.digits(4, 4)).unwrap_or(at))
    };
    // `I0501`.
    let glog = || start.one_of(&['I', 'W', 'E', 'F'])?.digits(4, 4);
    iso.or_else(day_first).or_else(named_day_first).or_else(named).or_else(glog)
}

fn month(start: Reader<'_>) -> Option<Reader<'_>> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    MONTHS.iter().find_map(|month| start.text(month))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_prose_and_code_is_not() {
        for line in [
            "merge these three PDF files",
            "fix this",
            "Rename exportToPdf to exportDocument in report_view.py, please",
            "what does the second value of np.linalg.svd mean?",
            "add a null check here:",
            "Mach mir daraus eine Tabelle",
            "把这三个文件合并",
        ] {
            assert!(Words::of(line).are_prose(), "{line}");
        }
        for line in ["const total = items.length;", "x += y[3]", "if (a && b) {", "a,b,c_d,4"] {
            assert!(!Words::of(&without_strings(line)).are_prose(), "{line}");
        }
    }

    #[test]
    fn strings_lose_their_contents_and_apostrophes_are_none() {
        assert_eq!(without_strings(r#"say("it is \" fine", 'so')"#), r#"say("", '')"#);
        assert_eq!(without_strings("don't touch the user's file"), "don't touch the user's file");
    }

    #[test]
    fn times_of_logs_are_found() {
        for line in [
            "2026-03-01T09:12:44.120Z worker started",
            "2026-03-01 09:12:44,120 worker started",
            "[2026-03-01 09:12:44] worker started",
            "[2026-03-01 09:12:44 +0000] worker started",
            "09:12:44.1 worker started",
            "Mar  1 09:12:44 worker started",
            "Sun Mar  1 09:12:44 worker started",
            "01/Mar/2026:09:12:44 +0000 worker started",
            "I0301 09:12:44.120445 worker started",
        ] {
            assert_eq!(after_time(line), Some(("worker started", true)), "{line}");
        }
        assert_eq!(after_time("2026-03-01 09:12 lunch"), Some(("lunch", false)));
        for line in ["09:12 lunch", "2026-03-01 lunch", "1.5 hours", "March 3 09:12:44", "9:12:44x"]
        {
            assert_eq!(after_time(line), None, "{line}");
        }
    }
}
