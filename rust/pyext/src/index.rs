//! Python class of the index, which threads can share.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crossgate_core::Error;
use crossgate_core::evidence::EvidenceWeights;
use crossgate_core::hints::HintVectors;
use crossgate_core::index::{Record, SearchOptions};
use crossgate_core::profile::Profile;
use crossgate_core::stage1::{Blend, Scored, Span};
use crossgate_core::technologies::Project;
use crossgate_core::text::Analyzer;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A passage from Python: id, title, text, body, start and end of the body's passages, metadata as
/// JSON, vector.
type Row<'py> =
    (String, String, String, String, Vec<(u32, u32)>, String, Option<Bound<'py, PyAny>>);

/// The hints of a document from Python: whether its text is a description; triggers, examples and
/// counterexamples; vectors of the last two.
type HintRow<'py> = (bool, [Vec<String>; 3], [Vec<Bound<'py, PyAny>>; 2]);

/// A document for Python: title, text, body, metadata as JSON, whether the text is a description,
/// hints.
type Text<'py> = (
    Bound<'py, PyString>,
    Bound<'py, PyString>,
    Bound<'py, PyString>,
    Bound<'py, PyString>,
    bool,
    [Vec<String>; 3],
);

/// Ids of named documents, and a name that no document has with the id that is nearest to it.
type Names = (Vec<String>, Option<(String, String)>);

fn text_of<'py>(py: Python<'py>, record: &Record) -> Text<'py> {
    let Record { title, text, body, metadata, .. } = record;
    let [title, text, body, metadata] =
        [title, text, body, metadata].map(|part| PyString::new(py, part));
    let Record { triggers, examples, counterexamples, .. } = record;
    let hints = [triggers, examples, counterexamples].map(Clone::clone);
    (title, text, body, metadata, record.is_description, hints)
}

/// Documents with their terms and vectors; `crossgate.Index` is the public class.
#[pyclass(frozen, module = "crossgate._core")]
pub(crate) struct Index {
    /// The version that methods read. The lock is held only to copy or replace the pointer.
    current: RwLock<Arc<crossgate_core::Index>>,
    /// Held while a method creates the next version.
    writing: Mutex<()>,
}

impl Index {
    fn of(index: crossgate_core::Index) -> Self {
        Self { current: RwLock::new(Arc::new(index)), writing: Mutex::new(()) }
    }

    /// The current version, which later changes do not affect.
    fn read(&self) -> Arc<crossgate_core::Index> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the current version by a changed version, unless the change fails or panics.
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
        drop(before); // after the lock, because it can free large parts
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
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 passes an owned path")]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| crossgate_core::Index::open(&path)).map(Self::of).map_err(Into::into)
    }

    #[expect(clippy::needless_pass_by_value, reason = "PyO3 passes an owned path")]
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.read().save(&path)).map_err(Into::into)
    }

    /// Adds documents; `hints` has an entry for each, or none if they are passages.
    #[pyo3(signature = (rows, hints=Vec::new()))]
    fn upsert(&self, py: Python<'_>, rows: Vec<Row<'_>>, hints: Vec<HintRow<'_>>) -> PyResult<()> {
        let mut documents = Vec::with_capacity(rows.len());
        let mut hints = hints.into_iter();
        for (id, title, text, body, passages, metadata, vector) in rows {
            let vector = vector.as_ref().map(numbers).transpose()?;
            let passages = passages.into_iter().map(|(start, end)| Span { start, end }).collect();
            let record = Record { id, title, text, body, passages, metadata, ..Record::default() };
            let Some((is_description, texts, vectors)) = hints.next() else {
                documents.push((record, vector, HintVectors::default()));
                continue;
            };
            let [triggers, examples, counterexamples] = texts;
            let record = Record { is_description, triggers, examples, counterexamples, ..record };
            let vectors = vectors.map(|list| {
                list.iter().map(|vector| numbers(vector).map(Some)).collect::<PyResult<_>>()
            });
            let [examples, counterexamples] = vectors;
            let hints = HintVectors { examples: examples?, counterexamples: counterexamples? };
            documents.push((record, vector, hints));
        }
        py.detach(|| self.write(|index| index.upsert_with_hints(documents))).map_err(Into::into)
    }

    /// Adds a prompt that should select a document or not, or that no document fits.
    #[pyo3(signature = (id, prompt, should_select, vector))]
    fn teach(
        &self,
        py: Python<'_>,
        id: Option<&str>,
        prompt: &str,
        should_select: bool,
        vector: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let vector = vector.map(numbers).transpose()?;
        let teach = |index: &mut crossgate_core::Index| {
            index.teach(id, prompt, should_select, vector.as_deref())
        };
        py.detach(|| self.write(teach)).map_err(Into::into)
    }

    /// The vectors of a document's examples and counterexamples.
    fn hint_vectors(&self, py: Python<'_>, id: &str) -> PyResult<[Vec<Option<Vec<f32>>>; 2]> {
        let HintVectors { examples, counterexamples } =
            py.detach(|| self.read().hint_vectors(id))?;
        Ok([examples, counterexamples])
    }

    /// Prompts that no document fits.
    fn nothing(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.read().nothing().to_vec())
    }

    /// Removes documents in one step; returns the number of documents that the index had.
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 passes an owned list")]
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

    /// Reads and checks all blocks of a file that were not read yet.
    fn load(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.read().load()).map_err(Into::into)
    }

    /// The best candidates and their documents.
    #[pyo3(signature = (
        query, vector, *, per_channel, blend=None, evidence=None, technologies=Vec::new(),
        history=Vec::new(), usefulness=None, allow=None, deny=HashSet::new(), named=HashSet::new(),
        asks=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "all are keyword arguments")]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned sets")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        vector: Option<&Bound<'py, PyAny>>,
        per_channel: usize,
        blend: Option<&Blend>,
        evidence: Option<&EvidenceWeights>,
        technologies: Vec<String>,
        history: Vec<(String, f64)>,
        usefulness: Option<(f64, Vec<f32>)>,
        allow: Option<HashSet<String>>,
        deny: HashSet<String>,
        named: HashSet<String>,
        asks: Option<f64>,
    ) -> PyResult<(Vec<Scored>, Vec<Text<'py>>)> {
        let vector = vector.map(numbers).transpose()?;
        let blend = blend.copied().unwrap_or_default();
        let evidence = evidence.copied().unwrap_or_else(|| Profile::default().evidence);
        let project = Project::new(technologies.iter().map(String::as_str));
        let allow = allow.as_ref();
        let (deny, history) = (&deny, history.as_slice());
        let usefulness = usefulness.as_ref();
        let options = SearchOptions {
            blend,
            per_channel,
            allow,
            deny,
            evidence,
            project,
            history,
            usefulness,
            asks,
            named: &named,
        };
        // Both are from the same version, so a document cannot change between score and text.
        let index = py.detach(|| self.read());
        let found = py.detach(|| index.search(query, vector.as_deref(), &options))?;
        Ok(found.into_iter().map(|(scored, record)| (scored, text_of(py, record))).unzip())
    }

    /// The ids of the documents that a prompt names, and a name that none has with the nearest id.
    fn named(&self, py: Python<'_>, prompt: &str) -> PyResult<Names> {
        let found = py.detach(|| self.read().named(prompt))?;
        Ok((found.ids, found.unknown))
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

/// A vector from a buffer of float32, such as an array of numpy, or from any iterable of numbers.
pub(crate) fn numbers(object: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    let py = object.py();
    if let Ok(buffer) = PyBuffer::<f32>::get(object)
        && matches!(buffer.format().to_bytes(), b"f" | b"@f" | b"=f")
    {
        if buffer.dimensions() != 1 {
            let shape = buffer.dimensions();
            let problem = format!("a vector has {shape} dimensions: it must have one");
            return Err(Error::not_a_vector(problem).into());
        }
        return buffer.to_vec(py);
    }
    let number = |item: PyResult<Bound<'_, PyAny>>| {
        item?.extract::<f32>().map_err(|error| {
            if error.is_instance_of::<PyOverflowError>(py) {
                return Error::float_overflow().into();
            }
            let problem = format!("a vector holds a value that is not a number: {error}");
            Error::not_a_vector(problem).into()
        })
    };
    object.try_iter()?.map(number).collect()
}
