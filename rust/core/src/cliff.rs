//! Score cliffs: where a ranked pool falls off, and when to cut its tail before stage 2 pays for it.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::json::{codes, value};

/// A score below this share of the one before it has fallen off a cliff.
pub const CLIFF_RATIO: f64 = 0.85;
/// The least drop of a cliff, so that 0.20 to 0.16 is none.
pub const CLIFF_MIN_DROP: f64 = 0.05;

codes! {
    /// Why no tail was cut from a pool.
    pub enum SkipReason {
        /// A candidate has no cosine, so that no cliff can be measured.
        NoCosine = "no_cosine",
        /// The retrieval is graded below B: it needs candidates more than a dense pool.
        LowGrade = "low_grade",
        /// The preferred reranker is down: the fallback wants more candidates, not fewer.
        RerankerUnavailable = "reranker_unavailable",
        /// The pool holds no more than the core that must stay.
        NoRoom = "no_room",
        /// No cliff stands past the core.
        NoCliff = "no_cliff",
        /// The static floor, or the size of the pool, already keeps out what lies below the cliff.
        NoImprovement = "no_improvement",
        /// The cut would take the last candidate of a source.
        SourceDiversityLoss = "source_diversity_loss",
    }
}

/// What decides whether a pool may be tightened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CliffOptions {
    /// Candidates from the top of stage 1's order that always stay.
    pub core: usize,
    /// How many candidates stage 2 reads at most.
    pub pool: usize,
    /// The floor that holds without tightening; none lets everything through.
    pub static_floor: Option<f64>,
    /// The caller's grade of the retrieval, `A` (best) to `F`; none counts as good.
    pub grade: Option<char>,
    /// Whether the primary reranker takes calls at this moment.
    pub reranker_available: bool,
}

value! {
    /// What became of the cliff: see [`tighten`].
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Cliff {
        /// The candidates that the cut takes from the pool, as positions in stage 1's order.
        pub cut: Vec<usize>,
        /// The floor in force: the static one, or the last score above the cliff.
        pub effective_floor: Option<f64>,
        /// How many scores stand above the cliff, where one was found.
        pub cliff_position: Option<usize>,
        /// Why nothing was cut, or none where a tail was.
        pub skip_reason: Option<SkipReason>,
    }
}

impl Cliff {
    pub(crate) fn none(
        floor: Option<f64>,
        cliff_position: Option<usize>,
        reason: SkipReason,
    ) -> Self {
        Self { cut: Vec::new(), effective_floor: floor, cliff_position, skip_reason: Some(reason) }
    }
}

/// Index of the first score below the first cliff at or past `core`; scores sorted best first.
///
/// A cliff is a drop to under [`CLIFF_RATIO`] of the score before and by [`CLIFF_MIN_DROP`] at
/// least. The first one counts; a larger one further down is not looked for.
pub fn find_cliff(scores: &[f64], core: usize) -> Option<usize> {
    let past_core = scores.windows(2).enumerate().skip(core.saturating_sub(1));
    past_core
        .filter_map(|(place, pair)| match pair {
            [above, below] => Some((place + 1, *above, *below)),
            _ => None,
        })
        .find(|(_, above, below)| *below < CLIFF_RATIO * above && above - below >= CLIFF_MIN_DROP)
        .map(|(below_cliff, ..)| below_cliff)
}

/// Cuts the tail below a cliff, where that makes the pool denser and loses nothing that must stay.
///
/// `scores` stand in stage 1's order, whatever that is made of, and hold every candidate that stage
/// 1 found, those below the static floor and beyond the pool included; `sources` names each one's
/// source, where it has one, or is empty. The pool is made of the first candidates that pass the
/// static floor. Its first `core` stay, the floor never falls below the static one, and every
/// source that is present in the pool stays present.
///
/// Fails with `not_finite` where a score is no number, and with `out_of_range` where the sources
/// are not as many.
pub fn tighten(scores: &[f64], sources: &[Option<&str>], options: &CliffOptions) -> Result<Cliff> {
    check(scores, sources)?;
    let unchanged =
        |cliff_position, reason| Cliff::none(options.static_floor, cliff_position, reason);
    if options.grade.is_some_and(|grade| !matches!(grade, 'A' | 'B')) {
        return Ok(unchanged(None, SkipReason::LowGrade));
    }
    if !options.reranker_available {
        return Ok(unchanged(None, SkipReason::RerankerUnavailable));
    }
    if scores.len() <= options.core {
        return Ok(unchanged(None, SkipReason::NoRoom));
    }
    let mut sorted = scores.to_vec();
    sorted.sort_by(|left, right| right.total_cmp(left));
    let Some(cliff) = find_cliff(&sorted, options.core) else {
        return Ok(unchanged(None, SkipReason::NoCliff));
    };
    let (above, below) = (sorted.get(..cliff), sorted.get(cliff..));
    let (Some([.., floor]), Some([below, ..])) = (above, below) else {
        return Ok(unchanged(None, SkipReason::NoCliff));
    };
    let passes = |score: f64| options.static_floor.is_none_or(|least| score >= least);
    let pool = scores.iter().enumerate().filter(|(_, score)| passes(**score)).take(options.pool);
    let (kept, cut): (Vec<_>, Vec<_>) =
        pool.enumerate().partition(|(rank, (_, score))| *rank < options.core || *score >= floor);
    if !passes(*below) || cut.is_empty() {
        return Ok(unchanged(Some(cliff), SkipReason::NoImprovement));
    }
    let source = |place: usize| sources.get(place).copied().flatten();
    let kept: HashSet<_> = kept.iter().map(|(_, (place, _))| source(*place)).collect();
    let cut: Vec<usize> = cut.into_iter().map(|(_, (place, _))| place).collect();
    if cut.iter().any(|place| source(*place).is_some() && !kept.contains(&source(*place))) {
        return Ok(unchanged(Some(cliff), SkipReason::SourceDiversityLoss));
    }
    Ok(Cliff { cut, effective_floor: Some(*floor), cliff_position: Some(cliff), skip_reason: None })
}

fn check(scores: &[f64], sources: &[Option<&str>]) -> Result<()> {
    if let Some(place) = scores.iter().position(|score| !score.is_finite()) {
        return Err(Error::input(
            "not_finite",
            format!("score {place} of the pool is not a number"),
        ));
    }
    if !sources.is_empty() && sources.len() != scores.len() {
        return Err(Error::input(
            "out_of_range",
            format!("{} sources for {} scores: give one for each", sources.len(), scores.len()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OPTIONS: CliffOptions = CliffOptions {
        core: 2,
        pool: usize::MAX,
        static_floor: Some(0.1),
        grade: Some('A'),
        reranker_available: true,
    };

    #[test]
    fn finds_the_first_cliff_past_the_core() {
        let table: &[(&[f64], usize, Option<usize>)] = &[
            (&[0.9, 0.8, 0.5, 0.1], 1, Some(2)),
            (&[0.9, 0.4, 0.39, 0.1], 2, Some(3)),
            (&[0.9, 0.4, 0.39, 0.1], 1, Some(1)),
            (&[0.20, 0.16], 1, None),
            (&[0.9, 0.8, 0.7, 0.6], 1, None),
            (&[0.9, 0.4], 2, None),
            (&[0.9], 0, None),
            (&[], 0, None),
        ];
        for (scores, core, expected) in table {
            assert_eq!(find_cliff(scores, *core), *expected, "{scores:?} from {core}");
        }
    }

    #[test]
    fn the_thresholds_stand_where_they_are_said_to() {
        // 85 % exactly and 0.05 exactly: the ratio must be undercut, the drop only reached.
        assert_eq!(find_cliff(&[1.0, 0.85], 1), None);
        assert_eq!(find_cliff(&[1.0, 0.849], 1), Some(1));
        assert_eq!(find_cliff(&[0.25, 0.1875], 1), Some(1));
        assert_eq!(find_cliff(&[0.25, 0.2 + 1e-9], 1), None);
    }

    #[test]
    fn fires_only_when_every_condition_holds() {
        let scores = [0.9, 0.8, 0.75, 0.4, 0.35];
        let sources = ["web", "pdf", "web", "pdf", "web"].map(Some);
        let cut = tighten(&scores, &sources, &OPTIONS).unwrap();
        assert_eq!((cut.cut, cut.effective_floor, cut.skip_reason), (vec![3, 4], Some(0.75), None));
        let table = [
            (CliffOptions { grade: Some('C'), ..OPTIONS }, SkipReason::LowGrade),
            (
                CliffOptions { reranker_available: false, ..OPTIONS },
                SkipReason::RerankerUnavailable,
            ),
            (CliffOptions { core: 5, ..OPTIONS }, SkipReason::NoRoom),
            (CliffOptions { core: 4, ..OPTIONS }, SkipReason::NoCliff),
            (CliffOptions { static_floor: Some(0.45), ..OPTIONS }, SkipReason::NoImprovement),
            (CliffOptions { pool: 3, ..OPTIONS }, SkipReason::NoImprovement),
        ];
        for (options, reason) in table {
            let skipped = tighten(&scores, &sources, &options).unwrap();
            assert_eq!((skipped.cut, skipped.skip_reason), (vec![], Some(reason)));
            assert_eq!(skipped.effective_floor, options.static_floor);
        }
        let lonely = ["web", "pdf", "web", "mail", "web"].map(Some);
        let skipped = tighten(&scores, &lonely, &OPTIONS).unwrap();
        assert_eq!(skipped.skip_reason, Some(SkipReason::SourceDiversityLoss));
    }

    #[test]
    fn the_core_is_that_of_stage_1_whatever_the_score() {
        // The second candidate is far below the cliff, and stage 1 has its reasons.
        let cut = tighten(&[0.9, 0.2, 0.8, 0.3, 0.25], &[], &OPTIONS).unwrap();
        assert_eq!((cut.cut, cut.effective_floor), (vec![3, 4], Some(0.8)));
    }

    #[test]
    fn refuses_a_pool_that_is_not_one() {
        for (scores, sources) in [(vec![f64::NAN], vec![]), (vec![0.2, 0.1], vec![Some("web")])] {
            assert!(tighten(&scores, &sources, &OPTIONS).is_err());
        }
    }

    proptest! {
        #[test]
        fn invariants_hold_for_every_pool(
            pool in prop::collection::vec((0.0..1.0_f64, 0_usize..4), 0..30),
            core in 0_usize..6,
            room in 1_usize..30,
            static_floor in prop::option::of(0.0..0.5_f64),
        ) {
            const SOURCES: [Option<&str>; 4] = [Some("web"), Some("pdf"), Some("mail"), None];
            let scores: Vec<f64> = pool.iter().map(|(score, _)| *score).collect();
            let sources: Vec<_> = pool.iter().map(|(_, source)| SOURCES[*source]).collect();
            let options = CliffOptions { core, pool: room, static_floor, ..OPTIONS };
            let outcome = tighten(&scores, &sources, &options).unwrap();
            let before: Vec<usize> = (0..scores.len())
                .filter(|place| static_floor.is_none_or(|floor| scores[*place] >= floor))
                .take(room)
                .collect();
            let after: Vec<usize> =
                before.iter().copied().filter(|place| !outcome.cut.contains(place)).collect();
            prop_assert_eq!(after.len() + outcome.cut.len(), before.len());
            prop_assert!(after.iter().take(core).eq(before.iter().take(core)));
            for place in before {
                let of_this = |other: &&usize| sources[**other] == sources[place];
                prop_assert!(sources[place].is_none() || after.iter().any(|other| of_this(&other)));
            }
            match (outcome.skip_reason, outcome.effective_floor) {
                (Some(_), floor) => {
                    prop_assert!(outcome.cut.is_empty());
                    prop_assert_eq!(floor, static_floor);
                }
                (None, Some(floor)) => {
                    prop_assert!(!outcome.cut.is_empty());
                    prop_assert!(static_floor.is_none_or(|least| floor > least));
                    prop_assert!(outcome.cut.iter().all(|place| scores[*place] < floor));
                    prop_assert!(after.iter().skip(core).all(|place| scores[*place] >= floor));
                }
                (None, None) => prop_assert!(false, "tightened without a floor"),
            }
        }
    }
}
