//! Anytime reranking: whether the unread candidates of the pool can still be selected.
//!
//! Stage 2 reads the pool best blend first. After each candidate, [`can_stop`] bounds the
//! probability that any unread candidate gets a better combined score than the best read candidate,
//! or, where several can be selected, comes as close to it as `runner_up` asks.
//! The rule depends on the scores alone, so the same candidates are read whatever the number of
//! threads.
//!
//! # Model
//!
//! The rerank score of a candidate is modelled as a linear function of its stage-1 scores plus a
//! residual. Residuals of one query are correlated: a share `shared` of their variance belongs to
//! the query. After `n` reads with residuals `r`, the residual of an unread candidate therefore has
//! the mean `shared * sum(r) / (1 + shared * (n - 1))` and the variance
//! `deviation^2 * (1 - shared^2 * n / (1 + shared * (n - 1)))`, as in a random-effects model. Its
//! distribution is taken to be logistic, which has heavier tails than the normal distribution. The
//! probabilities of the unread candidates are added up (Boole's inequality).

use crate::conclude::{Pair, combine};
use crate::error::Result;
use crate::gate::Gated;
use crate::profile::{Anytime, Combine, Profile};
use crate::signals::Reranked;
use crate::stage1::Scored;

/// Fewest candidates to read where they share one probability, which depends on the lead of the first.
const LEAST_READ: usize = 2;

impl Anytime {
    fn predicted(&self, candidate: &Scored) -> f64 {
        self.intercept
            + self.cosine * candidate.cosine.unwrap_or_default()
            + self.bm25 * candidate.bm25.ln_1p()
    }

    /// Mean and standard deviation of the residual of an unread candidate.
    fn residual(&self, read: &[Reranked<'_>]) -> (f64, f64) {
        let count = read.len() as f64;
        let sum: f64 = read.iter().map(|of| of.rerank_score - self.predicted(of.candidate)).sum();
        let norm = 1.0 + self.shared * (count - 1.0);
        let left = (1.0 - self.shared * self.shared * count / norm).max(0.0);
        (self.shared * sum / norm, self.deviation * left.sqrt())
    }
}

/// Whether the unread candidates of the pool are too unlikely to be selected.
///
/// `pairs` are the rerank scores of the first candidates of the pool, in its order. False without a
/// model in the profile, if the profile was not fitted for the reranker, if any number of candidates
/// may be selected however far they are behind, and if scores are combined by rank or by their
/// spread, because an unread candidate then also moves the scores of the others.
///
/// A single pick of one probability that candidates share must only not change. Passages, each of
/// which has a probability of its own, are compared with `runner_up` whatever the limit, since
/// stage 2 may put any of them first that comes close.
///
/// Fails with `not_finite` or `out_of_range` for a score that [`crate::conclude::conclude`] refuses.
pub fn can_stop(
    gated: &Gated,
    pairs: &[Pair],
    reranker: Option<&str>,
    profile: &Profile,
) -> Result<bool> {
    let Some(model) = profile.anytime.filter(|_| profile.fits(reranker)) else { return Ok(false) };
    let weight = match profile.combine {
        Combine::Replace {} => 1.0,
        Combine::Weighted { rerank_score, .. } => rerank_score,
        Combine::Rrf { .. } | Combine::ZScore { .. } => return Ok(false),
    };
    let on_their_own = profile.relevance.stage2.is_some_and(|model| model.intercept.is_some());
    let behind = match profile.runner_up.stage2 {
        Some(behind) if on_their_own || behind == 0.0 => behind,
        _ if gated.limit == Some(1) && !on_their_own => 0.0,
        _ => return Ok(false),
    };
    let least = if on_their_own { 1 } else { LEAST_READ };
    if pairs.len() < least || weight <= 0.0 {
        return Ok(false);
    }
    let pool: Vec<&Scored> = gated.pool.iter().filter_map(|at| gated.scored.get(*at)).collect();
    let (read, unread) = pool.split_at(pairs.len().min(pool.len()));
    let read: Vec<Reranked<'_>> = read
        .iter()
        .zip(pairs)
        .map(|(candidate, pair)| Reranked { candidate, rerank_score: pair.score })
        .collect();
    let scores = combine(&read, &profile.blend, &profile.evidence, profile.combine)?;
    let Some(best) = scores.into_iter().reduce(f64::max) else { return Ok(false) };
    let (mean, deviation) = model.residual(&read);
    let unscored: Vec<Reranked<'_>> =
        unread.iter().map(|candidate| Reranked { candidate, rerank_score: 0.0 }).collect();
    let base = combine(&unscored, &profile.blend, &profile.evidence, profile.combine)?;
    let change: f64 = unread
        .iter()
        .zip(base)
        .map(|(candidate, base)| {
            let needed = (best - behind - base) / weight;
            exceeds(needed - model.predicted(candidate) - mean, deviation)
        })
        .sum();
    Ok(change < model.stop)
}

/// The probability that a logistic variable with mean 0 exceeds a threshold.
fn exceeds(threshold: f64, deviation: f64) -> f64 {
    if deviation <= 0.0 {
        return if threshold > 0.0 { 0.0 } else { 1.0 };
    }
    let scale = deviation * 3.0_f64.sqrt() / std::f64::consts::PI;
    1.0 / (1.0 + (threshold / scale).exp())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gate::{Request, gate};
    use crate::policy::Policy;
    use crate::profile::{Relevance, RunnerUpRule, Stage2Relevance};

    fn model() -> Anytime {
        let (intercept, cosine, bm25) = (-5.0, 10.0, 0.3);
        Anytime { intercept, cosine, bm25, deviation: 1.5, shared: 0.5, stop: 0.02 }
    }

    fn profile() -> Profile {
        Profile {
            combine: Combine::Weighted { cosine: 12.0, bm25: 15.0, rerank_score: 0.5 },
            runner_up: RunnerUpRule { stage1: None, stage2: Some(0.0) },
            anytime: Some(model()),
            ..Profile::default()
        }
    }

    fn gated(cosines: &[f64], profile: &Profile) -> Gated {
        let scored = |(number, cosine): (usize, &f64)| Scored {
            id: format!("{number:03}"),
            cosine: Some(*cosine),
            bm25: 1.0,
            overlap: 1,
            blend: *cosine,
            ..Scored::default()
        };
        let scored = cosines.iter().enumerate().map(scored).collect();
        gate(scored, profile, &Policy::default(), &Request::default()).unwrap()
    }

    fn pairs(gated: &Gated, scores: &[f64]) -> Vec<Pair> {
        gated
            .pool
            .iter()
            .zip(scores)
            .map(|(at, score)| Pair {
                id: gated.scored[*at].id.clone(),
                score: *score,
                truncated: false,
            })
            .collect()
    }

    fn stops(cosines: &[f64], scores: &[f64], profile: &Profile) -> bool {
        let gated = gated(cosines, profile);
        can_stop(&gated, &pairs(&gated, scores), None, profile).unwrap()
    }

    #[test]
    fn stops_if_the_rest_is_far_behind() {
        let cosines = [0.8, 0.6, 0.2, 0.1];
        assert!(stops(&cosines, &[4.0, 2.0], &profile()));
        let independent =
            Profile { anytime: Some(Anytime { shared: 0.0, ..model() }), ..profile() };
        assert!(!stops(&[0.8, 0.6, 0.55, 0.5], &[-6.0, -7.0], &independent), "both are bad");
        assert!(!stops(&[0.8, 0.79, 0.78, 0.77], &[3.0, 2.0], &profile()), "all are alike");
        assert!(!stops(&cosines, &[4.0], &profile()), "one was read");
        assert!(!stops(&cosines, &[], &profile()));
    }

    #[test]
    fn passages_are_read_while_one_may_come_as_close_as_a_further_pick() {
        let model = Stage2Relevance { intercept: Some(0.0), ..Stage2Relevance::default() };
        let passages = |behind| Profile {
            relevance: Relevance { stage2: Some(model), ..Relevance::default() },
            runner_up: RunnerUpRule { stage1: None, stage2: behind },
            ..profile()
        };
        let (clear, score) = ([0.8, 0.3, 0.2], [6.0]);
        assert!(stops(&clear, &score, &passages(Some(1.0))), "one read passage can be enough");
        assert!(!stops(&clear, &score, &passages(Some(12.0))), "others could be selected, too");
        assert!(!stops(&clear, &score, &passages(None)), "any number may be selected");
        assert!(!stops(&[0.8, 0.8, 0.8], &[1.0], &passages(Some(1.0))));
        assert!(!stops(&clear, &[], &passages(Some(1.0))));
    }

    #[test]
    fn stops_after_the_last_candidate_of_the_pool() {
        assert!(stops(&[0.8, 0.79], &[-9.0, -9.0], &profile()));
        assert!(stops(&[0.8, 0.79], &[-9.0, -9.0, 1.0], &profile()), "a pair too many");
    }

    #[test]
    fn never_stops_if_the_rule_does_not_apply() {
        let (cosines, scores) = ([0.8, 0.6, 0.2, 0.1], [4.0, 2.0]);
        let never = [
            Profile { anytime: None, ..profile() },
            Profile { reranker: Some("another".to_owned()), ..profile() },
            Profile { combine: Combine::Rrf { k: 60.0 }, ..profile() },
            Profile { combine: Combine::ZScore { rerank_score: 1.0 }, ..profile() },
            Profile { runner_up: RunnerUpRule::default(), ..profile() },
            Profile {
                combine: Combine::Weighted { cosine: 1.0, bm25: 1.0, rerank_score: -1.0 },
                ..profile()
            },
        ];
        assert!(never.iter().all(|profile| !stops(&cosines, &scores, profile)));
        assert!(stops(&cosines, &scores, &Profile { combine: Combine::Replace {}, ..profile() }));
    }

    #[test]
    fn residuals_follow_the_random_effects_model() {
        // With two reads: the best linear prediction from the covariance matrix
        // [[1, s], [s, 1]] and the covariances (s, s).
        let (deviation, shared) = (2.0, 0.4);
        let model = Anytime { deviation, shared, ..Anytime::default() };
        let candidate = Scored::default();
        let read = [1.0, 3.0].map(|rerank_score| Reranked { candidate: &candidate, rerank_score });
        let weight = shared / (1.0 + shared);
        let (mean, spread) = model.residual(&read);
        assert!((mean - weight * 4.0).abs() < 1e-12);
        assert!((spread - deviation * (1.0 - 2.0 * shared * weight).sqrt()).abs() < 1e-12);
        let certain = Anytime { shared: 1.0, ..model };
        assert_eq!(certain.residual(&read), (2.0, 0.0));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for wrong in [
            Anytime { deviation: 0.0, ..model() },
            Anytime { deviation: f64::NAN, ..model() },
            Anytime { shared: 1.5, ..model() },
            Anytime { stop: -0.1, ..model() },
            Anytime { cosine: f64::INFINITY, ..model() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        model().check().unwrap();
    }

    proptest! {
        #[test]
        fn better_read_scores_never_keep_reading(
            cosines in prop::collection::vec(0.0..1.0_f64, 3..8),
            scores in prop::collection::vec(-8.0..8.0_f64, 2),
            stop in 0.0..1.0_f64,
        ) {
            // Without a shared part, only the best combined score counts.
            let model = Anytime { shared: 0.0, stop, ..model() };
            let profile = Profile { anytime: Some(model), ..profile() };
            let better: Vec<f64> = scores.iter().map(|score| score + 1.0).collect();
            if stops(&cosines, &scores, &profile) {
                prop_assert!(stops(&cosines, &better, &profile));
            }
        }

        #[test]
        fn a_higher_threshold_never_reads_more(
            cosines in prop::collection::vec(0.0..1.0_f64, 3..8),
            scores in prop::collection::vec(-8.0..8.0_f64, 2..4),
            stop in 0.0..0.5_f64,
        ) {
            let with = |stop| Profile { anytime: Some(Anytime { stop, ..model() }), ..profile() };
            if stops(&cosines, &scores, &with(stop)) {
                prop_assert!(stops(&cosines, &scores, &with(2.0 * stop)));
            }
        }
    }
}
