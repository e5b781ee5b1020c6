//! The conversation: how much a prompt leans on earlier requests, and what each of them counts.
//!
//! "Do the same for the other file" means what the request before it meant, while earlier
//! requests must not change the decision about a self-contained prompt.

use std::sync::LazyLock;

use crate::common_words::information;
use crate::language::{Language, language};
use crate::lists::lists;
use crate::probability::logistic;
use crate::steps::step;
use crate::stop_words::is_stop_word;
use crate::text::Analyzer;
use crate::words::{Token, tokens};

/// Earlier requests that count, from the newest on.
pub const MOST_REQUESTS: usize = 4;

/// Weight of the request before a prompt that leans on it entirely; that of the prompt is 1.
const WEIGHT: f64 = 2.0;

/// The weight of each request is this share of that of the next request.
const DECAY: f64 = 0.7;

/// Number of features of [`features`].
pub const FEATURES: usize = 11;

/// Intercept and weights of the logistic model of [`leans`], in the order of [`features`].
///
/// `models/fit_history.py` fits them to prompts of our own, and prints them.
const MODEL: [f64; FEATURES + 1] =
    [3.36, 1.55, 3.62, 1.61, 0.25, -1.89, -0.21, -1.35, -2.57, 3.38, 1.43, 1.63];

lists!(
    "conversation_words.txt":
    CONTINUING, COMPARING, FUNCTION_WORDS, AUXILIARIES, CHANGING, PERSONS, PREPOSITIONS
);
lists!("courtesies.txt": COURTESIES, BESIDE_COURTESIES, REMARKS);

/// Words that refer to something as a pronoun, unless a noun follows: "fix this", but not "merge
/// these files".
const POINTING: &[&str] = &["this", "these", "those", "both", "either"];

/// Words that refer to something said before, unless the prompt itself names it.
const PRONOUNS: &[&str] = &["it", "its", "them", "they", "their", "ones"];

/// Words that hardly ever occur in a self-contained prompt.
const STRONGLY: &[&str] =
    &["same", "other", "others", "another", "again", "previous", "above", "earlier", "ones"];

/// Ordinals: "the third" refers to a list that was mentioned.
const ORDINALS: &[&str] = &["first", "second", "third", "fourth", "fifth", "sixth", "last", "next"];

/// Words before "you" in a question that asks for something: "can you shorten it".
const ASKING: &[&str] = &["can", "could", "will", "would"];

/// Words after a person that express a wish or name a mistake: "I meant the other one".
const WISHING: &[&str] =
    &["want", "wanted", "mean", "meant", "would", "prefer", "forgot", "left", "missed", "skipped"];

/// A pronoun after more terms than this refers to one of them.
const OWN_TERMS: usize = 2;

/// Words that, in first place, make a question or a request: "is it done", "get it right".
const ASKING_FIRST: &[&str] = &["am", "are", "did", "get", "help", "is", "was", "were"];

static ENGLISH: LazyLock<Analyzer> =
    LazyLock::new(|| Analyzer::new("english").expect("the language is built in"));

/// The probability in [0, 1] that a prompt leans on earlier requests, from its English words.
///
/// It is 0 for a prompt that is not in English, about which the features say nothing.
pub fn leans(prompt: &str) -> f64 {
    if !is_english(prompt) {
        return 0.0;
    }
    let odds: f64 =
        features(prompt).iter().zip(&MODEL[1..]).map(|(value, weight)| value * weight).sum();
    logistic(MODEL[0] + odds).unwrap_or_default()
}

/// The features of a prompt for [`leans`].
///
/// They are: whether it goes on with something, whether it begins with a comparison, how many of its
/// words refer to something and how many do so strongly (at most 2 each), ln(1 + its terms), whether
/// it has at most two terms, ln(1 + its words), how many of its words are persons (at most 2),
/// whether it begins with a preposition or with a verb that changes something, also after a word such
/// as "now", and whether it has the word "the".
pub fn features(prompt: &str) -> [f64; FEATURES] {
    let tokens = tokens(prompt);
    let words = Words::new(&tokens);
    let count = |places: &mut dyn Iterator<Item = bool>| {
        places.filter(|refers| *refers).count().min(2) as f64
    };
    let places = 0..tokens.len();
    let terms = ENGLISH.terms(prompt).len();
    let first = tokens.iter().find(|token| token.is_word());
    let begins = |list: &[&str]| first.is_some_and(|first| list.contains(&&*first.text));
    let second = tokens.iter().filter(|token| token.is_word()).nth(1);
    let opens = |list: &[&str]| {
        let goes_on = begins(&CONTINUING);
        begins(list) || (goes_on && second.is_some_and(|second| list.contains(&&*second.text)))
    };
    let flag = |set: bool| f64::from(u8::from(set));
    [
        flag(begins(&CONTINUING)),
        flag(begins(&COMPARING)),
        count(&mut places.clone().map(|at| words.refers(at))),
        count(&mut places.clone().map(|at| words.refers_strongly(at))),
        (terms as f64).ln_1p(),
        flag(terms <= 2),
        (tokens.iter().filter(|token| token.is_word()).count() as f64).ln_1p(),
        count(&mut places.map(|at| words.is_person(at))),
        flag(opens(&PREPOSITIONS)),
        flag(opens(&CHANGING)),
        flag(tokens.iter().any(|token| token.is("the"))),
    ]
}

/// Whether a prompt is in English: more than a third of its words are common English words.
fn is_english(prompt: &str) -> bool {
    let lists: [&[&str]; 5] = [&CONTINUING, &COMPARING, POINTING, STRONGLY, ORDINALS];
    let tokens = tokens(prompt);
    let words = || tokens.iter().filter(|token| token.is_word());
    let is_common = |word: &Token<'_>| {
        lists.iter().any(|list| list.contains(&&*word.text))
            || is_stop_word(&word.text)
            || ENGLISH.terms(&word.text).iter().any(|term| information(term) < 1.0)
    };
    let common = words().filter(|word| is_common(word)).count();
    3 * common > words().count() && !matches!(language(prompt), Language::Other(_))
}

/// The words and marks of a prompt.
struct Words<'a> {
    tokens: &'a [Token<'a>],
    /// The last place that is early; see [`Words::is_early`].
    last_early: usize,
}

impl<'a> Words<'a> {
    fn new(tokens: &'a [Token<'a>]) -> Self {
        let mut own = (0..tokens.len()).filter(|at| tokens.get(*at).is_some_and(is_own));
        Self { tokens, last_early: own.nth(OWN_TERMS).unwrap_or(tokens.len()) }
    }

    fn text(&self, at: usize) -> Option<&str> {
        self.tokens.get(at).map(|token| &*token.text)
    }

    fn before(&self, at: usize) -> Option<&str> {
        self.text(at.checked_sub(1)?)
    }

    fn is_word(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(Token::is_word)
    }

    /// Whether a noun phrase goes on after a determiner or a number: "these three files".
    fn has_noun(&self, at: usize) -> bool {
        let mut next = at + 1;
        while self.text(next).is_some_and(is_number) {
            next += 1;
        }
        self.is_word(next) && self.text(next).is_some_and(|word| !FUNCTION_WORDS.contains(&word))
    }

    /// Whether a clause begins here: what follows a noun there describes it.
    fn begins_clause(&self, at: usize) -> bool {
        const CONJUNCTIONS: &[&str] = &["and", "but", "if", "or", "not", "is", "because", "when"];
        at == 0
            || !self.is_word(at - 1)
            || self.before(at).is_some_and(|word| CONJUNCTIONS.contains(&word))
    }

    fn follows(&self, at: usize, list: &[&str]) -> bool {
        self.text(at + 1).is_some_and(|word| list.contains(&word))
    }

    /// Whether few words of the prompt precede this word, so that it refers to none of them.
    fn is_early(&self, at: usize) -> bool {
        at <= self.last_early
    }

    /// Whether a word refers to something that the prompt does not name.
    fn refers(&self, at: usize) -> bool {
        let Some(word) = self.text(at) else { return false };
        match word {
            "that" => {
                // "the strings that must match" and "check that it works" refer to nothing.
                !self.has_noun(at)
                    && (self.begins_clause(at) || !self.follows(at, &AUXILIARIES))
                    && !self.follows(at, &["the", "a", "an", "we", "i", "you", "they", "it", "my"])
            }
            "that's" | "it's" => self.is_early(at),
            "one" => {
                !self.has_noun(at)
                    && !self.follows(at, &["of"])
                    && self.before(at).is_some_and(|word| !PREPOSITIONS.contains(&word))
                    && self.is_early(at)
            }
            "more" | "less" => !self.has_noun(at) && !self.follows(at, &["than"]),
            // "There is a bug" and "here: ..." point at what follows.
            "here" | "there" => {
                !self.has_noun(at)
                    && !self.follows(at, &AUXILIARIES)
                    && self.text(at + 1).is_none_or(|next| next != ":")
            }
            "too" => !self.has_noun(at) && !self.follows(at, &FUNCTION_WORDS),
            "else" | "also" => true,
            "instead" => !self.follows(at, &["of"]),
            "rest" => self.before(at) == Some("the") && !self.has_noun(at),
            _ if ORDINALS.contains(&word) => {
                self.before(at) == Some("the") && (self.is_early(at) || !self.has_noun(at))
            }
            _ if POINTING.contains(&word) => {
                !self.has_noun(at) && self.text(at + 1).is_none_or(|next| next != ":")
            }
            _ if PRONOUNS.contains(&word) => self.is_early(at),
            _ => self.refers_strongly(at),
        }
    }

    /// Whether a word is a person that the prompt speaks about, and not a person that it asks.
    fn is_person(&self, at: usize) -> bool {
        self.text(at).is_some_and(|word| PERSONS.contains(&word))
            && self.before(at).is_none_or(|before| !ASKING.contains(&before))
            && !self.follows(at, WISHING)
    }

    /// Whether a word hardly ever occurs in a self-contained prompt.
    fn refers_strongly(&self, at: usize) -> bool {
        let Some(word) = self.text(at) else { return false };
        match word {
            "too" | "else" | "instead" | "rest" | "one" => self.refers(at),
            _ => STRONGLY.contains(&word) && self.is_early(at),
        }
    }
}

/// Whether a word can be what a pronoun behind it refers to.
fn is_own(token: &Token<'_>) -> bool {
    step();
    token.is_word() && !FUNCTION_WORDS.contains(&&*token.text)
}

/// Whether a word is a number, in digits or letters.
fn is_number(word: &str) -> bool {
    const NUMBERS: &[&str] = &[
        "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve", "few",
        "couple",
    ];
    NUMBERS.contains(&word) || word.chars().all(|letter| letter.is_ascii_digit())
}

/// Whether a prompt consists of thanks, greetings, agreement and praise, and asks for nothing.
pub fn is_courtesy(prompt: &str) -> bool {
    let tokens = tokens(prompt);
    let words: Vec<&str> =
        tokens.iter().filter(|token| token.is_word()).map(|token| &*token.text).collect();
    let is_praise = |word: &str| COURTESIES.contains(&word);
    let is_known = |word: &str| is_praise(word) || BESIDE_COURTESIES.contains(&word);
    // "On the right" and "the good one" choose something.
    let praises = words.iter().enumerate().any(|(place, word)| {
        let before = place.checked_sub(1).and_then(|before| words.get(before));
        is_praise(word) && before != Some(&"the")
    });
    let asks = match words.as_slice() {
        ["correct" | "have", next, ..] => ["it", "that", "the", "this", "my", "all"].contains(next),
        [first, ..] => ASKING_FIRST.contains(first),
        [] => false,
    };
    let doubts = words.iter().enumerate().any(|(place, word)| {
        *word == "never" && words.get(place + 1).is_none_or(|next| *next != "mind")
    });
    REMARKS.contains(&words.join(" ").as_str())
        || (!asks && !doubts && praises && words.iter().all(|word| is_known(word)))
}

/// The weights of `count` earlier requests, oldest first, if that of the prompt is 1.
///
/// `standing` is the probability that the best document for the prompt alone fits it. The weight of
/// the newest request is 2 `leans` (1 - `standing`^2), and each earlier request has 0.7 times the
/// weight of the next. A courtesy does not lean on the conversation.
pub fn weights(prompt: &str, count: usize, standing: f64) -> Vec<f64> {
    let leans = if is_courtesy(prompt) { 0.0 } else { leans(prompt) };
    let newest = WEIGHT * leans * (1.0 - standing.clamp(0.0, 1.0).powi(2));
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
    use crate::steps::assert_linear;

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
    fn a_determiner_with_its_noun_refers_to_nothing() {
        let references = |prompt: &str| features(prompt)[2];
        for prompt in [
            "merge these three files",
            "review this function",
            "here is one more invoice",
            "join the pages into one document",
            "write a will that is valid in Austria",
            "check that the strings match",
            "there is a leak",
            "bake two more loaves than last week",
            "use a heap instead of sorting",
            "test the REST endpoints",
        ] {
            assert_eq!(references(prompt), 0.0, "{prompt}");
        }
        for prompt in [
            "merge these",
            "those in the shade",
            "use the long one",
            "a bit more",
            "turn that into a table",
            "put it there",
            "the third one",
            "this too",
            "and the rest",
            "blue instead",
        ] {
            assert!(references(prompt) >= 1.0, "{prompt}");
        }
    }

    #[test]
    fn a_courtesy_asks_for_nothing() {
        for prompt in [
            "cheers!",
            "ok lovely, thank you so much",
            "excellent, that's all for now",
            "no problem at all",
            "fair enough",
            "makes sense",
            "yep, go ahead",
            "hello again",
            "thanks, that works now",
            "perfect, it's working now",
            "lgtm",
            "this is fun",
            "that did it",
            "see you tomorrow",
            "never mind, thanks",
            "good one",
            "have a nice day",
            "thanks for the good work",
            "all right",
        ] {
            assert!(is_courtesy(prompt), "{prompt}");
            assert_eq!(weights(prompt, 5, 0.0), [0.0; 5], "{prompt}");
        }
        for prompt in [
            "",
            "it is for me",
            "I help you",
            "thanks, now merge them",
            "ok do it for the other file",
            "is it done",
            "are you sure",
            "correct it",
            "get it right",
            "it never works",
            "have it done",
            "good, but shorter",
            "that is no longer right, fix it",
            "on the right",
            "to the right, please",
            "the good one",
        ] {
            assert!(!is_courtesy(prompt), "{prompt}");
        }
    }

    #[test]
    fn a_remark_does_not_lean() {
        for prompt in [
            "I really like working with you",
            "are you a real person",
            "I need some help right now",
            "you made my evening",
            "my brother and I are going out for a walk",
        ] {
            assert!(leans(prompt) < 0.25, "{prompt}: {}", leans(prompt));
        }
    }

    #[test]
    fn a_prompt_in_another_language_does_not_lean() {
        for prompt in [
            "Prüfe den Vertrag",
            "ouvre le classeur",
            "borra la columna",
            "vertaal de handleiding",
            "controleer de rekening",
            "räkna om bladet",
            "翻訳してください",
            "проверь договор",
            "kürzer",
            "",
            "42",
        ] {
            assert_eq!(leans(prompt), 0.0, "{prompt}");
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
        assert_eq!(weights("thank you", 1, 0.0), [0.0]);
        assert_eq!(weights(prompt, 0, 0.0), Vec::<f64>::new());
    }

    #[test]
    fn a_run_of_pronouns_takes_as_long_as_its_length() {
        for piece in ["it ", "them. ", "Do it. ", "translate it "] {
            assert_linear(piece, features);
        }
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
