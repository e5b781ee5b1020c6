//! What two hits have in common: near-duplicates, and an order that is relevant without repeating.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::dense::unit;
use crate::error::{Error, Result};
use crate::text::Analyzer;

/// Words that stand side by side in one shingle; texts with fewer words are one shingle.
const SHINGLE: usize = 3;

/// For each text the position of the earlier one that it nearly repeats, or none.
///
/// A text repeats an earlier one where the Jaccard similarity of their sets of three-word shingles
/// is at least the threshold, and where all of their words with digits are the same: `merged 12` and
/// `merged 13` are two messages. Texts are compared with those before that repeat none, each pair
/// exactly; no hashing, so the outcome is no estimate. Texts without words repeat nothing.
///
/// Shingles and their resemblance: Broder, "On the resemblance and containment of documents" (1997).
///
/// Fails with `out_of_range` where the threshold is not above 0 and at most 1.
pub fn near_duplicates(texts: &[&str], threshold: f64) -> Result<Vec<Option<usize>>> {
    if !(threshold > 0.0 && threshold <= 1.0) {
        return Err(Error::input(
            "out_of_range",
            format!("the similarity is {threshold}: it must be above 0 and at most 1"),
        ));
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
    for (place, ((words, set), numerals)) in all.iter().enumerate() {
        let earlier = kept.iter().copied().find(|other| {
            all.get(*other).is_some_and(|((_, other_set), other_numerals)| {
                numerals == other_numerals && jaccard(set, other_set) >= threshold
            })
        });
        let earlier = if words.is_empty() { None } else { earlier };
        if earlier.is_none() && !words.is_empty() {
            kept.push(place);
        }
        repeats.push(earlier);
    }
    Ok(repeats)
}

/// What two hits are compared by.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// The Jaccard similarity of their sets of words, in [0, 1].
    Words(&'a [&'a str]),
    /// The cosine of their vectors, all of length 1, in [-1, 1].
    Vectors(&'a [Vec<f32>]),
}

/// The vectors of hits, each scaled to length 1.
///
/// Fails with `wrong_dimension` where two differ in length, and with `not_finite` and `zero_vector`,
/// naming the hit.
pub fn unit_vectors(ids: &[String], vectors: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
    let dimension = vectors.first().map_or(0, Vec::len);
    ids.iter()
        .zip(vectors)
        .map(|(id, vector)| {
            if vector.len() == dimension {
                return unit(&format!("hit {id:?}"), vector, dimension);
            }
            Err(Error::input(
                "wrong_dimension",
                format!(
                    "the vector of hit {id:?} has {} numbers, that of the first {dimension}: \
                     embed all with the same model",
                    vector.len()
                ),
            ))
        })
        .collect()
}

/// An order in which each next hit is relevant and unlike those before: positions, best first.
///
/// Maximal marginal relevance: the next is the one with the largest
/// `trade_off * relevance - (1 - trade_off) * similarity`, where the similarity is the largest to
/// any that stands already, and 0 for the first. Ties go to the more relevant, then to the smaller
/// id. Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking for Reordering Documents
/// and Producing Summaries" (1998).
///
/// Fails with `out_of_range` where the trade-off is outside of [0, 1] or where there is not one
/// relevance and one text or vector per id, and with `not_finite` for a relevance that is no number.
pub fn marginal_relevance(
    ids: &[String],
    relevance: &[f64],
    content: &Content<'_>,
    trade_off: f64,
    limit: usize,
) -> Result<Vec<usize>> {
    if !(0.0..=1.0).contains(&trade_off) {
        return Err(Error::input(
            "out_of_range",
            format!("the trade-off is {trade_off}: it must be between 0 and 1"),
        ));
    }
    let contents = match content {
        Content::Words(texts) => texts.len(),
        Content::Vectors(vectors) => vectors.len(),
    };
    if relevance.len() != ids.len() || contents != ids.len() {
        return Err(Error::input(
            "out_of_range",
            format!("{} ids, {} scores, {contents} contents", ids.len(), relevance.len()),
        ));
    }
    if let Some((id, value)) = ids.iter().zip(relevance).find(|(_, value)| !value.is_finite()) {
        return Err(Error::input(
            "not_finite",
            format!("the score of {id:?} is {value}: it must be finite"),
        ));
    }
    let words = match content {
        Content::Words(texts) => {
            let analyzer = Analyzer::new("none")?;
            numbered(texts.iter().map(|text| analyzer.terms(text)))
        }
        Content::Vectors(_) => Vec::new(),
    };
    let similarity = |left: usize, right: usize| match content {
        Content::Words(_) => words.get(left).zip(words.get(right)).map(|(l, r)| jaccard(l, r)),
        Content::Vectors(vectors) => vectors.get(left).zip(vectors.get(right)).map(|(l, r)| {
            l.iter().zip(r).map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
        }),
    };
    let mut open: Vec<(usize, &String, f64, Option<f64>)> = ids
        .iter()
        .zip(relevance)
        .enumerate()
        .map(|(place, (id, relevance))| (place, id, *relevance, None))
        .collect();
    let mut order = Vec::new();
    while order.len() < limit {
        let marginal = |relevance: f64, nearest: Option<f64>| {
            trade_off * relevance - (1.0 - trade_off) * nearest.unwrap_or_default()
        };
        let best = open.iter().enumerate().max_by(|(_, left), (_, right)| {
            marginal(left.2, left.3)
                .total_cmp(&marginal(right.2, right.3))
                .then_with(|| left.2.total_cmp(&right.2))
                .then_with(|| right.1.cmp(left.1))
        });
        let Some((at, (place, ..))) = best.map(|(at, one)| (at, *one)) else { break };
        order.push(place);
        open.swap_remove(at);
        for (other, _, _, nearest) in &mut open {
            let found = similarity(*other, place).unwrap_or_default();
            *nearest = Some(nearest.map_or(found, |nearest: f64| nearest.max(found)));
        }
    }
    Ok(order)
}

/// Sets of anything as sorted lists of numbers, the same number for the same thing.
fn numbered<T: Hash + Eq>(sets: impl Iterator<Item = Vec<T>>) -> Vec<Vec<usize>> {
    let mut numbers: HashMap<T, usize> = HashMap::new();
    sets.map(|set| {
        let found: HashSet<usize> = set
            .into_iter()
            .map(|one| {
                let next = numbers.len();
                *numbers.entry(one).or_insert(next)
            })
            .collect();
        let mut found: Vec<usize> = found.into_iter().collect();
        found.sort_unstable();
        found
    })
    .collect()
}

/// |both| / |either| of two sorted sets, in [0, 1]; two empty sets have nothing in common.
fn jaccard(left: &[usize], right: &[usize]) -> f64 {
    let (mut rest, mut others, mut both) = (left, right, 0_usize);
    while let ([one, ones @ ..], [other, more @ ..]) = (rest, others) {
        both += usize::from(one == other);
        if one <= other {
            rest = ones;
        }
        if other <= one {
            others = more;
        }
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
    fn only_repetitions_are_found() {
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
    fn refuses_what_has_no_order() {
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
        fn equals_the_definition(
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
        fn the_order_of_the_hits_does_not_show(
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
        fn without_diversity_it_is_the_order_of_relevance(
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
        fn what_repeats_is_as_similar_as_it_must_be(
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
