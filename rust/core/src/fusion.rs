//! Fusion of ranked lists: by reciprocal rank, and by normalised scores.

use std::collections::HashMap;

use crate::checks::LARGEST;
use crate::error::{Error, Kind, Result};
use crate::stage1::best_first;

/// How scores of different lists are made comparable.
///
/// No normalisation depends on the scale of the scores. `ZScore` has no bounds; the others map to
/// [0, 1].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalisation {
    /// (s - min) / (max - min); 1 if all scores are equal.
    ///
    /// "Standard" in Montague and Aslam, "Relevance Score Normalization for Metasearch" (2001).
    MinMax,
    /// The scores minus their minimum, divided by their sum; "Sum" in the same paper.
    Sum,
    /// (s - mean) / standard deviation; 0 if all are equal; "ZMUV" in the same paper.
    ZScore,
    /// The position between mean - 3 and mean + 3 standard deviations, clipped to [0, 1]; 0.5 if all
    /// are equal: the distribution-based score fusion of Mazzeschi (2023).
    ThreeSigma,
    /// (n - rank + 1) / n, which does not depend on the distribution: the Borda count of Aslam and
    /// Montague, "Models for Metasearch" (2001).
    Rank,
}

impl Normalisation {
    /// All normalisations with the names that [`Normalisation::new`] takes.
    pub const ALL: [(&'static str, Self); 5] = [
        ("min_max", Self::MinMax),
        ("sum", Self::Sum),
        ("z_score", Self::ZScore),
        ("three_sigma", Self::ThreeSigma),
        ("rank", Self::Rank),
    ];

    /// The normalisation with a name; fails with `out_of_range` for an unknown name.
    pub fn new(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, normalisation)| *normalisation).ok_or_else(|| {
            let known = Self::ALL.map(|(known, _)| known).to_vec();
            Kind::UnknownName { what: "normalisation", name: name.to_owned(), known }.into()
        })
    }

    /// The normalised scores, and the score of a document that is not in the list: the least that a
    /// document in it can get.
    pub(crate) fn apply(self, scores: &[f64]) -> (Vec<f64>, f64) {
        // Scaled to [-1, 1], so that no difference or square overflows.
        let largest = scores.iter().fold(0.0, |most: f64, score| most.max(score.abs()));
        let scaled: Vec<f64> =
            scores.iter().map(|score| if largest > 0.0 { score / largest } else { 0.0 }).collect();
        let mut ordered = scaled.clone();
        // Sums are over sorted values, so that they do not depend on the order of the list.
        ordered.sort_by(f64::total_cmp);
        let count = scaled.len() as f64;
        let (least, most) = match (ordered.first(), ordered.last()) {
            (Some(least), Some(most)) => (*least, *most),
            _ => return (scaled, 0.0),
        };
        let spread = most - least;
        let mean = ordered.iter().sum::<f64>() / count;
        let deviation =
            (ordered.iter().map(|score| (score - mean).powi(2)).sum::<f64>() / count).sqrt();
        let each = |map: &dyn Fn(f64) -> f64| scaled.iter().map(|score| map(*score)).collect();
        match self {
            Self::MinMax if spread > 0.0 => (each(&|score| (score - least) / spread), 0.0),
            Self::MinMax => (each(&|_| 1.0), 0.0),
            Self::Sum if spread > 0.0 => {
                let total: f64 = ordered.iter().map(|score| score - least).sum();
                (each(&|score| (score - least) / total), 0.0)
            }
            Self::Sum => (each(&|_| 1.0 / count), 0.0),
            Self::ZScore if deviation > 0.0 => {
                (each(&|score| (score - mean) / deviation), (least - mean) / deviation)
            }
            Self::ZScore => (each(&|_| 0.0), 0.0),
            Self::ThreeSigma if deviation > 0.0 => {
                let position = |score: f64| 0.5 + (score - mean) / (6.0 * deviation);
                (each(&|score| position(score).clamp(0.0, 1.0)), 0.0)
            }
            Self::ThreeSigma => (each(&|_| 0.5), 0.0),
            Self::Rank => {
                ((0..scaled.len()).map(|rank| (count - rank as f64) / count).collect(), 0.0)
            }
        }
    }
}

/// Reciprocal rank fusion: the sum of weight / (k + rank) over the lists, ranks from 1, best first.
///
/// If an id is in a list twice, both ranks count. The terms of a sum are sorted first, so that the
/// result is equal to the bit for any order of the lists. Ties go to the smaller id. Cormack, Clarke
/// and Büttcher, "Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods"
/// (2009).
///
/// Fails with `out_of_range` if `k` is negative or not finite, or if there is not one weight per
/// list, from 0 to 1e100, with at least one above 0.
///
/// # Examples
///
/// ```
/// use crossgate_core::fusion::reciprocal_rank;
///
/// let list = |ids: &[&str]| -> Vec<String> { ids.iter().map(|id| (*id).to_owned()).collect() };
/// let fused = reciprocal_rank(&[list(&["a", "b"]), list(&["b", "c"])], 60.0, None)?;
/// assert_eq!(fused[0], ("b".to_owned(), 1.0 / 62.0 + 1.0 / 61.0));
/// # Ok::<(), crossgate_core::Error>(())
/// ```
pub fn reciprocal_rank(
    lists: &[Vec<String>],
    k: f64,
    weights: Option<&[f64]>,
) -> Result<Vec<(String, f64)>> {
    if !(k.is_finite() && k >= 0.0) {
        return Err(Error::out_of_range("k_param", k, "at least 0 and finite"));
    }
    let weights = checked(weights, lists.len())?;
    let mut terms: HashMap<&str, Vec<f64>> = HashMap::new();
    for (list, weight) in lists.iter().zip(weights) {
        for (rank, id) in (1..).zip(list) {
            terms.entry(id).or_default().push(weight / (k + f64::from(rank)));
        }
    }
    Ok(sums(terms))
}

/// The weighted sum of the normalised scores of each id, best first; ties go to the smaller id.
///
/// An id that is not in a list gets the least score of the list. If an id is in a list twice, its
/// better score counts.
///
/// Fails with `not_finite` for a score that is not finite, and with `out_of_range` for weights as in
/// [`reciprocal_rank`].
///
/// # Examples
///
/// ```
/// use crossgate_core::fusion::{Normalisation, scores};
///
/// let words = vec![("a".to_owned(), 12.0), ("b".to_owned(), 2.0)];
/// let vectors = vec![("b".to_owned(), 0.9), ("c".to_owned(), 0.4)];
/// let fused = scores(&[words, vectors], Normalisation::MinMax, Some(&[2.0, 1.0]))?;
/// assert_eq!(fused[0], ("a".to_owned(), 2.0));
/// # Ok::<(), crossgate_core::Error>(())
/// ```
pub fn scores(
    lists: &[Vec<(String, f64)>],
    normalisation: Normalisation,
    weights: Option<&[f64]>,
) -> Result<Vec<(String, f64)>> {
    let weights = checked(weights, lists.len())?;
    let mut terms: HashMap<&str, Vec<f64>> =
        lists.iter().flatten().map(|(id, _)| (id.as_str(), Vec::new())).collect();
    for (number, (list, weight)) in lists.iter().zip(weights).enumerate() {
        if let Some((id, score)) = list.iter().find(|(_, score)| !score.is_finite()) {
            let name = format!("the score of {id:?} in list {}", number + 1);
            return Err(Error::not_finite(name, *score));
        }
        let values: Vec<f64> = list.iter().map(|(_, score)| *score).collect();
        let (normalised, absent) = normalisation.apply(&values);
        let mut found: HashMap<&str, f64> = HashMap::new();
        for ((id, _), score) in list.iter().zip(normalised) {
            found.entry(id).and_modify(|best| *best = best.max(score)).or_insert(score);
        }
        if !list.is_empty() {
            for (id, terms) in &mut terms {
                terms.push(weight * found.get(id).copied().unwrap_or(absent));
            }
        }
    }
    Ok(sums(terms))
}

fn checked(weights: Option<&[f64]>, lists: usize) -> Result<Vec<f64>> {
    let Some(weights) = weights else { return Ok(vec![1.0; lists]) };
    if weights.len() != lists {
        let (what, found, per) = ("weights", weights.len(), "lists");
        return Err(Kind::LengthMismatch { what, found, per, expected: lists }.into());
    }
    let usable = weights.iter().all(|weight| (0.0..=LARGEST).contains(weight));
    if !usable || (lists > 0 && weights.iter().all(|weight| *weight == 0.0)) {
        return Err(Kind::ListWeights(weights.to_vec()).into());
    }
    Ok(weights.to_vec())
}

fn sums(terms: HashMap<&str, Vec<f64>>) -> Vec<(String, f64)> {
    let mut fused: Vec<(String, f64)> = terms
        .into_iter()
        .map(|(id, mut terms)| {
            terms.sort_by(f64::total_cmp);
            (id.to_owned(), terms.iter().sum())
        })
        .collect();
    fused.sort_by(|left, right| best_first((left.1, &left.0), (right.1, &right.0)));
    fused
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(list: &[u8]) -> Vec<String> {
        list.iter().map(|id| format!("d{id:03}")).collect()
    }

    fn lists() -> impl Strategy<Value = Vec<Vec<String>>> {
        prop::collection::vec(prop::collection::vec(0_u8..12, 0..8), 0..5)
            .prop_map(|lists| lists.iter().map(|list| ids(list)).collect())
    }

    #[test]
    fn reciprocal_rank_equals_sums_computed_by_hand() {
        let lists = [ids(&[1, 2]), ids(&[2, 3, 2])];
        let fused = reciprocal_rank(&lists, 60.0, None).unwrap();
        assert_eq!(fused[0].0, "d002");
        assert_eq!(fused[0].1, 1.0 / 63.0 + 1.0 / 62.0 + 1.0 / 61.0);
        assert_eq!(fused[1], ("d001".to_owned(), 1.0 / 61.0));
        assert_eq!(fused[2], ("d003".to_owned(), 1.0 / 62.0));
        let weighted = reciprocal_rank(&lists, 0.0, Some(&[0.0, 2.0])).unwrap();
        assert_eq!(weighted[2], ("d001".to_owned(), 0.0));
        assert_eq!(weighted[1], ("d003".to_owned(), 1.0));
        assert!(reciprocal_rank(&[], 60.0, None).unwrap().is_empty());
    }

    #[test]
    fn each_normalisation_equals_its_formula() {
        let run = |name: &str, scores: &[f64]| Normalisation::new(name).unwrap().apply(scores);
        let cases: &[(&str, [f64; 3], f64)] = &[
            ("min_max", [1.0, 0.4, 0.0], 0.0),
            ("sum", [5.0 / 7.0, 2.0 / 7.0, 0.0], 0.0),
            ("z_score", [8.0 / 3.0, -1.0 / 3.0, -7.0 / 3.0], -7.0 / 3.0),
            ("rank", [1.0, 2.0 / 3.0, 1.0 / 3.0], 0.0),
        ];
        for (name, expected, absent) in cases {
            let by = if *name == "z_score" { (38.0_f64 / 9.0).sqrt() } else { 1.0 };
            let (found, least) = run(name, &[6.0, 3.0, 1.0]);
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected / by).abs() < 1e-12, "{name} {found} {expected}");
            }
            assert!((least - absent / by).abs() < 1e-12, "{name}");
        }
        let (found, _) = run("three_sigma", &[4.0, 2.0, -1.0]);
        assert!((found[1] - (0.5 + (1.0 / 3.0) / (6.0 * (38.0_f64 / 9.0).sqrt()))).abs() < 1e-12);
        let constant: &[(&str, f64)] =
            &[("min_max", 1.0), ("sum", 0.5), ("z_score", 0.0), ("three_sigma", 0.5)];
        for (name, expected) in constant {
            assert_eq!(run(name, &[-7.0, -7.0]).0, [*expected; 2], "{name}");
        }
        assert_eq!(Normalisation::new("softmax").unwrap_err().code(), "out_of_range");
    }

    #[test]
    fn a_document_in_both_lists_is_first() {
        let list = |rows: &[(&str, f64)]| -> Vec<(String, f64)> {
            rows.iter().map(|(id, score)| ((*id).to_owned(), *score)).collect()
        };
        for (name, normalisation) in Normalisation::ALL {
            let lists =
                [list(&[("a", 3.0), ("b", 1.0)]), list(&[("c", 0.2), ("a", 0.2), ("a", -0.1)])];
            let fused = scores(&lists, normalisation, None).unwrap();
            assert_eq!(fused[0].0, "a", "{name}");
            assert_eq!(scores(&[Vec::new(), Vec::new()], normalisation, None).unwrap(), []);
            let far = [list(&[("a", f64::MAX), ("b", -f64::MAX)])];
            assert!(scores(&far, normalisation, None).unwrap()[0].1.is_finite(), "{name}");
        }
        let error = scores(&[list(&[("a", f64::NAN)])], Normalisation::Sum, None).unwrap_err();
        assert_eq!(error.code(), "not_finite");
    }

    #[test]
    fn unusable_weights_and_constants_are_refused() {
        let lists = [ids(&[1]), ids(&[2])];
        let weights: &[&[f64]] = &[&[1.0], &[0.0, 0.0], &[1.0, -1.0], &[f64::NAN, 1.0]];
        for weights in weights {
            let error = reciprocal_rank(&lists, 60.0, Some(weights)).unwrap_err();
            assert_eq!(error.code(), "out_of_range");
        }
        for k in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(reciprocal_rank(&lists, k, None).unwrap_err().code(), "out_of_range");
        }
    }

    proptest! {
        #[test]
        fn fused_scores_do_not_depend_on_the_order_of_the_lists(
            lists in lists(), weights in prop::collection::vec(0.1_f64..3.0, 5), turn in 0_usize..5,
        ) {
            let weights = &weights[..lists.len()];
            let mut turned: Vec<_> = lists.iter().cloned().zip(weights.iter().copied()).collect();
            turned.rotate_left(turn.min(lists.len()));
            turned.reverse();
            let (other, other_weights): (Vec<_>, Vec<_>) = turned.into_iter().unzip();
            prop_assert_eq!(
                reciprocal_rank(&lists, 60.0, Some(weights)).unwrap(),
                reciprocal_rank(&other, 60.0, Some(&other_weights)).unwrap()
            );
            let score = |lists: &[Vec<String>]| -> Vec<Vec<(String, f64)>> {
                let row = |id: &String| (id.clone(), f64::from(id.as_bytes()[3]) * 0.37);
                lists.iter().map(|list| list.iter().map(row).collect()).collect()
            };
            for (_, normalisation) in Normalisation::ALL {
                prop_assert_eq!(
                    scores(&score(&lists), normalisation, Some(weights)).unwrap(),
                    scores(&score(&other), normalisation, Some(&other_weights)).unwrap()
                );
            }
        }

        #[test]
        fn reciprocal_rank_equals_its_definition(lists in lists(), k in 0.0_f64..100.0) {
            let fused = reciprocal_rank(&lists, k, None).unwrap();
            for (id, score) in &fused {
                let mut terms: Vec<f64> = lists.iter()
                    .flat_map(|list| list.iter().enumerate())
                    .filter(|(_, other)| *other == id)
                    .map(|(position, _)| 1.0 / (k + (position + 1) as f64))
                    .collect();
                terms.sort_by(f64::total_cmp);
                prop_assert_eq!(*score, terms.iter().sum::<f64>());
            }
            let sorted = fused.windows(2).all(|pair| {
                pair[0].1 > pair[1].1 || (pair[0].1 == pair[1].1 && pair[0].0 < pair[1].0)
            });
            prop_assert!(sorted);
        }

        #[test]
        fn a_better_rank_never_lowers_the_score(
            first in prop::collection::vec(0_u8..12, 2..8), others in lists(), position in 0_usize..7,
        ) {
            let position = 1 + position % (first.len() - 1);
            let mut lists = others;
            lists.push(ids(&first));
            let id = lists[lists.len() - 1][position].clone();
            let mut better = lists.clone();
            better[lists.len() - 1].swap(position - 1, position);
            let rank = |lists: &[Vec<String>]| {
                let fused = reciprocal_rank(lists, 60.0, None).unwrap();
                let at = fused.iter().position(|(other, _)| *other == id).unwrap();
                (at, fused[at].1)
            };
            let (before, after) = (rank(&lists), rank(&better));
            prop_assert!(after.0 <= before.0 && after.1 >= before.1);
        }
    }
}
