//! What follows the cross-encoder: its logits joined with stage 1, and the guardrails on the result.

use crate::error::{Error, Result};
use crate::stage1::{Blend, Scored, best_first};

/// How the cross-encoder's logits and stage 1 become one order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Combine {
    /// The logits alone.
    Replace,
    /// Reciprocal rank fusion of the two orders: the sum of 1 / (k + rank), ranks from 1.
    ///
    /// Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion Outperforms Condorcet and Individual
    /// Rank Learning Methods" (2009).
    ReciprocalRank {
        /// How little the first places stand out, above 0; 60 in the paper.
        k: f64,
    },
    /// A weighted sum of cosine, bounded BM25 and logit, weights fitted on labelled data.
    Weighted {
        /// Weight of the cosine.
        cosine: f64,
        /// Weight of the bounded BM25 score.
        bm25: f64,
        /// Weight of the logit.
        logit: f64,
    },
}

/// One score per candidate, higher is better, in the order of the candidates.
///
/// Fails with `not_finite` where a logit is no number or a weighted sum overflows, and with
/// `out_of_range` where there are not as many logits as candidates or where a weight or `k` is
/// unusable.
pub fn combine(
    candidates: &[Scored],
    logits: &[f64],
    blend: &Blend,
    mode: Combine,
) -> Result<Vec<f64>> {
    if candidates.len() != logits.len() {
        return Err(Error::input(
            "out_of_range",
            format!(
                "{} logits for {} candidates: give one for each",
                logits.len(),
                candidates.len()
            ),
        ));
    }
    let pairs = || candidates.iter().zip(logits);
    if let Some((candidate, logit)) = pairs().find(|(_, logit)| !logit.is_finite()) {
        return Err(Error::input(
            "not_finite",
            format!("the logit of {:?} is {logit}: it must be finite", candidate.id),
        ));
    }
    match mode {
        Combine::Replace => Ok(logits.to_vec()),
        Combine::ReciprocalRank { k } => {
            if !(k.is_finite() && k > 0.0) {
                return Err(Error::input("out_of_range", format!("k is {k}: it must be above 0")));
            }
            let by_blend: Vec<f64> = candidates.iter().map(|one| one.blend).collect();
            let (first, second) = (ranks(candidates, &by_blend), ranks(candidates, logits));
            let part = |rank: usize| 1.0 / (k + rank as f64);
            Ok(first.into_iter().zip(second).map(|(one, two)| part(one) + part(two)).collect())
        }
        Combine::Weighted { cosine, bm25, logit } => {
            if ![cosine, bm25, logit].iter().all(|weight| weight.is_finite()) {
                return Err(Error::input(
                    "out_of_range",
                    format!("the weights are {cosine}, {bm25}, {logit}: they must be finite"),
                ));
            }
            let sum = |(one, value): (&Scored, &f64)| {
                let score = cosine * one.cosine.unwrap_or_default()
                    + bm25 * blend.bounded_bm25(one.bm25)
                    + logit * value;
                if score.is_finite() {
                    return Ok(score);
                }
                Err(Error::input(
                    "not_finite",
                    format!(
                        "the weighted sum of {:?} with the logit {value:e} is {score}: it must be \
                         finite, so take smaller weights or logits",
                        one.id
                    ),
                ))
            };
            pairs().map(sum).collect()
        }
    }
}

/// The rank of each candidate by a score, from 1; ties go to the smaller id.
pub fn ranks(candidates: &[Scored], scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<(usize, f64, &str)> = candidates
        .iter()
        .zip(scores)
        .enumerate()
        .map(|(place, (one, score))| (place, *score, one.id.as_str()))
        .collect();
    order.sort_by(|left, right| best_first((left.1, left.2), (right.1, right.2)));
    let mut ranks = vec![0; order.len()];
    for (rank, (place, ..)) in order.iter().enumerate() {
        if let Some(entry) = ranks.get_mut(*place) {
            *entry = rank + 1;
        }
    }
    ranks
}

/// The bars that a ranked candidate must clear to be selected; one without a number is off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guardrails {
    /// The least score.
    pub minimum: Option<f64>,
    /// How far below the best eligible score a score may lie; at least 0.
    pub margin: Option<f64>,
    /// The least stage-1 blend, in [-1, 1]: the cross-encoder cannot lift what stage 1 rejects.
    pub agreement: Option<f64>,
    /// How many are selected at most.
    pub limit: Option<usize>,
}

/// Why a candidate was not selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Its stage-1 blend is too low.
    Disagreement,
    /// Its score is too low.
    BelowMinimum,
    /// It lies too far behind the best.
    BeyondMargin,
    /// Enough better ones were selected.
    OverLimit,
}

impl Dropped {
    /// Identifier for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Disagreement => "disagreement",
            Self::BelowMinimum => "below_minimum",
            Self::BeyondMargin => "beyond_margin",
            Self::OverLimit => "over_limit",
        }
    }
}

/// Applies the guardrails to (score, stage-1 blend) pairs that are sorted best first.
///
/// Returns for each pair why it was dropped, or none where it passes; the order stays. Only a
/// candidate that clears the agreement bar can be the best that the margin is measured from.
pub fn passes(ranked: &[(f64, f64)], guardrails: &Guardrails) -> Vec<Option<Dropped>> {
    let agrees = |blend: f64| guardrails.agreement.is_none_or(|least| blend >= least);
    let best = ranked.iter().find(|(_, blend)| agrees(*blend)).map(|(score, _)| *score);
    let mut selected = 0;
    ranked
        .iter()
        .map(|(score, blend)| {
            let dropped = if !agrees(*blend) {
                Some(Dropped::Disagreement)
            } else if guardrails.minimum.is_some_and(|least| *score < least) {
                Some(Dropped::BelowMinimum)
            } else if guardrails
                .margin
                .zip(best)
                .is_some_and(|(margin, best)| best - score > margin)
            {
                Some(Dropped::BeyondMargin)
            } else if guardrails.limit.is_some_and(|limit| selected >= limit) {
                Some(Dropped::OverLimit)
            } else {
                None
            };
            selected += usize::from(dropped.is_none());
            dropped
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLEND: Blend = Blend { cosine_weight: 0.7, bm25_weight: 0.3, bm25_half: 5.0 };

    fn scored(id: &str, blend: f64) -> Scored {
        Scored { id: id.to_owned(), cosine: Some(blend), bm25: 5.0, overlap: 1, blend }
    }

    #[test]
    fn each_mode_does_what_it_says() {
        let candidates = [scored("a", 0.9), scored("b", 0.5), scored("c", 0.1)];
        let logits = [-1.0, 2.0, 3.0];
        let run = |mode| combine(&candidates, &logits, &BLEND, mode).unwrap();
        assert_eq!(run(Combine::Replace), logits);
        let fused = run(Combine::ReciprocalRank { k: 60.0 });
        assert_eq!(fused[0], 1.0 / 61.0 + 1.0 / 63.0);
        assert_eq!(fused[1], 1.0 / 62.0 + 1.0 / 62.0);
        let weighted = run(Combine::Weighted { cosine: 2.0, bm25: 3.0, logit: 0.5 });
        assert_eq!(weighted[1], 2.0 * 0.5 + 3.0 * 0.5 + 0.5 * 2.0);
    }

    #[test]
    fn combine_refuses_what_has_no_order() {
        let candidates = [scored("a", 0.9)];
        let run = |logits: &[f64], mode| combine(&candidates, logits, &BLEND, mode).unwrap_err();
        assert_eq!(run(&[], Combine::Replace).code(), "out_of_range");
        assert_eq!(run(&[f64::NAN], Combine::Replace).code(), "not_finite");
        assert_eq!(run(&[1.0], Combine::ReciprocalRank { k: 0.0 }).code(), "out_of_range");
        let weights = Combine::Weighted { cosine: 0.0, bm25: f64::INFINITY, logit: 1.0 };
        assert_eq!(run(&[1.0], weights).code(), "out_of_range");
        let most = f64::MAX;
        for (cosine, bm25, logit) in [(0.0, 0.0, 10.0), (most, most, 0.0), (most, most, -10.0)] {
            let weights = Combine::Weighted { cosine, bm25, logit };
            assert_eq!(run(&[1e308], weights).code(), "not_finite");
        }
    }

    #[test]
    fn each_guardrail_names_itself() {
        let ranked = [(4.0, 0.1), (3.0, 0.5), (2.5, 0.5), (2.0, 0.5), (0.5, 0.5), (-3.0, 0.5)];
        let guardrails = Guardrails {
            minimum: Some(-1.0),
            margin: Some(2.0),
            agreement: Some(0.2),
            limit: Some(2),
        };
        assert_eq!(
            passes(&ranked, &guardrails),
            [
                Some(Dropped::Disagreement),
                None,
                None,
                Some(Dropped::OverLimit),
                Some(Dropped::BeyondMargin),
                Some(Dropped::BelowMinimum)
            ]
        );
        assert!(passes(&ranked, &Guardrails::default()).iter().all(Option::is_none));
    }

    proptest! {
        #[test]
        fn guardrails_keep_what_clears_every_bar_and_nothing_else(
            mut ranked in prop::collection::vec((-5.0..5.0_f64, 0.0..1.0_f64), 0..10),
            minimum in -5.0..5.0_f64, margin in 0.0..5.0_f64, agreement in 0.0..1.0_f64,
            limit in 0_usize..5,
        ) {
            ranked.sort_by(|left, right| right.0.total_cmp(&left.0));
            let guardrails = Guardrails {
                minimum: Some(minimum), margin: Some(margin), agreement: Some(agreement),
                limit: Some(limit),
            };
            let eligible: Vec<_> = ranked.iter().filter(|(_, blend)| *blend >= agreement).collect();
            let best = eligible.iter().map(|(score, _)| *score).fold(f64::MIN, f64::max);
            let expected: Vec<_> = eligible.iter()
                .filter(|(score, _)| *score >= minimum && best - score <= margin)
                .take(limit).collect();
            let kept: Vec<_> = ranked.iter().zip(passes(&ranked, &guardrails))
                .filter(|(_, dropped)| dropped.is_none()).map(|(pair, _)| pair).collect();
            prop_assert_eq!(kept, expected.into_iter().copied().collect::<Vec<_>>());
        }

        #[test]
        fn reciprocal_rank_equals_its_definition_and_ignores_scale(
            rows in prop::collection::vec((0_u8..5, -4_i8..4), 1..10),
        ) {
            let candidates: Vec<Scored> = rows.iter().enumerate()
                .map(|(place, (blend, _))| scored(&place.to_string(), f64::from(*blend))).collect();
            let logits: Vec<f64> = rows.iter().map(|(_, logit)| f64::from(*logit)).collect();
            let stretched: Vec<f64> = logits.iter().map(|logit| 10.0 * logit + 3.0).collect();
            let mode = Combine::ReciprocalRank { k: 60.0 };
            let fused = combine(&candidates, &logits, &BLEND, mode).unwrap();
            prop_assert_eq!(&fused, &combine(&candidates, &stretched, &BLEND, mode).unwrap());
            for (place, score) in fused.iter().enumerate() {
                let rank = |better: &dyn Fn(usize) -> std::cmp::Ordering| {
                    1.0 + (0..rows.len()).filter(|other| better(*other).is_gt()).count() as f64
                };
                let by_blend = rank(&|other| candidates[other].blend.total_cmp(&candidates[place].blend)
                    .then_with(|| candidates[place].id.cmp(&candidates[other].id)));
                let by_logit = rank(&|other| logits[other].total_cmp(&logits[place])
                    .then_with(|| candidates[place].id.cmp(&candidates[other].id)));
                prop_assert!((score - 1.0 / (60.0 + by_blend) - 1.0 / (60.0 + by_logit)).abs() < 1e-15);
            }
        }
    }
}
