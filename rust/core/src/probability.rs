//! Probabilities: whether any candidate fits, and how probable it is that each one does.
//!
//! A softmax over the candidates' log-weights gives each its share, the probability that it is the
//! one that fits, given that one does. A logistic model gives the probability that any fits. Their
//! product is the relevance of a candidate.

use std::collections::{BTreeMap, HashMap};

use crate::profile::{
    AnyFits, Profile, Relevance, Stage1AnyFits, Stage1Relevance, Stage2AnyFits, Stage2Relevance,
};
use crate::signals::Signals;
use crate::stage1::{Blend, Scored};

/// Logarithm of the sum of the candidates' weights, the signal of [`AnyFits`]; none without weights or
/// a cosine that they need.
///
/// With rerank scores, by id of the candidate, the weights are those after stage 2.
pub fn evidence(
    scored: &[Scored],
    rerank_scores: Option<&BTreeMap<String, f64>>,
    relevance: &Relevance,
    blend: &Blend,
) -> Option<f64> {
    let candidates: Vec<(usize, &Scored)> = scored.iter().enumerate().collect();
    let shares = match rerank_scores {
        None => relevance.after_stage1(&candidates, blend),
        Some(read) => {
            let read = read.iter().map(|(id, score)| (id.as_str(), *score)).collect();
            relevance.after_stage2(&candidates, &read, blend)
        }
    };
    Some(shares?.evidence)
}

/// Below these odds of a need, 3 to 1, a query counts as one that possibly needs no document.
///
/// Among requests a lower need is more probable for a match than for none, so higher odds say
/// nothing.
const CLEAR_NEED: f64 = 3.0;

/// The probabilities of a query's candidates after one stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Probabilities {
    /// Probability that any candidate fits; none without a model.
    pub(crate) any_fits: Option<f64>,
    /// The share of each candidate, by its position in the order of stage 1.
    shares: HashMap<usize, f64>,
    /// What a share is multiplied by to give a relevance.
    factor: Option<f64>,
}

impl Probabilities {
    /// The probabilities after stage 1 of candidates at their positions.
    pub(crate) fn after_stage1(
        candidates: &[(usize, &Scored)],
        signals: Option<&Signals>,
        profile: &Profile,
    ) -> Self {
        let shares = profile.relevance.after_stage1(candidates, &profile.blend);
        let any_fits =
            signals.and_then(|signals| profile.any_fits.after_stage1(signals, shares.as_ref()));
        let factor = if profile.any_fits.stage1.is_some() { any_fits } else { Some(1.0) };
        Self { any_fits, factor, shares: at_positions(candidates, shares) }
    }

    /// The probabilities after stage 2, given the scores of the fitted reranker by id of the
    /// candidate, and the score of the first candidate.
    ///
    /// What the profile has no model of is as after stage 1.
    pub(crate) fn after_stage2(
        candidates: &[(usize, &Scored)],
        scores: &HashMap<&str, f64>,
        first_score: f64,
        signals: &Signals,
        profile: &Profile,
    ) -> Self {
        let mut known = Self::after_stage1(candidates, Some(signals), profile);
        let shares = profile.relevance.after_stage2(candidates, scores, &profile.blend);
        if let Some(model) = profile.any_fits.stage2 {
            known.any_fits = model.probability(signals, shares.as_ref(), first_score);
            known.factor = known.any_fits;
        }
        if profile.relevance.stage2.is_some() {
            known.shares = at_positions(candidates, shares);
        }
        known
    }

    /// Probability that the candidate at a position is the one that fits, given that one does.
    pub(crate) fn share(&self, position: usize) -> Option<f64> {
        self.shares.get(&position).copied()
    }

    /// Probability that the candidate at a position fits.
    pub(crate) fn relevance(&self, position: usize) -> Option<f64> {
        Some(self.factor? * self.share(position)?)
    }
}

fn at_positions(candidates: &[(usize, &Scored)], shares: Option<Shares>) -> HashMap<usize, f64> {
    let shares = shares.into_iter().flat_map(|of| of.shares);
    candidates.iter().map(|(position, _)| *position).zip(shares).collect()
}

/// The shares of a query's candidates, and how strong the evidence is in all.
#[derive(Clone, Debug, PartialEq)]
struct Shares {
    /// Probability that each candidate is the one that fits, given that one does; they sum to 1.
    shares: Vec<f64>,
    /// Logarithm of the sum of the candidates' weights.
    evidence: f64,
}

impl Shares {
    /// The softmax of log-weights; none without candidates or if a log-weight is not finite.
    fn of(log_weights: &[f64]) -> Option<Self> {
        let largest = log_weights.iter().copied().reduce(f64::max)?;
        if !log_weights.iter().all(|weight| weight.is_finite()) {
            return None;
        }
        let weights: Vec<f64> = log_weights.iter().map(|weight| (weight - largest).exp()).collect();
        // In the order of size, so that the sum does not depend on the order of the candidates.
        let mut ascending = weights.clone();
        ascending.sort_by(f64::total_cmp);
        let sum: f64 = ascending.iter().sum();
        let shares = weights.into_iter().map(|weight| weight / sum).collect();
        Some(Self { shares, evidence: largest + sum.ln() })
    }
}

impl Relevance {
    /// The shares after stage 1; none without a model, or without a cosine that it has a weight for.
    fn after_stage1(&self, candidates: &[(usize, &Scored)], blend: &Blend) -> Option<Shares> {
        let Stage1Relevance { cosine, bm25 } = self.stage1?;
        let log_weights: Option<Vec<f64>> = candidates
            .iter()
            .map(|(_, candidate)| log_weight(candidate, cosine, bm25, blend))
            .collect();
        Shares::of(&log_weights?)
    }

    /// The shares after stage 2, given the scores of the fitted reranker by id of the candidate.
    fn after_stage2(
        &self,
        candidates: &[(usize, &Scored)],
        scores: &HashMap<&str, f64>,
        blend: &Blend,
    ) -> Option<Shares> {
        let Stage2Relevance { cosine, bm25, rerank_score, unread } = self.stage2?;
        let log_weights: Option<Vec<f64>> = candidates
            .iter()
            .map(|(_, candidate)| {
                let score = scores.get(candidate.id.as_str());
                let read = score.map_or(unread, |score| rerank_score * score);
                Some(log_weight(candidate, cosine, bm25, blend)? + read)
            })
            .collect();
        Shares::of(&log_weights?)
    }
}

/// The log-weight of a candidate by its scores of stage 1.
fn log_weight(candidate: &Scored, cosine: f64, bm25: f64, blend: &Blend) -> Option<f64> {
    Some(weighted(cosine, candidate.cosine)? + bm25 * blend.bounded_bm25(candidate.bm25))
}

impl AnyFits {
    /// The probability after stage 1 that any candidate fits; none without a model, or without a
    /// value that it has a weight for.
    fn after_stage1(&self, signals: &Signals, shares: Option<&Shares>) -> Option<f64> {
        let Stage1AnyFits { intercept, evidence, cosine } = self.stage1?;
        let stage2 = Stage2AnyFits { intercept, evidence, cosine, rerank_score: 0.0 };
        stage2.probability(signals, shares, 0.0)
    }
}

impl Stage2AnyFits {
    /// The probability that any candidate fits, given the rerank score of the first one.
    fn probability(
        &self,
        signals: &Signals,
        shares: Option<&Shares>,
        rerank_score: f64,
    ) -> Option<f64> {
        let odds = self.intercept
            + weighted(self.evidence, shares.map(|shares| shares.evidence))?
            + weighted(self.cosine, signals.cosine)?
            + self.rerank_score * rerank_score;
        logistic(odds + signals.needs_document.map_or(0.0, need_log_odds))
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

    const BLEND: Blend =
        Blend { cosine_weight: 0.5, bm25_weight: 0.5, pivot: 8.0, body_weight: 0.5 };
    const MODELS: Relevance = Relevance {
        stage1: Some(Stage1Relevance { cosine: 4.0, bm25: 6.0 }),
        stage2: Some(Stage2Relevance { cosine: 2.0, bm25: 3.0, rerank_score: 0.5, unread: -1.0 }),
        threshold: None,
    };
    const ANY_FITS: AnyFits = AnyFits {
        stage1: Some(Stage1AnyFits { intercept: -2.0, evidence: 0.5, cosine: 3.0 }),
        stage2: Some(Stage2AnyFits {
            intercept: -1.0,
            evidence: 0.25,
            cosine: 2.0,
            rerank_score: 0.5,
        }),
    };

    fn scored(id: &str, cosine: Option<f64>, bm25: f64) -> Scored {
        Scored { id: id.to_owned(), cosine, bm25, ..Scored::default() }
    }

    fn signals(cosine: Option<f64>, need: Option<f64>) -> Signals {
        let candidates = [scored("a", cosine, 1.0)];
        Signals { needs_document: need, ..crate::signals::signals(&candidates).unwrap().unwrap() }
    }

    fn close(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-12
    }

    #[test]
    fn shares_are_a_softmax_of_weighted_scores() {
        let (a, b) = (scored("a", Some(0.5), 8.0), scored("b", Some(0.25), 0.0));
        let candidates = [(0, &a), (1, &b)];
        let found = MODELS.after_stage1(&candidates, &BLEND).unwrap();
        let (of_a, of_b) = (5.0_f64.exp(), 1.0_f64.exp());
        assert!(close(found.shares[0], of_a / (of_a + of_b)));
        assert!(close(found.shares[1], of_b / (of_a + of_b)));
        assert!(close(found.evidence, (of_a + of_b).ln()));

        // `b` was not read, so the weight of unread candidates takes the place of its score.
        let scores = HashMap::from([("a", 2.0)]);
        let found = MODELS.after_stage2(&candidates, &scores, &BLEND).unwrap();
        let (of_a, of_b) = (3.5_f64.exp(), (-0.5_f64).exp());
        assert!(close(found.shares[0], of_a / (of_a + of_b)));
        assert!(close(found.evidence, (of_a + of_b).ln()));
    }

    #[test]
    fn shares_are_unknown_without_a_model_or_a_value_that_it_weighs() {
        let (known, unknown) = (scored("a", Some(0.5), 8.0), scored("b", None, 1.0));
        let (one, two) = ([(0, &known)], [(0, &known), (1, &unknown)]);
        let scores = HashMap::from([("a", f64::INFINITY)]);
        assert_eq!(Relevance::default().after_stage1(&one, &BLEND), None);
        assert_eq!(Relevance::default().after_stage2(&one, &scores, &BLEND), None);
        assert_eq!(MODELS.after_stage1(&two, &BLEND), None);
        assert_eq!(MODELS.after_stage1(&[], &BLEND), None);
        assert_eq!(MODELS.after_stage2(&one, &scores, &BLEND), None);
        let words =
            Relevance { stage1: Some(Stage1Relevance { cosine: 0.0, bm25: 1.0 }), ..MODELS };
        assert!(words.after_stage1(&two, &BLEND).is_some());
    }

    #[test]
    fn any_fits_is_logistic_in_the_evidence_the_best_cosine_and_the_rerank_score() {
        let shares = Shares { shares: vec![1.0], evidence: 4.0 };
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
    fn a_doubtful_need_divides_the_odds_and_a_clear_one_changes_nothing() {
        let shares = Shares { shares: vec![1.0], evidence: 4.0 };
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
            let found = MODELS.after_stage2(&asked, &scores, &BLEND).unwrap();
            prop_assert!((found.shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let mut rotated = asked.clone();
            let rotation = rotation % asked.len();
            rotated.rotate_left(rotation);
            let again = MODELS.after_stage2(&rotated, &scores, &BLEND).unwrap();
            let mut expected = found.shares.clone();
            expected.rotate_left(rotation);
            prop_assert_eq!(again.shares, expected);
            prop_assert_eq!(again.evidence, found.evidence);
        }

        #[test]
        fn any_fits_increases_with_evidence_cosine_and_rerank_score(
            evidence in -20.0..20.0_f64, cosine in -1.0..1.0_f64,
            score in -12.0..12.0_f64, more in 0.0..5.0_f64,
        ) {
            let model = ANY_FITS.stage2.unwrap();
            let of = |evidence, cosine, score| {
                let shares = Shares { shares: vec![1.0], evidence };
                model.probability(&signals(Some(cosine), None), Some(&shares), score).unwrap()
            };
            let base = of(evidence, cosine, score);
            prop_assert!((0.0..=1.0).contains(&base));
            prop_assert!(of(evidence + more, cosine, score) >= base);
            prop_assert!(of(evidence, cosine + more, score) >= base);
            prop_assert!(of(evidence, cosine, score + more) >= base);
        }
    }
}
