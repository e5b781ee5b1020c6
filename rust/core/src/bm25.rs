//! BM25 in Lucene's variant over an inverted index that grows and shrinks document by document.

use std::collections::HashMap;

/// Saturation of a term's count, as in Lucene's `BM25Similarity`.
const K1: f64 = 1.2;
/// Share of the document's length that a count is normalised by, as in Lucene's `BM25Similarity`.
const B: f64 = 0.75;

/// How often one term stands in one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posting {
    pub(crate) slot: u32,
    pub(crate) count: u32,
}

/// What BM25 found out about one document.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Match {
    pub(crate) score: f64,
    pub(crate) overlap: u32,
}

/// An inverted index; documents are known by the slot that the caller gave them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bm25 {
    term_numbers: HashMap<String, u32>,
    /// Per term, sorted by slot.
    postings: Vec<Vec<Posting>>,
    /// Per slot the number of terms; 0 also for a slot that holds no document.
    lengths: Vec<u32>,
    documents: usize,
    total_length: u64,
}

impl Bm25 {
    /// Adds a document. Its slot must be larger than every slot used before.
    pub(crate) fn add(&mut self, slot: u32, terms: &[String]) {
        for (term, count) in counts(terms) {
            let number = self.number(term);
            if let Some(list) = self.postings.get_mut(number as usize) {
                list.push(Posting { slot, count });
            }
        }
        self.add_length(slot, u32::try_from(terms.len()).unwrap_or(u32::MAX));
    }

    /// Removes a document; `terms` must be those that it was added with.
    pub(crate) fn remove(&mut self, slot: u32, terms: &[String]) {
        for term in counts(terms).into_keys() {
            let list = self
                .term_numbers
                .get(term)
                .and_then(|number| self.postings.get_mut(*number as usize));
            if let Some(list) = list
                && let Ok(place) = list.binary_search_by_key(&slot, |posting| posting.slot)
            {
                list.remove(place);
            }
        }
        if let Some(length) = self.lengths.get_mut(slot as usize) {
            self.total_length -= u64::from(*length);
            self.documents -= 1;
            *length = 0;
        }
    }

    /// Scores every document against the distinct terms of a query; one entry per slot.
    ///
    /// Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009),
    /// with Lucene's choices: idf = ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative, and
    /// no factor (k1 + 1), which would not change an order.
    pub(crate) fn matches(&self, query_terms: &[String]) -> Vec<Match> {
        let mut matches = vec![Match::default(); self.lengths.len()];
        let documents = self.documents as f64;
        // An index of empty documents has no average to divide by, and no postings to score.
        let average_length = (self.total_length as f64 / documents).max(f64::MIN_POSITIVE);
        for list in distinct(query_terms).filter_map(|term| self.list(term)) {
            let containing = list.len() as f64;
            let idf = (1.0 + (documents - containing + 0.5) / (containing + 0.5)).ln();
            for posting in list {
                let length = self.lengths.get(posting.slot as usize).copied().unwrap_or_default();
                let count = f64::from(posting.count);
                let norm = K1 * (1.0 - B + B * f64::from(length) / average_length);
                if let Some(entry) = matches.get_mut(posting.slot as usize) {
                    entry.score += idf * (count / (count + norm));
                    entry.overlap += 1;
                }
            }
        }
        matches
    }

    /// All terms with their postings, in the order in which the terms were first seen.
    pub(crate) fn vocabulary(&self) -> Vec<(&str, &[Posting])> {
        let mut terms: Vec<_> = self.term_numbers.iter().collect();
        terms.sort_unstable_by_key(|(_, number)| **number);
        terms
            .into_iter()
            .map(|(term, _)| (term.as_str(), self.list(term).unwrap_or_default()))
            .collect()
    }

    /// Takes a term with its postings over as they are; the reader of index files checks them.
    pub(crate) fn restore_term(&mut self, term: &str, postings: Vec<Posting>) {
        let number = self.number(term);
        if let Some(list) = self.postings.get_mut(number as usize) {
            *list = postings;
        }
    }

    /// Records a document's length without touching its postings.
    pub(crate) fn add_length(&mut self, slot: u32, length: u32) {
        self.lengths.resize(slot as usize + 1, 0);
        if let Some(entry) = self.lengths.get_mut(slot as usize) {
            *entry = length;
        }
        self.documents += 1;
        self.total_length += u64::from(length);
    }

    fn list(&self, term: &str) -> Option<&[Posting]> {
        let number = self.term_numbers.get(term)?;
        self.postings.get(*number as usize).map(Vec::as_slice)
    }

    fn number(&mut self, term: &str) -> u32 {
        if let Some(number) = self.term_numbers.get(term) {
            return *number;
        }
        let number = u32::try_from(self.postings.len()).unwrap_or(u32::MAX);
        self.term_numbers.insert(term.to_owned(), number);
        self.postings.push(Vec::new());
        number
    }
}

fn counts(terms: &[String]) -> HashMap<&str, u32> {
    let mut counts = HashMap::new();
    for term in terms {
        *counts.entry(term.as_str()).or_insert(0) += 1;
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

    /// The formula, written down per document and without an inverted index.
    fn naive(documents: &[Vec<String>], query: &[String]) -> Vec<f64> {
        let number = documents.len() as f64;
        let average = documents.iter().map(Vec::len).sum::<usize>() as f64 / number;
        let mut query = query.to_vec();
        query.sort();
        query.dedup();
        documents
            .iter()
            .map(|document| {
                let score = |term: &String| {
                    let holding =
                        documents.iter().filter(|other| other.contains(term)).count() as f64;
                    let count = document.iter().filter(|other| *other == term).count() as f64;
                    let idf = (1.0 + (number - holding + 0.5) / (holding + 0.5)).ln();
                    if count == 0.0 {
                        return 0.0;
                    }
                    idf * count / (count + 1.2 * (0.25 + 0.75 * document.len() as f64 / average))
                };
                query.iter().map(score).sum()
            })
            .collect()
    }

    fn document() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a-e]", 0..12)
    }

    proptest! {
        #[test]
        fn equals_the_naive_formula(
            documents in prop::collection::vec(document(), 1..12),
            query in document(),
        ) {
            let mut index = Bm25::default();
            for (slot, terms) in documents.iter().enumerate() {
                index.add(u32::try_from(slot).unwrap(), terms);
            }
            let expected = naive(&documents, &query);
            for (found, expected) in index.matches(&query).iter().zip(expected) {
                prop_assert!((found.score - expected).abs() < 1e-12, "{found:?} {expected}");
            }
        }

        #[test]
        fn removing_leaves_the_index_as_if_never_added(
            documents in prop::collection::vec((document(), any::<bool>()), 1..12),
            query in document(),
        ) {
            let (mut changed, mut fresh) = (Bm25::default(), Bm25::default());
            for (slot, (terms, keep)) in documents.iter().enumerate() {
                let slot = u32::try_from(slot).unwrap();
                changed.add(slot, terms);
                if *keep {
                    fresh.add(slot, terms);
                }
            }
            for (slot, (terms, keep)) in documents.iter().enumerate() {
                if !keep {
                    changed.remove(u32::try_from(slot).unwrap(), terms);
                }
            }
            let (changed, fresh) = (changed.matches(&query), fresh.matches(&query));
            for (slot, left) in changed.iter().enumerate() {
                let right = fresh.get(slot).copied().unwrap_or_default();
                prop_assert_eq!(*left, right);
            }
        }
    }

    #[test]
    fn repeating_a_query_term_changes_nothing() {
        let mut index = Bm25::default();
        index.add(0, &words("red fox"));
        index.add(1, &words("red hen"));
        assert_eq!(index.matches(&words("fox fox red")), index.matches(&words("fox red")));
        assert_eq!(index.matches(&words("fox red"))[0].overlap, 2);
    }
}
