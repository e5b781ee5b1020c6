//! Python functions for fusion, near-duplicates and diversity.

use crossgate_core::diversity::{self, Content};
use crossgate_core::fusion::{self, Normalisation};
use pyo3::prelude::*;

use crate::index::numbers;

/// Ids and sums of weight / (k + rank) over ranked lists, best first.
#[pyfunction]
#[pyo3(signature = (lists, *, k_param, weights=None))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn fuse_ranks(
    py: Python<'_>,
    lists: Vec<Vec<String>>,
    k_param: f64,
    weights: Option<Vec<f64>>,
) -> PyResult<Vec<(String, f64)>> {
    py.detach(|| fusion::reciprocal_rank(&lists, k_param, weights.as_deref())).map_err(Into::into)
}

/// Ids and weighted sums of normalised scores, best first.
#[pyfunction]
#[pyo3(signature = (lists, *, normalisation, weights=None))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn fuse_scores(
    py: Python<'_>,
    lists: Vec<Vec<(String, f64)>>,
    normalisation: &str,
    weights: Option<Vec<f64>>,
) -> PyResult<Vec<(String, f64)>> {
    py.detach(|| fusion::scores(&lists, Normalisation::new(normalisation)?, weights.as_deref()))
        .map_err(Into::into)
}

/// For each text, the position of an earlier text that it nearly repeats, if any.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn near_duplicates(
    py: Python<'_>,
    texts: Vec<String>,
    similarity: f64,
) -> PyResult<Vec<Option<usize>>> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    py.detach(|| diversity::near_duplicates(&texts, similarity)).map_err(Into::into)
}

/// Positions in the order of maximal marginal relevance, compared by words, best first.
#[pyfunction]
#[pyo3(signature = (ids, relevance, texts, *, trade_off, limit))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn diversify_words(
    py: Python<'_>,
    ids: Vec<String>,
    relevance: Vec<f64>,
    texts: Vec<String>,
    trade_off: f64,
    limit: usize,
) -> PyResult<Vec<usize>> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let content = Content::Words(&texts);
    py.detach(|| diversity::marginal_relevance(&ids, &relevance, &content, trade_off, limit))
        .map_err(Into::into)
}

/// Positions in the order of maximal marginal relevance, compared by vectors, best first.
#[pyfunction]
#[pyo3(signature = (ids, relevance, vectors, *, trade_off, limit))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn diversify_vectors(
    py: Python<'_>,
    ids: Vec<String>,
    relevance: Vec<f64>,
    vectors: Vec<Bound<'_, PyAny>>,
    trade_off: f64,
    limit: usize,
) -> PyResult<Vec<usize>> {
    let vectors = vectors.iter().map(numbers).collect::<PyResult<Vec<_>>>()?;
    py.detach(|| {
        let units = diversity::unit_vectors(&ids, &vectors)?;
        let content = Content::Vectors(&units);
        diversity::marginal_relevance(&ids, &relevance, &content, trade_off, limit)
    })
    .map_err(Into::into)
}
