//! What Python sees of the core's values: made of keyword arguments or JSON, read by attribute.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cliff::Cliff;
use crate::conclude::{Decision, Pair, Place};
use crate::error::{Error, Family, Result};
use crate::gate::{Gated, Note, Request};
use crate::json::{self, Json};
use crate::policy::{Floors, Lexical, Policy, Warnings};
use crate::profile::{
    Answer, Combine, Confidence, Profile, Relevance, Second, Stage1Confidence, Stage1Relevance,
    Stage2Confidence, Stage2Relevance, Winner,
};
use crate::signals::{Reading, Signals};
use crate::stage1::{Blend, Scored, Span};

impl From<Error> for PyErr {
    /// The exception of the package for an error of the core, with the same code and message.
    fn from(error: Error) -> Self {
        let class = match error.family() {
            Family::Input => "InputError",
            Family::IndexFile => "IndexFileError",
            Family::Model => "ModelError",
            Family::Profile => "ProfileError",
        };
        Python::attach(|py| {
            let raised = py
                .import("crossgate._support.errors")
                .and_then(|module| module.getattr(class)?.call1((error.code(), error.to_string())));
            raised.map_or_else(|failure| failure, Self::from_value)
        })
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

/// A value as Python's own: dictionaries, lists, texts and numbers.
pub(crate) fn to_python<'py>(
    py: Python<'py>,
    value: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value)
        .map_err(|error| Error::input("not_finite", error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}

/// A value of this module or of Python's own, as JSON.
fn to_json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = value.py();
    let options = PyDict::new(py);
    let to_dict = py.import("operator")?.call_method1("methodcaller", ("to_dict",))?;
    options.set_item("default", to_dict)?;
    py.import("json")?.call_method("dumps", (value,), Some(&options))?.extract()
}

fn from_python<T: DeserializeOwned + Serialize>(
    value: &Bound<'_, PyAny>,
    malformed: impl Fn(String) -> Error,
) -> PyResult<T> {
    let text = to_json(value).map_err(|error| malformed(error.value(value.py()).to_string()))?;
    Ok(json::read(&text).map_err(malformed)?)
}

/// What every value can do in Python.
macro_rules! in_python {
    ($($name:ident, $code:literal, $make:expr, $check:expr;)*) => {$(
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
                let malformed = |message: String| {
                    ($make)($code, format!("{}: {message}", stringify!($name).to_lowercase()))
                };
                let value: Self = from_python(values, malformed)?;
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

/// For a value whose numbers are checked with the profile or policy that it is a part of.
#[expect(clippy::unnecessary_wraps, reason = "the shape of a check")]
fn unchecked<T>(_: &T) -> Result<()> {
    Ok(())
}

in_python! {
    Blend, "profile_malformed", Error::profile, Blend::check;
    Stage1Confidence, "profile_malformed", Error::profile, unchecked;
    Stage2Confidence, "profile_malformed", Error::profile, unchecked;
    Confidence, "profile_malformed", Error::profile, unchecked;
    Answer, "profile_malformed", Error::profile, unchecked;
    Winner, "profile_malformed", Error::profile, unchecked;
    Second, "profile_malformed", Error::profile, unchecked;
    Stage1Relevance, "profile_malformed", Error::profile, unchecked;
    Stage2Relevance, "profile_malformed", Error::profile, unchecked;
    Relevance, "profile_malformed", Error::profile, unchecked;
    Profile, "profile_malformed", Error::profile, Profile::check;
    Floors, "policy_malformed", Error::profile, unchecked;
    Lexical, "policy_malformed", Error::profile, unchecked;
    Warnings, "policy_malformed", Error::profile, unchecked;
    Policy, "policy_malformed", Error::profile, Policy::check;
    Scored, "malformed_trace", Error::input, unchecked;
    Pair, "malformed_trace", Error::input, unchecked;
    Request, "malformed_trace", Error::input, unchecked;
    Signals, "malformed_trace", Error::input, unchecked;
    Reading, "malformed_trace", Error::input, unchecked;
}

/// Values that only the core makes.
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

made_here! { Span Note Cliff Gated Place Decision }

// Its members are made by their own names, so that it has no constructor.
#[pymethods]
impl Combine {
    #[classmethod]
    #[pyo3(name = "from_dict")]
    fn py_from_dict(_class: &Bound<'_, PyType>, values: &Bound<'_, PyAny>) -> PyResult<Self> {
        from_python(values, |why| Error::profile("profile_malformed", format!("combine: {why}")))
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
