//! The bundled sentence embedder. Its vectors are equal to the bit on every processor.

mod encoder;
mod float;
mod model_file;
mod product;

use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

use crate::error::{Error, Kind, Result};
use crate::word_pieces::WordPieces;
use encoder::Encoder;
use model_file::Constants;

/// Characters that are read per token of the input. Word pieces are much shorter, so the rest of a
/// long text could not be part of the input.
const CHARACTERS_PER_PIECE: usize = 64;

/// An embedder that models/build.py has built, with its tokenizer.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// use crossgate_core::embedder::Embedder;
///
/// # let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
/// # let folder = folder.join("../../python/crossgate/_weights/crossgate-embedder-minilm-l6");
/// let (model, tokenizer) = (folder.join("model.onnx"), folder.join("tokenizer.json"));
/// let embedder = Embedder::open(&model, &tokenizer, 256)?;
/// let vectors = ["merge two PDFs", "join PDF files", "book a flight"].map(|text| embedder.embed(text));
/// let cosine = |left: &[f32], right: &[f32]| -> f32 {
///     left.iter().zip(right).map(|(left, right)| left * right).sum()
/// };
/// assert!(cosine(&vectors[0], &vectors[1]) > cosine(&vectors[0], &vectors[2]));
/// # Ok::<(), crossgate_core::Error>(())
/// ```
pub struct Embedder {
    words: WordPieces,
    encoder: Encoder,
    most_tokens: usize,
}

impl Embedder {
    /// Opens a model. Its weights are mapped into memory and read from disk on first use.
    ///
    /// Inputs are truncated to `most_tokens` tokens. Fails with `model_incomplete` if a file cannot
    /// be read, and with `model_unsupported` if models/build.py would not write such a file.
    pub fn open(model: &Path, tokenizer: &Path, most_tokens: usize) -> Result<Self> {
        let words = WordPieces::open(tokenizer)?;
        let mapped = File::open(model).and_then(|file| map(&file)).map_err(|error| {
            Error::from(Kind::ModelUnreadable { path: model.to_owned(), cause: error.to_string() })
        })?;
        Self::read(Bytes::from_owner(mapped), words, most_tokens)
    }

    fn read(model: Bytes, words: WordPieces, most_tokens: usize) -> Result<Self> {
        let encoder = Encoder::read(&Constants::read(model)?, words.size(), most_tokens)?;
        Ok(Self { words, encoder, most_tokens })
    }

    /// Length of the vectors.
    pub fn dimension(&self) -> usize {
        self.encoder.width()
    }

    /// The tokens of a text as the model reads them, truncated to the length of an input.
    pub fn tokens(&self, text: &str) -> Vec<u32> {
        let most = self.most_tokens.saturating_mul(CHARACTERS_PER_PIECE);
        let end = text.char_indices().nth(most).map_or(text.len(), |(end, _)| end);
        let (start, _) = text.split_at_checked(end).expect("it is the start of a character");
        self.words.input(start, self.most_tokens)
    }

    /// The vector of a text, of length 1.
    pub fn embed(&self, text: &str) -> Vec<f32> {
        self.encoder.run(&self.tokens(text))
    }
}

/// Maps a file into memory. Reading its 23 MB takes 13 ms, as long as the rest of a decision.
#[allow(unsafe_code, reason = "memory maps are unsafe")]
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the bytes must not change while they are mapped. The file is part of the installed
    // package, and installers replace such files instead of writing to them.
    unsafe { Mmap::map(file) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::model_file::{FLOAT, INT8, written};
    use super::*;

    const WIDTH: usize = 64;
    const TOKENS: usize = 8;
    const PIECES: [&str; 8] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "fish", "##es"];

    /// A graph of one layer.
    static MODEL: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let widths = |name: &str, inputs: usize, outputs: usize| {
            let name = format!("layer_0.{name}");
            [
                (format!("{name}.weight"), vec![inputs, outputs], INT8),
                (format!("{name}.scales"), vec![outputs], FLOAT),
            ]
        };
        let norm = |name: &str| {
            [".gamma", ".beta"].map(|part| (format!("{name}{part}"), vec![WIDTH], FLOAT))
        };
        let bias = |name: &str, width: usize| (format!("layer_0.{name}.bias"), vec![width], FLOAT);
        let mut constants = vec![
            ("words".to_owned(), vec![PIECES.len(), WIDTH], INT8),
            ("word_scales".to_owned(), vec![PIECES.len()], FLOAT),
            ("types".to_owned(), vec![2, WIDTH], FLOAT),
            ("positions".to_owned(), vec![1, TOKENS, WIDTH], FLOAT),
            bias("attention", 3 * WIDTH),
            bias("mixed", WIDTH),
            bias("widened", 4 * WIDTH),
            bias("narrowed", WIDTH),
        ];
        constants.extend(widths("query_key_value", WIDTH, 3 * WIDTH));
        constants.extend(widths("mixed", WIDTH, WIDTH));
        constants.extend(widths("widened", WIDTH, 4 * WIDTH));
        constants.extend(widths("narrowed", 4 * WIDTH, WIDTH));
        for name in ["embedded", "layer_0.after_attention", "layer_0.output"] {
            constants.extend(norm(name));
        }
        written(&constants, |kind, place| match kind {
            FLOAT => (0.01 + 0.001 * (place % 7) as f32).to_le_bytes().to_vec(),
            _ => vec![(place * 37 % 256) as u8],
        })
    });

    static TOKENIZER: LazyLock<String> = LazyLock::new(|| {
        let ids: std::collections::BTreeMap<_, _> =
            PIECES.iter().enumerate().map(|(id, piece)| (piece, id)).collect();
        serde_json::json!({
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": true,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {"type": "WordPiece", "max_input_chars_per_word": 100, "vocab": ids},
        })
        .to_string()
    });

    /// Bytes with changes, insertions and deletions.
    fn changed(bytes: &[u8], changes: &[(prop::sample::Index, u8, u8)]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (place, kind, value) in changes {
            let place = place.index(bytes.len());
            match kind % 8 {
                0 => bytes.truncate(place.max(1)),
                1 => bytes.insert(place, *value),
                2 if bytes.len() > 1 => drop(bytes.remove(place)),
                _ => bytes[place] = *value,
            }
        }
        bytes
    }

    fn used(
        model: Vec<u8>,
        tokenizer: &[u8],
        text: &str,
    ) -> std::result::Result<(), TestCaseError> {
        let opened = WordPieces::read(tokenizer)
            .and_then(|words| Embedder::read(model.into(), words, TOKENS));
        match opened {
            Ok(embedder) => {
                prop_assert!(embedder.tokens(text).len() <= TOKENS);
                prop_assert_eq!(embedder.embed(text).len(), embedder.dimension());
            }
            Err(error) => prop_assert_eq!(error.code(), "model_unsupported"),
        }
        Ok(())
    }

    #[test]
    fn valid_files_are_read() {
        let words = WordPieces::read(TOKENIZER.as_bytes()).unwrap();
        let embedder = Embedder::read(MODEL.clone().into(), words, TOKENS).unwrap();
        assert_eq!(embedder.tokens("Red fishes"), [2, 5, 6, 7, 3]);
        assert!(embedder.embed("Red fishes").iter().all(|value| value.is_finite()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        // Names and shapes are few bytes among many weights. Half of the changes are in the tail,
        // which has the short constants.
        #[test]
        fn a_changed_model_is_refused_or_works(
            changes in prop::collection::vec(any::<(prop::sample::Index, u8, u8)>(), 1..6),
            tail in any::<bool>(),
            text in "\\PC{0,40}",
        ) {
            let from = if tail { MODEL.len() - 2_000 } else { 0 };
            let model = [&MODEL[..from], &changed(&MODEL[from..], &changes)].concat();
            used(model, TOKENIZER.as_bytes(), &text)?;
        }

        #[test]
        fn a_changed_tokenizer_is_refused_or_works(
            changes in prop::collection::vec(any::<(prop::sample::Index, u8, u8)>(), 1..6),
            text in "\\PC{0,40}|[a-z# \\[\\]]{0,40}",
        ) {
            used(MODEL.clone(), &changed(TOKENIZER.as_bytes(), &changes), &text)?;
        }

        #[test]
        fn any_bytes_are_refused_or_work(
            model in prop::collection::vec(any::<u8>(), 0..200),
            tokenizer in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            used(model, TOKENIZER.as_bytes(), "red")?;
            used(MODEL.clone(), &tokenizer, "red")?;
        }
    }
}
