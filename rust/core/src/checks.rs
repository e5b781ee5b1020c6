//! Ranges of settings, and the error for a setting outside of its range.

use crate::error::{Error, Result};

/// The numbers that a setting can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Range {
    Positive,
    NotNegative,
    Probability,
    Cosine,
    Weight,
}

/// The largest weight or score: no sum of a few products of two such numbers overflows.
pub(crate) const LARGEST: f64 = 1e100;

/// From here on, a number in a message is written with an exponent.
const LONG_NUMBER: f64 = 1e15;

impl Range {
    fn contains(self, value: f64) -> bool {
        match self {
            Self::Positive => value > 0.0 && value <= LARGEST,
            Self::NotNegative => (0.0..=LARGEST).contains(&value),
            Self::Probability => (0.0..=1.0).contains(&value),
            Self::Cosine => (-1.0..=1.0).contains(&value),
            Self::Weight => value.abs() <= LARGEST,
        }
    }

    fn limit(self) -> &'static str {
        match self {
            Self::Positive => "above 0 and at most 1e100",
            Self::NotNegative => "from 0 to 1e100",
            Self::Probability => "from 0 to 1",
            Self::Cosine => "from -1 to 1",
            Self::Weight => "from -1e100 to 1e100",
        }
    }

    /// Fails with `out_of_range` for a number outside of the range; an absent number passes.
    pub(crate) fn check(self, name: &str, value: impl Into<Option<f64>>) -> Result<()> {
        match value.into() {
            Some(value) if !self.contains(value) => {
                let shown = if value.abs() >= LONG_NUMBER {
                    format!("{value:e}")
                } else {
                    value.to_string()
                };
                Err(Error::out_of_range(name, shown, self.limit()))
            }
            _ => Ok(()),
        }
    }
}

/// Fails with `out_of_range` for a count outside of `least` to `most`.
pub(crate) fn check_count(name: &str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::out_of_range(name, value, format!("from {least} to {most}")))
}
