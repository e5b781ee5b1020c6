//! Evidence: signals about a candidate that come from authors, users and the project.
//!
//! One macro defines all pieces. Traces, profiles, the stub and the documentation take their names
//! from it, so a new piece is one line here and the code that computes it.

use crate::checks::Range;
use crate::error::Result;
use crate::json::value;
use crate::stage1::Blend;

/// The definition of a piece of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name in traces, profiles and reports.
    pub name: &'static str,
    /// Meaning, and how it is computed.
    pub meaning: &'static str,
}

/// Defines the pieces of evidence, each a number in [0, 1] with a weight in log-odds.
macro_rules! evidence {
    ($($name:ident: $meaning:literal;)*) => {
        value! {
            /// Evidence about a candidate; each piece is in [0, 1], and 0 if there is none.
            #[derive(Copy, Default, PartialEq)]
            #[serde(default, deny_unknown_fields)]
            pub struct Evidence {
                $(
                    #[doc = $meaning]
                    #[serde(skip_serializing_if = "is_zero")]
                    pub $name: f64,
                )*
            }
        }

        value! {
            /// The weight of each piece of evidence, in log-odds; 0 if it does not count.
            #[derive(Copy, Default, PartialEq)]
            #[serde(default, deny_unknown_fields)]
            pub struct EvidenceWeights {
                $(
                    #[doc = concat!("Weight of `", stringify!($name), "`.")]
                    pub $name: f64,
                )*
            }
        }

        impl Evidence {
            /// The definitions, in the order of the fields.
            pub const DEFINITIONS: &'static [Definition] =
                &[$(Definition { name: stringify!($name), meaning: $meaning }),*];

            /// The values, in the order of the fields.
            pub fn values(&self) -> impl Iterator<Item = f64> {
                [$(self.$name),*].into_iter()
            }
        }

        impl EvidenceWeights {
            fn values(&self) -> impl Iterator<Item = (&'static str, f64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

evidence! {
    trigger: "Worth of the best trigger of the document that the query contains.";
    example: "Similarity of the query to the nearest example of the document.";
    counterexample: "Similarity of the query to the nearest counterexample of the document.";
    technology: "1 if the head names a technology of the project.";
    other_technology: "1 if the title names technologies that neither project nor query has.";
    other_version: "1 if query and description name other versions of the same thing.";
    usefulness: "How much prompts of a session of this kind ask for what the document does.";
    plain_name: "How far the query is from what the document does, if they share only words of its name.";
    acts: "How surely the query asks to read, above even odds, if the tool acts.";
    reads: "How surely the query asks to act, above even odds, if the tool only reads.";
    other_date: "Share of the dates of the query that the passage lacks.";
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl Evidence {
    /// Whether all pieces are 0.
    pub fn is_none(&self) -> bool {
        self.values().all(|value| value == 0.0)
    }

    /// Whether the document or a user says that the document does not fit the query, or the tool would
    /// act on a question.
    pub fn is_against(&self) -> bool {
        self.counterexample >= COUNTEREXAMPLE || self.other_version > 0.0 || self.acts > 0.0
    }

    /// Whether the query contains a trigger that few other documents share.
    pub fn is_triggered(&self) -> bool {
        self.trigger >= TRIGGERED
    }
}

/// From this value on, a counterexample is more likely right than wrong: half that of a paraphrase.
const COUNTEREXAMPLE: f64 = 0.3125;

/// From this worth on, a trigger is a reason to ask stage 2.
const TRIGGERED: f64 = 0.2;

impl EvidenceWeights {
    /// The weighted sum in log-odds.
    pub fn log_odds(&self, evidence: &Evidence) -> f64 {
        self.values().zip(evidence.values()).map(|((_, weight), value)| weight * value).sum()
    }

    /// The weighted sum in the unit of a blend, to whose score it is added.
    pub fn in_blend(&self, evidence: &Evidence, blend: &Blend) -> f64 {
        self.log_odds(evidence) / blend.log_odds
    }

    /// Fails with `out_of_range` for a weight that is not from -1e100 to 1e100.
    pub fn check(&self) -> Result<()> {
        self.values()
            .try_for_each(|(name, weight)| Range::Weight.check(&format!("evidence.{name}"), weight))
    }
}
