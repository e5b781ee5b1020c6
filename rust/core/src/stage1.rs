//! Stage 1: cosine and BM25 of each candidate, blended into one score, best first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::checks::Range;
use crate::error::{Kind, Result};
use crate::evidence::Evidence;
use crate::json::value;

value! {
    /// A part of a document's body, in characters.
    #[derive(Copy, PartialEq, Eq)]
    #[serde(deny_unknown_fields)]
    pub struct Span {
        /// Its first character, from 0.
        pub start: u32,
        /// The character after its last character.
        pub end: u32,
    }
}

value! {
    /// The share of a query that a document covers; each number is in [0, 1].
    #[derive(Copy, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Coverage {
        /// Share of the query's information: the weights of the words that occur in the document
        /// by the weights of all words; 1 for a query without weighted words.
        pub covered: f64,
        /// 1 minus the information of the rarest word that the document lacks; 1 if it has all.
        pub rarest: f64,
        /// Share of the query's names, numbers, dates and versions that occur in the document; 1 for
        /// a query without any.
        pub facts: f64,
    }
}

value! {
    /// One candidate with its stage-1 scores.
    #[derive(Default, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Scored {
        /// Id of the document.
        pub id: String,
        /// Cosine similarity of query and head in [-1, 1]; none if query or document has no vector.
        pub cosine: Option<f64>,
        /// Raw BM25 score, at least 0 and unbounded.
        pub bm25: f64,
        /// Number of distinct query terms in the document.
        pub overlap: u32,
        /// The score of stage 1: see [`Blend::score`].
        pub blend: f64,
        /// The passage of the body that matches the query best; none if no passage shares a term.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub passage: Option<Span>,
        /// Share of the query that the text for stage 2 covers; none if it was not computed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub coverage: Option<Coverage>,
        /// Evidence beside the scores.
        #[serde(default, skip_serializing_if = "Evidence::is_none")]
        pub evidence: Evidence,
        /// Whether the query names the document exactly, so that it alone is selected.
        #[serde(default, skip_serializing_if = "is_false")]
        pub is_named: bool,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

value! {
    /// How cosine and BM25 are combined into one score.
    #[derive(Copy, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Blend {
        /// Weight of the cosine, at least 0; only the ratio of the weights counts.
        pub cosine_weight: f64,
        /// Weight of the bounded BM25 score, at least 0.
        pub bm25_weight: f64,
        /// The BM25 score that is mapped to 0.5, above 0: see [`Blend::bounded_bm25`].
        pub pivot: f64,
        /// Weight in BM25 of a term in the body, at least 0; that of a term in the head is 1.
        pub body_weight: f64,
        /// Log-odds that a difference of 1 in the score stands for, above 0: the unit in which
        /// evidence is added to the score.
        pub log_odds: f64,
    }
}

impl Default for Blend {
    fn default() -> Self {
        Self { cosine_weight: 0.7, bm25_weight: 0.3, pivot: 8.0, body_weight: 0.2, log_odds: 35.0 }
    }
}

impl Blend {
    /// Fails with `out_of_range` if a weight is negative, if their sum is 0 or not finite, if `pivot`
    /// or `log_odds` is not above 0 and finite, or if `body_weight` is not from 0 to 1e100.
    pub fn check(&self) -> Result<()> {
        let weights_fit = [self.cosine_weight, self.bm25_weight]
            .iter()
            .all(|weight| weight.is_finite() && *weight >= 0.0);
        let total = self.cosine_weight + self.bm25_weight;
        if !(weights_fit && total > 0.0 && total.is_finite()) {
            let (cosine, bm25) = (self.cosine_weight, self.bm25_weight);
            return Err(Kind::BlendWeights { cosine, bm25 }.into());
        }
        Range::Positive.check("pivot", self.pivot)?;
        Range::NotNegative.check("body_weight", self.body_weight)?;
        Range::Positive.check("log_odds", self.log_odds)
    }

    /// Maps a BM25 score to [0, 1) by `score / (score + pivot)`.
    ///
    /// The result does not depend on the query's other candidates. Division by the best score of the
    /// query would give 1 to the best candidate even if all match badly.
    pub fn bounded_bm25(&self, score: f64) -> f64 {
        score / (score + self.pivot)
    }

    /// The least BM25 score with which a document without a cosine reaches a blend, lowered slightly
    /// so that rounding excludes no document.
    pub(crate) fn least_bm25(&self, blend: f64) -> f64 {
        // Close to 1, the inverse of `bounded_bm25` magnifies rounding errors.
        if (0.0..0.999).contains(&blend) {
            self.pivot * blend / (1.0 - blend) * (1.0 - 1e-9)
        } else {
            f64::NEG_INFINITY
        }
    }

    /// The least cosine with which a document without a BM25 score reaches a blend, lowered slightly
    /// so that rounding excludes no document.
    pub(crate) fn least_cosine(&self, blend: f64) -> f64 {
        let share = self.cosine_weight / (self.cosine_weight + self.bm25_weight);
        let least = blend / share;
        if least.is_finite() { least - 1e-9 * least.abs() } else { f64::NEG_INFINITY }
    }

    /// The weighted mean of cosine and bounded BM25, in [-1, 1]; without a cosine, the bounded BM25.
    ///
    /// # Examples
    ///
    /// ```
    /// use crossgate_core::stage1::Blend;
    ///
    /// let blend =
    ///     Blend { cosine_weight: 0.75, bm25_weight: 0.25, pivot: 5.0, ..Blend::default() };
    /// assert_eq!(blend.score(Some(0.5), 5.0), 0.5); // 0.75 * 0.5 + 0.25 * 5 / (5 + 5)
    /// assert_eq!(blend.score(None, 15.0), 0.75);
    /// ```
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

/// Higher scores first. Ties go to the smaller id, so that the result does not depend on the order of
/// the candidates.
pub(crate) fn best_first(left: (f64, &str), right: (f64, &str)) -> Ordering {
    // Adding 0 turns -0 into 0; `total_cmp` would order them.
    (right.0 + 0.0).total_cmp(&(left.0 + 0.0)).then_with(|| left.1.cmp(right.1))
}

/// Uses scores of another retriever in stage 1; returns the candidates best blend first.
///
/// With `keep`, the scores become the blends, and cosines are added to candidates without a cosine.
/// Otherwise, if every candidate has a cosine, it is blended with BM25. Otherwise, if every candidate
/// has a score, the blend is its rank on a linear scale: 1 for the best, down to 1 / n for the last,
/// because the scale of the scores is unknown.
pub fn with_external_scores(
    mut candidates: Vec<Scored>,
    cosines: &BTreeMap<String, f64>,
    scores: &BTreeMap<String, f64>,
    keep: bool,
    blend: &Blend,
) -> Vec<Scored> {
    let all = |known: &BTreeMap<String, f64>, candidates: &[Scored]| {
        candidates.iter().all(|candidate| known.contains_key(&candidate.id))
    };
    if keep {
        for candidate in &mut candidates {
            let cosine = cosines.get(&candidate.id).copied();
            candidate.cosine = candidate.cosine.or(cosine);
            candidate.blend = scores.get(&candidate.id).copied().unwrap_or_default();
        }
    } else if all(cosines, &candidates) {
        for candidate in &mut candidates {
            candidate.cosine = cosines.get(&candidate.id).copied();
            candidate.blend = blend.score(candidate.cosine, candidate.bm25);
        }
    } else if all(scores, &candidates) {
        let score = |candidate: &Scored| {
            *scores.get(&candidate.id).expect("`all` found a score for each candidate")
        };
        candidates
            .sort_by(|left, right| best_first((score(left), &left.id), (score(right), &right.id)));
        let count = candidates.len() as f64;
        for (position, candidate) in candidates.iter_mut().enumerate() {
            candidate.blend = 1.0 - position as f64 / count;
        }
    }
    sort(&mut candidates);
    candidates
}

/// Sorts by blend, best first, with the documents that the query names before all others.
pub fn sort(candidates: &mut [Scored]) {
    candidates.sort_by(|left, right| {
        let named = right.is_named.cmp(&left.is_named);
        named.then_with(|| best_first((left.blend, &left.id), (right.blend, &right.id)))
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLEND: Blend = Blend {
        cosine_weight: 0.7,
        bm25_weight: 0.3,
        pivot: 5.0,
        body_weight: 0.5,
        log_odds: 30.0,
    };

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
    fn the_blend_is_the_weighted_mean() {
        assert!((BLEND.score(Some(0.5), 5.0) - (0.7 * 0.5 + 0.3 * 0.5)).abs() < 1e-15);
        assert_eq!(BLEND.score(None, 5.0), 0.5);
        assert_eq!(BLEND.score(Some(0.5), 0.0), 0.35);
    }

    #[test]
    fn cosines_or_scores_of_another_retriever_become_blends() {
        let candidates = || vec![scored("a", 5.0), scored("b", 0.0), scored("c", 1.0)];
        let known = |rows: &[(&str, f64)]| -> BTreeMap<String, f64> {
            rows.iter().map(|(id, value)| ((*id).to_owned(), *value)).collect()
        };
        let blends = |found: &[Scored]| -> Vec<(String, f64)> {
            found.iter().map(|of| (of.id.clone(), of.blend)).collect()
        };
        let (none, three) = (known(&[]), known(&[("a", 0.1), ("b", 0.9), ("c", 0.5)]));
        let run = |cosines, scores, keep| {
            with_external_scores(candidates(), cosines, scores, keep, &BLEND)
        };
        // Cosines are blended if every candidate has one, and ignored otherwise.
        let found = run(&three, &none, false);
        assert_eq!(found[0].id, "b");
        assert!((found[0].blend - 0.7 * 0.9).abs() < 1e-15);
        let some = known(&[("a", 0.4)]);
        assert_eq!(run(&some, &none, false)[0].id, "a");
        // Only the order of the scores counts, in equal steps.
        let ranks = blends(&run(&none, &three, false));
        let third = 1.0 / 3.0;
        let expected = [("b", 1.0), ("c", 1.0 - third), ("a", 1.0 - 2.0 * third)];
        assert_eq!(ranks, expected.map(|(id, blend)| (id.to_owned(), blend)));
        // With `keep`, the scores are the blends, and cosines are kept for the gate.
        let kept = run(&some, &three, true);
        assert_eq!((kept[0].id.as_str(), kept[0].blend, kept[2].cosine), ("b", 0.9, Some(0.4)));
    }

    #[test]
    fn zero_and_negative_zero_tie() {
        assert_eq!(best_first((-0.0, "a"), (0.0, "b")), Ordering::Less);
        assert_eq!(best_first((0.0, "b"), (-0.0, "a")), Ordering::Greater);
        assert_eq!(best_first((0.0, "a"), (-0.0, "a")), Ordering::Equal);
        assert_eq!(best_first((f64::from_bits(1), "b"), (-0.0, "a")), Ordering::Less);
    }

    #[test]
    fn unusable_weights_are_refused() {
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
        fn the_blend_is_bounded_and_monotone(
            cosine in -1.0..1.0_f64, bm25 in 0.0..1e6_f64, more in 0.0..1e3_f64,
        ) {
            let score = BLEND.score(Some(cosine), bm25);
            prop_assert!((-1.0..=1.0).contains(&score));
            prop_assert!(BLEND.score(Some(cosine), bm25 + more) >= score);
            prop_assert!(BLEND.score(Some((cosine + more).min(1.0)), bm25) >= score);
        }

        #[test]
        fn only_the_ratio_of_the_weights_counts(cosine in -1.0..1.0_f64, bm25 in 0.0..1e3_f64) {
            let scaled = Blend { cosine_weight: 7.0, bm25_weight: 3.0, ..BLEND };
            let score = |blend: &Blend| blend.score(Some(cosine), bm25);
            prop_assert!((score(&scaled) - score(&BLEND)).abs() < 1e-12);
        }

        #[test]
        fn sorting_does_not_depend_on_the_order_of_candidates(
            scores in prop::collection::vec(0_i8..3, 0..9), seed in any::<u64>(),
        ) {
            let mut candidates: Vec<Scored> = scores
                .iter()
                .enumerate()
                .map(|(position, score)| Scored {
                    blend: f64::from(*score),
                    ..scored(&position.to_string(), 0.0)
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
