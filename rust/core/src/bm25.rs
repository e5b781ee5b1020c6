//! BM25F in Lucene's variant over an inverted index that grows and shrinks document by document.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Result;
use crate::terms::{Filed, Postings, Terms, number_of};

mod scorer;

pub(crate) use scorer::{FIRST_WINDOW, Scorer, WIDEST_WINDOW, WINDOW};

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

    /// Prepares to score documents against the distinct terms of a query; a term in a body counts
    /// `body_weight` times as much as one in a head.
    pub(crate) fn scorer(&self, query_terms: &[String], body_weight: f64) -> Result<Scorer<'_>> {
        let lists = distinct(query_terms).map(|term| self.terms.list(term, &self.owners));
        let lists: Vec<_> = lists.filter_map(Result::transpose).collect::<Result<_>>()?;
        Ok(Scorer::new(self, &lists, body_weight))
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

    fn best_passage(index: &Bm25, slot: u32, query: &[String]) -> Option<usize> {
        index.scorer(query, 0.5).unwrap().best_passage(slot)
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
        fn what_may_reach_a_bar_is_found_with_the_same_score(
            documents in prop::collection::vec(document(), 1..12),
            query in terms(),
            weight in 0.0..3.0_f64,
            least in -0.5..4.0_f64,
        ) {
            let mut index = Bm25::default();
            for (slot, fields) in documents.iter().enumerate() {
                index.add(u32::try_from(slot).unwrap(), fields).unwrap();
            }
            let mut scorer = index.scorer(&query, weight).unwrap();
            let mut found = vec![Match::default(); documents.len()];
            for first in (0..documents.len()).step_by(WINDOW) {
                let end = documents.len().min(first + WINDOW);
                scorer.reaching(number_of(first)..number_of(end), least, |slot, one| {
                    assert_eq!(found[slot as usize], Match::default());
                    found[slot as usize] = one;
                });
            }
            for (found, expected) in found.iter().zip(index.matches(&query, weight)) {
                if expected.score >= least {
                    prop_assert_eq!(*found, expected);
                } else {
                    // A sum in another order may lie next to the bar on the other side.
                    prop_assert!(found.overlap == 0 || expected.score > least - 1e-9);
                }
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
                prop_assert_eq!(best_passage(was, slot, &query), best_passage(is, slot, &query));
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
    fn a_body_without_weight_is_not_there() {
        let mut index = Bm25::default();
        index.add(0, &fields("red", "fox fox")).unwrap();
        index.add(1, &fields("fox", "")).unwrap();
        let found = index.matches(&words("fox"), 0.0);
        assert_eq!((found[0].score, found[0].overlap), (0.0, 0));
        assert!(index.matches(&words("fox"), 0.5)[0].score > 0.0);
    }
}
