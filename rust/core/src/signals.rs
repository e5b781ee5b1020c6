//! What the gate and the confidence models look at, read off the scores.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::json::value;
use crate::stage1::{Scored, best_first};

value! {
    /// What stage 1 shows of a query.
    #[derive(Copy, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Signals {
        /// The best cosine; none where no candidate has one.
        pub cosine: Option<f64>,
        /// The lead of the best cosine over the next; 0 without a next.
        pub cosine_lead: f64,
        /// The best BM25 score.
        pub bm25: f64,
        /// The lead of the best BM25 score over the next; 0 without a next.
        pub bm25_lead: f64,
        /// Distinct query terms in the candidate with the best BM25 score.
        pub overlap: u32,
        /// The best blend.
        pub blend: f64,
        /// The lead of the best blend over the next; 0 without a next.
        pub lead: f64,
        /// Whether one candidate is best by cosine, by BM25 and by blend, and shares a term with
        /// the query. A blend that was made of something else, such as ranks and age, may name
        /// another.
        pub agreement: bool,
        /// How probable it is that the query asks for anything that a document could serve, in
        /// [0, 1]; none where nobody asked.
        pub need: Option<f64>,
    }
}

value! {
    /// What stage 2 adds to it.
    #[derive(Copy, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub struct Reading {
        /// The rerank score of the candidate with the best combined score.
        pub rerank_score: f64,
        /// The lead of the best combined score over the next; 0 without a next.
        pub score_lead: f64,
        /// Whether the best candidate of stage 1 has the best combined score too.
        pub same_first: bool,
    }
}

/// Reads the signals off the candidates, or none where there are no candidates; their order does
/// not matter.
///
/// Fails with `not_finite` where a score is not finite.
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
        cosine: cosine.map(|best| best.score),
        cosine_lead: cosine.map_or(0.0, |best| best.lead),
        bm25: bm25.score,
        bm25_lead: bm25.lead,
        overlap: bm25.of.overlap,
        blend: blend.score,
        lead: blend.lead,
        agreement: bm25.score > 0.0
            && blend.of.id == bm25.of.id
            && cosine.is_some_and(|best| best.of.id == bm25.of.id),
        need: None,
    }))
}

/// Reads off what stage 2 adds, or none without candidates; their order does not matter.
///
/// `rerank_scores` and `scores` hold one number per candidate: the raw score and the combined one.
pub fn reading(candidates: &[&Scored], rerank_scores: &[f64], scores: &[f64]) -> Option<Reading> {
    let mut read: Vec<(f64, &Scored, f64)> = candidates
        .iter()
        .zip(rerank_scores)
        .zip(scores)
        .map(|((one, raw), score)| (*score, *one, *raw))
        .collect();
    read.sort_by(|left, right| best_first((left.0, &left.1.id), (right.0, &right.1.id)));
    let (best, first, rerank_score) = *read.first()?;
    Some(Reading {
        rerank_score,
        score_lead: read.get(1).map_or(0.0, |(next, ..)| best - next),
        same_first: candidates
            .iter()
            .all(|one| best_first((first.blend, &first.id), (one.blend, &one.id)).is_le()),
    })
}

#[derive(Clone, Copy)]
struct Best<'a> {
    of: &'a Scored,
    score: f64,
    lead: f64,
}

fn lead(candidates: &[Scored], score: impl Fn(&Scored) -> Option<f64>) -> Option<Best<'_>> {
    let mut scored: Vec<(f64, &Scored)> =
        candidates.iter().filter_map(|one| score(one).map(|score| (score, one))).collect();
    scored.sort_by(|left, right| best_first((left.0, &left.1.id), (right.0, &right.1.id)));
    match scored.as_slice() {
        [(first, of), (second, _), ..] => Some(Best { of, score: *first, lead: first - second }),
        [(first, of)] => Some(Best { of, score: *first, lead: 0.0 }),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(id: &str, blend: f64) -> Scored {
        Scored { id: id.to_owned(), cosine: Some(0.0), blend, ..Scored::default() }
    }

    #[test]
    fn agreement_asks_the_blend_too() {
        let one = |id: &str, cosine, bm25, blend| Scored {
            id: id.to_owned(),
            cosine: Some(cosine),
            bm25,
            overlap: 1,
            blend,
            ..Scored::default()
        };
        let mut candidates = [one("a", 0.6, 7.0, 0.6), one("b", 0.4, 1.0, 0.3)];
        assert!(signals(&candidates).unwrap().unwrap().agreement);
        // As where age makes the blend: what is best by meaning and words may be out of date.
        candidates[1].blend = 0.95;
        assert!(!signals(&candidates).unwrap().unwrap().agreement);
    }

    #[test]
    fn a_reading_is_about_the_best_score() {
        let candidates = [scored("a", 0.9), scored("b", 0.5), scored("c", 0.9)];
        let refs: Vec<&Scored> = candidates.iter().collect();
        let found = reading(&refs, &[1.0, 7.0, 2.0], &[0.2, 0.8, 0.5]).unwrap();
        assert_eq!(found.rerank_score, 7.0);
        assert!((found.score_lead - 0.3).abs() < 1e-15);
        assert!(!found.same_first);
        // Of two equal blends the smaller id is first.
        assert!(reading(&refs, &[1.0, 1.0, 1.0], &[1.0, 0.0, 0.5]).unwrap().same_first);
        assert!(!reading(&refs, &[1.0, 1.0, 1.0], &[0.5, 0.0, 1.0]).unwrap().same_first);
        assert_eq!(reading(&[], &[], &[]), None);
        let alone = reading(&refs[..1], &[1.0], &[3.0]).unwrap();
        assert_eq!((alone.score_lead, alone.same_first), (0.0, true));
    }
}
