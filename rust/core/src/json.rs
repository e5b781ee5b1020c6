//! The one codec: values as JSON, for files, traces and Python alike.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Declares a value that is read, written and compared, and that Python sees where it is built in.
macro_rules! value {
    ($(#[$meta:meta])* pub struct $name:ident { $($body:tt)* }) => {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[cfg_attr(
            feature = "python",
            pyo3::pyclass(frozen, get_all, eq, from_py_object, module = "crossgate._core")
        )]
        #[cfg_attr(
            feature = "python",
            expect(clippy::unsafe_derive_deserialize, reason = "the unsafe methods are PyO3's own")
        )]
        $(#[$meta])*
        pub struct $name { $($body)* }
    };
    ($(#[$meta:meta])* pub enum $name:ident { $($body:tt)* }) => {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[cfg_attr(
            feature = "python",
            pyo3::pyclass(frozen, eq, from_py_object, module = "crossgate._core")
        )]
        #[cfg_attr(
            feature = "python",
            expect(clippy::unsafe_derive_deserialize, reason = "the unsafe methods are PyO3's own")
        )]
        $(#[$meta])*
        pub enum $name { $($body)* }
    };
}

/// Declares an enumeration whose members are known by a stable code.
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$about:meta])* $member:ident = $code:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name { $($(#[$about])* #[serde(rename = $code)] $member,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$member),*];

            /// Identifier for programs; it stays the same between releases.
            pub fn code(self) -> &'static str {
                match self { $(Self::$member => $code,)* }
            }
        }

        #[cfg(feature = "python")]
        impl<'py> pyo3::IntoPyObject<'py> for $name {
            type Target = pyo3::types::PyString;
            type Output = pyo3::Bound<'py, Self::Target>;
            type Error = std::convert::Infallible;

            fn into_pyobject(self, py: pyo3::Python<'py>) -> std::result::Result<Self::Output, Self::Error> {
                self.code().into_pyobject(py)
            }
        }
    };
}

pub(crate) use {codes, value};

/// A JSON object that belongs to somebody else; kept and never read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Json(pub serde_json::Map<String, serde_json::Value>);

/// Reads a value, or says in one line what is wrong and where.
///
/// An object must be written as one: by itself serde would take a list of its members as well.
pub fn read<T: DeserializeOwned + Serialize>(text: &str) -> std::result::Result<T, String> {
    let mut source = serde_json::Deserializer::from_str(text);
    let found = serde_path_to_error::deserialize(&mut source).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner().to_string();
        let what = inner.rsplit_once(" at line ").map_or(inner.as_str(), |(what, _)| what);
        // What serde says of NaN and Infinity, which are no JSON, would help nobody.
        let what = if what == "expected value" { "it must be a finite number" } else { what };
        if path == "." { what.to_owned() } else { format!("{path}: {what}") }
    })?;
    source.end().map_err(|error| error.to_string())?;
    let given = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let read = serde_json::to_value(&found).map_err(|error| error.to_string())?;
    objects_stay_objects("", &given, &read)?;
    Ok(found)
}

fn objects_stay_objects(
    path: &str,
    given: &Value,
    read: &Value,
) -> std::result::Result<(), String> {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => {
            read.iter().try_for_each(|(key, inner)| match given.get(key) {
                Some(value) => objects_stay_objects(&format!("{path}.{key}"), value, inner),
                None => Ok(()),
            })
        }
        (Value::Array(given), Value::Array(read)) => {
            given.iter().zip(read).enumerate().try_for_each(|(at, (value, inner))| {
                objects_stay_objects(&format!("{path}[{at}]"), value, inner)
            })
        }
        (_, Value::Object(_)) => {
            let place = path.trim_start_matches('.');
            let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
            Err(format!("{place}it must be a JSON object"))
        }
        _ => Ok(()),
    }
}
