//! The tokenizer of uncased BERT models, which divides text into word pieces.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use smol_str::SmolStr;
use unicode_categories::UnicodeCategories as _;
use unicode_normalization::UnicodeNormalization as _;

use crate::error::{Error, Kind, ModelProblem, Result};

/// Tokens that a text can contain literally. They are found before the text is normalised.
const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];

/// Characters of the longest word that is divided; longer words become the unknown token.
const LONGEST_WORD: usize = 100;

/// A vocabulary and the ids of its special tokens.
#[derive(Debug)]
pub struct WordPieces {
    vocabulary: Vocabulary,
    special: [u32; SPECIAL.len()],
}

impl WordPieces {
    /// Opens the `tokenizer.json` of an uncased BERT.
    ///
    /// Fails with `model_incomplete` if the file cannot be read, and with `model_unsupported` for
    /// other tokenizers.
    pub fn open(path: &Path) -> Result<Self> {
        let json = std::fs::read(path).map_err(|error| {
            Error::from(Kind::ModelUnreadable { path: path.to_owned(), cause: error.to_string() })
        })?;
        Self::read(&json)
    }

    /// Reads the `tokenizer.json` of an uncased BERT.
    ///
    /// Fails with `model_unsupported` for other tokenizers.
    pub(crate) fn read(json: &[u8]) -> Result<Self> {
        let file: File = serde_json::from_slice(json)
            .map_err(|error| Error::from(ModelProblem::Tokenizer(error.to_string())))?;
        let is_uncased_bert = file.normalizer.kind == "BertNormalizer"
            && file.normalizer.lowercase
            && file.normalizer.clean_text
            && file.normalizer.handle_chinese_chars
            && file.normalizer.strip_accents != Some(false)
            && file.pre_tokenizer.kind == "BertPreTokenizer"
            && file.model.kind == "WordPiece"
            && file.model.max_input_chars_per_word == LONGEST_WORD;
        if !is_uncased_bert {
            return Err(ModelProblem::TokenizerSteps.into());
        }
        let vocabulary = file.model.vocab;
        let mut special = [0; SPECIAL.len()];
        for (id, token) in special.iter_mut().zip(SPECIAL) {
            *id = vocabulary.find(token).ok_or(ModelProblem::MissingToken(token))?;
        }
        Ok(Self { vocabulary, special })
    }

    /// One more than the largest id.
    pub(crate) fn size(&self) -> usize {
        self.vocabulary.ids.values().max().map_or(0, |largest| *largest as usize + 1)
    }

    /// The id of `[CLS]`, which starts each input.
    pub fn first(&self) -> u32 {
        let [_, _, first, _, _] = self.special;
        first
    }

    /// The id of `[SEP]`, which ends each text of an input.
    pub fn last(&self) -> u32 {
        let [_, _, _, last, _] = self.special;
        last
    }

    /// The input for a text: `[CLS]`, the tokens that fit, and `[SEP]`, at most `most` in all.
    pub(crate) fn input(&self, text: &str, most: usize) -> Vec<u32> {
        let mut ids = vec![self.first()];
        ids.extend(self.ids(text, most.saturating_sub(2)));
        ids.push(self.last());
        ids
    }

    /// The ids of the first `most` tokens of a text.
    ///
    /// Tokenising stops there, so that a long text does not take longer.
    pub fn ids(&self, text: &str, most: usize) -> Vec<u32> {
        let [_, unknown, ..] = self.special;
        let mut ids = Vec::new();
        let mut rest = text;
        while !rest.is_empty() && ids.len() < most {
            let (plain, token) = self.next_special(rest);
            self.read_plain(plain, unknown, most, &mut ids);
            rest = rest.strip_prefix(plain).expect("`plain` is the start of `rest`");
            if let Some((token, id)) = token {
                ids.push(id);
                rest = rest.strip_prefix(token).expect("the token follows `plain`");
            }
        }
        ids.truncate(most);
        ids
    }

    /// The text before the first special token, and that token with its id.
    fn next_special<'a>(&self, text: &'a str) -> (&'a str, Option<(&'static str, u32)>) {
        let found = text.match_indices('[').find_map(|(start, _)| {
            let (before, rest) = text.split_at_checked(start)?;
            let mut tokens = SPECIAL.into_iter().zip(self.special);
            Some((before, Some(tokens.find(|(token, _)| rest.starts_with(token))?)))
        });
        found.unwrap_or((text, None))
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

    /// Adds the longest piece at the start of the word, then the longest at the start of the rest,
    /// and so on. If no piece matches, adds the unknown token instead.
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

/// The ends of the characters of a text, in reverse.
fn ends(text: &str) -> impl Iterator<Item = usize> {
    text.char_indices().rev().map(|(start, character)| start + character.len_utf8())
}

/// The text without control characters and accents, in lower case, with spaces around Chinese
/// characters.
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

/// Whether BERT treats a character as Chinese.
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

/// The fields of `tokenizer.json` that are needed.
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

/// The id of each word piece.
#[derive(Debug)]
struct Vocabulary {
    ids: HashMap<SmolStr, u32>,
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
                formatter.write_str("an id for each word piece")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Vocabulary, A::Error> {
                // Enough for a vocabulary of the usual size, so that the map does not grow.
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
