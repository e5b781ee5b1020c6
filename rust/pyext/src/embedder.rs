//! The bundled embedder as a Python class that threads can share, and the digest of its files.

use std::path::PathBuf;

use pyo3::prelude::*;

/// A sentence embedder that needs no runtime; `crossgate.OnnxEmbedder` is the class for users.
#[pyclass(frozen, module = "crossgate._core")]
pub(crate) struct Embedder(crossgate_core::embedder::Embedder);

#[pymethods]
impl Embedder {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "Python hands over owned paths")]
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

/// The BLAKE3 digest of a file, in hex.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over an owned path")]
pub(crate) fn blake3_of(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    Ok(py.detach(|| crossgate_core::digest::blake3_of(&path))?)
}
