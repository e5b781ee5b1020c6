//! The triggers of a description: words and phrases that its author says should select it.
//!
//! They are quoted after "use when the user says", listed after "triggers:" or "when the user
//! mentions", or the name of the document. A quotation in other prose does not count.
//!
//! English only: in another language only lists after "triggers:" and names are found.

use std::sync::LazyLock;

use crate::lists::{Section, data, lists, sections};
use crate::steps::step;
use crate::words::{Bounds, Pattern, Token, item_mark, quoted, sentences, tokens};

/// More triggers than this are cut off.
const MOST_TRIGGERS: usize = 64;
/// More lists in one sentence are not read, because each may go on to its end.
const MOST_LISTS: usize = 64;
/// A longer item of a list, in words, is a sentence and no trigger.
const LONGEST_ITEM: usize = 4;
/// A longer quotation, in words, is a whole prompt: it will hardly be written again.
const LONGEST_QUOTE: usize = 8;

lists!("trigger_words.txt": ANNOUNCING, LEADING, CLAUSES);

/// Groups of phrases; see [`Pattern`].
static CLASSES: LazyLock<Vec<Section>> = LazyLock::new(|| sections(data!("trigger_phrases.txt")));

/// Behind one of these, a quotation is a trigger.
static CUES: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    patterns(&[
        "TRIGGER on|when|whenever|if|for|by|with|:|phrases|phrase|words|terms|keywords|include|includes|even|upon|are",
        "LIST include|includes|are|:",
        "when|whenever|if asked|asking|prompted|told",
        "whenever",
        "WHO NAMES",
        "WHO ASKS",
        "WHO might|may|could|can|would|will say|ask|type|write|request|mention",
        "PROMPT CONTAINS",
        "responds|respond|reacts|react|listens|listen to|for",
        "phrases|words|terms|prompts|questions that|which trigger|triggers|activate|invoke|select",
        "phrasings|phrases|phrase|prompts|requests|queries|questions|utterances|commands|forms|messages include|includes|like|such|are|:|to|for",
        "handles|handle|answers|answer|covers requests|prompts|questions|queries|phrases",
    ])
});

/// The same for quotations alone: text in backticks is often code.
static USES: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    patterns(&[
        "use|used|useful|apply|applies|applicable|load|reach|call|run *? *? *? *? when|whenever|if|for|on|:",
        "when|if",
    ])
});

/// Behind one of these, the items of a list are triggers without quotation marks.
static LISTS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    patterns(&[
        "LIST are? :",
        "LIST are? -",
        "LIST include|includes :?",
        "TRIGGER include|includes :?",
        "TRIGGER :",
        "TRIGGER when|whenever|if :",
        "use|used|call|load|apply|run it|this? for|on|when|whenever|if :",
        "when to use|trigger|activate|invoke|apply it|this? skill? :",
        "when_to_use|when-to-use :",
        "responds|respond|reacts|react|listens|listen to|for :",
        "look|looks|listen|listens|watch|watches for words|phrases|terms|keywords like|such as? :?",
        "come|comes|came up :",
        "when|whenever|if|once PROMPT CONTAINS :? LIKE?",
        "TRIGGER on|by|for|upon :? LIKE?",
        "when|whenever|if|once WHO NAMES :? LIKE?",
        "when|whenever|if asked about|for :? LIKE?",
        "or NAMES :? LIKE?",
        "mention|mentions of",
    ])
});

fn patterns(written: &[&'static str]) -> Vec<Pattern> {
    written.iter().map(|form| Pattern::new(form, &CLASSES)).collect()
}

/// The heading of a list whose items stand below it.
static HEADINGS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    patterns(&[
        "LIST $",
        "TRIGGER on|by|for|when? $",
        "when to use|trigger|activate it|this? skill? $",
    ])
});

/// Closes a list after its items: "whenever decks or slides are mentioned".
static MENTIONED: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    patterns(&[
        "is|are|were|gets|get|being mentioned|named|requested",
        "come|comes|came up",
        "appear|appears|occur|occurs in the|a? prompt|request|message|question|query|conversation",
    ])
});

/// Turns quotations before it into triggers: "say 'deck' to activate".
static TO_START: LazyLock<Vec<Pattern>> =
    LazyLock::new(|| patterns(&["to activate|trigger|invoke|start|launch"]));

/// The triggers of a document, in the order of the text and without repetitions; its title is a
/// trigger.
///
/// `purpose` is the text without its exclusions: "not when the user says ..." names no trigger.
pub fn read(title: &str, purpose: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    if title.split_whitespace().count() <= LONGEST_ITEM {
        found.extend((!title.trim().is_empty()).then(|| title.trim().to_owned()));
    }
    let mut is_listed = false;
    for sentence in sentences(purpose) {
        let text = sentence_text(purpose, &sentence);
        let named = of_sentence(text);
        if is_listed && sentence.is_item {
            if named.is_empty() {
                found.extend(of_item(text));
            }
        } else if !text.trim().is_empty() {
            is_listed = opens_list(text);
        }
        found.extend(named);
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|trigger| seen.insert(trigger.to_lowercase()));
    found.truncate(MOST_TRIGGERS);
    found
}

fn sentence_text<'a>(text: &'a str, sentence: &Bounds) -> &'a str {
    text.get(sentence.start..sentence.end).unwrap_or_default()
}

/// Whether a sentence announces triggers that stand below it: "Triggers:", "## When to use".
fn opens_list(text: &str) -> bool {
    let tokens = tokens(text);
    let ends = |list: &Pattern, at: usize| list.end(&tokens, at) == Some(tokens.len());
    HEADINGS.iter().any(|heading| ends(heading, 0))
        || (0..tokens.len()).any(|at| LISTS.iter().any(|list| ends(list, at)))
}

/// The trigger of an item below such a sentence, if it is short.
fn of_item(text: &str) -> Option<String> {
    let text = text.trim_start();
    let text = text.get(item_mark(text)..)?.trim();
    if let Some(quote) = quoted(text).into_iter().next() {
        let words = text.get(quote)?.trim();
        return (words.split_whitespace().count() <= LONGEST_QUOTE).then(|| words.to_owned());
    }
    let tokens = tokens(text);
    let end = tokens.iter().position(|one| !one.is_word()).unwrap_or(tokens.len());
    item(text, &tokens, 0, end)
}

fn of_sentence(text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let announces = |at: usize| {
        let is_noun = tokens.get(at).is_some_and(|one| {
            ["trigger", "triggers", "keyword", "keywords", "tags", "phrases", "activation"]
                .contains(&&*one.text)
        });
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        !is_noun
            || before
                .is_none_or(|one| !one.is_word() || one.is_name || ANNOUNCING.contains(&&*one.text))
    };
    let plain = |at: &usize| tokens.get(*at).is_some_and(|token| !token.is_quoted);
    let behind = |cues: &[Pattern]| {
        let ends = (0..tokens.len()).filter(plain);
        let mut ends =
            ends.filter_map(|at| cues.iter().filter_map(|cue| cue.end(&tokens, at)).min());
        ends.next().and_then(|end| tokens.get(end - 1)).map_or(usize::MAX, |cue| cue.end)
    };
    let starts =
        (0..tokens.len()).any(|at| TO_START.iter().any(|one| one.end(&tokens, at).is_some()));
    let says = tokens.first().is_some_and(|one| ["say", "type", "write"].contains(&&*one.text));
    let cue = if says && starts { 0 } else { behind(&CUES) };
    let use_cue = behind(&USES);
    let mut found = Vec::new();
    for quote in quoted(text) {
        let is_code = text.get(..quote.start).is_some_and(|before| before.ends_with('`'));
        let start = quote.start;
        let words = text.get(quote).unwrap_or_default().trim().trim_end_matches([',', '.', ';']);
        if (cue <= start || (use_cue <= start && !is_code))
            && words.split_whitespace().count() <= LONGEST_QUOTE
        {
            found.push(words.to_owned());
        }
    }
    let (mut last, mut lists) = (0, 0);
    for at in (0..tokens.len()).filter(plain) {
        let start = LISTS.iter().filter_map(|list| list.end(&tokens, at)).max();
        if let Some(start) = start.filter(|_| at >= last && lists < MOST_LISTS && announces(at)) {
            last = start;
            lists += 1;
            found.extend(items(text, &tokens, start, tokens.len()));
        }
    }
    let is_condition = |at: &usize| {
        tokens
            .get(*at)
            .is_some_and(|token| token.is("when") || token.is("whenever") || token.is("if"))
    };
    let opens = (0..tokens.len()).filter(plain).find(is_condition);
    let closes = (0..tokens.len())
        .filter(plain)
        .find(|at| MENTIONED.iter().any(|one| one.end(&tokens, *at).is_some()));
    if let (Some(opens), Some(closes)) = (opens, closes) {
        found.extend(items(text, &tokens, opens + 1, closes));
    }
    found.retain(|trigger| trigger.chars().filter(|letter| letter.is_alphanumeric()).count() >= 2);
    found
}

/// The items of an enumeration without quotation marks, as far as they are short.
fn items(text: &str, tokens: &[Token<'_>], from: usize, to: usize) -> Vec<String> {
    let mut found = Vec::new();
    // "Triggers: deck; slides" is a list to its end; in a sentence, a semicolon begins another
    // clause.
    let is_list = from
        .checked_sub(1)
        .and_then(|before| tokens.get(before))
        .is_some_and(|token| token.is(":"));
    let mut first = from;
    let mut open = 0_usize;
    let mut is_one_of_several = false;
    for at in from..=to {
        step();
        let token = tokens.get(at).filter(|_| at < to);
        let word = token.map_or("", |token| &*token.text);
        let separates =
            matches!(word, "" | "," | ";" | ":" | "|" | "or" | "-" | "." | "!" | "?" | "(" | ")");
        // "Drag and drop" is one item, and the last two of several are two.
        let separates = separates || (word == "and" && is_one_of_several);
        is_one_of_several |= matches!(word, "," | ";" | "|" | "or");
        // "Any mention of decks or slides triggers this."
        let ends = first > from && ENDING.contains(&word);
        let separates = separates || ends;
        if separates {
            if open == 0
                && let Some(item) = item(text, tokens, first, at)
            {
                found.push(item);
            }
            first = at + 1;
        }
        match word {
            "(" => open += 1,
            ")" => open = open.saturating_sub(1),
            ";" if is_list => {}
            "-" | ";" | "." | "!" | "?" => break,
            _ if ends => break,
            _ => {}
        }
    }
    found
}

/// Behind the last item of a list, one of these begins what the document then does.
const ENDING: &[&str] =
    &["should", "must", "will", "shall", "triggers", "activates", "invokes", "fires", "selects"];

fn item(text: &str, tokens: &[Token<'_>], mut first: usize, last: usize) -> Option<String> {
    while first < last && tokens.get(first).is_some_and(|token| LEADING.contains(&&*token.text)) {
        first += 1;
    }
    let inside = tokens.get(first..last)?;
    let is_short = (1..=LONGEST_ITEM).contains(&inside.len());
    // Quotations are triggers by themselves, and a verb begins a clause of its own.
    let is_plain = inside.iter().all(|token| !token.is_quoted && token.is_word());
    let is_clause = inside.first().is_some_and(|token| CLAUSES.contains(&&*token.text));
    if !is_short || !is_plain || is_clause {
        return None;
    }
    text.get(inside.first()?.start..inside.last()?.end).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::steps::assert_linear;

    #[test]
    fn quotations_and_lists_after_a_trigger_verb_are_triggers() {
        let cases: &[(&str, &[&str])] = &[
            (
                "Builds talks. Use when the user says \"make a deck\", 'slides' or “pitch”.",
                &["make a deck", "slides", "pitch"],
            ),
            (
                "Builds talks. Use it whenever \"deck\", \"slides\" or \"presentation\" is mentioned.",
                &["deck", "slides", "presentation"],
            ),
            (
                "Builds talks. Triggers: deck, slide show; keynote.",
                &["deck", "slide show", "keynote"],
            ),
            (
                "Builds talks. Triggers on decks, slides, or .pptx files.",
                &["decks", "slides", ".pptx files"],
            ),
            ("Builds talks. Keywords: deck, slides, talk", &["deck", "slides", "talk"]),
            (
                "Use when the user mentions decks, slides or a keynote.",
                &["decks", "slides", "keynote"],
            ),
            (
                "Use when someone asks for a deck or asks about speaker notes.",
                &["deck", "speaker notes"],
            ),
            ("Whenever decks or slides are mentioned, this builds them.", &["decks", "slides"]),
            ("Use when the user asks to build, fix or shorten it, or mentions decks.", &["decks"]),
            ("Triggers include slide show, keynote talk.", &["slide show", "keynote talk"]),
            ("Activate when the prompt mentions `.pptx`.", &[".pptx"]),
            ("Handles requests like \"tidy my deck\".", &["tidy my deck"]),
            ("Also triggers for \"speaker notes\".", &["speaker notes"]),
            ("When to use: slide show, talk.", &["slide show", "talk"]),
            ("when_to_use: slide show, talk", &["slide show", "talk"]),
            ("Use for: slide shows, talks and handouts.", &["slide shows", "talks", "handouts"]),
            ("TRIGGER when: slide show, deck and talk.", &["slide show", "deck", "talk"]),
            ("Triggers on drag and drop.", &["drag and drop"]),
            ("Triggers — deck, talk.", &["deck", "talk"]),
            ("Responds to \"deck\" and \"talk\".", &["deck", "talk"]),
            ("Auto-activates for deck, talk.", &["deck", "talk"]),
            ("Activate when you hear deck or talk.", &["deck", "talk"]),
            ("Any mention of a deck or talk triggers this.", &["deck", "talk"]),
            ("Mentions of a deck or talk should trigger this skill.", &["deck", "talk"]),
            ("If the prompt contains deck or talk, use this.", &["deck", "talk"]),
            ("Look for words like deck, talk.", &["deck", "talk"]),
            ("Say \"deck\" or \"talk\" to activate.", &["deck", "talk"]),
            ("User might say: \"deck\", \"talk\"", &["deck", "talk"]),
            ("Phrases that trigger it: \"deck\"; \"talk\".", &["deck", "talk"]),
            ("Use whenever decks or talks come up.", &["decks", "talks"]),
            ("Builds talks. Triggers:\n- deck\n- \"slide show\"\n", &["deck", "slide show"]),
            ("Builds talks.\n\n## Keywords\n\n* deck\n* slide show\n", &["deck", "slide show"]),
        ];
        for (text, expected) in cases {
            assert_eq!(read("", text), *expected, "{text}");
        }
    }

    #[test]
    fn prose_that_only_mentions_a_word_names_no_trigger() {
        for text in [
            "",
            "Builds decks, slides and handouts from an outline.",
            "Replaces \"leverage\" and \"synergy\" with plain words.",
            "Writes database triggers, such as an audit log after each update.",
            "Explains the so-called \"halo effect\" to designers.",
            "The 'render' step needs a font. It says 'done' at the end.",
            "Renames each `TODO` to an issue.",
            "Database triggers on insert are kept.",
            "Writes keywords: the metadata of the deck.",
            "Builds talks:\n- outline\n- slides\n",
            "Use when a deck is large or contains errors.",
            "Use when decks, talks or handouts are involved.",
            "Use when editing task files: `list`, `search`, `status`.",
            "Use when a report has to be written, a table has to be drawn, or both are late.",
        ] {
            assert_eq!(read("", text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn the_name_is_a_trigger_and_repetitions_are_left_out() {
        let text = "Triggers: Deck, deck, slides.";
        assert_eq!(read("slide-deck", text), ["slide-deck", "Deck", "slides"]);
        assert_eq!(read("How we write our slides here", "Builds talks."), Vec::<String>::new());
    }

    #[test]
    fn whole_prompts_and_clauses_are_not_triggers() {
        let text = "Use when the user says \"could you please make me a long deck about the moon\" or \
                    mentions a deck that has to be ready by the end of this week.";
        assert_eq!(read("", text), Vec::<String>::new());
    }

    #[test]
    fn a_run_of_lists_takes_as_long_as_its_length() {
        for piece in ["use when the user says ", "Triggers: a, "] {
            assert_linear(piece, |text| read("", text));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC{0,200}", other in "(?s).{0,80}") {
            for text in [format!("Triggers: {text}"), format!("when the user says \"{other}"), text] {
                for trigger in read("", &text) {
                    prop_assert!(text.contains(&trigger));
                }
            }
        }
    }
}
