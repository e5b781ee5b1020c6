//! Values as JSON, the one encoding for files, traces and the Python binding.

use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};

use crate::error::{Kind, Result};

/// Declares a type that is stored as JSON and, with the `python` feature, is a Python class.
macro_rules! value {
    ($(#[$meta:meta])* pub struct $name:ident { $($body:tt)* }) => {
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(remote = "Self")]
        #[cfg_attr(
            feature = "python",
            pyo3::pyclass(frozen, get_all, eq, from_py_object, module = "crossgate._core")
        )]
        $(#[$meta])*
        pub struct $name { $($body)* }

        $crate::json::objects!($name);
    };
    ($(#[$meta:meta])* pub enum $name:ident { $($body:tt)* }) => {
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(remote = "Self")]
        #[cfg_attr(
            feature = "python",
            pyo3::pyclass(frozen, eq, from_py_object, module = "crossgate._core")
        )]
        $(#[$meta])*
        pub enum $name { $($body)* }

        $crate::json::objects!($name);
    };
}

/// Lets a type with `#[serde(remote = "Self")]` be read from JSON objects only.
///
/// The code that serde derives also reads an array, as the fields in their order: a file whose
/// fields are in another order would then be read with wrong values.
macro_rules! objects {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> std::result::Result<Self, D::Error> {
                $name::deserialize($crate::json::ObjectOnly(deserializer))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(
                &self,
                serializer: S,
            ) -> std::result::Result<S::Ok, S::Error> {
                $name::serialize(self, serializer)
            }
        }
    };
}

/// Declares an enum whose members have stable codes.
macro_rules! codes {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$about:meta])* $member:ident = $code:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$about])* #[serde(rename = $code)] $member,)* }

        impl $name {
            /// All members.
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

pub(crate) use {codes, objects, value};

/// A JSON object of the caller, which is stored and never interpreted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Json(pub serde_json::Map<String, serde_json::Value>);

/// A deserializer that reads a struct from a JSON object and from nothing else.
pub(crate) struct ObjectOnly<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> std::result::Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    /// Index files are not JSON: their encoding of a struct has no field names.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, D::Error> {
        if self.0.is_human_readable() {
            self.0.deserialize_map(visitor)
        } else {
            self.0.deserialize_struct(name, fields, visitor)
        }
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Reads a value from JSON.
///
/// Fails with a one-line message that gives the problem and its path, such as
/// `answer.threshold: it must be a finite number`.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    let mut source = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut source).map_err(|error| {
        let path = error.path().to_string();
        let problem = plain(&error.into_inner().to_string());
        Kind::Json(if path == "." { problem } else { format!("{path}: {problem}") })
    })?;
    source.end().map_err(|error| Kind::Json(plain(&error.to_string())))?;
    Ok(value)
}

/// A message of serde without the position, which means little in text that a program wrote.
fn plain(message: &str) -> String {
    let problem = message.rsplit_once(" at line ").map_or(message, |(problem, _)| problem);
    let is_object = ["expected struct", "expected internally tagged enum"];
    if problem == "expected value" {
        // NaN and Infinity, which Python writes and JSON does not have.
        "it must be a finite number".to_owned()
    } else if is_object.iter().any(|expected| problem.contains(expected)) {
        "it must be a JSON object".to_owned()
    } else {
        problem.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use crate::profile::Profile;
    use crate::stage1::Blend;

    fn problem<T: serde::de::DeserializeOwned + std::fmt::Debug>(text: &str) -> String {
        super::read::<T>(text).unwrap_err().to_string()
    }

    #[test]
    fn arrays_are_not_read_as_objects_at_any_depth() {
        assert_eq!(problem::<Blend>("[0.7, 0.3, 8.0, 0.2]"), "it must be a JSON object");
        assert_eq!(problem::<Blend>("7"), "it must be a JSON object");
        assert_eq!(
            problem::<Profile>(r#"{"blend": [0.7, 0.3, 8.0, 0.2]}"#),
            "blend: it must be a JSON object"
        );
        assert_eq!(
            problem::<Profile>(r#"{"combine": ["rrf", {"k": 60}]}"#),
            "combine: it must be a JSON object"
        );
        assert_eq!(
            problem::<Policy>(r#"{"lexical": [8, 4]}"#),
            "lexical: it must be a JSON object"
        );
    }

    #[test]
    fn errors_give_the_path_of_the_value() {
        let not_finite = problem::<Profile>(r#"{"answer": {"threshold": NaN}}"#);
        assert_eq!(not_finite, "answer.threshold: it must be a finite number");
        assert!(problem::<Profile>(r#"{"pool": 2, "pool": 3}"#).contains("duplicate field"));
        assert!(problem::<Profile>("{} {}").contains("trailing characters"));
    }
}
