//! The profile: all numbers that are fitted to labelled data, for one pair of models.

use crate::checks::{Range, check_count};
use crate::error::{Format, Kind, Result};
use crate::evidence::EvidenceWeights;
use crate::json::{self, Json, value};
use crate::stage1::Blend;

/// The largest `per_channel` and `pool`.
pub const MOST_CANDIDATES: usize = 1_000_000;

value! {
    /// How rerank scores and stage 1 are combined into one order.
    #[derive(Copy, PartialEq)]
    #[serde(tag = "mode", rename_all = "lowercase", deny_unknown_fields)]
    pub enum Combine {
        /// The rerank scores alone.
        Replace {},
        /// Reciprocal rank fusion of both orders: the sum of 1 / (k + rank), ranks from 1.
        ///
        /// Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion Outperforms Condorcet and
        /// Individual Rank Learning Methods" (2009).
        Rrf {
            /// Smoothing constant, above 0: the larger, the closer the first ranks. 60 in the paper.
            k: f64,
        },
        /// A weighted sum of blend and rerank score, each as standard scores of the candidates:
        /// (s - mean) / standard deviation, 0 if all are equal.
        ///
        /// It depends on the differences of scores, unlike ranks, and not on their scale: "ZMUV" of
        /// Montague and Aslam, "Relevance Score Normalization for Metasearch" (2001).
        #[serde(rename = "z_score")]
        ZScore {
            /// Weight of the standardised rerank score; that of the blend is 1.
            rerank_score: f64,
        },
        /// A weighted sum of cosine, bounded BM25 and rerank score.
        Weighted {
            /// Weight of the cosine.
            cosine: f64,
            /// Weight of the bounded BM25 score.
            bm25: f64,
            /// Weight of the raw rerank score.
            rerank_score: f64,
        },
    }
}

impl Default for Combine {
    /// Fusion by rank, which suits a reranker whose scores have an unknown scale.
    fn default() -> Self {
        Self::Rrf { k: 60.0 }
    }
}

value! {
    /// Logistic model of the probability that any candidate fits, after stage 1.
    ///
    /// The log-odds are the intercept plus the sum of each weight times its signal.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Stage1AnyFits {
        /// Log-odds if every signal is 0.
        pub intercept: f64,
        /// Weight of the logarithm of the documents' mean weight by `relevance.stage1`.
        pub log_mean: f64,
        /// Weight of the best cosine.
        pub cosine: f64,
        /// Weight of the log-odds that the query needs a document. Absent: a need below 3 to 1 counts
        /// by Bayes' rule, and a higher one says nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub need: Option<f64>,
    }
}

value! {
    /// Logistic model of the probability that any candidate fits, after stage 2.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Stage2AnyFits {
        /// Log-odds if every signal is 0.
        pub intercept: f64,
        /// Weight of the logarithm of the documents' mean weight by `relevance.stage2`.
        pub log_mean: f64,
        /// Weight of the best cosine.
        pub cosine: f64,
        /// Weight of the first candidate's rerank score.
        pub rerank_score: f64,
        /// As in the model after stage 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub need: Option<f64>,
    }
}

value! {
    /// The models of the probability that any candidate fits. Without a model, it is taken to be 1.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct AnyFits {
        /// Model after stage 1.
        pub stage1: Option<Stage1AnyFits>,
        /// Model after stage 2.
        pub stage2: Option<Stage2AnyFits>,
    }
}

value! {
    /// Thresholds on probabilities. An absent threshold is off.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Answer {
        /// If the probability after stage 1 that any candidate fits is below this, in [0, 1], nothing
        /// is relevant and stage 2 is skipped.
        pub rerank_threshold: Option<f64>,
        /// If the probability that any candidate fits is below this, in [0, 1], stage 1 has no
        /// winner, and the final order no selection.
        pub threshold: Option<f64>,
        /// The same for the confidence, the probability that the first candidate fits.
        pub confidence: Option<f64>,
    }
}

value! {
    /// Log-weights of the candidates after stage 1, for the softmax that gives each its share.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Stage1Relevance {
        /// Log-odds of a candidate with a log-weight of 0, if several candidates of a query can fit:
        /// each then has a probability of its own. Absent: `any_fits` is shared among them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub intercept: Option<f64>,
        /// Weight of the cosine.
        pub cosine: f64,
        /// Weight of the bounded BM25 score.
        pub bm25: f64,
    }
}

value! {
    /// Log-weights of the candidates after stage 2.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Stage2Relevance {
        /// As in the model after stage 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub intercept: Option<f64>,
        /// Weight of the cosine.
        pub cosine: f64,
        /// Weight of the bounded BM25 score.
        pub bm25: f64,
        /// Weight of the rerank score.
        pub rerank_score: f64,
        /// Weight of the share of the query's information that the candidate covers.
        pub covered: f64,
        /// Weight of 1 minus the information of the rarest query word that the candidate lacks.
        pub rarest: f64,
        /// Weight of the share of the query's names, numbers, dates and versions that it has.
        pub facts: f64,
        /// Added for a candidate that stage 2 has not read, in place of the weighted rerank score.
        pub unread: f64,
    }
}

value! {
    /// How the probability that any candidate fits is shared among the candidates. Without weights,
    /// relevance and confidence are unknown.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Relevance {
        /// Weights after stage 1.
        pub stage1: Option<Stage1Relevance>,
        /// Weights after stage 2.
        pub stage2: Option<Stage2Relevance>,
        /// Below this relevance, in [0, 1], a candidate is not selected.
        pub threshold: Option<f64>,
    }
}

value! {
    /// What a shortlist of limited length promises.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Promise {
        /// The most candidates on the shortlist, at least 1.
        pub most: usize,
        /// The least share of a listed candidate behind the first, for coverages of 0.50, 0.51, ...
        /// up to 0.99 or to the highest that this length allows.
        pub least_shares: Vec<f64>,
    }
}

value! {
    /// The shortlist. Without promises there is none.
    #[derive(PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Shortlist {
        /// If the probability that any candidate fits is below this, in [0, 1], the shortlist is
        /// empty. Absent: never.
        pub least: Option<f64>,
        /// The coverage of a request that names none, in (0, 1).
        pub coverage: f64,
        /// The most candidates of a request that names no number, from 1 to 1,000,000.
        pub most: usize,
        /// Promises after stage 1, the shortest list first.
        pub stage1: Vec<Promise>,
        /// Promises after stage 2.
        pub stage2: Vec<Promise>,
    }
}

impl Default for Shortlist {
    fn default() -> Self {
        Self { least: None, coverage: 0.9, most: 5, stage1: Vec::new(), stage2: Vec::new() }
    }
}

value! {
    /// The least margin in blend of a confident winner. Without a margin, stage 2 always decides.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Winner {
        /// Margin if cosine and BM25 agree on the winner; at least 0.
        pub agreed: Option<f64>,
        /// Margin if they disagree; at least `agreed`.
        pub disagreed: Option<f64>,
    }
}

value! {
    /// The largest difference to the first candidate with which a further candidate is selected.
    #[derive(Copy, Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct RunnerUpRule {
        /// Difference in blend, if stage 1 decides; at least 0. Absent: no limit.
        pub stage1: Option<f64>,
        /// Difference in combined score, if stage 2 decides; at least 0. Absent: no limit.
        pub stage2: Option<f64>,
    }
}

value! {
    /// A model of rerank scores before they are known, and when to stop reading.
    #[derive(Copy, Default, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Anytime {
        /// Predicted rerank score if every stage-1 score is 0.
        pub intercept: f64,
        /// Weight of the cosine.
        pub cosine: f64,
        /// Weight of ln(1 + the BM25 score).
        pub bm25: f64,
        /// Standard deviation of the residuals, above 0.
        pub deviation: f64,
        /// Share of the residuals' variance that candidates of one query have in common, in [0, 1].
        pub shared: f64,
        /// Reading stops below this probability, in [0, 1], that the first pick changes.
        pub stop: f64,
    }
}

impl Anytime {
    /// Fails with `out_of_range` for a number outside of its range.
    pub(crate) fn check(&self) -> Result<()> {
        Range::Weight.check("anytime.intercept", self.intercept)?;
        Range::Weight.check("anytime.cosine", self.cosine)?;
        Range::Weight.check("anytime.bm25", self.bm25)?;
        Range::Positive.check("anytime.deviation", self.deviation)?;
        Range::Probability.check("anytime.shared", self.shared)?;
        Range::Probability.check("anytime.stop", self.stop)
    }
}

value! {
    /// All numbers that are fitted to labelled data, for one pair of models.
    ///
    /// The default suits models without fitted numbers: every query is reranked, the orders are
    /// fused by rank, and all candidates are returned.
    #[derive(PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Profile {
        /// Name for messages.
        pub name: String,
        /// Identity of the embedder that the numbers are for; absent: any.
        pub embedder: Option<String>,
        /// Identity of the reranker that the numbers are for; absent: any.
        pub reranker: Option<String>,
        /// Whether the numbers are for prompts of a session with an agent, most of which need no
        /// document; otherwise they are for queries to a router.
        pub session: bool,
        /// How cosine and BM25 are combined into the score of stage 1.
        pub blend: Blend,
        /// How much evidence counts, in the order and in the probabilities.
        pub evidence: EvidenceWeights,
        /// How rerank scores and stage 1 are combined into one order.
        pub combine: Combine,
        /// Number of best candidates by cosine, by BM25 and by blend that stage 1 finds, from 2 to
        /// 1,000,000.
        pub per_channel: usize,
        /// Number of candidates, best blend first, that stage 2 reads, from 1 to 1,000,000.
        pub pool: usize,
        /// Models of the probability that any candidate fits.
        pub any_fits: AnyFits,
        /// Thresholds on the probabilities.
        pub answer: Answer,
        /// Margins of a confident winner of stage 1.
        pub winner: Winner,
        /// How close a further candidate must be to the first.
        pub runner_up: RunnerUpRule,
        /// How the probability is shared among the candidates.
        pub relevance: Relevance,
        /// When stage 2 stops reading; absent: it reads the whole pool.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub anytime: Option<Anytime>,
        /// What a shortlist promises.
        pub shortlist: Shortlist,
        /// Fingerprints of the document collections that the numbers are for; empty: any.
        pub corpora: Vec<String>,
        /// How the numbers were fitted: a JSON object for people.
        pub fitted: Json,
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: "ungated".to_owned(),
            embedder: None,
            reranker: None,
            session: false,
            blend: Blend::default(),
            evidence: EvidenceWeights {
                trigger: 3.0,
                example: 16.0,
                counterexample: -16.0,
                technology: 2.0,
                other_technology: 0.0,
                other_version: -6.0,
                usefulness: 0.0,
                plain_name: -4.0,
                acts: -6.3,
                reads: -1.8,
                other_date: -4.0,
            },
            combine: Combine::default(),
            per_channel: 10,
            pool: 20,
            any_fits: AnyFits::default(),
            answer: Answer::default(),
            winner: Winner::default(),
            runner_up: RunnerUpRule::default(),
            relevance: Relevance::default(),
            anytime: None,
            shortlist: Shortlist::default(),
            corpora: Vec::new(),
            fitted: Json::default(),
        }
    }
}

impl Profile {
    /// Whether the profile was fitted for the reranker with this identity.
    pub fn fits(&self, reranker: Option<&str>) -> bool {
        self.reranker.is_none() || self.reranker.as_deref() == reranker
    }

    /// Reads a profile from JSON and checks it.
    ///
    /// Fails with `profile_malformed`.
    ///
    /// # Examples
    ///
    /// ```
    /// use crossgate_core::profile::Profile;
    ///
    /// let profile = Profile::from_json(r#"{"name": "mine", "answer": {"threshold": 0.6}}"#)?;
    /// assert_eq!((profile.answer.threshold, profile.pool), (Some(0.6), 20));
    ///
    /// let error = Profile::from_json(r#"{"answer": {"threshold": 60}}"#).unwrap_err();
    /// assert_eq!(error.code(), "profile_malformed");
    /// assert_eq!(error.to_string(), "answer.threshold is 60: it must be from 0 to 1");
    /// # Ok::<(), crossgate_core::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let profile: Self = json::read(text).map_err(|error| error.within(Format::Profile))?;
        profile.check()?;
        Ok(profile)
    }

    /// Fails with `profile_malformed` for a number outside of its range.
    pub fn check(&self) -> Result<()> {
        self.check_numbers().map_err(|error| error.within(Format::Profile))
    }

    fn check_numbers(&self) -> Result<()> {
        self.blend.check()?;
        self.evidence.check()?;
        check_count("per_channel", self.per_channel, 2, MOST_CANDIDATES)?;
        check_count("pool", self.pool, 1, MOST_CANDIDATES)?;
        match self.combine {
            Combine::Replace {} => {}
            Combine::Rrf { k } => Range::Positive.check("combine.k", k)?,
            Combine::ZScore { rerank_score } => {
                Range::Weight.check("combine.rerank_score", rerank_score)?;
            }
            Combine::Weighted { cosine, bm25, rerank_score } => {
                Range::Weight.check("combine.cosine", cosine)?;
                Range::Weight.check("combine.bm25", bm25)?;
                Range::Weight.check("combine.rerank_score", rerank_score)?;
            }
        }
        if let Some(anytime) = &self.anytime {
            anytime.check()?;
        }
        let Answer { rerank_threshold, threshold, confidence } = self.answer;
        Range::Probability.check("answer.rerank_threshold", rerank_threshold)?;
        Range::Probability.check("answer.threshold", threshold)?;
        Range::Probability.check("answer.confidence", confidence)?;
        Range::Probability.check("relevance.threshold", self.relevance.threshold)?;
        self.shortlist.check()?;
        let Winner { agreed, disagreed } = self.winner;
        Range::NotNegative.check("winner.agreed", agreed)?;
        Range::NotNegative.check("winner.disagreed", disagreed)?;
        Range::NotNegative.check("runner_up.stage1", self.runner_up.stage1)?;
        Range::NotNegative.check("runner_up.stage2", self.runner_up.stage2)?;
        match disagreed {
            Some(disagreed) if agreed.is_none_or(|agreed| disagreed < agreed) => {
                Err(Kind::WinnerMargins { agreed, disagreed }.into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> String {
        let error = Profile::from_json(json).unwrap_err();
        assert_eq!(error.code(), "profile_malformed");
        error.to_string()
    }

    #[test]
    fn the_default_is_valid_and_survives_json() {
        let default = Profile::default();
        let text = serde_json::to_string(&default).unwrap();
        assert_eq!(Profile::from_json(&text).unwrap(), default);
    }

    #[test]
    fn errors_name_the_number_out_of_range() {
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
            (r#"{"winner": {"agreed": 0.2, "disagreed": 0.1}}"#, "never needs a smaller margin"),
            (r#"{"runner_up": {"stage2": -0.5}}"#, "runner_up.stage2 is -0.5"),
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
    fn both_margins_of_a_winner_can_be_equal() {
        let json = r#"{"winner": {"agreed": 0.1, "disagreed": 0.1}}"#;
        Profile::from_json(json).unwrap();
    }
}
