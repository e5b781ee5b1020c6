//! BM25F with Lucene's constants, over an inverted index that documents can be added to and removed
//! from.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Result;
use crate::terms::{FileTerms, Postings, Terms, number_of};

mod scorer;

pub(crate) use scorer::{SIZES, Scorer, Sizes};

/// The BM25 score of a document, and the number of query terms that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Match {
    pub(crate) score: f64,
    pub(crate) overlap: u32,
}

/// The terms of one document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) head: Vec<String>,
    /// The terms of each passage of the body.
    pub(crate) passages: Vec<Vec<String>>,
}

/// The lengths of a field in all documents, in terms.
#[derive(Clone, Debug, Default)]
struct Lengths {
    /// By slot; 0 for a slot without a document.
    by_slot: Vec<u32>,
    total: u64,
}

impl Lengths {
    fn set(&mut self, slot: u32, length: u32) {
        self.by_slot.resize(slot as usize, 0);
        self.by_slot.push(length);
        self.total += u64::from(length);
    }

    fn clear(&mut self, slot: u32) {
        if let Some(length) = self.by_slot.get_mut(slot as usize) {
            self.total -= u64::from(*length);
            *length = 0;
        }
    }

    fn get(&self, slot: u32) -> u32 {
        self.by_slot.get(slot as usize).copied().unwrap_or_default()
    }
}

/// An inverted index of documents, each identified by a slot that the caller chooses.
///
/// Clones share terms and postings until one of them changes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bm25 {
    terms: Terms,
    heads: Lengths,
    bodies: Lengths,
    /// By slot, the number after that of its last passage.
    ends: Vec<u32>,
    /// The slot of each passage.
    owners: Vec<u32>,
    documents: usize,
    /// Number of documents whose body has a term.
    with_body: usize,
}

impl Bm25 {
    /// Adds a document. Its slot must be larger than every slot used before.
    pub(crate) fn add(&mut self, slot: u32, fields: &Fields) -> Result<()> {
        let first = number_of(self.owners.len());
        let vocabulary = self.terms.in_memory(&self.owners)?;
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

    /// Removes a document, given the fields that it was added with. A crafted file can have postings
    /// of other terms, which stay until `compacted` drops them.
    pub(crate) fn remove(&mut self, slot: u32, fields: &Fields) -> Result<()> {
        let own = self.passages_of(slot);
        let vocabulary = self.terms.in_memory(&self.owners)?;
        for term in counts(fields).into_keys() {
            let Some(postings) = vocabulary.known(term) else { continue };
            let count = postings.heads.len() + postings.passages.len();
            if let Ok(at) = postings.heads.binary_search_by_key(&slot, |(slot, _)| *slot) {
                postings.heads.remove(at);
            }
            let at = run(&postings.passages, &own);
            postings.passages.drain(at);
            if postings.heads.len() + postings.passages.len() < count {
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

    /// Number of terms in no document, and of all terms. Both are 0 while the terms are in a file,
    /// which has no dead terms.
    pub(crate) fn dead_terms(&self) -> (usize, usize) {
        match &self.terms {
            Terms::InMemory(vocabulary) => (vocabulary.dead, vocabulary.len()),
            Terms::InFile(_) => (0, 0),
        }
    }

    /// An index of these documents alone, numbered from 0.
    pub(crate) fn compacted(&self, live: &[u32]) -> Result<Self> {
        let mut compact = Self::default();
        let mut slots = vec![None; self.heads.by_slot.len()];
        let mut passages = vec![None; self.owners.len()];
        for (number, slot) in (0..).zip(live) {
            let own = self.passages_of(*slot);
            let first = number_of(compact.owners.len());
            for (new, old) in (first..).zip(own.clone()) {
                *passages.get_mut(old as usize).expect("each passage has an owner") = Some(new);
            }
            *slots.get_mut(*slot as usize).expect("each document has a length") = Some(number);
            let passages = own.end - own.start;
            compact.add_lengths(number, self.heads.get(*slot), self.bodies.get(*slot), passages);
        }
        let renumbered = |list: &[(u32, u32)], numbers: &[Option<u32>]| {
            let new = |old: u32| numbers.get(old as usize).copied().flatten();
            list.iter().filter_map(|(old, count)| Some((new(*old)?, *count))).collect()
        };
        let mut terms = self.terms.clone();
        let vocabulary = compact.terms.in_memory(&[])?;
        for (term, list) in terms.in_memory(&self.owners)?.sorted() {
            let heads: Vec<_> = renumbered(&list.heads, &slots);
            let passages: Vec<_> = renumbered(&list.passages, &passages);
            if !heads.is_empty() || !passages.is_empty() {
                vocabulary.insert(term, Postings::new(heads, passages, &compact.owners));
            }
        }
        Ok(compact)
    }

    /// Prepares to score documents against the distinct terms of a query. A term in a body counts
    /// `body_weight` times as much as a term in a head.
    #[cfg(test)]
    pub(crate) fn scorer(
        &self,
        query_terms: &[String],
        body_weight: f64,
        sizes: Sizes,
    ) -> Result<Scorer<'_>> {
        self.scorer_with(query_terms, &[], body_weight, sizes)
    }

    /// The same with the terms of earlier requests, which have a weight each; a term of the query
    /// has weight 1, and weights of the same term are added up.
    pub(crate) fn scorer_with(
        &self,
        query_terms: &[String],
        earlier: &[(Vec<String>, f64)],
        body_weight: f64,
        sizes: Sizes,
    ) -> Result<Scorer<'_>> {
        let mut weights: Vec<(&str, f64)> = distinct(query_terms).map(|term| (term, 1.0)).collect();
        for (terms, weight) in earlier {
            for term in distinct(terms) {
                match weights.iter_mut().find(|(known, _)| *known == term) {
                    Some((_, sum)) => *sum += weight,
                    None => weights.push((term, *weight)),
                }
            }
        }
        let mut lists = Vec::with_capacity(weights.len());
        for (term, weight) in weights.into_iter().filter(|(_, weight)| *weight > 0.0) {
            lists.extend(self.terms.list(term, &self.owners)?.map(|list| (list, weight)));
        }
        Ok(Scorer::new(self, &lists, body_weight, sizes))
    }

    /// The scores of all documents, by slot.
    #[cfg(test)]
    pub(crate) fn matches(&self, query_terms: &[String], body_weight: f64) -> Vec<Match> {
        self.matches_in(query_terms, body_weight, SIZES)
    }

    #[cfg(test)]
    fn matches_in(&self, query_terms: &[String], body_weight: f64, sizes: Sizes) -> Vec<Match> {
        let mut scorer = self.scorer(query_terms, body_weight, sizes).unwrap();
        let mut matches = vec![Match::default(); self.heads.by_slot.len()];
        let windows = matches.chunks_mut(sizes.window);
        for (first, window) in (0..).step_by(sizes.window).zip(windows) {
            scorer.next(first, window);
        }
        matches
    }

    /// The numbers of a document's passages.
    pub(crate) fn passages_of(&self, slot: u32) -> Range<u32> {
        let end = |slot: usize| self.ends.get(slot).copied().unwrap_or_default();
        (slot as usize).checked_sub(1).map_or(0, end)..end(slot as usize)
    }

    /// Number of documents.
    pub(crate) fn documents(&self) -> usize {
        self.documents
    }

    /// Number of documents whose head has a term.
    pub(crate) fn heads_with(&self, term: &str) -> Result<usize> {
        Ok(self.terms.list(term, &self.owners)?.map_or(0, |list| list.heads.len()))
    }

    /// The idf of a term; the largest for a term that no document has.
    pub(crate) fn idf_of(&self, term: &str) -> Result<f64> {
        let list = self.terms.list(term, &self.owners)?;
        Ok(self.idf(list.unwrap_or(&Postings::default())))
    }

    fn idf(&self, list: &Postings) -> f64 {
        let containing = f64::from(list.documents);
        (1.0 + (self.documents as f64 - containing + 0.5) / (containing + 0.5)).ln()
    }

    /// The terms with their postings, in alphabetical order. Only for a compacted index, whose terms
    /// are in memory.
    pub(crate) fn vocabulary(&self) -> Vec<(&str, &Postings)> {
        match &self.terms {
            Terms::InMemory(vocabulary) => vocabulary.sorted(),
            Terms::InFile(_) => unreachable!("`compacted` moves the terms into memory"),
        }
    }

    /// Reads all blocks of terms that were not read yet.
    pub(crate) fn load(&self) -> Result<()> {
        self.terms.load(&self.owners)
    }

    /// Sets the terms of a file, after `add_lengths` of all its documents.
    pub(crate) fn restore(&mut self, terms: FileTerms) {
        self.terms = Terms::InFile(terms.into());
    }

    /// The lengths of a document's head and body in terms, and the number of its passages.
    pub(crate) fn lengths(&self, slot: u32) -> (u32, u32, u32) {
        (self.heads.get(slot), self.bodies.get(slot), number_of(self.passages_of(slot).len()))
    }

    /// Adds a document without postings: the lengths of its head and body in terms, and the number
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
}

/// The range of some passages' postings in a list that is sorted by passage.
fn run(list: &[(u32, u32)], passages: &Range<u32>) -> Range<usize> {
    let start = list.partition_point(|(passage, _)| *passage < passages.start);
    let end = list.partition_point(|(passage, _)| *passage < passages.end);
    start..end
}

/// The count of each term in the head and in each passage. In the order of the terms, so that the
/// numbers of new terms do not depend on a hash.
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

/// The distinct terms in the order of the query, so that sums of floats have a fixed order.
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

    /// The formula for each document, without an inverted index.
    fn naive(documents: &[Fields], query: &[String], weight: f64) -> Vec<f64> {
        let number = documents.len() as f64;
        let mean = |lengths: Vec<usize>| {
            lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64
        };
        let head_mean = mean(documents.iter().map(|fields| fields.head.len()).collect());
        let body = |fields: &Fields| fields.passages.concat();
        let bodies = documents.iter().map(|fields| body(fields).len()).filter(|length| *length > 0);
        let body_mean = mean(bodies.collect());
        let part =
            |terms: &[String], term: &String, mean: f64, weight: f64| match count(terms, term) {
                0.0 => 0.0,
                count => weight * count / (0.25 + 0.75 * terms.len() as f64 / mean),
            };
        let score = |fields: &Fields, term: &str| {
            let term = &term.to_owned();
            let holds = |other: &&Fields| other.head.contains(term) || body(other).contains(term);
            let holding = documents.iter().filter(holds).count() as f64;
            let idf = (1.0 + (number - holding + 0.5) / (holding + 0.5)).ln();
            let count = part(&fields.head, term, head_mean, 1.0)
                + part(&body(fields), term, body_mean, weight);
            idf * (count / (count + 1.2))
        };
        let total = |fields| distinct(query).map(|term| score(fields, term)).sum();
        documents.iter().map(total).collect()
    }

    /// So small that a few documents fill several windows and exceed every table.
    const SMALL: Sizes = Sizes {
        window: 3,
        first_window: 1,
        widest_window: 5,
        table_length: 3,
        table_counts: 1,
        scan: 2,
    };

    fn best_passage(index: &Bm25, slot: u32, query: &[String]) -> Option<usize> {
        index.scorer(query, 0.5, SIZES).unwrap().best_passage(slot)
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
        fn scores_equal_the_naive_formula(
            sizes in prop_oneof![Just(SIZES), Just(SMALL)],
            documents in prop::collection::vec(document(), 1..12),
            query in terms(),
            weight in 0.0..3.0_f64,
        ) {
            let mut index = Bm25::default();
            for (slot, fields) in documents.iter().enumerate() {
                index.add(u32::try_from(slot).unwrap(), fields).unwrap();
            }
            let expected = naive(&documents, &query, weight);
            for (found, expected) in index.matches_in(&query, weight, sizes).iter().zip(expected) {
                prop_assert_eq!(found.score, expected);
            }
        }

        #[test]
        fn documents_that_reach_a_minimum_are_found_with_the_same_score(
            sizes in prop_oneof![Just(SIZES), Just(SMALL)],
            documents in prop::collection::vec(document(), 1..12),
            query in terms(),
            weight in 0.0..3.0_f64,
            least in -0.5..4.0_f64,
        ) {
            let mut index = Bm25::default();
            for (slot, fields) in documents.iter().enumerate() {
                index.add(u32::try_from(slot).unwrap(), fields).unwrap();
            }
            let mut scorer = index.scorer(&query, weight, sizes).unwrap();
            let mut found = vec![Match::default(); documents.len()];
            for first in (0..documents.len()).step_by(sizes.window) {
                let end = documents.len().min(first + sizes.window);
                scorer.reaching(number_of(first)..number_of(end), least, |slot, matched| {
                    assert_eq!(found[slot as usize], Match::default());
                    found[slot as usize] = matched;
                });
            }
            for (found, expected) in found.iter().zip(index.matches(&query, weight)) {
                if expected.score >= least {
                    prop_assert_eq!(*found, expected);
                } else {
                    // Summed in another order, a score can be on the other side of the minimum.
                    prop_assert!(found.overlap == 0 || expected.score > least - 1e-9);
                }
            }
        }

        #[test]
        fn a_removed_document_changes_no_score(
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
            let expected = fresh.matches(&query, 0.5);
            for (slot, matched) in changed.matches(&query, 0.5).iter().enumerate() {
                prop_assert_eq!(*matched, expected.get(slot).copied().unwrap_or_default());
            }
            for (slot, _) in documents.iter().enumerate().filter(|(_, (_, keep))| *keep) {
                let slot = u32::try_from(slot).unwrap();
                prop_assert_eq!(
                    best_passage(&changed, slot, &query),
                    best_passage(&fresh, slot, &query)
                );
            }
        }

        #[test]
        fn the_best_passage_equals_that_of_a_naive_search(
            documents in prop::collection::vec(document(), 1..6), query in terms(),
        ) {
            let mut index = Bm25::default();
            for (slot, fields) in documents.iter().enumerate() {
                index.add(u32::try_from(slot).unwrap(), fields).unwrap();
            }
            let holds = |fields: &Fields, term: &String| {
                fields.head.contains(term) || fields.passages.concat().contains(term)
            };
            let score = |passage: &Vec<String>| -> f64 {
                distinct(&query)
                    .map(str::to_owned)
                    .filter(|term| passage.contains(term))
                    .map(|term| {
                        let n = documents.iter().filter(|fields| holds(fields, &term)).count() as f64;
                        (1.0 + (documents.len() as f64 - n + 0.5) / (n + 0.5)).ln()
                    })
                    .sum()
            };
            for (slot, fields) in documents.iter().enumerate() {
                let scores: Vec<f64> = fields.passages.iter().map(score).collect();
                let most = scores.iter().copied().fold(0.0, f64::max);
                let expected = scores.iter().position(|score| *score == most && most > 0.0);
                let found = best_passage(&index, u32::try_from(slot).unwrap(), &query);
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
    fn a_body_of_weight_0_adds_no_match() {
        let mut index = Bm25::default();
        index.add(0, &fields("red", "fox fox")).unwrap();
        index.add(1, &fields("fox", "")).unwrap();
        let found = index.matches(&words("fox"), 0.0);
        assert_eq!((found[0].score, found[0].overlap), (0.0, 0));
        assert!(index.matches(&words("fox"), 0.5)[0].score > 0.0);
    }
}
