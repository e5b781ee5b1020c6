//! Fusion, near-duplicates, diversity and late interaction as Python functions.

use crossgate_core::diversity::{self, Content};
use crossgate_core::fusion::{self, Normalisation};
use crossgate_core::late;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::index::numbers;

/// Ids by the sum of weight / (k + rank) over ranked lists, with that sum, best first.
#[pyfunction]
#[pyo3(signature = (lists, *, k_param, weights=None))]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn fuse_ranks(
    py: Python<'_>,
    lists: Vec<Vec<String>>,
    k_param: f64,
    weights: Option<Vec<f64>>,
) -> PyResult<Vec<(String, f64)>> {
    py.detach(|| fusion::reciprocal_rank(&lists, k_param, weights.as_deref())).map_err(Into::into)
}

/// Ids by the weighted sum of their normalised scores, with that sum, best first.
#[pyfunction]
#[pyo3(signature = (lists, *, normalisation, weights=None))]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn fuse_scores(
    py: Python<'_>,
    lists: Vec<Vec<(String, f64)>>,
    normalisation: &str,
    weights: Option<Vec<f64>>,
) -> PyResult<Vec<(String, f64)>> {
    py.detach(|| fusion::scores(&lists, Normalisation::new(normalisation)?, weights.as_deref()))
        .map_err(Into::into)
}

/// For each text the position of the earlier one that it nearly repeats, or none.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn near_duplicates(
    py: Python<'_>,
    texts: Vec<String>,
    similarity: f64,
) -> PyResult<Vec<Option<usize>>> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    py.detach(|| diversity::near_duplicates(&texts, similarity)).map_err(Into::into)
}

/// Positions by maximal marginal relevance over the words of texts, best first.
#[pyfunction]
#[pyo3(signature = (ids, relevance, texts, *, trade_off, limit))]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
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

/// Positions by maximal marginal relevance over vectors, best first.
#[pyfunction]
#[pyo3(signature = (ids, relevance, vectors, *, trade_off, limit))]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
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

/// The token vectors of one text, each of length 1.
#[pyclass(frozen, module = "crossgate._core")]
pub(crate) struct TokenVectors(late::TokenVectors);

#[pymethods]
impl TokenVectors {
    #[new]
    #[pyo3(signature = (rows, *, owner="a text"))]
    fn new(py: Python<'_>, rows: &Bound<'_, PyAny>, owner: &str) -> PyResult<Self> {
        let rows = matrix(rows)?;
        py.detach(|| late::TokenVectors::new(owner, &rows)).map(Self).map_err(Into::into)
    }

    fn to_int8(&self, py: Python<'_>) -> Self {
        Self(py.detach(|| self.0.to_int8()))
    }

    #[getter]
    fn dimension(&self) -> usize {
        self.0.dimension()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.0.bytes()
    }

    #[getter]
    fn is_int8(&self) -> bool {
        self.0.is_int8()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// For each document the sum, over the query's tokens, of the largest cosine with one of its own.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn max_similarities(
    py: Python<'_>,
    query: PyRef<'_, TokenVectors>,
    documents: Vec<PyRef<'_, TokenVectors>>,
) -> PyResult<Vec<f64>> {
    let query = &query.0;
    let documents: Vec<&late::TokenVectors> = documents.iter().map(|one| &one.0).collect();
    py.detach(|| {
        documents
            .iter()
            .map(|document| query.max_similarity(document))
            .collect::<crossgate_core::Result<Vec<f64>>>()
    })
    .map_err(Into::into)
}

/// A matrix from a two-dimensional buffer of float32, or from rows one by one.
fn matrix(object: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<f32>>> {
    let py = object.py();
    if let Ok(buffer) = PyBuffer::<f32>::get(object)
        && matches!(buffer.format().to_bytes(), b"f" | b"@f" | b"=f")
        && let [rows, columns] = *buffer.shape()
    {
        let values = buffer.to_vec(py)?;
        // A row of no numbers is one too; `chunks` would not return it.
        return Ok((0..rows)
            .map(|row| values.iter().skip(row * columns).take(columns).copied().collect())
            .collect());
    }
    object.try_iter()?.map(|row| numbers(&row?)).collect()
}
