//! Scoring, gate and index of crossgate: every number that a decision rests on, without Python.

#![cfg_attr(
    test,
    allow(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        clippy::cast_possible_truncation,
        reason = "a test may stop at the first surprise"
    )
)]

mod blocks;
mod bm25;
mod checks;
mod confidence;
mod dense;
mod error;
mod file;
#[cfg(feature = "python")]
mod python;
mod stop_words;
mod terms;

pub mod cliff;
pub mod conclude;
pub mod digest;
pub mod diversity;
pub mod embedder;
pub mod exclusions;
pub mod fusion;
pub mod gate;
pub mod index;
pub mod json;
pub mod need;
pub mod policy;
pub mod profile;
pub mod signals;
pub mod stage1;
pub mod text;
pub mod trace;

pub use error::{Error, Family, Result};
pub use index::Index;
