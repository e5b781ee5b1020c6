//! The one error type of the core: a stable code, a family and a message that names value and limit.

use std::fmt;

/// Which exception of the Python package an error becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A query, document, vector or option that cannot be used.
    Input,
    /// An index file that cannot be opened or written.
    IndexFile,
    /// A model that cannot be used.
    Model,
    /// A profile or a policy that cannot be used.
    Profile,
}

/// Something that the caller has to mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    family: Family,
    code: &'static str,
    message: String,
}

/// Result with the core's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The family that decides the exception's class.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Identifier for programs; it stays the same between releases.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// A vector that is no list of numbers.
    pub fn wrong_shape(message: &str) -> Self {
        Self::input("wrong_dimension", message)
    }

    /// A number that no float can hold.
    pub fn too_large() -> Self {
        Self::input("not_finite", "a vector holds a number that is too large for a float")
    }

    /// An error about a query, document, vector or option.
    pub(crate) fn input(code: &'static str, message: impl Into<String>) -> Self {
        Self { family: Family::Input, code, message: message.into() }
    }

    /// An error about a model.
    pub(crate) fn model(code: &'static str, message: impl Into<String>) -> Self {
        Self { family: Family::Model, code, message: message.into() }
    }

    /// An error about a profile or a policy.
    pub(crate) fn profile(code: &'static str, message: impl Into<String>) -> Self {
        Self { family: Family::Profile, code, message: message.into() }
    }

    /// An error about an index file.
    pub(crate) fn file(code: &'static str, message: impl Into<String>) -> Self {
        Self { family: Family::IndexFile, code, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
