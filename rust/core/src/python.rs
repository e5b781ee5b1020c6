//! Conversions between the core's types and Python objects, and the remedies in Python's messages.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cliff::Cliff;
use crate::conclude::{Decision, Pair, Place};
use crate::error::{Error, Family, Format, Kind, Result};
use crate::evidence::{Evidence, EvidenceWeights};
use crate::gate::{Gated, Note, Request};
use crate::json::{self, Json};
use crate::policy::{Floors, Lexical, Policy, Warnings};
use crate::profile::{
    Answer, AnyFits, Anytime, Combine, Profile, Promise, Relevance, RunnerUpRule, Shortlist,
    Stage1AnyFits, Stage1Relevance, Stage2AnyFits, Stage2Relevance, Winner,
};
use crate::request::{Material, Split};
use crate::signals::{Signals, Stage2Signals};
use crate::stage1::{Blend, Coverage, Scored, Span};

impl From<Error> for PyErr {
    /// The exception of the package with the same code, and the message with a remedy.
    fn from(error: Error) -> Self {
        let message = match remedy(error.code()) {
            Some(remedy) => format!("{error}: {remedy}"),
            None => error.to_string(),
        };
        let class = match error.family() {
            Family::Input => "InputError",
            Family::IndexFile => "IndexFileError",
            Family::Model => "ModelError",
            Family::Profile => "ProfileError",
        };
        Python::attach(|py| {
            let raised = py
                .import("crossgate._support.errors")
                .and_then(|module| module.getattr(class)?.call1((error.code(), message)));
            raised.map_or_else(|failure| failure, Self::from_value)
        })
    }
}

/// What a user of the package can do about an error.
fn remedy(code: &str) -> Option<&'static str> {
    match code {
        "index_missing" | "index_unreadable" | "not_an_index" | "index_version"
        | "index_truncated" | "index_corrupt" => {
            Some("rebuild it with `crossgate index SOURCE... -o FILE`")
        }
        "index_unwritable" => Some("choose another file with -o, or make room"),
        _ => None,
    }
}

impl<'py> IntoPyObject<'py> for Json {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        to_python(py, &self)
    }
}

/// A value as dictionaries, lists, strings and numbers of Python.
pub(crate) fn to_python<'py>(
    py: Python<'py>,
    value: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).expect("all keys of the core's types are strings");
    py.import("json")?.call_method1("loads", (text,))
}

/// A value of this module, or of dictionaries, lists, strings and numbers, as JSON.
fn to_json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = value.py();
    let options = PyDict::new(py);
    let to_dict = py.import("operator")?.call_method1("methodcaller", ("to_dict",))?;
    options.set_item("default", to_dict)?;
    py.import("json")?.call_method("dumps", (value,), Some(&options))?.extract()
}

fn from_python<T: DeserializeOwned>(
    value: &Bound<'_, PyAny>,
    format: Format,
    name: &'static str,
) -> PyResult<T> {
    let read = match to_json(value) {
        Ok(text) => json::read(&text),
        Err(error) => Err(Kind::Json(error.value(value.py()).to_string()).into()),
    };
    Ok(read.map_err(|error| error.within_part(format, name))?)
}

/// Adds the methods of types that Python code can create.
macro_rules! in_python {
    ($($name:ident = $python:literal, $format:expr, $check:expr;)*) => {$(
        #[pymethods]
        impl $name {
            #[new]
            #[pyo3(signature = (**values))]
            fn py_new(py: Python<'_>, values: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
                let values = values.unwrap_or_else(|| PyDict::new(py));
                Self::py_from_dict(&PyType::new::<Self>(py), values.as_any())
            }

            #[classmethod]
            #[pyo3(name = "from_dict")]
            fn py_from_dict(_class: &Bound<'_, PyType>, values: &Bound<'_, PyAny>) -> PyResult<Self> {
                let value: Self = from_python(values, $format, $python)?;
                ($check)(&value)?;
                Ok(value)
            }

            #[pyo3(name = "to_dict")]
            fn py_to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                to_python(py, self)
            }

            #[pyo3(name = "replace", signature = (**changes))]
            fn py_replace(
                &self, py: Python<'_>, changes: Option<Bound<'_, PyDict>>,
            ) -> PyResult<Self> {
                let values = to_python(py, self)?.cast_into::<PyDict>()?;
                if let Some(changes) = changes {
                    values.update(changes.as_mapping())?;
                }
                Self::py_from_dict(&PyType::new::<Self>(py), values.as_any())
            }

            fn __repr__(&self) -> String {
                format!("{self:?}")
            }

            fn __reduce__<'py>(
                &self, py: Python<'py>,
            ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyAny>,))> {
                let maker = PyType::new::<Self>(py).getattr("from_dict")?;
                Ok((maker, (to_python(py, self)?,)))
            }
        }
    )*};
}

/// For a type whose numbers are checked with the profile or policy that it is part of.
#[expect(clippy::unnecessary_wraps, reason = "the shape of a check")]
fn unchecked<T>(_: &T) -> Result<()> {
    Ok(())
}

in_python! {
    Blend = "blend", Format::Profile, Blend::check;
    EvidenceWeights = "evidence_weights", Format::Profile, EvidenceWeights::check;
    Evidence = "evidence", Format::Trace, unchecked;
    Stage1AnyFits = "stage1_any_fits", Format::Profile, unchecked;
    Stage2AnyFits = "stage2_any_fits", Format::Profile, unchecked;
    AnyFits = "any_fits", Format::Profile, unchecked;
    Answer = "answer", Format::Profile, unchecked;
    Winner = "winner", Format::Profile, unchecked;
    RunnerUpRule = "runner_up_rule", Format::Profile, unchecked;
    Stage1Relevance = "stage1_relevance", Format::Profile, unchecked;
    Stage2Relevance = "stage2_relevance", Format::Profile, unchecked;
    Relevance = "relevance", Format::Profile, unchecked;
    Anytime = "anytime", Format::Profile, unchecked;
    Promise = "promise", Format::Profile, unchecked;
    Shortlist = "shortlist", Format::Profile, unchecked;
    Profile = "profile", Format::Profile, Profile::check;
    Floors = "floors", Format::Policy, unchecked;
    Lexical = "lexical", Format::Policy, unchecked;
    Warnings = "warnings", Format::Policy, unchecked;
    Policy = "policy", Format::Policy, Policy::check;
    Coverage = "coverage", Format::Trace, unchecked;
    Scored = "scored", Format::Trace, unchecked;
    Pair = "pair", Format::Trace, unchecked;
    Request = "request", Format::Trace, unchecked;
    Signals = "signals", Format::Trace, unchecked;
    Stage2Signals = "stage2_signals", Format::Trace, unchecked;
}

/// Adds the methods of types that only the core creates.
macro_rules! made_here {
    ($($name:ident)*) => {$(
        #[pymethods]
        impl $name {
            #[pyo3(name = "to_dict")]
            fn py_to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                to_python(py, self)
            }

            fn __repr__(&self) -> String {
                format!("{self:?}")
            }
        }
    )*};
}

made_here! { Span Note Cliff Gated Material Place Decision Split }

// Python creates its variants by their names, such as `Combine.Rrf`, so it has no constructor.
#[pymethods]
impl Combine {
    #[classmethod]
    #[pyo3(name = "from_dict")]
    fn py_from_dict(_class: &Bound<'_, PyType>, values: &Bound<'_, PyAny>) -> PyResult<Self> {
        from_python(values, Format::Profile, "combine")
    }

    #[pyo3(name = "to_dict")]
    fn py_to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self)
    }

    fn __repr__(&self) -> String {
        format!("{self:?}")
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyAny>,))> {
        let maker = PyType::new::<Self>(py).getattr("from_dict")?;
        Ok((maker, (to_python(py, self)?,)))
    }
}
