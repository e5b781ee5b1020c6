//! Similarity of hits: near-duplicates, and orders that are relevant and diverse.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::dense::unit;
use crate::error::{Error, Kind, Result};
use crate::text::Analyzer;

/// Consecutive words of a shingle; a text with fewer words is one shingle.
const SHINGLE: usize = 3;

/// For each text, the position of an earlier text that it nearly repeats, if any.
///
/// A text is a near-duplicate of an earlier text if the Jaccard similarity of their sets of
/// three-word shingles is at least the threshold and their words with digits are equal: `merged 12`
/// and `merged 13` are different. Each text is compared with the earlier texts that are not
/// near-duplicates themselves. Similarities are exact, not estimated by hashes. A text without words
/// is never a near-duplicate.
///
/// Shingles and resemblance: Broder, "On the resemblance and containment of documents" (1997).
///
/// Fails with `out_of_range` if the threshold is not above 0 and at most 1.
///
/// # Examples
///
/// ```
/// use crossgate_core::diversity::near_duplicates;
///
/// let texts = ["The build is green again", "the build is green again!", "The build is red"];
/// assert_eq!(near_duplicates(&texts, 0.8)?, [None, Some(0), None]);
/// # Ok::<(), crossgate_core::Error>(())
/// ```
pub fn near_duplicates(texts: &[&str], threshold: f64) -> Result<Vec<Option<usize>>> {
    if !(threshold > 0.0 && threshold <= 1.0) {
        return Err(Error::out_of_range("the similarity", threshold, "above 0 and at most 1"));
    }
    let analyzer = Analyzer::new("none")?;
    let words: Vec<Vec<String>> = texts.iter().map(|text| analyzer.terms(text)).collect();
    let sets = numbered(words.iter().map(|words| -> Vec<&[String]> {
        if words.len() < SHINGLE {
            vec![words.as_slice()]
        } else {
            words.windows(SHINGLE).collect()
        }
    }));
    let numerals: Vec<Vec<&String>> = words
        .iter()
        .map(|words| {
            let mut found: Vec<&String> =
                words.iter().filter(|word| word.chars().any(char::is_numeric)).collect();
            found.sort_unstable();
            found
        })
        .collect();
    let all: Vec<_> = words.iter().zip(&sets).zip(&numerals).collect();
    let mut kept: Vec<usize> = Vec::new();
    let mut repeats = Vec::with_capacity(texts.len());
    for (position, ((words, set), numerals)) in all.iter().enumerate() {
        let earlier = kept.iter().copied().find(|other| {
            all.get(*other).is_some_and(|((_, other_set), other_numerals)| {
                numerals == other_numerals && jaccard(set, other_set) >= threshold
            })
        });
        let earlier = if words.is_empty() { None } else { earlier };
        if earlier.is_none() && !words.is_empty() {
            kept.push(position);
        }
        repeats.push(earlier);
    }
    Ok(repeats)
}

/// The content by which hits are compared.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// Texts, compared by the Jaccard similarity of their sets of words, in [0, 1].
    Words(&'a [&'a str]),
    /// Vectors of length 1, compared by their cosine, in [-1, 1].
    Vectors(&'a [Vec<f32>]),
}

/// The vectors of hits, each scaled to length 1.
///
/// Fails with `wrong_dimension`, `not_finite` or `zero_vector`; the message names the hit.
pub fn unit_vectors(ids: &[String], vectors: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
    let dimension = vectors.first().map_or(0, Vec::len);
    ids.iter()
        .zip(vectors)
        .map(|(id, vector)| unit(&format!("hit {id:?}"), vector, dimension))
        .collect()
}

/// Positions of the hits in the order of maximal marginal relevance, best first, `limit` at most.
///
/// The next hit has the largest `trade_off * relevance - (1 - trade_off) * similarity`.
/// The similarity is the largest to a hit that was chosen before, and 0 for the first hit. Ties
/// go to the more relevant hit, then to the smaller id. Carbonell and Goldstein, "The Use of MMR,
/// Diversity-Based Reranking for Reordering Documents and Producing Summaries" (1998).
///
/// Fails with `out_of_range` if the trade-off is outside of [0, 1] or if there is not one relevance
/// and one text or vector per id, and with `not_finite` for a relevance that is not finite.
///
/// # Examples
///
/// ```
/// use crossgate_core::diversity::{Content, marginal_relevance};
///
/// let ids = ["a", "b", "c"].map(str::to_owned);
/// let content = Content::Words(&["red fox", "red fox", "blue hen"]);
/// let order = marginal_relevance(&ids, &[0.9, 0.8, 0.7], &content, 0.5, 3)?;
/// assert_eq!(order, [0, 2, 1]);
/// # Ok::<(), crossgate_core::Error>(())
/// ```
pub fn marginal_relevance(
    ids: &[String],
    relevance: &[f64],
    content: &Content<'_>,
    trade_off: f64,
    limit: usize,
) -> Result<Vec<usize>> {
    if !(0.0..=1.0).contains(&trade_off) {
        return Err(Error::out_of_range("the trade-off", trade_off, "from 0 to 1"));
    }
    let contents = match content {
        Content::Words(texts) => texts.len(),
        Content::Vectors(vectors) => vectors.len(),
    };
    for (what, found) in [("scores", relevance.len()), ("texts or vectors", contents)] {
        if found != ids.len() {
            let (per, expected) = ("hits", ids.len());
            return Err(Kind::LengthMismatch { what, found, per, expected }.into());
        }
    }
    if let Some((id, value)) = ids.iter().zip(relevance).find(|(_, value)| !value.is_finite()) {
        return Err(Error::not_finite(format!("the score of {id:?}"), *value));
    }
    let words = match content {
        Content::Words(texts) => {
            let analyzer = Analyzer::new("none")?;
            numbered(texts.iter().map(|text| analyzer.terms(text)))
        }
        Content::Vectors(_) => Vec::new(),
    };
    let similarity = |left: usize, right: usize| {
        let complete = "the lengths were checked above";
        match content {
            Content::Words(_) => {
                let words = |position: usize| words.get(position).expect(complete);
                jaccard(words(left), words(right))
            }
            Content::Vectors(vectors) => {
                let vector = |position: usize| vectors.get(position).expect(complete).iter();
                let pairs = vector(left).zip(vector(right));
                pairs.map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
            }
        }
    };
    let mut open: Vec<Open<'_>> = ids
        .iter()
        .zip(relevance)
        .enumerate()
        .map(|(position, (id, relevance))| Open {
            position,
            id,
            relevance: *relevance,
            similarity: None,
        })
        .collect();
    let mut order = Vec::new();
    while order.len() < limit {
        let marginal = |hit: &Open<'_>| {
            trade_off * hit.relevance - (1.0 - trade_off) * hit.similarity.unwrap_or(0.0)
        };
        let best = open.iter().enumerate().max_by(|(_, left), (_, right)| {
            marginal(left)
                .total_cmp(&marginal(right))
                .then_with(|| left.relevance.total_cmp(&right.relevance))
                .then_with(|| right.id.cmp(left.id))
        });
        let Some((index, _)) = best else { break };
        let chosen = open.swap_remove(index).position;
        order.push(chosen);
        for hit in &mut open {
            let found = similarity(hit.position, chosen);
            hit.similarity = Some(hit.similarity.map_or(found, |most| most.max(found)));
        }
    }
    Ok(order)
}

/// A hit that has no place in the order yet.
struct Open<'a> {
    position: usize,
    id: &'a str,
    relevance: f64,
    /// The largest similarity to a hit in the order; none before the first.
    similarity: Option<f64>,
}

/// Sets as sorted lists of numbers; equal members have equal numbers.
fn numbered<T: Hash + Eq>(sets: impl Iterator<Item = Vec<T>>) -> Vec<Vec<usize>> {
    let mut numbers: HashMap<T, usize> = HashMap::new();
    sets.map(|set| {
        let found: HashSet<usize> = set
            .into_iter()
            .map(|member| {
                let next = numbers.len();
                *numbers.entry(member).or_insert(next)
            })
            .collect();
        let mut found: Vec<usize> = found.into_iter().collect();
        found.sort_unstable();
        found
    })
    .collect()
}

/// Size of the intersection over size of the union of two sorted sets, in [0, 1]; 0 if both are
/// empty.
fn jaccard(left: &[usize], right: &[usize]) -> f64 {
    let (mut left_rest, mut right_rest, mut both) = (left, right, 0_usize);
    while let ([first, left_tail @ ..], [second, right_tail @ ..]) = (left_rest, right_rest) {
        both += usize::from(first == second);
        left_rest = if first <= second { left_tail } else { left_rest };
        right_rest = if second <= first { right_tail } else { right_rest };
    }
    let either = left.len() + right.len() - both;
    if either == 0 { 0.0 } else { both as f64 / either as f64 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn naive_jaccard(left: &str, right: &str) -> f64 {
        let set = |text: &str| -> BTreeSet<String> {
            text.split_whitespace().map(str::to_lowercase).collect()
        };
        let (left, right) = (set(left), set(right));
        let either = left.union(&right).count();
        if either == 0 { 0.0 } else { left.intersection(&right).count() as f64 / either as f64 }
    }

    #[test]
    fn near_duplicates_differ_neither_in_words_nor_in_numbers() {
        let texts = [
            "The staging cluster runs on five nodes since March",
            "the staging cluster runs on five nodes, since March!",
            "The staging cluster runs on nine large machines in Oslo",
            "",
            "!?",
            "Merged pull request 12 into main today",
            "Merged pull request 13 into main today",
            "ok",
            "OK",
        ];
        let found = near_duplicates(&texts, 0.8).unwrap();
        assert_eq!(found, [None, Some(0), None, None, None, None, None, None, Some(7)]);
        for threshold in [0.0, -1.0, 1.5, f64::NAN] {
            assert_eq!(near_duplicates(&texts, threshold).unwrap_err().code(), "out_of_range");
        }
    }

    #[test]
    fn unusable_trade_offs_and_scores_are_refused() {
        let ids = ["a".to_owned()];
        let run = |relevance: &[f64], trade_off| {
            let content = Content::Words(&["x"]);
            marginal_relevance(&ids, relevance, &content, trade_off, 1).unwrap_err().code()
        };
        for trade_off in [-0.1, 1.1, f64::NAN] {
            assert_eq!(run(&[1.0], trade_off), "out_of_range");
        }
        assert_eq!(run(&[1.0, 2.0], 0.5), "out_of_range");
        assert_eq!(run(&[f64::NAN], 0.5), "not_finite");
    }

    proptest! {
        #[test]
        fn marginal_relevance_equals_its_definition(
            rows in prop::collection::vec((0_u8..4, "[abc ]{0,8}"), 0..8),
            trade_off in 0.0_f64..=1.0, limit in 0_usize..9,
        ) {
            let ids: Vec<String> = (0..rows.len()).map(|place| format!("{place}")).collect();
            let relevance: Vec<f64> = rows.iter().map(|(value, _)| f64::from(*value) / 4.0).collect();
            let texts: Vec<&str> = rows.iter().map(|(_, text)| text.as_str()).collect();
            let found = marginal_relevance(
                &ids, &relevance, &Content::Words(&texts), trade_off, limit,
            ).unwrap();
            let mut expected: Vec<usize> = Vec::new();
            while expected.len() < limit.min(rows.len()) {
                let value = |place: usize| {
                    let nearest = expected.iter()
                        .map(|other| naive_jaccard(texts[place], texts[*other])).fold(0.0, f64::max);
                    trade_off * relevance[place] - (1.0 - trade_off) * nearest
                };
                let open = (0..rows.len()).filter(|place| !expected.contains(place));
                let next = open.reduce(|best, place| {
                    let (left, right) = (value(best), value(place));
                    let better = right > left || (right == left && relevance[place] > relevance[best]);
                    if better { place } else { best }
                }).unwrap();
                expected.push(next);
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn marginal_relevance_does_not_depend_on_the_order_of_the_hits(
            rows in prop::collection::vec((0_u8..3, "[abc ]{0,6}"), 1..8), turn in 0_usize..8,
        ) {
            let run = |rows: &[(String, f64, String)]| -> Vec<String> {
                let ids: Vec<String> = rows.iter().map(|row| row.0.clone()).collect();
                let relevance: Vec<f64> = rows.iter().map(|row| row.1).collect();
                let texts: Vec<&str> = rows.iter().map(|row| row.2.as_str()).collect();
                let content = Content::Words(&texts);
                let order = marginal_relevance(&ids, &relevance, &content, 0.7, rows.len()).unwrap();
                order.into_iter().map(|place| ids[place].clone()).collect()
            };
            let rows: Vec<(String, f64, String)> = rows.into_iter().enumerate()
                .map(|(place, (value, text))| (place.to_string(), f64::from(value), text)).collect();
            let mut turned = rows.clone();
            turned.rotate_left(turn % rows.len());
            prop_assert_eq!(run(&rows), run(&turned));
        }

        #[test]
        fn with_a_trade_off_of_1_the_order_is_that_of_relevance(
            relevance in prop::collection::vec(-3.0_f64..3.0, 1..9),
        ) {
            let ids: Vec<String> = (0..relevance.len()).map(|place| place.to_string()).collect();
            let vectors = vec![vec![1.0_f32]; relevance.len()];
            let order = marginal_relevance(
                &ids, &relevance, &Content::Vectors(&vectors), 1.0, relevance.len(),
            ).unwrap();
            prop_assert!(order.windows(2).all(|pair| relevance[pair[0]] >= relevance[pair[1]]));
        }

        #[test]
        fn near_duplicates_equal_those_of_a_naive_search(
            texts in prop::collection::vec("[ab]( [ab]){0,5}", 0..8), threshold in 0.1_f64..1.0,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let shingles = |text: &str| -> BTreeSet<String> {
                let words: Vec<&str> = text.split_whitespace().collect();
                if words.len() < SHINGLE { return [words.join(" ")].into(); }
                words.windows(SHINGLE).map(|some| some.join(" ")).collect()
            };
            let found = near_duplicates(&texts, threshold).unwrap();
            for (place, earlier) in found.iter().enumerate() {
                let first = (0..place).filter(|other| found[*other].is_none()).find(|other| {
                    let (left, right) = (shingles(texts[place]), shingles(texts[*other]));
                    let both = left.intersection(&right).count() as f64;
                    both / left.union(&right).count() as f64 >= threshold
                });
                prop_assert_eq!(*earlier, first);
            }
        }
    }
}
