//! The conclusion: stage 2's scores joined with stage 1, the guardrails, and what is selected.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::checks::LARGEST;
use crate::error::{Error, Result};
use crate::fusion::Normalisation;
use crate::gate::{Gated, Note, Reason, Verdict, clears};
use crate::json::{codes, value};
use crate::policy::{Policy, Warnings};
use crate::profile::{Combine, Profile};
use crate::signals::{Reading, reading};
use crate::stage1::{Blend, Scored, best_first};

value! {
    /// What a reranker says about one candidate.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Pair {
        /// Id of the candidate.
        pub id: String,
        /// The raw score, higher is better: a logit, or a remote provider's own number.
        pub score: f64,
        /// Whether the end of the document did not fit into the reranker's input.
        pub truncated: bool,
    }
}

codes! {
    /// Why a candidate was not selected.
    pub enum Dropped {
        /// The gate found nothing relevant.
        NothingRelevant = "nothing_relevant",
        /// Its cosine lies below the floor of the section.
        BelowFloor = "below_floor",
        /// It stands below a score cliff, so that stage 2 did not read it.
        BelowCliff = "below_cliff",
        /// Stage 2 had no room for it, or gave it no score.
        NotReranked = "not_reranked",
        /// Its blend is too low.
        Disagreement = "disagreement",
        /// Its score is too low.
        BelowMinimum = "below_minimum",
        /// It lies too far behind the best.
        BeyondLead = "beyond_lead",
        /// Enough better ones were selected.
        OverLimit = "over_limit",
        /// It is too improbable that it fits.
        Irrelevant = "irrelevant",
        /// It is too improbable that the first candidate fits.
        Improbable = "improbable",
    }
}

value! {
    /// Where one candidate ended up.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Place {
        /// Id of the candidate.
        pub id: String,
        /// What the final order is made of; none for a candidate that was left out of it.
        pub score: Option<f64>,
        /// Rank after stage 1, from 1.
        pub stage1_rank: usize,
        /// Rank after stage 2, from 1; none where stage 2 did not read it.
        pub stage2_rank: Option<usize>,
        /// How probable it is that it fits, whatever the others are like; none where no model
        /// knows.
        pub relevance: Option<f64>,
        /// Why it was not selected; none for a selected one.
        pub dropped: Option<Dropped>,
    }
}

value! {
    /// The decision.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Decision {
        /// What the gate made of stage 1.
        pub verdict: Verdict,
        /// The rule that decided.
        pub reason: Reason,
        /// 1 where the order of stage 1 stands, 2 where stage 2 had its say.
        pub stage: u8,
        /// How probable it is that the first candidate fits; none where no model knows.
        pub confidence: Option<f64>,
        /// Ids of the selected candidates, best first.
        pub selected: Vec<String>,
        /// All candidates, best first.
        pub places: Vec<Place>,
        /// Signs that the result is worth less than it looks.
        pub warnings: Vec<Note>,
        /// What of the profile could not be used.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub notes: Vec<Note>,
    }
}

/// Orders and selects the candidates.
///
/// `pairs` are what the reranker of this identity made of the pool; none where stage 2 had no say.
/// The scores of a reranker that the profile was not fitted for count by their order alone.
///
/// Fails with `not_finite` for a score that is not finite, and with `out_of_range` for one that no
/// sum can hold.
pub fn conclude(
    gated: &Gated,
    pairs: &[Pair],
    reranker: Option<&str>,
    profile: &Profile,
    policy: &Policy,
) -> Result<Decision> {
    check(pairs)?;
    let scored = &gated.scored;
    let order = if gated.verdict == Verdict::NothingRelevant {
        Order::nothing(gated, profile)
    } else if pairs.is_empty() {
        Order::of_stage1(gated, profile, policy)
    } else {
        Order::of_stage2(gated, pairs, reranker, profile, policy)?
    };
    let Order { mut ranked, confidence, stage2 } = order;
    // Where no model knows the first candidate beside the others, what is known of it alone holds.
    let confidence = confidence.or_else(|| ranked.first()?.relevance);
    let below = |least: f64| confidence.is_some_and(|known| known < least);
    // What the caller asks for is not met by a confidence that nobody knows.
    let short = |least: f64| confidence.is_none_or(|known| known < least);
    if gated.verdict != Verdict::NothingRelevant
        && (profile.answer.threshold.is_some_and(below) || gated.min_confidence.is_some_and(short))
    {
        for one in &mut ranked {
            one.dropped = one.dropped.or(Some(Dropped::Improbable));
        }
    }
    let none_left = ranked.iter().all(|one| one.dropped.is_some());
    let reason = match gated.verdict {
        Verdict::NothingRelevant => gated.reason,
        _ if none_left => Reason::Rejected,
        _ if stage2 => Reason::Reranked,
        _ => gated.reason,
    };
    let cut: HashSet<usize> =
        gated.cliff.iter().flat_map(|cliff| cliff.cut.iter().copied()).collect();
    let in_order: HashSet<usize> = ranked.iter().map(|one| one.at).collect();
    let left_out = scored.iter().enumerate().filter(|(at, _)| !in_order.contains(at));
    let left_out = left_out.map(|(at, one)| {
        let dropped = if !clears(one, gated.floor) {
            Dropped::BelowFloor
        } else if cut.contains(&at) {
            Dropped::BelowCliff
        } else {
            Dropped::NotReranked
        };
        let relevance = relevance(gated, profile, one, None);
        Ranked { at, score: None, stage2_rank: None, relevance, dropped: Some(dropped) }
    });
    let places: Vec<Place> = ranked
        .iter()
        .copied()
        .chain(left_out)
        .filter_map(|one| {
            scored.get(one.at).map(|candidate| Place {
                id: candidate.id.clone(),
                score: one.score,
                stage1_rank: one.at + 1,
                stage2_rank: one.stage2_rank,
                relevance: one.relevance,
                dropped: one.dropped,
            })
        })
        .collect();
    Ok(Decision {
        verdict: gated.verdict,
        reason,
        stage: if stage2 { 2 } else { 1 },
        confidence,
        selected: places
            .iter()
            .filter(|one| one.dropped.is_none())
            .map(|one| one.id.clone())
            .collect(),
        places,
        warnings: warnings(scored, pairs, &policy.warnings),
        notes: if stage2 { not_fitted(profile, reranker) } else { Vec::new() },
    })
}

fn not_fitted(profile: &Profile, reranker: Option<&str>) -> Vec<Note> {
    let Some(fitted) = profile.reranker.as_ref().filter(|_| !profile.fits(reranker)) else {
        return Vec::new();
    };
    let note = |code: &str, detail: String| vec![Note { code: code.to_owned(), detail }];
    note(
        "reranker_not_fitted",
        format!(
            "profile {:?} was fitted for {fitted}, not for {}: only the order of its scores counts, \
             and no threshold applies to them",
            profile.name,
            reranker.unwrap_or("a reranker without a name"),
        ),
    )
}

/// One candidate of an order, by its position in stage 1's.
#[derive(Clone, Copy)]
struct Ranked {
    at: usize,
    score: Option<f64>,
    stage2_rank: Option<usize>,
    relevance: Option<f64>,
    dropped: Option<Dropped>,
}

/// How relevant a candidate is; the rerank score is one of the fitted reranker, or none.
fn relevance(gated: &Gated, profile: &Profile, one: &Scored, score: Option<f64>) -> Option<f64> {
    let need = gated.signals.and_then(|signals| signals.need);
    profile.relevance.probability(one, score, need)
}

/// An order, best first, and how probable it is that its first candidate fits.
struct Order {
    ranked: Vec<Ranked>,
    confidence: Option<f64>,
    stage2: bool,
}

impl Order {
    fn nothing(gated: &Gated, profile: &Profile) -> Self {
        let ranked = gated.scored.iter().enumerate().map(|(at, one)| Ranked {
            at,
            score: Some(one.blend),
            stage2_rank: None,
            relevance: relevance(gated, profile, one, None),
            dropped: Some(if clears(one, gated.floor) {
                Dropped::NothingRelevant
            } else {
                Dropped::BelowFloor
            }),
        });
        Self { ranked: ranked.collect(), confidence: gated.confidence, stage2: false }
    }

    fn of_stage1(gated: &Gated, profile: &Profile, policy: &Policy) -> Self {
        let kept: Vec<(usize, &Scored)> =
            gated.scored.iter().enumerate().filter(|(_, one)| clears(one, gated.floor)).collect();
        let guardrails = Guardrails {
            minimum: None,
            relevance: profile.relevance.threshold,
            lead: profile.second.stage1,
            agreement: policy.agreement,
            limit: gated.limit,
        };
        let judged: Vec<Judged> = kept
            .iter()
            .map(|(_, one)| Judged {
                score: one.blend,
                blend: one.blend,
                relevance: relevance(gated, profile, one, None),
            })
            .collect();
        let dropped = passes(&judged, &guardrails);
        let ranked = kept.iter().zip(judged).zip(dropped).map(|(((at, _), one), dropped)| Ranked {
            at: *at,
            score: Some(one.score),
            stage2_rank: None,
            relevance: one.relevance,
            dropped,
        });
        Self { ranked: ranked.collect(), confidence: gated.confidence, stage2: false }
    }

    fn of_stage2(
        gated: &Gated,
        pairs: &[Pair],
        reranker: Option<&str>,
        profile: &Profile,
        policy: &Policy,
    ) -> Result<Self> {
        let by_id: HashMap<&str, f64> =
            pairs.iter().map(|pair| (pair.id.as_str(), pair.score)).collect();
        let (mut at, mut read, mut raw) = (Vec::new(), Vec::new(), Vec::new());
        for (position, one) in gated.scored.iter().enumerate() {
            if let Some(score) = by_id.get(one.id.as_str()).filter(|_| clears(one, gated.floor)) {
                at.push(position);
                read.push(one);
                raw.push(*score);
            }
        }
        let fits = profile.fits(reranker);
        let mode = if fits { profile.combine } else { Combine::default() };
        let scores = combine(&read, &raw, &profile.blend, mode)?;
        let guardrails = Guardrails {
            minimum: policy.rerank_min.filter(|_| fits),
            relevance: profile.relevance.threshold,
            lead: profile.second.stage2.filter(|_| fits),
            agreement: policy.agreement,
            limit: gated.limit,
        };
        let mut order: Vec<(usize, usize)> =
            ranks(&read, &scores).into_iter().enumerate().map(|(one, rank)| (rank, one)).collect();
        order.sort_unstable();
        let of = |one: usize| {
            let candidate = *read.get(one)?;
            let known = raw.get(one).copied().filter(|_| fits);
            let judged = Judged {
                score: *scores.get(one)?,
                blend: candidate.blend,
                relevance: relevance(gated, profile, candidate, known),
            };
            Some((*at.get(one)?, judged))
        };
        let (ranked, judged): (Vec<(usize, usize)>, Vec<Judged>) = order
            .into_iter()
            .filter_map(|(rank, one)| of(one).map(|(at, judged)| ((rank, at), judged)))
            .unzip();
        let dropped = passes(&judged, &guardrails);
        // Scores of another reranker say nothing to the model; what stage 1 knew still holds.
        let confidence = match profile.confidence.stage2.filter(|_| fits) {
            Some(model) => {
                // The first of stage 1 may be one that has no score.
                let of_stage1 = gated.scored.iter().position(|one| clears(one, gated.floor));
                let same_first = ranked.first().map(|(_, at)| *at) == of_stage1;
                let reading =
                    reading(&read, &raw, &scores).map(|found| Reading { same_first, ..found });
                let seen = gated.signals.zip(reading);
                seen.and_then(|(signals, reading)| model.probability(&signals, &reading))
            }
            None => gated.confidence,
        };
        let ranked = ranked.iter().zip(judged).zip(dropped).map(|(((rank, at), one), dropped)| {
            let (score, relevance) = (Some(one.score), one.relevance);
            Ranked { at: *at, score, stage2_rank: Some(*rank), relevance, dropped }
        });
        Ok(Self { ranked: ranked.collect(), confidence, stage2: true })
    }
}

fn check(pairs: &[Pair]) -> Result<()> {
    for Pair { id, score, .. } in pairs {
        if !score.is_finite() {
            return Err(Error::input(
                "not_finite",
                format!("the rerank score of {id:?} is {score}: it must be finite"),
            ));
        }
        if score.abs() > LARGEST {
            return Err(Error::input(
                "out_of_range",
                format!("the rerank score of {id:?} is {score:e}: it must be from -1e100 to 1e100"),
            ));
        }
    }
    Ok(())
}

/// Two scores say nothing about how scores are spread.
const LEAST_SPREAD: usize = 3;

fn warnings(scored: &[Scored], pairs: &[Pair], thresholds: &Warnings) -> Vec<Note> {
    let mut found = Vec::new();
    let count = pairs.len() as f64;
    let mean = pairs.iter().map(|pair| pair.score / count).sum::<f64>();
    let variance = pairs.iter().map(|pair| (pair.score - mean).powi(2) / count).sum::<f64>();
    let spread = variance.sqrt();
    if let Some(least) = thresholds.flat_scores.filter(|least| spread < *least)
        && pairs.len() >= LEAST_SPREAD
    {
        found.push(Note {
            code: "flat_scores".to_owned(),
            detail: format!(
                "the {} rerank scores deviate by {spread:.3} from their mean, less than {least}: \
                 it may be that none of the candidates fits",
                pairs.len()
            ),
        });
    }
    let best = |scores: &mut dyn Iterator<Item = f64>| scores.reduce(f64::max);
    let cosine = best(&mut scored.iter().filter_map(|one| one.cosine));
    let score = best(&mut pairs.iter().map(|pair| pair.score));
    let weak: Vec<String> = [
        ("cosine", cosine, thresholds.weak_cosine),
        ("rerank score", score, thresholds.weak_rerank_score),
    ]
    .into_iter()
    .filter_map(|(what, best, least)| {
        best.zip(least)
            .filter(|(best, least)| best < least)
            .map(|(best, least)| format!("the best {what} is {best:.3}, below {least}"))
    })
    .collect();
    if !weak.is_empty() {
        found.push(Note {
            code: "weak_retrieval".to_owned(),
            detail: format!(
                "{}: the retriever may have missed what fits, and reranking cannot bring it back; \
                 search wider, or measure its recall",
                weak.join(" and ")
            ),
        });
    }
    found
}

/// One score per candidate, higher is better, in the order of the candidates.
///
/// Fails with `not_finite` where a score is not finite or a weighted sum overflows, and with
/// `out_of_range` where there are not as many scores as candidates or where a weight or `k` is
/// unusable.
pub fn combine(
    candidates: &[&Scored],
    rerank_scores: &[f64],
    blend: &Blend,
    mode: Combine,
) -> Result<Vec<f64>> {
    if candidates.len() != rerank_scores.len() {
        return Err(Error::input(
            "out_of_range",
            format!(
                "{} rerank scores for {} candidates: give one for each",
                rerank_scores.len(),
                candidates.len()
            ),
        ));
    }
    let pairs = || candidates.iter().zip(rerank_scores);
    if let Some((candidate, raw)) = pairs().find(|(_, raw)| !raw.is_finite()) {
        return Err(Error::input(
            "not_finite",
            format!("the rerank score of {:?} is {raw}: it must be finite", candidate.id),
        ));
    }
    match mode {
        Combine::Replace {} => Ok(rerank_scores.to_vec()),
        Combine::Rrf { k } => {
            if !(k.is_finite() && k > 0.0) {
                return Err(Error::input("out_of_range", format!("k is {k}: it must be above 0")));
            }
            let by_blend: Vec<f64> = candidates.iter().map(|one| one.blend).collect();
            let (first, second) = (ranks(candidates, &by_blend), ranks(candidates, rerank_scores));
            let part = |rank: usize| 1.0 / (k + rank as f64);
            Ok(first.into_iter().zip(second).map(|(one, two)| part(one) + part(two)).collect())
        }
        Combine::ZScore { rerank_score } => {
            if !rerank_score.is_finite() {
                return Err(Error::input(
                    "out_of_range",
                    format!("the weight is {rerank_score}: it must be finite"),
                ));
            }
            let standard = |scores: &[f64]| Normalisation::ZScore.apply(scores).0;
            let by_blend: Vec<f64> = candidates.iter().map(|one| one.blend).collect();
            let sums = standard(&by_blend).into_iter().zip(standard(rerank_scores));
            Ok(sums.map(|(blend, read)| blend + rerank_score * read).collect())
        }
        Combine::Weighted { cosine, bm25, rerank_score } => {
            if ![cosine, bm25, rerank_score].iter().all(|weight| weight.is_finite()) {
                return Err(Error::input(
                    "out_of_range",
                    format!(
                        "the weights are {cosine}, {bm25}, {rerank_score}: they must be finite"
                    ),
                ));
            }
            let sum = |(one, value): (&&Scored, &f64)| {
                let score = cosine * one.cosine.unwrap_or_default()
                    + bm25 * blend.bounded_bm25(one.bm25)
                    + rerank_score * value;
                if score.is_finite() {
                    return Ok(score);
                }
                Err(Error::input(
                    "not_finite",
                    format!(
                        "the weighted sum of {:?} with the rerank score {value:e} is {score}: it must be \
                         finite, so take smaller weights or scores",
                        one.id
                    ),
                ))
            };
            pairs().map(sum).collect()
        }
    }
}

/// The rank of each candidate by a score, from 1; ties go to the smaller id.
pub fn ranks(candidates: &[&Scored], scores: &[f64]) -> Vec<usize> {
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

/// What a ranked candidate must clear to be selected; one without a number is off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guardrails {
    /// The least score.
    pub minimum: Option<f64>,
    /// The least probability that a candidate fits, in [0, 1].
    pub relevance: Option<f64>,
    /// How far below the best eligible score a score may lie; at least 0.
    pub lead: Option<f64>,
    /// The least stage-1 blend, in [-1, 1]: the cross-encoder cannot lift what stage 1 rejects.
    pub agreement: Option<f64>,
    /// How many are selected at most.
    pub limit: Option<usize>,
}

/// What the guardrails look at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Judged {
    /// The score that the order is made of.
    pub score: f64,
    /// The score of stage 1.
    pub blend: f64,
    /// How probable it is that it fits; none where that is not known.
    pub relevance: Option<f64>,
}

/// Applies the guardrails to candidates that are sorted best first.
///
/// Returns for each pair why it was dropped, or none where it passes; the order stays. Only a
/// candidate that clears the least agreement can be the best that the lead is measured from.
pub fn passes(ranked: &[Judged], guardrails: &Guardrails) -> Vec<Option<Dropped>> {
    let below = |value: Option<f64>, least: Option<f64>| {
        value.zip(least).is_some_and(|(value, least)| value < least)
    };
    let agrees = |one: &Judged| !below(Some(one.blend), guardrails.agreement);
    let best = ranked.iter().find(|one| agrees(one)).map(|one| one.score);
    let mut selected = 0;
    ranked
        .iter()
        .map(|one| {
            let dropped = if !agrees(one) {
                Some(Dropped::Disagreement)
            } else if below(Some(one.score), guardrails.minimum) {
                Some(Dropped::BelowMinimum)
            } else if below(one.relevance, guardrails.relevance) {
                Some(Dropped::Irrelevant)
            } else if best.zip(guardrails.lead).is_some_and(|(best, lead)| best - one.score > lead)
            {
                Some(Dropped::BeyondLead)
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
    use crate::gate::{Request, gate};
    use crate::policy::Floors;
    use crate::profile::{
        Answer, Confidence, Relevance, Second, Stage1Confidence, Stage1Relevance, Stage2Confidence,
        Stage2Relevance,
    };

    const BLEND: Blend =
        Blend { cosine_weight: 0.7, bm25_weight: 0.3, pivot: 5.0, body_weight: 0.5 };

    fn refs(candidates: &[Scored]) -> Vec<&Scored> {
        candidates.iter().collect()
    }

    fn scored(id: &str, blend: f64) -> Scored {
        let scored = Scored { id: id.to_owned(), cosine: Some(blend), blend, ..Scored::default() };
        Scored { bm25: 5.0, overlap: 1, ..scored }
    }

    fn judged(rows: &[(f64, f64)]) -> Vec<Judged> {
        let one =
            |(score, blend): &(f64, f64)| Judged { score: *score, blend: *blend, relevance: None };
        rows.iter().map(one).collect()
    }

    fn pair(id: &str, score: f64) -> Pair {
        Pair { id: id.to_owned(), score, truncated: false }
    }

    fn fitted() -> Profile {
        Profile {
            reranker: Some("ours".to_owned()),
            combine: Combine::Replace {},
            second: Second { stage1: Some(0.2), stage2: Some(1.0) },
            confidence: Confidence {
                stage1: Some(Stage1Confidence { cosine: 1.0, ..Stage1Confidence::default() }),
                stage2: Some(Stage2Confidence { rerank_score: 1.0, ..Stage2Confidence::default() }),
            },
            ..Profile::default()
        }
    }

    fn gated(profile: &Profile, policy: &Policy, request: &Request) -> Gated {
        let candidates = [("a", 0.9), ("b", 0.8), ("c", 0.3), ("d", 0.1)];
        let scored = candidates.iter().map(|(id, blend)| scored(id, *blend)).collect();
        gate(scored, profile, policy, request).unwrap()
    }

    fn outcome(decision: &Decision) -> Vec<(&str, Option<&str>)> {
        let places = decision.places.iter();
        places.map(|one| (one.id.as_str(), one.dropped.map(Dropped::code))).collect()
    }

    #[test]
    fn without_pairs_the_order_of_stage_1_stands() {
        let (profile, policy) = (fitted(), Policy::default());
        let gated = gated(&profile, &policy, &Request { limit: Some(1), ..Request::default() });
        let decision = conclude(&gated, &[], None, &profile, &policy).unwrap();
        assert_eq!((decision.stage, decision.reason), (1, Reason::Undecided));
        assert_eq!(decision.confidence, gated.confidence);
        assert_eq!(
            outcome(&decision),
            [
                ("a", None),
                ("b", Some("over_limit")),
                ("c", Some("beyond_lead")),
                ("d", Some("beyond_lead"))
            ]
        );
    }

    #[test]
    fn the_same_is_first_only_where_the_first_of_stage_1_was_read() {
        let stage2 = Some(Stage2Confidence { same_first: 3.0, ..Stage2Confidence::default() });
        let profile = Profile { confidence: Confidence { stage1: None, stage2 }, ..fitted() };
        let policy = Policy::default();
        let gated = gated(&profile, &policy, &Request::default());
        let confidence = |pairs: &[Pair]| {
            let decision = conclude(&gated, pairs, Some("ours"), &profile, &policy).unwrap();
            decision.confidence.unwrap()
        };
        assert!(confidence(&[pair("a", 3.0), pair("b", 1.0)]) > 0.9);
        assert_eq!(confidence(&[pair("a", 1.0), pair("b", 3.0)]), 0.5);
        assert_eq!(confidence(&[pair("b", 3.0), pair("c", 1.0)]), 0.5);
    }

    #[test]
    fn without_a_model_of_stage_2_the_confidence_of_stage_1_holds() {
        let stage1 = Some(Stage1Confidence { intercept: -3.0, ..Stage1Confidence::default() });
        let profile = Profile {
            confidence: Confidence { stage1, stage2: None },
            answer: Answer { threshold: Some(0.6), ..Answer::default() },
            ..fitted()
        };
        let policy = Policy::default();
        let gated = gated(&profile, &policy, &Request::default());
        let decision =
            conclude(&gated, &[pair("a", 9.0)], Some("ours"), &profile, &policy).unwrap();
        assert_eq!(decision.confidence, gated.confidence);
        assert_eq!((decision.reason, decision.selected.len()), (Reason::Rejected, 0));
    }

    #[test]
    fn the_pairs_order_what_was_read_and_the_rest_follows() {
        let (profile, policy) = (fitted(), Policy { agreement: Some(0.2), ..Policy::default() });
        let gated = gated(&profile, &policy, &Request::default());
        let pairs = [pair("a", 1.0), pair("b", 2.5), pair("d", 9.0)];
        let decision = conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap();
        assert_eq!((decision.stage, decision.reason), (2, Reason::Reranked));
        assert_eq!(decision.selected, ["b"]);
        assert_eq!(
            outcome(&decision),
            [
                ("d", Some("disagreement")),
                ("b", None),
                ("a", Some("beyond_lead")),
                ("c", Some("not_reranked"))
            ]
        );
        let ranks: Vec<_> =
            decision.places.iter().map(|one| (one.stage1_rank, one.stage2_rank)).collect();
        assert_eq!(ranks, [(4, Some(1)), (2, Some(2)), (1, Some(3)), (3, None)]);
        assert!((decision.confidence.unwrap() - 1.0 / (1.0 + f64::exp(-9.0))).abs() < 1e-15);
    }

    #[test]
    fn the_scores_of_another_reranker_count_by_their_order_alone() {
        let policy = Policy { rerank_min: Some(5.0), ..Policy::default() };
        let profile = fitted();
        let gated = gated(&profile, &policy, &Request::default());
        let pairs = ["a", "b", "c", "d"].map(|id| pair(id, if id == "c" { 0.2 } else { 0.1 }));
        let ours = conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap();
        assert_eq!((ours.reason, ours.selected.len()), (Reason::Rejected, 0));
        assert_eq!(ours.notes, []);
        let theirs = conclude(&gated, &pairs, Some("theirs"), &profile, &policy).unwrap();
        assert_eq!(theirs.selected, ["a", "c", "b", "d"]);
        assert_eq!(theirs.confidence, gated.confidence);
        assert_eq!(theirs.notes[0].code, "reranker_not_fitted");
        assert!(theirs.notes[0].detail.contains("for ours, not for theirs"));
        assert_eq!(conclude(&gated, &[], None, &profile, &policy).unwrap().notes, []);
    }

    #[test]
    fn an_improbable_answer_is_none() {
        let answer = Answer { threshold: Some(0.9), rerank_threshold: None };
        let (profile, policy) = (Profile { answer, ..fitted() }, Policy::default());
        let gated = gated(&profile, &policy, &Request::default());
        let decided = |score| {
            conclude(&gated, &[pair("a", score), pair("b", -9.0)], Some("ours"), &profile, &policy)
                .unwrap()
        };
        assert_eq!((decided(1.0).reason, decided(1.0).selected.len()), (Reason::Rejected, 0));
        assert_eq!(outcome(&decided(1.0))[0], ("a", Some("improbable")));
        assert_eq!(outcome(&decided(1.0))[1], ("b", Some("beyond_lead")));
        assert_eq!(decided(3.0).selected, ["a"]);
    }

    #[test]
    fn each_candidate_says_how_relevant_it_is_and_an_irrelevant_one_takes_no_place() {
        let relevance = Relevance {
            stage1: Some(Stage1Relevance { intercept: -10.0, cosine: 0.0, bm25: 0.0 }),
            stage2: Some(Stage2Relevance { rerank_score: 1.0, ..Stage2Relevance::default() }),
            threshold: Some(0.5),
        };
        let profile = Profile {
            relevance,
            confidence: Confidence::default(),
            answer: Answer::default(),
            combine: Combine::default(),
            second: Second::default(),
            ..fitted()
        };
        let (policy, request) =
            (Policy::default(), Request { limit: Some(1), ..Request::default() });
        let gated = gated(&profile, &policy, &request);
        // By rank, "a" and "b" are alike; what only ranks well does not take the place of "b".
        let pairs = [pair("a", -1.0), pair("b", 3.0)];
        let decision = conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap();
        assert_eq!(outcome(&decision)[..2], [("a", Some("irrelevant")), ("b", None)]);
        let known: Vec<_> = decision.places.iter().map(|one| one.relevance.unwrap()).collect();
        let logistic = |odds: f64| 1.0 / (1.0 + f64::exp(-odds));
        assert_eq!(known, [-1.0, 3.0, -10.0, -10.0].map(logistic));
        assert_eq!(decision.confidence, Some(logistic(-1.0)));

        // Scores of another reranker say nothing: what stage 1 knows holds.
        let other = conclude(&gated, &pairs, Some("theirs"), &profile, &policy).unwrap();
        assert!(other.places.iter().all(|one| one.relevance == Some(logistic(-10.0))));
        assert!(other.selected.is_empty());
    }

    #[test]
    fn what_a_floor_or_a_cliff_took_says_so() {
        let policy = Policy {
            floors: Floors { default: Some(0.2), ..Floors::default() },
            cliff_core: Some(1),
            ..Policy::default()
        };
        let profile = fitted();
        let gated = gated(&profile, &policy, &Request::default());
        assert_eq!(gated.pool, [0, 1]);
        let pairs = [pair("a", 1.0), pair("b", 2.0)];
        let decision = conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap();
        assert_eq!(
            outcome(&decision),
            [("b", None), ("a", None), ("c", Some("below_cliff")), ("d", Some("below_floor"))]
        );
        let high = Policy {
            floors: Floors { default: Some(0.95), ..Floors::default() },
            ..Policy::default()
        };
        let nothing = self::gated(&profile, &high, &Request::default());
        let decision = conclude(&nothing, &[], None, &profile, &high).unwrap();
        assert_eq!(decision.reason, Reason::BelowFloor);
        assert!(outcome(&decision).iter().all(|(_, why)| *why == Some("below_floor")));
    }

    #[test]
    fn warnings_name_what_they_saw() {
        let warnings = Warnings {
            flat_scores: Some(0.5),
            weak_cosine: Some(0.95),
            weak_rerank_score: Some(2.0),
        };
        let (profile, policy) = (fitted(), Policy { warnings, ..Policy::default() });
        let gated = gated(&profile, &policy, &Request::default());
        let codes = |scores: [f64; 3]| -> Vec<String> {
            let pairs = [("a", scores[0]), ("b", scores[1]), ("c", scores[2])];
            let pairs = pairs.map(|(id, score)| pair(id, score));
            let decision = conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap();
            decision.warnings.into_iter().map(|one| one.code).collect()
        };
        assert_eq!(codes([1.0, 1.1, 1.2]), ["flat_scores", "weak_retrieval"]);
        assert_eq!(codes([-4.0, 1.1, 3.0]), ["weak_retrieval"]);
        let decision = conclude(&gated, &[], None, &profile, &policy).unwrap();
        assert!(decision.warnings[0].detail.contains("the best cosine is 0.900, below 0.95"));
    }

    #[test]
    fn a_score_that_no_sum_can_hold_is_refused() {
        let (profile, policy) = (fitted(), Policy::default());
        let gated = gated(&profile, &policy, &Request::default());
        for (score, code) in [(f64::NAN, "not_finite"), (1e101, "out_of_range")] {
            let found = conclude(&gated, &[pair("a", score)], Some("ours"), &profile, &policy);
            assert_eq!(found.unwrap_err().code(), code);
        }
    }

    #[test]
    fn each_mode_does_what_it_says() {
        let candidates = [scored("a", 0.9), scored("b", 0.5), scored("c", 0.1)];
        let logits = [-1.0, 2.0, 3.0];
        let run = |mode| combine(&refs(&candidates), &logits, &BLEND, mode).unwrap();
        assert_eq!(run(Combine::Replace {}), logits);
        let fused = run(Combine::Rrf { k: 60.0 });
        assert_eq!(fused[0], 1.0 / 61.0 + 1.0 / 63.0);
        assert_eq!(fused[1], 1.0 / 62.0 + 1.0 / 62.0);
        // The blends are 1.2247 standard deviations apart; mean and deviation of the logits are
        // 4/3 and the root of 26/9.
        let standard = run(Combine::ZScore { rerank_score: 0.5 });
        let (apart, read) = (1.5_f64.sqrt(), (26.0_f64 / 9.0).sqrt());
        assert!((standard[0] - (apart - 0.5 * (7.0 / 3.0) / read)).abs() < 1e-12);
        assert!((standard[1] - 0.5 * (2.0 / 3.0) / read).abs() < 1e-12);
        let weighted = run(Combine::Weighted { cosine: 2.0, bm25: 3.0, rerank_score: 0.5 });
        assert_eq!(weighted[1], 2.0 * 0.5 + 3.0 * 0.5 + 0.5 * 2.0);
    }

    #[test]
    fn combine_refuses_what_has_no_order() {
        let candidates = [scored("a", 0.9)];
        let run =
            |logits: &[f64], mode| combine(&refs(&candidates), logits, &BLEND, mode).unwrap_err();
        assert_eq!(run(&[], Combine::Replace {}).code(), "out_of_range");
        assert_eq!(run(&[f64::NAN], Combine::Replace {}).code(), "not_finite");
        assert_eq!(run(&[1.0], Combine::Rrf { k: 0.0 }).code(), "out_of_range");
        let endless = Combine::ZScore { rerank_score: f64::NAN };
        assert_eq!(run(&[1.0], endless).code(), "out_of_range");
        let weights = Combine::Weighted { cosine: 0.0, bm25: f64::INFINITY, rerank_score: 1.0 };
        assert_eq!(run(&[1.0], weights).code(), "out_of_range");
        let most = f64::MAX;
        for (cosine, bm25, logit) in [(0.0, 0.0, 10.0), (most, most, 0.0), (most, most, -10.0)] {
            let weights = Combine::Weighted { cosine, bm25, rerank_score: logit };
            assert_eq!(run(&[1e308], weights).code(), "not_finite");
        }
    }

    #[test]
    fn each_guardrail_names_itself() {
        let ranked = [(4.0, 0.1), (3.0, 0.5), (2.5, 0.5), (2.0, 0.5), (0.5, 0.5), (-3.0, 0.5)];
        let mut ranked = judged(&ranked);
        let unlikely = Judged { score: 2.8, blend: 0.5, relevance: Some(0.29) };
        ranked.insert(2, unlikely);
        ranked.insert(2, Judged { relevance: Some(0.3), ..unlikely });
        let guardrails = Guardrails {
            minimum: Some(-1.0),
            relevance: Some(0.3),
            lead: Some(2.0),
            agreement: Some(0.2),
            limit: Some(2),
        };
        assert_eq!(
            passes(&ranked, &guardrails),
            [
                Some(Dropped::Disagreement),
                None,
                None,
                Some(Dropped::Irrelevant),
                Some(Dropped::OverLimit),
                Some(Dropped::OverLimit),
                Some(Dropped::BeyondLead),
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
                minimum: Some(minimum), relevance: None, lead: Some(margin),
                agreement: Some(agreement), limit: Some(limit),
            };
            let eligible: Vec<_> = ranked.iter().filter(|(_, blend)| *blend >= agreement).collect();
            let best = eligible.iter().map(|(score, _)| *score).fold(f64::MIN, f64::max);
            let expected: Vec<_> = eligible.iter()
                .filter(|(score, _)| *score >= minimum && best - score <= margin)
                .take(limit).collect();
            let kept: Vec<_> = ranked.iter().zip(passes(&judged(&ranked), &guardrails))
                .filter(|(_, dropped)| dropped.is_none()).map(|(pair, _)| pair).collect();
            prop_assert_eq!(kept, expected.into_iter().copied().collect::<Vec<_>>());
        }

        #[test]
        fn standard_scores_ignore_scale_and_order(
            rows in prop::collection::vec((0_u8..5, -4_i8..4), 1..10), shift in 0_usize..10,
        ) {
            let made = |rows: &[(usize, (u8, i8))], stretch: f64| -> Vec<(String, f64)> {
                let candidates: Vec<Scored> = rows.iter()
                    .map(|(id, (blend, _))| scored(&id.to_string(), f64::from(*blend))).collect();
                let logits: Vec<f64> =
                    rows.iter().map(|(_, (_, logit))| stretch * f64::from(*logit)).collect();
                let mode = Combine::ZScore { rerank_score: 0.75 };
                let found = combine(&refs(&candidates), &logits, &BLEND, mode).unwrap();
                candidates.into_iter().map(|one| one.id).zip(found).collect()
            };
            let mut rows: Vec<(usize, (u8, i8))> = rows.into_iter().enumerate().collect();
            let mut fused = made(&rows, 1.0);
            // To the bit: four is a power of two.
            prop_assert_eq!(&fused, &made(&rows, 4.0));
            let places = rows.len();
            rows.rotate_left(shift % places);
            fused.rotate_left(shift % places);
            prop_assert_eq!(fused, made(&rows, 1.0));
        }

        #[test]
        fn reciprocal_rank_equals_its_definition_and_ignores_scale(
            rows in prop::collection::vec((0_u8..5, -4_i8..4), 1..10),
        ) {
            let candidates: Vec<Scored> = rows.iter().enumerate()
                .map(|(place, (blend, _))| scored(&place.to_string(), f64::from(*blend))).collect();
            let logits: Vec<f64> = rows.iter().map(|(_, logit)| f64::from(*logit)).collect();
            let stretched: Vec<f64> = logits.iter().map(|logit| 10.0 * logit + 3.0).collect();
            let mode = Combine::Rrf { k: 60.0 };
            let fused = combine(&refs(&candidates), &logits, &BLEND, mode).unwrap();
            prop_assert_eq!(&fused, &combine(&refs(&candidates), &stretched, &BLEND, mode).unwrap());
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
