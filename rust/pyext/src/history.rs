//! The conversation.

use crossgate_core::history;
use pyo3::prelude::*;

/// The features of the model of `history_weights`, which `models/fit_history.py` fits.
#[pyfunction]
pub(crate) fn history_features(prompt: &str) -> Vec<f64> {
    history::features(prompt).to_vec()
}
