//! Versions that a text names, and whether those of two texts contradict each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{MONTH_NAMES, MONTHS};
use crate::lists::lists;
use crate::steps::step;
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

    /// The versions that a document names. Only names in capitals, names of known programs and names
    /// written together with their number count, and neither a range such as `Python 3.9+` nor an example does.
    pub fn of_document(text: &str) -> Self {
        Self::of(text, true)
    }

    fn of(text: &str, strict: bool) -> Self {
        let mut found = Self::default();
        let mut open_ended = BTreeSet::new();
        let mut name: Option<Name> = None;
        let mut starts_sentence = true;
        let mut is_example = false;
        for token in text.split_whitespace() {
            let parts = parts(token);
            is_example |= strict && EXAMPLES.contains(&bare(token).as_str());
            // A dash or an arrow between two versions.
            name = name.filter(|name| !parts.is_empty() || name.last.is_some());
            let joined = parts.len() > 1;
            for part in parts {
                match (part, &mut name) {
                    (Part::Number { .. }, Some(_)) if is_example => {}
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
                        if before.is_some() && OF_A_VERSION.contains(&lower.as_str()) {
                            continue;
                        }
                        if let Some(before) = before.as_ref().filter(|name| name.last.is_some()) {
                            if BETWEEN.contains(&lower.as_str()) {
                                continue;
                            }
                            if LATER.contains(&lower.as_str()) {
                                open_ended.insert(before.text.clone());
                            }
                        }
                        let is_known = VERSIONED.binary_search(&lower.as_str()).is_ok();
                        let capital = word.starts_with(char::is_uppercase);
                        let is_name = lower.chars().nth(1).is_some()
                            && !is_stop_word(&lower)
                            && [COUNTED.as_slice(), OF_A_VERSION, &MONTHS, &MONTH_NAMES]
                                .iter()
                                .all(|words| !words.contains(&lower.as_str()));
                        name =
                            (is_name && (!strict || capital || joined || is_known)).then(|| Name {
                                text: canonical(&lower),
                                // "Merge 3 files" begins with a capital, too.
                                is_certain: !strict
                                    || joined
                                    || is_known
                                    || !starts_sentence
                                    || token.starts_with('.'),
                                last: None,
                            });
                    }
                    (Part::Number { .. } | Part::OpenEnd, None) => {}
                }
            }
            starts_sentence = token.ends_with(['.', '!', '?', ':', ';']);
            is_example &= !token.ends_with(['.', '!', '?', ';']) || bare(token) == "e.g";
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
    versions.iter().any(|version| {
        step();
        let is_shortened =
            (1..version.len()).any(|end| version.get(..end).is_some_and(|it| others.contains(it)));
        // In their order, the longer forms of a version follow it.
        let next = others.range::<Version, _>(version..).next();
        !is_shortened && !next.is_some_and(|other| other.starts_with(version))
    })
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

/// A token in lower case, without the punctuation around it.
fn bare(token: &str) -> String {
    without_punctuation(token).to_lowercase()
}

fn without_punctuation(token: &str) -> &str {
    token.trim_matches(|letter: char| !letter.is_alphanumeric())
}

/// The words and numbers of a token: `java-17`, `py3.12`, `9/10`, `3.9+`.
fn parts(token: &str) -> Vec<Part<'_>> {
    if ABBREVIATED.contains(&bare(token).as_str()) {
        return vec![Part::Word(without_punctuation(token))];
    }
    let mut parts = Vec::new();
    let mut rest = token;
    let mut marked = false;
    let mut is_numbered = false;
    while let Some(first) = rest.chars().next() {
        let is_part: fn(char) -> bool = match first {
            _ if first.is_ascii_digit() => |letter| letter.is_ascii_digit() || letter == '.',
            _ if first.is_alphabetic() => char::is_alphabetic,
            // Also `²`, which is neither a letter nor an ASCII digit.
            _ => |letter| !letter.is_ascii_digit() && !letter.is_alphabetic(),
        };
        let after = rest.trim_start_matches(is_part);
        let part = rest.get(..rest.len() - after.len()).unwrap_or_default();
        let before_number = after.starts_with(|letter: char| letter.is_ascii_digit());
        if first.is_ascii_digit() {
            let numbers = part.trim_end_matches('.').split('.').map(|number| number.parse().ok());
            let version: Option<Version> = numbers.collect();
            // A longer number is an identifier, and `#42` the number of an issue.
            let version = version.filter(|version| {
                !is_numbered
                    && version.len() <= MOST_PARTS
                    && version.iter().all(|number| *number <= LARGEST)
            });
            parts.extend(version.map(|version| Part::Number { version, marked }));
        } else if !first.is_alphabetic() {
            let follows =
                part.starts_with('+') && matches!(parts.last(), Some(Part::Number { .. }));
            parts.extend(follows.then_some(Part::OpenEnd));
        } else if !(part.eq_ignore_ascii_case("v") && before_number) {
            parts.push(Part::Word(part));
        }
        marked = part.eq_ignore_ascii_case("v");
        is_numbered = part.ends_with('#');
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
        "k8s" => "kubernetes",
        "postgresql" | "pg" => "postgres",
        name => name,
    }
    .to_owned()
}

lists!("version_words.txt": VERSIONED, COUNTED);

/// Words between two versions of the same thing.
const BETWEEN: &[&str] = &["to", "and", "or", "through", "until", "into", "from", "vs"];

/// Words that extend a version before them to all later versions.
const LATER: [&str; 6] = ["later", "newer", "higher", "above", "up", "onwards"];

/// Words between a name and its version.
const OF_A_VERSION: &[&str] = &["version", "versions", "release", "ver"];

/// Words before examples: "such as CVE-2021-44228".
const EXAMPLES: &[&str] =
    &["e.g", "eg", "example", "examples", "including", "instance", "like", "such"];

/// Words with a number in place of their inner letters.
const ABBREVIATED: &[&str] = &["k8s", "i18n", "l10n", "a11y", "o11y", "e2e", "g11n", "p13n"];

/// The largest part of a version: ISO 27001 is one, and a longer number is not.
const LARGEST: u32 = 99_999;

/// Numbers with more parts, such as `1.3.6.1.4.1.343`, are identifiers.
const MOST_PARTS: usize = 6;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::steps::assert_linear;

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
            ("upgrade the cluster to k8s 1.33", "Upgrades clusters to Kubernetes 1.31"),
            ("move to Python version 3.14", "Ports code from Python 3.9 to Python 3.10"),
            ("upgrade us to React 19", "moves an app from react 17 to react 18"),
            ("why is Python 3.13 slower here?", "ports old scripts to python 2.7"),
            ("CVE-2024-3094 on our hosts", "Finds hosts with CVE-2021-44228"),
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
            ("we use React 19", "hooks for react 18 and later"),
            ("we use Python 3.12", "code for python 3.9+, not for python 2"),
            ("we use Python 3.12", "writes python scripts, e.g. python 3.8 ones"),
            ("send 4 mails", "send 3 mails of 2 people"),
            ("write 3 tests", "Write 2 tests for each function"),
            ("step 3 of the plan", "Step 1: plan. Step 2: build"),
            ("top 10 customers in Q3", "Top 5 lists for Q1"),
            ("merge 3 files of 2026", "Merge 2 PDF files from 2024"),
            ("make 12 slides", "Make 10 slides. Draw 2 charts"),
            ("review P0 and P1 findings", "Fixes all findings of P0-P2"),
            ("roll 3d6 for my character", "Rolls dice of the D20 system"),
            ("migrate project #42", "Migrates labels of Project V2 and fields"),
            ("am I eligible for NCT04658762", "Reads trials, example input: NCT05859269"),
            ("explain CVE-2024-3094", "Explains reports, e.g. CVE-2021-44228, to managers"),
            ("explain CVE-2024-3094", "Explains reports such as CVE-2021-44228"),
            ("deploy to k8s 1.32", "Deploys to K8s clusters"),
            ("a flight on May 12", "Finds a flight. In May 2025 it learned trains"),
            ("a laptop below USD 900", "Finds offers below USD 500"),
        ] {
            assert!(!contradict(query, document), "{query} / {document}");
        }
    }

    #[test]
    fn comparing_many_versions_takes_as_long_as_their_number() {
        let compared = |text: &str| {
            let numbered = text.split_whitespace().enumerate();
            let named: Vec<String> = numbered.map(|(at, name)| format!("{name} {at}.1")).collect();
            let text = named.join(" ");
            Versions::of_query(&text).contradict(&Versions::of_document(&text))
        };
        assert_linear("Python ", compared);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(?:\\PC|[²½①٣ \\n]){0,40}") {
            let (query, document) = (Versions::of_query(&text), Versions::of_document(&text));
            prop_assert!(!query.contradict(&query) && !document.contradict(&document));
        }

        #[test]
        fn no_text_contradicts_itself(text in "(?:[A-Za-z.]{1,6}[ -]?[0-9.]{0,5}[ ,+]?){0,12}") {
            let (query, document) = (Versions::of_query(&text), Versions::of_document(&text));
            prop_assert!(!query.contradict(&query));
            prop_assert!(!document.contradict(&document));
            prop_assert_eq!(query.contradict(&document), document.contradict(&query));
        }
    }
}
