//! The policy: settings that a person chooses, independent of the models.

use std::collections::BTreeMap;

use crate::checks::{Range, check_count};
use crate::error::{Format, Result};
use crate::json::{self, value};
use crate::profile::MOST_CANDIDATES;

value! {
    /// Least cosines of candidates, by section.
    #[derive(Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Floors {
        /// The least cosine, in [-1, 1], in sections without their own floor; absent: no floor.
        pub default: Option<f64>,
        /// The least cosine by section, in [-1, 1].
        pub sections: BTreeMap<String, f64>,
        /// How far the floor is lowered if the retrieval is graded C, D or F.
        pub relax: f64,
        /// Number of additional candidates that stage 2 then reads.
        pub widen: usize,
    }
}

value! {
    /// Conditions under which BM25 alone decides the winner.
    #[derive(Copy, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Lexical {
        /// The winner's least BM25 score; at least 0.
        pub score: f64,
        /// The least difference to the next best BM25 score; at least 0.
        pub margin: f64,
    }
}

value! {
    /// Thresholds for warnings. An absent threshold is off.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Warnings {
        /// `flat_scores` if the standard deviation of the rerank scores is smaller; at least 0.
        pub flat_scores: Option<f64>,
        /// `weak_retrieval` if the best cosine is lower; in [-1, 1].
        pub weak_cosine: Option<f64>,
        /// `weak_retrieval` if the best rerank score is lower.
        pub weak_rerank_score: Option<f64>,
    }
}

value! {
    /// Settings that a person chooses, independent of the models. By default all are off.
    #[derive(PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Policy {
        /// Least cosines of candidates.
        pub floors: Floors,
        /// Number of first candidates that stay if the pool is cut below a score cliff, from 1 to
        /// 1,000,000; absent: no pool is cut.
        pub cliff_core: Option<usize>,
        /// Key in the metadata of a document for the type of its source. A cut below a cliff keeps
        /// at least one candidate of each type.
        pub source_type: String,
        /// When BM25 alone decides the winner; absent: never.
        pub lexical: Option<Lexical>,
        /// The least combined score of a selected candidate, if the profile was fitted for the
        /// reranker; absent: no minimum.
        pub rerank_min: Option<f64>,
        /// The largest difference between the combined score of a selected candidate and the best
        /// one, at least 0, if the profile was fitted for the reranker; absent: no maximum.
        pub rerank_margin: Option<f64>,
        /// The least blend of a selected candidate, in [-1, 1]; absent: no minimum.
        pub agreement: Option<f64>,
        /// Thresholds for warnings.
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
            rerank_margin: None,
            agreement: None,
            warnings: Warnings::default(),
        }
    }
}

impl Policy {
    /// Reads a policy from JSON and checks it.
    ///
    /// Fails with `policy_malformed`.
    ///
    /// # Examples
    ///
    /// ```
    /// use crossgate_core::policy::Policy;
    ///
    /// let policy = Policy::from_json(r#"{"floors": {"default": 0.3}, "agreement": 0.2}"#)?;
    /// assert_eq!((policy.floors.default, policy.lexical), (Some(0.3), None));
    /// # Ok::<(), crossgate_core::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let policy: Self = json::read(text).map_err(|error| error.within(Format::Policy))?;
        policy.check()?;
        Ok(policy)
    }

    /// Fails with `policy_malformed` for a number outside of its range.
    pub fn check(&self) -> Result<()> {
        self.check_numbers().map_err(|error| error.within(Format::Policy))
    }

    fn check_numbers(&self) -> Result<()> {
        Range::Cosine.check("floors.default", self.floors.default)?;
        for (section, floor) in &self.floors.sections {
            Range::Cosine.check(&format!("floors.sections.{section}"), *floor)?;
        }
        Range::NotNegative.check("floors.relax", self.floors.relax)?;
        check_count("floors.widen", self.floors.widen, 0, MOST_CANDIDATES)?;
        if let Some(core) = self.cliff_core {
            check_count("cliff_core", core, 1, MOST_CANDIDATES)?;
        }
        if let Some(lexical) = self.lexical {
            Range::NotNegative.check("lexical.score", lexical.score)?;
            Range::NotNegative.check("lexical.margin", lexical.margin)?;
        }
        Range::Weight.check("rerank_min", self.rerank_min)?;
        Range::NotNegative.check("rerank_margin", self.rerank_margin)?;
        Range::Cosine.check("agreement", self.agreement)?;
        let Warnings { flat_scores, weak_cosine, weak_rerank_score } = self.warnings;
        Range::NotNegative.check("warnings.flat_scores", flat_scores)?;
        Range::Cosine.check("warnings.weak_cosine", weak_cosine)?;
        Range::Weight.check("warnings.weak_rerank_score", weak_rerank_score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_number_out_of_range() {
        Policy::default().check().unwrap();
        for (json, message) in [
            (r#"{"floors": {"default": 1.5}}"#, "floors.default is 1.5"),
            (r#"{"floors": {"sections": {"exit": -2}}}"#, "floors.sections.exit is -2"),
            (r#"{"floors": {"relax": -1}}"#, "floors.relax is -1"),
            (r#"{"floors": {"widen": 2000000}}"#, "floors.widen is 2000000"),
            (r#"{"cliff_core": 0}"#, "cliff_core is 0"),
            (r#"{"lexical": {"score": -1, "margin": 0}}"#, "lexical.score is -1"),
            (r#"{"lexical": {"score": 1}}"#, "margin"),
            (r#"{"agreement": 2}"#, "agreement is 2"),
            (r#"{"warnings": {"flat_scores": -1}}"#, "warnings.flat_scores is -1"),
            (r#"{"flour": 1}"#, "flour"),
        ] {
            let error = Policy::from_json(json).unwrap_err();
            assert_eq!(error.code(), "policy_malformed");
            assert!(error.to_string().contains(message), "{error}: {message}");
        }
    }
}
