//! How probable it is that the first pick fits, and each candidate by itself: logistic models over
//! what the stages saw.
//!
//! The models say how probable it is if the query asks for anything at all; that it does is a
//! probability of its own ([`crate::need`]), and both have to hold.

use crate::profile::{Relevance, Stage1Confidence, Stage1Relevance, Stage2Confidence};
use crate::signals::{Reading, Signals};
use crate::stage1::Scored;

impl Stage1Confidence {
    /// The probability in [0, 1], or none where there is no cosine: no model was fitted without.
    pub fn probability(&self, signals: &Signals) -> Option<f64> {
        both(logistic(self.odds(signals)?), signals.need)
    }

    fn odds(&self, signals: &Signals) -> Option<f64> {
        Some(
            self.intercept
                + self.cosine * signals.cosine?
                + self.bm25 * signals.bm25.ln_1p()
                + self.lead * signals.lead
                + flag(signals.agreement, self.agreement),
        )
    }
}

impl Stage2Confidence {
    /// The probability in [0, 1], or none where there is no cosine: no model was fitted without.
    pub fn probability(&self, signals: &Signals, reading: &Reading) -> Option<f64> {
        let Self { intercept, cosine, bm25, lead, agreement, .. } = *self;
        let stage1 = Stage1Confidence { intercept, cosine, bm25, lead, agreement };
        let odds = stage1.odds(signals)?
            + self.rerank_score * reading.rerank_score
            + self.score_lead * reading.score_lead
            + flag(reading.same_first, self.same_first);
        both(logistic(odds), signals.need)
    }
}

impl Relevance {
    /// The probability in [0, 1] that a candidate fits, or none where there is no model, or where
    /// the cosine that it weighs is unknown.
    ///
    /// `rerank_score` is that of the reranker that the models were fitted for; none where it has
    /// not read the candidate.
    pub fn probability(
        &self,
        one: &Scored,
        rerank_score: Option<f64>,
        need: Option<f64>,
    ) -> Option<f64> {
        let (stage1, read) = match rerank_score {
            None => (self.stage1?, 0.0),
            Some(score) => {
                let model = self.stage2?;
                let (intercept, cosine, bm25) = (model.intercept, model.cosine, model.bm25);
                (Stage1Relevance { intercept, cosine, bm25 }, model.rerank_score * score)
            }
        };
        let odds = stage1.intercept
            + weighed(stage1.cosine, one.cosine)?
            + stage1.bm25 * one.bm25.max(0.0).ln_1p()
            + read;
        both(logistic(odds), need)
    }
}

/// A weight of 0 asks for nothing.
fn weighed(weight: f64, value: Option<f64>) -> Option<f64> {
    if weight == 0.0 { Some(0.0) } else { value.map(|value| weight * value) }
}

fn flag(set: bool, weight: f64) -> f64 {
    if set { weight } else { 0.0 }
}

fn both(fits: Option<f64>, need: Option<f64>) -> Option<f64> {
    fits.map(|fits| fits * need.unwrap_or(1.0))
}

/// No number comes of infinities of both signs; then nothing is known.
pub(crate) fn logistic(odds: f64) -> Option<f64> {
    (!odds.is_nan()).then(|| 1.0 / (1.0 + (-odds).exp()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::Stage2Relevance;

    const SIGNALS: Signals = Signals {
        cosine: Some(0.5),
        cosine_lead: 0.1,
        bm25: 6.0,
        bm25_lead: 1.0,
        overlap: 2,
        blend: 0.5,
        lead: 0.2,
        agreement: true,
        need: None,
    };
    const READING: Reading = Reading { rerank_score: 1.5, score_lead: 0.4, same_first: true };
    const STAGE1: Stage1Confidence =
        Stage1Confidence { intercept: -2.0, cosine: 3.0, bm25: 0.5, lead: 4.0, agreement: 0.3 };
    const STAGE2: Stage2Confidence = Stage2Confidence {
        intercept: -2.0,
        cosine: 3.0,
        bm25: 0.5,
        lead: 4.0,
        agreement: 0.3,
        rerank_score: 0.7,
        score_lead: 0.2,
        same_first: 0.1,
    };

    #[test]
    fn the_log_odds_are_the_weighted_sum() {
        let stage1 = -2.0 + 1.5 + 0.5 * 7.0_f64.ln() + 0.8 + 0.3;
        let expected = 1.0 / (1.0 + f64::exp(-stage1));
        assert!((STAGE1.probability(&SIGNALS).unwrap() - expected).abs() < 1e-15);
        let both = stage1 + 1.05 + 0.08 + 0.1;
        let expected = 1.0 / (1.0 + f64::exp(-both));
        assert!((STAGE2.probability(&SIGNALS, &READING).unwrap() - expected).abs() < 1e-15);
    }

    #[test]
    fn a_query_that_asks_for_nothing_makes_every_answer_improbable() {
        let (stage1, both) = (
            STAGE1.probability(&SIGNALS).unwrap(),
            STAGE2.probability(&SIGNALS, &READING).unwrap(),
        );
        for need in [0.0, 0.25, 1.0] {
            let signals = Signals { need: Some(need), ..SIGNALS };
            assert_eq!(STAGE1.probability(&signals), Some(stage1 * need));
            assert_eq!(STAGE2.probability(&signals, &READING), Some(both * need));
        }
    }

    #[test]
    fn without_a_cosine_nothing_is_known() {
        let without = Signals { cosine: None, ..SIGNALS };
        assert_eq!(STAGE1.probability(&without), None);
        assert_eq!(STAGE2.probability(&without, &READING), None);
    }

    fn candidate(cosine: Option<f64>, bm25: f64) -> Scored {
        Scored { id: "a".to_owned(), cosine, bm25, overlap: 1, blend: 0.0, passage: None }
    }

    #[test]
    fn a_candidate_is_as_relevant_as_its_own_scores_say() {
        let stage1 = Stage1Relevance { intercept: -3.0, cosine: 4.0, bm25: 0.5 };
        let stage2 =
            Stage2Relevance { intercept: -1.0, cosine: 0.0, bm25: 0.25, rerank_score: 0.75 };
        let models =
            Relevance { stage1: Some(stage1), stage2: Some(stage2), ..Relevance::default() };
        let one = candidate(Some(0.5), 6.0);
        let expected = |odds: f64| 1.0 / (1.0 + f64::exp(-odds));
        let found = models.probability(&one, None, None).unwrap();
        assert!((found - expected(-1.0 + 0.5 * 7.0_f64.ln())).abs() < 1e-15);
        let read = expected(-1.0 + 0.25 * 7.0_f64.ln() + 1.5);
        let found = models.probability(&one, Some(2.0), None).unwrap();
        assert!((found - read).abs() < 1e-15);
        let asked = models.probability(&one, Some(2.0), Some(0.5)).unwrap();
        assert!((asked - read / 2.0).abs() < 1e-15);

        let unknown = candidate(None, 6.0);
        assert_eq!(models.probability(&unknown, None, None), None);
        assert_eq!(models.probability(&unknown, Some(2.0), None), Some(found));
        assert_eq!(Relevance::default().probability(&one, Some(2.0), None), None);
        assert_eq!(Relevance::default().probability(&one, None, None), None);
    }

    #[test]
    fn log_odds_out_of_all_bounds_are_certain_or_unknown() {
        let reading = |rerank_score| Reading { rerank_score, ..READING };
        assert_eq!(STAGE2.probability(&SIGNALS, &reading(f64::MAX)), Some(1.0));
        assert_eq!(STAGE2.probability(&SIGNALS, &reading(f64::MIN)), Some(0.0));
        let torn = Reading { score_lead: f64::INFINITY, ..reading(f64::NEG_INFINITY) };
        assert_eq!(STAGE2.probability(&SIGNALS, &torn), None);
    }

    proptest! {
        #[test]
        fn more_of_a_signal_with_a_positive_weight_is_never_less_probable(
            cosine in -1.0..1.0_f64, bm25 in 0.0..100.0_f64, lead in 0.0..2.0_f64,
            rerank_score in -20.0..20.0_f64, more in 0.0..5.0_f64,
        ) {
            let signals = Signals { cosine: Some(cosine), bm25, lead, ..SIGNALS };
            let read = Reading { rerank_score, ..READING };
            let base = STAGE2.probability(&signals, &read).unwrap();
            prop_assert!((0.0..=1.0).contains(&base));
            for (signals, read) in [
                (Signals { cosine: Some(cosine + more), ..signals }, read),
                (Signals { bm25: bm25 + more, ..signals }, read),
                (Signals { lead: lead + more, ..signals }, read),
                (signals, Reading { rerank_score: rerank_score + more, ..read }),
            ] {
                prop_assert!(STAGE2.probability(&signals, &read).unwrap() >= base);
            }
        }
    }
}
