//! The policy: what a person chooses, whatever the models are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checks::{Numbers, Range};
use crate::error::{Error, Result};
use crate::json::value;
use crate::profile::MOST_CANDIDATES;

/// Version of the file format.
pub const POLICY_SCHEMA: &str = "crossgate-policy/1";

value! {
    /// How relevant a candidate must be before anything decides about it, by its cosine.
    #[derive(Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Floors {
        /// The least cosine, in [-1, 1], where the section has no floor of its own; absent: none.
        pub default: Option<f64>,
        /// The least cosine by section.
        pub sections: BTreeMap<String, f64>,
        /// How far below the floor a candidate may lie where the retrieval is graded C, D or F.
        pub relax: f64,
        /// How many candidates more stage 2 reads then.
        pub widen: usize,
    }
}

value! {
    /// The lexical fast path: BM25 alone may name a winner.
    #[derive(Copy, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Lexical {
        /// The winner's least BM25 score; at least 0.
        pub score: f64,
        /// Its least lead in BM25 over the next; at least 0.
        pub lead: f64,
    }
}

value! {
    /// When a result carries a warning; a threshold that is absent is off.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Warnings {
        /// `flat_scores` where the rerank scores' standard deviation is smaller; at least 0.
        pub flat_scores: Option<f64>,
        /// `weak_retrieval` where the best cosine is lower; in [-1, 1].
        pub weak_cosine: Option<f64>,
        /// `weak_retrieval` where the best rerank score is lower.
        pub weak_rerank_score: Option<f64>,
    }
}

value! {
    /// What a person chooses, whatever the models are; the default chooses nothing.
    #[derive(PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Policy {
        /// How relevant a candidate must be at all.
        pub floors: Floors,
        /// How many candidates from the top always stay where the tail below a score cliff is
        /// cut, from 1 to 1,000,000; absent: nothing is cut.
        pub cliff_core: Option<usize>,
        /// The key of a document's metadata that holds the type of its source: no cut below a
        /// cliff takes the last candidate of a type.
        pub source_type: String,
        /// When BM25 alone names a winner; absent: never.
        pub lexical: Option<Lexical>,
        /// The least combined score of a pick, where the reranker is the profile's; absent: none.
        pub rerank_min: Option<f64>,
        /// The least blend of a pick, in [-1, 1], whatever the reranker says; absent: none.
        pub agreement: Option<f64>,
        /// When a result carries a warning.
        pub warnings: Warnings,
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            floors: Floors::default(),
            cliff_core: None,
            source_type: "source_type".to_owned(),
            lexical: None,
            rerank_min: None,
            agreement: None,
            warnings: Warnings::default(),
        }
    }
}

impl Policy {
    /// Fails with `policy_malformed` for a number outside of its range.
    pub fn check(&self) -> Result<()> {
        let numbers = Numbers { malformed: |message| Error::profile("policy_malformed", message) };
        numbers.range("floors.default", self.floors.default, Range::Cosine)?;
        for (section, floor) in &self.floors.sections {
            numbers.range(&format!("floors.sections.{section}"), Some(*floor), Range::Cosine)?;
        }
        numbers.range("floors.relax", Some(self.floors.relax), Range::From0)?;
        numbers.count("floors.widen", self.floors.widen, 0, MOST_CANDIDATES)?;
        if let Some(core) = self.cliff_core {
            numbers.count("cliff_core", core, 1, MOST_CANDIDATES)?;
        }
        numbers.range("lexical.score", self.lexical.map(|one| one.score), Range::From0)?;
        numbers.range("lexical.lead", self.lexical.map(|one| one.lead), Range::From0)?;
        numbers.range("rerank_min", self.rerank_min, Range::Weight)?;
        numbers.range("agreement", self.agreement, Range::Cosine)?;
        numbers.range("warnings.flat_scores", self.warnings.flat_scores, Range::From0)?;
        numbers.range("warnings.weak_cosine", self.warnings.weak_cosine, Range::Cosine)?;
        numbers.range("warnings.weak_rerank_score", self.warnings.weak_rerank_score, Range::Weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_range_is_named() {
        Policy::default().check().unwrap();
        for (json, message) in [
            (r#"{"floors": {"default": 1.5}}"#, "floors.default is 1.5"),
            (r#"{"floors": {"sections": {"exit": -2}}}"#, "floors.sections.exit is -2"),
            (r#"{"floors": {"relax": -1}}"#, "floors.relax is -1"),
            (r#"{"floors": {"widen": 2000000}}"#, "floors.widen is 2000000"),
            (r#"{"cliff_core": 0}"#, "cliff_core is 0"),
            (r#"{"lexical": {"score": -1, "lead": 0}}"#, "lexical.score is -1"),
            (r#"{"lexical": {"score": 1}}"#, "lead"),
            (r#"{"agreement": 2}"#, "agreement is 2"),
            (r#"{"warnings": {"flat_scores": -1}}"#, "warnings.flat_scores is -1"),
            (r#"{"flour": 1}"#, "flour"),
        ] {
            let error = crate::json::read::<Policy>(json)
                .map_err(|why| Error::profile("policy_malformed", why))
                .and_then(|policy| policy.check())
                .unwrap_err();
            assert_eq!(error.code(), "policy_malformed");
            assert!(error.to_string().contains(message), "{error}: {message}");
        }
    }
}
