//! The index as a Python class that threads can share.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crossgate_core::Error;
use crossgate_core::index::{Record, SearchOptions};
use crossgate_core::stage1::{Blend, Scored, Span};
use crossgate_core::text::Analyzer;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A document as it crosses: id, title, text, body, start and end of the body's passages, metadata
/// as JSON, vector.
type Row<'py> =
    (String, String, String, String, Vec<(u32, u32)>, String, Option<Bound<'py, PyAny>>);

/// What a document says: title, text, body, metadata as JSON.
type Text<'py> =
    (Bound<'py, PyString>, Bound<'py, PyString>, Bound<'py, PyString>, Bound<'py, PyString>);

fn text_of<'py>(py: Python<'py>, record: &Record) -> Text<'py> {
    let Record { title, text, body, metadata, .. } = record;
    let [title, text, body, metadata] =
        [title, text, body, metadata].map(|part| PyString::new(py, part));
    (title, text, body, metadata)
}

/// Documents, their terms and their vectors; `crossgate.Index` is the class for users.
#[pyclass(frozen, module = "crossgate._core")]
pub(crate) struct Index {
    /// The version that readers take; its lock is held only to take or to put one.
    current: RwLock<Arc<crossgate_core::Index>>,
    /// Held by the one who makes the next version.
    writing: Mutex<()>,
}

impl Index {
    fn of(index: crossgate_core::Index) -> Self {
        Self { current: RwLock::new(Arc::new(index)), writing: Mutex::new(()) }
    }

    /// The current version, which stays as it is whatever writers do.
    fn read(&self) -> Arc<crossgate_core::Index> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a changed version in the place of the current one, or leaves that where the change fails
    /// or panics.
    fn write<T>(
        &self,
        change: impl FnOnce(&mut crossgate_core::Index) -> crossgate_core::Result<T>,
    ) -> crossgate_core::Result<T> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = crossgate_core::Index::clone(&self.read());
        let result = change(&mut next)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, Arc::new(next));
        drop(current);
        drop(before); // it may be the last one to know large parts: not under the lock
        Ok(result)
    }
}

#[pymethods]
impl Index {
    #[new]
    fn new(language: &str, embedder: &str, dimension: usize) -> PyResult<Self> {
        Analyzer::new(language)
            .and_then(|analyzer| crossgate_core::Index::new(analyzer, embedder, dimension))
            .map(Self::of)
            .map_err(Into::into)
    }

    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "Python hands over an owned path")]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| crossgate_core::Index::open(&path)).map(Self::of).map_err(Into::into)
    }

    #[expect(clippy::needless_pass_by_value, reason = "Python hands over an owned path")]
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.read().save(&path)).map_err(Into::into)
    }

    fn upsert(&self, py: Python<'_>, rows: Vec<Row<'_>>) -> PyResult<()> {
        let mut documents = Vec::with_capacity(rows.len());
        for (id, title, text, body, passages, metadata, vector) in rows {
            let vector = vector.as_ref().map(numbers).transpose()?;
            let passages = passages.into_iter().map(|(start, end)| Span { start, end }).collect();
            documents.push((Record { id, title, text, body, passages, metadata }, vector));
        }
        py.detach(|| self.write(|index| index.upsert(documents))).map_err(Into::into)
    }

    /// Removes documents in one step; returns how many were there.
    #[expect(clippy::needless_pass_by_value, reason = "Python hands over an owned list")]
    fn remove(&self, py: Python<'_>, ids: Vec<String>) -> PyResult<usize> {
        let remove = |index: &mut crossgate_core::Index| {
            ids.iter().try_fold(0, |count, id| Ok(count + usize::from(index.remove(id)?)))
        };
        py.detach(|| self.write(remove)).map_err(Into::into)
    }

    fn get<'py>(&self, py: Python<'py>, id: &str) -> PyResult<Option<Text<'py>>> {
        let index = py.detach(|| self.read());
        let found = py.detach(|| index.get(id))?;
        Ok(found.map(|record| text_of(py, record)))
    }

    fn vector(&self, py: Python<'_>, id: &str) -> PyResult<Option<Vec<f32>>> {
        py.detach(|| self.read().vector(id).map(|found| found.map(<[f32]>::to_vec)))
            .map_err(Into::into)
    }

    fn ids(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.read().ids().map(str::to_owned).collect())
    }

    /// Reads of a file what was not read so far.
    fn load(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.read().load()).map_err(Into::into)
    }

    /// The best candidates and what they say: title, text, metadata; both of one version.
    #[pyo3(signature = (query, vector, *, per_channel, blend=None, allow=None, deny=HashSet::new()))]
    #[expect(clippy::too_many_arguments, reason = "one call per search, all by keyword")]
    #[expect(clippy::needless_pass_by_value, reason = "Python hands over owned sets")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        vector: Option<&Bound<'py, PyAny>>,
        per_channel: usize,
        blend: Option<&Blend>,
        allow: Option<HashSet<String>>,
        deny: HashSet<String>,
    ) -> PyResult<(Vec<Scored>, Vec<Text<'py>>)> {
        let vector = vector.map(numbers).transpose()?;
        let blend = blend.copied().unwrap_or_default();
        let options = SearchOptions { blend, per_channel, allow: allow.as_ref(), deny: &deny };
        // One version for both: no document can change between its score and its text.
        let index = py.detach(|| self.read());
        let found = py.detach(|| index.search(query, vector.as_deref(), &options))?;
        Ok(found.into_iter().map(|(scored, record)| (scored, text_of(py, record))).unzip())
    }

    #[getter]
    fn language(&self, py: Python<'_>) -> &'static str {
        py.detach(|| self.read().analyzer().language())
    }

    #[getter]
    fn embedder(&self, py: Python<'_>) -> String {
        py.detach(|| self.read().embedder().to_owned())
    }

    #[getter]
    fn dimension(&self, py: Python<'_>) -> usize {
        py.detach(|| self.read().dimension())
    }

    fn fingerprint(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.read().fingerprint()).map_err(Into::into)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.read().len())
    }

    fn __contains__(&self, py: Python<'_>, id: &str) -> bool {
        py.detach(|| self.read().contains(id))
    }
}

/// A vector from a buffer of float32 (an array, numpy), or from any numbers one by one.
pub(crate) fn numbers(object: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    let py = object.py();
    if let Ok(buffer) = PyBuffer::<f32>::get(object)
        && matches!(buffer.format().to_bytes(), b"f" | b"@f" | b"=f")
    {
        if buffer.dimensions() != 1 {
            let shape = buffer.dimensions();
            let message = format!("a vector has {shape} dimensions: it must have one");
            return Err(Error::wrong_shape(&message).into());
        }
        return buffer.to_vec(py);
    }
    let number = |item: PyResult<Bound<'_, PyAny>>| {
        item?.extract::<f32>().map_err(|error| {
            if error.is_instance_of::<PyOverflowError>(py) {
                return Error::too_large().into();
            }
            let message = format!("a vector holds something that is no number: {error}");
            Error::wrong_shape(&message).into()
        })
    };
    object.try_iter()?.map(number).collect()
}
