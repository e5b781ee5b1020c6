//! The profile: every number that was fitted to labelled data, for one pair of models.

use serde::{Deserialize, Serialize};

use crate::checks::{Numbers, Range};
use crate::error::{Error, Result};
use crate::json::{Json, value};
use crate::stage1::Blend;

/// Version of the file format.
pub const PROFILE_SCHEMA: &str = "crossgate-profile/2";

/// The most candidates that a profile may ask for.
pub const MOST_CANDIDATES: usize = 1_000_000;

value! {
    /// How the reranker's scores and stage 1 become one order.
    #[derive(Copy, PartialEq)]
    #[serde(tag = "mode", rename_all = "lowercase", deny_unknown_fields)]
    pub enum Combine {
        /// The reranker's scores alone.
        Replace {},
        /// Reciprocal rank fusion of both orders: the sum of 1 / (k + rank), ranks from 1.
        ///
        /// Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion Outperforms Condorcet and
        /// Individual Rank Learning Methods" (2009).
        Rrf {
            /// How little the first ranks stand out, above 0; 60 in the paper.
            k: f64,
        },
        /// A weighted sum of the blend and the reranker's score, each as standard scores of the
        /// candidates: (s - mean) / standard deviation, 0 where all are equal.
        ///
        /// It keeps how far scores are apart, which ranks do not, and asks nothing of their scale:
        /// "ZMUV" of Montague and Aslam, "Relevance Score Normalization for Metasearch" (2001).
        #[serde(rename = "z_score")]
        ZScore {
            /// Weight of the reranker's standard score; that of the blend is 1.
            rerank_score: f64,
        },
        /// A weighted sum of cosine, bounded BM25 and the reranker's score.
        Weighted {
            /// Weight of the cosine.
            cosine: f64,
            /// Weight of the bounded BM25 score.
            bm25: f64,
            /// Weight of the reranker's raw score.
            rerank_score: f64,
        },
    }
}

impl Default for Combine {
    /// Ranks alone: right for a reranker whose scores nobody has looked at.
    fn default() -> Self {
        Self::Rrf { k: 60.0 }
    }
}

value! {
    /// A logistic model of stage 1: how probable it is that its first candidate fits.
    ///
    /// The log-odds are the intercept plus each weight times its signal.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Stage1Confidence {
        /// Log-odds where every signal is 0.
        pub intercept: f64,
        /// Weight of the best cosine.
        pub cosine: f64,
        /// Weight of ln(1 + the best BM25 score).
        pub bm25: f64,
        /// Weight of the lead of the best blend over the next.
        pub lead: f64,
        /// Weight of 1 where cosine and BM25 agree on the first candidate, else 0.
        pub agreement: f64,
    }
}

value! {
    /// The same for what both stages saw.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Stage2Confidence {
        /// Log-odds where every signal is 0.
        pub intercept: f64,
        /// Weight of the best cosine.
        pub cosine: f64,
        /// Weight of ln(1 + the best BM25 score).
        pub bm25: f64,
        /// Weight of the lead of the best blend over the next.
        pub lead: f64,
        /// Weight of 1 where cosine and BM25 agree on the first candidate, else 0.
        pub agreement: f64,
        /// Weight of the first candidate's rerank score.
        pub rerank_score: f64,
        /// Weight of the lead of the best combined score over the next.
        pub score_lead: f64,
        /// Weight of 1 where both stages have the same first candidate, else 0.
        pub same_first: f64,
    }
}

value! {
    /// The models of both stages; without one, nothing is known of that stage.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Confidence {
        /// After stage 1.
        pub stage1: Option<Stage1Confidence>,
        /// After stage 2.
        pub stage2: Option<Stage2Confidence>,
    }
}

value! {
    /// How probable an answer must be; a threshold that is absent is off.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Answer {
        /// Below this stage-1 probability, in [0, 1], nothing is relevant and stage 2 is not asked.
        pub rerank_threshold: Option<f64>,
        /// Below this probability, in [0, 1], stage 1 has no winner and no stage an answer.
        pub threshold: Option<f64>,
    }
}

value! {
    /// A logistic model of one candidate after stage 1: how probable it is that it fits, whatever
    /// the others are like.
    ///
    /// The log-odds are the intercept plus each weight times its score.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Stage1Relevance {
        /// Log-odds where every score is 0.
        pub intercept: f64,
        /// Weight of the cosine.
        pub cosine: f64,
        /// Weight of ln(1 + the BM25 score).
        pub bm25: f64,
    }
}

value! {
    /// The same for a candidate that stage 2 has read.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Stage2Relevance {
        /// Log-odds where every score is 0.
        pub intercept: f64,
        /// Weight of the cosine.
        pub cosine: f64,
        /// Weight of ln(1 + the BM25 score).
        pub bm25: f64,
        /// Weight of the rerank score.
        pub rerank_score: f64,
    }
}

value! {
    /// How relevant each candidate is; without a model, nothing is known after that stage.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Relevance {
        /// Of candidates that stage 2 has not read.
        pub stage1: Option<Stage1Relevance>,
        /// Of those that it has.
        pub stage2: Option<Stage2Relevance>,
        /// Below this probability, in [0, 1], a candidate is not selected.
        pub threshold: Option<f64>,
    }
}

value! {
    /// The least lead in blend of a confident winner; without one, stage 2 is always asked.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Winner {
        /// Where cosine and BM25 agree on the winner; at least 0.
        pub agreed: Option<f64>,
        /// Where they do not; never below `agreed`.
        pub disagreed: Option<f64>,
    }
}

value! {
    /// The largest lead of the first candidate under which a further one is selected as well.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Second {
        /// In blend, where stage 1 decides; at least 0. Absent: no limit.
        pub stage1: Option<f64>,
        /// In combined score, where stage 2 had its say; at least 0. Absent: no limit.
        pub stage2: Option<f64>,
    }
}

value! {
    /// Every number that was fitted to labelled data, for one pair of models.
    ///
    /// The default is what is right for models that nobody fitted: every query is reranked, the
    /// orders are fused by rank, and all candidates come back.
    #[derive(PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Profile {
        /// What messages call it.
        pub name: String,
        /// Identity of the embedder that it was fitted for; absent for any.
        pub embedder: Option<String>,
        /// Identity of the reranker that it was fitted for; absent for any.
        pub reranker: Option<String>,
        /// How cosine and BM25 become the score of stage 1.
        pub blend: Blend,
        /// How the reranker's scores and stage 1 become one order.
        pub combine: Combine,
        /// How many candidates cosine, BM25 and their blend each bring in, from 2 to 1,000,000.
        pub per_channel: usize,
        /// How many of them, best blend first, stage 2 reads, from 1 to 1,000,000.
        pub pool: usize,
        /// How probable it is that the first candidate fits.
        pub confidence: Confidence,
        /// How probable an answer must be.
        pub answer: Answer,
        /// When stage 1 has a confident winner.
        pub winner: Winner,
        /// When a further candidate is selected beside the first.
        pub second: Second,
        /// How relevant each candidate is.
        pub relevance: Relevance,
        /// Fingerprints of the documents that it was fitted on; empty for any.
        pub corpora: Vec<String>,
        /// How the numbers were found: a JSON object for people.
        pub fitted: Json,
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: "ungated".to_owned(),
            embedder: None,
            reranker: None,
            blend: Blend::default(),
            combine: Combine::default(),
            per_channel: 10,
            pool: 20,
            confidence: Confidence::default(),
            answer: Answer::default(),
            winner: Winner::default(),
            second: Second::default(),
            relevance: Relevance::default(),
            corpora: Vec::new(),
            fitted: Json::default(),
        }
    }
}

impl Profile {
    /// Whether the numbers hold for the scores of a reranker of this identity.
    pub fn fits(&self, reranker: Option<&str>) -> bool {
        self.reranker.is_none() || self.reranker.as_deref() == reranker
    }

    /// Fails with `profile_malformed` for a number outside of its range.
    pub fn check(&self) -> Result<()> {
        let numbers = Numbers { malformed: |message| Error::profile("profile_malformed", message) };
        self.blend
            .check()
            .map_err(|error| Error::profile("profile_malformed", error.to_string()))?;
        for (name, value, least) in [("per_channel", self.per_channel, 2), ("pool", self.pool, 1)] {
            numbers.count(name, value, least, MOST_CANDIDATES)?;
        }
        match self.combine {
            Combine::Replace {} => {}
            Combine::Rrf { k } => numbers.range("combine.k", Some(k), Range::Above0)?,
            Combine::ZScore { rerank_score } => {
                numbers.range("combine.rerank_score", Some(rerank_score), Range::Weight)?;
            }
            Combine::Weighted { cosine, bm25, rerank_score } => {
                for (name, weight) in [
                    ("combine.cosine", cosine),
                    ("combine.bm25", bm25),
                    ("combine.rerank_score", rerank_score),
                ] {
                    numbers.range(name, Some(weight), Range::Weight)?;
                }
            }
        }
        numbers.range("answer.rerank_threshold", self.answer.rerank_threshold, Range::Share)?;
        numbers.range("answer.threshold", self.answer.threshold, Range::Share)?;
        numbers.range("relevance.threshold", self.relevance.threshold, Range::Share)?;
        numbers.range("winner.agreed", self.winner.agreed, Range::From0)?;
        numbers.range("winner.disagreed", self.winner.disagreed, Range::From0)?;
        numbers.range("second.stage1", self.second.stage1, Range::From0)?;
        numbers.range("second.stage2", self.second.stage2, Range::From0)?;
        match self.winner {
            Winner { disagreed: Some(disagreed), agreed }
                if agreed.is_none_or(|agreed| disagreed < agreed) =>
            {
                Err(numbers.wrong(&format!(
                    "winner.disagreed is {disagreed} and winner.agreed is {}: a winner on which \
                     cosine and BM25 disagree never needs a smaller lead than one on which they \
                     agree",
                    agreed.map_or("absent".to_owned(), |agreed| agreed.to_string())
                )))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> String {
        let error = crate::json::read::<Profile>(json)
            .map_err(|why| Error::profile("profile_malformed", why))
            .and_then(|profile| profile.check().map(|()| profile))
            .unwrap_err();
        assert_eq!(error.code(), "profile_malformed");
        error.to_string()
    }

    #[test]
    fn the_default_is_a_profile() {
        let default = Profile::default();
        default.check().unwrap();
        let text = serde_json::to_string(&default).unwrap();
        assert_eq!(crate::json::read::<Profile>(&text).unwrap(), default);
    }

    #[test]
    fn a_number_out_of_range_is_named() {
        for (json, message) in [
            (r#"{"pool": 0}"#, "pool is 0"),
            (r#"{"per_channel": 1}"#, "per_channel is 1"),
            (r#"{"pool": 1000001}"#, "pool is 1000001"),
            (r#"{"blend": {"pivot": 0}}"#, "pivot is 0"),
            (r#"{"combine": {"mode": "rrf", "k": 0}}"#, "combine.k is 0"),
            (r#"{"combine": {"mode": "sum"}}"#, "sum"),
            (
                r#"{"combine": {"mode": "z_score", "rerank_score": -1e101}}"#,
                "combine.rerank_score is -1e101",
            ),
            (r#"{"answer": {"threshold": 1.5}}"#, "answer.threshold is 1.5"),
            (r#"{"relevance": {"threshold": 2}}"#, "relevance.threshold is 2"),
            (r#"{"winner": {"agreed": -1}}"#, "winner.agreed is -1"),
            (r#"{"winner": {"disagreed": 0.1}}"#, "winner.agreed is absent"),
            (r#"{"winner": {"agreed": 0.2, "disagreed": 0.1}}"#, "never needs a smaller lead"),
            (r#"{"second": {"stage2": -0.5}}"#, "second.stage2 is -0.5"),
            (r#"{"answer": {"treshold": 0.5}}"#, "treshold"),
            (r#"{"answer": {"threshold": "high"}}"#, "answer.threshold"),
            (
                r#"{"combine": {"mode": "weighted", "cosine": 1e200, "bm25": 1, "rerank_score": 1}}"#,
                "combine.cosine is 1e200",
            ),
        ] {
            let found = refused(json);
            assert!(found.contains(message), "{found}: {message}");
        }
    }

    #[test]
    fn disagreement_may_need_as_much_as_agreement() {
        let json = r#"{"winner": {"agreed": 0.1, "disagreed": 0.1}}"#;
        crate::json::read::<Profile>(json).unwrap().check().unwrap();
    }
}
