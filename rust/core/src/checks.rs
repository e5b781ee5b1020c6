//! Ranges of settings, and the words in which one outside of its range is refused.

use crate::error::{Error, Result};

/// The numbers that a setting may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Range {
    Above0,
    From0,
    Share,
    Cosine,
    Weight,
}

/// The largest weight or score: no sum of a few products of two such numbers overflows.
pub(crate) const LARGEST: f64 = 1e100;

impl Range {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Above0 => value > 0.0 && value <= LARGEST,
            Self::From0 => (0.0..=LARGEST).contains(&value),
            Self::Share => (0.0..=1.0).contains(&value),
            Self::Cosine => (-1.0..=1.0).contains(&value),
            Self::Weight => value.abs() <= LARGEST,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Above0 => "above 0 and at most 1e100",
            Self::From0 => "from 0 to 1e100",
            Self::Share => "from 0 to 1",
            Self::Cosine => "from -1 to 1",
            Self::Weight => "from -1e100 to 1e100",
        }
    }
}

/// Checks the settings of one file.
pub(crate) struct Numbers {
    /// Makes the error of the file.
    pub(crate) malformed: fn(String) -> Error,
}

impl Numbers {
    pub(crate) fn range(&self, name: &str, value: Option<f64>, range: Range) -> Result<()> {
        match value {
            Some(value) if !range.holds(value) => {
                let shown =
                    if value.abs() >= 1e15 { format!("{value:e}") } else { value.to_string() };
                Err(self.wrong(&format!("{name} is {shown}: it must be {}", range.words())))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn count(&self, name: &str, value: usize, least: usize, most: usize) -> Result<()> {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(self.wrong(&format!("{name} is {value}: it must be from {least} to {most}")))
    }

    pub(crate) fn wrong(&self, message: &str) -> Error {
        (self.malformed)(message.to_owned())
    }
}
