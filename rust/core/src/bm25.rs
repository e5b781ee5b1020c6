//! BM25F in Lucene's variant over an inverted index that grows and shrinks document by document.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Result;
use crate::terms::{Filed, Postings, Terms, for_each_document, number_of};

/// Saturation of a term's count, as in Lucene's `BM25Similarity`.
const K1: f64 = 1.2;
/// Share of a field's length that a count is normalised by, as in Lucene's `BM25Similarity`.
const B: f64 = 0.75;

/// What BM25 found out about one document.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Match {
    pub(crate) score: f64,
    pub(crate) overlap: u32,
}

/// The terms of one document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) head: Vec<String>,
    /// Of each passage of the body.
    pub(crate) passages: Vec<Vec<String>>,
}

/// The lengths of one field in terms, over all documents.
#[derive(Clone, Debug, Default)]
struct Lengths {
    /// Per slot; 0 also for a slot that holds no document.
    of: Vec<u32>,
    total: u64,
}

impl Lengths {
    fn set(&mut self, slot: u32, length: u32) {
        self.of.resize(slot as usize + 1, 0);
        if let Some(entry) = self.of.get_mut(slot as usize) {
            *entry = length;
        }
        self.total += u64::from(length);
    }

    fn clear(&mut self, slot: u32) {
        if let Some(length) = self.of.get_mut(slot as usize) {
            self.total -= u64::from(*length);
            *length = 0;
        }
    }

    fn get(&self, slot: u32) -> u32 {
        self.of.get(slot as usize).copied().unwrap_or_default()
    }

    /// What a count in a field of this length is divided by; 1 for one of average length.
    fn norm(&self, slot: u32, average: f64) -> f64 {
        norm(self.get(slot), average)
    }
}

/// Slots that are scored together: their scores fit the processor's first cache.
pub(crate) const WINDOW: usize = if cfg!(test) { 3 } else { 2_048 };

/// Heads shorter than this, in terms, and counts in them up to that, are saturated once per query.
const TABLE_LENGTH: usize = if cfg!(test) { 3 } else { 256 };
const TABLE_COUNTS: usize = if cfg!(test) { 1 } else { 4 };

/// One query on its way through the slots, window by window in their order.
#[derive(Debug)]
pub(crate) struct Scorer<'a> {
    index: &'a Bm25,
    /// In the order of the query's terms, so that a sum of floats is always the same sum.
    cursors: Vec<Cursor<'a>>,
    head_average: f64,
    body_average: f64,
    body_weight: f64,
    /// Saturated counts of heads without a body's share, by length and count; empty where there
    /// are so few postings that a table would cost more than it saves.
    saturated: Vec<[f64; TABLE_COUNTS]>,
}

/// What is left of a term's postings.
#[derive(Debug)]
struct Cursor<'a> {
    idf: f64,
    heads: &'a [(u32, u32)],
    passages: &'a [(u32, u32)],
}

impl Scorer<'_> {
    /// Adds to each entry of a window what its document matches; `first` is the slot of its first
    /// entry. Windows must follow each other from slot 0, and entries start at zero.
    pub(crate) fn next(&mut self, first: u32, window: &mut [Match]) {
        let Self { index, cursors, head_average, body_average, body_weight, saturated } = self;
        let end = first.saturating_add(number_of(window.len()));
        let passages_end = match end.checked_sub(1) {
            Some(last) => index.passages_of(last).end,
            None => 0,
        };
        for Cursor { idf, heads, passages } in cursors {
            let mut add = |slot: u32, saturated: f64| {
                if let Some(entry) = window.get_mut(slot.wrapping_sub(first) as usize) {
                    entry.score += *idf * saturated;
                    entry.overlap += 1;
                }
            };
            let bodies = until(passages, passages_end);
            if bodies.is_empty() {
                while let Some(((slot, count), rest)) = heads.split_first()
                    && *slot < end
                {
                    *heads = rest;
                    let known = saturated
                        .get(index.heads.get(*slot) as usize)
                        .and_then(|counts| counts.get((*count as usize).wrapping_sub(1)));
                    if let Some(known) = known {
                        add(*slot, *known);
                    } else if *count > 0 {
                        let norm = index.heads.norm(*slot, *head_average);
                        add(*slot, saturate(f64::from(*count) / norm));
                    }
                }
                continue;
            }
            for_each_document(until(heads, end), bodies, &index.owners, |slot, head, body| {
                let mut count = f64::from(head) / index.heads.norm(slot, *head_average);
                if body > 0 {
                    let norm = index.bodies.norm(slot, *body_average);
                    count += *body_weight * f64::from(body) / norm;
                }
                if count > 0.0 {
                    add(slot, saturate(count));
                }
            });
        }
    }
}

/// Takes the postings before a place off a sorted list.
fn until<'a>(list: &mut &'a [(u32, u32)], end: u32) -> &'a [(u32, u32)] {
    let (taken, left) = list.split_at(list.partition_point(|(place, _)| *place < end));
    *list = left;
    taken
}

fn saturate(count: f64) -> f64 {
    count / (count + K1)
}

fn norm(length: u32, average: f64) -> f64 {
    1.0 - B + B * f64::from(length) / average
}

/// By the length of a head, what each count in it saturates to.
fn saturated(average: f64) -> Vec<[f64; TABLE_COUNTS]> {
    let of_length = |length| {
        let norm = norm(length, average);
        let mut count = 0.0;
        [(); TABLE_COUNTS].map(|()| {
            count += 1.0;
            saturate(count / norm)
        })
    };
    (0..number_of(TABLE_LENGTH)).map(of_length).collect()
}

/// An inverted index; documents are known by the slot that the caller gave them. A clone shares
/// terms and postings, and each has those of its own that it changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bm25 {
    terms: Terms,
    heads: Lengths,
    bodies: Lengths,
    /// Per slot, the passage after its last one.
    ends: Vec<u32>,
    /// Per passage, its slot.
    owners: Vec<u32>,
    documents: usize,
    /// Those whose body has a term.
    with_body: usize,
}

impl Bm25 {
    /// Adds a document. Its slot must be larger than every slot used before.
    pub(crate) fn add(&mut self, slot: u32, fields: &Fields) -> Result<()> {
        let first = number_of(self.owners.len());
        let vocabulary = self.terms.here(&self.owners)?;
        for (term, (head, passages)) in counts(fields) {
            let postings = vocabulary.postings_of(term);
            let was_dead = postings.documents == 0;
            postings.documents += 1;
            if head > 0 {
                postings.heads.push((slot, head));
            }
            postings.passages.extend(passages.iter().map(|(at, count)| (first + at, *count)));
            vocabulary.dead -= usize::from(was_dead);
        }
        let body: usize = fields.passages.iter().map(Vec::len).sum();
        let passages = number_of(fields.passages.len());
        self.add_lengths(slot, number_of(fields.head.len()), number_of(body), passages);
        Ok(())
    }

    /// Removes a document; `fields` are those that it was added with. A crafted file may hold others
    /// than its text has: those stay behind, and `compacted` drops them.
    pub(crate) fn remove(&mut self, slot: u32, fields: &Fields) -> Result<()> {
        let own = self.passages_of(slot);
        let vocabulary = self.terms.here(&self.owners)?;
        for term in counts(fields).into_keys() {
            let Some(postings) = vocabulary.known(term) else { continue };
            let before = postings.heads.len() + postings.passages.len();
            if let Ok(at) = postings.heads.binary_search_by_key(&slot, |(slot, _)| *slot) {
                postings.heads.remove(at);
            }
            let at = run(&postings.passages, &own);
            postings.passages.drain(at);
            if postings.heads.len() + postings.passages.len() < before {
                postings.documents -= 1;
                vocabulary.dead += usize::from(postings.documents == 0);
            }
        }
        self.with_body -= usize::from(self.bodies.get(slot) > 0);
        self.heads.clear(slot);
        self.bodies.clear(slot);
        self.documents -= 1;
        Ok(())
    }

    /// How many terms no document has any more, and how many there are in all; none where the terms
    /// are those of a file.
    pub(crate) fn dead_terms(&self) -> (usize, usize) {
        match &self.terms {
            Terms::Here(vocabulary) => (vocabulary.dead, vocabulary.len()),
            Terms::Filed(_) => (0, 0),
        }
    }

    /// What an index has that holds these documents alone, numbered from 0, and nothing of others.
    pub(crate) fn compacted(&self, live: &[u32]) -> Result<Self> {
        let mut compact = Self::default();
        let mut slots = vec![None; self.heads.of.len()];
        let mut passages = vec![None; self.owners.len()];
        for (number, slot) in (0..).zip(live) {
            let own = self.passages_of(*slot);
            let first = number_of(compact.owners.len());
            for (new, old) in (first..).zip(own.clone()) {
                if let Some(entry) = passages.get_mut(old as usize) {
                    *entry = Some(new);
                }
            }
            if let Some(entry) = slots.get_mut(*slot as usize) {
                *entry = Some(number);
            }
            let passages = own.end - own.start;
            compact.add_lengths(number, self.heads.get(*slot), self.bodies.get(*slot), passages);
        }
        let renumbered = |list: &[(u32, u32)], numbers: &[Option<u32>]| {
            let number = |place: u32| numbers.get(place as usize).copied().flatten();
            list.iter().filter_map(|(place, count)| Some((number(*place)?, *count))).collect()
        };
        let mut terms = self.terms.clone();
        let vocabulary = compact.terms.here(&[])?;
        for (term, list) in terms.here(&self.owners)?.sorted() {
            let heads: Vec<_> = renumbered(&list.heads, &slots);
            let passages: Vec<_> = renumbered(&list.passages, &passages);
            if !heads.is_empty() || !passages.is_empty() {
                vocabulary.insert(term, Postings::new(heads, passages, &compact.owners));
            }
        }
        Ok(compact)
    }

    /// Prepares to score documents against the distinct terms of a query.
    ///
    /// Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009),
    /// section 3.6: a term's counts, each divided by the norm of its field, are added up with the
    /// field's weight (1 for the head, `body_weight` for the body) and saturate once. With Lucene's
    /// choices: idf = ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative, and no factor
    /// (k1 + 1), which would not change an order. A body's average length is that of the bodies
    /// there are, so that documents without one change nothing.
    pub(crate) fn scorer(&self, query_terms: &[String], body_weight: f64) -> Result<Scorer<'_>> {
        // An index of empty documents has no average to divide by, and no postings to score.
        let average =
            |total: u64, count: usize| (total as f64 / count as f64).max(f64::MIN_POSITIVE);
        let head_average = average(self.heads.total, self.documents);
        let lists = self.lists(query_terms)?;
        let heads: usize = lists.iter().map(|list| list.heads.len()).sum();
        Ok(Scorer {
            index: self,
            cursors: lists
                .into_iter()
                .map(|list| Cursor {
                    idf: self.idf(list),
                    heads: &list.heads,
                    passages: &list.passages,
                })
                .collect(),
            head_average,
            body_average: average(self.bodies.total, self.with_body),
            body_weight,
            saturated: if heads > TABLE_LENGTH * TABLE_COUNTS * 2 {
                saturated(head_average)
            } else {
                Vec::new()
            },
        })
    }

    /// Scores every document, one entry per slot.
    #[cfg(test)]
    pub(crate) fn matches(&self, query_terms: &[String], body_weight: f64) -> Vec<Match> {
        let mut scorer = self.scorer(query_terms, body_weight).unwrap();
        let mut matches = vec![Match::default(); self.heads.of.len()];
        for (first, window) in (0..).step_by(WINDOW).zip(matches.chunks_mut(WINDOW)) {
            scorer.next(first, window);
        }
        matches
    }

    /// Which passage of a document, from 0, holds the distinct terms of a query that are rarest in
    /// sum, the first of equal ones; none where no passage holds any.
    pub(crate) fn best_passage(&self, slot: u32, query_terms: &[String]) -> Result<Option<usize>> {
        let own = self.passages_of(slot);
        let mut scores = vec![0.0; own.len()];
        for list in self.lists(query_terms)? {
            for (passage, _) in list.passages.get(run(&list.passages, &own)).unwrap_or_default() {
                if let Some(score) = scores.get_mut((passage - own.start) as usize) {
                    *score += self.idf(list);
                }
            }
        }
        let best = scores.into_iter().enumerate().reduce(
            |best, one| {
                if one.1 > best.1 { one } else { best }
            },
        );
        Ok(best.filter(|(_, score)| *score > 0.0).map(|(passage, _)| passage))
    }

    /// The passages of a document by their numbers.
    pub(crate) fn passages_of(&self, slot: u32) -> Range<u32> {
        let end = |slot: usize| self.ends.get(slot).copied().unwrap_or_default();
        (slot as usize).checked_sub(1).map_or(0, end)..end(slot as usize)
    }

    fn idf(&self, list: &Postings) -> f64 {
        let containing = f64::from(list.documents);
        (1.0 + (self.documents as f64 - containing + 0.5) / (containing + 0.5)).ln()
    }

    /// All terms that a document has, with their postings, in alphabetical order; an index that was
    /// compacted has them in memory.
    pub(crate) fn vocabulary(&self) -> Vec<(&str, &Postings)> {
        match &self.terms {
            Terms::Here(vocabulary) => vocabulary.sorted(),
            Terms::Filed(_) => Vec::new(),
        }
    }

    /// Reads of a file's terms what was not read so far.
    pub(crate) fn load(&self) -> Result<()> {
        self.terms.load(&self.owners)
    }

    /// Takes over the terms of a file, after the lengths of all documents.
    pub(crate) fn restore(&mut self, terms: Filed) {
        self.terms = Terms::Filed(terms.into());
    }

    /// The fields' lengths of a document and the number of its passages, as `add_lengths` takes them.
    pub(crate) fn lengths(&self, slot: u32) -> (u32, u32, u32) {
        (self.heads.get(slot), self.bodies.get(slot), number_of(self.passages_of(slot).len()))
    }

    /// Records a document without its postings: the lengths of its fields in terms, and the number
    /// of its passages.
    pub(crate) fn add_lengths(&mut self, slot: u32, head: u32, body: u32, passages: u32) {
        self.heads.set(slot, head);
        self.bodies.set(slot, body);
        self.ends.resize(slot as usize, self.ends.last().copied().unwrap_or_default());
        self.owners.resize(self.owners.len() + passages as usize, slot);
        self.ends.push(number_of(self.owners.len()));
        self.documents += 1;
        self.with_body += usize::from(body > 0);
    }

    /// The postings of the distinct terms of a query that a document has.
    fn lists(&self, query_terms: &[String]) -> Result<Vec<&Postings>> {
        let lists = distinct(query_terms).map(|term| self.terms.list(term, &self.owners));
        lists.filter_map(Result::transpose).collect()
    }
}

/// Where the postings of some passages stand in a list that is sorted by passage.
fn run(list: &[(u32, u32)], passages: &Range<u32>) -> Range<usize> {
    let start = list.partition_point(|(passage, _)| *passage < passages.start);
    let end = list.partition_point(|(passage, _)| *passage < passages.end);
    start..end
}

/// How often each term stands in the head, and in which passages how often. In the order of the
/// terms, so that the numbers that new ones get do not depend on a hash.
fn counts(fields: &Fields) -> BTreeMap<&str, (u32, BTreeMap<u32, u32>)> {
    let mut counts: BTreeMap<&str, (u32, BTreeMap<u32, u32>)> = BTreeMap::new();
    for term in &fields.head {
        counts.entry(term).or_default().0 += 1;
    }
    for (passage, terms) in (0..).zip(&fields.passages) {
        for term in terms {
            *counts.entry(term).or_default().1.entry(passage).or_default() += 1;
        }
    }
    counts
}

/// The terms in their first order, each once, so that a sum of floats is always the same sum.
fn distinct(terms: &[String]) -> impl Iterator<Item = &str> {
    let mut seen = std::collections::HashSet::new();
    terms.iter().map(String::as_str).filter(move |term| seen.insert(*term))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn fields(head: &str, body: &str) -> Fields {
        Fields { head: words(head), passages: body.split('|').map(words).collect() }
    }

    fn count(terms: &[String], term: &String) -> f64 {
        terms.iter().filter(|other| *other == term).count() as f64
    }

    /// The formula, written down per document and without an inverted index.
    fn naive(documents: &[Fields], query: &[String], weight: f64) -> Vec<f64> {
        let number = documents.len() as f64;
        let mean = |lengths: Vec<usize>| {
            lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64
        };
        let head_mean = mean(documents.iter().map(|one| one.head.len()).collect());
        let body = |one: &Fields| one.passages.concat();
        let bodies = documents.iter().map(|one| body(one).len()).filter(|length| *length > 0);
        let body_mean = mean(bodies.collect());
        let part =
            |terms: &[String], term: &String, mean: f64, weight: f64| match count(terms, term) {
                0.0 => 0.0,
                count => weight * count / (0.25 + 0.75 * terms.len() as f64 / mean),
            };
        let score = |one: &Fields, term: &str| {
            let term = &term.to_owned();
            let holds = |other: &&Fields| other.head.contains(term) || body(other).contains(term);
            let holding = documents.iter().filter(holds).count() as f64;
            let idf = (1.0 + (number - holding + 0.5) / (holding + 0.5)).ln();
            let count =
                part(&one.head, term, head_mean, 1.0) + part(&body(one), term, body_mean, weight);
            idf * (count / (count + 1.2))
        };
        documents.iter().map(|one| distinct(query).map(|term| score(one, term)).sum()).collect()
    }

    fn terms() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a-e]", 0..12)
    }

    fn document() -> impl Strategy<Value = Fields> {
        (terms(), prop::collection::vec(terms(), 0..4))
            .prop_map(|(head, passages)| Fields { head, passages })
    }

    proptest! {
        #[test]
        fn equals_the_naive_formula(
            documents in prop::collection::vec(document(), 1..12),
            query in terms(),
            weight in 0.0..3.0_f64,
        ) {
            let mut index = Bm25::default();
            for (slot, fields) in documents.iter().enumerate() {
                index.add(u32::try_from(slot).unwrap(), fields).unwrap();
            }
            let expected = naive(&documents, &query, weight);
            for (found, expected) in index.matches(&query, weight).iter().zip(expected) {
                // To the bit, whatever windows and tables stand between.
                prop_assert_eq!(found.score, expected);
            }
        }

        #[test]
        fn removing_leaves_the_index_as_if_never_added(
            documents in prop::collection::vec((document(), any::<bool>()), 1..12),
            query in terms(),
        ) {
            let (mut changed, mut fresh) = (Bm25::default(), Bm25::default());
            for (slot, (fields, keep)) in documents.iter().enumerate() {
                let slot = u32::try_from(slot).unwrap();
                changed.add(slot, fields).unwrap();
                if *keep {
                    fresh.add(slot, fields).unwrap();
                }
            }
            for (slot, (fields, keep)) in documents.iter().enumerate() {
                if !keep {
                    changed.remove(u32::try_from(slot).unwrap(), fields).unwrap();
                }
            }
            let (was, is) = (&changed, &fresh);
            let (changed, fresh) = (changed.matches(&query, 0.5), fresh.matches(&query, 0.5));
            for (slot, left) in changed.iter().enumerate() {
                let right = fresh.get(slot).copied().unwrap_or_default();
                prop_assert_eq!(*left, right);
            }
            for (slot, _) in documents.iter().enumerate().filter(|(_, (_, keep))| *keep) {
                let slot = u32::try_from(slot).unwrap();
                prop_assert_eq!(was.best_passage(slot, &query).unwrap(), is.best_passage(slot, &query).unwrap());
            }
        }

        #[test]
        fn the_best_passage_is_that_of_the_naive_search(
            documents in prop::collection::vec(document(), 1..6), query in terms(),
        ) {
            let mut index = Bm25::default();
            for (slot, fields) in documents.iter().enumerate() {
                index.add(u32::try_from(slot).unwrap(), fields).unwrap();
            }
            let holds = |one: &Fields, term: &String| {
                one.head.contains(term) || one.passages.concat().contains(term)
            };
            let score = |passage: &Vec<String>| -> f64 {
                distinct(&query)
                    .map(str::to_owned)
                    .filter(|term| passage.contains(term))
                    .map(|term| {
                        let n = documents.iter().filter(|one| holds(one, &term)).count() as f64;
                        (1.0 + (documents.len() as f64 - n + 0.5) / (n + 0.5)).ln()
                    })
                    .sum()
            };
            for (slot, fields) in documents.iter().enumerate() {
                let scores: Vec<f64> = fields.passages.iter().map(score).collect();
                let most = scores.iter().copied().fold(0.0, f64::max);
                let expected = scores.iter().position(|one| *one == most && most > 0.0);
                let found = index.best_passage(u32::try_from(slot).unwrap(), &query).unwrap();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn repeating_a_query_term_changes_nothing() {
        let mut index = Bm25::default();
        index.add(0, &fields("red fox", "")).unwrap();
        index.add(1, &fields("red hen", "")).unwrap();
        let found = |query: &str| index.matches(&words(query), 0.5);
        assert_eq!(found("fox fox red"), found("fox red"));
        assert_eq!(found("fox red")[0].overlap, 2);
    }

    #[test]
    fn a_body_without_weight_is_not_there() {
        let mut index = Bm25::default();
        index.add(0, &fields("red", "fox fox")).unwrap();
        index.add(1, &fields("fox", "")).unwrap();
        let found = index.matches(&words("fox"), 0.0);
        assert_eq!((found[0].score, found[0].overlap), (0.0, 0));
        assert!(index.matches(&words("fox"), 0.5)[0].score > 0.0);
    }
}
