//! English stop words: words without a topic of their own.

use crate::lists::lists;

lists!("stop_words.txt": STOP_WORDS);

/// Whether a lower-case English word is a stop word.
pub(crate) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}
