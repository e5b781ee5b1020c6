//! Logistic models of the probability that the first candidate, or a single candidate, fits.
//!
//! The models assume that the query needs a document. Their result is multiplied by the probability
//! that it does ([`crate::needs_document`]).

use crate::profile::{Relevance, Stage1Confidence, Stage1Relevance, Stage2Confidence};
use crate::signals::{Signals, Stage2Signals};
use crate::stage1::Scored;

impl Stage1Confidence {
    /// The probability in [0, 1]; none without a cosine, because all models are fitted with cosines.
    pub fn probability(&self, signals: &Signals) -> Option<f64> {
        Some(logistic(self.odds(signals)?)? * signals.needs_document.unwrap_or(1.0))
    }

    fn odds(&self, signals: &Signals) -> Option<f64> {
        Some(
            self.intercept
                + self.cosine * signals.cosine?
                + self.bm25 * signals.bm25.ln_1p()
                + self.margin * signals.margin
                + flag(signals.agreement, self.agreement)
                + signals.evidence,
        )
    }
}

impl Stage2Confidence {
    /// The probability in [0, 1]; none without a cosine, because all models are fitted with cosines.
    pub fn probability(&self, signals: &Signals, stage2: &Stage2Signals) -> Option<f64> {
        let Self { intercept, cosine, bm25, margin, agreement, .. } = *self;
        let stage1 = Stage1Confidence { intercept, cosine, bm25, margin, agreement };
        let odds = stage1.odds(signals)?
            + self.rerank_score * stage2.rerank_score
            + self.score_margin * stage2.score_margin
            + flag(stage2.same_first, self.same_first);
        Some(logistic(odds)? * signals.needs_document.unwrap_or(1.0))
    }
}

impl Relevance {
    /// The probability in [0, 1] that a candidate fits; none without a model, or without a cosine
    /// that the model has a weight for.
    ///
    /// `rerank_score` is the score of the reranker that the models were fitted for; none if it has not
    /// read the candidate.
    pub fn probability(
        &self,
        candidate: &Scored,
        rerank_score: Option<f64>,
        needs_document: Option<f64>,
    ) -> Option<f64> {
        self.probability_with(0.0, candidate, rerank_score, needs_document)
    }

    /// The same with weighted evidence about the candidate, in log-odds.
    pub fn probability_with(
        &self,
        evidence: f64,
        candidate: &Scored,
        rerank_score: Option<f64>,
        needs_document: Option<f64>,
    ) -> Option<f64> {
        let (stage1, read) = match rerank_score {
            None => (self.stage1?, 0.0),
            Some(score) => {
                let model = self.stage2?;
                let (intercept, cosine, bm25) = (model.intercept, model.cosine, model.bm25);
                let covered =
                    weighted(model.covered, candidate.coverage.map(|known| known.covered))?
                        + weighted(model.rarest, candidate.coverage.map(|known| known.rarest))?
                        + weighted(model.facts, candidate.coverage.map(|known| known.facts))?;
                let read = model.rerank_score * score + covered;
                (Stage1Relevance { intercept, cosine, bm25 }, read)
            }
        };
        let odds = stage1.intercept
            + weighted(stage1.cosine, candidate.cosine)?
            + stage1.bm25 * candidate.bm25.max(0.0).ln_1p()
            + read
            + evidence;
        Some(logistic(odds)? * needs_document.unwrap_or(1.0))
    }
}

/// With a weight of 0, the value can be unknown.
fn weighted(weight: f64, value: Option<f64>) -> Option<f64> {
    if weight == 0.0 { Some(0.0) } else { value.map(|value| weight * value) }
}

fn flag(set: bool, weight: f64) -> f64 {
    if set { weight } else { 0.0 }
}

/// The logistic function; none for NaN, the sum of infinities of both signs.
pub(crate) fn logistic(odds: f64) -> Option<f64> {
    (!odds.is_nan()).then(|| 1.0 / (1.0 + (-odds).exp()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::coverage::Coverage;
    use crate::profile::Stage2Relevance;

    const SIGNALS: Signals = Signals {
        cosine: Some(0.5),
        cosine_margin: 0.1,
        bm25: 6.0,
        bm25_margin: 1.0,
        overlap: 2,
        blend: 0.5,
        margin: 0.2,
        agreement: true,
        needs_document: None,
        evidence: 0.0,
    };
    const STAGE2_SIGNALS: Stage2Signals =
        Stage2Signals { rerank_score: 1.5, score_margin: 0.4, same_first: true };
    const STAGE1: Stage1Confidence =
        Stage1Confidence { intercept: -2.0, cosine: 3.0, bm25: 0.5, margin: 4.0, agreement: 0.3 };
    const STAGE2: Stage2Confidence = Stage2Confidence {
        intercept: -2.0,
        cosine: 3.0,
        bm25: 0.5,
        margin: 4.0,
        agreement: 0.3,
        rerank_score: 0.7,
        score_margin: 0.2,
        same_first: 0.1,
    };

    #[test]
    fn the_log_odds_are_the_weighted_sum_of_the_signals() {
        let stage1 = -2.0 + 1.5 + 0.5 * 7.0_f64.ln() + 0.8 + 0.3;
        let expected = 1.0 / (1.0 + f64::exp(-stage1));
        assert!((STAGE1.probability(&SIGNALS).unwrap() - expected).abs() < 1e-15);
        let both = stage1 + 1.05 + 0.08 + 0.1;
        let expected = 1.0 / (1.0 + f64::exp(-both));
        assert!((STAGE2.probability(&SIGNALS, &STAGE2_SIGNALS).unwrap() - expected).abs() < 1e-15);
    }

    #[test]
    fn the_confidence_is_multiplied_by_the_need() {
        let (stage1, both) = (
            STAGE1.probability(&SIGNALS).unwrap(),
            STAGE2.probability(&SIGNALS, &STAGE2_SIGNALS).unwrap(),
        );
        for needs_document in [0.0, 0.25, 1.0] {
            let signals = Signals { needs_document: Some(needs_document), ..SIGNALS };
            assert_eq!(STAGE1.probability(&signals), Some(stage1 * needs_document));
            assert_eq!(STAGE2.probability(&signals, &STAGE2_SIGNALS), Some(both * needs_document));
        }
    }

    #[test]
    fn without_a_cosine_the_confidence_is_unknown() {
        let without = Signals { cosine: None, ..SIGNALS };
        assert_eq!(STAGE1.probability(&without), None);
        assert_eq!(STAGE2.probability(&without, &STAGE2_SIGNALS), None);
    }

    fn candidate(cosine: Option<f64>, bm25: f64) -> Scored {
        Scored { id: "a".to_owned(), cosine, bm25, overlap: 1, ..Scored::default() }
    }

    #[test]
    fn relevance_is_a_logistic_model_of_the_candidates_own_scores() {
        let stage1 = Stage1Relevance { intercept: -3.0, cosine: 4.0, bm25: 0.5 };
        let stage2 = Stage2Relevance {
            intercept: -1.0,
            bm25: 0.25,
            rerank_score: 0.75,
            ..Stage2Relevance::default()
        };
        let models =
            Relevance { stage1: Some(stage1), stage2: Some(stage2), ..Relevance::default() };
        let known = candidate(Some(0.5), 6.0);
        let expected = |odds: f64| 1.0 / (1.0 + f64::exp(-odds));
        let found = models.probability(&known, None, None).unwrap();
        assert!((found - expected(-1.0 + 0.5 * 7.0_f64.ln())).abs() < 1e-15);
        let read = expected(-1.0 + 0.25 * 7.0_f64.ln() + 1.5);
        let found = models.probability(&known, Some(2.0), None).unwrap();
        assert!((found - read).abs() < 1e-15);
        let asked = models.probability(&known, Some(2.0), Some(0.5)).unwrap();
        assert!((asked - read / 2.0).abs() < 1e-15);

        let weights = Stage2Relevance { covered: 2.0, rarest: 1.0, facts: 4.0, ..stage2 };
        let models = Relevance { stage2: Some(weights), ..models };
        assert_eq!(models.probability(&known, Some(2.0), None), None);
        let coverage = Some(Coverage { covered: 0.5, rarest: 0.25, facts: 1.0 });
        let covered = Scored { coverage, ..known.clone() };
        let found_covered = models.probability(&covered, Some(2.0), None);
        let odds = -1.0 + 0.25 * 7.0_f64.ln() + 1.5 + 1.0 + 0.25 + 4.0;
        assert!((found_covered.unwrap() - expected(odds)).abs() < 1e-15);
        let models = Relevance { stage2: Some(stage2), ..models };

        let unknown = candidate(None, 6.0);
        assert_eq!(models.probability(&unknown, None, None), None);
        assert_eq!(models.probability(&unknown, Some(2.0), None), Some(found));
        assert_eq!(Relevance::default().probability(&known, Some(2.0), None), None);
        assert_eq!(Relevance::default().probability(&known, None, None), None);
    }

    #[test]
    fn extreme_log_odds_give_0_or_1_and_nan_gives_none() {
        let with_score = |rerank_score| Stage2Signals { rerank_score, ..STAGE2_SIGNALS };
        assert_eq!(STAGE2.probability(&SIGNALS, &with_score(f64::MAX)), Some(1.0));
        assert_eq!(STAGE2.probability(&SIGNALS, &with_score(f64::MIN)), Some(0.0));
        let both_signs =
            Stage2Signals { score_margin: f64::INFINITY, ..with_score(f64::NEG_INFINITY) };
        assert_eq!(STAGE2.probability(&SIGNALS, &both_signs), None);
    }

    proptest! {
        #[test]
        fn the_confidence_increases_with_signals_of_positive_weight(
            cosine in -1.0..1.0_f64, bm25 in 0.0..100.0_f64, margin in 0.0..2.0_f64,
            rerank_score in -20.0..20.0_f64, more in 0.0..5.0_f64,
        ) {
            let signals = Signals { cosine: Some(cosine), bm25, margin, ..SIGNALS };
            let read = Stage2Signals { rerank_score, ..STAGE2_SIGNALS };
            let base = STAGE2.probability(&signals, &read).unwrap();
            prop_assert!((0.0..=1.0).contains(&base));
            for (signals, read) in [
                (Signals { cosine: Some(cosine + more), ..signals }, read),
                (Signals { bm25: bm25 + more, ..signals }, read),
                (Signals { margin: margin + more, ..signals }, read),
                (signals, Stage2Signals { rerank_score: rerank_score + more, ..read }),
            ] {
                prop_assert!(STAGE2.probability(&signals, &read).unwrap() >= base);
            }
        }
    }
}
