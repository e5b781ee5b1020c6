//! Scoring, gate and index of crossgate, without Python.
//!
//! [`Index`] finds candidates for a query, [`gate::gate`] decides whether they need a reranker, and
//! [`conclude::conclude`] orders and selects them. Errors have stable codes: see [`Error`].

#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        clippy::cast_possible_truncation,
        reason = "a failed test may panic"
    )
)]

mod blocks;
mod bm25;
mod checks;
mod dense;
mod error;
mod file;
mod lists;
mod names;
#[cfg(feature = "python")]
mod python;
mod steps;
mod stop_words;
mod terms;
mod words;

pub mod anytime;
pub mod cliff;
pub mod common_words;
pub mod conclude;
pub mod coverage;
pub mod description;
pub mod digest;
pub mod diversity;
pub mod embedder;
pub mod evidence;
pub mod exclusions;
pub mod facts;
pub mod fusion;
pub mod gate;
pub mod hints;
pub mod history;
pub mod index;
pub mod json;
pub mod language;
pub mod needs_document;
pub mod policy;
pub mod probability;
pub mod profile;
pub mod request;
pub mod shortlist;
pub mod signals;
pub mod stage1;
pub mod technologies;
pub mod text;
pub mod trace;
pub mod triggers;
pub mod versions;
pub mod word_pieces;

pub use error::{Error, Family, Result};
pub use index::Index;
