//! Stage 1: cosine and BM25 of each candidate, blended into one score, best first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checks::LARGEST;
use crate::error::{Error, Result};
use crate::json::value;

value! {
    /// A part of a document's body, in characters.
    #[derive(Copy, PartialEq, Eq)]
    #[serde(deny_unknown_fields)]
    pub struct Span {
        /// Its first character, from 0.
        pub start: u32,
        /// The character after its last one.
        pub end: u32,
    }
}

value! {
    /// One candidate with its stage-1 scores.
    #[derive(Default, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Scored {
        /// Id of the document.
        pub id: String,
        /// Cosine similarity of query and head in [-1, 1]; none where query or document has no
        /// vector.
        pub cosine: Option<f64>,
        /// Raw BM25 score, at least 0, without an upper bound.
        pub bm25: f64,
        /// How many distinct terms of the query stand in the document.
        pub overlap: u32,
        /// The score that stage 1 orders by: see [`Blend::score`].
        pub blend: f64,
        /// The passage of the body that fits the query best; none where no passage shares a term.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub passage: Option<Span>,
    }
}

value! {
    /// How cosine and BM25 become one score.
    #[derive(Copy, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Blend {
        /// Weight of the cosine, at least 0; only the ratio of the weights counts.
        pub cosine_weight: f64,
        /// Weight of the bounded BM25 score, at least 0.
        pub bm25_weight: f64,
        /// The BM25 score that maps to 0.5, above 0: see [`Blend::bounded_bm25`].
        pub pivot: f64,
        /// Weight in BM25 of a term in the body, at least 0; one in the head weighs 1.
        pub body_weight: f64,
    }
}

impl Default for Blend {
    fn default() -> Self {
        Self { cosine_weight: 0.7, bm25_weight: 0.3, pivot: 8.0, body_weight: 0.2 }
    }
}

impl Blend {
    /// Fails with `out_of_range` where a weight is negative, where their sum is 0 or not finite,
    /// where `pivot` is not above 0, or where `body_weight` is negative or not finite.
    pub fn check(&self) -> Result<()> {
        let weights_fit = [self.cosine_weight, self.bm25_weight]
            .iter()
            .all(|weight| weight.is_finite() && *weight >= 0.0);
        let total = self.cosine_weight + self.bm25_weight;
        if !(weights_fit && total > 0.0 && total.is_finite()) {
            return Err(Error::input(
                "out_of_range",
                format!(
                    "the weights of the blend are cosine {} and bm25 {}: both must be at least 0 \
                     and their sum above 0 and finite",
                    self.cosine_weight, self.bm25_weight
                ),
            ));
        }
        if !(self.pivot.is_finite() && self.pivot > 0.0) {
            return Err(Error::input(
                "out_of_range",
                format!("pivot is {}: it must be above 0", self.pivot),
            ));
        }
        if !(0.0..=LARGEST).contains(&self.body_weight) {
            return Err(Error::input(
                "out_of_range",
                format!("body_weight is {}: it must be from 0 to {LARGEST:e}", self.body_weight),
            ));
        }
        Ok(())
    }

    /// Maps a BM25 score to [0, 1) by `score / (score + pivot)`.
    ///
    /// The map knows nothing of the query's other candidates. Dividing by the best score of the
    /// query instead would make the best of a hundred nonsense matches look perfect.
    pub fn bounded_bm25(&self, score: f64) -> f64 {
        score / (score + self.pivot)
    }

    /// A BM25 score below which no document without a cosine reaches a blend; a little less than
    /// the exact one, so that rounding hides none.
    pub(crate) fn least_bm25(&self, blend: f64) -> f64 {
        // Next to 1 the inverse of `bounded_bm25` magnifies what rounding took away.
        if (0.0..0.999).contains(&blend) {
            self.pivot * blend / (1.0 - blend) * (1.0 - 1e-9)
        } else {
            f64::NEG_INFINITY
        }
    }

    /// A cosine below which no document without a BM25 score reaches a blend; a little less than the
    /// exact one, so that rounding hides none.
    pub(crate) fn least_cosine(&self, blend: f64) -> f64 {
        let share = self.cosine_weight / (self.cosine_weight + self.bm25_weight);
        let least = blend / share;
        if least.is_finite() { least - 1e-9 * least.abs() } else { f64::NEG_INFINITY }
    }

    /// The weighted mean of cosine and bounded BM25, in [-1, 1]; without a cosine the latter alone.
    pub fn score(&self, cosine: Option<f64>, bm25: f64) -> f64 {
        let bounded = self.bounded_bm25(bm25);
        match cosine {
            Some(cosine) => {
                let total = self.cosine_weight + self.bm25_weight;
                (self.cosine_weight * cosine + self.bm25_weight * bounded) / total
            }
            None => bounded,
        }
    }
}

/// Higher scores first; a tie goes to the smaller id, so that no order of candidates shows through.
pub(crate) fn best_first(left: (f64, &str), right: (f64, &str)) -> Ordering {
    // Adding 0 makes 0 of -0, which is equal to it but for `total_cmp`.
    (right.0 + 0.0).total_cmp(&(left.0 + 0.0)).then_with(|| left.1.cmp(right.1))
}

/// Lets what another retriever knows stand in for what an index would: best blend first.
///
/// With `keep`, its scores are the blend as they are, and its cosines fill in where there are none.
/// Else, where every candidate has a cosine, that is blended with BM25; else, where every candidate
/// has a score, only the order of that foreign scale counts: 1 for the best, then down in equal
/// steps to 1 / n.
pub fn known_elsewhere(
    mut candidates: Vec<Scored>,
    cosines: &BTreeMap<String, f64>,
    scores: &BTreeMap<String, f64>,
    keep: bool,
    blend: &Blend,
) -> Vec<Scored> {
    let all = |known: &BTreeMap<String, f64>, of: &[Scored]| {
        of.iter().all(|one| known.contains_key(&one.id))
    };
    if keep {
        for one in &mut candidates {
            one.cosine = one.cosine.or_else(|| cosines.get(&one.id).copied());
            one.blend = scores.get(&one.id).copied().unwrap_or_default();
        }
    } else if all(cosines, &candidates) {
        for one in &mut candidates {
            one.cosine = cosines.get(&one.id).copied();
            one.blend = blend.score(one.cosine, one.bm25);
        }
    } else if all(scores, &candidates) {
        let score = |one: &Scored| scores.get(&one.id).copied().unwrap_or_default();
        candidates
            .sort_by(|left, right| best_first((score(left), &left.id), (score(right), &right.id)));
        let count = candidates.len() as f64;
        for (place, one) in candidates.iter_mut().enumerate() {
            one.blend = 1.0 - place as f64 / count;
        }
    }
    sort(&mut candidates);
    candidates
}

/// Sorts by blend, best first.
pub fn sort(candidates: &mut [Scored]) {
    candidates.sort_by(|left, right| best_first((left.blend, &left.id), (right.blend, &right.id)));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLEND: Blend =
        Blend { cosine_weight: 0.7, bm25_weight: 0.3, pivot: 5.0, body_weight: 0.5 };

    fn scored(id: &str, bm25: f64) -> Scored {
        Scored {
            id: id.to_owned(),
            bm25,
            overlap: 1,
            blend: BLEND.score(None, bm25),
            ..Scored::default()
        }
    }

    #[test]
    fn seventy_thirty() {
        assert!((BLEND.score(Some(0.5), 5.0) - (0.7 * 0.5 + 0.3 * 0.5)).abs() < 1e-15);
        assert_eq!(BLEND.score(None, 5.0), 0.5);
        assert_eq!(BLEND.score(Some(0.5), 0.0), 0.35);
    }

    #[test]
    fn another_retriever_may_know_cosines_or_an_order() {
        let candidates = || vec![scored("a", 5.0), scored("b", 0.0), scored("c", 1.0)];
        let known = |rows: &[(&str, f64)]| -> BTreeMap<String, f64> {
            rows.iter().map(|(id, value)| ((*id).to_owned(), *value)).collect()
        };
        let blends = |found: &[Scored]| -> Vec<(String, f64)> {
            found.iter().map(|one| (one.id.clone(), one.blend)).collect()
        };
        let (none, three) = (known(&[]), known(&[("a", 0.1), ("b", 0.9), ("c", 0.5)]));
        let run =
            |cosines, scores, keep| known_elsewhere(candidates(), cosines, scores, keep, &BLEND);
        // Cosines of all are blended; of some they are worth nothing.
        let found = run(&three, &none, false);
        assert_eq!(found[0].id, "b");
        assert!((found[0].blend - 0.7 * 0.9).abs() < 1e-15);
        let some = known(&[("a", 0.4)]);
        assert_eq!(run(&some, &none, false)[0].id, "a");
        // Of scores the order counts, in equal steps.
        let ranks = blends(&run(&none, &three, false));
        let third = 1.0 / 3.0;
        let expected = [("b", 1.0), ("c", 1.0 - third), ("a", 1.0 - 2.0 * third)];
        assert_eq!(ranks, expected.map(|(id, blend)| (id.to_owned(), blend)));
        // Kept scores are the blend, and cosines are there for the gate.
        let kept = run(&some, &three, true);
        assert_eq!((kept[0].id.as_str(), kept[0].blend, kept[2].cosine), ("b", 0.9, Some(0.4)));
    }

    #[test]
    fn both_zeros_tie() {
        assert_eq!(best_first((-0.0, "a"), (0.0, "b")), Ordering::Less);
        assert_eq!(best_first((0.0, "b"), (-0.0, "a")), Ordering::Greater);
        assert_eq!(best_first((0.0, "a"), (-0.0, "a")), Ordering::Equal);
        assert_eq!(best_first((f64::from_bits(1), "b"), (-0.0, "a")), Ordering::Less);
    }

    #[test]
    fn refuses_weights_that_mean_nothing() {
        for (cosine_weight, bm25_weight, pivot) in
            [(0.0, 0.0, 1.0), (-0.1, 1.0, 1.0), (f64::NAN, 1.0, 1.0), (1.0, 0.0, 0.0)]
        {
            let blend = Blend { cosine_weight, bm25_weight, pivot, ..BLEND };
            assert_eq!(blend.check().unwrap_err().code(), "out_of_range");
        }
        for body_weight in [-0.1, 1e101, f64::NAN, f64::INFINITY] {
            let blend = Blend { body_weight, ..BLEND };
            assert_eq!(blend.check().unwrap_err().code(), "out_of_range");
        }
        assert!(BLEND.check().is_ok());
    }

    proptest! {
        #[test]
        fn blend_is_bounded_and_monotone(
            cosine in -1.0..1.0_f64, bm25 in 0.0..1e6_f64, more in 0.0..1e3_f64,
        ) {
            let score = BLEND.score(Some(cosine), bm25);
            prop_assert!((-1.0..=1.0).contains(&score));
            prop_assert!(BLEND.score(Some(cosine), bm25 + more) >= score);
            prop_assert!(BLEND.score(Some((cosine + more).min(1.0)), bm25) >= score);
        }

        #[test]
        fn weights_count_by_their_ratio(cosine in -1.0..1.0_f64, bm25 in 0.0..1e3_f64) {
            let scaled = Blend { cosine_weight: 7.0, bm25_weight: 3.0, ..BLEND };
            let score = |blend: &Blend| blend.score(Some(cosine), bm25);
            prop_assert!((score(&scaled) - score(&BLEND)).abs() < 1e-12);
        }

        #[test]
        fn order_does_not_depend_on_the_order_of_candidates(
            scores in prop::collection::vec(0_i8..3, 0..9), seed in any::<u64>(),
        ) {
            let mut candidates: Vec<Scored> = scores
                .iter()
                .enumerate()
                .map(|(place, score)| Scored {
                    blend: f64::from(*score),
                    ..scored(&place.to_string(), 0.0)
                })
                .collect();
            let mut shuffled = candidates.clone();
            let rotation = if shuffled.is_empty() { 0 } else {
                usize::try_from(seed % shuffled.len() as u64).unwrap()
            };
            shuffled.rotate_left(rotation);
            sort(&mut candidates);
            sort(&mut shuffled);
            prop_assert_eq!(candidates, shuffled);
        }
    }
}
