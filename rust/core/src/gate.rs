//! The gate: decides whether stage 1 has a winner, has nothing relevant, or needs stage 2.

use std::collections::BTreeMap;

use crate::checks::{Range, check_count};
use crate::cliff::{self, Cliff, CliffOptions};
use crate::error::Result;
use crate::json::{codes, value};
use crate::policy::{Lexical, Policy};
use crate::probability::Probabilities;
use crate::profile::{Profile, Winner};
use crate::shortlist::check_coverage;
use crate::signals::{Signals, signals};
use crate::stage1::{Scored, best_first, sort};

codes! {
    /// The verdict of the gate on stage 1.
    pub enum Verdict {
        /// There is a clear winner: the order of stage 1 is final.
        Confident = "confident",
        /// The result is uncertain: stage 2 decides.
        Ambiguous = "ambiguous",
        /// No candidate fits.
        NothingRelevant = "nothing_relevant",
    }
}

codes! {
    /// The rule that decided.
    pub enum Reason {
        /// There were no candidates.
        NoCandidates = "no_candidates",
        /// No candidate clears the floor of its section.
        BelowFloor = "below_floor",
        /// There are no vectors, and no candidate shares a term with the query.
        NoOverlap = "no_overlap",
        /// The probability that any candidate fits is too low.
        Improbable = "improbable",
        /// One candidate is best by a large margin in blend: [`confident_winner`].
        ConfidentWinner = "confident_winner",
        /// One candidate is best by a large margin in BM25: [`lexical_winner`].
        LexicalWinner = "lexical_winner",
        /// None of the rules above applies.
        Undecided = "undecided",
        /// The models do not read the language of the query, and it has no trigger of a document.
        Unreadable = "unreadable",
        /// The query names a document exactly.
        Named = "named",
        /// The query names a document that does not exist.
        UnknownName = "unknown_name",
        /// Stage 2 decided the order.
        Reranked = "reranked",
        /// No candidate passed the guardrails.
        Rejected = "rejected",
    }
}

value! {
    /// The caller's options for one query.
    #[derive(Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Request {
        /// The most candidates that are selected; absent: all that pass the guardrails.
        pub limit: Option<usize>,
        /// Section of the caller's work, which chooses a floor of the policy.
        pub section: Option<String>,
        /// The caller's grade of the retrieval, from `A` (best) to `F`.
        pub grade: Option<String>,
        /// Whether a candidate without a cosine must share a term with the query to be relevant.
        /// False if another retriever found the candidates by its own criteria.
        pub require_overlap: bool,
        /// Whether the preferred reranker is unavailable, so that no pool is cut.
        pub reranker_down: bool,
        /// Types of the candidates' sources, by id of the candidate.
        pub sources: BTreeMap<String, String>,
        /// Number of documents that stage 1 compared with the query; absent: that of the candidates.
        pub documents: Option<usize>,
        /// Probability that the query needs any document, in [0, 1]; absent: 1.
        pub needs_document: Option<f64>,
        /// Whether the query names a document that does not exist.
        pub names_unknown: bool,
        /// Whether the query is in a language that a model does not read.
        pub unreadable: bool,
        /// The least confidence of an answer, in [0, 1], in addition to the profile's threshold.
        pub min_confidence: Option<f64>,
        /// Probability, in (0, 1), with which the shortlist is to contain a fitting candidate if
        /// there is one; absent: that of the profile.
        pub coverage: Option<f64>,
        /// The most candidates on the shortlist, at least 1; absent: that of the profile.
        pub max_shortlist: Option<usize>,
    }
}

value! {
    /// A remark on a result.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Note {
        /// Identifier for programs.
        pub code: String,
        /// A sentence for people.
        pub detail: String,
    }
}

value! {
    /// The result of the gate, which stage 2 and [`crate::conclude::conclude`] continue from.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Gated {
        /// The candidates, best blend first.
        #[serde(skip)]
        pub scored: Vec<Scored>,
        /// The verdict on the candidates.
        pub verdict: Verdict,
        /// The rule that decided.
        pub reason: Reason,
        /// Probability after stage 1 that any candidate fits; none without candidates or a model.
        pub any_fits: Option<f64>,
        /// The signals that the rules used; none without candidates.
        pub signals: Option<Signals>,
        /// The least cosine of a candidate, if there is a floor.
        pub floor: Option<f64>,
        /// The cliff below which the pool was cut, or why it was not; none if the policy has no
        /// `cliff_core`.
        pub cliff: Option<Cliff>,
        /// The candidates for stage 2, as positions in `scored`.
        pub pool: Vec<usize>,
        /// Parts of the request that could not be applied.
        pub notes: Vec<Note>,
        /// The most candidates that are selected.
        #[serde(skip)]
        pub limit: Option<usize>,
        /// The least confidence of an answer, from the request.
        #[serde(skip)]
        pub min_confidence: Option<f64>,
        /// The coverage of the shortlist, from the request.
        #[serde(skip)]
        pub coverage: Option<f64>,
        /// The most candidates on the shortlist, from the request.
        #[serde(skip)]
        pub max_shortlist: Option<usize>,
    }
}

impl Gated {
    /// Whether the name of a document in the query decides, and no score does.
    pub(crate) fn is_by_name(&self) -> bool {
        matches!(self.reason, Reason::Named | Reason::UnknownName)
    }
}

/// Terms that a lexical winner must share with the query. One common word is weak evidence, however
/// rare it is.
const LEXICAL_OVERLAP: u32 = 2;

/// Characters of a section or grade that a message shows.
const NAME_LENGTH: usize = 40;

/// Decides from the stage-1 scores of candidates in any order.
///
/// Fails with `not_finite` if a score is not finite, and with `out_of_range` if `needs_document` or
/// `min_confidence` is outside of [0, 1], `coverage` outside of (0, 1), or `max_shortlist` is 0.
///
/// # Examples
///
/// ```
/// use crossgate_core::gate::{Reason, Request, Verdict, gate};
/// use crossgate_core::policy::Policy;
/// use crossgate_core::profile::{Profile, Winner};
/// use crossgate_core::stage1::Scored;
///
/// let winner = Winner { agreed: Some(0.1), disagreed: None };
/// let profile = Profile { winner, ..Profile::default() };
/// let scored = |id: &str, cosine: f64, bm25: f64| Scored {
///     id: id.to_owned(),
///     cosine: Some(cosine),
///     bm25,
///     overlap: u32::from(bm25 > 0.0),
///     blend: profile.blend.score(Some(cosine), bm25),
///     ..Scored::default()
/// };
/// let (policy, request) = (Policy::default(), Request::default());
///
/// let clear = vec![scored("pdf", 0.8, 5.0), scored("csv", 0.3, 0.0)];
/// let gated = gate(clear, &profile, &policy, &request)?;
/// assert_eq!((gated.verdict, gated.reason), (Verdict::Confident, Reason::ConfidentWinner));
///
/// let close = vec![scored("pdf", 0.8, 5.0), scored("docx", 0.79, 5.0)];
/// assert_eq!(gate(close, &profile, &policy, &request)?.verdict, Verdict::Ambiguous);
/// # Ok::<(), crossgate_core::Error>(())
/// ```
pub fn gate(
    mut scored: Vec<Scored>,
    profile: &Profile,
    policy: &Policy,
    request: &Request,
) -> Result<Gated> {
    Range::Probability.check("needs_document", request.needs_document)?;
    Range::Probability.check("min_confidence", request.min_confidence)?;
    check_coverage("coverage", request.coverage)?;
    check_count("max_shortlist", request.max_shortlist.unwrap_or(1), 1, usize::MAX)?;
    sort(&mut scored);
    let floor = floor_of(policy, request);
    let clears = |candidate: &Scored| clears(candidate, floor);
    let eligible: Vec<usize> = scored
        .iter()
        .enumerate()
        .filter(|(_, candidate)| clears(candidate))
        .map(|(position, _)| position)
        .collect();
    let positions = considered(&scored, floor);
    let considered = without_refusals(&positions);
    let signals = signals(&considered)?.map(|signals| Signals {
        documents: request.documents.unwrap_or_default().max(scored.len()),
        needs_document: request.needs_document,
        ..signals
    });
    let known = Probabilities::after_stage1(&positions, signals.as_ref(), profile);
    let (verdict, reason) = match &signals {
        _ if scored.iter().any(|candidate| candidate.is_named) => {
            (Verdict::Confident, Reason::Named)
        }
        _ if request.names_unknown => (Verdict::NothingRelevant, Reason::UnknownName),
        None if scored.is_empty() => (Verdict::NothingRelevant, Reason::NoCandidates),
        None => (Verdict::NothingRelevant, Reason::BelowFloor),
        Some(_) if request.unreadable && !is_known(&considered) => {
            (Verdict::NothingRelevant, Reason::Unreadable)
        }
        Some(signals) => {
            // A lexical winner keeps the order of stage 1, so it must also be first in it.
            let lexical = policy.lexical.filter(|_| is_first_by_bm25(&considered));
            let confidence = positions.first().and_then(|(first, _)| known.relevance(*first));
            match decide(signals, known.any_fits, confidence, profile, lexical, request) {
                (Verdict::Confident, _) if considered.first().is_some_and(|of| is_refused(of)) => {
                    (Verdict::Ambiguous, Reason::Undecided)
                }
                (Verdict::NothingRelevant, Reason::Improbable)
                    if is_triggered(&considered, profile, request) =>
                {
                    (Verdict::Ambiguous, Reason::Undecided)
                }
                decided => decided,
            }
        }
    };
    let mut gated = Gated {
        verdict,
        reason,
        any_fits: known.any_fits,
        signals,
        floor,
        cliff: None,
        pool: Vec::new(),
        notes: notes(&scored, policy, request, floor),
        limit: request.limit,
        min_confidence: request.min_confidence,
        coverage: request.coverage,
        max_shortlist: request.max_shortlist,
        scored,
    };
    if is_ambiguous(&gated) {
        let size =
            profile.pool.saturating_add(if is_low(request) { policy.floors.widen } else { 0 });
        gated.cliff = find_cliff(&gated.scored, policy, request, floor, size)?;
        let cut = gated.cliff.as_ref().map_or(&[][..], |cliff| &cliff.cut);
        gated.pool =
            eligible.into_iter().take(size).filter(|position| !cut.contains(position)).collect();
    }
    Ok(gated)
}

fn decide(
    signals: &Signals,
    any_fits: Option<f64>,
    confidence: Option<f64>,
    profile: &Profile,
    lexical: Option<Lexical>,
    request: &Request,
) -> (Verdict, Reason) {
    let answer = &profile.answer;
    let below = |known: Option<f64>, least: Option<f64>| {
        known.zip(least).is_some_and(|(known, least)| known < least)
    };
    if request.require_overlap && signals.cosine.is_none() && signals.bm25 <= 0.0 {
        (Verdict::NothingRelevant, Reason::NoOverlap)
    } else if below(any_fits, answer.rerank_threshold) {
        (Verdict::NothingRelevant, Reason::Improbable)
    } else if below(any_fits, answer.threshold) || below(confidence, answer.confidence) {
        (Verdict::Ambiguous, Reason::Undecided)
    } else if confident_winner(signals, &profile.winner) {
        (Verdict::Confident, Reason::ConfidentWinner)
    } else if lexical.is_some_and(|lexical| lexical_winner(signals, &lexical)) {
        (Verdict::Confident, Reason::LexicalWinner)
    } else {
        (Verdict::Ambiguous, Reason::Undecided)
    }
}

/// The candidates without those that have evidence against them, behind the first. The first
/// was preferred to them for that evidence, so its margin over them means nothing.
fn without_refusals<'a>(candidates: &[(usize, &'a Scored)]) -> Vec<&'a Scored> {
    let candidates = candidates.iter().map(|(_, candidate)| *candidate);
    let kept = candidates.enumerate().filter(|(place, of)| *place == 0 || !is_refused(of));
    kept.map(|(_, candidate)| candidate).collect()
}

fn is_refused(candidate: &Scored) -> bool {
    candidate.evidence.is_against()
}

/// Below this probability that the query needs a document, no trigger is a reason to ask stage 2: the
/// log-odds that any candidate fits are lower by 2.2 and more.
const LEAST_NEED: f64 = 0.25;

/// Whether the first candidate has a trigger of the query, or an example that is like it.
fn is_known(considered: &[&Scored]) -> bool {
    considered
        .first()
        .is_some_and(|Scored { evidence, .. }| evidence.trigger > 0.0 || evidence.example > 0.0)
}

/// Whether stage 2 would read a candidate with a trigger, for a query that may need a document.
fn is_triggered(considered: &[&Scored], profile: &Profile, request: &Request) -> bool {
    request.needs_document.is_none_or(|needs| needs >= LEAST_NEED)
        && considered.iter().take(profile.pool).any(|candidate| candidate.evidence.is_triggered())
}

/// Whether stage 2 should decide: some candidate may be relevant and there is no clear winner.
pub fn is_ambiguous(gated: &Gated) -> bool {
    gated.verdict == Verdict::Ambiguous
}

/// Whether the best candidate leads the next by the fitted margin in blend. If cosine and BM25
/// disagree on the best candidate, the margin is at least as large as if they agree.
pub fn confident_winner(signals: &Signals, winner: &Winner) -> bool {
    let least = if signals.agreement { winner.agreed } else { winner.disagreed };
    least.is_some_and(|least| signals.margin > 0.0 && signals.margin >= least)
}

/// Whether the best candidate by BM25 has a high score, at least two terms in common with the query,
/// and a clear margin over the next candidate.
pub fn lexical_winner(signals: &Signals, lexical: &Lexical) -> bool {
    signals.bm25 >= lexical.score
        && signals.overlap >= LEXICAL_OVERLAP
        && signals.bm25_margin > 0.0
        && signals.bm25_margin >= lexical.margin
}

/// The candidates that margins and shares are computed over, with their positions: all of them, also
/// those below the floor, as in the fit. Only if the first candidate is below the floor, the rest.
pub(crate) fn considered(scored: &[Scored], floor: Option<f64>) -> Vec<(usize, &Scored)> {
    let all = scored.first().is_some_and(|first| clears(first, floor));
    scored.iter().enumerate().filter(|(_, candidate)| all || clears(candidate, floor)).collect()
}

/// Whether the first candidate, the best by blend, is also the best by BM25.
fn is_first_by_bm25(candidates: &[&Scored]) -> bool {
    candidates.first().is_some_and(|first| {
        candidates
            .iter()
            .all(|other| best_first((first.bm25, &first.id), (other.bm25, &other.id)).is_le())
    })
}

/// Whether a candidate clears the floor; a candidate without a cosine does.
pub(crate) fn clears(candidate: &Scored, floor: Option<f64>) -> bool {
    floor.zip(candidate.cosine).is_none_or(|(floor, cosine)| cosine >= floor)
}

fn floor_of(policy: &Policy, request: &Request) -> Option<f64> {
    let floors = &policy.floors;
    let of_section =
        request.section.as_ref().and_then(|section| floors.sections.get(section).copied());
    let floor = of_section.or(floors.default)?;
    Some(if is_low(request) { floor - floors.relax } else { floor })
}

/// The grade as a capital letter; `?` for an unknown grade.
fn letter(request: &Request) -> Option<char> {
    let grade = request.grade.as_deref()?;
    let mut letters = grade.chars();
    match (letters.next().map(|letter| letter.to_ascii_uppercase()), letters.next()) {
        (Some(letter @ ('A' | 'B' | 'C' | 'D' | 'F')), None) => Some(letter),
        _ => Some('?'),
    }
}

fn is_low(request: &Request) -> bool {
    matches!(letter(request), Some('C' | 'D' | 'F'))
}

fn find_cliff(
    scored: &[Scored],
    policy: &Policy,
    request: &Request,
    floor: Option<f64>,
    pool: usize,
) -> Result<Option<Cliff>> {
    let Some(core) = policy.cliff_core else { return Ok(None) };
    let cosines: Vec<f64> = scored.iter().filter_map(|candidate| candidate.cosine).collect();
    if cosines.len() < scored.len() {
        return Ok(Some(Cliff::none(floor, None, cliff::SkipReason::NoCosine)));
    }
    let sources: Vec<Option<&str>> =
        scored.iter().map(|of| request.sources.get(&of.id).map(String::as_str)).collect();
    let options = CliffOptions {
        core,
        pool,
        static_floor: floor,
        grade: letter(request),
        reranker_available: !request.reranker_down,
    };
    cliff::tighten(&cosines, &sources, &options).map(Some)
}

fn notes(scored: &[Scored], policy: &Policy, request: &Request, floor: Option<f64>) -> Vec<Note> {
    let mut found = Vec::new();
    let mut note = |code: &str, detail: String| found.push(Note { code: code.to_owned(), detail });
    let floors = &policy.floors;
    if let Some(section) = &request.section
        && !floors.sections.is_empty()
        && !floors.sections.contains_key(section)
    {
        let instead = floors
            .default
            .map_or("no floor applies".to_owned(), |floor| format!("the default {floor} applies"));
        note(
            "unknown_section",
            format!("the policy has no floor for the section {:?}: {instead}", cut(section)),
        );
    }
    if let (Some('?'), Some(grade)) = (letter(request), &request.grade) {
        note(
            "unknown_grade",
            format!(
                "the grade {:?} is unknown: use A, B, C, D or F. No floor was relaxed, and no pool \
                 was cut below a cliff",
                cut(grade)
            ),
        );
    }
    if let Some(floor) = floor.filter(|_| scored.iter().any(|candidate| candidate.cosine.is_none()))
    {
        note(
            "floor_unmeasured",
            format!(
                "candidates without a cosine passed the floor {floor} unmeasured: pass vectors of \
                 query and candidates, or cosines"
            ),
        );
    }
    found
}

fn cut(name: &str) -> String {
    name.chars().take(NAME_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::evidence::Evidence;
    use crate::policy::Floors;
    use crate::profile::{Answer, AnyFits, Stage1AnyFits};

    fn scored(id: &str, cosine: f64, bm25: f64, overlap: u32) -> Scored {
        let blend = 0.7 * cosine + 0.3 * bm25 / (bm25 + 5.0);
        let scored = Scored { id: id.to_owned(), cosine: Some(cosine), bm25, ..Scored::default() };
        Scored { overlap, blend, ..scored }
    }

    fn profile() -> Profile {
        Profile { winner: Winner { agreed: Some(0.1), disagreed: Some(0.3) }, ..Profile::default() }
    }

    fn fitted() -> Profile {
        let model = Stage1AnyFits { intercept: -3.0, cosine: 6.0, ..Stage1AnyFits::default() };
        Profile {
            any_fits: AnyFits { stage1: Some(model), stage2: None },
            answer: Answer {
                rerank_threshold: Some(0.4),
                threshold: Some(0.6),
                ..Answer::default()
            },
            ..profile()
        }
    }

    fn lexical() -> Policy {
        Policy { lexical: Some(Lexical { score: 8.0, margin: 4.0 }), ..Policy::default() }
    }

    fn reason(candidates: &[Scored], profile: &Profile, policy: &Policy) -> (Verdict, Reason) {
        let request = Request { require_overlap: true, ..Request::default() };
        let gated = gate(candidates.to_vec(), profile, policy, &request).unwrap();
        assert_eq!(is_ambiguous(&gated), gated.verdict == Verdict::Ambiguous);
        assert_eq!(gated.pool.is_empty(), !is_ambiguous(&gated));
        (gated.verdict, gated.reason)
    }

    #[test]
    fn each_rule_decides_its_case() {
        use Reason as R;
        use Verdict as V;
        let table: &[(&str, &[Scored], (V, R))] = &[
            ("no candidates", &[], (V::NothingRelevant, R::NoCandidates)),
            ("a single candidate", &[scored("a", 0.8, 0.0, 0)], (V::Ambiguous, R::Undecided)),
            (
                "a lexical winner",
                &[scored("a", 0.4, 12.0, 3), scored("b", 0.41, 5.0, 2)],
                (V::Confident, R::LexicalWinner),
            ),
            (
                "a lexical winner shares two terms",
                &[scored("a", 0.4, 12.0, 1), scored("b", 0.41, 5.0, 2)],
                (V::Ambiguous, R::Undecided),
            ),
            (
                "a lexical winner needs a runner-up",
                &[scored("a", 0.6, 12.0, 3)],
                (V::Ambiguous, R::Undecided),
            ),
            (
                "a lexical winner is first by blend",
                &[scored("a", 0.3, 12.0, 3), scored("b", 0.7, 5.0, 2)],
                (V::Ambiguous, R::Undecided),
            ),
            (
                "cosine and BM25 agree",
                &[scored("a", 0.6, 5.0, 2), scored("b", 0.5, 2.0, 2)],
                (V::Confident, R::ConfidentWinner),
            ),
            (
                "cosine and BM25 disagree",
                &[scored("a", 0.69, 1.0, 2), scored("b", 0.4, 2.0, 2)],
                (V::Ambiguous, R::Undecided),
            ),
            (
                "cosine and BM25 disagree, and the margin is large enough",
                &[scored("a", 0.99, 1.0, 2), scored("b", 0.4, 2.0, 2)],
                (V::Confident, R::ConfidentWinner),
            ),
        ];
        for (name, candidates, expected) in table {
            assert_eq!(reason(candidates, &profile(), &lexical()), *expected, "{name}");
        }
    }

    #[test]
    fn a_confident_winner_takes_precedence_over_a_lexical_winner() {
        let both = [scored("a", 0.9, 20.0, 4), scored("b", 0.2, 1.0, 1)];
        assert_eq!(reason(&both, &profile(), &lexical()).1, Reason::ConfidentWinner);
        assert_eq!(reason(&both, &Profile::default(), &lexical()).1, Reason::LexicalWinner);
    }

    #[test]
    fn answer_thresholds_take_precedence_over_winners() {
        let at = |cosine| [scored("a", cosine, 9.0, 3), scored("b", 0.0, 0.0, 0)];
        let found = |cosine| reason(&at(cosine), &fitted(), &lexical());
        assert_eq!(found(0.4), (Verdict::NothingRelevant, Reason::Improbable));
        assert_eq!(found(0.5), (Verdict::Ambiguous, Reason::Undecided));
        assert_eq!(found(0.7), (Verdict::Confident, Reason::ConfidentWinner));
    }

    #[test]
    fn without_cosines_a_shared_term_is_required_if_requested() {
        let without = |bm25| Scored {
            id: "a".to_owned(),
            bm25,
            overlap: u32::from(bm25 > 0.0),
            ..Scored::default()
        };
        let decided = |candidate: Scored, require_overlap| {
            let request = Request { require_overlap, ..Request::default() };
            gate(vec![candidate], &fitted(), &Policy::default(), &request).unwrap()
        };
        assert_eq!(decided(without(0.0), true).reason, Reason::NoOverlap);
        assert_eq!(decided(without(0.0), false).reason, Reason::Undecided);
        assert_eq!(decided(without(0.1), true).reason, Reason::Undecided);
        assert_eq!(decided(without(0.1), true).any_fits, None);
    }

    #[test]
    fn the_margin_includes_candidates_below_the_floor_unless_the_first_is_below() {
        let floor = |floor| Policy {
            floors: Floors { default: Some(floor), ..Default::default() },
            ..Policy::default()
        };
        let candidates =
            [scored("a", 0.5, 30.0, 5), scored("b", 0.6, 0.0, 0), scored("c", 0.1, 0.0, 0)];
        let winner = Winner { agreed: Some(0.1), disagreed: Some(0.1) };
        let profile = Profile { winner, ..Profile::default() };
        let found = |policy: &Policy| {
            gate(candidates.to_vec(), &profile, policy, &Request::default()).unwrap()
        };
        // `a` is first and clears the floor, so its margin is over all candidates.
        let first = found(&floor(0.3));
        assert_eq!(
            (first.reason, first.signals.unwrap().margin > 0.0),
            (Reason::ConfidentWinner, true)
        );
        // Only `b` clears the floor, so it has no margin.
        let alone = found(&floor(0.55));
        assert_eq!((alone.reason, alone.pool), (Reason::Undecided, vec![1]));
        assert_eq!(found(&floor(0.9)).reason, Reason::BelowFloor);
        assert_eq!(found(&floor(0.9)).verdict, Verdict::NothingRelevant);
    }

    #[test]
    fn scores_that_are_not_finite_are_refused() {
        let error = gate(
            vec![scored("a", f64::NAN, 1.0, 1)],
            &profile(),
            &Policy::default(),
            &Request::default(),
        )
        .unwrap_err();
        assert_eq!(error.code(), "not_finite");
    }

    fn candidates() -> impl Strategy<Value = Vec<Scored>> {
        let row = (0_u8..20, 0_u8..20, 0_u32..4);
        prop::collection::vec(row, 0..8).prop_map(|rows| {
            rows.iter()
                .enumerate()
                .map(|(position, (cosine, bm25, overlap))| {
                    let (cosine, bm25) = (f64::from(*cosine) / 20.0, f64::from(*bm25));
                    scored(&position.to_string(), cosine, bm25, *overlap)
                })
                .collect()
        })
    }

    #[test]
    fn a_low_grade_relaxes_the_floor_and_unknown_names_are_noted() {
        let floors = Floors {
            default: Some(0.5),
            sections: [("known".to_owned(), 0.6)].into(),
            relax: 0.2,
            widen: 0,
        };
        let policy = Policy { floors, cliff_core: Some(1), ..Policy::default() };
        let run = |section: &str, grade: &str| {
            let request = Request {
                section: Some(section.to_owned()),
                grade: Some(grade.to_owned()),
                needs_document: Some(0.25),
                ..Request::default()
            };
            let mut candidates = vec![scored("a", 0.8, 5.0, 2), scored("b", 0.7, 4.0, 2)];
            candidates.push(Scored { cosine: None, ..scored("c", 0.0, 1.0, 1) });
            gate(candidates, &Profile::default(), &policy, &request).unwrap()
        };
        let codes = |gated: &Gated| gated.notes.iter().map(|n| n.code.clone()).collect::<Vec<_>>();
        let high = run("known", "a");
        assert_eq!((high.floor, codes(&high)), (Some(0.6), vec!["floor_unmeasured".to_owned()]));
        assert_eq!(high.signals.unwrap().needs_document, Some(0.25));
        assert_eq!(
            high.cliff.map(|cliff| cliff.skip_reason),
            Some(Some(cliff::SkipReason::NoCosine))
        );
        let low = run("known", "D");
        assert!((low.floor.unwrap() - 0.4).abs() < 1e-12);
        let unknown = run(&"x".repeat(50), "Aa");
        assert_eq!(unknown.floor, Some(0.5));
        assert_eq!(codes(&unknown), ["unknown_section", "unknown_grade", "floor_unmeasured"]);
        assert!(unknown.notes[0].detail.contains(&format!("{:?}", "x".repeat(NAME_LENGTH))));
    }

    #[test]
    fn the_policy_cuts_the_pool_below_a_cliff_if_every_candidate_has_a_cosine() {
        let policy = Policy { cliff_core: Some(1), ..Policy::default() };
        let candidates = vec![scored("a", 0.9, 5.0, 2), scored("b", 0.2, 4.0, 2)];
        let request = Request::default();
        let gated = gate(candidates, &Profile::default(), &policy, &request).unwrap();
        let skipped = gated.cliff.unwrap().skip_reason;
        assert_ne!(skipped, Some(cliff::SkipReason::NoCosine));
        assert!(
            gate(vec![], &Profile::default(), &Policy::default(), &request)
                .unwrap()
                .cliff
                .is_none()
        );
    }

    fn refused(candidate: Scored, counterexample: f64) -> Scored {
        Scored { evidence: Evidence { counterexample, ..Evidence::default() }, ..candidate }
    }

    #[test]
    fn a_winner_with_evidence_against_it_is_ambiguous() {
        let found = |likeness| {
            let winner = refused(scored("a", 0.9, 9.0, 3), likeness);
            reason(&[winner, scored("b", 0.1, 0.0, 0)], &profile(), &lexical())
        };
        assert_eq!(found(0.31), (Verdict::Confident, Reason::ConfidentWinner));
        assert_eq!(found(0.3125), (Verdict::Ambiguous, Reason::Undecided));
    }

    #[test]
    fn the_margin_is_over_candidates_without_evidence_against_them() {
        let found = |likeness| {
            let close = refused(scored("b", 0.85, 9.0, 3), likeness);
            let candidates = [scored("a", 0.9, 9.0, 3), close, scored("c", 0.1, 0.0, 0)];
            reason(&candidates, &profile(), &Policy::default())
        };
        assert_eq!(found(0.31), (Verdict::Ambiguous, Reason::Undecided));
        assert_eq!(found(0.3125), (Verdict::Confident, Reason::ConfidentWinner));
    }

    #[test]
    fn an_improbable_match_with_a_trigger_is_ambiguous_if_stage_2_would_read_it() {
        let found = |trigger, needs_document, pool| {
            let evidence = Evidence { trigger, ..Evidence::default() };
            let named = Scored { evidence, ..scored("b", 0.1, 0.0, 0) };
            let request = Request { needs_document, ..Request::default() };
            let candidates = vec![scored("a", 0.3, 1.0, 1), named];
            let profile = Profile { pool, ..fitted() };
            gate(candidates, &profile, &Policy::default(), &request).unwrap().reason
        };
        assert_eq!(found(0.2, None, 2), Reason::Undecided);
        assert_eq!(found(0.2, Some(0.25), 2), Reason::Undecided);
        assert_eq!(found(0.19, None, 2), Reason::Improbable);
        assert_eq!(found(0.2, Some(0.24), 2), Reason::Improbable);
        assert_eq!(found(0.2, None, 1), Reason::Improbable);
    }

    #[test]
    fn a_probability_equal_to_a_threshold_passes_it() {
        let candidates = [scored("a", 0.5, 9.0, 3), scored("b", 0.0, 0.0, 0)];
        let any_fits = |profile: &Profile| {
            let request = Request::default();
            gate(candidates.to_vec(), profile, &Policy::default(), &request).unwrap().any_fits
        };
        let known = any_fits(&fitted());
        let at = |rerank_threshold, threshold| {
            let answer = Answer { rerank_threshold, threshold, ..Answer::default() };
            reason(&candidates, &Profile { answer, ..fitted() }, &Policy::default()).1
        };
        assert_eq!(at(known, None), Reason::ConfidentWinner);
        assert_eq!(at(None, known), Reason::ConfidentWinner);
        let above = known.map(|known| known + 1e-9);
        assert_eq!(at(above, None), Reason::Improbable);
        assert_eq!(at(None, above), Reason::Undecided);
    }

    #[test]
    fn a_score_equal_to_a_limit_wins() {
        let candidates = [scored("a", 0.4, 12.0, 2), scored("b", 0.4, 8.0, 2)];
        let at = |score, margin| {
            let lexical = Some(Lexical { score, margin });
            reason(&candidates, &Profile::default(), &Policy { lexical, ..Policy::default() }).1
        };
        assert_eq!(at(12.0, 4.0), Reason::LexicalWinner);
        assert_eq!(at(12.1, 4.0), Reason::Undecided);
        assert_eq!(at(12.0, 4.1), Reason::Undecided);
        let margin = signals(&candidates).unwrap().unwrap().margin;
        let agreed = |least| {
            let winner = Winner { agreed: Some(least), disagreed: None };
            reason(&candidates, &Profile { winner, ..Profile::default() }, &Policy::default()).1
        };
        assert_eq!(agreed(margin), Reason::ConfidentWinner);
        assert_eq!(agreed(margin + 1e-9), Reason::Undecided);
    }

    #[test]
    fn a_tie_has_no_confident_winner() {
        let winner = Winner { agreed: Some(0.0), disagreed: Some(0.0) };
        let tie = [scored("a", 0.4, 2.0, 1), scored("b", 0.4, 2.0, 1)];
        let profile = Profile { winner, ..Profile::default() };
        assert_eq!(reason(&tie, &profile, &Policy::default()).1, Reason::Undecided);
    }

    #[test]
    fn the_pool_has_the_first_candidates_that_clear_the_floor_and_widens_for_low_grades() {
        let floors = Floors { default: Some(0.3), relax: 0.0, widen: 1, ..Floors::default() };
        let policy = Policy { floors, ..Policy::default() };
        let profile = Profile { pool: 2, ..Profile::default() };
        let candidates: Vec<_> = [("a", 0.6), ("b", 0.29), ("c", 0.55), ("d", 0.3), ("e", 0.5)]
            .map(|(id, cosine)| scored(id, cosine, 0.0, 0))
            .into();
        let pool = |grade: &str| {
            let request = Request { grade: Some(grade.to_owned()), ..Request::default() };
            let gated = gate(candidates.clone(), &profile, &policy, &request).unwrap();
            gated.pool.iter().map(|at| gated.scored[*at].id.clone()).collect::<Vec<_>>()
        };
        for grade in ["A", "b", "E", ""] {
            assert_eq!(pool(grade), ["a", "c"], "{grade}");
        }
        for grade in ["C", "d", "F"] {
            assert_eq!(pool(grade), ["a", "c", "e"], "{grade}");
        }
        let all = Profile { pool: 9, ..Profile::default() };
        let gated = gate(candidates.clone(), &all, &policy, &Request::default()).unwrap();
        assert_eq!(gated.pool, [0, 1, 2, 3]);
    }

    #[test]
    fn a_pool_is_not_cut_without_a_reranker_or_against_its_sources() {
        let policy = Policy { cliff_core: Some(1), ..Policy::default() };
        let candidates = [scored("a", 0.9, 0.0, 0), scored("b", 0.2, 0.0, 0)];
        let cut = |request: &Request| {
            let gated = gate(candidates.to_vec(), &Profile::default(), &policy, request).unwrap();
            (gated.pool, gated.cliff.unwrap().skip_reason)
        };
        assert_eq!(cut(&Request::default()), (vec![0], None));
        let down = Request { reranker_down: true, ..Request::default() };
        assert_eq!(cut(&down), (vec![0, 1], Some(cliff::SkipReason::RerankerUnavailable)));
        let sources = [("a".to_owned(), "wiki".to_owned()), ("b".to_owned(), "code".to_owned())];
        let two = Request { sources: sources.into(), ..Request::default() };
        assert_eq!(cut(&two), (vec![0, 1], Some(cliff::SkipReason::SourceDiversityLoss)));
    }

    #[test]
    fn a_lexical_tie_has_no_winner() {
        let policy = Policy { lexical: Some(Lexical { score: 8.0, margin: 0.0 }), ..lexical() };
        let tie = [scored("a", 0.4, 12.0, 3), scored("b", 0.4, 12.0, 3)];
        assert_eq!(reason(&tie, &profile(), &policy).1, Reason::Undecided);
    }

    proptest! {
        #[test]
        fn the_decision_does_not_depend_on_the_order_of_candidates(
            (candidates, shuffled) in candidates()
                .prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle())),
        ) {
            let run = |list| gate(list, &fitted(), &lexical(), &Request::default()).unwrap();
            prop_assert_eq!(run(candidates), run(shuffled));
        }

        #[test]
        fn a_higher_threshold_never_admits_more(candidates in candidates(), least in 0.0..0.8_f64) {
            let at = |rerank_threshold| Profile {
                answer: Answer { rerank_threshold: Some(rerank_threshold), ..Answer::default() },
                ..fitted()
            };
            let nothing = Verdict::NothingRelevant;
            if reason(&candidates, &at(least), &lexical()).0 == nothing {
                prop_assert_eq!(reason(&candidates, &at(least + 0.2), &lexical()).0, nothing);
            }
        }

        #[test]
        fn disagreement_never_needs_less_than_agreement(
            candidates in candidates(), agreed in 0.0..0.5_f64, more in 0.0..0.5_f64,
        ) {
            let winner = Winner { agreed: Some(agreed), disagreed: Some(agreed + more) };
            if let Some(found) = signals(&candidates).unwrap().filter(|found| !found.agreement)
                && confident_winner(&found, &winner)
            {
                let agreed = Signals { agreement: true, ..found };
                prop_assert!(confident_winner(&agreed, &winner));
            }
        }
    }
}
