//! The words and marks of a description with their places, and patterns over them.

use std::borrow::Cow;
use std::ops::Range;

use crate::lists::Section;
use crate::steps::{step, steps};

/// A word or a mark of a text.
#[derive(Clone, Debug)]
pub(crate) struct Token<'a> {
    /// In lower case, with the typewriter's apostrophe.
    pub(crate) text: Cow<'a, str>,
    /// Its first byte in the text.
    pub(crate) start: usize,
    /// The byte after its last byte.
    pub(crate) end: usize,
    /// Whether it is written like the name of a skill: in backticks, or with a hyphen or underscore.
    pub(crate) is_name: bool,
    /// Whether it is in quotation marks: an example, and not a part of the sentence.
    pub(crate) is_quoted: bool,
}

impl Token<'_> {
    pub(crate) fn is_word(&self) -> bool {
        self.text.starts_with(|letter: char| letter.is_alphanumeric() || "./@#".contains(letter))
            && self.text.contains(char::is_alphanumeric)
    }

    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

/// Characters that join two letters or digits to one word, such as in `Vue.js` and `don't`.
const JOINING: &str = "-_./'’+#@&";
/// Characters that may begin a word, such as in `.docx`, `@types` and `/deploy`.
const LEADING: &str = "./@#";
/// Marks that separate clauses or items; other marks are left out.
const MARKS: &str = ",;:.!?()[]→…|";
/// Dashes, each of which becomes the mark `-`, except a hyphen next to a word.
const DASHES: &str = "-–—";

/// The words of a text in their order, with the marks that separate clauses.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut letters = text.char_indices().peekable();
    let mut before = ' ';
    while let Some((start, letter)) = letters.next() {
        let next = letters.peek().map(|(_, next)| *next);
        let leads = LEADING.contains(letter)
            && !before.is_alphanumeric()
            && next.is_some_and(char::is_alphanumeric);
        if letter.is_alphanumeric() || leads {
            let mut end = start + letter.len_utf8();
            while let Some((at, letter)) = letters.peek().copied() {
                let after = end_of(at, letter);
                let joins = JOINING.contains(letter)
                    && text
                        .get(after..)
                        .is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
                if !letter.is_alphanumeric() && !joins && !"+#".contains(letter) {
                    break;
                }
                letters.next();
                end = after;
            }
            let word = text.get(start..end).unwrap_or_default();
            let is_name = before == '`' || word.trim_matches('-').contains(['-', '_']);
            found.push(Token { text: lower(word), start, end, is_name, is_quoted: false });
        } else if MARKS.contains(letter)
            || (DASHES.contains(letter) && (letter != '-' || before.is_whitespace()))
        {
            let text = if DASHES.contains(letter) {
                Cow::Borrowed("-")
            } else {
                Cow::Borrowed(text.get(start..end_of(start, letter)).unwrap_or_default())
            };
            let end = end_of(start, letter);
            found.push(Token { text, start, end, is_name: false, is_quoted: false });
        }
        before = found.last().map_or(letter, |token: &Token<'_>| {
            text.get(token.start.max(start)..token.end)
                .and_then(|word| word.chars().next_back())
                .unwrap_or(letter)
        });
    }
    let mut quotes = quoted(text).into_iter().peekable();
    for token in &mut found {
        while quotes.next_if(|quote| quote.end <= token.start).is_some() {}
        token.is_quoted = quotes.peek().is_some_and(|quote| quote.start <= token.start);
    }
    found
}

/// Most bytes between the marks of a quotation.
const LONGEST_QUOTE: usize = 200;

/// The quotations in their order; a quotation within another quotation is a part of it.
pub(crate) fn quoted(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut before = ' ';
    for (at, mark) in text.char_indices() {
        let start = end_of(at, mark);
        let last = std::mem::replace(&mut before, mark);
        let next = text.get(start..).and_then(|rest| rest.chars().next()).unwrap_or(' ');
        if found.last().is_some_and(|quote| at <= quote.end) || next.is_whitespace() {
            continue;
        }
        let closing = match mark {
            '"' | '`' => mark,
            '“' | '„' => '”',
            '«' => '»',
            '\'' if !last.is_alphanumeric() => '\'',
            '‘' => '’',
            _ => continue,
        };
        let inside = text.get(start..).unwrap_or_default();
        let length =
            inside.char_indices().take_while(|(at, _)| *at <= LONGEST_QUOTE).find(|(at, c)| {
                // Not the apostrophe of "don't".
                let after = inside.get(end_of(*at, *c)..).and_then(|rest| rest.chars().next());
                let closes =
                    *c == closing || (mark == '“' && *c == '"') || (mark == '„' && *c == '“');
                *at > 0
                    && closes
                    && !(matches!(closing, '\'' | '’') && after.is_some_and(char::is_alphanumeric))
            });
        if let Some((length, _)) = length.filter(|(length, _)| {
            inside.get(..*length).is_some_and(|quote| !quote.contains("\n\n"))
        }) {
            found.push(start..start + length);
        }
    }
    found
}

fn end_of(start: usize, letter: char) -> usize {
    start + letter.len_utf8()
}

fn lower(word: &str) -> Cow<'_, str> {
    if word.chars().all(|letter| letter.is_lowercase() || letter.is_ascii_digit()) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(word.to_lowercase().replace('’', "'"))
    }
}

/// A sentence of a text, in bytes.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Whether it is an item of a list.
    pub(crate) is_item: bool,
}

/// The sentences of a text, each with the white space behind it. A line break ends a
/// sentence only before a blank line or an item of a list.
pub(crate) fn sentences(text: &str) -> Vec<Bounds> {
    let mut found = Vec::new();
    let (mut start, mut is_item) = (0, item_mark(text) > 0);
    let mut next_at = 0;
    let mut place = Place { word: 0, is_blank: true, is_number: false };
    // The first letter of the sentence.
    let mut first = None;
    let mut gap = Gap::default();
    for (at, letter) in text.char_indices() {
        step();
        let before = place;
        place.pass(at, letter);
        if at < next_at {
            continue;
        }
        if !letter.is_whitespace() {
            first.get_or_insert(at);
        }
        let rest = text.get(at + letter.len_utf8()..).unwrap_or_default();
        let end = match letter {
            '.' | '!' | '?' => {
                let closed = rest.trim_start_matches(['"', '\'', '”', '’', ')']);
                let next = closed.trim_start();
                steps(rest.len() - next.len());
                let abbreviated = |word| is_abbreviation(word, next) || before.is_number;
                let goes_on = letter == '.' && text.get(before.word..at).is_some_and(abbreviated);
                (next.len() < closed.len() && !goes_on).then(|| text.len() - next.len())
            }
            '\n' => {
                if at >= gap.end {
                    gap = Gap::behind(text, at);
                }
                (gap.last_line > at || gap.is_item).then_some(at + 1)
            }
            // "For maps, see atlas; for charts, see plots."
            ';' => {
                let clause = first.and_then(|first| text.get(first..at)).unwrap_or_default();
                (sends_away(clause) && sends_away(rest.trim_start())).then_some(at + 1)
            }
            _ => None,
        };
        if let Some(end) = end {
            found.push(Bounds { start, end, is_item });
            is_item = if letter == '\n' {
                gap.is_item
            } else {
                let next = text.get(end..).unwrap_or_default();
                text.get(at..end).is_some_and(|gap| gap.contains('\n')) && item_mark(next) > 0
            };
            (start, next_at, first) = (end, end, None);
        }
    }
    found.push(Bounds { start, end: text.len(), is_item });
    found
}

/// A place in a text.
#[derive(Clone, Copy)]
struct Place {
    /// Where its word begins: behind a blank, a parenthesis or a line break.
    word: usize,
    /// Whether its line has only white space so far.
    is_blank: bool,
    /// Whether its line has, behind white space, only digits so far.
    is_number: bool,
}

impl Place {
    fn pass(&mut self, at: usize, letter: char) {
        let digit = letter.is_ascii_digit();
        self.is_number = digit && (self.is_blank || self.is_number);
        self.is_blank = letter == '\n' || (self.is_blank && letter.is_whitespace());
        if matches!(letter, ' ' | '(' | '\n') {
            self.word = at + 1;
        }
    }
}

/// The white space between two lines.
#[derive(Default)]
struct Gap {
    end: usize,
    /// Its last line break.
    last_line: usize,
    /// Whether an item follows.
    is_item: bool,
}

impl Gap {
    fn behind(text: &str, at: usize) -> Self {
        let next = text.get(at..).unwrap_or_default().trim_start();
        let end = text.len() - next.len();
        steps(end - at);
        let last = text.get(at..end).and_then(|gap| gap.rfind('\n')).unwrap_or_default();
        Self { end, last_line: at + last, is_item: item_mark(next) > 0 }
    }
}

/// Whether a clause, without white space before it, begins with "for".
fn sends_away(clause: &str) -> bool {
    clause.split_at_checked(3).is_some_and(|(word, rest)| {
        word.eq_ignore_ascii_case("for") && rest.chars().next().is_none_or(char::is_whitespace)
    })
}

/// How many bytes the mark of an item takes at the start of a line; 0 where there is none.
pub(crate) fn item_mark(line: &str) -> usize {
    let digits = line.len() - line.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let mark = match line.get(digits..).and_then(|rest| rest.chars().next()) {
        Some('-' | '*' | '•') if digits == 0 => line.chars().next().map_or(0, char::len_utf8),
        Some('.' | ')') if digits > 0 => digits + 1,
        _ => return 0,
    };
    let spaced = line.get(mark..).is_some_and(|rest| rest.starts_with(char::is_whitespace));
    if spaced { mark } else { 0 }
}

/// Whether the point behind this word belongs to an abbreviation.
fn is_abbreviation(word: &str, next: &str) -> bool {
    const WORDS: [&str; 5] = ["e.g", "i.e", "vs", "cf", "approx"];
    WORDS.iter().any(|one| word.eq_ignore_ascii_case(one))
        || (word == "etc" && next.starts_with(char::is_lowercase))
}

/// A sequence of words that a clause may begin with or hold.
///
/// It is written as words with a blank between: `a|b` matches one of both, a name in capital
/// letters any phrase of the section of this name, `NAME` a word that is written like a name, `*` any
/// word, `$` the end, and `?` behind any of them makes it optional.
#[derive(Debug)]
pub(crate) struct Pattern(Vec<Element>);

#[derive(Debug)]
struct Element {
    /// Any of these phrases fits.
    phrases: Vec<Vec<&'static str>>,
    optional: bool,
}

impl Pattern {
    pub(crate) fn new(written: &'static str, classes: &[Section]) -> Self {
        let element = |part: &'static str| {
            let (part, optional) =
                part.strip_suffix('?').map_or((part, false), |part| (part, true));
            let class = classes.iter().find(|(name, _)| *name == part);
            let phrases = match class {
                Some((_, phrases)) => {
                    phrases.iter().map(|phrase| phrase.split(' ').collect()).collect()
                }
                None => part.split('|').map(|word| vec![word]).collect(),
            };
            Element { phrases, optional }
        };
        Self(written.split(' ').map(element).collect())
    }

    /// Where the pattern ends, if it begins at this place; the longest way to read it wins.
    pub(crate) fn end(&self, tokens: &[Token<'_>], at: usize) -> Option<usize> {
        end_of_elements(&self.0, tokens, at)
    }
}

fn end_of_elements(elements: &[Element], tokens: &[Token<'_>], at: usize) -> Option<usize> {
    let Some((first, rest)) = elements.split_first() else { return Some(at) };
    let with = first.phrases.iter().filter_map(|phrase| {
        let next = end_of_phrase(phrase, tokens, at)?;
        end_of_elements(rest, tokens, next)
    });
    let without = first.optional.then(|| end_of_elements(rest, tokens, at)).flatten();
    with.chain(without).max()
}

fn end_of_phrase(phrase: &[&str], tokens: &[Token<'_>], at: usize) -> Option<usize> {
    phrase.iter().try_fold(at, |at, word| match (*word, tokens.get(at)) {
        ("$", None) => Some(at),
        ("NAME", Some(token)) => token.is_name.then_some(at + 1),
        ("*", Some(token)) => token.is_word().then_some(at + 1),
        (word, Some(token)) => token.is(word).then_some(at + 1),
        (_, None) => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::steps::assert_linear;

    fn read(text: &str) -> Vec<String> {
        tokens(text).into_iter().map(|token| token.text.into_owned()).collect()
    }

    #[test]
    fn words_keep_their_joining_characters_and_marks_are_tokens() {
        let cases: &[(&str, &[&str])] = &[
            (
                "Don’t use Vue.js, .docx or C++.",
                &["don't", "use", "vue.js", ",", ".docx", "or", "c++", "."],
            ),
            ("edit – not pre- or post-draw", &["edit", "-", "not", "pre", "or", "post-draw"]),
            ("**NOT** for \"A/B tests\"", &["not", "for", "a/b", "tests"]),
            ("(e.g. R&D)", &["(", "e.g", ".", "r&d", ")"]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), *expected, "{text}");
        }
    }

    #[test]
    fn a_name_is_written_like_one() {
        let names =
            |text| -> Vec<bool> { tokens(text).iter().map(|token| token.is_name).collect() };
        assert_eq!(
            names("use `pdf` or web-search or xlsx"),
            [false, true, false, true, false, false]
        );
    }

    #[test]
    fn quoted_tokens_are_marked() {
        let cases: &[(&str, &[&str])] = &[
            (r#"says "make a deck" or 'slides'"#, &["make a deck", "slides"]),
            ("says “don’t ship” or ‘it’s slow’", &["don’t ship", "it’s slow"]),
            ("it doesn't, and users' data isn't", &[]),
            ("the `.docx` of a 5\" screen", &[".docx"]),
            ("an open \"quote", &[]),
            ("“a 'b' c” and «d»", &["a 'b' c", "d"]),
        ];
        for (text, expected) in cases {
            let found: Vec<&str> = quoted(text).into_iter().map(|at| &text[at]).collect();
            assert_eq!(found, *expected, "{text}");
        }
        let marks: Vec<bool> =
            tokens("say \"no\" now").iter().map(|token| token.is_quoted).collect();
        assert_eq!(marks, [false, true, false]);
    }

    #[test]
    fn sentences_take_as_long_to_find_as_their_length() {
        for piece in [".", "a.\t", "e.g. ", "x;", "y; for ", "\n", "\n ", ".\n", "1.", "..\""] {
            assert_linear(piece, |text| sentences(text).len());
        }
    }

    #[test]
    fn a_pattern_takes_the_longest_way() {
        let classes = &[("WHO", vec!["it", "this skill", "this"])];
        let pattern = Pattern::new("WHO? does|do not *", classes);
        let end = |text| pattern.end(&tokens(text), 0);
        assert_eq!(end("this skill does not edit films"), Some(5));
        assert_eq!(end("do not edit"), Some(3));
        assert_eq!(end("do not"), None);
        assert_eq!(end("this tool does not edit"), None);
        let at_end = Pattern::new("leave it|this alone? $", classes);
        assert_eq!(at_end.end(&tokens("leave this"), 0), Some(2));
        assert_eq!(at_end.end(&tokens("leave this here"), 0), None);
    }

    proptest! {
        #[test]
        fn places_are_those_of_the_text(text in "\\PC{0,80}") {
            let mut last = 0;
            for token in tokens(&text) {
                prop_assert!(last <= token.start && token.start < token.end);
                prop_assert!(text.get(token.start..token.end).is_some());
                last = token.end;
            }
            prop_assert!(quoted(&text).iter().all(|quote| text.get(quote.clone()).is_some()));
        }
    }
}
