//! Names of skills and tools in a prompt, in the forms by which people and agents call one.
//!
//! `/name` at the start, `mcp__server__tool`, `$name`, `@name`, "use the name skill", "run tool name",
//! and a name in the manner of code in backticks or behind such a verb.

use crate::common_words::information;
use crate::error::Result;
use crate::lists::lists;
use crate::stop_words::is_stop_word;
use crate::text::Analyzer;

lists!(
    "name_words.txt": CALLED, CALLS, DENIALS, FIRST_FOLDERS, GENERAL, NOUNS, OF_AGENTS, POINTERS, STATES
);

/// Most words of a name.
const LONGEST_NAME: usize = 4;

/// Words before a name in which a denial counts: "do not ever use the".
const DENIED_WITHIN: usize = 3;

/// The names in a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Names that documents have, as the prompt writes them.
    pub(crate) known: Vec<String>,
    /// A name that no document has, in a form that cannot mean anything else.
    pub(crate) unknown: Option<String>,
}

/// A library of named documents.
pub(crate) trait Library {
    /// Whether a document has a name; see [`folded`].
    fn has(&self, name: &str) -> Result<bool>;
    /// Whether the head of a document has one of the terms.
    fn mentions(&self, terms: &[String]) -> Result<bool>;
    /// Turns text into terms.
    fn analyzer(&self) -> Analyzer;
}

/// A name in lower case, with a hyphen for each space or underscore: the same for all of its spellings.
pub(crate) fn folded(name: &str) -> String {
    let lower = name.trim().to_lowercase();
    lower.split([' ', '_', '-']).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// The last part of `mcp__server__tool`, and the server.
pub(crate) fn server_and_tool(name: &str) -> Option<(&str, &str)> {
    let (server, tool) = name.strip_prefix("mcp__")?.split_once("__")?;
    (!server.is_empty() && !tool.is_empty()).then_some((server, tool))
}

/// A word of the prompt.
struct Word<'a> {
    /// Without quotation marks, brackets and marks of the sentence.
    text: &'a str,
    /// The same in lower case, with the typewriter's apostrophe.
    lower: String,
    /// The character before the text, such as `/`, `$` or `@`, if the word begins with it.
    mark: Option<char>,
    in_backticks: bool,
    in_quotes: bool,
    /// Whether a mark of the sentence follows.
    ends: bool,
}

impl<'a> Word<'a> {
    fn new(raw: &'a str) -> Self {
        let outer = |letter: char| !letter.is_alphanumeric() && letter != '_';
        let text = raw.trim_matches(outer);
        let start = raw.find(text).unwrap_or_default();
        let before = raw.get(..start).unwrap_or_default();
        let after = raw.get(start + text.len()..).unwrap_or_default();
        let mark = before.chars().next_back().filter(|mark| "/$@".contains(*mark));
        Self {
            text,
            lower: text.to_lowercase().replace('\u{2019}', "'"),
            mark: mark.filter(|_| before.trim_start_matches(['`', '(', '"', '\'', '*']).len() == 1),
            in_backticks: before.contains('`') && after.contains('`'),
            in_quotes: before.contains(['"', '“', '`', '«', '„'])
                || (before.contains(['\'', '‘']) && after.contains(['\'', '’'])),
            ends: after.contains([',', '.', ';', ':', '!', '?']),
        }
    }

    fn is_one_of(&self, list: &[&str]) -> bool {
        list.binary_search(&self.lower.as_str()).is_ok()
    }

    /// Whether the word is written like a name in code: `create_issue`, `csv-cleaner`, `getUser`.
    fn is_identifier(&self) -> bool {
        let changes = |pair: &[char]| matches!(pair, [before, after] if before.is_lowercase() && after.is_uppercase());
        let letters: Vec<char> = self.text.chars().collect();
        self.text.contains(['_', '-', ':']) || letters.windows(2).any(changes)
    }

    /// Whether only code is written like this: `create_issue`.
    fn is_code(&self) -> bool {
        self.text.trim_matches('_').contains('_')
    }
}

/// The names of documents in a prompt.
pub(crate) fn names(prompt: &str, library: &impl Library) -> Result<Names> {
    let prompt =
        prompt.trim_start_matches(|letter: char| letter.is_whitespace() || letter == '\u{feff}');
    let words: Vec<Word<'_>> = prompt.split_whitespace().map(Word::new).collect();
    let reader = Reader { words: &words, library };
    let mut found = Names::default();
    for at in 0..words.len() {
        for (name, is_sure) in reader.at(at)? {
            if library.has(&name)? {
                if !found.known.contains(&name) {
                    found.known.push(name);
                }
            } else if is_sure && found.unknown.is_none() {
                found.unknown = Some(name);
            }
        }
    }
    if !found.known.is_empty() {
        found.unknown = None;
    }
    Ok(found)
}

struct Reader<'a, L> {
    words: &'a [Word<'a>],
    library: &'a L,
}

impl<L: Library> Reader<'_, L> {
    fn word(&self, at: usize) -> Option<&Word<'_>> {
        self.words.get(at)
    }

    /// The names that a word is or belongs to, each with whether it can only be a name.
    fn at(&self, at: usize) -> Result<Vec<(String, bool)>> {
        let Some(word) = self.word(at).filter(|word| !word.text.is_empty()) else {
            return Ok(Vec::new());
        };
        if self.is_denied(at) {
            return Ok(Vec::new());
        }
        let plain = || word.text.to_owned();
        if word.mark == Some('/') && at == 0 {
            return Ok(self.of_command(word).into_iter().collect());
        }
        if server_and_tool(word.text).is_some() {
            return Ok(vec![(plain(), true)]);
        }
        let is_called = matches!(word.mark, Some('$' | '@'))
            && !self.is_state(at + 1)
            && !self.is_grammar(at, at + 1);
        let is_code = word.is_code() || (word.is_identifier() && word.in_backticks);
        let is_used = word.is_identifier() && self.call_before(at).is_some();
        if (is_called || is_code || is_used) && word.mark != Some('/') {
            // `$PATH` is a variable, also where a document is called path.
            let is_variable = word.mark == Some('$') && word.text.contains(char::is_uppercase);
            if !is_variable && self.library.has(word.text)? {
                return Ok(vec![(plain(), false)]);
            }
        }
        if word.is_one_of(&NOUNS) && word.mark.is_none() {
            return self.beside(at);
        }
        Ok(Vec::new())
    }

    /// The name of `/name` at the start of a prompt.
    fn of_command(&self, word: &Word<'_>) -> Option<(String, bool)> {
        let is_inner = |letter: char| letter.is_alphanumeric() || "_-:".contains(letter);
        if self.is_state(1) || !word.text.chars().all(is_inner) {
            return None;
        }
        let is_other = word.is_one_of(&OF_AGENTS) || word.is_one_of(&FIRST_FOLDERS);
        Some((word.text.to_owned(), !is_other))
    }

    /// The name before or behind the noun "skill" or "tool".
    fn beside(&self, noun: usize) -> Result<Vec<(String, bool)>> {
        for length in (1..=LONGEST_NAME.min(noun)).rev() {
            let start = noun - length;
            let is_called = self.call_before(start).is_some();
            if let Some(name) = self.span(start, noun)
                && !self.is_grammar(start, noun)
                && (is_called || self.is_name(start, noun))
                && !self.is_denied(start)
                && self.library.has(&name)?
            {
                return Ok(vec![(name, false)]);
            }
        }
        let is_named = self.word(noun + 1).is_some_and(|word| word.is_one_of(&CALLED));
        let first = noun + 1 + usize::from(is_named);
        let is_called = self.call_before(noun).is_some() || is_named;
        let ends = self.word(noun).is_none_or(|word| word.ends);
        for length in (1..=LONGEST_NAME).rev().filter(|_| !ends) {
            let end = first + length;
            if let Some(name) = self.span(first, end)
                && (is_named || !self.is_grammar(first, end))
                && (is_called || self.is_name(first, end))
                && self.library.has(&name)?
            {
                return Ok(vec![(name, false)]);
            }
        }
        if is_called && !ends && self.word(first).is_some_and(|word| self.is_sure(word, noun)) {
            return Ok(self.span(first, first + 1).map(|name| (name, true)).into_iter().collect());
        }
        self.unknown_before(noun)
    }

    /// A name that no document has, between a verb and the noun.
    fn unknown_before(&self, noun: usize) -> Result<Vec<(String, bool)>> {
        let mut starts = (1..=LONGEST_NAME.min(noun)).map(|length| noun - length);
        let found = starts.find(|start| self.call_before(*start).is_some());
        let Some((start, name)) = found.and_then(|start| Some((start, self.span(start, noun)?)))
        else {
            return Ok(Vec::new());
        };
        let words = self.words.get(start..noun).unwrap_or_default();
        let is_single = words.len() == 1;
        let is_quoted = words.first().is_some_and(|word| word.in_quotes);
        let is_sure = match words.first() {
            Some(word) if is_single && self.is_sure(word, noun) => true,
            _ if is_quoted => true,
            // "Use the banana skill": no document is about bananas. Tools are everywhere.
            _ => {
                let terms = self.library.analyzer().terms(&name);
                self.word(noun).is_some_and(|word| word.lower == "skill")
                    && !words.iter().any(|word| word.is_one_of(&GENERAL))
                    && terms.iter().any(|term| information(term) >= 1.0)
                    && !self.library.mentions(&terms)?
            }
        };
        Ok(if is_sure { vec![(name, true)] } else { Vec::new() })
    }

    /// Whether a word beside the noun can only be a name: "the csv-cleaner skill", but not "the
    /// command-line tool".
    fn is_sure(&self, word: &Word<'_>, noun: usize) -> bool {
        let is_skill = self.word(noun).is_some_and(|noun| noun.lower == "skill");
        !word.is_one_of(&GENERAL)
            && (word.in_backticks || word.is_code() || (is_skill && word.is_identifier()))
    }

    /// Whether words are those of every prompt, such as "the" and "right": no name without quotes.
    fn is_grammar(&self, start: usize, end: usize) -> bool {
        let words = self.words.get(start..end).unwrap_or_default();
        words.iter().all(|word| {
            !word.in_quotes
                && (is_stop_word(&word.lower)
                    || word.is_one_of(&POINTERS)
                    || word.is_one_of(&GENERAL))
        })
    }

    /// Whether words are written like a name.
    fn is_name(&self, start: usize, end: usize) -> bool {
        let words = self.words.get(start..end).unwrap_or_default();
        words.len() == 1 && words.iter().all(|word| word.is_identifier() || word.in_backticks)
    }

    /// The words from a place to another, if no mark of the sentence divides them.
    fn span(&self, start: usize, end: usize) -> Option<String> {
        let words = self.words.get(start..end).filter(|words| !words.is_empty())?;
        let (_, before) = words.split_last()?;
        let is_whole = before.iter().all(|word| !word.ends);
        let texts: Vec<&str> = words.iter().map(|word| word.text).collect();
        (is_whole && !texts.contains(&"")).then(|| texts.join(" "))
    }

    /// The place of a verb such as "use" in front of a word, with at most "the" or "my" between.
    fn call_before(&self, at: usize) -> Option<usize> {
        let mut before = at.checked_sub(1)?;
        if self.word(before).is_some_and(|word| word.is_one_of(&POINTERS)) {
            before = before.checked_sub(1)?;
        }
        let is_call = |word: &&Word<'_>| word.is_one_of(&CALLS) && !word.ends;
        self.word(before).filter(is_call).filter(|_| !self.is_denied(before)).map(|_| before)
    }

    /// Whether one of the words before a word denies it: "do not use the".
    fn is_denied(&self, at: usize) -> bool {
        let before = self.words.get(at.saturating_sub(DENIED_WITHIN)..at).unwrap_or_default();
        let mut before = before.iter().rev().take_while(|word| !word.ends);
        before.any(|word| word.is_one_of(&DENIALS))
    }

    /// Whether a word says something about what stands before it: "/search is slow".
    fn is_state(&self, at: usize) -> bool {
        self.word(at).is_some_and(|word| word.is_one_of(&STATES))
    }
}

/// How alike two names are, in [0, 1]: the share of their pairs of letters that both have.
pub(crate) fn likeness(left: &str, right: &str) -> f64 {
    let pairs = |name: &str| {
        let letters: Vec<char> = format!("^{}$", folded(name)).chars().collect();
        let mut pairs: Vec<(char, char)> =
            letters.iter().copied().zip(letters.iter().copied().skip(1)).collect();
        pairs.sort_unstable();
        pairs
    };
    let (left, right) = (pairs(left), pairs(right));
    let mut rest = right.clone();
    let mut both = 0_usize;
    for pair in &left {
        if let Ok(place) = rest.binary_search(pair) {
            rest.remove(place);
            both += 1;
        }
    }
    2.0 * both as f64 / (left.len() + right.len()).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTS: &[&str] = &[
        "csv-cleaner",
        "pdf toolkit",
        "interview",
        "create_issue",
        "getWeather",
        "search",
        "path",
        "tools:deploy",
        "the",
        "here",
        "right",
    ];

    struct Documents;

    impl Library for Documents {
        fn has(&self, name: &str) -> Result<bool> {
            let last = server_and_tool(name).map_or(name, |(_, tool)| tool);
            Ok(DOCUMENTS.iter().any(|document| folded(document) == folded(last)))
        }

        fn mentions(&self, terms: &[String]) -> Result<bool> {
            Ok(terms.iter().any(|term| term == "csv"))
        }

        fn analyzer(&self) -> Analyzer {
            Analyzer::new("english").unwrap()
        }
    }

    #[test]
    fn names_are_found_in_the_forms_of_people_and_agents() {
        for (prompt, known) in [
            ("/csv-cleaner this export", "csv-cleaner"),
            ("\u{feff} /Interview", "Interview"),
            ("/tools:deploy now", "tools:deploy"),
            ("Use the csv-cleaner skill on this.", "csv-cleaner"),
            ("please use my interview skill", "interview"),
            ("use skill interview for this", "interview"),
            ("run the tool called search", "search"),
            ("run the search tool", "search"),
            ("Use the PDF Toolkit skill to merge them", "PDF Toolkit"),
            ("use the \"pdf toolkit\" skill", "pdf toolkit"),
            ("clean it with csv-cleaner, then stop", "csv-cleaner"),
            ("csv-cleaner skill: this export", "csv-cleaner"),
            ("call mcp__github__create_issue for it", "mcp__github__create_issue"),
            ("`create_issue`: the login fails", "create_issue"),
            ("create_issue about the login", "create_issue"),
            ("is `getWeather` what you need?", "getWeather"),
            ("$csv-cleaner on this", "csv-cleaner"),
            ("@interview me", "interview"),
            ("/the story", "the"),
            ("use the `right` skill", "right"),
            ("use the skill called here", "here"),
        ] {
            let found = names(prompt, &Documents).unwrap();
            assert_eq!((found.known, found.unknown), (vec![known.to_owned()], None), "{prompt}");
        }
    }

    #[test]
    fn a_name_that_nothing_has_is_reported_in_an_unmistakable_form_only() {
        for (prompt, unknown) in [
            ("/csv-cleanr this", "csv-cleanr"),
            ("mcp__github__fork_it please", "mcp__github__fork_it"),
            ("use the csv-washer skill", "csv-washer"),
            ("use the banana skill", "banana"),
            ("use skill `washer`", "washer"),
            ("use the skill called data_washer", "data_washer"),
        ] {
            let found = names(prompt, &Documents).unwrap();
            assert_eq!(
                (found.known.len(), found.unknown.as_deref()),
                (0, Some(unknown)),
                "{prompt}"
            );
        }
    }

    #[test]
    fn paths_variables_commands_of_agents_and_prose_name_nothing() {
        for prompt in [
            "",
            "/",
            "/app.json is broken",
            "/api/search times out",
            "/search is slow",
            "/tmp fills up",
            "/compact",
            "/help",
            "the page at /search hangs",
            "$PATH is empty",
            "$path is empty",
            "mail me@interview.org",
            "prepare me for an interview",
            "an interview is a skill",
            "do not use the csv-cleaner skill",
            "without the interview skill, please",
            "use the right skill",
            "use the same tool again",
            "use the command-line tool",
            "use the csv skill",
            "improve my writing skills",
            "which tool searches?",
            "use the skill, please",
            "use the skill the way you did",
            "run the tool here",
            "@here look at this",
        ] {
            assert_eq!(names(prompt, &Documents).unwrap(), Names::default(), "{prompt}");
        }
    }

    #[test]
    fn the_likeness_of_names_is_symmetric_and_1_for_spellings_of_one_name() {
        assert_eq!(likeness("PDF_Toolkit", "pdf-toolkit"), 1.0);
        assert_eq!(likeness("csv", "pdf"), 0.0);
        let (near, far) =
            (likeness("csv-cleanr", "csv-cleaner"), likeness("csv-cleanr", "pdf-clean"));
        assert!(near > far && near < 1.0, "{near} {far}");
        assert_eq!(likeness("ab", "bc"), likeness("bc", "ab"));
    }
}
