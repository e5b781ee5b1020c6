//! Signals: the numbers that the gate and the probability models read from scores.

use std::borrow::Borrow;

use crate::error::{Error, Kind, Result};
use crate::json::value;
use crate::stage1::{Scored, best_first};

value! {
    /// Signals of stage 1.
    #[derive(Copy, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Signals {
        /// The best cosine; none if no candidate has a cosine.
        pub cosine: Option<f64>,
        /// Difference between the best cosine and the next; 0 if there is only one.
        pub cosine_margin: f64,
        /// The best BM25 score.
        pub bm25: f64,
        /// Difference between the best BM25 score and the next; 0 if there is only one.
        pub bm25_margin: f64,
        /// Number of distinct query terms in the candidate with the best BM25 score.
        pub overlap: u32,
        /// The best blend.
        pub blend: f64,
        /// Difference between the best blend and the next; 0 if there is only one.
        pub margin: f64,
        /// Whether the same candidate is best by cosine, by BM25 and by blend, and shares a term
        /// with the query. A blend from elsewhere, such as of ranks and age, can have another best
        /// candidate.
        pub agreement: bool,
        /// Number of documents that stage 1 compared with the query, at least the candidates.
        pub documents: usize,
        /// Probability that the query needs any document, in [0, 1]; none if it was not estimated.
        pub needs_document: Option<f64>,
    }
}

value! {
    /// Signals that stage 2 adds.
    #[derive(Copy, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Stage2Signals {
        /// The rerank score of the candidate with the best combined score.
        pub rerank_score: f64,
        /// Difference between the best combined score and the next; 0 if there is only one.
        pub score_margin: f64,
        /// Whether the best candidate of stage 1 also has the best combined score.
        pub same_first: bool,
    }
}

/// The signals of candidates in any order; none without candidates.
///
/// Fails with `not_finite` if a score is not finite.
///
/// # Examples
///
/// ```
/// use crossgate_core::signals::signals;
/// use crossgate_core::stage1::Scored;
///
/// let scored = |id: &str, cosine: f64, bm25: f64| Scored {
///     id: id.to_owned(),
///     cosine: Some(cosine),
///     bm25,
///     blend: cosine,
///     ..Scored::default()
/// };
/// let candidates = [scored("csv", 0.25, 0.0), scored("pdf", 0.5, 3.5)];
/// let signals = signals(&candidates)?.unwrap();
/// assert_eq!((signals.cosine, signals.cosine_margin, signals.bm25), (Some(0.5), 0.25, 3.5));
/// assert!(signals.agreement);
/// # Ok::<(), crossgate_core::Error>(())
/// ```
pub fn signals<T: Borrow<Scored>>(candidates: &[T]) -> Result<Option<Signals>> {
    let candidates: Vec<&Scored> = candidates.iter().map(Borrow::borrow).collect();
    for candidate in &candidates {
        let scores = [candidate.cosine.unwrap_or_default(), candidate.bm25, candidate.blend];
        let mut scores = scores.into_iter().chain(candidate.evidence.values());
        if let Some(score) = scores.find(|score| !score.is_finite()) {
            let name = format!("a stage-1 score of {:?}", candidate.id);
            return Err(Error::not_finite(name, score));
        }
    }
    let cosine = best(&candidates, |scored| scored.cosine);
    let bm25 = best(&candidates, |scored| Some(scored.bm25));
    let blend = best(&candidates, |scored| Some(scored.blend));
    Ok(bm25.zip(blend).map(|(bm25, blend)| Signals {
        cosine: cosine.map(|best| best.score),
        cosine_margin: cosine.map_or(0.0, |best| best.margin),
        bm25: bm25.score,
        bm25_margin: bm25.margin,
        overlap: bm25.candidate.overlap,
        blend: blend.score,
        margin: blend.margin,
        agreement: bm25.score > 0.0
            && blend.candidate.id == bm25.candidate.id
            && cosine.is_some_and(|best| best.candidate.id == bm25.candidate.id),
        documents: candidates.len(),
        needs_document: None,
    }))
}

/// A candidate that stage 2 has read, with its raw rerank score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reranked<'a> {
    /// The candidate of stage 1.
    pub candidate: &'a Scored,
    /// The raw score of the reranker.
    pub rerank_score: f64,
}

impl<'a> Reranked<'a> {
    /// Candidates with their scores.
    ///
    /// Fails with `out_of_range` if there is not one score per candidate.
    pub fn zip(candidates: &'a [Scored], rerank_scores: &[f64]) -> Result<Vec<Self>> {
        let (found, expected) = (rerank_scores.len(), candidates.len());
        if found != expected {
            let (what, per) = ("rerank scores", "candidates");
            return Err(Kind::LengthMismatch { what, found, per, expected }.into());
        }
        let pairs = candidates.iter().zip(rerank_scores);
        Ok(pairs.map(|(candidate, score)| Self { candidate, rerank_score: *score }).collect())
    }
}

/// The signals that stage 2 adds; none without candidates. `scores` are the combined scores.
pub fn stage2_signals(reranked: &[Reranked<'_>], scores: &[f64]) -> Option<Stage2Signals> {
    let mut ranked: Vec<(f64, &Reranked<'_>)> = scores.iter().copied().zip(reranked).collect();
    ranked.sort_by(|(left_score, left), (right_score, right)| {
        best_first((*left_score, &left.candidate.id), (*right_score, &right.candidate.id))
    });
    let (best, Reranked { candidate: first, rerank_score }) = *ranked.first()?;
    let is_before = |other: &Reranked<'_>| {
        let Scored { id, blend, .. } = other.candidate;
        best_first((first.blend, &first.id), (*blend, id)).is_le()
    };
    Some(Stage2Signals {
        rerank_score: *rerank_score,
        score_margin: ranked.get(1).map_or(0.0, |(next, _)| best - next),
        same_first: reranked.iter().all(is_before),
    })
}

/// The best candidate by a score.
#[derive(Clone, Copy)]
struct Best<'a> {
    candidate: &'a Scored,
    score: f64,
    margin: f64,
}

fn best<'a>(candidates: &[&'a Scored], score: impl Fn(&Scored) -> Option<f64>) -> Option<Best<'a>> {
    let mut ranked: Vec<(f64, &Scored)> =
        candidates.iter().filter_map(|scored| Some((score(scored)?, *scored))).collect();
    ranked.sort_by(|(left_score, left), (right_score, right)| {
        best_first((*left_score, &left.id), (*right_score, &right.id))
    });
    let (score, candidate) = *ranked.first()?;
    Some(Best { candidate, score, margin: ranked.get(1).map_or(0.0, |(next, _)| score - next) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(id: &str, blend: f64) -> Scored {
        Scored { id: id.to_owned(), cosine: Some(0.0), blend, ..Scored::default() }
    }

    #[test]
    fn agreement_includes_the_blend() {
        let scored = |id: &str, cosine, bm25, blend| Scored {
            id: id.to_owned(),
            cosine: Some(cosine),
            bm25,
            overlap: 1,
            blend,
            ..Scored::default()
        };
        let mut candidates = [scored("a", 0.6, 7.0, 0.6), scored("b", 0.4, 1.0, 0.3)];
        assert!(signals(&candidates).unwrap().unwrap().agreement);
        // For example a blend that includes age, where the best match is out of date.
        candidates[1].blend = 0.95;
        assert!(!signals(&candidates).unwrap().unwrap().agreement);
    }

    #[test]
    fn stage_2_signals_describe_the_best_combined_score() {
        let candidates = [scored("a", 0.9), scored("b", 0.5), scored("c", 0.9)];
        let read = |rerank_scores: [f64; 3], scores: [f64; 3]| {
            stage2_signals(&Reranked::zip(&candidates, &rerank_scores).unwrap(), &scores).unwrap()
        };
        let found = read([1.0, 7.0, 2.0], [0.2, 0.8, 0.5]);
        assert_eq!(found.rerank_score, 7.0);
        assert!((found.score_margin - 0.3).abs() < 1e-15);
        assert!(!found.same_first);
        // "a" and "c" have equal blends, and the smaller id is first.
        assert!(read([1.0; 3], [1.0, 0.0, 0.5]).same_first);
        assert!(!read([1.0; 3], [0.5, 0.0, 1.0]).same_first);
        assert_eq!(stage2_signals(&[], &[]), None);
        let alone = Reranked::zip(&candidates[..1], &[1.0]).unwrap();
        let alone = stage2_signals(&alone, &[3.0]).unwrap();
        assert_eq!((alone.score_margin, alone.same_first), (0.0, true));
    }
}
