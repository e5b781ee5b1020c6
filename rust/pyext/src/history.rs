//! The conversation.

use crossgate_core::history;
use pyo3::prelude::*;

#[pyfunction]
pub(crate) fn history_features(prompt: &str) -> Vec<f64> {
    history::features(prompt).to_vec()
}
