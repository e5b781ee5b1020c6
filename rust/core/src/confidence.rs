//! How probable it is that the first pick fits: a logistic model over what the stages saw.

use crate::gate::Signals;
use crate::stage1::{Scored, best_first};

/// What stage 2 adds to the signals of the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The logit of the candidate with the best score.
    pub logit: f64,
    /// The best score's lead over the next; 0 without a next.
    pub score_margin: f64,
    /// Whether the best candidate of stage 1 has the best score too.
    pub same_first: bool,
}

/// Reads off what stage 2 adds, or none without candidates; their order does not matter.
pub fn reading(candidates: &[Scored], logits: &[f64], scores: &[f64]) -> Option<Reading> {
    let mut read: Vec<(f64, &Scored, f64)> = candidates
        .iter()
        .zip(logits)
        .zip(scores)
        .map(|((one, logit), score)| (*score, one, *logit))
        .collect();
    read.sort_by(|left, right| best_first((left.0, &left.1.id), (right.0, &right.1.id)));
    let (best, first, logit) = *read.first()?;
    Some(Reading {
        logit,
        score_margin: read.get(1).map_or(0.0, |(next, ..)| best - next),
        same_first: candidates
            .iter()
            .all(|one| best_first((first.blend, &first.id), (one.blend, &one.id)).is_le()),
    })
}

/// The weights of the model: the log-odds are their sum, each times its signal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Confidence {
    /// The log-odds where every signal is 0.
    pub intercept: f64,
    /// Of the best cosine.
    pub cosine: f64,
    /// Of the natural logarithm of 1 + the best BM25 score, which grows with the corpus otherwise.
    pub bm25: f64,
    /// Of the best blend's lead.
    pub blend_margin: f64,
    /// Of 1 where cosine and BM25 agree on the best candidate, and 0 where they do not.
    pub agreement: f64,
    /// Of the first candidate's logit; 0 in a model for stage 1 alone, like the two that follow.
    pub logit: f64,
    /// Of the best score's lead.
    pub score_margin: f64,
    /// Of 1 where both stages have the same first candidate, and 0 where they have not.
    pub same_first: f64,
}

impl Confidence {
    /// The probability in [0, 1], or none where there is no cosine: no model was fitted without.
    pub fn probability(&self, signals: &Signals, reading: Option<&Reading>) -> Option<f64> {
        let flag = |set: bool, weight: f64| if set { weight } else { 0.0 };
        let mut odds = self.intercept
            + self.cosine * signals.cosine?
            + self.bm25 * signals.bm25.ln_1p()
            + self.blend_margin * signals.blend_margin
            + flag(signals.agreement, self.agreement);
        if let Some(reading) = reading {
            odds += self.logit * reading.logit
                + self.score_margin * reading.score_margin
                + flag(reading.same_first, self.same_first);
        }
        // No number comes of infinities of both signs; then nothing is known.
        (!odds.is_nan()).then(|| 1.0 / (1.0 + (-odds).exp()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIGNALS: Signals = Signals {
        cosine: Some(0.5),
        cosine_gap: 0.1,
        bm25: 6.0,
        bm25_gap: 1.0,
        overlap: 2,
        blend: 0.5,
        blend_margin: 0.2,
        agreement: true,
    };
    const READING: Reading = Reading { logit: 1.5, score_margin: 0.4, same_first: true };
    const MODEL: Confidence = Confidence {
        intercept: -2.0,
        cosine: 3.0,
        bm25: 0.5,
        blend_margin: 4.0,
        agreement: 0.3,
        logit: 0.7,
        score_margin: 0.2,
        same_first: 0.1,
    };

    fn scored(id: &str, blend: f64) -> Scored {
        Scored { id: id.to_owned(), cosine: Some(0.0), bm25: 0.0, overlap: 0, blend }
    }

    #[test]
    fn the_log_odds_are_the_weighted_sum() {
        let stage1 = -2.0 + 1.5 + 0.5 * 7.0_f64.ln() + 0.8 + 0.3;
        let expected = 1.0 / (1.0 + f64::exp(-stage1));
        assert!((MODEL.probability(&SIGNALS, None).unwrap() - expected).abs() < 1e-15);
        let both = stage1 + 1.05 + 0.08 + 0.1;
        let expected = 1.0 / (1.0 + f64::exp(-both));
        assert!((MODEL.probability(&SIGNALS, Some(&READING)).unwrap() - expected).abs() < 1e-15);
    }

    #[test]
    fn without_a_cosine_nothing_is_known() {
        assert_eq!(MODEL.probability(&Signals { cosine: None, ..SIGNALS }, None), None);
    }

    #[test]
    fn log_odds_out_of_all_bounds_are_certain_or_unknown() {
        let reading = |logit| Reading { logit, ..READING };
        assert_eq!(MODEL.probability(&SIGNALS, Some(&reading(f64::MAX))), Some(1.0));
        assert_eq!(MODEL.probability(&SIGNALS, Some(&reading(f64::MIN))), Some(0.0));
        let torn = Reading { score_margin: f64::INFINITY, ..reading(f64::NEG_INFINITY) };
        assert_eq!(MODEL.probability(&SIGNALS, Some(&torn)), None);
    }

    #[test]
    fn a_reading_is_about_the_best_score() {
        let candidates = [scored("a", 0.9), scored("b", 0.5), scored("c", 0.9)];
        let found = reading(&candidates, &[1.0, 7.0, 2.0], &[0.2, 0.8, 0.5]).unwrap();
        assert_eq!(found.logit, 7.0);
        assert!((found.score_margin - 0.3).abs() < 1e-15);
        assert!(!found.same_first);
        // Of two equal blends the smaller id is first.
        assert!(reading(&candidates, &[1.0, 1.0, 1.0], &[1.0, 0.0, 0.5]).unwrap().same_first);
        assert!(!reading(&candidates, &[1.0, 1.0, 1.0], &[0.5, 0.0, 1.0]).unwrap().same_first);
        assert_eq!(reading(&[], &[], &[]), None);
        let alone = reading(&candidates[..1], &[1.0], &[3.0]).unwrap();
        assert_eq!((alone.score_margin, alone.same_first), (0.0, true));
    }

    proptest! {
        #[test]
        fn more_of_a_signal_with_a_positive_weight_is_never_less_probable(
            cosine in -1.0..1.0_f64, bm25 in 0.0..100.0_f64, margin in 0.0..2.0_f64,
            logit in -20.0..20.0_f64, more in 0.0..5.0_f64,
        ) {
            let signals = Signals { cosine: Some(cosine), bm25, blend_margin: margin, ..SIGNALS };
            let read = Reading { logit, ..READING };
            let base = MODEL.probability(&signals, Some(&read)).unwrap();
            prop_assert!((0.0..=1.0).contains(&base));
            for (signals, read) in [
                (Signals { cosine: Some(cosine + more), ..signals }, read),
                (Signals { bm25: bm25 + more, ..signals }, read),
                (Signals { blend_margin: margin + more, ..signals }, read),
                (signals, Reading { logit: logit + more, ..read }),
            ] {
                prop_assert!(MODEL.probability(&signals, Some(&read)).unwrap() >= base);
            }
        }
    }
}
