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

/// Where a sentence ends; one that breaks off at a line break has ended, too.
static END: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[.!?]\s+|\n+").ok());

/// A sentence that begins so is about what the document is not for.
static OPENING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?i)^[\W_]*(?:",
        r"(?:do not|don['’]t|never)\s+(?:use|trigger|invoke|activate|load|apply|route|call|run)\b",
        r"|not\s|(?:does|do|did|will|is|are) not\b|doesn['’]t\b|won['’]t\b|never\b|cannot\b|no\s",
        r"|skip\s+(?:for|when|if|this)\b|avoid\s+(?:for|when|if|using)\b|out of scope)",
    ))
    .ok()
});

/// A sentence that holds this is, too.
static WITHIN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?i)\b(?:do not|don['’]t|never|should not|must not|not to)\s+(?:be\s+)?",
        r"(?:use|used|trigger|triggered|invoke|invoked|activate)\b",
    ))
    .ok()
});

/// A sentence that sends the reader to another document is about what that one is for. What it
/// names is a single word, so that "For each file, see what changed" is none.
static REFERRAL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?i)^[\W_]*for\s[^.!?]*?(?:",
        r"(?:,\s+see\s+(?:the\s+)?[`'\x22*]*[\w/-]+",
        r"|\b(?:see|use|try|prefer)\s+(?:the\s+)?[`'\x22*]*[a-z0-9]+(?:-[a-z0-9]+)+)",
        r"[`'\x22*]*(?:\s+skills?)?(?:\s*[(,/—–].*|\s+(?:or|and|for|instead)\b.*)?",
        r"|\b(?:use|see|try|prefer|defer\s+to)\s[^.!?]*\binstead",
        r")[\W_]*$",
    ))
    .ok()
});

/// The end of a sentence that is about something else.
static CLAUSE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?i)(?:[,;:(—–-]\s*(?:(?:and|but|or)\s+)?not\s+(?:for|to be used|intended|meant|when|if)",
        r"|\s+and not\s+(?:for|on|when))\b[^.;!?]*",
    ))
    .ok()
});

/// A description without the sentences and clauses that say what it is not for.
///
/// English alone: in another language nothing is found, and the whole is searched.
pub fn announced(text: &str) -> Cow<'_, str> {
    let (Some(end), Some(opening), Some(within), Some(referral), Some(clause)) =
        (&*END, &*OPENING, &*WITHIN, &*REFERRAL, &*CLAUSE)
    else {
        return Cow::Borrowed(text);
    };
    let mut kept = String::with_capacity(text.len());
    let mut start = 0;
    let ends = end.find_iter(text).map(|found| found.end()).chain([text.len()]);
    for stop in ends {
        let sentence = text.get(start..stop).unwrap_or_default();
        start = stop;
        if ![opening, within, referral].iter().any(|ruled_out| ruled_out.is_match(sentence)) {
            kept.push_str(&clause.replace(sentence, ""));
        }
    }
    if kept.len() == text.len() || kept.split_whitespace().count() < FEWEST_WORDS {
        return Cow::Borrowed(text);
    }
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sentences_that_rule_something_out_are_left_out() {
        for (whole, left) in [
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
