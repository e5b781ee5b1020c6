//! Asides: questions and remarks about the conversation, which ask for no work.
//!
//! "Who wrote this?", "that is wrong" and "wait" refer to the conversation, as "make it shorter" does,
//! but they do not ask to go on with the last request.

use std::sync::LazyLock;

use crate::coverage::information;
use crate::history::{COMPARING, ORDINALS, STRONGLY, is_english};
use crate::text::Analyzer;
use crate::words::{Token, tokens};

/// Words before an aside: "hmm, but are you sure?".
const BEFORE: &[&str] = &[
    "actually",
    "ah",
    "alright",
    "but",
    "cool",
    "fine",
    "good",
    "great",
    "hello",
    "hey",
    "hi",
    "hm",
    "hmm",
    "huh",
    "nice",
    "no",
    "nope",
    "oh",
    "ok",
    "okay",
    "perfect",
    "please",
    "really",
    "right",
    "seriously",
    "so",
    "sorry",
    "sure",
    "thanks",
    "well",
    "yeah",
    "yep",
    "yes",
];

/// First words of a question about anything; "any news?" is one.
const QUESTIONS: &[&str] =
    &["what", "who", "whose", "whom", "which", "when", "where", "why", "how", "any"];

/// Second words of a question that proposes something: "what about the other file?".
const PROPOSING: &[&str] = &["about", "else", "if", "not"];

/// Auxiliaries that begin a question. "Can it be shorter?" and "could we ...?" ask for something.
const AUXILIARIES: &[&str] = &[
    "is", "are", "am", "was", "were", "do", "does", "did", "has", "have", "had", "will", "would",
    "isn't", "aren't", "wasn't", "weren't", "doesn't", "didn't", "hasn't", "haven't", "hadn't",
    "won't", "wouldn't",
];

/// Auxiliaries of a question about the past.
const PAST: &[&str] = &["did", "was", "were", "had", "didn't", "wasn't", "weren't", "hadn't"];

/// Before "we" or "I", they ask how to go on: "where do I put it?", "what should we try?".
const ASKING: &[&str] = &["do", "can", "should", "could", "would", "must", "shall", "might"];

const PERSONS: &[&str] = &["i", "you", "we", "they", "he", "she"];

const POINTING: &[&str] = &["this", "that", "it", "these", "those", "there"];

/// Verbs that make a statement of a pronoun: "that looks wrong", and not "that in red".
const STATING: &[&str] = &[
    "is", "are", "was", "were", "isn't", "aren't", "wasn't", "weren't", "does", "doesn't", "did",
    "didn't", "has", "hasn't", "had", "will", "won't", "looks", "look", "seems", "sounds", "feels",
    "makes", "made", "worked", "works", "took", "takes", "happened", "went", "can't", "cannot",
];

/// Words by which a statement asks for something: "I want it in blue".
const WISHING: &[&str] = &[
    "want", "wanted", "would", "prefer", "need", "needs", "like", "should", "could", "must",
    "please", "let", "i'd", "we'd", "you'd",
];

/// Words that refer to one of several things, with which work can go on.
const OTHERS: &[&str] = &["instead", "also", "rest", "still", "too", "next"];

/// Words about the work and the person, beside those that are common in any text.
const ABOUT_WORK: &[&str] = &[
    "awful",
    "busy",
    "confused",
    "finish",
    "finished",
    "forget",
    "forgot",
    "guess",
    "guessed",
    "guessing",
    "hear",
    "heard",
    "joke",
    "joking",
    "kidding",
    "lost",
    "luck",
    "mind",
    "mistake",
    "mistakes",
    "news",
    "nonsense",
    "odd",
    "progress",
    "save",
    "saved",
    "sense",
    "serious",
    "seriously",
    "silly",
    "status",
    "strange",
    "stuck",
    "terrible",
    "update",
    "weird",
    "wrote",
];

/// Verbs that stop or delay the conversation, alone or with the words of [`BESIDE`].
const STOPPING: &[&str] =
    &["wait", "stop", "hold", "hang", "forget", "cancel", "ignore", "pause", "abort"];

/// Words beside such a verb: "hold on a second".
const BESIDE: &[&str] = &[
    "a",
    "about",
    "all",
    "everything",
    "for",
    "here",
    "i",
    "it",
    "just",
    "minute",
    "minutes",
    "moment",
    "now",
    "on",
    "one",
    "please",
    "right",
    "said",
    "sec",
    "second",
    "seconds",
    "that",
    "there",
    "this",
    "what",
];

/// Most words of a question about the past that is an aside; a longer question names its subject.
const LONGEST: usize = 12;

/// Words with more information are about a subject; see [`information`].
const MOST_INFORMATION: f64 = 0.15;

static ENGLISH: LazyLock<Analyzer> =
    LazyLock::new(|| Analyzer::new("english").expect("the language is built in"));

/// Whether a prompt asks or says something about the conversation, and asks for no work.
///
/// It is a question about the agent; or it stops the agent; or it is a question or a statement all of
/// whose words are common to all subjects, and none of which picks another thing ("is there a shorter
/// one?"). English only.
///
/// # Examples
///
/// ```
/// use crossgate_core::asides::is_aside;
///
/// assert!(is_aside("who wrote this?") && is_aside("that is wrong") && is_aside("hold on a second"));
/// assert!(!is_aside("what about the other file?") && !is_aside("can you split it in half"));
/// ```
pub fn is_aside(prompt: &str) -> bool {
    let tokens = tokens(prompt);
    let (any, words) = words_of(&tokens);
    if !is_english(prompt) {
        return false;
    }
    let Some(opening) = words.first() else { return any };
    if STOPPING.contains(opening) {
        return words.iter().skip(1).all(|word| BESIDE.contains(word) || BEFORE.contains(word));
    }
    let heads: Vec<&str> = words.iter().map(|word| without_verb(word)).collect();
    let at = |place: usize| heads.get(place).copied().unwrap_or_default();
    let asks = is_question(&heads);
    let is_you = |pair: &[&str]| {
        matches!(pair, ["are" | "have", "you"])
            || matches!(pair, [verb, "you"] if PAST.contains(verb))
    };
    if asks && words.len() <= LONGEST && heads.windows(2).any(is_you) {
        return true;
    }
    let states = if POINTING.contains(&at(0)) {
        at(0) != *opening || STATING.contains(&at(1))
    } else {
        PERSONS.contains(&at(0)) && !words.iter().any(|word| WISHING.contains(word))
    };
    let lists = [COMPARING, STRONGLY, ORDINALS, OTHERS];
    let picks = |word: &&str| lists.iter().any(|list| list.contains(word));
    let adds = heads.windows(2).any(|pair| pair == ["as", "well"]);
    (asks || states)
        && !adds
        && !words.iter().any(picks)
        && heads.iter().all(|word| is_common(word))
}

/// Whether a prompt is a question that goes on with no earlier request, and may be a request itself.
///
/// It asks what has happened ("was that warning there before?"), or it has a question word and
/// `refers` to nothing that was said ("why is the sky blue?").
pub(crate) fn asks_anew(prompt: &str, refers: bool) -> bool {
    let tokens = tokens(prompt);
    let (_, words) = words_of(&tokens);
    let heads: Vec<&str> = words.iter().map(|word| without_verb(word)).collect();
    if !is_question(&heads) || !is_english(prompt) {
        return false;
    }
    let has_word = heads.first().is_some_and(|word| QUESTIONS.contains(word));
    let is_past = heads.first().is_some_and(|word| {
        ["has", "have", "hasn't", "haven't"].contains(word) || PAST.contains(word)
    }) || (has_word && heads.iter().any(|word| PAST.contains(word)));
    (is_past && words.len() <= LONGEST) || (has_word && !refers)
}

/// Whether the prompt has words, and the words behind an opening such as "hmm" or "but".
fn words_of<'a>(tokens: &'a [Token<'_>]) -> (bool, Vec<&'a str>) {
    let all = || tokens.iter().filter(|token| token.is_word()).map(|token| &*token.text);
    (all().next().is_some(), all().skip_while(|word| BEFORE.contains(word)).collect())
}

/// A pronoun or question word without the verb that is joined to it: "who" of "who's".
fn without_verb(word: &str) -> &str {
    match word.split_once('\'') {
        Some((head, "s" | "re" | "ve" | "m" | "ll")) => head,
        _ => word,
    }
}

/// Whether words begin a question that proposes nothing.
fn is_question(words: &[&str]) -> bool {
    let at = |place: usize| words.get(place).copied().unwrap_or_default();
    let (first, second) = (at(0), at(1));
    if QUESTIONS.contains(&first) {
        let asks_how = ASKING.contains(&second) && matches!(at(2), "i" | "we");
        return !PROPOSING.contains(&second) && !asks_how;
    }
    match first {
        // "Will you shorten it" asks for that, and "have it done" and "do it" are orders.
        "will" | "would" | "won't" | "wouldn't" => second != "you",
        "do" | "have" => PERSONS.contains(&second),
        _ => AUXILIARIES.contains(&first),
    }
}

/// Whether a word is common to all subjects.
fn is_common(word: &str) -> bool {
    PERSONS.contains(&word)
        || ABOUT_WORK.contains(&word)
        || ENGLISH.terms(word).iter().all(|term| information(term) <= MOST_INFORMATION)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn questions_and_remarks_about_the_conversation_are_asides() {
        for prompt in [
            "who wrote this?",
            "what time is it",
            "that is wrong",
            "wait",
            "stop",
            "hold on a second",
            "ok, stop there please",
            "forget what I said",
            "why did you do that?",
            "so how long did that take",
            "what do you mean by that?",
            "is it finished?",
            "when will you be done?",
            "which model are you?",
            "have you read the annex?",
            "what's left to do",
            "any news?",
            "really?",
            "hmm",
            "that doesn't look right",
            "it's strange",
            "you forgot something",
            "I changed my mind",
        ] {
            assert!(is_aside(prompt), "{prompt}");
        }
    }

    #[test]
    fn a_question_about_the_past_or_without_reference_asks_anew() {
        for prompt in ["was that warning there before?", "which file was that in", "who called it"]
        {
            let is_past = prompt != "who called it";
            assert_eq!(asks_anew(prompt, true), is_past, "{prompt}");
        }
        assert!(asks_anew("why is the sky blue?", false));
        assert!(!asks_anew("what about the deadline", false));
        assert!(!asks_anew("print the annex", false) && !asks_anew("", false));
    }

    #[test]
    fn a_prompt_that_asks_for_work_is_no_aside() {
        for prompt in [
            "",
            "?!",
            "now in German",
            "and the second one",
            "and who wrote it",
            "make it shorter",
            "do it again",
            "do you have a cheaper one?",
            "is there another way?",
            "would it work with tables as well?",
            "what about March?",
            "how about blue",
            "what if the file is missing?",
            "can you split it in half",
            "can it be shorter?",
            "will you do the rest",
            "would you say it more politely",
            "have it printed",
            "where do I put it?",
            "that in red",
            "this too",
            "it is too long",
            "it's still crooked",
            "the second one is upside down",
            "I want it in blue",
            "I'd rather have two",
            "I meant the other one",
            "you should add a title",
            "stop after the second page",
            "cancel the flight",
            "ignore the other ones",
            "why is the query so slow?",
            "why did the crane stop?",
            "what does the premium tariff cover?",
            "was ist das",
            "repeat that for March",
        ] {
            assert!(!is_aside(prompt), "{prompt}");
        }
    }

    proptest! {
        #[test]
        fn an_order_is_no_aside(
            verb in "(shorten|translate|merge|rename|print)", rest in "[a-z ]{0,40}",
            before in "(ok, |hmm |please |)",
        ) {
            let prompt = format!("{before}{verb} {rest}");
            prop_assert!(!is_aside(&prompt));
        }

        #[test]
        fn any_text_is_read(prompt in "\\PC{0,80}") {
            let found = is_aside(&prompt);
            let marked = is_aside(&format!("{prompt}  "));
            prop_assert_eq!(found, marked);
        }
    }
}
