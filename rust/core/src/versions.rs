//! Versions that a text names, and whether those of two texts contradict each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::stop_words::is_stop_word;

/// The parts of a version number, such as 3 and 12.
type Version = Vec<u32>;

/// The versions that a text names, by the name in front of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    of: BTreeMap<String, BTreeSet<Version>>,
}

impl Versions {
    /// The versions that a query names: `java-17`, `.NET 10`, `py3.12`, `from Rails 6 to 7`.
    pub fn of_query(text: &str) -> Self {
        Self::of(text, false)
    }

    /// The versions that a document names. Only names in capitals and names written together with
    /// their number count, and no range such as `Python 3.9+` does.
    pub fn of_document(text: &str) -> Self {
        Self::of(text, true)
    }

    fn of(text: &str, strict: bool) -> Self {
        let mut found = Self::default();
        let mut open_ended = BTreeSet::new();
        let mut name: Option<Name> = None;
        let mut starts_sentence = true;
        for token in text.split_whitespace() {
            let parts = parts(token);
            // A dash or an arrow between two versions.
            name = name.filter(|name| !parts.is_empty() || name.last.is_some());
            let joined = parts.len() > 1;
            for part in parts {
                match (part, &mut name) {
                    (Part::Number { version, marked }, Some(name)) => {
                        let certain = name.is_certain || marked || version.len() > 1;
                        if certain || name.last.is_some() {
                            let all = found.of.entry(name.text.clone()).or_default();
                            all.extend(name.last.take());
                            all.insert(version.clone());
                        }
                        name.last = Some(version);
                    }
                    (Part::OpenEnd, Some(name)) => {
                        open_ended.insert(name.text.clone());
                    }
                    (Part::Word(word), before) => {
                        let lower = word.to_lowercase();
                        if let Some(before) = before.as_ref().filter(|name| name.last.is_some()) {
                            if BETWEEN.contains(&lower.as_str()) {
                                continue;
                            }
                            if LATER.contains(&lower.as_str()) {
                                open_ended.insert(before.text.clone());
                            }
                        }
                        let capital = word.starts_with(char::is_uppercase);
                        let is_name = !is_stop_word(&lower) && !COUNTED.contains(&lower.as_str());
                        name = (is_name && (!strict || capital || joined)).then(|| Name {
                            text: canonical(&lower),
                            // "Merge 3 files" begins with a capital, too.
                            is_certain: !strict
                                || joined
                                || !starts_sentence
                                || token.starts_with('.'),
                            last: None,
                        });
                    }
                    (Part::Number { .. } | Part::OpenEnd, None) => {}
                }
            }
            starts_sentence = token.ends_with(['.', '!', '?', ':', ';']);
        }
        if strict {
            found.of.retain(|name, _| !open_ended.contains(name));
        }
        found
    }

    /// Whether no version is named.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether each of two texts names a version of the same thing that the other does not name.
    ///
    /// `3` and `3.12` name the same version. A text that names more versions than the other, such
    /// as a list of those supported, contradicts nothing.
    pub fn contradict(&self, other: &Self) -> bool {
        self.of.iter().any(|(name, own)| {
            other.of.get(name).is_some_and(|theirs| lacks(own, theirs) && lacks(theirs, own))
        })
    }
}

/// Whether one of some versions is not among others.
fn lacks(versions: &BTreeSet<Version>, others: &BTreeSet<Version>) -> bool {
    let same = |version: &Version, other: &Version| {
        version.iter().zip(other).all(|(part, other)| part == other)
    };
    versions.iter().any(|version| !others.iter().any(|other| same(version, other)))
}

/// The name that the next number belongs to.
struct Name {
    text: String,
    /// Whether one number is enough; a word that begins a sentence needs two.
    is_certain: bool,
    last: Option<Version>,
}

enum Part<'a> {
    Word(&'a str),
    /// `marked` if it is written as in `v2`.
    Number {
        version: Version,
        marked: bool,
    },
    /// The plus sign of `3.9+`.
    OpenEnd,
}

/// The words and numbers of a token: `java-17`, `py3.12`, `9/10`, `3.9+`.
fn parts(token: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = token;
    let mut marked = false;
    while let Some(first) = rest.chars().next() {
        let is_part: fn(char) -> bool = match first {
            _ if first.is_ascii_digit() => |letter| letter.is_ascii_digit() || letter == '.',
            _ if first.is_alphabetic() => char::is_alphabetic,
            _ => |letter| !letter.is_alphanumeric(),
        };
        let after = rest.trim_start_matches(is_part);
        let part = rest.get(..rest.len() - after.len()).unwrap_or_default();
        let before_number = after.starts_with(|letter: char| letter.is_ascii_digit());
        if first.is_ascii_digit() {
            let numbers = part.trim_end_matches('.').split('.').map(|number| number.parse().ok());
            let version: Option<Version> = numbers.collect();
            parts.extend(version.map(|version| Part::Number { version, marked }));
        } else if !first.is_alphabetic() {
            let follows =
                part.starts_with('+') && matches!(parts.last(), Some(Part::Number { .. }));
            parts.extend(follows.then_some(Part::OpenEnd));
        } else if !(part.eq_ignore_ascii_case("v") && before_number) {
            parts.push(Part::Word(part));
        }
        marked = part.eq_ignore_ascii_case("v");
        rest = after;
    }
    parts
}

/// One name for the spellings of a name.
fn canonical(name: &str) -> String {
    match name {
        "dotnet" => "net",
        "py" => "python",
        "golang" => "go",
        "js" => "javascript",
        "ts" => "typescript",
        "k" => "kubernetes",
        "postgresql" | "pg" => "postgres",
        name => name,
    }
    .to_owned()
}

/// Words between two versions of the same thing.
const BETWEEN: [&str; 9] = ["to", "and", "or", "through", "until", "into", "version", "from", "vs"];

/// Words that extend a version before them to all later versions.
const LATER: [&str; 6] = ["later", "newer", "higher", "above", "up", "onwards"];

/// Words in front of a number that is not a version.
const COUNTED: [&str; 40] = [
    "step", "day", "week", "month", "year", "page", "pages", "part", "chapter", "level", "phase",
    "top", "section", "figure", "table", "item", "line", "option", "row", "column", "slide",
    "question", "task", "point", "tier", "grade", "class", "size", "number", "unit", "lesson",
    "round", "issue", "ticket", "port", "q", "about", "under", "over", "within",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contradict(query: &str, document: &str) -> bool {
        Versions::of_query(query).contradict(&Versions::of_document(document))
    }

    #[test]
    fn other_versions_of_the_same_thing_contradict() {
        for (query, document) in [
            ("migrating a .NET 10 library to .NET 11", "Migrates a .NET 9 project to .NET 10"),
            ("our dotnet9 service should run on dotnet10", "Upgrades .NET 8 to 9"),
            ("move us from java-17 to java-21", "Upgrade from Java 8 to Java 11"),
            ("port this to Python 3", "Notes for Python 2.7 code"),
            ("py3.12 type hints", "Type hints for Python 3.8"),
            ("upgrade Rails 6 to 7", "Upgrade Rails 5 to 6"),
            ("convert the Angular v17 app", "Angular v14 to v15 migration"),
            ("ISO 27001 audit", "Prepare for an ISO 9001 audit"),
        ] {
            assert!(contradict(query, document), "{query} / {document}");
        }
    }

    #[test]
    fn versions_in_common_or_of_other_things_do_not_contradict() {
        for (query, document) in [
            ("migrating a .NET 10 library to .NET 11", "Migrates a .NET 10 project to .NET 11"),
            ("a memory leak on .NET 9", "Migrates a .NET 9 project to .NET 10"),
            ("speed this up, we use Python 3.12", "Port Python 2 code to Python 3"),
            ("tests for Java 17", "Tests for Java 8, 11, 17 and 21"),
            ("tests for Python 3.12", "Tests for Python 3.9+"),
            ("tests for Java 21", "Tests for Java 11 and later"),
            ("tests for Java 21", "Tests for Java"),
            ("Java 21 and Python 3.12", "Java 21 with Python 3.12"),
            ("write 3 tests", "Write 2 tests for each function"),
            ("step 3 of the plan", "Step 1: plan. Step 2: build"),
            ("top 10 customers in Q3", "Top 5 lists for Q1"),
            ("merge 3 files of 2026", "Merge 2 PDF files from 2024"),
            ("make 12 slides", "Make 10 slides. Draw 2 charts"),
        ] {
            assert!(!contradict(query, document), "{query} / {document}");
        }
    }

    proptest! {
        #[test]
        fn no_text_contradicts_itself(text in "(?:[A-Za-z.]{1,6}[ -]?[0-9.]{0,5}[ ,+]?){0,12}") {
            let (query, document) = (Versions::of_query(&text), Versions::of_document(&text));
            prop_assert!(!query.contradict(&query));
            prop_assert!(!document.contradict(&document));
            prop_assert_eq!(query.contradict(&document), document.contradict(&query));
        }
    }
}
