//! The gate: whether stage 1 has a clear winner, nothing relevant, or a question for stage 2.

use crate::confidence::Confidence;
use crate::error::{Error, Result};
use crate::stage1::{Scored, best_first};

/// What the gate makes of stage 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A clear winner: the stage-1 order stands.
    Confident,
    /// In doubt: stage 2 decides.
    Ambiguous,
    /// No candidate fits.
    NothingRelevant,
}

/// The rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There was no candidate at all.
    NoCandidates,
    /// The best cosine is too low, and so is the best BM25 score.
    BelowFloor,
    /// Without vectors, no candidate shares a term with the query.
    NoOverlap,
    /// It is too improbable that the best candidate fits: [`Answer::floor`].
    Improbable,
    /// The best cosine is high and far ahead of the next: [`confident_winner`].
    ConfidentWinner,
    /// The best BM25 score is high and far ahead of the next: [`lexical_winner`].
    LexicalWinner,
    /// Cosine and BM25 name the same winner and the blend sets it apart: [`clear_margin`].
    ClearMargin,
    /// None of the rules above.
    Murky,
}

impl Verdict {
    /// Identifier for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Confident => "confident",
            Self::Ambiguous => "ambiguous",
            Self::NothingRelevant => "nothing_relevant",
        }
    }
}

impl Reason {
    /// Identifier for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoCandidates => "no_candidates",
            Self::BelowFloor => "below_floor",
            Self::NoOverlap => "no_overlap",
            Self::Improbable => "improbable",
            Self::ConfidentWinner => "confident_winner",
            Self::LexicalWinner => "lexical_winner",
            Self::ClearMargin => "clear_margin",
            Self::Murky => "murky",
        }
    }
}

/// The gate's thresholds. They belong to a calibration profile; a rule without its threshold is off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Thresholds {
    /// Without vectors, nothing is relevant that shares no term with the query.
    pub require_overlap: bool,
    /// Nothing is relevant where the best cosine lies below, unless words say otherwise; in
    /// [-1, 1].
    pub relevance_cosine: Option<f64>,
    /// From this BM25 score on, words alone make something relevant; at least 0. None: never.
    pub relevance_bm25: Option<f64>,
    /// A confident winner has at least this cosine; in [-1, 1].
    pub confident_cosine: Option<f64>,
    /// A confident winner is ahead in cosine, and at least this far; at least 0.
    pub confident_gap: f64,
    /// A lexical winner has at least this BM25 score; at least 0.
    pub lexical_score: Option<f64>,
    /// A lexical winner is at least this far ahead in BM25; at least 0.
    pub lexical_gap: f64,
    /// A winner on which cosine and BM25 agree is clear from this lead in blend on; at least 0.
    pub agreed_margin: Option<f64>,
    /// A winner on which they disagree is clear from this lead in blend on; at least 0.
    pub disagreed_margin: Option<f64>,
}

/// How probable it must be that the best candidate fits, before stage 2 is asked and without it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Answer {
    /// The model of stage 1; without it nothing is known.
    pub stage1: Option<Confidence>,
    /// Below this probability nothing is relevant.
    pub floor: Option<f64>,
    /// Below this probability no winner is clear.
    pub least: Option<f64>,
}

/// What the gate looks at, all of it taken from stage 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signals {
    /// The best cosine; none where no candidate has one.
    pub cosine: Option<f64>,
    /// The best cosine's lead over the next; 0 without a next.
    pub cosine_gap: f64,
    /// The best BM25 score.
    pub bm25: f64,
    /// The best BM25 score's lead over the next; 0 without a next.
    pub bm25_gap: f64,
    /// Distinct query terms in the candidate with the best BM25 score.
    pub overlap: u32,
    /// The best blend.
    pub blend: f64,
    /// The best blend's lead over the next; 0 without a next.
    pub blend_margin: f64,
    /// Whether one candidate is best by cosine, by BM25 and by blend, and shares a term with the
    /// query. A blend that was made of something else, such as ranks and age, may name another.
    pub agreement: bool,
}

/// A verdict, the rule behind it and what the rule looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The rule that decided.
    pub reason: Reason,
    /// What the rules looked at; none without candidates.
    pub signals: Option<Signals>,
    /// How probable it is that the best candidate fits; none without candidates or a model.
    pub confidence: Option<f64>,
}

/// Terms that a lexical winner must share with the query: one word in common is no evidence.
const LEXICAL_OVERLAP: u32 = 2;

/// Decides from the candidates' stage-1 scores; their order does not matter.
///
/// Fails with `not_finite` where a score is no number.
pub fn decide(candidates: &[Scored], thresholds: &Thresholds, answer: &Answer) -> Result<Decision> {
    let Some(signals) = signals(candidates)? else {
        let (verdict, reason) = (Verdict::NothingRelevant, Reason::NoCandidates);
        return Ok(Decision { verdict, reason, signals: None, confidence: None });
    };
    let confidence = answer.stage1.and_then(|model| model.probability(&signals, None));
    let below = |bar: Option<f64>| confidence.zip(bar).is_some_and(|(known, bar)| known < bar);
    let (verdict, reason) = if let Some(reason) = nothing_relevant(&signals, thresholds) {
        (Verdict::NothingRelevant, reason)
    } else if below(answer.floor) {
        (Verdict::NothingRelevant, Reason::Improbable)
    } else if below(answer.least) {
        (Verdict::Ambiguous, Reason::Murky)
    } else if confident_winner(&signals, thresholds) {
        (Verdict::Confident, Reason::ConfidentWinner)
    } else if lexical_winner(&signals, thresholds) {
        (Verdict::Confident, Reason::LexicalWinner)
    } else if clear_margin(&signals, thresholds) {
        (Verdict::Confident, Reason::ClearMargin)
    } else {
        (Verdict::Ambiguous, Reason::Murky)
    };
    Ok(Decision { verdict, reason, signals: Some(signals), confidence })
}

/// Whether stage 2 is worth its price: something is relevant and nothing has clearly won.
pub fn is_ambiguous(signals: &Signals, thresholds: &Thresholds) -> bool {
    nothing_relevant(signals, thresholds).is_none()
        && !confident_winner(signals, thresholds)
        && !lexical_winner(signals, thresholds)
        && !clear_margin(signals, thresholds)
}

/// A high cosine, a runner-up and a clear lead over it: the one case in which the embedder alone is
/// trusted.
///
/// It comes before the lexical rule, so that no word in common overrides a strong dense match.
pub fn confident_winner(signals: &Signals, thresholds: &Thresholds) -> bool {
    match (signals.cosine, thresholds.confident_cosine) {
        (Some(cosine), Some(least)) => {
            cosine >= least
                && signals.cosine_gap > 0.0
                && signals.cosine_gap >= thresholds.confident_gap
        }
        _ => false,
    }
}

/// A high BM25 score with at least two terms in common, a runner-up, and a clear lead over it.
pub fn lexical_winner(signals: &Signals, thresholds: &Thresholds) -> bool {
    thresholds.lexical_score.is_some_and(|least| {
        signals.bm25 >= least
            && signals.overlap >= LEXICAL_OVERLAP
            && signals.bm25_gap > 0.0
            && signals.bm25_gap >= thresholds.lexical_gap
    })
}

/// A clear lead in blend; how clear it must be depends on whether cosine and BM25 agree.
pub fn clear_margin(signals: &Signals, thresholds: &Thresholds) -> bool {
    let least =
        if signals.agreement { thresholds.agreed_margin } else { thresholds.disagreed_margin };
    least.is_some_and(|least| signals.blend_margin > 0.0 && signals.blend_margin >= least)
}

fn nothing_relevant(signals: &Signals, thresholds: &Thresholds) -> Option<Reason> {
    let Some(cosine) = signals.cosine else {
        // The bars were fitted with cosines; without any, a shared term is the only evidence.
        let nothing = thresholds.require_overlap && signals.bm25 <= 0.0;
        return nothing.then_some(Reason::NoOverlap);
    };
    let by_meaning = thresholds.relevance_cosine.is_none_or(|least| cosine >= least);
    let by_words = thresholds.relevance_bm25.is_some_and(|least| signals.bm25 >= least);
    (!by_meaning && !by_words).then_some(Reason::BelowFloor)
}

/// Reads the signals off the candidates, or none where there are no candidates.
pub fn signals(candidates: &[Scored]) -> Result<Option<Signals>> {
    for candidate in candidates {
        let scores = [candidate.cosine.unwrap_or_default(), candidate.bm25, candidate.blend];
        if let Some(score) = scores.iter().find(|score| !score.is_finite()) {
            return Err(Error::input(
                "not_finite",
                format!("a stage-1 score of {:?} is {score}: it must be finite", candidate.id),
            ));
        }
    }
    let cosine = lead(candidates, |one| one.cosine);
    let bm25 = lead(candidates, |one| Some(one.bm25));
    let blend = lead(candidates, |one| Some(one.blend));
    Ok(bm25.zip(blend).map(|(bm25, blend)| Signals {
        cosine: cosine.map(|lead| lead.score),
        cosine_gap: cosine.map_or(0.0, |lead| lead.gap),
        bm25: bm25.score,
        bm25_gap: bm25.gap,
        overlap: bm25.best.overlap,
        blend: blend.score,
        blend_margin: blend.gap,
        agreement: bm25.score > 0.0
            && blend.best.id == bm25.best.id
            && cosine.is_some_and(|lead| lead.best.id == bm25.best.id),
    }))
}

#[derive(Clone, Copy)]
struct Lead<'a> {
    best: &'a Scored,
    score: f64,
    gap: f64,
}

fn lead(candidates: &[Scored], score: impl Fn(&Scored) -> Option<f64>) -> Option<Lead<'_>> {
    let mut scored: Vec<(f64, &Scored)> =
        candidates.iter().filter_map(|one| score(one).map(|score| (score, one))).collect();
    scored.sort_by(|left, right| best_first((left.0, &left.1.id), (right.0, &right.1.id)));
    match scored.as_slice() {
        [(first, best), (second, _), ..] => Some(Lead { best, score: *first, gap: first - second }),
        [(first, best)] => Some(Lead { best, score: *first, gap: 0.0 }),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scored(id: &str, cosine: f64, bm25: f64, overlap: u32) -> Scored {
        let blend = 0.7 * cosine + 0.3 * bm25 / (bm25 + 5.0);
        Scored { id: id.to_owned(), cosine: Some(cosine), bm25, overlap, blend }
    }

    const THRESHOLDS: Thresholds = Thresholds {
        require_overlap: true,
        relevance_cosine: Some(0.3),
        relevance_bm25: Some(6.0),
        confident_cosine: Some(0.7),
        confident_gap: 0.2,
        lexical_score: Some(8.0),
        lexical_gap: 4.0,
        agreed_margin: Some(0.1),
        disagreed_margin: Some(0.3),
    };

    const ANSWER: Answer = Answer {
        stage1: Some(Confidence {
            intercept: -3.0,
            cosine: 6.0,
            bm25: 0.0,
            blend_margin: 0.0,
            agreement: 0.0,
            logit: 0.0,
            score_margin: 0.0,
            same_first: 0.0,
        }),
        floor: Some(0.4),
        least: Some(0.6),
    };

    #[test]
    fn agreement_asks_the_blend_too() {
        let mut candidates = [scored("a", 0.6, 7.0, 2), scored("b", 0.4, 1.0, 1)];
        assert!(signals(&candidates).unwrap().unwrap().agreement);
        // As where age makes the blend: what is best by meaning and words may be out of date.
        candidates[1].blend = 0.95;
        assert!(!signals(&candidates).unwrap().unwrap().agreement);
    }

    fn reason(candidates: &[Scored], thresholds: &Thresholds) -> (Verdict, Reason) {
        let decision = decide(candidates, thresholds, &Answer::default()).unwrap();
        if let Some(signals) = decision.signals {
            let ambiguous = decision.verdict == Verdict::Ambiguous;
            assert_eq!(is_ambiguous(&signals, thresholds), ambiguous);
        }
        (decision.verdict, decision.reason)
    }

    #[test]
    fn each_rule_decides_where_it_should() {
        use Reason as R;
        use Verdict as V;
        let table: &[(&str, &[Scored], (V, R))] = &[
            ("nobody there", &[], (V::NothingRelevant, R::NoCandidates)),
            ("too low", &[scored("a", 0.2, 5.0, 1)], (V::NothingRelevant, R::BelowFloor)),
            ("words make up for it", &[scored("a", 0.2, 6.0, 1)], (V::Ambiguous, R::Murky)),
            (
                "high cosine, clear lead",
                &[scored("a", 0.8, 0.0, 0), scored("b", 0.5, 1.0, 1)],
                (V::Confident, R::ConfidentWinner),
            ),
            (
                "high cosine, close second",
                &[scored("a", 0.8, 0.0, 0), scored("b", 0.79, 0.1, 1)],
                (V::Ambiguous, R::Murky),
            ),
            ("high cosine, nobody to lead", &[scored("a", 0.8, 0.0, 0)], (V::Ambiguous, R::Murky)),
            (
                "dense match is not overridden by words",
                &[scored("a", 0.8, 0.0, 0), scored("b", 0.5, 20.0, 5)],
                (V::Confident, R::ConfidentWinner),
            ),
            (
                "words decide",
                &[scored("a", 0.4, 12.0, 3), scored("b", 0.41, 5.0, 2)],
                (V::Confident, R::LexicalWinner),
            ),
            (
                "one shared word is no evidence",
                &[scored("a", 0.4, 12.0, 1), scored("b", 0.41, 5.0, 2)],
                (V::Ambiguous, R::Murky),
            ),
            (
                "a lexical winner needs a runner-up",
                &[scored("a", 0.6, 12.0, 3)],
                (V::Ambiguous, R::Murky),
            ),
            (
                "both channels agree",
                &[scored("a", 0.6, 5.0, 2), scored("b", 0.5, 2.0, 2)],
                (V::Confident, R::ClearMargin),
            ),
            (
                "they disagree",
                &[scored("a", 0.69, 1.0, 2), scored("b", 0.4, 2.0, 2)],
                (V::Ambiguous, R::Murky),
            ),
        ];
        for (name, candidates, expected) in table {
            assert_eq!(reason(candidates, &THRESHOLDS), *expected, "{name}");
        }
    }

    #[test]
    fn a_tie_wins_nothing_even_where_any_lead_will_do() {
        let any = Thresholds { confident_gap: 0.0, agreed_margin: None, ..THRESHOLDS };
        let tied = [scored("a", 0.8, 0.0, 0), scored("b", 0.8, 0.0, 0)];
        assert_eq!(reason(&tied, &any), (Verdict::Ambiguous, Reason::Murky));
        let ahead = [scored("a", 0.8, 0.0, 0), scored("b", 0.799, 0.0, 0)];
        assert_eq!(reason(&ahead, &any), (Verdict::Confident, Reason::ConfidentWinner));
    }

    #[test]
    fn without_thresholds_every_question_goes_to_stage_2() {
        let off = Thresholds::default();
        let candidates = [scored("a", 0.99, 50.0, 9), scored("b", -0.5, 0.0, 0)];
        assert_eq!(reason(&candidates, &off), (Verdict::Ambiguous, Reason::Murky));
    }

    #[test]
    fn without_vectors_a_shared_term_is_the_only_evidence() {
        let lexical = |id: &str, bm25: f64| Scored {
            id: id.to_owned(),
            cosine: None,
            bm25,
            overlap: u32::from(bm25 > 0.0),
            blend: bm25 / (bm25 + 5.0),
        };
        let none = [lexical("a", 0.0), lexical("b", 0.0)];
        assert_eq!(reason(&none, &THRESHOLDS), (Verdict::NothingRelevant, Reason::NoOverlap));
        assert_eq!(reason(&none, &Thresholds::default()).0, Verdict::Ambiguous);
        let some = [lexical("a", 0.1), lexical("b", 0.0)];
        assert_eq!(reason(&some, &THRESHOLDS).0, Verdict::Ambiguous);
    }

    #[test]
    fn what_is_improbable_is_not_relevant_and_what_is_unsure_is_never_clear() {
        let at = |cosine: f64| {
            let candidates = [scored("a", cosine, 5.0, 2), scored("b", 0.0, 0.0, 0)];
            let decision = decide(&candidates, &THRESHOLDS, &ANSWER).unwrap();
            (decision.reason, decision.confidence.unwrap())
        };
        assert_eq!(at(0.42).0, Reason::Improbable);
        assert_eq!(at(0.44), (Reason::Murky, 1.0 / (1.0 + f64::exp(3.0 - 6.0 * 0.44))));
        assert_eq!(at(0.56).0, Reason::Murky);
        assert_eq!(at(0.57).0, Reason::ClearMargin);
        // Without a model the bars bar nothing.
        let candidates = [scored("a", 0.42, 5.0, 2), scored("b", 0.0, 0.0, 0)];
        let unknown = Answer { stage1: None, ..ANSWER };
        let decision = decide(&candidates, &THRESHOLDS, &unknown).unwrap();
        assert_eq!((decision.reason, decision.confidence), (Reason::ClearMargin, None));
    }

    #[test]
    fn no_number_is_refused() {
        let error =
            decide(&[scored("a", f64::NAN, 1.0, 1)], &THRESHOLDS, &Answer::default()).unwrap_err();
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
            prop_assert_eq!(
                decide(&candidates, &THRESHOLDS, &ANSWER).unwrap(),
                decide(&shuffled, &THRESHOLDS, &ANSWER).unwrap()
            );
        }

        #[test]
        fn a_higher_floor_never_admits_more(candidates in candidates(), floor in 0.0..1.0_f64) {
            let strict = Thresholds { relevance_cosine: Some(floor + 0.1), ..THRESHOLDS };
            let loose = Thresholds { relevance_cosine: Some(floor), ..THRESHOLDS };
            if reason(&candidates, &loose).0 == Verdict::NothingRelevant {
                prop_assert_eq!(reason(&candidates, &strict).0, Verdict::NothingRelevant);
            }
        }
    }
}
