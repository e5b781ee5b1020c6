//! The shortlist: the fewest candidates among which a fitting candidate is with a promised
//! probability.
//!
//! Split conformal prediction with the probability of the true class as the score: Sadinle, Lei and
//! Wasserman, "Least Ambiguous Set-Valued Classifiers with Bounded Error Levels", Journal of the
//! American Statistical Association 114, 2019. A candidate is listed if its share is at least the
//! share that enough labelled queries needed. Cumulated shares (APS, RAPS) were measured as well: see
//! `eval/README.md`.

use crate::checks::{Range, check_count};
use crate::error::{Error, Result};
use crate::profile::{MOST_CANDIDATES, Promise, Shortlist};
use crate::stage1::best_first;

/// The coverages that a promise is stored for, in percent.
fn percents() -> std::ops::RangeInclusive<u32> {
    50..=99
}

/// The lengths that a promise is stored for; a longer list keeps the promise of the next
/// shorter length.
const LENGTHS: [usize; 8] = [1, 2, 3, 4, 5, 8, 12, 20];

/// A candidate in the line for the shortlist.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InLine<'a> {
    /// Id of the candidate.
    pub id: &'a str,
    /// Probability that this candidate fits, given that any does.
    pub share: f64,
}

/// Sorts candidates by share, best first, behind the first pick. Ties go to the smaller id.
pub fn line_up(candidates: &mut [InLine<'_>], first: Option<&str>) {
    candidates.sort_by(|left, right| {
        let is_first = |of: &InLine<'_>| Some(of.id) == first;
        is_first(right)
            .cmp(&is_first(left))
            .then_with(|| best_first((left.share, left.id), (right.share, right.id)))
    });
}

/// What a shortlist of limited length promises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// The coverage, in (0, 1): the requested coverage, or the highest that the length allows.
    pub coverage: f64,
    /// Whether it is at least the requested coverage.
    pub is_enough: bool,
    /// The least share of a listed candidate behind the first.
    pub least_share: f64,
}

/// The promise of a shortlist of at most `most` candidates, or none if it was not fitted.
///
/// A coverage between two fitted coverages counts as the higher.
pub fn promise(promises: &[Promise], coverage: f64, most: usize) -> Option<Kept> {
    let least_shares = &applicable(promises, most)?.least_shares;
    let fitted = percents().map(|percent| f64::from(percent) / 100.0).zip(least_shares);
    if let Some((_, share)) = fitted.clone().find(|(fitted, _)| *fitted >= coverage) {
        return Some(Kept { coverage, is_enough: true, least_share: *share });
    }
    let (highest, share) = fitted.last()?;
    Some(Kept { coverage: highest, is_enough: false, least_share: *share })
}

/// The promise for the greatest length up to `most`.
fn applicable(promises: &[Promise], most: usize) -> Option<&Promise> {
    promises.iter().rev().find(|promise| promise.most <= most)
}

/// How many candidates of a line are listed: the first, and each further candidate with enough
/// share.
pub fn length(line: &[InLine<'_>], kept: &Kept, most: usize) -> usize {
    let further =
        line.iter().skip(1).take_while(|candidate| candidate.share >= kept.least_share).count();
    line.len().min(most).min(1 + further)
}

/// The place of the best fitting candidate in the line of a labelled query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Its rank, from 1.
    pub rank: usize,
    /// Its share.
    pub share: f64,
}

/// Fits the promises to labelled queries that have a match.
///
/// `found` has one entry per query; none if no fitting candidate is in line, or if the shortlist of
/// that query is empty. With n queries and a coverage of c, the k-th largest share is the least
/// share, with k = ceil(c (n + 1)). A further query whose shares are exchangeable with theirs then
/// has a fitting candidate on its shortlist with a probability of at least c. A candidate beyond the
/// greatest length counts as not found, so that the length does not break the promise.
///
/// # Examples
///
/// ```
/// use crossgate_core::shortlist::{Found, fit, promise};
///
/// // For nine queries of ten the first candidate fits; the tenth has it at rank 3.
/// let mut found = vec![Some(Found { rank: 1, share: 0.9 }); 9];
/// found.push(Some(Found { rank: 3, share: 0.05 }));
/// let promises = fit(&found);
/// assert_eq!(promise(&promises, 0.8, 1).unwrap().coverage, 0.8);
/// let kept = promise(&promises, 0.9, 3).unwrap();
/// assert_eq!((kept.is_enough, kept.least_share), (true, 0.05));
/// assert!(!promise(&promises, 0.9, 2).unwrap().is_enough);
/// ```
pub fn fit(found: &[Option<Found>]) -> Vec<Promise> {
    let promises = LENGTHS.map(|most| {
        let mut shares: Vec<f64> = found
            .iter()
            .flatten()
            .filter(|found| found.rank <= most)
            // The first candidate is listed whatever its share.
            .map(|found| if found.rank == 1 { 1.0 } else { round_down(found.share) })
            .collect();
        shares.sort_by(|left, right| right.total_cmp(left));
        let least_shares = percents().map_while(|percent| {
            let k = needed_of(found.len(), percent)?;
            shares.get(k.checked_sub(1)?).copied()
        });
        Promise { most, least_shares: least_shares.collect() }
    });
    promises.into_iter().filter(|promise| !promise.least_shares.is_empty()).collect()
}

/// k = ceil(c (n + 1)), exact in whole numbers; none if it exceeds n.
fn needed_of(queries: usize, percent: u32) -> Option<usize> {
    let k = (queries.checked_add(1)?.checked_mul(usize::try_from(percent).ok()?)?).div_ceil(100);
    (k <= queries).then_some(k)
}

/// The fewest labelled queries that can promise a coverage: the least n with ceil(c (n + 1)) <= n.
///
/// Fails with `out_of_range` for a coverage that is not in (0, 1).
pub fn queries_needed(coverage: f64) -> Result<u32> {
    check_coverage("coverage", coverage)?;
    let percent = percents().find(|percent| f64::from(*percent) / 100.0 >= coverage);
    let percent = percent.unwrap_or(*percents().end());
    Ok(percent.div_ceil(100 - percent))
}

/// Fails with `out_of_range` for a coverage that is not in (0, 1).
pub(crate) fn check_coverage(name: &str, coverage: impl Into<Option<f64>>) -> Result<()> {
    match coverage.into() {
        Some(coverage) if !(coverage > 0.0 && coverage < 1.0) => {
            Err(Error::out_of_range(name, coverage, "above 0 and below 1"))
        }
        _ => Ok(()),
    }
}

fn round_down(share: f64) -> f64 {
    (share * 1e6).floor() / 1e6
}

impl Shortlist {
    /// The same settings, with only the promises that apply to a request.
    pub(crate) fn promises_of(&self, max_shortlist: Option<usize>) -> Self {
        let most = max_shortlist.unwrap_or(self.most);
        let of = |promises| applicable(promises, most).cloned().into_iter().collect();
        Self { stage1: of(&self.stage1), stage2: of(&self.stage2), ..self.clone() }
    }

    pub(crate) fn check(&self) -> Result<()> {
        Range::Probability.check("shortlist.least", self.least)?;
        check_coverage("shortlist.coverage", self.coverage)?;
        check_count("shortlist.most", self.most, 1, MOST_CANDIDATES)?;
        for (stage, promises) in [("stage1", &self.stage1), ("stage2", &self.stage2)] {
            let mut before = 0;
            for (place, Promise { most, least_shares }) in promises.iter().enumerate() {
                let name = format!("shortlist.{stage}[{place}]");
                check_count(&format!("{name}.most"), *most, before + 1, MOST_CANDIDATES)?;
                let levels = percents().count();
                check_count(&format!("{name}.least_shares"), least_shares.len(), 1, levels)?;
                let mut above = 1.0;
                for share in least_shares {
                    if !(0.0..=above).contains(share) {
                        let name = format!("a number of {name}.least_shares");
                        let limit = format!("from 0 to {above}, the number before it");
                        return Err(Error::out_of_range(name, share, limit));
                    }
                    above = *share;
                }
                before = *most;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(shares: &[f64]) -> Vec<(String, f64)> {
        shares.iter().enumerate().map(|(at, share)| (format!("d{at:02}"), *share)).collect()
    }

    fn in_line(of: &[(String, f64)]) -> Vec<InLine<'_>> {
        of.iter().map(|(id, share)| InLine { id, share: *share }).collect()
    }

    #[test]
    fn the_first_pick_is_first_in_line_and_ties_go_to_the_smaller_id() {
        let of = line(&[0.1, 0.3, 0.3, 0.2]);
        let mut found = in_line(&of);
        found.reverse();
        line_up(&mut found, Some("d03"));
        assert_eq!(found.iter().map(|of| of.id).collect::<Vec<_>>(), ["d03", "d01", "d02", "d00"]);
    }

    #[test]
    fn coverages_in_between_count_as_the_next_higher() {
        let promises = [Promise { most: 5, least_shares: vec![0.5, 0.4, 0.3] }];
        let least = |coverage| promise(&promises, coverage, 5).unwrap();
        assert_eq!((least(0.2).least_share, least(0.2).coverage), (0.5, 0.2));
        // A share that equals the limit is on the list.
        assert_eq!(length(&in_line(&line(&[0.6, 0.5, 0.4])), &least(0.2), 5), 2);
        assert_eq!(least(0.5).least_share, 0.5);
        assert_eq!((least(0.505).least_share, least(0.505).coverage), (0.4, 0.505));
        assert_eq!((least(0.52).least_share, least(0.52).is_enough), (0.3, true));
        for coverage in [0.521, 0.9, 0.995] {
            let kept = least(coverage);
            assert_eq!((kept.coverage, kept.is_enough, kept.least_share), (0.52, false, 0.3));
        }
    }

    #[test]
    fn a_list_keeps_the_promise_of_the_next_shorter_fitted_length() {
        let promises =
            [(1, 0.9), (5, 0.3)].map(|(most, share)| Promise { most, least_shares: vec![share] });
        let least = |most| promise(&promises, 0.5, most).map(|kept| kept.least_share);
        assert_eq!([0, 1, 4, 5, 9].map(least), [None, Some(0.9), Some(0.9), Some(0.3), Some(0.3)]);
        assert_eq!(promise(&[], 0.5, 5), None);
    }

    #[test]
    fn a_promise_needs_enough_queries() {
        for (coverage, needed) in [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)] {
            assert_eq!(queries_needed(coverage).unwrap(), needed);
            let is_promised = |queries| {
                let promises = fit(&vec![Some(Found { rank: 1, share: 0.5 }); queries]);
                promise(&promises, coverage, 5).is_some_and(|kept| kept.is_enough)
            };
            let queries = usize::try_from(needed).unwrap();
            assert!(is_promised(queries) && !is_promised(queries - 1), "{coverage}");
        }
        for coverage in [0.0, 1.0, -0.5, 1.5, f64::NAN] {
            assert_eq!(queries_needed(coverage).unwrap_err().code(), "out_of_range");
        }
    }

    #[test]
    fn candidates_beyond_the_greatest_length_count_as_not_found() {
        let ranks = [1, 1, 1, 1, 1, 2, 2, 6, 6, 30];
        let found: Vec<Option<Found>> =
            ranks.iter().map(|rank| Some(Found { rank: *rank, share: 0.01 })).collect();
        let reached = |most| promise(&fit(&found), 0.99, most).unwrap().coverage;
        // k of n are found, and k / (n + 1) can be promised.
        assert_eq!([2, 5, 8, 20].map(reached), [0.63, 0.63, 0.81, 0.81]);
        // 5 / 11 is below the lowest coverage that is stored.
        assert_eq!(promise(&fit(&found), 0.5, 1), None);
    }

    #[test]
    fn unusable_promises_are_refused() {
        let fitted = |promises| Shortlist { stage2: promises, ..Shortlist::default() };
        let promise = |most, shares: &[f64]| Promise { most, least_shares: shares.to_vec() };
        fitted(vec![promise(1, &[0.5]), promise(5, &[0.5, 0.5])]).check().unwrap();
        for (wrong, message) in [
            (vec![promise(0, &[0.5])], "stage2[0].most is 0"),
            (vec![promise(5, &[0.5]), promise(5, &[0.5])], "stage2[1].most is 5"),
            (vec![promise(5, &[])], "least_shares is 0"),
            (vec![promise(5, &[0.5; 51])], "least_shares is 51"),
            (vec![promise(5, &[0.5, 0.6])], "is 0.6: it must be from 0 to 0.5"),
            (vec![promise(5, &[f64::NAN])], "is NaN"),
        ] {
            let error = fitted(wrong).check().unwrap_err().to_string();
            assert!(error.contains(message), "{error}: {message}");
        }
        for coverage in [0.0, 1.0, f64::NAN] {
            assert!(Shortlist { coverage, ..Shortlist::default() }.check().is_err());
        }
    }

    /// The definition, without a table: the least share of the k-th best query.
    fn naive(found: &[Option<Found>], percent: usize, most: usize) -> Option<f64> {
        let mut shares: Vec<f64> = found
            .iter()
            .map(|found| match found {
                Some(Found { rank: 1, .. }) => 1.0,
                Some(found) if found.rank <= most => (found.share * 1e6).floor() / 1e6,
                _ => f64::NEG_INFINITY,
            })
            .collect();
        shares.sort_by(|left, right| right.total_cmp(left));
        let k = (percent * (found.len() + 1)).div_ceil(100);
        shares.get(k - 1).copied().filter(|share| share.is_finite())
    }

    prop_compose! {
        fn any_found()(
            rows in prop::collection::vec(prop::option::of((1_usize..25, 0.0..1.0_f64)), 0..150),
        ) -> Vec<Option<Found>> {
            rows.into_iter().map(|row| row.map(|(rank, share)| Found { rank, share })).collect()
        }
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_the_definition(found in any_found()) {
            let promises = fit(&found);
            Shortlist { stage1: promises.clone(), ..Shortlist::default() }.check().unwrap();
            for most in LENGTHS {
                let row = promises.iter().find(|promise| promise.most == most);
                for (level, percent) in (50..=99).enumerate() {
                    let stored = row.and_then(|row| row.least_shares.get(level)).copied();
                    prop_assert_eq!(stored, naive(&found, percent, most));
                }
            }
        }

        #[test]
        fn a_shortlist_only_grows_with_coverage(
            found in any_found(), shares in prop::collection::vec(0.0..1.0_f64, 0..25),
            low in 0.01..0.99_f64, more in 0.0..0.9_f64, most in 1_usize..25,
        ) {
            let promises = fit(&found);
            let of = line(&shares);
            let mut candidates = in_line(&of);
            line_up(&mut candidates, Some("d01"));
            let listed = |coverage: f64| {
                promise(&promises, coverage, most).map(|kept| length(&candidates, &kept, most))
            };
            let high = (low + more).min(0.999);
            prop_assert!(listed(low) <= listed(high));
            if let Some(length) = listed(low) {
                prop_assert!(length <= most);
                prop_assert_eq!(length == 0, candidates.is_empty());
            }
        }

        #[test]
        fn the_fitted_queries_are_covered_as_promised(
            found in any_found(), coverage in 0.5..0.99_f64, most in 1_usize..25,
        ) {
            if let Some(kept) = promise(&fit(&found), coverage, most) {
                let covered = found.iter().flatten().filter(|found| {
                    found.rank <= most && (found.rank == 1 || found.share >= kept.least_share)
                });
                prop_assert!(covered.count() as f64 >= kept.coverage * found.len() as f64);
            }
        }

        #[test]
        fn the_line_does_not_depend_on_the_order_of_candidates(
            shares in prop::collection::vec(0_u8..4, 1..12), rotation in 0_usize..12,
        ) {
            let of: Vec<(String, f64)> =
                line(&shares.iter().map(|share| f64::from(*share)).collect::<Vec<_>>());
            let mut candidates = in_line(&of);
            let mut rotated = candidates.clone();
            rotated.rotate_left(rotation % candidates.len());
            line_up(&mut candidates, Some("d00"));
            line_up(&mut rotated, Some("d00"));
            prop_assert_eq!(candidates, rotated);
        }
    }
}
