//! Python classes of the bundled models, and digests.

use std::path::PathBuf;

use pyo3::prelude::*;

/// A sentence embedder without a runtime; `crossgate.OnnxEmbedder` is the public class.
#[pyclass(frozen, module = "crossgate._core")]
pub(crate) struct Embedder(crossgate_core::embedder::Embedder);

#[pymethods]
impl Embedder {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned paths")]
    fn new(
        py: Python<'_>,
        model: PathBuf,
        tokenizer: PathBuf,
        max_length: usize,
    ) -> PyResult<Self> {
        let open = || crossgate_core::embedder::Embedder::open(&model, &tokenizer, max_length);
        Ok(Self(py.detach(open)?))
    }

    fn tokens(&self, text: &str) -> Vec<u32> {
        self.0.tokens(text)
    }

    fn embed(&self, py: Python<'_>, text: &str) -> Vec<f32> {
        py.detach(|| self.0.embed(text))
    }
}

/// The tokenizer of the bundled models.
#[pyclass(frozen, module = "crossgate._core")]
pub(crate) struct WordPieces(crossgate_core::word_pieces::WordPieces);

#[pymethods]
impl WordPieces {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 passes an owned path")]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Self(py.detach(|| crossgate_core::word_pieces::WordPieces::open(&path))?))
    }

    #[getter]
    fn first(&self) -> u32 {
        self.0.first()
    }

    #[getter]
    fn last(&self) -> u32 {
        self.0.last()
    }

    fn ids(&self, py: Python<'_>, text: &str, most: usize) -> Vec<u32> {
        py.detach(|| self.0.ids(text, most))
    }
}

/// The BLAKE3 digest of a file, in hex.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes an owned path")]
pub(crate) fn blake3_of(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    Ok(py.detach(|| crossgate_core::digest::blake3_of(&path))?)
}

/// The SHA-256 digest of bytes, in hex.
#[pyfunction]
pub(crate) fn sha256_of(bytes: &[u8]) -> String {
    crossgate_core::digest::sha256_of(bytes)
}
