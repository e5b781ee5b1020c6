//! The scores of a query's matches: all of them, or those that reach a minimum.

use std::ops::Range;

use super::{Bm25, Match, run};
use crate::terms::{Postings, for_each_document, number_of};

/// How fast counts saturate, as in Lucene's `BM25Similarity`.
const K1: f64 = 1.2;
/// How much the length of a field matters, as in Lucene's `BM25Similarity`.
const B: f64 = 0.75;

const WITHIN: &str = "a run is a range of its list";

/// Sizes that affect the time of a search and never its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Slots of a window in which all are scored.
    pub(crate) window: usize,
    /// Slots of the first window in which only a few are scored. Each next window is twice as wide.
    pub(crate) first_window: u32,
    /// The most slots of such a window.
    pub(crate) widest_window: u32,
    /// Heads shorter than this, in terms, are saturated from a table.
    pub(crate) table_length: usize,
    /// Counts up to this number are saturated from a table.
    pub(crate) table_counts: usize,
    /// Postings that are read in the time of one binary search among them.
    pub(crate) scan: usize,
}

/// The sizes of every search. The scores of 2,048 slots fit the first cache of a processor.
pub(crate) const SIZES: Sizes = Sizes {
    window: 2_048,
    first_window: 64,
    widest_window: 8_192,
    table_length: 256,
    table_counts: 4,
    scan: 16,
};

/// Scores the slots window by window, in their order.
///
/// Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section
/// 3.6: the counts of a term, each divided by the norm of its field and multiplied by the field's
/// weight (1 for the head), are summed and saturated once. As in Lucene, idf = ln(1 + (N - n + 0.5) /
/// (n + 0.5)), which is never negative, and there is no factor (k1 + 1), which would not change an
/// order. The average length of bodies ignores documents without a body.
#[derive(Debug)]
pub(crate) struct Scorer<'a> {
    saturation: Saturation<'a>,
    /// In the order of the query's terms, so that sums of floats have a fixed order.
    terms: Vec<Term<'a>>,
    /// Numbers of the terms, the most frequent term first.
    by_idf: Vec<usize>,
    /// The scores of a window in `reaching`; all zero between two calls.
    window: Vec<Match>,
    touched: Vec<u32>,
}

#[derive(Debug)]
struct Term<'a> {
    /// Upper bound of the term's part of a score, however frequent it is in a document.
    idf: f64,
    /// Number of query terms that are more frequent.
    rank: usize,
    /// All postings of the term.
    all: Part<'a>,
    /// The postings after the window.
    left: Part<'a>,
    /// The postings in the window.
    here: Part<'a>,
}

/// Postings of a term: counts in heads by slot, counts in bodies by passage.
#[derive(Clone, Copy, Debug, Default)]
struct Part<'a> {
    heads: &'a [(u32, u32)],
    passages: &'a [(u32, u32)],
}

impl<'a> Scorer<'a> {
    /// `lists` has the postings and the weights of the query's terms in their order.
    pub(super) fn new(
        index: &'a Bm25,
        lists: &[(&'a Postings, f64)],
        body_weight: f64,
        sizes: Sizes,
    ) -> Self {
        let heads = lists.iter().map(|(list, _)| list.heads.len()).sum();
        let mut terms: Vec<_> = lists
            .iter()
            .map(|(list, weight)| {
                let all = Part { heads: &list.heads, passages: &list.passages };
                let idf = weight * index.idf(list);
                Term { idf, rank: 0, all, left: all, here: Part::default() }
            })
            .collect();
        let mut by_idf: Vec<_> = (0..terms.len()).collect();
        by_idf.sort_by(|left, right| {
            let idf = |number: &usize| terms.get(*number).map_or(0.0, |term| term.idf);
            idf(left).total_cmp(&idf(right))
        });
        for (rank, number) in by_idf.iter().enumerate() {
            if let Some(term) = terms.get_mut(*number) {
                term.rank = rank;
            }
        }
        Self {
            saturation: Saturation::new(index, body_weight, heads, sizes),
            terms,
            by_idf,
            window: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Writes the scores of a window that starts at slot `first`. Windows must follow each other from
    /// slot 0, and their entries must be zero.
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

    /// Calls `visit` with each slot of a window whose score is at least `least`, in any order.
    /// Windows must follow each other from slot 0.
    ///
    /// This is `MaxScore` of Turtle and Flood, "Query evaluation: strategies and optimizations"
    /// (1995). The most frequent terms, whose idf values sum to less than `least`, cannot bring a
    /// document to it alone. They are only added to documents that a rarer term found and that can
    /// still reach it.
    pub(crate) fn reaching(
        &mut self,
        slots: Range<u32>,
        least: f64,
        mut visit: impl FnMut(u32, Match),
    ) {
        self.enter(slots.end);
        let Self { saturation, terms, by_idf, window, touched } = self;
        let scan = saturation.sizes.scan;
        window.resize(window.len().max(slots.len()), Match::default());
        let place = |slot: u32| slot.wrapping_sub(slots.start) as usize;
        // Upper bounds of the sums of the most frequent terms: of the first, of the first two, ...
        let sums = by_idf.iter().filter_map(|number| terms.get(*number)).scan(0.0, |sum, term| {
            *sum += term.idf;
            (*sum < least).then_some(*sum)
        });
        let sums: Vec<f64> = sums.collect();
        let frequent = by_idf.get(..sums.len()).expect("there is at most one sum per term");
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
        let keep = |touched: &mut Vec<u32>, window: &mut [Match], minimum: f64| {
            touched.retain(|slot| {
                let Some(entry) = window.get_mut(place(*slot)) else { return false };
                let kept = entry.score >= minimum;
                if !kept {
                    *entry = Match::default();
                }
                kept
            });
        };
        for (number, sum) in frequent.iter().zip(&sums).rev() {
            keep(touched, window, least - sum);
            let Some(Term { idf, here, .. }) = terms.get(*number) else { continue };
            if here.heads.len() + here.passages.len() < scan * touched.len() {
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
                // Again, in the order of the query's terms: the last bit of a sum depends on it.
                found = Match::default();
                for Term { idf, here, .. } in terms.iter() {
                    if let Some(saturated) = here.at(saturation, slot) {
                        found.score += idf * saturated;
                        found.overlap += 1;
                    }
                }
            }
            visit(slot, found);
        }
    }

    /// The match of one document, wherever the windows are.
    pub(crate) fn score(&self, slot: u32) -> Match {
        let mut found = Match::default();
        for Term { idf, all, .. } in &self.terms {
            if let Some(saturated) = all.at(&self.saturation, slot) {
                found.score += idf * saturated;
                found.overlap += 1;
            }
        }
        found
    }

    /// The number, from 0, of the document's passage with the largest sum of idf over the query terms
    /// that it holds. Ties go to the first passage. None if no passage holds a term.
    pub(crate) fn best_passage(&self, slot: u32) -> Option<usize> {
        let own = self.saturation.index.passages_of(slot);
        let mut scores = vec![0.0; own.len()];
        for Term { idf, all: Part { passages, .. }, .. } in &self.terms {
            for (passage, _) in passages.get(run(passages, &own)).expect(WITHIN) {
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

    /// Moves on to the window that ends before slot `end`.
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

/// Splits the postings before `end` off a sorted list. A window has few postings, all at the front
/// of the list, so the search begins there.
fn until<'a>(list: &mut &'a [(u32, u32)], end: u32) -> &'a [(u32, u32)] {
    let before = |(number, _): &(u32, u32)| *number < end;
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
    /// Calls `visit` with each slot whose document has the term, in order, and the saturated count.
    fn for_each(&self, saturation: &Saturation<'_>, mut visit: impl FnMut(u32, f64)) {
        if self.passages.is_empty() {
            for (slot, count) in self.heads {
                visit(*slot, saturation.of_head(*slot, *count));
            }
            return;
        }
        for_each_document(
            self.heads,
            self.passages,
            &saturation.index.owners,
            |slot, head, body| {
                if let Some(saturated) = saturation.of(slot, head, body) {
                    visit(slot, saturated);
                }
            },
        );
    }

    /// The saturated count of the term in a document; none if the document does not have it.
    fn at(&self, saturation: &Saturation<'_>, slot: u32) -> Option<f64> {
        let head = self.heads.binary_search_by_key(&slot, |(slot, _)| *slot).ok();
        let head = head.and_then(|at| self.heads.get(at)).map_or(0, |(_, count)| *count);
        if self.passages.is_empty() {
            return (head > 0).then(|| saturation.of_head(slot, head));
        }
        let own = run(self.passages, &saturation.index.passages_of(slot));
        let body = self.passages.get(own).expect(WITHIN);
        saturation.of(slot, head, body.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count)))
    }
}

/// Saturated counts: 0 for a count of 0, close to 1 for a large count.
#[derive(Debug)]
struct Saturation<'a> {
    index: &'a Bm25,
    head_average: f64,
    body_average: f64,
    body_weight: f64,
    sizes: Sizes,
    /// Values for terms in heads alone: `table_counts` values for each length. Empty if the query
    /// has so few postings that a table would cost more than it saves.
    table: Vec<f64>,
}

impl<'a> Saturation<'a> {
    /// `postings` is the number of postings in heads that the query has.
    fn new(index: &'a Bm25, body_weight: f64, postings: usize, sizes: Sizes) -> Self {
        // If all documents are empty, the average would be 0/0 or 0; then nothing is divided by it.
        let average =
            |total: u64, count: usize| (total as f64 / count as f64).max(f64::MIN_POSITIVE);
        let head_average = average(index.heads.total, index.documents);
        let body_average = average(index.bodies.total, index.with_body);
        let Sizes { table_length, table_counts, .. } = sizes;
        let of_length = |length| {
            let norm = norm(length, head_average);
            (1..=number_of(table_counts)).map(move |count| saturate(f64::from(count) / norm))
        };
        let table = if postings > table_length * table_counts * 2 {
            (0..number_of(table_length)).flat_map(of_length).collect()
        } else {
            Vec::new()
        };
        Self { index, head_average, body_average, body_weight, sizes, table }
    }

    fn of_head(&self, slot: u32, count: u32) -> f64 {
        let length = self.index.heads.get(slot);
        let counts = self.sizes.table_counts;
        let column = (count as usize).wrapping_sub(1);
        let row = (length as usize).saturating_mul(counts);
        let known = if column < counts { self.table.get(row.saturating_add(column)) } else { None };
        match known {
            Some(known) => *known,
            None => saturate(f64::from(count) / norm(length, self.head_average)),
        }
    }

    /// None if the document does not have the term, or only in a body of weight 0.
    fn of(&self, slot: u32, head: u32, body: u32) -> Option<f64> {
        let mut count = f64::from(head) / norm(self.index.heads.get(slot), self.head_average);
        if body > 0 {
            let norm = norm(self.index.bodies.get(slot), self.body_average);
            count += self.body_weight * f64::from(body) / norm;
        }
        (count > 0.0).then(|| saturate(count))
    }
}

/// The divisor of a count in a field of this length; 1 for a field of average length.
fn norm(length: u32, average: f64) -> f64 {
    1.0 - B + B * f64::from(length) / average
}

fn saturate(count: f64) -> f64 {
    count / (count + K1)
}
