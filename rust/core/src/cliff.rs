//! Score cliffs: large drops in a ranked pool, below which candidates are cut before stage 2.

use std::collections::HashSet;

use crate::error::{Error, Kind, Result};
use crate::json::{codes, value};

/// A score below this fraction of the score before it is below a cliff.
pub const CLIFF_RATIO: f64 = 0.85;
/// The least drop of a cliff: from 0.20 to 0.16 is not a cliff.
pub const CLIFF_MIN_DROP: f64 = 0.05;

codes! {
    /// Why a pool was not cut.
    pub enum SkipReason {
        /// A candidate has no cosine, so the scores cannot be compared.
        NoCosine = "no_cosine",
        /// The retrieval is graded below B, and few of its candidates may be relevant.
        LowGrade = "low_grade",
        /// The preferred reranker is unavailable, and its fallback needs more candidates.
        RerankerUnavailable = "reranker_unavailable",
        /// The pool has no candidates besides those that always stay.
        NoRoom = "no_room",
        /// There is no cliff below the candidates that always stay.
        NoCliff = "no_cliff",
        /// The floor or the size of the pool already excludes all candidates below the cliff.
        NoImprovement = "no_improvement",
        /// The cut would remove all candidates of a source.
        SourceDiversityLoss = "source_diversity_loss",
    }
}

/// Settings of [`tighten`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CliffOptions {
    /// Number of first candidates of stage 1 that always stay.
    pub core: usize,
    /// The most candidates that stage 2 reads.
    pub pool: usize,
    /// The floor without a cut, if there is a floor.
    pub static_floor: Option<f64>,
    /// The caller's grade of the retrieval, from `A` (best) to `F`; none is treated like `A`.
    pub grade: Option<char>,
    /// Whether the preferred reranker is available.
    pub reranker_available: bool,
}

value! {
    /// The result of [`tighten`].
    #[derive(PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Cliff {
        /// The candidates that are cut from the pool, as positions in the order of stage 1.
        pub cut: Vec<usize>,
        /// The floor that applies: the static floor, or the last score above the cliff.
        pub effective_floor: Option<f64>,
        /// Number of scores above the cliff, if there is one.
        pub cliff_position: Option<usize>,
        /// Why nothing was cut; none if candidates were cut.
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

/// Position of the first score below a cliff, from `core` on. Scores must be sorted best first.
///
/// A cliff is a drop to less than [`CLIFF_RATIO`] of the score before, by at least
/// [`CLIFF_MIN_DROP`]. The first cliff counts, also if a later cliff is larger.
///
/// # Examples
///
/// ```
/// use crossgate_core::cliff::find_cliff;
///
/// assert_eq!(find_cliff(&[0.9, 0.8, 0.5, 0.1], 1), Some(2));
/// assert_eq!(find_cliff(&[0.9, 0.8, 0.7, 0.6], 1), None);
/// ```
pub fn find_cliff(scores: &[f64], core: usize) -> Option<usize> {
    let past_core = scores.windows(2).enumerate().skip(core.saturating_sub(1));
    past_core
        .filter_map(|(position, pair)| match pair {
            [above, below] => Some((position + 1, *above, *below)),
            _ => None,
        })
        .find(|(_, above, below)| *below < CLIFF_RATIO * above && above - below >= CLIFF_MIN_DROP)
        .map(|(below_cliff, ..)| below_cliff)
}

/// Cuts the candidates below a cliff from the pool of stage 2.
///
/// `scores` are in the order of stage 1 and include the candidates below the static floor and beyond
/// the pool. `sources` has the source of each candidate, or is empty. The pool consists of the first
/// candidates that clear the static floor. The first `core` candidates of the pool stay, the floor is
/// never below the static floor, and each source in the pool keeps a candidate.
///
/// Fails with `not_finite` if a score is not finite, and with `out_of_range` if there is not one
/// source per score.
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
    let source = |position: usize| sources.get(position).copied().flatten();
    let kept: HashSet<_> = kept.iter().map(|(_, (position, _))| source(*position)).collect();
    let cut: Vec<usize> = cut.into_iter().map(|(_, (position, _))| position).collect();
    if cut.iter().any(|at| source(*at).is_some() && !kept.contains(&source(*at))) {
        return Ok(unchanged(Some(cliff), SkipReason::SourceDiversityLoss));
    }
    Ok(Cliff { cut, effective_floor: Some(*floor), cliff_position: Some(cliff), skip_reason: None })
}

fn check(scores: &[f64], sources: &[Option<&str>]) -> Result<()> {
    for (position, score) in scores.iter().enumerate() {
        if !score.is_finite() {
            return Err(Error::not_finite(format!("score {position} of the pool"), *score));
        }
    }
    if !sources.is_empty() && sources.len() != scores.len() {
        let (what, found, per, expected) = ("sources", sources.len(), "scores", scores.len());
        return Err(Kind::LengthMismatch { what, found, per, expected }.into());
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
    fn the_first_cliff_from_the_core_on_is_found() {
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
    fn a_cliff_is_below_the_ratio_and_at_least_the_least_drop() {
        // Exactly 85 % is not below the ratio; exactly 0.05 is enough of a drop.
        assert_eq!(find_cliff(&[1.0, 0.85], 1), None);
        assert_eq!(find_cliff(&[1.0, 0.849], 1), Some(1));
        assert_eq!(find_cliff(&[0.25, 0.1875], 1), Some(1));
        assert_eq!(find_cliff(&[0.25, 0.2 + 1e-9], 1), None);
    }

    #[test]
    fn a_pool_is_cut_only_if_every_condition_holds() {
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
        let single_mail = ["web", "pdf", "web", "mail", "web"].map(Some);
        let skipped = tighten(&scores, &single_mail, &OPTIONS).unwrap();
        assert_eq!(skipped.skip_reason, Some(SkipReason::SourceDiversityLoss));
    }

    #[test]
    fn the_core_is_by_the_order_of_stage_1_and_not_by_score() {
        // The second candidate is below the cliff and stays, because stage 1 ranked it second.
        let cut = tighten(&[0.9, 0.2, 0.8, 0.3, 0.25], &[], &OPTIONS).unwrap();
        assert_eq!((cut.cut, cut.effective_floor), (vec![3, 4], Some(0.8)));
    }

    #[test]
    fn unusable_scores_and_sources_are_refused() {
        for (scores, sources) in [(vec![f64::NAN], vec![]), (vec![0.2, 0.1], vec![Some("web")])] {
            assert!(tighten(&scores, &sources, &OPTIONS).is_err());
        }
    }

    proptest! {
        #[test]
        fn core_floor_and_sources_are_preserved_for_every_pool(
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
                .filter(|position| static_floor.is_none_or(|floor| scores[*position] >= floor))
                .take(room)
                .collect();
            let after: Vec<usize> =
                before.iter().copied().filter(|position| !outcome.cut.contains(position)).collect();
            prop_assert_eq!(after.len() + outcome.cut.len(), before.len());
            prop_assert!(after.iter().take(core).eq(before.iter().take(core)));
            for position in before {
                let of_this = |other: &&usize| sources[**other] == sources[position];
                prop_assert!(sources[position].is_none() || after.iter().any(|other| of_this(&other)));
            }
            match (outcome.skip_reason, outcome.effective_floor) {
                (Some(_), floor) => {
                    prop_assert!(outcome.cut.is_empty());
                    prop_assert_eq!(floor, static_floor);
                }
                (None, Some(floor)) => {
                    prop_assert!(!outcome.cut.is_empty());
                    prop_assert!(static_floor.is_none_or(|least| floor > least));
                    prop_assert!(outcome.cut.iter().all(|position| scores[*position] < floor));
                    prop_assert!(after.iter().skip(core).all(|position| scores[*position] >= floor));
                }
                (None, None) => prop_assert!(false, "cut without a floor"),
            }
        }
    }
}
