//! The conversation: how much a prompt leans on earlier requests, and what each of them counts.
//!
//! "Do the same for the other file" means what the request before it meant, while a prompt that
//! stands alone must not change with what was asked before.

use std::sync::LazyLock;

use crate::probability::logistic;
use crate::text::Analyzer;
use crate::words::tokens;

/// Earlier requests that count, from the newest on.
pub const MOST_REQUESTS: usize = 4;

/// Weight of the request before a prompt that leans on it entirely; that of the prompt is 1.
const WEIGHT: f64 = 2.0;

/// The weight of each request is this share of that of the next one.
const DECAY: f64 = 0.7;

/// Weights of the logistic model of [`leans`], in the order of its features; the intercept is first.
///
/// The repository does not record where they come from, and no script in it reproduces them.
const MODEL: [f64; 7] = [7.59, 4.41, 1.02, 0.32, -5.27, -2.66, 0.96];

/// First words of a prompt that goes on with something.
const CONTINUING: &[&str] = &[
    "and", "also", "now", "then", "but", "no", "not", "yes", "ok", "okay", "next", "so", "or",
    "plus", "instead", "actually", "same", "again", "right", "alright", "wait", "hmm", "oh",
    "thanks", "great", "good", "perfect", "nice", "cool", "fine", "sure", "yep", "yeah", "nope",
    "still", "only",
];

/// Words that refer to something that was said or done before.
const REFERRING: &[&str] = &[
    "it",
    "its",
    "that",
    "this",
    "these",
    "those",
    "them",
    "they",
    "same",
    "other",
    "others",
    "another",
    "again",
    "too",
    "instead",
    "one",
    "ones",
    "both",
    "either",
    "previous",
    "rest",
    "more",
    "less",
    "there",
    "here",
    "above",
    "earlier",
    "last",
    "else",
    "everything",
    "back",
    "yourself",
    "you",
];

/// Those of them that hardly ever stand in a prompt that stands alone.
const STRONGLY: &[&str] = &[
    "same", "other", "others", "another", "again", "too", "instead", "ones", "previous", "rest",
    "else",
];

/// Words of thanks, greetings and agreement.
const COURTESIES: &[&str] = &[
    "ok",
    "okay",
    "thanks",
    "thank",
    "thx",
    "great",
    "perfect",
    "nice",
    "cool",
    "good",
    "yes",
    "no",
    "yeah",
    "yep",
    "sure",
    "fine",
    "awesome",
    "excellent",
    "lovely",
    "wonderful",
    "alright",
    "right",
    "got",
    "hi",
    "hello",
    "hey",
    "bye",
    "goodbye",
    "cheers",
    "please",
    "sorry",
    "that's",
    "it's",
    "all",
    "works",
    "sounds",
    "looks",
    "correct",
    "done",
    "welcome",
    "much",
    "so",
    "very",
    "a",
    "lot",
    "for",
    "now",
    "your",
    "you",
    "help",
    "i",
    "need",
    "the",
    "that",
    "this",
    "it",
    "was",
    "is",
    "me",
    "and",
];

static ENGLISH: LazyLock<Analyzer> =
    LazyLock::new(|| Analyzer::new("english").expect("the language is built in"));

/// The probability in [0, 1] that a prompt leans on earlier requests, from its English words.
///
/// The features are: whether it goes on with something, how many of its words refer to something
/// and how many do so strongly (at most 2 each), ln(1 + its terms), whether it has at most two terms,
/// and ln(1 + its words).
pub fn leans(prompt: &str) -> f64 {
    let tokens = tokens(prompt);
    let words: Vec<&str> =
        tokens.iter().filter(|token| token.is_word()).map(|token| &*token.text).collect();
    let count = |list: &[&str]| words.iter().filter(|word| list.contains(word)).count().min(2);
    let terms = ENGLISH.terms(prompt).len();
    let flag = |set: bool| f64::from(u8::from(set));
    let features = [
        1.0,
        flag(words.first().is_some_and(|first| CONTINUING.contains(first))),
        count(REFERRING) as f64,
        count(STRONGLY) as f64,
        (terms as f64).ln_1p(),
        flag(terms <= 2),
        (words.len() as f64).ln_1p(),
    ];
    let odds = features.iter().zip(MODEL).map(|(feature, weight)| feature * weight).sum();
    logistic(odds).unwrap_or_default()
}

/// Whether a prompt consists of thanks, greetings and agreement, and asks for nothing.
pub fn is_courtesy(prompt: &str) -> bool {
    let tokens = tokens(prompt);
    let mut words = tokens.iter().filter(|token| token.is_word()).peekable();
    words.peek().is_some() && words.all(|word| COURTESIES.contains(&&*word.text))
}

/// The weights of `count` earlier requests, oldest first, if that of the prompt is 1.
///
/// `standing` is the probability that the best document for the prompt alone fits it. The weight of
/// the newest request is 2 `leans` (1 - `standing`^2), and each one before it has 0.7 times the weight
/// of the next. A courtesy leans on the conversation entirely.
pub fn weights(prompt: &str, count: usize, standing: f64) -> Vec<f64> {
    let newest = if is_courtesy(prompt) {
        WEIGHT
    } else {
        WEIGHT * leans(prompt) * (1.0 - standing.clamp(0.0, 1.0).powi(2))
    };
    let mut weights = vec![0.0; count];
    let mut weight = newest;
    for place in weights.iter_mut().rev().take(MOST_REQUESTS) {
        *place = weight;
        weight *= DECAY;
    }
    weights
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prompts_that_continue_lean_and_complete_requests_do_not() {
        for prompt in
            ["do the same for the other file", "now in German", "and the third one, too", "again"]
        {
            assert!(leans(prompt) > 0.8, "{prompt}: {}", leans(prompt));
        }
        for prompt in [
            "merge these three PDF files into one document for the notary",
            "write unit tests for the currency parser in src/money.rs",
            "draw a chart of the monthly revenue by region from sales.csv",
        ] {
            assert!(leans(prompt) < 0.3, "{prompt}: {}", leans(prompt));
        }
    }

    #[test]
    fn a_courtesy_asks_for_nothing() {
        for prompt in ["thanks!", "ok great, thank you so much", "perfect, that's all for now"] {
            assert!(is_courtesy(prompt), "{prompt}");
        }
        for prompt in ["", "thanks, now merge them", "ok do it for the other file"] {
            assert!(!is_courtesy(prompt), "{prompt}");
        }
    }

    #[test]
    fn weights_fall_with_age_and_with_how_well_the_prompt_stands_alone() {
        let prompt = "do the same for the other file";
        let found = weights(prompt, 6, 0.0);
        assert_eq!(found[..2], [0.0, 0.0]);
        assert!((found[5] - 2.0 * leans(prompt)).abs() < 1e-12);
        assert!((found[4] - 0.7 * found[5]).abs() < 1e-12);
        assert!((weights(prompt, 1, 0.5)[0] - 0.75 * found[5]).abs() < 1e-12);
        assert_eq!(weights(prompt, 2, 1.0), [0.0, 0.0]);
        assert_eq!(weights("thank you", 1, 1.0), [2.0]);
        assert_eq!(weights(prompt, 0, 0.0), Vec::<f64>::new());
    }

    proptest! {
        #[test]
        fn any_prompt_has_weights_in_bounds(prompt in "\\PC{0,80}", count in 0_usize..9, standing in 0.0..1.0_f64) {
            let found = weights(&prompt, count, standing);
            prop_assert_eq!(found.len(), count);
            prop_assert!(found.iter().all(|weight| (0.0..=2.0).contains(weight)));
            prop_assert!(found.is_sorted());
        }
    }
}
