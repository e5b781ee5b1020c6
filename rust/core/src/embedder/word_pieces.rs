//! Text to word pieces, as BERT's uncased tokenizer makes them.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use unicode_categories::UnicodeCategories as _;
use unicode_normalization::UnicodeNormalization as _;

use crate::error::{Error, Result};

/// Tokens that stand in a text as they are; they are looked for before anything else.
const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];

/// A word of more characters is unknown without a look.
const LONGEST_WORD: usize = 100;

/// A vocabulary and the numbers of its special tokens.
#[derive(Debug)]
pub(super) struct WordPieces {
    vocabulary: Vocabulary,
    special: [u32; SPECIAL.len()],
}

impl WordPieces {
    /// Reads the `tokenizer.json` of an uncased BERT.
    ///
    /// Fails with `model_unsupported` for any other.
    pub(super) fn read(json: &[u8]) -> Result<Self> {
        let unsupported = |why: String| {
            Error::model("model_unsupported", format!("tokenizer.json is no uncased BERT's: {why}"))
        };
        let file: File =
            serde_json::from_slice(json).map_err(|error| unsupported(error.to_string()))?;
        let same = file.normalizer.kind == "BertNormalizer"
            && file.normalizer.lowercase
            && file.normalizer.clean_text
            && file.normalizer.handle_chinese_chars
            && file.normalizer.strip_accents != Some(false)
            && file.pre_tokenizer.kind == "BertPreTokenizer"
            && file.model.kind == "WordPiece"
            && file.model.max_input_chars_per_word == LONGEST_WORD;
        if !same {
            return Err(unsupported("it normalises or splits in another way".to_owned()));
        }
        let vocabulary = file.model.vocab;
        let mut special = [0; SPECIAL.len()];
        for (id, token) in special.iter_mut().zip(SPECIAL) {
            *id =
                vocabulary.find(token).ok_or_else(|| unsupported(format!("it has no {token}")))?;
        }
        Ok(Self { vocabulary, special })
    }

    /// How many ids there are at most: one more than the largest.
    pub(super) fn size(&self) -> usize {
        self.vocabulary.ids.values().max().map_or(0, |largest| *largest as usize + 1)
    }

    /// An input: what of the text fits, between the tokens that every input starts and ends with.
    pub(super) fn input(&self, text: &str, most: usize) -> Vec<u32> {
        let [_, unknown, first, last, _] = self.special;
        let mut ids = vec![first];
        let mut rest = text;
        // No further than what fits: the end of a long text is not looked at.
        while !rest.is_empty() && ids.len() < most {
            let (plain, token) = next_special(rest);
            self.read_plain(plain, unknown, most, &mut ids);
            rest = rest.get(plain.len()..).unwrap_or_default();
            if let Some(place) = token {
                ids.extend(self.special.get(place));
                rest = SPECIAL.get(place).and_then(|it| rest.strip_prefix(it)).unwrap_or_default();
            }
        }
        ids.truncate(most.saturating_sub(1).max(1));
        ids.push(last);
        ids
    }

    fn read_plain(&self, text: &str, unknown: u32, most: usize, ids: &mut Vec<u32>) {
        let mut word = String::new();
        for character in normalised(text) {
            let splits = is_punctuation(character);
            if splits || character.is_whitespace() {
                self.read_word(&word, unknown, ids);
                word.clear();
            }
            if splits {
                self.read_word(character.encode_utf8(&mut [0; 4]), unknown, ids);
            } else if !character.is_whitespace() {
                word.push(character);
            }
            if ids.len() >= most {
                return;
            }
        }
        self.read_word(&word, unknown, ids);
    }

    /// The longest piece from the start, then the longest from there on, or one unknown word.
    fn read_word(&self, word: &str, unknown: u32, ids: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        if word.chars().count() > LONGEST_WORD {
            ids.push(unknown);
            return;
        }
        let before = ids.len();
        let mut rest = word;
        let mut piece = String::new();
        while !rest.is_empty() {
            let found = ends(rest).find_map(|end| {
                piece.clear();
                piece.push_str(if rest.len() < word.len() { "##" } else { "" });
                let (start, rest) = rest.split_at_checked(end)?;
                piece.push_str(start);
                Some((self.vocabulary.find(&piece)?, rest))
            });
            let Some((id, left)) = found else {
                ids.truncate(before);
                ids.push(unknown);
                return;
            };
            ids.push(id);
            rest = left;
        }
    }
}

/// The ends of a text's characters, the last first.
fn ends(text: &str) -> impl Iterator<Item = usize> {
    text.char_indices().rev().map(|(start, character)| start + character.len_utf8())
}

/// The text before the first special token, and which one it is.
fn next_special(text: &str) -> (&str, Option<usize>) {
    let found = text.match_indices('[').find_map(|(start, _)| {
        let rest = text.get(start..)?;
        let place = SPECIAL.iter().position(|token| rest.starts_with(token))?;
        Some((text.get(..start)?, Some(place)))
    });
    found.unwrap_or((text, None))
}

/// The characters that count: clean, without accents, in lower case, Chinese ones apart.
fn normalised(text: &str) -> impl Iterator<Item = char> {
    text.chars()
        .filter(|character| !is_dropped(*character))
        .flat_map(|character| {
            let apart = is_chinese(character);
            let space = apart.then_some(' ');
            space
                .into_iter()
                .chain([if is_space(character) { ' ' } else { character }])
                .chain(space)
        })
        .nfd()
        .filter(|character| !character.is_mark_nonspacing())
        .flat_map(char::to_lowercase)
}

fn is_space(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r') || character.is_whitespace()
}

fn is_dropped(character: char) -> bool {
    matches!(character, '\0' | '\u{fffd}')
        || !matches!(character, '\t' | '\n' | '\r') && character.is_other()
}

fn is_punctuation(character: char) -> bool {
    character.is_ascii_punctuation() || character.is_punctuation()
}

/// Whether a character is of a script that is written without spaces, by the blocks that BERT names.
fn is_chinese(character: char) -> bool {
    matches!(
        u32::from(character),
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0xF900..=0xFAFF
            | 0x2F800..=0x2FA1F
    )
}

/// What of a `tokenizer.json` decides how a text is read.
#[derive(Deserialize)]
struct File {
    normalizer: Normalizer,
    pre_tokenizer: PreTokenizer,
    model: Model,
}

#[derive(Deserialize)]
struct Normalizer {
    #[serde(rename = "type")]
    kind: String,
    clean_text: bool,
    handle_chinese_chars: bool,
    strip_accents: Option<bool>,
    lowercase: bool,
}

#[derive(Deserialize)]
struct PreTokenizer {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: String,
    max_input_chars_per_word: usize,
    vocab: Vocabulary,
}

/// The number of each piece.
#[derive(Debug)]
struct Vocabulary {
    ids: HashMap<Box<str>, u32>,
}

impl Vocabulary {
    fn find(&self, piece: &str) -> Option<u32> {
        self.ids.get(piece).copied()
    }
}

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Pieces;

        impl<'de> Visitor<'de> for Pieces {
            type Value = Vocabulary;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number for each piece")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Vocabulary, A::Error> {
                // Room for a vocabulary of the usual size, which then never moves.
                let mut ids = HashMap::with_capacity(32_768);
                while let Some((piece, id)) = map.next_entry()? {
                    ids.insert(piece, id);
                }
                Ok(Vocabulary { ids })
            }
        }

        deserializer.deserialize_map(Pieces)
    }
}
