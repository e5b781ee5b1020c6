//! The gate: whether stage 1 has a winner, nothing relevant, or a question for stage 2.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cliff::{self, Cliff, CliffOptions};
use crate::error::{Error, Result};
use crate::json::{codes, value};
use crate::policy::{Lexical, Policy};
use crate::profile::{Profile, Winner};
use crate::signals::{Signals, signals};
use crate::stage1::{Scored, best_first, sort};

codes! {
    /// What the gate makes of stage 1.
    pub enum Verdict {
        /// A clear winner: the stage-1 order stands.
        Confident = "confident",
        /// In doubt: stage 2 decides.
        Ambiguous = "ambiguous",
        /// No candidate fits.
        NothingRelevant = "nothing_relevant",
    }
}

codes! {
    /// The rule that decided.
    pub enum Reason {
        /// There was no candidate at all.
        NoCandidates = "no_candidates",
        /// No candidate clears the floor of its section.
        BelowFloor = "below_floor",
        /// Without vectors, no candidate shares a term with the query.
        NoOverlap = "no_overlap",
        /// It is too improbable that the best candidate fits.
        Improbable = "improbable",
        /// The blend sets one candidate apart: [`confident_winner`].
        ConfidentWinner = "confident_winner",
        /// BM25 sets one candidate apart: [`lexical_winner`].
        LexicalWinner = "lexical_winner",
        /// None of the rules above.
        Undecided = "undecided",
        /// Stage 2 made the order.
        Reranked = "reranked",
        /// No candidate passed the guardrails.
        Rejected = "rejected",
    }
}

value! {
    /// What the caller asks for beside the query.
    #[derive(Default, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Request {
        /// How many candidates are selected at most; absent: all that pass.
        pub limit: Option<usize>,
        /// What part of the caller's work this is for: picks a floor.
        pub section: Option<String>,
        /// The caller's grade of the retrieval, `A` (best) to `F`.
        pub grade: Option<String>,
        /// Whether, without vectors, nothing is relevant that shares no term with the query; not
        /// so where another retriever had its own reasons.
        pub require_overlap: bool,
        /// Whether the preferred reranker is out of order, so that no pool is cut for it.
        pub reranker_down: bool,
        /// Types of the candidates' sources by id, where they have one.
        pub sources: BTreeMap<String, String>,
        /// How probable it is that the query asks for anything that a document could serve, in
        /// [0, 1]; absent: it is taken to.
        pub need: Option<f64>,
        /// The least confidence of an answer, in [0, 1], beside the profile's own; absent: none.
        pub min_confidence: Option<f64>,
    }
}

value! {
    /// Something that a reader of the result should know.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Note {
        /// Identifier for programs.
        pub code: String,
        /// One line for people.
        pub detail: String,
    }
}

value! {
    /// What the gate says, and all that stage 2 and [`crate::conclude::conclude`] go on with.
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Gated {
        /// The candidates, best blend first.
        #[serde(skip)]
        pub scored: Vec<Scored>,
        /// What the gate makes of them.
        pub verdict: Verdict,
        /// The rule that decided.
        pub reason: Reason,
        /// How probable it is that the first candidate fits; none without candidates or a model.
        pub confidence: Option<f64>,
        /// What the rules looked at; none without candidates.
        pub signals: Option<Signals>,
        /// The least cosine of a candidate; none without a floor.
        pub floor: Option<f64>,
        /// What became of the cliff; none where nobody looked for one.
        pub cliff: Option<Cliff>,
        /// The candidates that stage 2 is to read, as positions in `scored`.
        pub pool: Vec<usize>,
        /// What of the request could not be done as asked.
        pub notes: Vec<Note>,
        /// How many candidates are selected at most.
        #[serde(skip)]
        pub limit: Option<usize>,
        /// The least confidence of an answer that the request asks for.
        #[serde(skip)]
        pub min_confidence: Option<f64>,
    }
}

/// Terms that a lexical winner must share with the query: one word in common is no evidence.
const LEXICAL_OVERLAP: u32 = 2;

/// What names of a section or grade are cut to in a message.
const NAME_LENGTH: usize = 40;

/// Decides from the candidates' stage-1 scores; their order does not matter.
///
/// Fails with `not_finite` where a score is not finite, and with `out_of_range` for a need or a
/// least confidence that is no probability.
pub fn gate(
    mut scored: Vec<Scored>,
    profile: &Profile,
    policy: &Policy,
    request: &Request,
) -> Result<Gated> {
    if let Some(need) = request.need.filter(|need| !(0.0..=1.0).contains(need)) {
        let message = format!("the need of the query is {need}: it must be from 0 to 1");
        return Err(Error::input("out_of_range", message));
    }
    if let Some(least) = request.min_confidence.filter(|least| !(0.0..=1.0).contains(least)) {
        let message = format!("min_confidence is {least}: it must be from 0 to 1");
        return Err(Error::input("out_of_range", message));
    }
    sort(&mut scored);
    let floor = floor_of(policy, request);
    let clears = |one: &Scored| clears(one, floor);
    let eligible: Vec<usize> =
        scored.iter().enumerate().filter(|(_, one)| clears(one)).map(|(place, _)| place).collect();
    // What the floor drops still tells how clear a winner is, and the leads were fitted so: only
    // where it drops the first one do the others decide among themselves.
    let considered: Cow<'_, [Scored]> = if scored.first().is_some_and(clears) {
        Cow::Borrowed(&scored)
    } else {
        eligible.iter().filter_map(|place| scored.get(*place)).cloned().collect()
    };
    let seen = signals(&considered)?.map(|seen| Signals { need: request.need, ..seen });
    let confidence = seen
        .zip(profile.confidence.stage1)
        .and_then(|(signals, model)| model.probability(&signals));
    let (verdict, reason) = match &seen {
        None if scored.is_empty() => (Verdict::NothingRelevant, Reason::NoCandidates),
        None => (Verdict::NothingRelevant, Reason::BelowFloor),
        Some(signals) => {
            // The order of stage 1 stands where words alone decide, so they must have made it.
            let lexical = policy.lexical.filter(|_| is_first_by_words(&considered));
            decide(signals, confidence, profile, lexical, request)
        }
    };
    let mut gated = Gated {
        verdict,
        reason,
        confidence,
        signals: seen,
        floor,
        cliff: None,
        pool: Vec::new(),
        notes: notes(&scored, policy, request, floor),
        limit: request.limit,
        min_confidence: request.min_confidence,
        scored,
    };
    if is_ambiguous(&gated) {
        let size =
            profile.pool.saturating_add(if is_low(request) { policy.floors.widen } else { 0 });
        gated.cliff = find_cliff(&gated.scored, policy, request, floor, size)?;
        let cut = gated.cliff.as_ref().map_or(&[][..], |cliff| &cliff.cut);
        gated.pool = eligible.into_iter().take(size).filter(|place| !cut.contains(place)).collect();
    }
    Ok(gated)
}

fn decide(
    signals: &Signals,
    confidence: Option<f64>,
    profile: &Profile,
    lexical: Option<Lexical>,
    request: &Request,
) -> (Verdict, Reason) {
    let below =
        |least: Option<f64>| confidence.zip(least).is_some_and(|(known, least)| known < least);
    if request.require_overlap && signals.cosine.is_none() && signals.bm25 <= 0.0 {
        (Verdict::NothingRelevant, Reason::NoOverlap)
    } else if below(profile.answer.rerank_threshold) {
        (Verdict::NothingRelevant, Reason::Improbable)
    } else if below(profile.answer.threshold) {
        (Verdict::Ambiguous, Reason::Undecided)
    } else if confident_winner(signals, &profile.winner) {
        (Verdict::Confident, Reason::ConfidentWinner)
    } else if lexical.is_some_and(|lexical| lexical_winner(signals, &lexical)) {
        (Verdict::Confident, Reason::LexicalWinner)
    } else {
        (Verdict::Ambiguous, Reason::Undecided)
    }
}

/// Whether stage 2 is worth its price: something may be relevant and nothing has clearly won.
pub fn is_ambiguous(gated: &Gated) -> bool {
    gated.verdict == Verdict::Ambiguous
}

/// A runner-up and a lead over it that was fitted to be enough; where cosine and BM25 disagree on
/// the winner, it takes at least as much as where they agree.
pub fn confident_winner(signals: &Signals, winner: &Winner) -> bool {
    let least = if signals.agreement { winner.agreed } else { winner.disagreed };
    least.is_some_and(|least| signals.lead > 0.0 && signals.lead >= least)
}

/// A high BM25 score with at least two terms in common, a runner-up, and a clear lead over it.
pub fn lexical_winner(signals: &Signals, lexical: &Lexical) -> bool {
    signals.bm25 >= lexical.score
        && signals.overlap >= LEXICAL_OVERLAP
        && signals.bm25_lead > 0.0
        && signals.bm25_lead >= lexical.lead
}

/// Whether the best candidate by blend, which is the first one, is also the best by BM25.
fn is_first_by_words(candidates: &[Scored]) -> bool {
    candidates.first().is_some_and(|first| {
        candidates
            .iter()
            .all(|one| best_first((first.bm25, &first.id), (one.bm25, &one.id)).is_le())
    })
}

/// Whether a candidate clears the floor; one without a cosine cannot be measured.
pub(crate) fn clears(one: &Scored, floor: Option<f64>) -> bool {
    floor.zip(one.cosine).is_none_or(|(floor, cosine)| cosine >= floor)
}

fn floor_of(policy: &Policy, request: &Request) -> Option<f64> {
    let floors = &policy.floors;
    let own = request.section.as_ref().and_then(|section| floors.sections.get(section).copied());
    let floor = own.or(floors.default)?;
    Some(if is_low(request) { floor - floors.relax } else { floor })
}

/// The grade as its capital letter, `?` for one that is none.
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
    let cosines: Vec<f64> = scored.iter().filter_map(|one| one.cosine).collect();
    if cosines.len() < scored.len() {
        return Ok(Some(Cliff::none(floor, None, cliff::SkipReason::NoCosine)));
    }
    let sources: Vec<Option<&str>> =
        scored.iter().map(|one| request.sources.get(&one.id).map(String::as_str)).collect();
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
            .map_or("there is none".to_owned(), |floor| format!("the default of {floor} applies"));
        note(
            "unknown_section",
            format!("the policy has no floor for the section {:?}: {instead}", cut(section)),
        );
    }
    if let (Some('?'), Some(grade)) = (letter(request), &request.grade) {
        note(
            "unknown_grade",
            format!(
                "the grade {:?} is none of A, B, C, D and F: it relaxes no floor, and no pool is \
                 cut below a cliff",
                cut(grade)
            ),
        );
    }
    if let Some(floor) = floor.filter(|_| scored.iter().any(|one| one.cosine.is_none())) {
        note(
            "floor_unmeasured",
            format!(
                "candidates without a cosine pass the floor {floor} unmeasured: give the query's \
                 vector and theirs, or their cosines"
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
    use crate::profile::{Answer, Confidence, Stage1Confidence};

    fn scored(id: &str, cosine: f64, bm25: f64, overlap: u32) -> Scored {
        let blend = 0.7 * cosine + 0.3 * bm25 / (bm25 + 5.0);
        let scored = Scored { id: id.to_owned(), cosine: Some(cosine), bm25, ..Scored::default() };
        Scored { overlap, blend, ..scored }
    }

    fn profile() -> Profile {
        Profile { winner: Winner { agreed: Some(0.1), disagreed: Some(0.3) }, ..Profile::default() }
    }

    fn fitted() -> Profile {
        let model =
            Stage1Confidence { intercept: -3.0, cosine: 6.0, ..Stage1Confidence::default() };
        Profile {
            confidence: Confidence { stage1: Some(model), stage2: None },
            answer: Answer { rerank_threshold: Some(0.4), threshold: Some(0.6) },
            ..profile()
        }
    }

    fn lexical() -> Policy {
        Policy { lexical: Some(Lexical { score: 8.0, lead: 4.0 }), ..Policy::default() }
    }

    fn reason(candidates: &[Scored], profile: &Profile, policy: &Policy) -> (Verdict, Reason) {
        let request = Request { require_overlap: true, ..Request::default() };
        let gated = gate(candidates.to_vec(), profile, policy, &request).unwrap();
        assert_eq!(is_ambiguous(&gated), gated.verdict == Verdict::Ambiguous);
        assert_eq!(gated.pool.is_empty(), !is_ambiguous(&gated));
        (gated.verdict, gated.reason)
    }

    #[test]
    fn each_rule_decides_where_it_should() {
        use Reason as R;
        use Verdict as V;
        let table: &[(&str, &[Scored], (V, R))] = &[
            ("nobody there", &[], (V::NothingRelevant, R::NoCandidates)),
            ("nobody to lead", &[scored("a", 0.8, 0.0, 0)], (V::Ambiguous, R::Undecided)),
            (
                "words decide",
                &[scored("a", 0.4, 12.0, 3), scored("b", 0.41, 5.0, 2)],
                (V::Confident, R::LexicalWinner),
            ),
            (
                "one shared word is no evidence",
                &[scored("a", 0.4, 12.0, 1), scored("b", 0.41, 5.0, 2)],
                (V::Ambiguous, R::Undecided),
            ),
            (
                "a lexical winner needs a runner-up",
                &[scored("a", 0.6, 12.0, 3)],
                (V::Ambiguous, R::Undecided),
            ),
            (
                "a lexical winner is the first by blend, too",
                &[scored("a", 0.3, 12.0, 3), scored("b", 0.7, 5.0, 2)],
                (V::Ambiguous, R::Undecided),
            ),
            (
                "both channels agree",
                &[scored("a", 0.6, 5.0, 2), scored("b", 0.5, 2.0, 2)],
                (V::Confident, R::ConfidentWinner),
            ),
            (
                "they disagree",
                &[scored("a", 0.69, 1.0, 2), scored("b", 0.4, 2.0, 2)],
                (V::Ambiguous, R::Undecided),
            ),
            (
                "they disagree, and the lead is enough all the same",
                &[scored("a", 0.99, 1.0, 2), scored("b", 0.4, 2.0, 2)],
                (V::Confident, R::ConfidentWinner),
            ),
        ];
        for (name, candidates, expected) in table {
            assert_eq!(reason(candidates, &profile(), &lexical()), *expected, "{name}");
        }
    }

    #[test]
    fn the_winner_of_the_blend_is_named_before_that_of_the_words() {
        let both = [scored("a", 0.9, 20.0, 4), scored("b", 0.2, 1.0, 1)];
        assert_eq!(reason(&both, &profile(), &lexical()).1, Reason::ConfidentWinner);
        assert_eq!(reason(&both, &Profile::default(), &lexical()).1, Reason::LexicalWinner);
    }

    #[test]
    fn the_probability_of_an_answer_stands_before_every_winner() {
        let at = |cosine| [scored("a", cosine, 9.0, 3), scored("b", 0.0, 0.0, 0)];
        let found = |cosine| reason(&at(cosine), &fitted(), &lexical());
        assert_eq!(found(0.4), (Verdict::NothingRelevant, Reason::Improbable));
        assert_eq!(found(0.5), (Verdict::Ambiguous, Reason::Undecided));
        assert_eq!(found(0.7), (Verdict::Confident, Reason::ConfidentWinner));
    }

    #[test]
    fn without_cosines_a_shared_term_is_the_only_evidence() {
        let without = |bm25| Scored {
            id: "a".to_owned(),
            bm25,
            overlap: u32::from(bm25 > 0.0),
            ..Scored::default()
        };
        let decided = |one: Scored, require_overlap| {
            let request = Request { require_overlap, ..Request::default() };
            gate(vec![one], &fitted(), &Policy::default(), &request).unwrap()
        };
        assert_eq!(decided(without(0.0), true).reason, Reason::NoOverlap);
        assert_eq!(decided(without(0.0), false).reason, Reason::Undecided);
        assert_eq!(decided(without(0.1), true).reason, Reason::Undecided);
        assert_eq!(decided(without(0.1), true).confidence, None);
    }

    #[test]
    fn a_floor_drops_and_the_rest_decides() {
        let floor = |floor| Policy {
            floors: crate::policy::Floors { default: Some(floor), ..Default::default() },
            ..Policy::default()
        };
        let candidates =
            [scored("a", 0.5, 30.0, 5), scored("b", 0.6, 0.0, 0), scored("c", 0.1, 0.0, 0)];
        let winner = Winner { agreed: Some(0.1), disagreed: Some(0.1) };
        let profile = Profile { winner, ..Profile::default() };
        let found = |policy: &Policy| {
            gate(candidates.to_vec(), &profile, policy, &Request::default()).unwrap()
        };
        // The first clears it: how far it leads what is dropped still counts.
        let first = found(&floor(0.3));
        assert_eq!(
            (first.reason, first.signals.unwrap().lead > 0.0),
            (Reason::ConfidentWinner, true)
        );
        // It does not: `b` is alone, and leads nobody.
        let alone = found(&floor(0.55));
        assert_eq!((alone.reason, alone.pool), (Reason::Undecided, vec![1]));
        assert_eq!(found(&floor(0.9)).reason, Reason::BelowFloor);
        assert_eq!(found(&floor(0.9)).verdict, Verdict::NothingRelevant);
    }

    #[test]
    fn a_score_that_is_not_finite_is_refused() {
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
        let one = (0_u8..20, 0_u8..20, 0_u32..4);
        prop::collection::vec(one, 0..8).prop_map(|rows| {
            rows.iter()
                .enumerate()
                .map(|(place, (cosine, bm25, overlap))| {
                    let (cosine, bm25) = (f64::from(*cosine) / 20.0, f64::from(*bm25));
                    scored(&place.to_string(), cosine, bm25, *overlap)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn the_order_of_candidates_decides_nothing(
            (candidates, shuffled) in candidates()
                .prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle())),
        ) {
            let run = |list| gate(list, &fitted(), &lexical(), &Request::default()).unwrap();
            prop_assert_eq!(run(candidates), run(shuffled));
        }

        #[test]
        fn a_higher_threshold_never_admits_more(candidates in candidates(), least in 0.0..0.8_f64) {
            let at = |rerank_threshold| Profile {
                answer: Answer { rerank_threshold: Some(rerank_threshold), threshold: None },
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
