//! Detects whether a text is English, from its script and its function words.

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use crate::common_words::information;
use crate::lists::{Section, data, sections};
use crate::steps::step;
use crate::stop_words::is_stop_word;
use crate::text::Analyzer;

static ENGLISH: LazyLock<Analyzer> =
    LazyLock::new(|| Analyzer::new("english").expect("the language is built in"));

/// Words by which a language is recognised.
struct Vocabulary {
    name: &'static str,
    /// Function words and requests.
    words: HashSet<&'static str>,
    requests: Vec<&'static str>,
}

static LANGUAGES: LazyLock<Vec<Vocabulary>> = LazyLock::new(|| {
    let split = |lines: &[&'static str]| -> Vec<&'static str> {
        lines.iter().flat_map(|line| line.split(' ')).collect()
    };
    let requests = sections(data!("request_verbs.txt"));
    let of = |(name, lines): Section| {
        let requests = requests.iter().find(|(other, _)| *other == name);
        let requests = requests.map(|(_, lines)| split(lines)).unwrap_or_default();
        let words = split(&lines).into_iter().chain(requests.iter().copied()).collect();
        Vocabulary { name, words, requests }
    };
    sections(data!("function_words.txt")).into_iter().map(of).collect()
});

/// The language of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// English.
    English,
    /// Another language, or a script whose language is not determined, by its English name.
    Other(&'static str),
    /// Too little text, or only names and code.
    Unknown,
}

impl Language {
    /// The English name of the language; none if it is unknown.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::English => Some("English"),
            Self::Other(name) => Some(name),
            Self::Unknown => None,
        }
    }
}

/// Detects the language of a text.
///
/// The result is [`Language::Other`] only on clear evidence: most words are in another script, or
/// there are at least two function words of another language and at most half as many English
/// function words, or there is a single such word and no common English word. Verbs of requests,
/// "schreibe" and "traduce", count as function words; such a verb as the first of several words is
/// enough, unless an English function word follows. Quoted text, code and names in capitals do not
/// count.
pub fn language(text: &str) -> Language {
    let unquoted = without_quotations(text);
    let found = language_of(&unquoted);
    // A text may be one quotation.
    if found == Language::Unknown && unquoted.len() < text.len() {
        language_of(text)
    } else {
        found
    }
}

fn language_of(text: &str) -> Language {
    let mut scripts = Scripts::default();
    let mut words = Vec::new();
    for token in text.split_whitespace() {
        let inner = token.trim_matches(|c: char| !c.is_alphabetic());
        scripts.add(inner);
        let is_word = inner.chars().all(|c| c.is_alphabetic() || matches!(c, '\'' | '’' | '-'));
        // "-la" is an option of a command.
        let is_option = token.starts_with('-') && token.len() > 1;
        // An acronym is written alike in all languages.
        let is_acronym = inner.chars().count() > 1 && !inner.contains(char::is_lowercase);
        if !inner.is_empty() && is_word && !is_option && !is_acronym && is_latin(inner) {
            words.push(inner);
        }
    }
    if let Some(name) = scripts.most(words.len()) {
        return Language::Other(name);
    }
    by_function_words(&words)
}

/// Characters of scripts other than Latin, by the name of the language or script.
#[derive(Debug, Default)]
struct Scripts {
    of: Vec<(&'static str, usize)>,
}

impl Scripts {
    fn add(&mut self, token: &str) {
        for name in token.chars().filter_map(script) {
            match self.of.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => self.of.push((name, 1)),
            }
        }
    }

    fn count(&self, name: &str) -> usize {
        self.of.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }

    /// The script with the most characters, if it has more words than the Latin script.
    fn most(&self, latin_words: usize) -> Option<&'static str> {
        let (name, _) = *self.of.iter().max_by_key(|(_, count)| *count)?;
        let all: usize = self.of.iter().map(|(_, count)| count).sum();
        let unspaced = matches!(name, CHINESE | JAPANESE);
        // About two characters make a word of Chinese, and four a word of other languages.
        let words = if unspaced { all.div_ceil(2) } else { all / 4 };
        if words <= latin_words || all < LEAST_CHARACTERS {
            return None;
        }
        // Japanese is written with Chinese characters as well.
        Some(if unspaced && self.count(JAPANESE) > 0 { JAPANESE } else { name })
    }
}

const CHINESE: &str = "Chinese";
const JAPANESE: &str = "Japanese";

/// Fewer characters of another script are an example or a symbol.
const LEAST_CHARACTERS: usize = 3;

fn script(letter: char) -> Option<&'static str> {
    match u32::from(letter) {
        0x0370..=0x03FF | 0x1F00..=0x1FFF => Some("Greek"),
        0x0400..=0x052F => Some("Cyrillic script"),
        0x0530..=0x058F => Some("Armenian"),
        0x0590..=0x05FF => Some("Hebrew"),
        0x0600..=0x06FF | 0x0750..=0x077F => Some("Arabic script"),
        0x0900..=0x0DFF => Some("an Indian script"),
        0x0E00..=0x0E7F => Some("Thai"),
        0x10A0..=0x10FF => Some("Georgian"),
        0x1100..=0x11FF | 0x3130..=0x318F | 0xAC00..=0xD7AF => Some("Korean"),
        0x3040..=0x30FF | 0x31F0..=0x31FF => Some(JAPANESE),
        0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF => Some(CHINESE),
        _ => None,
    }
}

fn is_latin(word: &str) -> bool {
    word.chars().all(|c| script(c).is_none())
}

fn by_function_words(words: &[&str]) -> Language {
    let mut english = 0;
    let mut common = 0;
    let mut accented = 0;
    let mut found: Vec<(&Vocabulary, BTreeSet<&str>, usize)> =
        LANGUAGES.iter().map(|language| (language, BTreeSet::new(), 0)).collect();
    let lower: Vec<String> =
        words.iter().map(|word| word.to_lowercase().replace('’', "'")).collect();
    let within_names = within_names(words, &lower);
    for (place, ((word, lower), within_name)) in
        words.iter().zip(&lower).zip(within_names).enumerate()
    {
        accented += usize::from(!word.is_ascii());
        // "Los Angeles" and "Maria de la Cruz" are names.
        let capital = place > 0 && word.starts_with(char::is_uppercase);
        if capital || (is_particle(lower) && within_name) {
            continue;
        }
        let mut foreign = false;
        for (language, distinct, count) in &mut found {
            if language.words.contains(lower.as_str()) {
                distinct.insert(lower);
                *count += 1;
                foreign = true;
            }
        }
        english += usize::from(!foreign && is_stop_word(lower));
        common += usize::from(!foreign && is_common(lower));
    }
    // Of equal counts the first language of the list.
    let best = found.iter().rev().max_by_key(|(_, distinct, count)| (*count, distinct.len()));
    if let Some((language, distinct, count)) = best {
        // "v1.0" and "appendix E" have a letter that is a word elsewhere.
        let is_clear = |word: &&str| {
            word.chars().count() > 1
                && !is_stop_word(word)
                && !is_common(word)
                && !ENGLISH_TOO.contains(word)
        };
        let opens = lower.first().is_some_and(|first| language.requests.contains(&first.as_str()));
        let alone = words.len() > 1 && (common == 0 || opens) && distinct.iter().any(is_clear);
        let single = !distinct.is_empty() && english == 0 && (accented >= 1 || alone);
        if (distinct.len() >= 2 || single) && *count > 2 * english && *count * 6 >= words.len() {
            return Language::Other(language.name);
        }
    }
    if accented >= 2 && accented * 2 > words.len() && english == 0 {
        return Language::Other("another language");
    }
    if english > 0 { Language::English } else { Language::Unknown }
}

/// Function words of other languages that are less common English words.
const ENGLISH_TOO: [&str; 13] =
    ["con", "dem", "den", "des", "die", "lag", "mi", "par", "per", "sin", "till", "tu", "van"];

/// Whether a word is a common English word.
fn is_common(word: &str) -> bool {
    ENGLISH.terms(word).iter().any(|term| information(term) < 1.0)
}

fn is_particle(lower: &str) -> bool {
    step();
    PARTICLES.contains(&lower)
}

/// Whether the nearest words before and behind each word that are no particles begin with capitals.
fn within_names(words: &[&str], lower: &[String]) -> Vec<bool> {
    let behind_capital = |is_capital: &mut bool, (word, lower): (&&str, &String)| {
        let before = *is_capital;
        if !is_particle(lower) {
            *is_capital = word.starts_with(char::is_uppercase);
        }
        Some(before)
    };
    let words = words.iter().zip(lower);
    let before = words.clone().scan(false, behind_capital);
    let mut after: Vec<bool> = words.rev().scan(false, behind_capital).collect();
    after.reverse();
    before.zip(after).map(|(before, after)| before && after).collect()
}

/// A text without its quotations and its code in backticks.
fn without_quotations(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut close = None;
    let mut start = 0;
    for (at, letter) in text.char_indices() {
        match close {
            Some(end) if end == letter => {
                kept.push(' ');
                start = at + letter.len_utf8();
                close = None;
            }
            Some(_) => {}
            None => {
                close = match letter {
                    '"' | '`' => Some(letter),
                    '“' | '„' => Some('”'),
                    '«' => Some('»'),
                    '「' => Some('」'),
                    _ => None,
                };
                if close.is_some() {
                    kept.push_str(text.get(start..at).unwrap_or_default());
                    start = at;
                }
            }
        }
    }
    // Without a closing mark, the rest is not a quotation.
    kept.push_str(text.get(start..).unwrap_or_default());
    kept
}

/// Function words that are parts of names.
const PARTICLES: [&str; 18] = [
    "de", "la", "del", "di", "da", "do", "dos", "das", "van", "von", "der", "den", "du", "le",
    "el", "los", "las", "y",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::steps::assert_linear;

    #[test]
    fn prompts_in_english_are_english_or_unknown() {
        for text in [
            "merge these three PDF files",
            "Translate \"Wo ist der nächste Bahnhof und was kostet das?\" into French",
            "rename el to la and los to las in the Spanish strings",
            "book a table at El Parador de la Cruz in Los Angeles",
            "what does 你好 mean?",
            "is α larger than β in this paper?",
            "résumé for Zoë, please",
            "cosine similarity",
            "for (const el of la) { de.push(un); }",
            "Write a biography of Ludwig van Beethoven and Vincent van Gogh",
            "my die in the war game is broken",
            "Rio de Janeiro hotel list",
            "a la carte menu",
            "das boot review",
            "vis a vis meeting notes",
            "cd ../backend && ls -la",
            "release v2.1.0",
            "do ducks sleep",
            "until tomorrow",
            "till november 6th",
            "comment widgets",
            "par yardage",
            "pour concrete",
            "",
            "42",
        ] {
            assert!(!matches!(language(text), Language::Other(_)), "{text}: {:?}", language(text));
        }
        assert_eq!(language("merge these three PDF files"), Language::English);
        assert_eq!(language("cosine similarity"), Language::Unknown);
    }

    #[test]
    fn prompts_in_other_languages_are_named() {
        for (name, text) in [
            ("German", "Kannst du mir die drei PDF-Dateien zu einer zusammenfügen?"),
            ("German", "Rechnungen als PDF zusammenführen"),
            ("French", "fusionne les trois fichiers PDF dans un seul"),
            ("Spanish", "haz una presentación sobre la fotosíntesis para mi clase"),
            ("Portuguese", "junte os arquivos PDF em um só e não mude a ordem"),
            ("Italian", "unisci i tre file PDF e fammi un riassunto di questo testo"),
            ("Dutch", "maak een presentatie van het verslag voor mijn klas"),
            ("Polish", "połącz te pliki PDF w jeden i nie zmieniaj kolejności na końcu"),
            ("Turkish", "bu PDF dosyalarını birleştir ve bir özet yaz"),
            ("Cyrillic script", "объедини три файла PDF в один"),
            ("Chinese", "把 report.docx 转成 PDF"),
            ("Japanese", "この表を要約してください"),
            ("Korean", "이 파일을 PDF로 변환해 줘"),
            ("Greek", "ένωσε τα τρία αρχεία"),
            ("Arabic script", "ادمج ملفات PDF الثلاثة"),
            ("Hebrew", "מזג את שלושת הקבצים"),
            ("German", "„Bitte fasse das für mich zusammen“"),
            ("German", "PDF zusammenfügen"),
            ("French", "corrige ce bug"),
            ("Spanish", "escribe las pruebas unitarias"),
            ("Portuguese", "traduza o texto"),
            ("Italian", "traduci il testo"),
            ("Dutch", "controleer de code"),
            ("Swedish", "översätt texten"),
            ("Polish", "napisz testy"),
            ("Czech", "napiš testy"),
            ("Turkish", "metni çevir"),
            ("Indonesian", "gabungkan file PDF"),
        ] {
            assert_eq!(language(text), Language::Other(name), "{text}");
        }
    }

    #[test]
    fn a_run_of_particles_takes_as_long_as_its_length() {
        for piece in ["y ", "de la ", "A de "] {
            assert_linear(piece, language);
        }
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer_and_case_of_code_does_not_matter(text in any::<String>()) {
            let found = language(&text);
            prop_assert_eq!(language(&format!("{text} ")), found);
        }
    }
}
