//! Probabilities: whether any candidate fits, and how probably each of them fits.
//!
//! A softmax over the candidates' log-weights gives each its share, the probability that it fits,
//! given that any candidate does. A logistic model gives the probability that any fits, from
//! the mean weight of all documents, so that it is comparable between libraries of any size. Their
//! product is the relevance of a candidate. Where several candidates of a query can fit, as passages
//! do, a profile has an intercept instead, and each candidate a relevance of its own.

use std::collections::{BTreeMap, HashMap};

use crate::error::Result;
use crate::profile::{
    AnyFits, Profile, Relevance, Stage1AnyFits, Stage1Relevance, Stage2AnyFits, Stage2Relevance,
};
use crate::signals::{Signals, signals};
use crate::stage1::{Scored, best_first};

/// Logarithm of the mean weight of `documents` documents without evidence, the signal of [`AnyFits`],
/// and what evidence adds to it; none without weights or a cosine that they need.
///
/// A document that is not a candidate has a weight of 0. With rerank scores, by id of the candidate,
/// the weights are those after stage 2.
pub fn log_mean(
    scored: &[Scored],
    rerank_scores: Option<&BTreeMap<String, f64>>,
    documents: usize,
    profile: &Profile,
) -> Option<(f64, f64)> {
    let candidates: Vec<(usize, &Scored)> = scored.iter().enumerate().collect();
    let shares = match rerank_scores {
        None => profile.relevance.after_stage1(&candidates, profile),
        Some(read) => {
            let read = read.iter().map(|(id, score)| (id.as_str(), *score)).collect();
            profile.relevance.after_stage2(&candidates, &read, profile)
        }
    };
    shares.map(|shares| (shares.log_mean(documents.max(scored.len())), shares.evidence))
}

/// The smallest number of documents that the mean is taken over. In smaller libraries, most prompts
/// of a conversation need no document, which the fitted sets do not show.
const LEAST_DOCUMENTS: usize = 32;

/// The probability after stage 1 that the candidate with the best blend fits a query that needs a
/// document; none without candidates or a model.
///
/// `documents` is the number of documents that stage 1 compared with the query. Fails with
/// `not_finite` if a score is not finite.
pub fn standing(scored: &[Scored], documents: usize, profile: &Profile) -> Result<Option<f64>> {
    let candidates: Vec<(usize, &Scored)> = scored.iter().enumerate().collect();
    let best = scored.iter().enumerate().min_by(|(_, left), (_, right)| {
        best_first((left.blend, &left.id), (right.blend, &right.id))
    });
    let signals = signals(scored)?
        .map(|signals| Signals { documents: documents.max(scored.len()), ..signals });
    let known = Probabilities::after_stage1(&candidates, signals.as_ref(), profile);
    Ok(best.and_then(|(position, _)| known.relevance(position)))
}

/// Below these odds of a need, 3 to 1, a query counts as a query that possibly needs no document.
///
/// Among requests a lower need is more probable for a match than for none, so higher odds say
/// nothing.
const CLEAR_NEED: f64 = 3.0;

/// The largest log-odds of a need that count.
const MOST_NEED: f64 = 12.0;

/// The probabilities of a query's candidates after one stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Probabilities {
    /// Probability that any candidate fits; none without a model.
    pub(crate) any_fits: Option<f64>,
    /// The share of each candidate, by its position in the order of stage 1.
    shares: HashMap<usize, f64>,
    /// Probability that each candidate fits, by its position.
    relevances: HashMap<usize, f64>,
}

impl Probabilities {
    /// The probabilities after stage 1 of candidates at their positions.
    pub(crate) fn after_stage1(
        candidates: &[(usize, &Scored)],
        signals: Option<&Signals>,
        profile: &Profile,
    ) -> Self {
        let shares = profile.relevance.after_stage1(candidates, profile);
        let any_fits =
            signals.and_then(|signals| profile.any_fits.after_stage1(signals, shares.as_ref()));
        let certain = profile.any_fits.stage1.is_none();
        let intercept = profile.relevance.stage1.and_then(|model| model.intercept);
        let need = signals.and_then(|signals| signals.needs_document);
        let relevances = match (&shares, intercept) {
            (Some(shares), Some(intercept)) => shares.each(intercept, need),
            (Some(shares), None) => shares.times(if certain { Some(1.0) } else { any_fits }),
            (None, _) => Vec::new(),
        };
        Self {
            any_fits,
            relevances: at_positions(candidates, relevances),
            shares: at_positions(candidates, shares.map(|of| of.probabilities).unwrap_or_default()),
        }
    }

    /// The probabilities after stage 2, given the scores of the fitted reranker by id of the
    /// candidate, and the score of the first candidate.
    ///
    /// Without a model of stage 2, the probabilities are those after stage 1.
    pub(crate) fn after_stage2(
        candidates: &[(usize, &Scored)],
        scores: &HashMap<&str, f64>,
        first_score: f64,
        signals: &Signals,
        profile: &Profile,
    ) -> Self {
        let Some(model) = profile.relevance.stage2 else {
            return Self::after_stage1(candidates, Some(signals), profile);
        };
        let shares = profile.relevance.after_stage2(candidates, scores, profile);
        let any_fits = match profile.any_fits.stage2 {
            Some(model) => model.probability(signals, shares.as_ref(), first_score),
            None => Self::after_stage1(candidates, Some(signals), profile).any_fits,
        };
        let certain = profile.any_fits.stage1.is_none() && profile.any_fits.stage2.is_none();
        let mut relevances = match (&shares, model.intercept) {
            (Some(shares), Some(intercept)) => shares.each(intercept, signals.needs_document),
            (Some(shares), None) => shares.times(if certain { Some(1.0) } else { any_fits }),
            (None, _) => Vec::new(),
        };
        if model.intercept.is_some() {
            // Nothing is known about a candidate on its own that stage 2 has not read.
            for ((_, candidate), relevance) in candidates.iter().zip(&mut relevances) {
                *relevance = relevance.filter(|_| scores.contains_key(candidate.id.as_str()));
            }
        }
        Self {
            any_fits,
            relevances: at_positions(candidates, relevances),
            shares: at_positions(candidates, shares.map(|of| of.probabilities).unwrap_or_default()),
        }
    }

    /// Probability that the candidate at a position fits, given that any does.
    pub(crate) fn share(&self, position: usize) -> Option<f64> {
        self.shares.get(&position).copied()
    }

    /// Probability that the candidate at a position fits.
    pub(crate) fn relevance(&self, position: usize) -> Option<f64> {
        self.relevances.get(&position).copied()
    }
}

fn at_positions(
    candidates: &[(usize, &Scored)],
    values: impl IntoIterator<Item = Option<f64>>,
) -> HashMap<usize, f64> {
    let positions = candidates.iter().map(|(position, _)| *position);
    positions.zip(values).filter_map(|(position, value)| Some((position, value?))).collect()
}

/// The logarithm of a candidate's weight, in three parts.
#[derive(Clone, Copy, Debug)]
struct LogWeight {
    /// By its scores, and in a session by how much such prompts ask for what the document does.
    text: f64,
    /// By the technologies of a session's project, and by whether query and tool read or act. It
    /// orders the candidates, and does not change the probability that any of them fits.
    known_before: f64,
    /// By the other evidence.
    evidence: f64,
}

impl LogWeight {
    fn new(text: f64, candidate: &Scored, profile: &Profile) -> Self {
        let (weights, evidence) = (&profile.evidence, &candidate.evidence);
        let (usefulness, project) = if profile.session {
            let technology = weights.technology * evidence.technology
                + weights.other_technology * evidence.other_technology;
            (weights.usefulness * evidence.usefulness, technology)
        } else {
            (0.0, 0.0)
        };
        let known_before = project + weights.acts * evidence.acts + weights.reads * evidence.reads;
        let evidence = weights.log_odds(evidence) - known_before - usefulness;
        Self { text: text + usefulness, known_before, evidence }
    }
}

/// The shares of a query's candidates, and how large their weights are in all.
#[derive(Clone, Debug, PartialEq)]
struct Shares {
    /// Logarithm of the weight of each candidate.
    log_weights: Vec<f64>,
    /// Probability that each candidate fits, given that any does; they sum to 1.
    probabilities: Vec<Option<f64>>,
    /// Logarithm of the sum of the candidates' weights without evidence.
    log_sum: f64,
    /// What evidence adds to the logarithm of the sum.
    evidence: f64,
}

impl Shares {
    /// The softmax of log-weights, each the sum of three parts; none without candidates or if a
    /// log-weight is not finite.
    fn of(candidates: &[LogWeight]) -> Option<Self> {
        let sum_of = |part: fn(&LogWeight) -> f64| {
            log_sum_exp(&candidates.iter().map(part).collect::<Vec<f64>>())
        };
        let all = |weight: &LogWeight| weight.text + weight.known_before + weight.evidence;
        let log_weights: Vec<f64> = candidates.iter().map(all).collect();
        let total = log_sum_exp(&log_weights)?;
        Some(Self {
            probabilities: log_weights.iter().map(|weight| Some((weight - total).exp())).collect(),
            log_weights,
            log_sum: sum_of(|weight| weight.text)?,
            evidence: total - sum_of(|weight| weight.text + weight.known_before)?,
        })
    }

    /// Logarithm of the mean weight of the documents without evidence.
    ///
    /// If each document is equally likely to fit, the odds that any fits are in proportion
    /// to the mean of their likelihood ratios; the weights approximate these ratios.
    fn log_mean(&self, documents: usize) -> f64 {
        self.log_sum - (documents.max(LEAST_DOCUMENTS) as f64).ln()
    }

    /// The probability that each candidate fits, if at most one can and any does with `any_fits`.
    fn times(&self, any_fits: Option<f64>) -> Vec<Option<f64>> {
        self.probabilities.iter().map(|share| Some(any_fits? * (*share)?)).collect()
    }

    /// The probability that each candidate fits, whatever the others do.
    fn each(&self, intercept: f64, need: Option<f64>) -> Vec<Option<f64>> {
        let probability = |weight: &f64| Some(logistic(intercept + weight)? * need.unwrap_or(1.0));
        self.log_weights.iter().map(probability).collect()
    }
}

/// Logarithm of the sum of the exponentials; none without a value or if any value is not finite.
fn log_sum_exp(values: &[f64]) -> Option<f64> {
    let largest = values.iter().copied().reduce(f64::max)?;
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    // In the order of size, so that the sum does not depend on the order of the candidates.
    let mut ascending: Vec<f64> = values.iter().map(|value| (value - largest).exp()).collect();
    ascending.sort_by(f64::total_cmp);
    Some(largest + ascending.iter().sum::<f64>().ln())
}

impl Relevance {
    /// The shares after stage 1; none without a model, or without a cosine that it has a weight for.
    fn after_stage1(&self, candidates: &[(usize, &Scored)], profile: &Profile) -> Option<Shares> {
        let Stage1Relevance { cosine, bm25, .. } = self.stage1?;
        let log_weights: Option<Vec<LogWeight>> = candidates
            .iter()
            .map(|(_, candidate)| {
                let text = log_weight(candidate, cosine, bm25, profile)?;
                Some(LogWeight::new(text, candidate, profile))
            })
            .collect();
        Shares::of(&log_weights?)
    }

    /// The shares after stage 2, given the scores of the fitted reranker by id of the candidate.
    fn after_stage2(
        &self,
        candidates: &[(usize, &Scored)],
        scores: &HashMap<&str, f64>,
        profile: &Profile,
    ) -> Option<Shares> {
        let model = self.stage2?;
        let log_weights: Option<Vec<LogWeight>> = candidates
            .iter()
            .map(|(_, candidate)| {
                let score = scores.get(candidate.id.as_str());
                let read = score.map_or(model.unread, |score| model.rerank_score * score);
                let stage1 = log_weight(candidate, model.cosine, model.bm25, profile)?;
                let text = stage1 + read + model.of_coverage(candidate)?;
                Some(LogWeight::new(text, candidate, profile))
            })
            .collect();
        Shares::of(&log_weights?)
    }
}

impl Stage2Relevance {
    /// What the query's information that a candidate covers adds; none if it is needed and unknown.
    fn of_coverage(&self, candidate: &Scored) -> Option<f64> {
        let known = candidate.coverage;
        Some(
            weighted(self.covered, known.map(|known| known.covered))?
                + weighted(self.rarest, known.map(|known| known.rarest))?
                + weighted(self.facts, known.map(|known| known.facts))?,
        )
    }
}

/// The log-weight of a candidate by its scores of stage 1.
fn log_weight(candidate: &Scored, cosine: f64, bm25: f64, profile: &Profile) -> Option<f64> {
    Some(weighted(cosine, candidate.cosine)? + bm25 * profile.blend.bounded_bm25(candidate.bm25))
}

impl AnyFits {
    /// The probability after stage 1 that any candidate fits; none without a model, or without a
    /// value that it has a weight for.
    fn after_stage1(&self, signals: &Signals, shares: Option<&Shares>) -> Option<f64> {
        let Stage1AnyFits { intercept, log_mean, cosine, need } = self.stage1?;
        let stage2 = Stage2AnyFits { intercept, log_mean, cosine, rerank_score: 0.0, need };
        stage2.probability(signals, shares, 0.0)
    }
}

impl Stage2AnyFits {
    /// The probability that any candidate fits, given the rerank score of the first candidate.
    ///
    /// What evidence adds counts in full: its weights are log-odds that a candidate fits, while the
    /// weight of `log_mean` says how much scores of text tell about whether anything fits.
    fn probability(
        &self,
        signals: &Signals,
        shares: Option<&Shares>,
        rerank_score: f64,
    ) -> Option<f64> {
        let odds = self.intercept
            + weighted(self.log_mean, shares.map(|shares| shares.log_mean(signals.documents)))?
            + shares.map_or(0.0, |shares| shares.evidence)
            + weighted(self.cosine, signals.cosine)?
            + self.rerank_score * rerank_score;
        let need = signals.needs_document.map_or(0.0, |need| match self.need {
            // The odds of a need of 1 are infinite.
            Some(weight) => weight * (need / (1.0 - need)).ln().clamp(-MOST_NEED, MOST_NEED),
            None => need_log_odds(need),
        });
        logistic(odds + need)
    }
}

/// What the probability that a query needs a document adds to the log-odds that any fits: nothing if
/// it is clear that it does, less than nothing otherwise.
///
/// It was fitted to about as many requests as other prompts, so its odds are the likelihood ratio by
/// which Bayes' rule multiplies the odds of a match.
pub fn need_log_odds(need: f64) -> f64 {
    // The odds are 0 for a need of 0, and infinite for a need of 1.
    (need / (1.0 - need) / CLEAR_NEED).min(1.0).ln()
}

/// A weighted value; with a weight of 0, the value can be unknown.
fn weighted(weight: f64, value: Option<f64>) -> Option<f64> {
    if weight == 0.0 { Some(0.0) } else { value.map(|value| weight * value) }
}

/// The logistic function; none for NaN, the sum of infinities of both signs.
pub(crate) fn logistic(odds: f64) -> Option<f64> {
    (!odds.is_nan()).then(|| 1.0 / (1.0 + (-odds).exp()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::evidence::Evidence;
    use crate::stage1::Blend;

    fn models() -> Profile {
        Profile {
            blend: Blend { cosine_weight: 0.5, bm25_weight: 0.5, ..Blend::default() },
            relevance: Relevance {
                stage1: Some(Stage1Relevance { intercept: None, cosine: 4.0, bm25: 6.0 }),
                stage2: Some(Stage2Relevance {
                    cosine: 2.0,
                    bm25: 3.0,
                    rerank_score: 0.5,
                    unread: -1.0,
                    ..Stage2Relevance::default()
                }),
                threshold: None,
            },
            ..Profile::default()
        }
    }
    const ANY_FITS: AnyFits = AnyFits {
        stage1: Some(Stage1AnyFits { intercept: -2.0, log_mean: 0.5, cosine: 3.0, need: None }),
        stage2: Some(Stage2AnyFits {
            intercept: -1.0,
            log_mean: 0.25,
            cosine: 2.0,
            rerank_score: 0.5,
            need: None,
        }),
    };

    fn scored(id: &str, cosine: Option<f64>, bm25: f64) -> Scored {
        Scored { id: id.to_owned(), cosine, bm25, ..Scored::default() }
    }

    fn signals(cosine: Option<f64>, need: Option<f64>) -> Signals {
        let candidates = [scored("a", cosine, 1.0)];
        Signals { needs_document: need, ..crate::signals::signals(&candidates).unwrap().unwrap() }
    }

    /// The shares in a library of at most 32 documents.
    fn shares_with(log_mean: f64) -> Shares {
        let log_sum = log_mean + (LEAST_DOCUMENTS as f64).ln();
        Shares {
            log_weights: vec![log_sum],
            probabilities: vec![Some(1.0)],
            log_sum,
            evidence: 0.0,
        }
    }

    fn close(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-12
    }

    #[test]
    fn shares_are_a_softmax_of_weighted_scores() {
        let (a, b) = (scored("a", Some(0.5), 8.0), scored("b", Some(0.25), 0.0));
        let candidates = [(0, &a), (1, &b)];
        let found = models().relevance.after_stage1(&candidates, &models()).unwrap();
        let (of_a, of_b) = (5.0_f64.exp(), 1.0_f64.exp());
        assert!(close(found.probabilities[0].unwrap(), of_a / (of_a + of_b)));
        assert!(close(found.probabilities[1].unwrap(), of_b / (of_a + of_b)));
        assert!(close(found.log_sum, (of_a + of_b).ln()));

        // `b` was not read, so the weight of unread candidates takes the place of its score.
        let scores = HashMap::from([("a", 2.0)]);
        let found = models().relevance.after_stage2(&candidates, &scores, &models()).unwrap();
        let (of_a, of_b) = (3.5_f64.exp(), (-0.5_f64).exp());
        assert!(close(found.probabilities[0].unwrap(), of_a / (of_a + of_b)));
        assert!(close(found.log_sum, (of_a + of_b).ln()));
    }

    #[test]
    fn shares_are_unknown_without_a_model_or_a_value_that_it_weighs() {
        let (known, unknown) = (scored("a", Some(0.5), 8.0), scored("b", None, 1.0));
        let (alone, two) = ([(0, &known)], [(0, &known), (1, &unknown)]);
        let scores = HashMap::from([("a", f64::INFINITY)]);
        let profile = models();
        let fitted = &profile.relevance;
        assert_eq!(Relevance::default().after_stage1(&alone, &profile), None);
        assert_eq!(Relevance::default().after_stage2(&alone, &scores, &profile), None);
        assert_eq!(fitted.after_stage1(&two, &profile), None);
        assert_eq!(fitted.after_stage1(&[], &profile), None);
        assert_eq!(fitted.after_stage2(&alone, &scores, &profile), None);
        let words = Stage1Relevance { intercept: None, cosine: 0.0, bm25: 1.0 };
        let words = Relevance { stage1: Some(words), ..*fitted };
        assert!(words.after_stage1(&two, &profile).is_some());
    }

    #[test]
    fn with_an_intercept_each_candidate_has_a_probability_of_its_own() {
        let (a, b) = (scored("a", Some(0.5), 8.0), scored("b", Some(0.25), 0.0));
        let candidates = [(0, &a), (1, &b)];
        let mut profile = models();
        let model = Stage2Relevance { intercept: Some(-3.0), ..profile.relevance.stage2.unwrap() };
        profile.relevance.stage2 = Some(model);
        let seen = signals(Some(0.5), Some(0.5));
        let both = HashMap::from([("a", 2.0), ("b", 2.0)]);
        let found = Probabilities::after_stage2(&candidates, &both, 2.0, &seen, &profile);
        let logistic = |odds: f64| 1.0 / (1.0 + f64::exp(-odds));
        assert!(close(found.relevance(0).unwrap(), 0.5 * logistic(-3.0 + 3.5)));
        assert!(close(found.relevance(1).unwrap(), 0.5 * logistic(-3.0 + 1.5)));

        let first_only = HashMap::from([("a", 2.0)]);
        let found = Probabilities::after_stage2(&candidates, &first_only, 2.0, &seen, &profile);
        assert!(found.relevance(0).is_some());
        assert_eq!(found.relevance(1), None);
    }

    #[test]
    fn evidence_adds_to_the_log_weight() {
        let plain = scored("a", Some(0.5), 8.0);
        let evidence = Evidence { trigger: 1.0, ..Evidence::default() };
        let triggered = Scored { id: "b".to_owned(), evidence, ..plain.clone() };
        let candidates = [(0, &plain), (1, &triggered)];
        let profile = models();
        let found = profile.relevance.after_stage1(&candidates, &profile).unwrap();
        let difference = found.log_weights[1] - found.log_weights[0];
        assert!(close(difference, profile.evidence.trigger));
    }

    #[test]
    fn any_fits_is_logistic_in_the_evidence_the_best_cosine_and_the_rerank_score() {
        let shares = shares_with(4.0);
        let seen = signals(Some(0.5), None);
        let expected = |odds: f64| 1.0 / (1.0 + f64::exp(-odds));
        let found = ANY_FITS.after_stage1(&seen, Some(&shares)).unwrap();
        assert!(close(found, expected(-2.0 + 2.0 + 1.5)));
        let found = ANY_FITS.stage2.unwrap().probability(&seen, Some(&shares), 3.0).unwrap();
        assert!(close(found, expected(-1.0 + 1.0 + 1.0 + 1.5)));
        assert_eq!(ANY_FITS.after_stage1(&seen, None), None);
        assert_eq!(ANY_FITS.after_stage1(&signals(None, None), Some(&shares)), None);
        assert_eq!(AnyFits::default().after_stage1(&seen, Some(&shares)), None);
    }

    #[test]
    fn with_a_weight_the_log_odds_of_a_need_count_on_both_sides_within_limits() {
        let model = Stage1AnyFits { intercept: -1.0, need: Some(0.5), ..Stage1AnyFits::default() };
        let any_fits = AnyFits { stage1: Some(model), stage2: None };
        let found = |need| any_fits.after_stage1(&signals(None, need), None).unwrap();
        let expected = |odds: f64| 1.0 / (1.0 + f64::exp(-odds));
        assert!(close(found(Some(0.9)), expected(-1.0 + 0.5 * 9.0_f64.ln())));
        assert!(close(found(Some(0.1)), expected(-1.0 - 0.5 * 9.0_f64.ln())));
        assert!(close(found(None), expected(-1.0)));
        assert!(close(found(Some(1.0)), expected(-1.0 + 0.5 * MOST_NEED)));
        assert!(close(found(Some(0.0)), expected(-1.0 - 0.5 * MOST_NEED)));
    }

    #[test]
    fn in_a_session_the_project_shares_the_probability_and_does_not_raise_it() {
        let stage1 = Some(Stage1AnyFits { log_mean: 0.5, ..Stage1AnyFits::default() });
        let mut profile = Profile { any_fits: AnyFits { stage1, stage2: None }, ..models() };
        let plain = [scored("a", Some(0.5), 8.0), scored("b", Some(0.5), 8.0)];
        let mut of_project = plain.clone();
        of_project[1].evidence = Evidence { technology: 1.0, ..Evidence::default() };
        let of = |candidates: &[Scored], profile: &Profile| {
            let seen = crate::signals::signals(candidates).unwrap();
            let places: Vec<(usize, &Scored)> = candidates.iter().enumerate().collect();
            Probabilities::after_stage1(&places, seen.as_ref(), profile)
        };
        profile.session = true;
        let (without, with) = (of(&plain, &profile), of(&of_project, &profile));
        assert!(close(with.any_fits.unwrap(), without.any_fits.unwrap()));
        let weight = profile.evidence.technology.exp();
        assert!(close(with.share(1).unwrap(), weight / (1.0 + weight)));
        profile.session = false;
        assert!(of(&of_project, &profile).any_fits > of(&plain, &profile).any_fits);
    }

    #[test]
    fn in_a_session_usefulness_counts_as_a_score_of_the_text() {
        let profile = Profile { session: true, ..models() };
        let with_usefulness = |usefulness: f64| {
            let mut candidate = scored("a", Some(0.5), 8.0);
            candidate.evidence.usefulness = usefulness;
            let mut profile = profile.clone();
            profile.evidence.usefulness = 3.0;
            let shares = profile.relevance.after_stage1(&[(0, &candidate)], &profile).unwrap();
            (shares.log_sum, shares.evidence)
        };
        let ((none, _), (useful, evidence)) = (with_usefulness(0.0), with_usefulness(1.0));
        assert!(close(useful, none + 3.0) && close(evidence, 0.0));
    }

    #[test]
    fn the_same_scores_are_weaker_evidence_in_a_larger_library() {
        let odds = |documents: usize| {
            let seen = Signals { documents, ..signals(Some(0.5), None) };
            let found = ANY_FITS.after_stage1(&seen, Some(&shares_with(4.0))).unwrap();
            (found / (1.0 - found)).ln()
        };
        assert!((odds(320) - (odds(32) - 0.5 * 10.0_f64.ln())).abs() < 1e-9);
        assert!((1..32).all(|documents| close(odds(documents), odds(32))));
    }

    #[test]
    fn a_doubtful_need_divides_the_odds_and_a_clear_need_changes_nothing() {
        let shares = shares_with(4.0);
        let found = |need| ANY_FITS.after_stage1(&signals(Some(0.5), need), Some(&shares)).unwrap();
        let odds = |probability: f64| probability / (1.0 - probability);
        let without = odds(found(None));
        for (need, factor) in [(0.1, 1.0 / 27.0), (0.5, 1.0 / 3.0), (0.75, 1.0), (0.9, 1.0)] {
            assert!((odds(found(Some(need))) / without - factor).abs() < 1e-9, "{need}");
        }
        assert_eq!((found(Some(0.0)), found(Some(1.0))), (0.0, found(None)));
    }

    proptest! {
        #[test]
        fn shares_sum_to_1_and_belong_to_the_candidate_whatever_the_order(
            scores in prop::collection::vec((-1.0..1.0_f64, 0.0..50.0_f64, -12.0..12.0_f64), 1..12),
            rotation in 0_usize..12,
        ) {
            let candidates: Vec<(Scored, f64)> = scores
                .iter()
                .enumerate()
                .map(|(at, (cosine, bm25, score))| {
                    (scored(&at.to_string(), Some(*cosine), *bm25), *score)
                })
                .collect();
            let asked: Vec<(usize, &Scored)> =
                candidates.iter().map(|(candidate, _)| candidate).enumerate().collect();
            let scores: HashMap<&str, f64> =
                candidates.iter().take(4).map(|(of, score)| (of.id.as_str(), *score)).collect();
            let found = models().relevance.after_stage2(&asked, &scores, &models()).unwrap();
            prop_assert!((found.probabilities.iter().flatten().sum::<f64>() - 1.0).abs() < 1e-12);
            let mut rotated = asked.clone();
            let rotation = rotation % asked.len();
            rotated.rotate_left(rotation);
            let again = models().relevance.after_stage2(&rotated, &scores, &models()).unwrap();
            let mut expected = found.probabilities.clone();
            expected.rotate_left(rotation);
            prop_assert_eq!(again.probabilities, expected);
            prop_assert_eq!(again.log_sum, found.log_sum);
        }

        #[test]
        fn any_fits_increases_with_evidence_cosine_and_rerank_score(
            log_sum in -20.0..20.0_f64, cosine in -1.0..1.0_f64,
            score in -12.0..12.0_f64, more in 0.0..5.0_f64,
        ) {
            let model = ANY_FITS.stage2.unwrap();
            let of = |log_sum, cosine, score| {
                let shares = shares_with(log_sum);
                model.probability(&signals(Some(cosine), None), Some(&shares), score).unwrap()
            };
            let base = of(log_sum, cosine, score);
            prop_assert!((0.0..=1.0).contains(&base));
            prop_assert!(of(log_sum + more, cosine, score) >= base);
            prop_assert!(of(log_sum, cosine + more, score) >= base);
            prop_assert!(of(log_sum, cosine, score + more) >= base);
        }
    }
}
