//! One query on its way through the postings: all scores, or those that may reach a bar.

use std::ops::Range;

use super::{Bm25, Match, run};
use crate::terms::{Postings, for_each_document, number_of};

/// Saturation of a term's count, as in Lucene's `BM25Similarity`.
const K1: f64 = 1.2;
/// Share of a field's length that a count is normalised by, as in Lucene's `BM25Similarity`.
const B: f64 = 0.75;

/// Slots that are scored together: their scores fit the processor's first cache.
pub(crate) const WINDOW: usize = if cfg!(test) { 3 } else { 2_048 };

/// The sizes of windows of which only a few slots are scored.
pub(crate) const FIRST_WINDOW: u32 = if cfg!(test) { 1 } else { 64 };
pub(crate) const WIDEST_WINDOW: u32 = if cfg!(test) { 5 } else { 8_192 };

/// Heads shorter than this, in terms, and counts in them up to that, are saturated once per query.
const TABLE_LENGTH: usize = if cfg!(test) { 3 } else { 256 };
const TABLE_COUNTS: usize = if cfg!(test) { 1 } else { 4 };

/// Looking a document up in a list of postings costs as much as reading so many of them.
const SCAN: usize = if cfg!(test) { 2 } else { 16 };

/// Goes through the slots window by window, in their order.
///
/// Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section
/// 3.6: a term's counts, each divided by the norm of its field, are added up with the field's weight
/// (1 for the head) and saturate once. With Lucene's choices: idf = ln(1 + (N - n + 0.5) / (n +
/// 0.5)), which is never negative, and no factor (k1 + 1), which would not change an order. A body's
/// average length is that of the bodies there are, so that documents without one change nothing.
#[derive(Debug)]
pub(crate) struct Scorer<'a> {
    saturation: Saturation<'a>,
    /// In the order of the query's terms, so that a sum of floats is always the same sum.
    terms: Vec<Term<'a>>,
    /// Numbers of the terms, the most frequent one first.
    by_idf: Vec<usize>,
    /// A window of its own for `reaching`, zero between two calls.
    window: Vec<Match>,
    touched: Vec<u32>,
}

#[derive(Debug)]
struct Term<'a> {
    /// What the term adds to a score is less, however often it stands in a document.
    idf: f64,
    /// How many terms of the query are more frequent.
    rank: usize,
    /// All its postings.
    all: Part<'a>,
    /// Those behind this window.
    left: Part<'a>,
    /// Those of this window.
    here: Part<'a>,
}

/// Postings of a term: of heads by slot, of bodies by passage.
#[derive(Clone, Copy, Debug, Default)]
struct Part<'a> {
    heads: &'a [(u32, u32)],
    passages: &'a [(u32, u32)],
}

impl<'a> Scorer<'a> {
    /// `lists` has the postings of the query's terms in their order.
    pub(super) fn new(index: &'a Bm25, lists: &[&'a Postings], body_weight: f64) -> Self {
        let heads = lists.iter().map(|list| list.heads.len()).sum();
        let mut terms: Vec<_> = lists
            .iter()
            .map(|list| {
                let all = Part { heads: &list.heads, passages: &list.passages };
                Term { idf: index.idf(list), rank: 0, all, left: all, here: Part::default() }
            })
            .collect();
        let mut by_idf: Vec<_> = (0..terms.len()).collect();
        by_idf.sort_by(|one, other| {
            let idf = |number: &usize| terms.get(*number).map_or(0.0, |term| term.idf);
            idf(one).total_cmp(&idf(other))
        });
        for (rank, number) in by_idf.iter().enumerate() {
            if let Some(term) = terms.get_mut(*number) {
                term.rank = rank;
            }
        }
        Self {
            saturation: Saturation::new(index, body_weight, heads),
            terms,
            by_idf,
            window: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Adds to each entry of a window what its document matches; `first` is the slot of its first
    /// entry. Windows must follow each other from slot 0, and entries start at zero.
    pub(crate) fn next(&mut self, first: u32, window: &mut [Match]) {
        self.enter(first.saturating_add(number_of(window.len())));
        for Term { idf, here, .. } in &self.terms {
            here.for_each(&self.saturation, |slot, saturated| {
                if let Some(entry) = window.get_mut(slot.wrapping_sub(first) as usize) {
                    entry.score += *idf * saturated;
                    entry.overlap += 1;
                }
            });
        }
    }

    /// Calls with each slot of a window that matches and whose score is `least` or more, in no
    /// order. Windows must follow each other from slot 0.
    ///
    /// Turtle and Flood, "Query evaluation: strategies and optimizations" (1995), `MaxScore`: terms
    /// so frequent that all of them together stay below `least` find no document. They only add to
    /// those that a rarer term found, as long as these may still reach it.
    pub(crate) fn reaching(
        &mut self,
        slots: Range<u32>,
        least: f64,
        mut call: impl FnMut(u32, Match),
    ) {
        self.enter(slots.end);
        let Self { saturation, terms, by_idf, window, touched } = self;
        window.resize(window.len().max(slots.len()), Match::default());
        let place = |slot: u32| slot.wrapping_sub(slots.start) as usize;
        // Of the frequent terms, the most frequent one first, what they add up to at most.
        let sums = by_idf.iter().filter_map(|number| terms.get(*number)).scan(0.0, |sum, term| {
            *sum += term.idf;
            (*sum < least).then_some(*sum)
        });
        let sums: Vec<f64> = sums.collect();
        let frequent = by_idf.get(..sums.len()).unwrap_or_default();
        for Term { idf, here, .. } in terms.iter().filter(|term| term.rank >= frequent.len()) {
            here.for_each(saturation, |slot, saturated| {
                let Some(entry) = window.get_mut(place(slot)) else { return };
                if entry.overlap == 0 {
                    touched.push(slot);
                }
                entry.score += *idf * saturated;
                entry.overlap += 1;
            });
        }
        let keep = |touched: &mut Vec<u32>, window: &mut [Match], bar: f64| {
            touched.retain(|slot| {
                let Some(entry) = window.get_mut(place(*slot)) else { return false };
                let kept = entry.score >= bar;
                if !kept {
                    *entry = Match::default();
                }
                kept
            });
        };
        for (number, sum) in frequent.iter().zip(&sums).rev() {
            keep(touched, window, least - sum);
            let Some(Term { idf, here, .. }) = terms.get(*number) else { continue };
            if here.heads.len() + here.passages.len() < SCAN * touched.len() {
                here.for_each(saturation, |slot, saturated| {
                    if let Some(entry) = window.get_mut(place(slot))
                        && entry.overlap > 0
                    {
                        entry.score += idf * saturated;
                    }
                });
                continue;
            }
            for slot in touched.iter() {
                if let Some(entry) = window.get_mut(place(*slot)) {
                    entry.score += idf * here.at(saturation, *slot).unwrap_or_default();
                }
            }
        }
        keep(touched, window, least);
        for slot in touched.drain(..) {
            let Some(entry) = window.get_mut(place(slot)) else { continue };
            let mut found = std::mem::take(entry);
            if !frequent.is_empty() {
                // Once more, in the order of the query's terms.
                found = Match::default();
                for Term { idf, here, .. } in terms.iter() {
                    if let Some(saturated) = here.at(saturation, slot) {
                        found.score += idf * saturated;
                        found.overlap += 1;
                    }
                }
            }
            call(slot, found);
        }
    }

    /// Which passage of a document, from 0, holds the terms that are rarest in sum, the first of
    /// equal ones; none where no passage holds any.
    pub(crate) fn best_passage(&self, slot: u32) -> Option<usize> {
        let own = self.saturation.index.passages_of(slot);
        let mut scores = vec![0.0; own.len()];
        for Term { idf, all: Part { passages, .. }, .. } in &self.terms {
            for (passage, _) in passages.get(run(passages, &own)).unwrap_or_default() {
                if let Some(score) = scores.get_mut((passage - own.start) as usize) {
                    *score += idf;
                }
            }
        }
        let best = scores
            .into_iter()
            .enumerate()
            .reduce(|best, other| if other.1 > best.1 { other } else { best });
        best.filter(|(_, score)| *score > 0.0).map(|(passage, _)| passage)
    }

    /// Takes the postings of a window, which ends before a slot.
    fn enter(&mut self, end: u32) {
        let passages_end = match end.checked_sub(1) {
            Some(last) => self.saturation.index.passages_of(last).end,
            None => 0,
        };
        for Term { left, here, .. } in &mut self.terms {
            here.heads = until(&mut left.heads, end);
            here.passages = until(&mut left.passages, passages_end);
        }
    }
}

/// Takes the postings before a place off a sorted list. Those of a window are few and stand at its
/// front, so that is where the search begins.
fn until<'a>(list: &mut &'a [(u32, u32)], end: u32) -> &'a [(u32, u32)] {
    let before = |(place, _): &(u32, u32)| *place < end;
    let mut bound = 8;
    while list.get(bound).is_some_and(before) {
        bound *= 2;
    }
    let near = list.get(..bound).unwrap_or(list);
    let (taken, left) = list.split_at(near.partition_point(before));
    *list = left;
    taken
}

impl Part<'_> {
    /// Calls with each slot whose document has the term, in their order, and its saturated count.
    fn for_each(&self, saturation: &Saturation<'_>, mut call: impl FnMut(u32, f64)) {
        if self.passages.is_empty() {
            for (slot, count) in self.heads {
                call(*slot, saturation.of_head(*slot, *count));
            }
            return;
        }
        for_each_document(
            self.heads,
            self.passages,
            &saturation.index.owners,
            |slot, head, body| {
                if let Some(saturated) = saturation.of(slot, head, body) {
                    call(slot, saturated);
                }
            },
        );
    }

    /// The saturated count of the term in a document; none where it does not have it.
    fn at(&self, saturation: &Saturation<'_>, slot: u32) -> Option<f64> {
        let head = self.heads.binary_search_by_key(&slot, |(slot, _)| *slot).ok();
        let head = head.and_then(|at| self.heads.get(at)).map_or(0, |(_, count)| *count);
        if self.passages.is_empty() {
            return (head > 0).then(|| saturation.of_head(slot, head));
        }
        let own = run(self.passages, &saturation.index.passages_of(slot));
        let body = self.passages.get(own).unwrap_or_default();
        saturation.of(slot, head, body.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count)))
    }
}

/// What counts in a document's fields are worth: nothing for none, less than 1 for many.
#[derive(Debug)]
struct Saturation<'a> {
    index: &'a Bm25,
    head_average: f64,
    body_average: f64,
    body_weight: f64,
    /// Of heads without a body's share, by length and count; empty where there are so few postings
    /// that a table would cost more than it saves.
    table: Vec<[f64; TABLE_COUNTS]>,
}

impl<'a> Saturation<'a> {
    /// `postings` says how many are going to be looked up.
    fn new(index: &'a Bm25, body_weight: f64, postings: usize) -> Self {
        // An index of empty documents has no average to divide by, and no postings to score.
        let average =
            |total: u64, count: usize| (total as f64 / count as f64).max(f64::MIN_POSITIVE);
        let head_average = average(index.heads.total, index.documents);
        let body_average = average(index.bodies.total, index.with_body);
        let of_length = |length| {
            let norm = norm(length, head_average);
            let mut count = 0.0;
            [(); TABLE_COUNTS].map(|()| {
                count += 1.0;
                saturate(count / norm)
            })
        };
        let table = if postings > TABLE_LENGTH * TABLE_COUNTS * 2 {
            (0..number_of(TABLE_LENGTH)).map(of_length).collect()
        } else {
            Vec::new()
        };
        Self { index, head_average, body_average, body_weight, table }
    }

    fn of_head(&self, slot: u32, count: u32) -> f64 {
        let length = self.index.heads.get(slot);
        let known = self
            .table
            .get(length as usize)
            .and_then(|counts| counts.get((count as usize).wrapping_sub(1)));
        match known {
            Some(known) => *known,
            None => saturate(f64::from(count) / norm(length, self.head_average)),
        }
    }

    /// None where the document has the term nowhere, or only in a body that has no weight.
    fn of(&self, slot: u32, head: u32, body: u32) -> Option<f64> {
        let mut count = f64::from(head) / norm(self.index.heads.get(slot), self.head_average);
        if body > 0 {
            let norm = norm(self.index.bodies.get(slot), self.body_average);
            count += self.body_weight * f64::from(body) / norm;
        }
        (count > 0.0).then(|| saturate(count))
    }
}

/// What a count in a field of this length is divided by; 1 for one of average length.
fn norm(length: u32, average: f64) -> f64 {
    1.0 - B + B * f64::from(length) / average
}

fn saturate(count: f64) -> f64 {
    count / (count + K1)
}
