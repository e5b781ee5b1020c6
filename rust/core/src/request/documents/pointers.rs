//! Words of a request that point to a text above or below it.

use crate::lists::lists;
use crate::steps::steps;
use crate::stop_words::is_stop_word;

/// How clearly a request points to a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pointer {
    /// The request points to its own details: "with the following features", "build this".
    Plan,
    /// "Help me with this", "check my notes".
    Vague,
    /// A text is to be changed or used: "shorten this", "a quiz from this".
    Clear,
    /// The request names a text: "for these notes".
    Named,
}

/// Where the text is, seen from the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

/// How clearly some words point to a text.
pub(super) fn pointer(words: &[String], direction: Direction) -> Option<Pointer> {
    let mut best = None;
    for (at, word) in words.iter().enumerate() {
        let Some((noun, announces)) = pointed(words, at, word, direction) else { continue };
        let found = strength(words, at, &noun, direction);
        // "Review this by the following rules": the rules are below.
        let several = !noun.is_empty() && noun.iter().all(|word| !TEXTS.contains(word));
        let several = several && noun.last().is_some_and(|word| word.ends_with('s'));
        if announces && (found == Some(Pointer::Plan) || several) {
            return Some(Pointer::Plan);
        }
        best = best.max(found);
    }
    let announced = || {
        let colon = words.last().is_some_and(|last| last == ":");
        let verb = opening(words).is_some_and(is_change);
        (direction == Direction::Down && colon && verb).then_some(Pointer::Vague)
    };
    best.or_else(announced)
}

/// What a word points to, and whether it must be below; nothing if the word does not point.
fn pointed<'a>(
    words: &'a [String],
    at: usize,
    word: &str,
    direction: Direction,
) -> Option<(Vec<&'a str>, bool)> {
    let before = at.checked_sub(1).and_then(|before| words.get(before)).map_or("", String::as_str);
    let down = direction == Direction::Down;
    match word {
        "this" | "these" => Some((phrase(words, at + 1), false)),
        // "Translate it", "a quiz about it"; in "build it" it is the work.
        "it" | "them" if is_change(before) || SOURCES.contains(&before) => {
            Some((Vec::new(), false))
        }
        "that" | "those" if !down => Some((phrase(words, at + 1), false)),
        "following" if down => Some((phrase(words, at + 1), true)),
        "below" | "attached" | "pasted" | "above" => {
            if (word == "above") == down {
                return None;
            }
            let number = |word: &String| word.starts_with(|c: char| c.is_numeric());
            if words.get(at + 1).is_some_and(number) {
                return None;
            }
            let noun = if before == "the" || word == "attached" || word == "pasted" {
                phrase(words, at + 1)
            } else {
                behind(words, at)
            };
            Some((noun, down))
        }
        "here's" if down => Some((phrase(words, at + 2), false)),
        "here" if down && words.get(at + 1).is_some_and(|is| is == "is" || is == "are") => {
            Some((phrase(words, at + 3), false))
        }
        "the" | "my" | "our" => {
            let noun = phrase(words, at + 1);
            noun.iter().any(|word| TEXTS.contains(word)).then_some((noun, false))
        }
        _ => None,
    }
}

/// How clearly a request points with the word at a place.
fn strength(words: &[String], at: usize, noun: &[&str], direction: Direction) -> Option<Pointer> {
    let is = |list: &[&str]| noun.iter().any(|word| list.contains(word));
    let sentence = words.get(..at).unwrap_or_default();
    steps(sentence.len());
    let start = sentence.iter().rposition(|word| is_end(word)).map_or(0, |end| end + 1);
    let sentence = sentence.get(start..).unwrap_or_default();
    // "From the above" points as "from this" does.
    let sentence = sentence.strip_suffix(&["the".to_owned()]).unwrap_or(sentence);
    let near = sentence.get(sentence.len().saturating_sub(NEAR)..).unwrap_or_default();
    let verb = sentence.last().map_or("", String::as_str);
    let ends = words.get(at + 1).is_none_or(|next| is_mark(next));
    if is(&ELSEWHERE) {
        return None;
    }
    // "This means" and "this skill" begin a remark.
    let begins = sentence.is_empty() && matches!(words.get(at)?.as_str(), "this" | "these");
    if begins {
        return is(&TEXTS).then_some(Pointer::Vague);
    }
    if is(&PLANS) {
        return Some(Pointer::Plan);
    }
    if BUILDS.contains(&verb) {
        let shapes = matches!(verb, "make" | "write" | "put") && noun.is_empty() && !ends;
        return Some(if shapes { Pointer::Vague } else { Pointer::Plan });
    }
    let changes = near.iter().any(|word| is_change(word));
    // "One of these" does not mean a text.
    let whole = near.iter().rev().nth(1).is_none_or(|word| !PARTS.contains(&word.as_str()));
    let based = || verb == "on" && near.iter().any(|word| word == "based");
    let about =
        || verb == "about" && opening(sentence).is_some_and(|first| BUILDS.contains(&first));
    let uses = verb == "from" || (verb == "of" && whole) || based() || about();
    let asks =
        opening(sentence).is_some_and(|first| !is_stop_word(first) || ASKING.contains(&first));
    let points = words.get(at).is_some_and(|word| !matches!(word.as_str(), "the" | "my" | "our"));
    Some(match (points, is(&TEXTS), changes || uses) {
        (true, true, does) if does || asks => Pointer::Named,
        (true, false, true) => Pointer::Clear,
        // "Shorten the report" behind a document means that document.
        (false, true, true) if direction == Direction::Up => Pointer::Clear,
        _ => Pointer::Vague,
    })
}

lists!("request_words.txt": CHANGES, BUILDS, ADDS, TEXTS, PLANS, ELSEWHERE);

/// Words after which "it" is what something is made from.
const SOURCES: [&str; 4] = ["about", "from", "of", "on"];

/// Words before "of these" that make it a part.
const PARTS: [&str; 9] = ["all", "any", "both", "each", "either", "many", "most", "one", "some"];

/// Function words that begin a question.
const ASKING: [&str; 12] =
    ["are", "did", "do", "does", "how", "is", "what", "when", "where", "which", "who", "why"];

/// How many words before a pointer its verb may be.
const NEAR: usize = 8;

/// How many words the name of a text may have.
const LONGEST_NAME: usize = 4;

/// The words from a place up to the next function word or mark.
fn phrase(words: &[String], from: usize) -> Vec<&str> {
    let rest = words.get(from..).unwrap_or_default().iter().map(String::as_str);
    rest.take_while(|word| !is_mark(word) && !is_stop_word(word)).take(LONGEST_NAME).collect()
}

/// The words before a place, back to a function word or mark.
fn behind(words: &[String], to: usize) -> Vec<&str> {
    let before = words.get(..to).unwrap_or_default().iter().rev().map(String::as_str);
    before.take_while(|word| !is_mark(word) && !is_stop_word(word)).take(LONGEST_NAME).collect()
}

fn is_end(word: &str) -> bool {
    matches!(word, "." | "!" | "?")
}

fn is_mark(word: &str) -> bool {
    is_end(word) || matches!(word, ":" | "," | ";")
}

/// The first word after courtesies: "please", "can you".
fn opening(words: &[String]) -> Option<&str> {
    const BEFORE: [&str; 22] = [
        "also", "and", "can", "could", "finally", "for", "help", "hey", "hi", "i", "just", "me",
        "need", "now", "ok", "okay", "please", "then", "to", "want", "would", "you",
    ];
    words.iter().map(String::as_str).find(|word| !is_mark(word) && !BEFORE.contains(word))
}

/// Whether one of some sentences asks for something that is done with the text above them.
pub(super) fn has_request(words: &[String]) -> bool {
    let asks = |sentence: &[String]| is_request(sentence, Direction::Up);
    !builds(words) && words.split(|word| is_end(word)).any(asks)
}

/// Whether some words begin with a request for something that is done with the text above or below.
pub(super) fn is_request(words: &[String], direction: Direction) -> bool {
    let verb = opening(words);
    let opens =
        verb.is_some_and(|verb| is_change(verb) || BUILDS.contains(&verb) || verb == "give");
    let found = || pointer(words, direction);
    opens && !builds(words) && found().is_some_and(|pointer| pointer >= Pointer::Clear)
}

/// Whether "it" is the work: "plan it and check it".
fn builds(words: &[String]) -> bool {
    words.windows(2).any(|pair| {
        matches!(pair, [verb, it] if it == "it" && verb != "make" && BUILDS.contains(&verb.as_str()))
    })
}

/// Whether the last words of a prompt add to the request above its document.
pub(super) fn asks(words: &[String], is_only_order: bool) -> bool {
    let is = |word: &str| words.iter().any(|one| one == word);
    let asked = words.get(1).is_some_and(|second| second == "you")
        && words.first().is_some_and(|first| matches!(first.as_str(), "can" | "could" | "would"));
    let order = || opening(words).is_some_and(|first| LIMITS.contains(&first));
    words.len() <= LONGEST_ADDITION && (is("please") || asked || (is_only_order && order()))
}

/// Verbs that limit a request; manuals seldom end with them.
const LIMITS: [&str; 12] = [
    "answer", "avoid", "focus", "give", "ignore", "keep", "leave", "limit", "list", "make", "skip",
    "tell",
];

/// In words.
const LONGEST_ADDITION: usize = 30;

/// Whether a line tells its reader to do something.
pub(super) fn is_order(text: &str) -> bool {
    const ASKS: [&str; 14] = [
        "please ",
        "i want ",
        "i need ",
        "i'd like ",
        "we want ",
        "we need ",
        "do not ",
        "don't ",
        "must ",
        "you are ",
        "you will ",
        "you must ",
        "your task ",
        "it must ",
    ];
    const OBJECTS: [&str; 17] = [
        "a", "all", "an", "any", "each", "every", "it", "me", "my", "no", "our", "that", "the",
        "them", "these", "this", "your",
    ];
    let lower = text.to_lowercase();
    let first = lower.split(|c: char| !c.is_alphanumeric() && c != '\'').next().unwrap_or_default();
    let verb = is_change(first) || BUILDS.contains(&first) || ADDS.contains(&first);
    // "Review notes" and "Test results" are names.
    let object = lower.split_whitespace().nth(1).is_some_and(|word| OBJECTS.contains(&word));
    (verb && (object || lower.ends_with('.'))) || ASKS.iter().any(|start| lower.starts_with(start))
}

/// Whether a verb changes or uses a text.
fn is_change(verb: &str) -> bool {
    CHANGES.binary_search(&verb).is_ok()
}
