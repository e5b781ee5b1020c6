//! The only place where an error of the core becomes a Python exception.

use crossgate_core::{Error, Family};
use pyo3::prelude::*;

/// The exception of `crossgate._errors` for an error of the core, with the same code and message.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error.family() {
        Family::Input => "InputError",
        Family::IndexFile => "IndexFileError",
    };
    let raised = py
        .import("crossgate._errors")
        .and_then(|module| module.getattr(class)?.call1((error.code(), error.to_string())));
    match raised {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}
