//! The conclusion: combines the scores of stage 2 with stage 1, applies the guardrails and selects.

use std::collections::{HashMap, HashSet};

use crate::checks::{LARGEST, Range};
use crate::error::{Error, Kind, Result};
use crate::evidence::EvidenceWeights;
use crate::fusion::Normalisation;
use crate::gate::{Gated, Note, Reason, Verdict, clears, considered};
use crate::json::{codes, value};
use crate::policy::{Policy, Warnings};
use crate::probability::Probabilities;
use crate::profile::{Combine, Profile};
use crate::shortlist::{InLine, length, line_up, promise};
use crate::signals::{Reranked, Stage2Signals, stage2_signals};
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
        /// The query names another document, or one that does not exist.
        NotNamed = "not_named",
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
        /// The probability that any candidate fits, or that the first candidate does, is too low.
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
        /// Probability that the candidate fits, given the scores of all; none without a model.
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
        /// Probability that the first candidate fits, its relevance; none without a model.
        pub confidence: Option<f64>,
        /// Probability that any candidate fits; none without a model.
        pub any_fits: Option<f64>,
        /// Ids of the selected candidates, best first.
        pub selected: Vec<String>,
        /// Ids of the candidates on the shortlist, best first.
        pub shortlist: Vec<String>,
        /// Probability with which the shortlist contains a fitting candidate if there is one; none
        /// without a promise.
        pub coverage: Option<f64>,
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
/// Fails with `not_finite` for a score that is not finite, and with `out_of_range` for a score
/// outside of -1e100 to 1e100.
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
    let Order { mut ranked, known, stage } = if gated.is_by_name() {
        Order::by_name(gated)
    } else if gated.verdict == Verdict::NothingRelevant {
        Order::nothing_relevant(gated, profile)
    } else if pairs.is_empty() {
        Order::of_stage1(gated, profile, policy)
    } else {
        Order::of_stage2(gated, pairs, reranker, profile, policy)?
    };
    let stage2 = stage != Stage::First;
    let confidence = ranked.first().and_then(|first| first.relevance);
    // A threshold of the profile needs a known probability, while a minimum of the caller is not met
    // by an unknown value.
    let below = |known: Option<f64>, least: Option<f64>| {
        known.zip(least).is_some_and(|(known, least)| known < least)
    };
    let below_threshold = below(known.any_fits, profile.answer.threshold)
        || below(confidence, profile.answer.confidence);
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
    ranked.extend(left_out(gated, &known, &ranked));
    let places: Vec<Place> = ranked.iter().map(Ranked::place).collect();
    let selected = places.iter().filter(|place| place.dropped.is_none());
    let mut notes = if stage2 { not_fitted(profile, reranker) } else { Vec::new() };
    let shortlist = shortlist(gated, &ranked, &known, stage, profile);
    notes.extend(shortlist.note);
    Ok(Decision {
        verdict: gated.verdict,
        reason,
        stage: if stage2 { 2 } else { 1 },
        confidence,
        any_fits: known.any_fits,
        selected: selected.map(|place| place.id.clone()).collect(),
        shortlist: shortlist.ids,
        coverage: shortlist.coverage,
        places,
        warnings: warnings(&gated.scored, pairs, &policy.warnings),
        notes,
    })
}

/// The shortlist of a decision.
#[derive(Default)]
struct Listed {
    ids: Vec<String>,
    coverage: Option<f64>,
    note: Option<Note>,
}

impl Listed {
    /// No shortlist; the note with the reason is only for requests that ask for one.
    fn impossible(gated: &Gated, detail: String) -> Self {
        let is_asked = gated.coverage.is_some() || gated.max_shortlist.is_some();
        let note = is_asked.then(|| Note { code: "no_shortlist".to_owned(), detail });
        Self { note, ..Self::default() }
    }
}

/// The shortlist of all candidates in their order, except for those that the policy excludes.
fn shortlist(
    gated: &Gated,
    ranked: &[Ranked<'_>],
    known: &Probabilities,
    stage: Stage,
    profile: &Profile,
) -> Listed {
    if ranked.is_empty() || matches!(gated.reason, Reason::BelowFloor | Reason::NoOverlap) {
        return Listed::default();
    }
    if gated.is_by_name() {
        let named = ranked.iter().filter(|ranked| ranked.dropped.is_none());
        let ids: Vec<String> = named.map(|named| named.candidate.id.clone()).collect();
        return Listed { ids, ..Listed::default() };
    }
    let fitted = &profile.shortlist;
    let promises = if stage == Stage::Second { &fitted.stage2 } else { &fitted.stage1 };
    let most = gated.max_shortlist.unwrap_or(fitted.most);
    let asked = gated.coverage.unwrap_or(fitted.coverage);
    let Some(kept) = promise(promises, asked, most) else {
        return Listed::impossible(
            gated,
            format!("profile {:?} has no fitted shortlist of at most {most}", profile.name),
        );
    };
    let excluded =
        [Dropped::BelowFloor, Dropped::Disagreement, Dropped::RerankMin, Dropped::RerankMargin];
    let eligible = || {
        let excluded =
            |ranked: &&Ranked<'_>| ranked.dropped.is_none_or(|why| !excluded.contains(&why));
        ranked.iter().filter(excluded)
    };
    let line: Option<Vec<InLine<'_>>> = eligible()
        .map(|Ranked { candidate, position, .. }| {
            Some(InLine { id: &candidate.id, share: known.share(*position)? })
        })
        .collect();
    let Some(mut line) = line else {
        return Listed::impossible(
            gated,
            "the shares of the candidates are unknown: a candidate has no cosine, or the profile has \
             no weights of relevance"
                .to_owned(),
        );
    };
    let first = eligible().find(|of| of.dropped.is_none()).or_else(|| eligible().next());
    line_up(&mut line, first.map(|first| first.candidate.id.as_str()));
    if known.any_fits.zip(fitted.least).is_some_and(|(known, least)| known < least) {
        line.clear();
    }
    line.truncate(length(&line, &kept, most));
    let note = (!kept.is_enough).then(|| Note {
        code: "coverage".to_owned(),
        detail: format!(
            "a shortlist of at most {most} contains a fitting candidate with a probability of {}, \
             not {asked}: allow a longer one",
            kept.coverage
        ),
    });
    let ids = line.into_iter().map(|of| of.id.to_owned()).collect();
    // With another first candidate than that of stage 1, the promise does not hold.
    let coverage = (stage != Stage::SecondWithoutFit).then_some(kept.coverage);
    Listed { ids, coverage, note }
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
fn left_out<'a>(gated: &'a Gated, known: &Probabilities, ranked: &[Ranked<'_>]) -> Vec<Ranked<'a>> {
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
                relevance: known.relevance(position),
                truncated: false,
                dropped: Some(dropped),
            }
        })
        .collect()
}

/// The scores that an order and its probabilities are based on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Those of stage 1.
    First,
    /// Those of both stages.
    Second,
    /// The order uses both; the probabilities use stage 1, since the profile is for another reranker.
    SecondWithoutFit,
}

/// An order, best first, and the probabilities of all candidates.
struct Order<'a> {
    ranked: Vec<Ranked<'a>>,
    known: Probabilities,
    stage: Stage,
}

impl<'a> Order<'a> {
    fn nothing_relevant(gated: &'a Gated, profile: &Profile) -> Self {
        let known = after_stage1(gated, profile);
        let ranked = gated.scored.iter().enumerate().map(|(position, candidate)| Ranked {
            candidate,
            position,
            score: Some(candidate.blend),
            stage2_rank: None,
            relevance: known.relevance(position),
            truncated: false,
            dropped: Some(if clears(candidate, gated.floor) {
                Dropped::NothingRelevant
            } else {
                Dropped::BelowFloor
            }),
        });
        Self { ranked: ranked.collect(), known, stage: Stage::First }
    }

    /// The documents that the query names, whatever their scores; none if it names an unknown one.
    fn by_name(gated: &'a Gated) -> Self {
        let mut selected = 0;
        let ranked = gated.scored.iter().enumerate().map(|(position, candidate)| {
            let dropped = if !candidate.is_named {
                Some(Dropped::NotNamed)
            } else if gated.limit.is_some_and(|limit| selected >= limit) {
                Some(Dropped::OverLimit)
            } else {
                selected += 1;
                None
            };
            Ranked {
                candidate,
                position,
                score: Some(candidate.blend),
                stage2_rank: None,
                relevance: Some(f64::from(u8::from(candidate.is_named))),
                truncated: false,
                dropped,
            }
        });
        let ranked: Vec<_> = ranked.collect();
        let any_fits = Some(f64::from(u8::from(gated.reason == Reason::Named)));
        let mut known = Probabilities::default();
        known.any_fits = any_fits;
        Self { ranked, known, stage: Stage::First }
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
        let known = after_stage1(gated, profile);
        let clearing =
            gated.scored.iter().enumerate().filter(|(_, scored)| clears(scored, gated.floor));
        let mut ranked: Vec<Ranked<'a>> = clearing
            .map(|(position, candidate)| Ranked {
                candidate,
                position,
                score: Some(candidate.blend),
                stage2_rank: None,
                relevance: known.relevance(position),
                truncated: false,
                dropped: None,
            })
            .collect();
        guardrails.apply(&mut ranked);
        Self { ranked, known, stage: Stage::First }
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
        let (positions, read): (Vec<usize>, Vec<Reranked<'a>>) = clearing
            .filter_map(|(position, candidate)| {
                let rerank_score = *score_of.get(candidate.id.as_str())?;
                Some((position, Reranked { candidate, rerank_score }))
            })
            .unzip();
        let fits = profile.fits(reranker);
        let mode = if fits { profile.combine } else { Combine::default() };
        let scores = combine(&read, &profile.blend, &profile.evidence, mode)?;
        // The models were fitted to the scores of the profile's reranker; with those of another, the
        // probabilities after stage 1 apply.
        let (known, stage) = match gated.signals.zip(stage2_signals(&read, &scores)) {
            Some((signals, Stage2Signals { rerank_score, .. })) if fits => {
                let candidates = considered(&gated.scored, gated.floor);
                let known = Probabilities::after_stage2(
                    &candidates,
                    &score_of,
                    rerank_score,
                    &signals,
                    profile,
                );
                (known, Stage::Second)
            }
            _ => (after_stage1(gated, profile), Stage::SecondWithoutFit),
        };
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
            .map(|(((of, position), score), rank)| Ranked {
                candidate: of.candidate,
                position,
                score: Some(*score),
                stage2_rank: Some(rank),
                relevance: known.relevance(position),
                truncated: truncated.contains(of.candidate.id.as_str()),
                dropped: None,
            })
            .collect();
        ranked.sort_unstable_by_key(|ranked| ranked.stage2_rank);
        guardrails.apply(&mut ranked);
        Ok(Self { ranked, known, stage })
    }
}

fn after_stage1(gated: &Gated, profile: &Profile) -> Probabilities {
    let candidates = considered(&gated.scored, gated.floor);
    Probabilities::after_stage1(&candidates, gated.signals.as_ref(), profile)
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
        Answer, AnyFits, Promise, Relevance, RunnerUpRule, Shortlist, Stage1AnyFits,
        Stage1Relevance, Stage2AnyFits, Stage2Relevance,
    };

    const BLEND: Blend = Blend {
        cosine_weight: 0.7,
        bm25_weight: 0.3,
        pivot: 5.0,
        body_weight: 0.5,
        log_odds: 30.0,
    };
    const WEIGHTS: EvidenceWeights = EvidenceWeights {
        trigger: 2.0,
        example: 16.0,
        counterexample: -16.0,
        technology: 2.0,
        other_technology: 0.0,
        other_version: -4.0,
        usefulness: 0.0,
        plain_name: 0.0,
        acts: 0.0,
        reads: 0.0,
        other_date: -4.0,
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
            any_fits: AnyFits {
                stage1: Some(Stage1AnyFits { cosine: 1.0, ..Stage1AnyFits::default() }),
                stage2: Some(Stage2AnyFits { rerank_score: 1.0, ..Stage2AnyFits::default() }),
            },
            relevance: Relevance {
                stage1: Some(Stage1Relevance { intercept: None, cosine: 4.0, bm25: 0.0 }),
                stage2: Some(Stage2Relevance { rerank_score: 1.0, ..Stage2Relevance::default() }),
                threshold: None,
            },
            shortlist: Shortlist {
                stage1: promises(&[0.5, 0.2, 0.1]),
                stage2: promises(&[0.3, 0.1, 0.01]),
                ..Shortlist::default()
            },
            ..Profile::default()
        }
    }

    /// Promises of coverages 0.5, 0.51, and so on.
    fn promises(least_shares: &[f64]) -> Vec<Promise> {
        let promise = |most| Promise { most, least_shares: least_shares.to_vec() };
        [1, 2, 5].map(promise).to_vec()
    }

    fn gated(profile: &Profile, policy: &Policy, request: &Request) -> Gated {
        let candidates = [("a", 0.9), ("b", 0.8), ("c", 0.3), ("d", 0.1)];
        let scored = candidates.iter().map(|(id, blend)| scored(id, *blend)).collect();
        gate(scored, profile, policy, request).unwrap()
    }

    fn codes(decision: &Decision) -> Vec<&str> {
        decision.notes.iter().map(|note| note.code.as_str()).collect()
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
        assert_eq!(decision.any_fits, gated.any_fits);
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
    fn relevance_shares_the_probability_that_any_fits_and_confidence_is_that_of_the_first() {
        let (profile, policy) = (fitted(), Policy::default());
        let gated = gated(&profile, &policy, &Request::default());
        let any_fits = 1.0 / (1.0 + f64::exp(-0.9));
        assert!((gated.any_fits.unwrap() - any_fits).abs() < 1e-15);
        for pairs in [vec![], vec![pair("a", 1.0), pair("b", 2.0), pair("c", -3.0)]] {
            let decision = conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap();
            let relevances: Vec<f64> =
                decision.places.iter().map(|place| place.relevance.unwrap()).collect();
            let sum: f64 = relevances.iter().sum();
            assert!((sum - decision.any_fits.unwrap()).abs() < 1e-15);
            assert_eq!(decision.confidence, Some(relevances[0]));
        }
        let of_stage1 = conclude(&gated, &[], None, &profile, &policy).unwrap();
        let shares = [0.9, 0.8, 0.3, 0.1].map(|cosine: f64| (4.0 * cosine).exp());
        let expected = any_fits * shares[1] / shares.iter().sum::<f64>();
        assert!((of_stage1.places[1].relevance.unwrap() - expected).abs() < 1e-15);
    }

    #[test]
    fn without_a_model_of_stage_2_the_probability_is_that_of_stage_1() {
        let stage1 = Some(Stage1AnyFits { intercept: -3.0, ..Stage1AnyFits::default() });
        let profile = Profile {
            any_fits: AnyFits { stage1, stage2: None },
            answer: Answer { threshold: Some(0.6), ..Answer::default() },
            ..fitted()
        };
        let policy = Policy::default();
        let gated = gated(&profile, &policy, &Request::default());
        let decision =
            conclude(&gated, &[pair("a", 9.0)], Some("ours"), &profile, &policy).unwrap();
        assert_eq!(decision.any_fits, gated.any_fits);
        assert_eq!((decision.reason, decision.selected.len()), (Reason::Rejected, 0));
    }

    #[test]
    fn without_a_model_that_any_fits_relevances_are_shares() {
        let profile = Profile { any_fits: AnyFits::default(), ..fitted() };
        let policy = Policy::default();
        let gated = gated(&profile, &policy, &Request::default());
        for pairs in [vec![], vec![pair("a", 1.0), pair("b", 2.0)]] {
            let decision = conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap();
            let sum: f64 = decision.places.iter().map(|place| place.relevance.unwrap()).sum();
            assert_eq!((decision.any_fits, (sum * 1e9).round()), (None, 1e9));
        }
    }

    fn listed(decision: &Decision) -> Vec<&str> {
        decision.shortlist.iter().map(String::as_str).collect()
    }

    #[test]
    fn the_shortlist_holds_the_candidates_with_enough_share_best_first() {
        let (profile, policy) = (fitted(), Policy::default());
        let decide = |coverage, max_shortlist, pairs: &[Pair]| {
            let request = Request { coverage: Some(coverage), max_shortlist, ..Request::default() };
            let gated = gated(&profile, &policy, &request);
            conclude(&gated, pairs, Some("ours"), &profile, &policy).unwrap()
        };
        // The shares after stage 1 are 0.56, 0.37, 0.05 and 0.02.
        assert_eq!(listed(&decide(0.5, None, &[])), ["a"]);
        assert_eq!(listed(&decide(0.51, None, &[])), ["a", "b"]);
        assert_eq!(listed(&decide(0.52, None, &[])), ["a", "b"]);
        assert_eq!(listed(&decide(0.52, Some(1), &[])), ["a"]);
        assert_eq!(decide(0.51, None, &[]).coverage, Some(0.51));
        // After stage 2, with 0 for `d`, which was not read, they are 0.84, 0.11, 0.04 and 0.005.
        let pairs = [pair("c", 5.0), pair("a", 3.0), pair("b", 2.0)];
        assert_eq!(listed(&decide(0.51, None, &pairs)), ["c", "a"]);
        assert_eq!(listed(&decide(0.52, None, &pairs)), ["c", "a", "b"]);
    }

    #[test]
    fn a_coverage_that_no_length_allows_is_replaced_by_the_highest_and_noted() {
        let (profile, policy) = (fitted(), Policy::default());
        let gated = gated(&profile, &policy, &Request::default());
        let decision = conclude(&gated, &[], None, &profile, &policy).unwrap();
        assert_eq!((decision.coverage, listed(&decision)), (Some(0.52), vec!["a", "b"]));
        assert_eq!(decision.notes[0].code, "coverage");
        assert!(decision.notes[0].detail.contains("at most 5"));
        assert!(decision.notes[0].detail.contains("0.52, not 0.9"));
    }

    #[test]
    fn the_shortlist_is_empty_if_it_is_improbable_that_any_fits() {
        let least = |least| Profile {
            shortlist: Shortlist { least: Some(least), coverage: 0.5, ..fitted().shortlist },
            answer: Answer { rerank_threshold: Some(0.9), ..Answer::default() },
            ..fitted()
        };
        let policy = Policy::default();
        let decide = |profile: &Profile| {
            let gated = gated(profile, &policy, &Request::default());
            conclude(&gated, &[], None, profile, &policy).unwrap()
        };
        // Nothing is selected in both cases: the shortlist has a threshold of its own.
        let (above, below) = (decide(&least(0.71)), decide(&least(0.72)));
        assert_eq!((above.reason, listed(&above)), (Reason::Improbable, vec!["a"]));
        assert_eq!((below.reason, listed(&below)), (Reason::Improbable, vec![]));
        assert_eq!((below.coverage, below.notes), (Some(0.5), vec![]));
    }

    #[test]
    fn without_a_fit_a_requested_shortlist_is_empty_with_a_note() {
        let policy = Policy::default();
        let asked = |profile: &Profile, candidates: Vec<Scored>, coverage: Option<f64>| {
            let request = Request { coverage, ..Request::default() };
            let gated = gate(candidates, profile, &policy, &request).unwrap();
            let decision = conclude(&gated, &[], None, profile, &policy).unwrap();
            assert_eq!((decision.coverage, listed(&decision)), (None, vec![]));
            decision.notes.into_iter().map(|note| (note.code, note.detail)).collect::<Vec<_>>()
        };
        let decide = |profile: &Profile, candidates| asked(profile, candidates, Some(0.9));
        assert_eq!(asked(&Profile::default(), vec![scored("a", 0.5)], None), []);
        let notes = decide(&Profile::default(), vec![scored("a", 0.5)]);
        assert_eq!(notes[0].0, "no_shortlist");
        assert!(notes[0].1.contains("\"ungated\" has no fitted shortlist of at most 5"));
        let notes = decide(&fitted(), vec![Scored { cosine: None, ..scored("a", 0.5) }]);
        assert!(notes[0].1.contains("no cosine"), "{notes:?}");
        assert_eq!(decide(&Profile::default(), vec![]), []);
    }

    #[test]
    fn candidates_excluded_by_the_policy_are_not_on_the_shortlist() {
        let profile =
            Profile { shortlist: Shortlist { coverage: 0.52, ..fitted().shortlist }, ..fitted() };
        let pairs = [pair("a", 1.0), pair("b", 2.0), pair("c", 3.0), pair("d", 2.5)];
        let decide = |policy: &Policy| {
            let gated = gated(&profile, policy, &Request::default());
            conclude(&gated, &pairs, Some("ours"), &profile, policy).unwrap()
        };
        assert_eq!(listed(&decide(&Policy::default())), ["c", "d", "b", "a"]);
        let agreement = Policy { agreement: Some(0.5), ..Policy::default() };
        assert_eq!(listed(&decide(&agreement)), ["b", "a"]);
        let floors = Floors { default: Some(0.2), ..Floors::default() };
        assert_eq!(listed(&decide(&Policy { floors, ..Policy::default() })), ["c", "b", "a"]);
        let minimum = Policy { rerank_min: Some(2.2), ..Policy::default() };
        assert_eq!(listed(&decide(&minimum)), ["c", "d"]);
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
        assert!((decision.any_fits.unwrap() - 1.0 / (1.0 + f64::exp(-9.0))).abs() < 1e-15);
    }

    #[test]
    fn only_the_order_of_another_rerankers_scores_counts() {
        let policy = Policy { rerank_min: Some(5.0), ..Policy::default() };
        let profile = fitted();
        let gated = gated(&profile, &policy, &Request::default());
        let pairs = ["a", "b", "c", "d"].map(|id| pair(id, if id == "c" { 0.2 } else { 0.1 }));
        let ours = conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap();
        assert_eq!((ours.reason, ours.selected.len()), (Reason::Rejected, 0));
        assert!(!codes(&ours).contains(&"reranker_not_fitted"));
        let theirs = conclude(&gated, &pairs, Some("theirs"), &profile, &policy).unwrap();
        assert_eq!(theirs.selected, ["a", "c", "b", "d"]);
        let of_stage1 = conclude(&gated, &[], None, &profile, &policy).unwrap();
        assert_eq!(theirs.any_fits, gated.any_fits);
        assert_eq!(theirs.places[0].relevance, of_stage1.places[0].relevance);
        assert_eq!(theirs.shortlist, of_stage1.shortlist);
        assert_eq!(theirs.notes[0].code, "reranker_not_fitted");
        assert!(theirs.notes[0].detail.contains("for ours, not for theirs"));
        assert!(!codes(&of_stage1).contains(&"reranker_not_fitted"));
    }

    #[test]
    fn an_answer_below_the_threshold_selects_no_candidate() {
        let answer = Answer { threshold: Some(0.9), ..Answer::default() };
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
    fn an_answer_whose_first_candidate_is_improbable_selects_no_candidate() {
        let answer = Answer { confidence: Some(0.6), ..Answer::default() };
        let winner = crate::profile::Winner { agreed: Some(0.05), disagreed: Some(0.05) };
        let (profile, policy) = (Profile { answer, winner, ..fitted() }, Policy::default());
        let gated = gated(&profile, &policy, &Request::default());
        // Stage 1 has a margin, but its first candidate has a relevance of 0.38.
        assert_eq!(gated.verdict, Verdict::Ambiguous);
        let decided = |score| {
            conclude(&gated, &[pair("a", score), pair("b", 1.0)], Some("ours"), &profile, &policy)
                .unwrap()
        };
        assert_eq!((decided(1.5).reason, decided(1.5).selected.len()), (Reason::Rejected, 0));
        assert_eq!(decided(4.0).selected, ["a"]);
    }

    #[test]
    fn irrelevant_candidates_do_not_count_towards_the_limit() {
        let profile = Profile {
            relevance: Relevance { threshold: Some(0.3), ..fitted().relevance },
            any_fits: AnyFits::default(),
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
        let sum = (-1.0_f64).exp() + 3.0_f64.exp() + 2.0;
        assert!((decision.confidence.unwrap() - (-1.0_f64).exp() / sum).abs() < 1e-15);
        assert_eq!(listed(&decision)[0], "b");

        // With the scores of another reranker, the weights of stage 1 are used.
        let other = conclude(&gated, &pairs, Some("theirs"), &profile, &policy).unwrap();
        assert_eq!(outcome(&other)[..2], [("a", None), ("b", Some("over_limit"))]);
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
        let run = |score| conclude(&gated, &[pair("a", score)], Some("ours"), &profile, &policy);
        for (score, code) in [(f64::NAN, "not_finite"), (1e101, "out_of_range")] {
            assert_eq!(run(score).unwrap_err().code(), code);
        }
        assert_eq!(run(-1e100).unwrap().selected, ["a"]);
    }

    #[test]
    fn a_number_that_equals_its_threshold_meets_it() {
        let (profile, policy) = (fitted(), Policy::default());
        let decide = |profile: &Profile, policy: &Policy, request: &Request, pairs: &[Pair]| {
            let gated = gated(profile, policy, request);
            conclude(&gated, pairs, Some("ours"), profile, policy).unwrap()
        };
        let read = [pair("a", 1.0), pair("b", 2.0), pair("c", 3.0)];
        let request = Request { coverage: Some(0.5), ..Request::default() };
        for pairs in [&read[..], &[]] {
            let free = decide(&profile, &policy, &request, pairs);
            assert!(!free.selected.is_empty() && !free.shortlist.is_empty());
            let answer = Answer {
                threshold: free.any_fits,
                confidence: free.confidence,
                ..Answer::default()
            };
            let shortlist = Shortlist { least: free.any_fits, ..fitted().shortlist };
            let strict = Profile { answer, shortlist, ..fitted() };
            let asked = |least| Request { min_confidence: least, ..request.clone() };
            assert_eq!(decide(&strict, &policy, &asked(free.confidence), pairs), free);
            let more = decide(&profile, &policy, &asked(free.confidence.map(f64::next_up)), pairs);
            assert_eq!((more.reason, more.selected.len()), (Reason::Rejected, 0));
        }
        for (more, count) in [(0.0, 0), (0.01, 2)] {
            let warnings = Warnings {
                flat_scores: Some((2.0_f64 / 3.0).sqrt() + more),
                weak_cosine: Some(0.9 + more),
                weak_rerank_score: Some(3.0 + more),
            };
            let policy = Policy { warnings, ..Policy::default() };
            assert_eq!(decide(&profile, &policy, &request, &read).warnings.len(), count);
        }
        let bound = Guardrails {
            rerank_min: Some(1.0),
            rerank_margin: Some(2.0),
            relevance: Some(0.3),
            runner_up: Some(2.0),
            agreement: Some(0.5),
            limit: Some(2),
        };
        let lower = Judged { score: 1.0, blend: 0.5, relevance: Some(0.3), truncated: false };
        let both = [Judged { score: 3.0, ..lower }, lower];
        assert_eq!(passes(&both, &bound), [None, None]);
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

    prop_compose! {
        fn any_decision()(
            rows in prop::collection::vec((0.0..1.0_f64, -9.0..9.0_f64), 1..12),
            read in 0_usize..12, agreement in prop::option::of(0.0..1.0_f64),
            limit in prop::option::of(1_usize..3), coverage in 0.05..0.99_f64,
            most in 1_usize..9, least in 0.0..1.0_f64,
        ) -> (Vec<Scored>, Vec<Pair>, Profile, Policy, Request) {
            let candidates: Vec<Scored> = rows
                .iter()
                .enumerate()
                .map(|(at, (blend, _))| scored(&format!("d{at:02}"), *blend))
                .collect();
            let pairs = rows.iter().zip(&candidates).take(read);
            let pairs = pairs.map(|((_, score), of)| pair(&of.id, *score)).collect();
            let shares: Vec<f64> = (0..50).map(|level| 0.5 * 0.9_f64.powi(level)).collect();
            let promises: Vec<Promise> =
                [1, 2, 5].map(|most| Promise { most, least_shares: shares.clone() }).to_vec();
            let shortlist = Shortlist {
                least: Some(least),
                stage1: promises.clone(),
                stage2: promises,
                ..Shortlist::default()
            };
            let request = Request {
                limit,
                coverage: Some(coverage),
                max_shortlist: Some(most),
                ..Request::default()
            };
            let policy = Policy { agreement, ..Policy::default() };
            (candidates, pairs, Profile { shortlist, ..fitted() }, policy, request)
        }
    }

    proptest! {
        #[test]
        fn a_shortlist_starts_with_the_first_pick_and_only_grows_with_coverage(
            (candidates, pairs, profile, policy, request) in any_decision(),
            more in 0.0..0.9_f64,
        ) {
            let decide = |request: &Request| {
                let gated = gate(candidates.clone(), &profile, &policy, request).unwrap();
                conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap()
            };
            let narrow = decide(&request);
            if let (Some(listed), Some(selected)) =
                (narrow.shortlist.first(), narrow.selected.first())
            {
                prop_assert_eq!(listed, selected);
            }
            prop_assert!(narrow.shortlist.len() <= request.max_shortlist.unwrap());
            let coverage = request.coverage.map(|coverage| (coverage + more).min(0.99));
            let wide = decide(&Request { coverage, ..request.clone() });
            prop_assert!(wide.shortlist.starts_with(&narrow.shortlist));
            prop_assert_eq!(wide.selected, narrow.selected);
        }

        #[test]
        fn a_decision_does_not_depend_on_the_order_of_candidates_and_pairs(
            (candidates, pairs, profile, policy, request) in any_decision(),
            rotation in 0_usize..12,
        ) {
            let decide = |candidates: &[Scored], pairs: &[Pair]| {
                let gated = gate(candidates.to_vec(), &profile, &policy, &request).unwrap();
                let decision = conclude(&gated, pairs, Some("ours"), &profile, &policy).unwrap();
                serde_json::to_string(&decision).unwrap()
            };
            let (mut moved, mut scores) = (candidates.clone(), pairs.clone());
            moved.rotate_left(rotation % candidates.len());
            scores.rotate_left(rotation % pairs.len().max(1));
            prop_assert_eq!(decide(&moved, &scores), decide(&candidates, &pairs));
        }

        #[test]
        fn a_trace_replays_the_shortlist(
            (candidates, pairs, profile, policy, request) in any_decision(),
        ) {
            let gated = gate(candidates, &profile, &policy, &request).unwrap();
            let decision = conclude(&gated, &pairs, Some("ours"), &profile, &policy).unwrap();
            let trace = crate::trace::Trace::new(
                &profile, &policy, &request, &gated, Some("ours"), &pairs, &decision,
            );
            let text = serde_json::to_string(&trace).unwrap();
            let (_, replayed) = crate::trace::Trace::read(&text).unwrap().replay().unwrap();
            prop_assert_eq!(replayed, decision);
        }
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
