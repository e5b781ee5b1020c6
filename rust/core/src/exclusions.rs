//! What a description says that its document is not for, left out of what is searched.
//!
//! "Do not use for spreadsheets" holds the very words of the prompts that it rules out, so that as
//! a part of the description it would be a reason for the document. So does "For spreadsheets, see
//! xlsx".

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_lite::Regex;

/// A description that has fewer words left is searched whole: there is too little else in it.
const FEWEST_WORDS: usize = 3;

/// Where a sentence begins, after white space and punctuation; `\W` would pass over other scripts.
macro_rules! beginning {
    () => {
        r"^[\s\x21-\x2F\x3A-\x40\x5B-\x60\x7B-\x7E•–—]*"
    };
}

/// Where a sentence ends: also before an item of a list or a blank line, but not where a line is
/// merely wrapped.
static END: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[.!?][\x22'”’]?\s+|\n\s*(?:\n|[-*•]\s|\d+[.)]\s)").ok());

/// A sentence that begins so is about what the document is not for. What an agent must never do is
/// a rule for its work ("Never draw one without a sketch"), and "No account needed" is no exclusion.
static OPENING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        "(?i)",
        beginning!(),
        "(?:",
        r"(?:do\s+not|don['’]t|never)\s+(?:use|trigger|invoke|activate|load|apply|route)\b",
        r"|not\s|(?:does|do|will|is)\s+not\b|doesn['’]t\b|no\s|never\s+(?:for|an?|the|[a-z]+s)\b",
        r"|skip\s+(?:for|when|if|this)\b|avoid\s+(?:for|when|if|using)\b|out\s+of\s+scope)",
    ))
    .ok()
});

/// A sentence that begins like an exclusion and is none.
static NO_EXCLUSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?i)^\W*not\s+(?:sure|only|just|limited)\b",
        r"|^\W*no\b.*\b(?:needed|required|necessary)\b|\bwithout\s+(?:this|the)\s+skill\b",
    ))
    .ok()
});

/// A sentence that says this of the document is about what it is not for.
static WITHIN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?i)\b(?:it|this|skill)\s+(?:should|must|may|is)\s+not\s+(?:to\s+)?be\s+",
        r"(?:used|triggered|invoked|activated)\b",
    ))
    .ok()
});

/// A sentence that sends the reader to another document is about what that one is for. What it
/// names is a single word, so that "For each file, see what changed" is none.
static REFERRAL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        "(?i)",
        beginning!(),
        r"for\s[^.!?]*?(?:",
        r"(?:,\s+see\s+(?:the\s+)?[`'\x22*]*[\w/-]+",
        r"|\b(?:see|use|try|prefer)\s+(?:the\s+)?[`'\x22*]*[a-z0-9]+(?:-[a-z0-9]+)+)",
        r"[`'\x22*]*(?:\s+skills?)?(?:\s+instead)?(?:\s*[(;].*|,?\s+or\s+[`'\x22*]*[\w/-]+[`'\x22*]*)?",
        r"|\b(?:use|see|try|prefer|defer\s+to)\s[^.!?]*\binstead",
        r")[\W_]*$",
    ))
    .ok()
});

/// The end of a sentence that is about something else.
static CLAUSE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?i)\s*\(\s*(?:(?:and|but|or)\s+)?",
        r"not\s+(?:for|to\s+be\s+used|intended|meant|when|if)[\s:][^()]*\)",
        r"|(?:[,;:—–-]\s*(?:(?:and|but|or)\s+)?(?:",
        r"not\s+(?:for|to\s+be\s+used|intended|meant|when|if)|(?:do\s+not|don['’]t|never)\s+use)",
        r"|\s+and\s+not\s+(?:for|on|when))[\s:]((?:[^.;!?()]|\([^()]*\)|\.\S)*)",
    ))
    .ok()
});

/// Where a sentence comes back to what the document is for.
const RETURNS: [&str; 3] = [", but ", " — ", " – "];

/// A description without the sentences and clauses that say what it is not for.
///
/// English alone: in another language hardly anything is found, and the whole is searched.
/// Whoever changes what is left out raises the version of the index file: it holds what was counted.
pub fn announced(text: &str) -> Cow<'_, str> {
    let Some(end) = &*END else { return Cow::Borrowed(text) };
    let mut kept = String::with_capacity(text.len());
    let mut start = 0;
    let ends = end.find_iter(text).map(|found| match found.as_str().strip_prefix('\n') {
        Some(rest) => found.end() - rest.len(),
        None => found.end(),
    });
    for stop in ends.chain([text.len()]) {
        let sentence = text.get(start..stop).unwrap_or_default();
        start = stop;
        if !rules_out(sentence) {
            keep_without_clauses(sentence, &mut kept);
        }
    }
    if kept.len() == text.len() || kept.split_whitespace().count() < FEWEST_WORDS {
        return Cow::Borrowed(text);
    }
    Cow::Owned(kept)
}

fn rules_out(sentence: &str) -> bool {
    let found = |pattern: &Option<Regex>| {
        pattern.as_ref().is_some_and(|pattern| pattern.is_match(sentence))
    };
    (found(&OPENING) && !found(&NO_EXCLUSION))
        || found(&WITHIN)
        || (found(&REFERRAL) && !sentence.contains(" to use "))
}

fn keep_without_clauses(sentence: &str, kept: &mut String) {
    let mut start = 0;
    for clause in CLAUSE.iter().flat_map(|pattern| pattern.captures_iter(sentence)) {
        let Some(whole) = clause.get(0) else { continue };
        let end = clause.get(1).map_or(whole.end(), |about| {
            let returns = RETURNS.iter().filter_map(|sign| about.as_str().find(sign)).min();
            returns.map_or(about.end(), |place| about.start() + place)
        });
        kept.push_str(sentence.get(start..whole.start()).unwrap_or_default());
        start = end;
    }
    kept.push_str(sentence.get(start..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            assert_eq!(announced(whole), left, "{whole}");
        }
    }

    #[test]
    fn what_rules_nothing_out_stays_as_it_is() {
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
            "Moves work between trackers. For teams that left Jira and want to use Linear instead.",
            "Use whenever somebody needs a pitch, even if they do not use the word deck.",
            "Explains when and when not to use useMemo, useCallback and memo.",
            "Runs a drill for when, not if, a server fails: failover, backups and recovery.",
            "Debugs test suites. Use when tests are\nnot passing, fixtures leak or mocks fail.",
            "Builds landing pages. No coding needed: describe colours, fonts and layout.",
            "Picks the right chart. Not sure whether bar, line or scatter fits your data?",
            "Keeps notes. Never lose context again.",
            "Draws page layouts. Never draw one without a sketch of its sections.",
            "Reviews migrations. Never apply one without this skill: it checks locks.",
            "Fixes office printers. Cannot connect to WiFi, paper jams, blank pages.",
            "Собирает сайты и приложения. Платформы no code и low code.",
        ] {
            assert!(matches!(announced(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn a_description_of_exclusions_alone_is_searched_whole() {
        let text = "Do not use for Word files. Never for slides.";
        assert_eq!(announced(text), text);
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_gets_no_longer(text in "\\PC{0,200}", other in "(?s).{0,80}") {
            for text in [&text, &other] {
                let kept = announced(text);
                prop_assert!(kept.len() <= text.len());
                prop_assert_eq!(announced(text), kept);
            }
        }
    }
}
