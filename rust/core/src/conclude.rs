//! The conclusion: combines the scores of stage 2 with stage 1, applies the guardrails and selects.

use std::collections::{HashMap, HashSet};

use crate::checks::{LARGEST, Range};
use crate::error::{Error, Kind, Result};
use crate::evidence::EvidenceWeights;
use crate::fusion::Normalisation;
use crate::gate::{Gated, Note, Reason, Verdict, clears};
use crate::json::{codes, value};
use crate::policy::{Policy, Warnings};
use crate::profile::{Combine, Profile};
use crate::signals::{Signals, Stage2Signals, stage2_signals};
use crate::stage1::{Blend, Scored, best_first};

value! {
    /// The score of a reranker for one candidate.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Pair {
        /// Id of the candidate.
        pub id: String,
        /// The raw score, higher is better: a logit, or the number of a remote provider.
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
        /// Its cosine is below the floor of the section.
        BelowFloor = "below_floor",
        /// It is below a score cliff, so stage 2 did not read it.
        BelowCliff = "below_cliff",
        /// It was not in the pool of stage 2, or the reranker gave it no score.
        NotReranked = "not_reranked",
        /// Its blend is too low.
        Disagreement = "disagreement",
        /// Its combined score is below the policy's `rerank_min`.
        RerankMin = "rerank_min",
        /// Its combined score is further below the best than the policy's `rerank_margin`.
        RerankMargin = "rerank_margin",
        /// Its score is further below the best than the profile's `runner_up` allows.
        RunnerUp = "runner_up",
        /// The limit was reached by better candidates.
        OverLimit = "over_limit",
        /// The probability that it fits is too low.
        Irrelevant = "irrelevant",
        /// The probability that the first candidate fits is too low.
        Improbable = "improbable",
    }
}

value! {
    /// The place of one candidate in the decision.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Place {
        /// Id of the candidate.
        pub id: String,
        /// The score of the final order; none for a candidate outside of it.
        pub score: Option<f64>,
        /// Rank after stage 1, from 1.
        pub stage1_rank: usize,
        /// Rank after stage 2, from 1; none if stage 2 did not read the candidate.
        pub stage2_rank: Option<usize>,
        /// Probability that the candidate fits, independent of the others; none without a model.
        pub relevance: Option<f64>,
        /// Why the candidate was not selected; none if it was.
        pub dropped: Option<Dropped>,
    }
}

value! {
    /// The decision about a query.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Decision {
        /// The verdict of the gate on stage 1.
        pub verdict: Verdict,
        /// The rule that decided.
        pub reason: Reason,
        /// 1 if the order is that of stage 1, 2 if stage 2 changed it.
        pub stage: u8,
        /// Probability that the first candidate fits; none without a model.
        pub confidence: Option<f64>,
        /// Ids of the selected candidates, best first.
        pub selected: Vec<String>,
        /// All candidates, best first.
        pub places: Vec<Place>,
        /// Signs that the result is less reliable than its scores suggest.
        pub warnings: Vec<Note>,
        /// Parts of the profile that could not be used.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub notes: Vec<Note>,
    }
}

/// Orders the candidates and selects some of them.
///
/// `pairs` are the scores that `reranker` gave to candidates of the pool; empty without stage 2. If
/// the profile was fitted for another reranker, only the order of the scores counts.
///
/// Fails with `not_finite` for a score that is not finite, and with `out_of_range` for one outside of
/// -1e100 to 1e100.
///
/// # Examples
///
/// ```
/// use crossgate_core::conclude::{Pair, conclude};
/// use crossgate_core::gate::{Reason, Request, gate};
/// use crossgate_core::policy::Policy;
/// use crossgate_core::profile::Profile;
/// use crossgate_core::stage1::Scored;
///
/// let (profile, policy) = (Profile::default(), Policy::default());
/// let request = Request { limit: Some(1), ..Request::default() };
/// let scored = |id: &str, cosine: f64| Scored {
///     id: id.to_owned(),
///     cosine: Some(cosine),
///     blend: cosine,
///     ..Scored::default()
/// };
/// let candidates = vec![scored("csv", 0.41), scored("pdf", 0.44), scored("png", 0.1)];
/// let gated = gate(candidates, &profile, &policy, &request)?;
///
/// let pair = |id: &str, score: f64| Pair { id: id.to_owned(), score, truncated: false };
/// let pairs = [pair("pdf", -0.3), pair("csv", 2.5), pair("png", -3.0)];
/// let decision = conclude(&gated, &pairs, Some("toy"), &profile, &policy)?;
/// assert_eq!((decision.reason, decision.selected), (Reason::Reranked, vec!["csv".to_owned()]));
/// # Ok::<(), crossgate_core::Error>(())
/// ```
pub fn conclude(
    gated: &Gated,
    pairs: &[Pair],
    reranker: Option<&str>,
    profile: &Profile,
    policy: &Policy,
) -> Result<Decision> {
    check(pairs)?;
    let Order { mut ranked, confidence, stage2 } = if gated.verdict == Verdict::NothingRelevant {
        Order::nothing_relevant(gated, profile)
    } else if pairs.is_empty() {
        Order::of_stage1(gated, profile, policy)
    } else {
        Order::of_stage2(gated, pairs, reranker, profile, policy)?
    };
    // Without a model that compares the first candidate with the others, its own relevance counts.
    let confidence = confidence.or_else(|| ranked.first()?.relevance);
    // A threshold of the profile needs a known confidence, while a minimum of the caller is not met
    // by an unknown one.
    let below_threshold =
        profile.answer.threshold.zip(confidence).is_some_and(|(least, known)| known < least);
    let below_caller_minimum =
        gated.min_confidence.is_some_and(|least| confidence.is_none_or(|known| known < least));
    if gated.verdict != Verdict::NothingRelevant && (below_threshold || below_caller_minimum) {
        for ranked in &mut ranked {
            ranked.dropped = ranked.dropped.or(Some(Dropped::Improbable));
        }
    }
    let reason = match gated.verdict {
        Verdict::NothingRelevant => gated.reason,
        _ if ranked.iter().all(|ranked| ranked.dropped.is_some()) => Reason::Rejected,
        _ if stage2 => Reason::Reranked,
        _ => gated.reason,
    };
    let left_out = left_out(gated, profile, &ranked);
    let places: Vec<Place> = ranked.iter().chain(&left_out).map(Ranked::place).collect();
    let selected = places.iter().filter(|place| place.dropped.is_none());
    Ok(Decision {
        verdict: gated.verdict,
        reason,
        stage: if stage2 { 2 } else { 1 },
        confidence,
        selected: selected.map(|place| place.id.clone()).collect(),
        places,
        warnings: warnings(&gated.scored, pairs, &policy.warnings),
        notes: if stage2 { not_fitted(profile, reranker) } else { Vec::new() },
    })
}

fn check(pairs: &[Pair]) -> Result<()> {
    for Pair { id, score, .. } in pairs {
        let name = || format!("the rerank score of {id:?}");
        if !score.is_finite() {
            return Err(Error::not_finite(name(), *score));
        }
        if score.abs() > LARGEST {
            return Err(Error::out_of_range(name(), format!("{score:e}"), "from -1e100 to 1e100"));
        }
    }
    Ok(())
}

fn not_fitted(profile: &Profile, reranker: Option<&str>) -> Vec<Note> {
    let Some(fitted) = profile.reranker.as_ref().filter(|_| !profile.fits(reranker)) else {
        return Vec::new();
    };
    vec![Note {
        code: "reranker_not_fitted".to_owned(),
        detail: format!(
            "profile {:?} was fitted for {fitted}, not for {}: only the order of its scores counts, \
             and no threshold applies to them",
            profile.name,
            reranker.unwrap_or("a reranker without a name"),
        ),
    }]
}

/// A candidate and its place in an order.
#[derive(Clone, Copy)]
struct Ranked<'a> {
    candidate: &'a Scored,
    /// Position in the order of stage 1, from 0.
    position: usize,
    score: Option<f64>,
    stage2_rank: Option<usize>,
    relevance: Option<f64>,
    truncated: bool,
    dropped: Option<Dropped>,
}

impl Ranked<'_> {
    fn place(&self) -> Place {
        Place {
            id: self.candidate.id.clone(),
            score: self.score,
            stage1_rank: self.position + 1,
            stage2_rank: self.stage2_rank,
            relevance: self.relevance,
            dropped: self.dropped,
        }
    }
}

/// The candidates that are not in an order, in the order of stage 1.
fn left_out<'a>(gated: &'a Gated, profile: &Profile, ranked: &[Ranked<'_>]) -> Vec<Ranked<'a>> {
    let cut: HashSet<usize> =
        gated.cliff.iter().flat_map(|cliff| cliff.cut.iter().copied()).collect();
    let in_order: HashSet<usize> = ranked.iter().map(|ranked| ranked.position).collect();
    let left_out =
        gated.scored.iter().enumerate().filter(|(position, _)| !in_order.contains(position));
    left_out
        .map(|(position, candidate)| {
            let dropped = if !clears(candidate, gated.floor) {
                Dropped::BelowFloor
            } else if cut.contains(&position) {
                Dropped::BelowCliff
            } else {
                Dropped::NotReranked
            };
            Ranked {
                candidate,
                position,
                score: None,
                stage2_rank: None,
                relevance: relevance(gated, profile, candidate, None),
                truncated: false,
                dropped: Some(dropped),
            }
        })
        .collect()
}

/// The relevance of a candidate, given its score of the reranker that the profile was fitted for.
fn relevance(
    gated: &Gated,
    profile: &Profile,
    candidate: &Scored,
    rerank_score: Option<f64>,
) -> Option<f64> {
    let needs_document = gated.signals.and_then(|signals| signals.needs_document);
    let evidence = profile.evidence.log_odds(&candidate.evidence);
    profile.relevance.probability_with(evidence, candidate, rerank_score, needs_document)
}

/// An order, best first, and the probability that its first candidate fits.
struct Order<'a> {
    ranked: Vec<Ranked<'a>>,
    confidence: Option<f64>,
    stage2: bool,
}

impl<'a> Order<'a> {
    fn nothing_relevant(gated: &'a Gated, profile: &Profile) -> Self {
        let ranked = gated.scored.iter().enumerate().map(|(position, candidate)| Ranked {
            candidate,
            position,
            score: Some(candidate.blend),
            stage2_rank: None,
            relevance: relevance(gated, profile, candidate, None),
            truncated: false,
            dropped: Some(if clears(candidate, gated.floor) {
                Dropped::NothingRelevant
            } else {
                Dropped::BelowFloor
            }),
        });
        Self { ranked: ranked.collect(), confidence: gated.confidence, stage2: false }
    }

    fn of_stage1(gated: &'a Gated, profile: &Profile, policy: &Policy) -> Self {
        let guardrails = Guardrails {
            rerank_min: None,
            rerank_margin: None,
            relevance: profile.relevance.threshold,
            runner_up: profile.runner_up.stage1,
            agreement: policy.agreement,
            limit: gated.limit,
        };
        let clearing =
            gated.scored.iter().enumerate().filter(|(_, scored)| clears(scored, gated.floor));
        let mut ranked: Vec<Ranked<'a>> = clearing
            .map(|(position, candidate)| Ranked {
                candidate,
                position,
                score: Some(candidate.blend),
                stage2_rank: None,
                relevance: relevance(gated, profile, candidate, None),
                truncated: false,
                dropped: None,
            })
            .collect();
        guardrails.apply(&mut ranked);
        Self { ranked, confidence: gated.confidence, stage2: false }
    }

    fn of_stage2(
        gated: &'a Gated,
        pairs: &[Pair],
        reranker: Option<&str>,
        profile: &Profile,
        policy: &Policy,
    ) -> Result<Self> {
        let truncated: HashSet<&str> =
            pairs.iter().filter(|pair| pair.truncated).map(|pair| pair.id.as_str()).collect();
        let score_of: HashMap<&str, f64> =
            pairs.iter().map(|pair| (pair.id.as_str(), pair.score)).collect();
        let clearing =
            gated.scored.iter().enumerate().filter(|(_, scored)| clears(scored, gated.floor));
        let first_of_stage1 = clearing.clone().next().map(|(position, _)| position);
        let (positions, read): (Vec<usize>, Vec<Reranked<'a>>) = clearing
            .filter_map(|(position, candidate)| {
                let rerank_score = *score_of.get(candidate.id.as_str())?;
                Some((position, Reranked { candidate, rerank_score }))
            })
            .unzip();
        let fits = profile.fits(reranker);
        let mode = if fits { profile.combine } else { Combine::default() };
        let scores = combine(&read, &profile.blend, &profile.evidence, mode)?;
        let guardrails = Guardrails {
            rerank_min: policy.rerank_min.filter(|_| fits),
            rerank_margin: policy.rerank_margin.filter(|_| fits),
            relevance: profile.relevance.threshold,
            runner_up: profile.runner_up.stage2.filter(|_| fits),
            agreement: policy.agreement,
            limit: gated.limit,
        };
        let mut ranked: Vec<Ranked<'a>> = read
            .iter()
            .zip(positions)
            .zip(&scores)
            .zip(ranks(&read, &scores))
            .map(|(((Reranked { candidate, rerank_score }, position), score), rank)| Ranked {
                candidate,
                position,
                score: Some(*score),
                stage2_rank: Some(rank),
                relevance: relevance(gated, profile, candidate, fits.then_some(*rerank_score)),
                truncated: truncated.contains(candidate.id.as_str()),
                dropped: None,
            })
            .collect();
        ranked.sort_unstable_by_key(|ranked| ranked.stage2_rank);
        guardrails.apply(&mut ranked);
        // The model knows only the scores of the profile's reranker; with others, the confidence
        // after stage 1 holds.
        let confidence = match profile.confidence.stage2.filter(|_| fits) {
            Some(model) => {
                // The first candidate of stage 1 may have no rerank score.
                let same_first = ranked.first().map(|ranked| ranked.position) == first_of_stage1;
                let stage2 = stage2_signals(&read, &scores)
                    .map(|stage2| Stage2Signals { same_first, ..stage2 });
                let first = ranked.first().map(|ranked| ranked.candidate.evidence);
                let evidence = profile.evidence.log_odds(&first.unwrap_or_default());
                let stage1 = gated.signals.map(|stage1| Signals { evidence, ..stage1 });
                let signals = stage1.zip(stage2);
                signals.and_then(|(stage1, stage2)| model.probability(&stage1, &stage2))
            }
            None => gated.confidence,
        };
        Ok(Self { ranked, confidence, stage2: true })
    }
}

/// The fewest rerank scores whose spread has a meaning.
const FEWEST_FOR_SPREAD: usize = 3;

fn warnings(scored: &[Scored], pairs: &[Pair], thresholds: &Warnings) -> Vec<Note> {
    let mut found = Vec::new();
    let count = pairs.len() as f64;
    let mean = pairs.iter().map(|pair| pair.score / count).sum::<f64>();
    let variance = pairs.iter().map(|pair| (pair.score - mean).powi(2) / count).sum::<f64>();
    let deviation = variance.sqrt();
    if let Some(least) = thresholds.flat_scores.filter(|least| deviation < *least)
        && pairs.len() >= FEWEST_FOR_SPREAD
    {
        found.push(Note {
            code: "flat_scores".to_owned(),
            detail: format!(
                "the standard deviation of the {} rerank scores is {deviation:.3}, below {least}: \
                 possibly no candidate fits",
                pairs.len()
            ),
        });
    }
    let best = |scores: &mut dyn Iterator<Item = f64>| scores.reduce(f64::max);
    let cosine = best(&mut scored.iter().filter_map(|candidate| candidate.cosine));
    let score = best(&mut pairs.iter().map(|pair| pair.score));
    let weak: Vec<String> = [
        ("cosine", cosine, thresholds.weak_cosine),
        ("rerank score", score, thresholds.weak_rerank_score),
    ]
    .into_iter()
    .filter_map(|(name, best, least)| {
        let (best, least) = best.zip(least).filter(|(best, least)| best < least)?;
        Some(format!("the best {name} is {best:.3}, below {least}"))
    })
    .collect();
    if !weak.is_empty() {
        found.push(Note {
            code: "weak_retrieval".to_owned(),
            detail: format!(
                "{}: the retriever may have missed the fitting documents, which reranking cannot \
                 bring back; retrieve more candidates, or measure the recall",
                weak.join(" and ")
            ),
        });
    }
    found
}

/// A candidate that stage 2 has read, with its raw rerank score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reranked<'a> {
    /// The candidate of stage 1.
    pub candidate: &'a Scored,
    /// The raw score of the reranker.
    pub rerank_score: f64,
}

impl<'a> Reranked<'a> {
    /// Candidates with their scores.
    ///
    /// Fails with `out_of_range` if there is not one score per candidate.
    pub fn zip(candidates: &'a [Scored], rerank_scores: &[f64]) -> Result<Vec<Self>> {
        let (found, expected) = (rerank_scores.len(), candidates.len());
        if found != expected {
            let (what, per) = ("rerank scores", "candidates");
            return Err(Kind::LengthMismatch { what, found, per, expected }.into());
        }
        let pairs = candidates.iter().zip(rerank_scores);
        Ok(pairs.map(|(candidate, score)| Self { candidate, rerank_score: *score }).collect())
    }
}

/// The combined score of each candidate, higher is better.
///
/// Fails with `not_finite` if a rerank score or a weighted sum is not finite, and with `out_of_range`
/// for an unusable weight or `k`.
pub fn combine(
    reranked: &[Reranked<'_>],
    blend: &Blend,
    evidence: &EvidenceWeights,
    mode: Combine,
) -> Result<Vec<f64>> {
    for Reranked { candidate, rerank_score } in reranked {
        if !rerank_score.is_finite() {
            let name = format!("the rerank score of {:?}", candidate.id);
            return Err(Error::not_finite(name, *rerank_score));
        }
    }
    let blends = || -> Vec<f64> { reranked.iter().map(|of| of.candidate.blend).collect() };
    let rerank_scores: Vec<f64> = reranked.iter().map(|of| of.rerank_score).collect();
    match mode {
        Combine::Replace {} => Ok(rerank_scores),
        Combine::Rrf { k } => {
            Range::Positive.check("k", k)?;
            let term = |rank: usize| 1.0 / (k + rank as f64);
            let by_blend = ranks(reranked, &blends()).into_iter();
            let by_rerank_score = ranks(reranked, &rerank_scores);
            Ok(by_blend
                .zip(by_rerank_score)
                .map(|(blend, read)| term(blend) + term(read))
                .collect())
        }
        Combine::ZScore { rerank_score: weight } => {
            Range::Weight.check("the weight of the rerank score", weight)?;
            let standard = |scores: &[f64]| Normalisation::ZScore.apply(scores).0;
            let scores = standard(&blends()).into_iter().zip(standard(&rerank_scores));
            Ok(scores.map(|(blend, rerank_score)| blend + weight * rerank_score).collect())
        }
        Combine::Weighted { cosine, bm25, rerank_score: weight } => {
            for (name, weight) in [("cosine", cosine), ("BM25", bm25), ("rerank score", weight)] {
                if !weight.is_finite() {
                    let name = format!("the weight of the {name}");
                    return Err(Error::out_of_range(name, weight, "finite"));
                }
            }
            let sum = |Reranked { candidate, rerank_score }: &Reranked<'_>| {
                let sum = cosine * candidate.cosine.unwrap_or_default()
                    + bm25 * blend.bounded_bm25(candidate.bm25)
                    + weight * rerank_score
                    // The fitted weights make a sum in log-odds.
                    + evidence.log_odds(&candidate.evidence);
                if sum.is_finite() {
                    return Ok(sum);
                }
                let (id, rerank_score) = (candidate.id.clone(), *rerank_score);
                Err(Kind::SumNotFinite { id, rerank_score, sum }.into())
            };
            reranked.iter().map(sum).collect()
        }
    }
}

/// The rank of each candidate by a score, from 1; ties go to the smaller id.
pub fn ranks(reranked: &[Reranked<'_>], scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<(usize, f64, &str)> = reranked
        .iter()
        .zip(scores)
        .enumerate()
        .map(|(position, (of, score))| (position, *score, of.candidate.id.as_str()))
        .collect();
    order.sort_by(|left, right| best_first((left.1, left.2), (right.1, right.2)));
    let mut ranks: Vec<(usize, usize)> =
        order.into_iter().zip(1..).map(|((position, ..), rank)| (position, rank)).collect();
    ranks.sort_unstable();
    ranks.into_iter().map(|(_, rank)| rank).collect()
}

/// Conditions for a ranked candidate to be selected. An absent number sets no condition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guardrails {
    /// The least score.
    pub rerank_min: Option<f64>,
    /// The largest difference to the best score of a candidate that clears `agreement`, as chosen by
    /// a person; at least 0.
    pub rerank_margin: Option<f64>,
    /// The least probability that a candidate fits, in [0, 1].
    pub relevance: Option<f64>,
    /// The largest difference to the same best score, as fitted; at least 0.
    pub runner_up: Option<f64>,
    /// The least stage-1 blend, in [-1, 1]: stage 2 cannot select a candidate below it.
    pub agreement: Option<f64>,
    /// The most candidates that are selected.
    pub limit: Option<usize>,
}

/// The numbers of a candidate that the guardrails compare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Judged {
    /// The score of the order.
    pub score: f64,
    /// The score of stage 1.
    pub blend: f64,
    /// Probability that the candidate fits, if it is known.
    pub relevance: Option<f64>,
    /// Whether the reranker read only the start of the passage, so that it may be more relevant.
    pub truncated: bool,
}

impl Guardrails {
    fn apply(&self, ranked: &mut [Ranked<'_>]) {
        let judged: Vec<Judged> = ranked
            .iter()
            .map(|Ranked { candidate, score, relevance, truncated, .. }| Judged {
                score: score.unwrap_or(candidate.blend),
                blend: candidate.blend,
                relevance: *relevance,
                truncated: *truncated,
            })
            .collect();
        for (ranked, dropped) in ranked.iter_mut().zip(passes(&judged, self)) {
            ranked.dropped = dropped;
        }
    }
}

/// Applies the guardrails to candidates that are sorted best first.
///
/// Returns for each candidate why it is dropped, or none if it is selected.
pub fn passes(ranked: &[Judged], guardrails: &Guardrails) -> Vec<Option<Dropped>> {
    let below = |value: Option<f64>, least: Option<f64>| {
        value.zip(least).is_some_and(|(value, least)| value < least)
    };
    let agrees = |judged: &Judged| !below(Some(judged.blend), guardrails.agreement);
    let best = ranked.iter().find(|judged| agrees(judged)).map(|judged| judged.score);
    let beyond = |score: f64, margin: Option<f64>| {
        best.zip(margin).is_some_and(|(best, most)| best - score > most)
    };
    let mut selected = 0;
    ranked
        .iter()
        .map(|judged| {
            let dropped = if !agrees(judged) {
                Some(Dropped::Disagreement)
            } else if below(Some(judged.score), guardrails.rerank_min) {
                Some(Dropped::RerankMin)
            } else if !judged.truncated && below(judged.relevance, guardrails.relevance) {
                Some(Dropped::Irrelevant)
            } else if beyond(judged.score, guardrails.rerank_margin) {
                Some(Dropped::RerankMargin)
            } else if beyond(judged.score, guardrails.runner_up) {
                Some(Dropped::RunnerUp)
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
        Answer, Confidence, Relevance, RunnerUpRule, Stage1Confidence, Stage1Relevance,
        Stage2Confidence, Stage2Relevance,
    };

    const BLEND: Blend =
        Blend { cosine_weight: 0.7, bm25_weight: 0.3, pivot: 5.0, body_weight: 0.5 };
    const WEIGHTS: EvidenceWeights = EvidenceWeights {
        trigger: 2.0,
        exclusion: -4.0,
        example: 7.5,
        counterexample: -7.5,
        technology: 1.0,
        other_technology: -1.0,
    };

    fn scored(id: &str, blend: f64) -> Scored {
        let scored = Scored { id: id.to_owned(), cosine: Some(blend), blend, ..Scored::default() };
        Scored { bm25: 5.0, overlap: 1, ..scored }
    }

    fn judged(rows: &[(f64, f64)]) -> Vec<Judged> {
        let judged = |(score, blend): &(f64, f64)| Judged {
            score: *score,
            blend: *blend,
            ..Judged::default()
        };
        rows.iter().map(judged).collect()
    }

    fn pair(id: &str, score: f64) -> Pair {
        Pair { id: id.to_owned(), score, truncated: false }
    }

    fn fitted() -> Profile {
        Profile {
            reranker: Some("ours".to_owned()),
            combine: Combine::Replace {},
            runner_up: RunnerUpRule { stage1: Some(0.2), stage2: Some(1.0) },
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
        places.map(|place| (place.id.as_str(), place.dropped.map(Dropped::code))).collect()
    }

    #[test]
    fn without_pairs_the_order_is_that_of_stage_1() {
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
                ("c", Some("runner_up")),
                ("d", Some("runner_up"))
            ]
        );
    }

    #[test]
    fn same_first_is_false_if_stage_2_did_not_read_the_first_of_stage_1() {
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
    fn without_a_model_of_stage_2_the_confidence_is_that_of_stage_1() {
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
    fn candidates_without_a_rerank_score_come_last() {
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
                ("a", Some("runner_up")),
                ("c", Some("not_reranked"))
            ]
        );
        let ranks: Vec<_> =
            decision.places.iter().map(|of| (of.stage1_rank, of.stage2_rank)).collect();
        assert_eq!(ranks, [(4, Some(1)), (2, Some(2)), (1, Some(3)), (3, None)]);
        assert!((decision.confidence.unwrap() - 1.0 / (1.0 + f64::exp(-9.0))).abs() < 1e-15);
    }

    #[test]
    fn only_the_order_of_another_rerankers_scores_counts() {
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
    fn an_answer_below_the_threshold_selects_no_candidate() {
        let answer = Answer { threshold: Some(0.9), rerank_threshold: None };
        let (profile, policy) = (Profile { answer, ..fitted() }, Policy::default());
        let gated = gated(&profile, &policy, &Request::default());
        let decided = |score| {
            conclude(&gated, &[pair("a", score), pair("b", -9.0)], Some("ours"), &profile, &policy)
                .unwrap()
        };
        assert_eq!((decided(1.0).reason, decided(1.0).selected.len()), (Reason::Rejected, 0));
        assert_eq!(outcome(&decided(1.0))[0], ("a", Some("improbable")));
        assert_eq!(outcome(&decided(1.0))[1], ("b", Some("runner_up")));
        assert_eq!(decided(3.0).selected, ["a"]);
    }

    #[test]
    fn irrelevant_candidates_do_not_count_towards_the_limit() {
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
            runner_up: RunnerUpRule::default(),
            ..fitted()
        };
        let (policy, request) =
            (Policy::default(), Request { limit: Some(1), ..Request::default() });
        let gated = gated(&profile, &policy, &request);
        // Fused by rank, "a" and "b" tie. "a" comes first by its id and is not relevant.
        let pairs = [pair("a", -1.0), pair("b", 3.0)];
        let decision = conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap();
        assert_eq!(outcome(&decision)[..2], [("a", Some("irrelevant")), ("b", None)]);
        let known: Vec<_> = decision.places.iter().map(|place| place.relevance.unwrap()).collect();
        let logistic = |odds: f64| 1.0 / (1.0 + f64::exp(-odds));
        assert_eq!(known, [-1.0, 3.0, -10.0, -10.0].map(logistic));
        assert_eq!(decision.confidence, Some(logistic(-1.0)));

        // With the scores of another reranker, the model of stage 1 is used.
        let other = conclude(&gated, &pairs, Some("theirs"), &profile, &policy).unwrap();
        assert!(other.places.iter().all(|place| place.relevance == Some(logistic(-10.0))));
        assert!(other.selected.is_empty());
    }

    #[test]
    fn candidates_below_a_floor_or_a_cliff_are_dropped_with_the_reason() {
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
    fn warnings_give_the_value_and_the_threshold() {
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
            decision.warnings.into_iter().map(|note| note.code).collect()
        };
        assert_eq!(codes([1.0, 1.1, 1.2]), ["flat_scores", "weak_retrieval"]);
        assert_eq!(codes([-4.0, 1.1, 3.0]), ["weak_retrieval"]);
        let decision = conclude(&gated, &[], None, &profile, &policy).unwrap();
        assert!(decision.warnings[0].detail.contains("the best cosine is 0.900, below 0.95"));
    }

    #[test]
    fn rerank_scores_out_of_range_are_refused() {
        let (profile, policy) = (fitted(), Policy::default());
        let gated = gated(&profile, &policy, &Request::default());
        for (score, code) in [(f64::NAN, "not_finite"), (1e101, "out_of_range")] {
            let found = conclude(&gated, &[pair("a", score)], Some("ours"), &profile, &policy);
            assert_eq!(found.unwrap_err().code(), code);
        }
    }

    #[test]
    fn each_mode_combines_scores_by_its_formula() {
        let candidates = [scored("a", 0.9), scored("b", 0.5), scored("c", 0.1)];
        let logits = [-1.0, 2.0, 3.0];
        let reranked = Reranked::zip(&candidates, &logits).unwrap();
        let run = |mode| combine(&reranked, &BLEND, &WEIGHTS, mode).unwrap();
        assert_eq!(run(Combine::Replace {}), logits);
        let fused = run(Combine::Rrf { k: 60.0 });
        assert_eq!(fused[0], 1.0 / 61.0 + 1.0 / 63.0);
        assert_eq!(fused[1], 1.0 / 62.0 + 1.0 / 62.0);
        // The blends are sqrt(1.5) standard deviations apart. The logits have mean 4/3 and standard
        // deviation sqrt(26)/3.
        let standard = run(Combine::ZScore { rerank_score: 0.5 });
        let (apart, read) = (1.5_f64.sqrt(), (26.0_f64 / 9.0).sqrt());
        assert!((standard[0] - (apart - 0.5 * (7.0 / 3.0) / read)).abs() < 1e-12);
        assert!((standard[1] - 0.5 * (2.0 / 3.0) / read).abs() < 1e-12);
        let weighted = run(Combine::Weighted { cosine: 2.0, bm25: 3.0, rerank_score: 0.5 });
        assert_eq!(weighted[1], 2.0 * 0.5 + 3.0 * 0.5 + 0.5 * 2.0);
    }

    #[test]
    fn combine_refuses_numbers_without_an_order() {
        let candidates = [scored("a", 0.9)];
        let run = |logits: &[f64], mode| {
            let reranked = Reranked::zip(&candidates, logits);
            reranked.and_then(|reranked| combine(&reranked, &BLEND, &WEIGHTS, mode)).unwrap_err()
        };
        assert_eq!(run(&[], Combine::Replace {}).code(), "out_of_range");
        assert_eq!(run(&[f64::NAN], Combine::Replace {}).code(), "not_finite");
        assert_eq!(run(&[1.0], Combine::Rrf { k: 0.0 }).code(), "out_of_range");
        let not_a_number = Combine::ZScore { rerank_score: f64::NAN };
        assert_eq!(run(&[1.0], not_a_number).code(), "out_of_range");
        let weights = Combine::Weighted { cosine: 0.0, bm25: f64::INFINITY, rerank_score: 1.0 };
        assert_eq!(run(&[1.0], weights).code(), "out_of_range");
        let most = f64::MAX;
        for (cosine, bm25, logit) in [(0.0, 0.0, 10.0), (most, most, 0.0), (most, most, -10.0)] {
            let weights = Combine::Weighted { cosine, bm25, rerank_score: logit };
            assert_eq!(run(&[1e308], weights).code(), "not_finite");
        }
    }

    #[test]
    fn each_guardrail_drops_with_its_own_reason() {
        let ranked = [(4.0, 0.1), (3.0, 0.5), (2.5, 0.5), (2.0, 0.5), (0.5, 0.5), (-3.0, 0.5)];
        let mut ranked = judged(&ranked);
        let irrelevant = Judged { score: 2.8, blend: 0.5, relevance: Some(0.29), truncated: false };
        ranked.insert(2, irrelevant);
        ranked.insert(2, Judged { relevance: Some(0.3), ..irrelevant });
        ranked.insert(2, Judged { truncated: true, ..irrelevant });
        let guardrails = Guardrails {
            rerank_min: Some(-1.0),
            rerank_margin: Some(4.0),
            relevance: Some(0.3),
            runner_up: Some(2.0),
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
                Some(Dropped::Irrelevant),
                Some(Dropped::OverLimit),
                Some(Dropped::OverLimit),
                Some(Dropped::RunnerUp),
                Some(Dropped::RerankMin)
            ]
        );
        assert!(passes(&ranked, &Guardrails::default()).iter().all(Option::is_none));
    }

    proptest! {
        #[test]
        fn guardrails_select_exactly_the_candidates_that_meet_all_conditions(
            mut ranked in prop::collection::vec((-5.0..5.0_f64, 0.0..1.0_f64), 0..10),
            minimum in -5.0..5.0_f64, margin in 0.0..5.0_f64, runner_up in 0.0..5.0_f64,
            agreement in 0.0..1.0_f64, limit in 0_usize..5,
        ) {
            ranked.sort_by(|left, right| right.0.total_cmp(&left.0));
            let guardrails = Guardrails {
                rerank_min: Some(minimum), rerank_margin: Some(margin), relevance: None,
                runner_up: Some(runner_up), agreement: Some(agreement), limit: Some(limit),
            };
            let eligible: Vec<_> = ranked.iter().filter(|(_, blend)| *blend >= agreement).collect();
            let best = eligible.iter().map(|(score, _)| *score).fold(f64::MIN, f64::max);
            let expected: Vec<_> = eligible.iter()
                .filter(|(score, _)| *score >= minimum && best - score <= margin.min(runner_up))
                .take(limit).collect();
            let kept: Vec<_> = ranked.iter().zip(passes(&judged(&ranked), &guardrails))
                .filter(|(_, dropped)| dropped.is_none()).map(|(row, _)| row).collect();
            prop_assert_eq!(kept, expected.into_iter().copied().collect::<Vec<_>>());
        }

        #[test]
        fn z_score_does_not_depend_on_scale_or_order(
            rows in prop::collection::vec((0_u8..5, -4_i8..4), 1..10), shift in 0_usize..10,
        ) {
            let fuse = |rows: &[(usize, (u8, i8))], stretch: f64| -> Vec<(String, f64)> {
                let candidates: Vec<Scored> = rows.iter()
                    .map(|(id, (blend, _))| scored(&id.to_string(), f64::from(*blend))).collect();
                let logits: Vec<f64> =
                    rows.iter().map(|(_, (_, logit))| stretch * f64::from(*logit)).collect();
                let mode = Combine::ZScore { rerank_score: 0.75 };
                let reranked = Reranked::zip(&candidates, &logits).unwrap();
                let found = combine(&reranked, &BLEND, &WEIGHTS, mode).unwrap();
                candidates.into_iter().map(|scored| scored.id).zip(found).collect()
            };
            let mut rows: Vec<(usize, (u8, i8))> = rows.into_iter().enumerate().collect();
            let mut fused = fuse(&rows, 1.0);
            // Equal to the bit, because 4 is a power of two.
            prop_assert_eq!(&fused, &fuse(&rows, 4.0));
            let shift = shift % rows.len();
            rows.rotate_left(shift);
            fused.rotate_left(shift);
            prop_assert_eq!(fused, fuse(&rows, 1.0));
        }

        #[test]
        fn reciprocal_rank_equals_its_definition_for_any_scale(
            rows in prop::collection::vec((0_u8..5, -4_i8..4), 1..10),
        ) {
            let candidates: Vec<Scored> = rows.iter().enumerate()
                .map(|(place, (blend, _))| scored(&place.to_string(), f64::from(*blend))).collect();
            let logits: Vec<f64> = rows.iter().map(|(_, logit)| f64::from(*logit)).collect();
            let stretched: Vec<f64> = logits.iter().map(|logit| 10.0 * logit + 3.0).collect();
            let mode = Combine::Rrf { k: 60.0 };
            let run = |logits: &[f64]| {
                combine(&Reranked::zip(&candidates, logits).unwrap(), &BLEND, &WEIGHTS, mode).unwrap()
            };
            let fused = run(&logits);
            prop_assert_eq!(&fused, &run(&stretched));
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
