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

mod bm25;
mod dense;
mod error;
mod file;
mod stop_words;

pub mod cliff;
pub mod confidence;
pub mod diversity;
pub mod fusion;
pub mod gate;
pub mod index;
pub mod late;
pub mod stage1;
pub mod stage2;
pub mod text;

pub use error::{Error, Family, Result};
pub use index::Index;
