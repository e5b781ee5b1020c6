//! Text analysis: turns documents and queries into terms for BM25.

use frostem::{Algorithm, Stemmer};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};
use unicode_segmentation::UnicodeSegmentation;

use crate::error::{Kind, Result};
use crate::facts::{Facts, with_parts};
use crate::stop_words::is_stop_word;

/// Bytes of the longest word that is stemmed. Longer strings are not words of a language, and a
/// stemmer can take time that grows with the square of the length.
const LONGEST_STEMMED: usize = 100;

/// Turns text into terms. An index stores the language, so that queries are analysed like documents.
///
/// Steps: NFKC normalisation, division into words by Unicode Standard Annex 29, division of
/// `snake_case` and `camelCase` into their parts (Annex 29 divides kebab-case), lower case, division
/// of names and versions, as in `java17` and `py3.12`, and with a language its Snowball stems; for
/// English, stop words are removed. Scripts without spaces (Han, Kana, Hangul) become overlapping
/// bigrams, and a single character becomes one term.
///
/// # Examples
///
/// ```
/// use crossgate_core::text::Analyzer;
///
/// let analyzer = Analyzer::new("english")?;
/// assert_eq!(analyzer.terms("How do I merge theseFiles?"), ["merg", "file"]);
/// # Ok::<(), crossgate_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Analyzer {
    language: Option<Algorithm>,
}

impl Analyzer {
    /// An analyzer for a Snowball language such as `english`, or `none` for no stemming.
    ///
    /// Fails with `out_of_range` for an unknown language.
    pub fn new(language: &str) -> Result<Self> {
        if language == "none" {
            return Ok(Self { language: None });
        }
        let all = || Algorithm::all().iter();
        if let Some(algorithm) = all().find(|algorithm| algorithm.name() == language) {
            return Ok(Self { language: Some(*algorithm) });
        }
        let names = all().map(|algorithm| algorithm.name());
        let known = std::iter::once("none").chain(names).collect();
        Err(Kind::UnknownName { what: "language", name: language.to_owned(), known }.into())
    }

    /// The name that [`Analyzer::new`] takes.
    pub fn language(&self) -> &'static str {
        self.language.map_or("none", |algorithm| algorithm.name())
    }

    /// The terms of a text in reading order, with repetitions.
    pub fn terms(&self, text: &str) -> Vec<String> {
        let normalised: String;
        let text = if is_nfkc_quick(text.chars()) == IsNormalized::Yes {
            text
        } else {
            normalised = text.nfkc().collect();
            &normalised
        };
        let mut terms = Terms { stemmer: self.language.map(Stemmer::new), collected: Vec::new() };
        // Word segmentation returns single ideographs; `run` collects consecutive ideographs.
        let mut run: Vec<char> = Vec::new();
        let mut run_end = 0;
        for (start, word) in text.unicode_word_indices() {
            if start != run_end {
                terms.push_bigrams(&mut run);
            }
            if word.chars().all(is_unspaced) {
                run.extend(word.chars());
                run_end = start + word.len();
            } else {
                terms.push_bigrams(&mut run);
                terms.push_parts(word, text.get(..start).unwrap_or_default());
            }
        }
        terms.push_bigrams(&mut run);
        terms.collected.extend(dates(text));
        terms.collected
    }
}

/// Dates in the form `2024-03-12`, which matches other formats of the same date, each followed by
/// its month `2024-03` and its day `03-12`, which match a query that leaves out a part.
fn dates(text: &str) -> impl Iterator<Item = String> {
    let may_have_one = text.bytes().filter(u8::is_ascii_digit).count() >= DATE_DIGITS;
    let facts = if may_have_one { Facts::of(text) } else { Facts::default() };
    facts.dates.into_iter().flatten().flat_map(with_parts)
}

/// Fewest digits of a date with a year: `July 2031`.
const DATE_DIGITS: usize = 4;

const BOUNDARIES: &str = "the positions are those of characters";

struct Terms {
    stemmer: Option<Stemmer>,
    collected: Vec<String>,
}

impl Terms {
    /// Adds overlapping pairs of characters, as search engines index scripts without spaces.
    fn push_bigrams(&mut self, run: &mut Vec<char>) {
        if let [single] = run.as_slice() {
            self.collected.push(single.to_string());
        }
        self.collected.extend(run.windows(2).map(|pair| pair.iter().collect()));
        run.clear();
    }

    /// Divides a word at characters that are neither letters nor digits. `before` is the text in
    /// front of it.
    fn push_parts(&mut self, word: &str, before: &str) {
        let is_inner = |letter: char| letter.is_alphanumeric() || is_apostrophe(letter);
        let mut after_dot = ends_with_dot_of_name(before);
        let mut parts = word.split_inclusive(|letter| !is_inner(letter)).peekable();
        while let Some(whole) = parts.next() {
            let part = whole.trim_end_matches(|letter| !is_inner(letter));
            let next = parts.peek().filter(|_| whole.ends_with('.')).copied().unwrap_or_default();
            let has_version = next.starts_with(|letter: char| letter.is_ascii_digit());
            if after_dot && matches!(part, "NET" | "net") {
                self.push_word("dotnet");
            } else if let Some((name, number)) = name_and_number(part).filter(|_| has_version) {
                self.push_camel_case(name);
                self.push_word(number);
            } else {
                self.push_camel_case(part);
            }
            // "ASP.NET" is a name, and "example.net" a host.
            after_dot = next == "NET";
        }
    }

    /// Divides `readCSVFile` into three words: before a capital after a lower-case letter, and before
    /// the last of several capitals if a lower-case letter follows.
    fn push_camel_case(&mut self, word: &str) {
        let letters: Vec<(usize, char)> = word.char_indices().collect();
        let mut start = 0;
        for window in letters.windows(2) {
            if let [(_, before), (capital, after)] = window
                && before.is_lowercase()
                && after.is_uppercase()
            {
                self.push_capitals(word.get(start..*capital).expect(BOUNDARIES));
                start = *capital;
            }
        }
        self.push_capitals(word.get(start..).expect(BOUNDARIES));
    }

    fn push_capitals(&mut self, word: &str) {
        let mut capitals = word.char_indices().take_while(|(_, letter)| letter.is_uppercase());
        let last_capital = capitals.by_ref().last().map_or(0, |(start, _)| start);
        let (before, rest) = word.split_at_checked(last_capital).expect(BOUNDARIES);
        let is_lower = rest.chars().nth(1).is_some_and(char::is_lowercase);
        // A plural of capitals, such as `PDFs` or `URLs`, is one word.
        let plural = rest.get(1..).is_some_and(|tail| tail == "s");
        if last_capital > 0 && is_lower && !plural {
            self.push_word(before);
            self.push_word(rest);
        } else {
            self.push_word(word);
        }
    }

    fn push_word(&mut self, word: &str) {
        let word = word.trim_matches(is_apostrophe).to_lowercase().replace('\u{2019}', "'");
        for part in around_numbers(&word) {
            self.push_term(part);
        }
    }

    fn push_term(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        match &self.stemmer {
            Some(stemmer) if word.len() <= LONGEST_STEMMED => {
                if stemmer.algorithm() != Algorithm::English || !is_stop_word(word) {
                    self.collected.push(stemmer.stem(word).into_owned());
                }
            }
            _ => self.collected.push(word.to_owned()),
        }
    }
}

/// Whether a text ends with the dot of a name, as in ".NET".
fn ends_with_dot_of_name(text: &str) -> bool {
    let is_other = |letter: char| letter.is_alphanumeric() || letter == '.';
    text.strip_suffix('.').is_some_and(|before| !before.ends_with(is_other))
}

/// The name and the number of `py3`, which is the start of a version such as `py3.12`.
fn name_and_number(part: &str) -> Option<(&str, &str)> {
    let digit = part.find(|letter: char| letter.is_ascii_digit())?;
    let (name, number) = part.split_at_checked(digit)?;
    let is_version = name.chars().count() >= 2
        && name.chars().all(char::is_alphabetic)
        && number.bytes().all(|digit| digit.is_ascii_digit());
    is_version.then_some((name, number))
}

/// Letters of the shortest part that is divided from a number: `mp3` and `k8s` stay one term.
const SHORTEST_NAME: usize = 3;

/// Divides `java17` and `64bit` into letters and digits, if each part of letters is long enough.
fn around_numbers(word: &str) -> Vec<&str> {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let mut parts = Vec::new();
    let mut start = 0;
    let mut in_digits = word.starts_with(is_digit);
    for (place, letter) in word.char_indices() {
        if is_digit(letter) != in_digits {
            parts.push(word.get(start..place).expect(BOUNDARIES));
            (start, in_digits) = (place, !in_digits);
        }
    }
    parts.push(word.get(start..).expect(BOUNDARIES));
    let is_long = |part: &&str| {
        part.starts_with(is_digit)
            || (part.chars().count() >= SHORTEST_NAME && part.chars().all(char::is_alphabetic))
    };
    if parts.iter().all(is_long) { parts } else { vec![word] }
}

/// The ASCII and the typographic apostrophe, which can be part of a word in Unicode.
fn is_apostrophe(letter: char) -> bool {
    matches!(letter, '\'' | '\u{2019}')
}

/// Whether a letter is of a script without spaces between words: Han, Hiragana, Katakana, Hangul.
fn is_unspaced(letter: char) -> bool {
    matches!(u32::from(letter),
        0x1100..=0x11FF | 0x3005..=0x3007 | 0x3040..=0x30FF | 0x3130..=0x318F | 0x31F0..=0x31FF
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF
        | 0x20000..=0x3FFFF)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_split_and_normalised() {
        let cases: &[(&str, &str, &[&str])] = &[
            ("lower case", "Clean UP the Mess", &["clean", "up", "the", "mess"]),
            ("snake case", "read_csv_file", &["read", "csv", "file"]),
            ("camel case", "parseHTTPRequest", &["parse", "http", "request"]),
            ("kebab case", "docx-to-pdf", &["docx", "to", "pdf"]),
            ("plural of capitals", "merge PDFs", &["merge", "pdfs"]),
            ("single capital", "A test", &["a", "test"]),
            (
                "names and numbers",
                "dotnet10 java-17 gpt4",
                &["dotnet", "10", "java", "17", "gpt", "4"],
            ),
            ("numbers and names", "64bit 32-bit", &["64", "bit", "32", "bit"]),
            (
                "short names",
                "mp3 s3 k8s log4j i18n 3d v2.1",
                &["mp3", "s3", "k8s", "log4j", "i18n", "3d", "v2", "1"],
            ),
            ("short names with versions", "py3.12 go1.22", &["py", "3", "12", "go", "1", "22"]),
            (
                ".NET",
                ".NET 10, .net and ASP.NET",
                &["dotnet", "10", "dotnet", "and", "asp", "dotnet"],
            ),
            ("no .NET", "net example.net ...net", &["net", "example", "net", "net"]),
            ("apostrophe", "don't don\u{2019}t 'quote'", &["don't", "don't", "quote"]),
            ("composed and decomposed", "cafe\u{301} caf\u{e9}", &["café", "café"]),
            ("full width", "\u{ff30}\u{ff24}\u{ff26}", &["pdf"]),
            ("han bigrams", "數據清理", &["數據", "據清", "清理"]),
            ("single ideograph", "a 數 b", &["a", "數", "b"]),
            ("kana run", "かな テスト", &["かな", "テス", "スト"]),
            ("mixed", "CSV檔案", &["csv", "檔案"]),
            ("right to left", "שלום עולם", &["שלום", "עולם"]),
            ("no words", " \u{0} !?… 🦀 ", &[]),
        ];
        let analyzer = Analyzer::new("none").unwrap();
        for (name, text, expected) in cases {
            assert_eq!(analyzer.terms(text), *expected, "{name}");
        }
    }

    #[test]
    fn words_above_100_bytes_are_not_stemmed() {
        let analyzer = Analyzer::new("english").unwrap();
        let short = "connections".repeat(9);
        assert_eq!(analyzer.terms(&short), [&short[..short.len() - 4]]);
        // The stemmer would copy the word for each "y" after a vowel.
        let long = "ay".repeat(32_768);
        assert_eq!(analyzer.terms(&long), [long.as_str()]);
    }

    #[test]
    fn english_is_stemmed_without_stop_words() {
        let analyzer = Analyzer::new("english").unwrap();
        assert_eq!(analyzer.terms("What is it that the deploys are for"), ["deploy"]);
        assert_eq!(analyzer.terms("the skill's connections"), ["skill", "connect"]);
    }

    #[test]
    fn other_languages_are_stemmed_and_unknown_ones_refused() {
        assert_eq!(Analyzer::new("german").unwrap().terms("Automaten"), ["automat"]);
        let error = Analyzer::new("klingon").unwrap_err();
        assert_eq!(error.code(), "out_of_range");
        assert!(error.to_string().contains("klingon") && error.to_string().contains("english"));
    }

    #[test]
    fn dates_of_several_formats_and_their_parts_have_common_terms() {
        let analyzer = Analyzer::new("english").unwrap();
        let note = analyzer.terms("2031-06-04: the kiln was bought");
        for asked in ["4 June 2031", "June 2031", "06/04/2031", "the fourth of June, 2031"] {
            let shared = analyzer.terms(asked);
            assert!(shared.iter().any(|term| term.contains('-') && note.contains(term)), "{asked}");
        }
        let other = analyzer.terms("decided in July 2031");
        assert!(!other.iter().any(|term| term.contains('-') && note.contains(term)));
    }

    proptest! {
        #[test]
        fn terms_are_lower_case_and_never_empty(text in "\\PC*") {
            for term in Analyzer::new("none").unwrap().terms(&text) {
                prop_assert!(!term.is_empty());
                prop_assert_eq!(term.to_lowercase(), term);
            }
        }

        #[test]
        fn normalisation_forms_have_equal_terms(text in "[a-zA-Zéüñçåïô ]{0,40}") {
            let analyzer = Analyzer::new("english").unwrap();
            let decomposed: String = text.nfd().collect();
            prop_assert_eq!(analyzer.terms(&text), analyzer.terms(&decomposed));
        }
    }
}
