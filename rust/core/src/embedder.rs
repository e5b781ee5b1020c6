//! The bundled sentence embedder: text in, unit vector out, the same to the bit on every processor.

mod encoder;
mod float;
mod model_file;
mod product;
mod word_pieces;

use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

use crate::error::{Error, Result};
use encoder::Encoder;
use model_file::Constants;
use word_pieces::WordPieces;

/// Most characters that one word piece stands for. Pieces are far shorter; what lies beyond so many
/// for each token is not looked at.
const CHARACTERS_PER_PIECE: usize = 64;

/// An embedder of six layers or any other number, built by models/build.py, and its tokenizer.
pub struct Embedder {
    words: WordPieces,
    encoder: Encoder,
    most_tokens: usize,
}

impl Embedder {
    /// Opens a model; its weights stay in the file and are read where they are needed.
    ///
    /// Fails with `model_incomplete` if a file cannot be read, and `model_unsupported` if it is not
    /// what models/build.py writes for an embedder.
    pub fn open(model: &Path, tokenizer: &Path, most_tokens: usize) -> Result<Self> {
        let unreadable = |path: &Path, error: &std::io::Error| {
            Error::model("model_incomplete", format!("cannot read {}: {error}", path.display()))
        };
        let words = std::fs::read(tokenizer).map_err(|error| unreadable(tokenizer, &error))?;
        let words = WordPieces::read(&words)?;
        let mapped = File::open(model).and_then(|file| map(&file));
        let mapped = mapped.map_err(|error| unreadable(model, &error))?;
        let constants = Constants::read(Bytes::from_owner(mapped))?;
        let encoder = Encoder::read(&constants, words.size(), most_tokens)?;
        Ok(Self { words, encoder, most_tokens })
    }

    /// Length of the vectors.
    pub fn dimension(&self) -> usize {
        self.encoder.width()
    }

    /// The numbers of a text's word pieces as the model reads them; the end of a long one is left out.
    pub fn tokens(&self, text: &str) -> Vec<u32> {
        let end = text.char_indices().nth(self.most_tokens.saturating_mul(CHARACTERS_PER_PIECE));
        let start = end.and_then(|(end, _)| text.get(..end)).unwrap_or(text);
        self.words.input(start, self.most_tokens)
    }

    /// The vector of a text, of length 1.
    pub fn embed(&self, text: &str) -> Vec<f32> {
        self.encoder.run(&self.tokens(text))
    }
}

/// Maps a file. Reading its 23 MB instead takes 13 ms, which is as long as all else that a decision
/// needs.
#[allow(unsafe_code, reason = "a mapping")]
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the bytes must not change while they are mapped. They are a part of the installed
    // package, which installers replace by new files and do not write into.
    unsafe { Mmap::map(file) }
}
