//! The index: documents, their terms and their vectors, searched by both channels at once.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::blocks::{Lazy, corrupt};
use crate::bm25::{Bm25, FIRST_WINDOW, Fields, Match, Scorer, WIDEST_WINDOW, WINDOW};
use crate::dense::{Dense, unit};
use crate::error::{Error, Result};
use crate::exclusions::announced;
use crate::stage1::{Blend, Scored, Span, best_first};
use crate::terms::number_of;
use crate::text::Analyzer;

/// One document as the index keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Unique within the index.
    pub id: String,
    /// A name or heading, read together with the text; may be empty.
    pub title: String,
    /// What the document says, in short: with the title, its head.
    pub text: String,
    /// What it says at length; may be empty.
    pub body: String,
    /// Parts of the body that can be read alone, in their order and without overlap; what lies
    /// outside of them is kept and not searched.
    pub passages: Vec<Span>,
    /// A JSON object that belongs to the caller; kept and never read.
    pub metadata: String,
}

impl Record {
    /// Whether each passage is a part of the body, and starts where the one before ends or later.
    pub(crate) fn passages_fit(&self) -> bool {
        let length = self.body.chars().count();
        let mut before = 0;
        self.passages.iter().all(|Span { start, end }| {
            let fits = before <= *start && start < end && *end as usize <= length;
            before = *end;
            fits
        })
    }

    /// The text as it is searched: that of a document with a body is its description.
    fn announced(&self) -> Cow<'_, str> {
        if self.body.is_empty() { Cow::Borrowed(&self.text) } else { announced(&self.text) }
    }

    fn passage(&self, span: Span) -> &str {
        let byte = |character: u32| {
            self.body.char_indices().nth(character as usize).map_or(self.body.len(), |(at, _)| at)
        };
        self.body.get(byte(span.start)..byte(span.end)).unwrap_or_default()
    }
}

/// What a search looks for beside the query.
#[derive(Clone, Debug)]
pub struct SearchOptions<'a> {
    /// How the two channels become one score.
    pub blend: Blend,
    /// How many candidates each channel, and the blend of both, brings in; at least 2.
    pub per_channel: usize,
    /// Only these ids, where given.
    pub allow: Option<&'a HashSet<String>>,
    /// None of these ids.
    pub deny: &'a HashSet<String>,
}

/// Where a document is: in memory, or in a block of the file that was opened.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) id: Arc<str>,
    record: Stored,
}

#[derive(Clone, Debug)]
enum Stored {
    Here(Arc<Record>),
    /// And its place in the block.
    Filed(Arc<FiledRecords>, usize),
}

/// Documents that stand in one block of a file.
#[derive(Debug)]
pub(crate) struct FiledRecords {
    pub(crate) block: Lazy<Vec<Record>>,
    /// Their ids and numbers of passages, by which the rest of the file knows them.
    pub(crate) known: Vec<(Arc<str>, u32)>,
}

impl FiledRecords {
    fn get(&self, place: usize) -> Result<&Record> {
        let records = self.block.get(|bytes| {
            let unreadable = |_| corrupt("its documents cannot be read");
            let records: Vec<Record> = postcard::from_bytes(bytes).map_err(unreadable)?;
            let matches = |(record, (id, passages)): (&Record, &(Arc<str>, u32))| {
                *record.id == **id && number_of(record.passages.len()) == *passages
            };
            if records.len() != self.known.len() || !records.iter().zip(&self.known).all(matches) {
                return Err(corrupt("its documents are not those of its table"));
            }
            match records.iter().find(|record| !record.passages_fit()) {
                Some(Record { id, .. }) => {
                    Err(corrupt(&format!("the passages of {id:?} are not in its body")))
                }
                None => Ok(records),
            }
        })?;
        records.get(place).ok_or_else(|| corrupt("its documents are not those of its table"))
    }
}

impl Slot {
    /// The slots of the documents of a block.
    pub(crate) fn filed(records: FiledRecords) -> impl Iterator<Item = Self> {
        let records = Arc::new(records);
        let slot = move |place: usize| {
            let (id, _) = records.known.get(place)?;
            Some(Self { id: Arc::clone(id), record: Stored::Filed(Arc::clone(&records), place) })
        };
        (0..).map_while(slot)
    }

    pub(crate) fn record(&self) -> Result<&Record> {
        match &self.record {
            Stored::Here(record) => Ok(record),
            Stored::Filed(records, place) => records.get(*place),
        }
    }
}

/// Documents that can be searched, added, replaced and removed.
///
/// One that was opened from a file reads its parts when they are first needed, each of which may be
/// damaged: that is `index_corrupt`, `index_truncated` or `index_unreadable` for whoever is first. A
/// change reads all of it.
///
/// A clone is a version of its own that shares documents, postings and vectors with the one that it
/// was made of: it costs a few words per document and term, and what is changed later.
#[derive(Clone, Debug)]
pub struct Index {
    pub(crate) analyzer: Analyzer,
    pub(crate) embedder: String,
    pub(crate) bm25: Bm25,
    /// The vectors of the heads; none for an index without vectors.
    pub(crate) dense: Option<Dense>,
    /// Slots are handed out once; a removed document leaves an empty one until the index is
    /// compacted.
    pub(crate) slots: Vec<Option<Slot>>,
    pub(crate) by_id: HashMap<Arc<str>, u32>,
    pub(crate) fingerprint: OnceLock<String>,
    /// Whether parts may be in a file still.
    pub(crate) filed: bool,
}

/// Empty slots, or terms without a document, that are not worth compacting for.
const SPARE: usize = if cfg!(test) { 4 } else { 1_024 };

/// The widest vector that an index takes; embedders in use have at most 8,192 numbers.
pub(crate) const MAX_DIMENSION: usize = 65_536;

impl Index {
    /// An empty index.
    ///
    /// `embedder` is the identity of the model that makes the vectors, and `dimension` their
    /// length; 0 makes an index without vectors. Fails with `out_of_range` for a dimension above
    /// 65,536.
    pub fn new(analyzer: Analyzer, embedder: &str, dimension: usize) -> Result<Self> {
        if dimension > MAX_DIMENSION {
            return Err(Error::input(
                "out_of_range",
                format!("the dimension is {dimension}: it must be at most {MAX_DIMENSION}"),
            ));
        }
        Ok(Self {
            analyzer,
            embedder: embedder.to_owned(),
            bm25: Bm25::default(),
            dense: (dimension > 0).then(|| Dense::new(dimension)),
            slots: Vec::new(),
            by_id: HashMap::new(),
            fingerprint: OnceLock::new(),
            filed: false,
        })
    }

    /// Identity of the model that made the vectors; empty for an index without vectors.
    pub fn embedder(&self) -> &str {
        &self.embedder
    }

    /// Length of the vectors; 0 for an index without vectors.
    pub fn dimension(&self) -> usize {
        self.dense.as_ref().map_or(0, Dense::dimension)
    }

    /// The analyzer of documents and queries.
    pub fn analyzer(&self) -> Analyzer {
        self.analyzer
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Whether there is a document with an id.
    pub fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// The document with an id.
    pub fn get(&self, id: &str) -> Result<Option<&Record>> {
        let slot = self.by_id.get(id).and_then(|slot| self.slots.get(*slot as usize));
        slot.and_then(Option::as_ref).map(Slot::record).transpose()
    }

    /// The vector of a document, of length 1.
    pub fn vector(&self, id: &str) -> Result<Option<&[f32]>> {
        let found = self.dense.as_ref().zip(self.by_id.get(id));
        found.map(|(dense, slot)| dense.row(*slot)).transpose()
    }

    /// The ids of the documents in the order in which they were added.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().flatten().map(|slot| &*slot.id)
    }

    /// Reads of a file what was not read so far, and checks it.
    pub fn load(&self) -> Result<()> {
        if !self.filed {
            return Ok(());
        }
        self.bm25.load()?;
        self.dense.as_ref().map_or(Ok(()), Dense::load)?;
        let fingerprint = self.fingerprint_of_documents()?;
        if self.fingerprint.get_or_init(|| fingerprint.clone()) != &fingerprint {
            return Err(corrupt("its fingerprint is not that of its documents"));
        }
        Ok(())
    }

    /// Adds documents, and replaces those whose id is there already; all of them or none.
    ///
    /// An index with vectors needs one vector per document, an index without takes none. Fails with
    /// `duplicate_id` where an id occurs twice in the call, with `out_of_range` where passages are
    /// no parts of their body, and with `wrong_dimension`, `not_finite` or `zero_vector` where a
    /// vector has no direction.
    pub fn upsert(&mut self, documents: Vec<(Record, Option<Vec<f32>>)>) -> Result<()> {
        let mut seen = HashSet::new();
        if let Some((twice, _)) = documents.iter().find(|(record, _)| !seen.insert(&record.id)) {
            return Err(Error::input(
                "duplicate_id",
                format!("the id {:?} occurs twice: ids must be unique", twice.id),
            ));
        }
        let units: Vec<Vec<f32>> = documents
            .iter()
            .map(|(record, vector)| {
                if !record.passages_fit() {
                    return Err(Error::input(
                        "out_of_range",
                        format!(
                            "the passages of document {:?} must be parts of its body, one after \
                             the other",
                            record.id
                        ),
                    ));
                }
                let vector = vector.as_deref().unwrap_or_default();
                match self.dimension() {
                    0 if vector.is_empty() => Ok(Vec::new()),
                    dimension => unit(&format!("document {:?}", record.id), vector, dimension),
                }
            })
            .collect::<Result<_>>()?;
        self.change()?;
        for ((record, _), unit) in documents.into_iter().zip(units) {
            self.remove_one(&record.id)?;
            let slot = u32::try_from(self.slots.len()).map_err(|_| {
                Error::input("out_of_range", "an index holds at most 4,294,967,295 documents")
            })?;
            self.bm25.add(slot, &self.terms(&record))?;
            if let Some(dense) = &mut self.dense {
                dense.set(slot, &unit)?;
            }
            let id: Arc<str> = record.id.as_str().into();
            self.by_id.insert(Arc::clone(&id), slot);
            self.slots.push(Some(Slot { id, record: Stored::Here(Arc::new(record)) }));
            self.compact_if_worth_it()?;
        }
        Ok(())
    }

    /// Removes a document; returns whether it was there.
    pub fn remove(&mut self, id: &str) -> Result<bool> {
        self.change()?;
        self.remove_one(id)
    }

    /// Reads all of the file before anything changes, so that a damaged one fails with nothing changed.
    fn change(&mut self) -> Result<()> {
        self.load()?;
        self.filed = false;
        self.fingerprint = OnceLock::new();
        Ok(())
    }

    fn remove_one(&mut self, id: &str) -> Result<bool> {
        let Some(slot) = self.by_id.remove(id) else { return Ok(false) };
        if let Some(taken) = self.slots.get_mut(slot as usize).and_then(Option::take) {
            self.bm25.remove(slot, &self.terms(taken.record()?))?;
        }
        self.compact_if_worth_it()?;
        Ok(true)
    }

    /// Slots that hold a document, in their order.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }

    /// Forgets what removed documents left behind once it is more than a half of all slots or of all
    /// terms, so that neither memory nor the time of a search grows with what an index has seen.
    fn compact_if_worth_it(&mut self) -> Result<()> {
        let worth_it = |dead: usize, all: usize| dead > SPARE && dead > all / 2;
        let (dead, terms) = self.bm25.dead_terms();
        if !worth_it(dead, terms) && !worth_it(self.slots.len() - self.len(), self.slots.len()) {
            return Ok(());
        }
        let live: Vec<u32> = self.live().map(|(number, _)| number).collect();
        self.bm25 = self.bm25.compacted(&live)?;
        if let Some(dense) = &mut self.dense {
            *dense = dense.compacted(&live)?;
        }
        self.slots.retain(Option::is_some);
        for (number, slot) in (0..).zip(self.slots.iter().flatten()) {
            self.by_id.insert(Arc::clone(&slot.id), number);
        }
        Ok(())
    }

    /// The best candidates of each channel and of their blend, best blend first, with what they say.
    ///
    /// Without a query vector the cosines are missing and the blend is BM25's alone. Fails with
    /// `wrong_dimension`, `not_finite` or `zero_vector` where the query's vector is no direction,
    /// and with `out_of_range` where the blend's weights are none.
    pub fn search(
        &self,
        query: &str,
        vector: Option<&[f32]>,
        options: &SearchOptions<'_>,
    ) -> Result<Vec<(Scored, &Record)>> {
        options.blend.check()?;
        let mut scorer =
            self.bm25.scorer(&self.analyzer.terms(query), options.blend.body_weight)?;
        let mut best = match (&self.dense, vector) {
            (Some(dense), Some(vector)) => {
                let unit = unit("the query", vector, dense.dimension())?;
                self.best_by_both(&mut scorer, dense, &unit, options)?
            }
            _ => self.best_by_words(&mut scorer, options),
        };
        best.sort_by(|one, other| {
            best_first((one.blend, &one.slot.id), (other.blend, &other.slot.id))
        });
        let with_record = best.iter().map(|one| {
            let record = one.slot.record()?;
            let passage = scorer.best_passage(one.number);
            let candidate = Scored {
                id: record.id.clone(),
                cosine: one.cosine,
                bm25: one.bm25,
                overlap: one.overlap,
                blend: one.blend,
                passage: passage.and_then(|place| record.passages.get(place).copied()),
            };
            Ok((candidate, record))
        });
        with_record.collect()
    }

    fn best_by_words<'a>(
        &'a self,
        scorer: &mut Scorer<'_>,
        options: &SearchOptions<'_>,
    ) -> Vec<Candidate<'a>> {
        let blend = &options.blend;
        let mut best = Best::new(options.per_channel.max(2));
        let mut least = f64::NEG_INFINITY;
        let all = number_of(self.slots.len());
        // Small windows first: they soon say what a document needs.
        let (mut end, mut size) = (0, FIRST_WINDOW);
        while end < all {
            let first = end;
            end = all.min(first.saturating_add(size));
            size = WIDEST_WINDOW.min(2 * size);
            scorer.reaching(first..end, least, |number, Match { score: bm25, overlap }| {
                let Some(slot) = self.wanted(number, options) else { return };
                let score = blend.score(None, bm25);
                let candidate =
                    Candidate { number, slot, cosine: None, bm25, overlap, blend: score };
                if best.offer(score, candidate) {
                    least = blend.least_bm25(best.least);
                }
            });
        }
        if best.candidates.len() < best.limit {
            // Documents that share no word with the query are better than none.
            let mut matched: Vec<u32> = best.candidates.iter().map(|(_, one)| one.number).collect();
            matched.sort_unstable();
            for number in (0..all).filter(|number| matched.binary_search(number).is_err()) {
                if let Some(slot) = self.wanted(number, options) {
                    let (bm25, overlap, blend) = (0.0, 0, 0.0);
                    best.offer(
                        blend,
                        Candidate { number, slot, cosine: None, bm25, overlap, blend },
                    );
                }
            }
        }
        best.sorted().collect()
    }

    fn best_by_both<'a>(
        &'a self,
        scorer: &mut Scorer<'_>,
        dense: &Dense,
        unit: &[f32],
        options: &SearchOptions<'_>,
    ) -> Result<Vec<Candidate<'a>>> {
        let blend = &options.blend;
        let bounds = dense.bounds(unit)?;
        let [mut by_cosine, mut by_bm25, mut by_blend] =
            [(); 3].map(|()| Best::new(options.per_channel.max(2)));
        // The cosine that a document without a common word needs to enter the list of best blends.
        let mut least_cosine = f64::NEG_INFINITY;
        let mut matches = vec![Match::default(); WINDOW.min(self.slots.len())];
        for (first, bounds) in (0_u32..).step_by(WINDOW).zip(bounds.chunks(WINDOW)) {
            matches.fill(Match::default());
            scorer.next(first, matches.get_mut(..bounds.len()).unwrap_or_default());
            for ((number, bound), Match { score: bm25, overlap }) in
                (first..).zip(bounds).zip(&matches)
            {
                let (bound, bm25, overlap) = (f64::from(*bound), *bm25, *overlap);
                // A document that no list can take is not even looked at, which most are.
                let hopeless = bound < by_cosine.least
                    && if bm25 == 0.0 {
                        bound < least_cosine
                    } else {
                        bm25 < by_bm25.least && blend.score(Some(bound), bm25) < by_blend.least
                    };
                if hopeless {
                    continue;
                }
                let Some(slot) = self.wanted(number, options) else { continue };
                let cosine = f64::from(dense.cosine(number, unit)?);
                let score = blend.score(Some(cosine), bm25);
                let candidate =
                    Candidate { number, slot, cosine: Some(cosine), bm25, overlap, blend: score };
                by_cosine.offer(cosine, candidate);
                if bm25 > 0.0 {
                    by_bm25.offer(bm25, candidate);
                }
                if by_blend.offer(score, candidate) {
                    least_cosine = blend.least_cosine(by_blend.least);
                }
            }
        }
        let mut taken = HashSet::new();
        let all = [by_cosine, by_bm25, by_blend].into_iter().flat_map(Best::sorted);
        Ok(all.filter(|one| taken.insert(one.number)).collect())
    }

    /// The document of a slot, if there is one that a search may find.
    fn wanted(&self, number: u32, options: &SearchOptions<'_>) -> Option<&Slot> {
        let slot = self.slots.get(number as usize)?.as_ref()?;
        let allowed = options.allow.is_none_or(|allowed| allowed.contains(&*slot.id));
        (allowed && !options.deny.contains(&*slot.id)).then_some(slot)
    }

    /// Hash of all documents, whatever their order: it changes when the corpus does.
    pub fn fingerprint(&self) -> Result<String> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(known.clone());
        }
        let found = self.fingerprint_of_documents()?;
        Ok(self.fingerprint.get_or_init(|| found).clone())
    }

    pub(crate) fn fingerprint_of_documents(&self) -> Result<String> {
        let mut slots: Vec<&Slot> = self.slots.iter().flatten().collect();
        slots.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        let mut hasher = blake3::Hasher::new();
        for slot in slots {
            let Record { id, title, text, body, .. } = slot.record()?;
            for field in [id, title, text, body] {
                hasher.update(&(field.len() as u64).to_le_bytes());
                hasher.update(field.as_bytes());
            }
        }
        Ok(hasher.finalize().to_hex().chars().take(32).collect())
    }

    fn terms(&self, record: &Record) -> Fields {
        let mut head = self.analyzer.terms(&record.title);
        head.extend(self.analyzer.terms(&record.announced()));
        let of_passage = |span: &Span| self.analyzer.terms(record.passage(*span));
        Fields { head, passages: record.passages.iter().map(of_passage).collect() }
    }
}

#[derive(Clone, Copy)]
struct Candidate<'a> {
    number: u32,
    slot: &'a Slot,
    cosine: Option<f64>,
    bm25: f64,
    overlap: u32,
    blend: f64,
}

/// The best few candidates by one score; few enough that insertion beats a heap.
struct Best<'a> {
    limit: usize,
    /// In the order of the offers until there are as many as the limit, best first from then on:
    /// where all candidates have a place, they are sorted once.
    candidates: Vec<(f64, Candidate<'a>)>,
    /// A score below this one has no place; one that equals it has where its id is smaller.
    least: f64,
}

impl<'a> Best<'a> {
    fn new(limit: usize) -> Self {
        Self { limit, candidates: Vec::new(), least: f64::NEG_INFINITY }
    }

    /// Returns whether the candidate has a place.
    fn offer(&mut self, score: f64, candidate: Candidate<'a>) -> bool {
        let worse = |(other, one): &(f64, Candidate<'_>)| {
            best_first((*other, &one.slot.id), (score, &candidate.slot.id))
        };
        if score < self.least {
            return false;
        }
        if self.candidates.len() < self.limit {
            self.candidates.push((score, candidate));
            if self.candidates.len() == self.limit {
                self.sort();
            }
            return true;
        }
        let place = self.candidates.partition_point(|other| worse(other).is_lt());
        if place >= self.limit {
            return false;
        }
        self.candidates.insert(place, (score, candidate));
        self.candidates.truncate(self.limit);
        self.raise();
        true
    }

    fn sort(&mut self) {
        self.candidates.sort_unstable_by(|(left, one), (right, other)| {
            best_first((*left, &one.slot.id), (*right, &other.slot.id))
        });
        self.raise();
    }

    fn raise(&mut self) {
        if let Some((least, _)) = self.candidates.last() {
            self.least = *least;
        }
    }

    /// The candidates, best first.
    fn sorted(mut self) -> impl Iterator<Item = Candidate<'a>> {
        self.sort();
        self.candidates.into_iter().map(|(_, one)| one)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLEND: Blend =
        Blend { cosine_weight: 0.7, bm25_weight: 0.3, pivot: 5.0, body_weight: 0.5 };

    pub(crate) fn record(id: &str, text: &str) -> Record {
        Record {
            id: id.to_owned(),
            text: text.to_owned(),
            metadata: "{}".to_owned(),
            ..Record::default()
        }
    }

    /// A document with a body of two passages, `first` and `second`, on lines of their own.
    pub(crate) fn long(id: &str, first: &str, second: &str) -> Record {
        let length = |text: &str| u32::try_from(text.chars().count()).unwrap();
        let passages = vec![
            Span { start: 0, end: length(first) },
            Span { start: length(first) + 1, end: length(first) + 1 + length(second) },
        ];
        Record { body: format!("{first}\n{second}"), passages, ..record(id, id) }
    }

    pub(crate) fn index(documents: &[(&str, &str, [f32; 2])]) -> Index {
        let mut index = Index::new(Analyzer::new("english").unwrap(), "test", 2).unwrap();
        let documents =
            documents.iter().map(|(id, text, vector)| (record(id, text), Some(vector.to_vec())));
        index.upsert(documents.collect()).unwrap();
        index
    }

    fn search(index: &Index, query: &str, vector: Option<&[f32]>) -> Vec<Scored> {
        let deny = HashSet::new();
        let options = SearchOptions { blend: BLEND, per_channel: 2, allow: None, deny: &deny };
        scored(index, query, vector, &options)
    }

    fn scored(
        index: &Index,
        query: &str,
        vector: Option<&[f32]>,
        options: &SearchOptions<'_>,
    ) -> Vec<Scored> {
        let found = index.search(query, vector, options).unwrap();
        found.into_iter().map(|(scored, _)| scored).collect()
    }

    fn ids(found: &[Scored]) -> Vec<&str> {
        found.iter().map(|one| one.id.as_str()).collect()
    }

    fn animals() -> Index {
        index(&[
            ("fox", "a quick red fox", [1.0, 0.0]),
            ("hen", "a hen lays eggs", [0.0, 1.0]),
            ("dog", "the lazy dog", [0.7, 0.7]),
            ("cod", "fish in the sea", [-1.0, 0.1]),
        ])
    }

    #[test]
    fn both_channels_bring_candidates() {
        let found = search(&animals(), "eggs for sale", Some(&[1.0, 0.0]));
        // By cosine the fox and the dog, by BM25 the hen; the cod is nobody's candidate.
        assert_eq!(ids(&found), ["fox", "dog", "hen"]);
        assert_eq!(found[2].overlap, 1);
    }

    #[test]
    fn without_a_vector_bm25_decides_alone() {
        let found = search(&animals(), "lazy dogs and red foxes", None);
        assert!(found.iter().all(|one| one.cosine.is_none()));
        assert_eq!(found[0].blend, BLEND.bounded_bm25(found[0].bm25));
    }

    #[test]
    fn a_body_is_read_by_its_words_and_its_best_passage_named() {
        let mut index = animals();
        let owl = long("owl", "hunts at night, nests early", "lives in \u{e9}glise towers");
        index.upsert(vec![(owl, Some(vec![-1.0, -1.0]))]).unwrap();
        let found = search(&index, "nests in towers", None);
        assert_eq!((found[0].id.as_str(), found[0].overlap), ("owl", 2));
        // Both passages hold one of the words; of equally rare ones the first counts.
        assert_eq!(found[0].passage, Some(Span { start: 0, end: 27 }));
        let passage = |query| search(&index, query, None)[0].passage;
        assert_eq!(passage("lives in towers"), Some(Span { start: 28, end: 50 }));
        // Two rare words against one, also where it is repeated.
        assert_eq!(passage("early night night towers"), Some(Span { start: 0, end: 27 }));
        // The head matches, and no passage does.
        assert_eq!((search(&index, "owl", None)[0].id.as_str(), passage("owl")), ("owl", None));
    }

    #[test]
    fn allow_and_deny_act_before_the_search() {
        let index = animals();
        let (allow, deny) = (["dog", "hen"].map(str::to_owned).into(), ["dog".to_owned()].into());
        let options =
            SearchOptions { blend: BLEND, per_channel: 2, allow: Some(&allow), deny: &deny };
        assert_eq!(ids(&scored(&index, "fox", Some(&[1.0, 0.0]), &options)), ["hen"]);
    }

    #[test]
    fn a_call_that_fails_changes_nothing() {
        let mut index = animals();
        let good = (record("new", "new"), Some(vec![1.0, 1.0]));
        let passages = |spans: &[(u32, u32)]| {
            let passages = spans.iter().map(|(start, end)| Span { start: *start, end: *end });
            (Record { passages: passages.collect(), ..long("bad", "one", "two") }, None)
        };
        for (bad, code) in [
            ((record("bad", "bad"), Some(vec![f32::NAN, 1.0])), "not_finite"),
            ((record("bad", "bad"), Some(vec![1.0])), "wrong_dimension"),
            ((record("bad", "bad"), None), "wrong_dimension"),
            ((record("new", "again"), Some(vec![1.0, 1.0])), "duplicate_id"),
            (passages(&[(0, 3), (2, 7)]), "out_of_range"),
            (passages(&[(0, 3), (4, 8)]), "out_of_range"),
            (passages(&[(3, 3), (4, 7)]), "out_of_range"),
            (passages(&[(4, 7), (0, 3)]), "out_of_range"),
        ] {
            let error = index.upsert(vec![good.clone(), bad]).unwrap_err();
            assert_eq!(error.code(), code);
            assert_eq!((index.len(), index.get("new").unwrap()), (4, None));
        }
        let error = index.search(
            "fox",
            Some(&[1.0]),
            &SearchOptions { blend: BLEND, per_channel: 2, allow: None, deny: &HashSet::new() },
        );
        assert_eq!(error.unwrap_err().code(), "wrong_dimension");
    }

    #[test]
    fn an_index_without_vectors_takes_none() {
        let mut index = Index::new(Analyzer::new("none").unwrap(), "", 0).unwrap();
        index.upsert(vec![(record("a", "red fox"), None)]).unwrap();
        let error = index.upsert(vec![(record("b", "hen"), Some(vec![1.0]))]).unwrap_err();
        assert_eq!(error.code(), "wrong_dimension");
        assert_eq!(ids(&search(&index, "fox", None)), ["a"]);
        assert!(Index::new(Analyzer::new("none").unwrap(), "", MAX_DIMENSION + 1).is_err());
    }

    #[test]
    fn the_fingerprint_follows_the_corpus_and_not_its_order() {
        let (forwards, backwards) = (
            index(&[("a", "x", [1.0, 0.0]), ("b", "y", [0.0, 1.0])]),
            index(&[("b", "y", [0.0, 1.0]), ("a", "x", [1.0, 0.0])]),
        );
        assert_eq!(forwards.fingerprint().unwrap(), backwards.fingerprint().unwrap());
        let shifted = index(&[("ax", "", [1.0, 0.0]), ("b", "y", [0.0, 1.0])]);
        assert_ne!(forwards.fingerprint().unwrap(), shifted.fingerprint().unwrap());
        let of = |record: Record| {
            let mut index = animals();
            index.upsert(vec![(record, Some(vec![1.0, 0.0]))]).unwrap();
            index.fingerprint().unwrap()
        };
        assert_ne!(of(long("a", "one", "two")), of(long("a", "one", "three")));
    }

    #[test]
    fn a_clone_is_a_version_of_its_own() {
        let mut index = animals();
        let before = index.clone();
        let found = search(&before, "fox hen new", Some(&[1.0, 0.0]));
        index.upsert(vec![(record("fox", "new words"), Some(vec![0.0, 1.0]))]).unwrap();
        assert!(index.remove("hen").unwrap());
        assert_eq!(search(&before, "fox hen new", Some(&[1.0, 0.0])), found);
        assert_eq!(before.get("fox").unwrap(), Some(&record("fox", "a quick red fox")));
        assert_ne!(search(&index, "fox hen new", Some(&[1.0, 0.0])), found);
    }

    #[test]
    fn what_an_index_has_seen_does_not_stay() {
        let mut index = animals();
        for round in 0..1_000 {
            let text = format!("word{round} more{round}");
            index.upsert(vec![(record("hen", &text), Some(vec![1.0, 0.5]))]).unwrap();
            let (dead, terms) = index.bm25.dead_terms();
            assert!(dead <= SPARE.max(terms / 2), "{dead} of {terms} terms are dead");
            let dead = index.slots.len() - index.len();
            assert!(dead <= SPARE.max(index.slots.len() / 2), "{dead} slots are empty");
        }
        assert_eq!(ids(&search(&index, "word999", None)), ["hen", "cod"]);
        assert!(index.bm25.dead_terms().1 < 40 && index.slots.len() < 20);
    }

    type Step = (u8, Option<(String, i8, bool)>);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let change = ("[a-d ]{1,8}", 1_i8..4, any::<bool>());
        prop::collection::vec((0_u8..6, prop::option::of(change)), 0..60)
    }

    proptest! {
        /// Whatever was added, replaced and removed before, an index answers as a fresh one does.
        #[test]
        fn history_leaves_no_trace(steps in steps(), query in "[a-d ]{0,6}") {
            let mut changed = Index::new(Analyzer::new("none").unwrap(), "test", 2).unwrap();
            let mut state = std::collections::BTreeMap::new();
            for (id, change) in steps {
                let id = id.to_string();
                if let Some((text, direction, with_body)) = change {
                    let record = if with_body { long(&id, "a", &text) } else { record(&id, &text) };
                    let document = (record, Some(vec![1.0, f32::from(direction)]));
                    changed.upsert(vec![document.clone()]).unwrap();
                    state.insert(id, document);
                } else {
                    prop_assert_eq!(changed.remove(&id).unwrap(), state.remove(&id).is_some());
                }
            }
            let mut fresh = Index::new(Analyzer::new("none").unwrap(), "test", 2).unwrap();
            fresh.upsert(state.into_values().collect()).unwrap();
            prop_assert_eq!(changed.len(), fresh.len());
            prop_assert_eq!(changed.fingerprint().unwrap(), fresh.fingerprint().unwrap());
            prop_assert!(changed.slots.len() - changed.len() <= SPARE.max(changed.slots.len() / 2));
            for vector in [None, Some([1.0, 2.0].as_slice())] {
                prop_assert_eq!(search(&changed, &query, vector), search(&fresh, &query, vector));
            }
        }

        /// The best of each channel is found whatever the other channel says.
        #[test]
        fn the_top_of_each_channel_is_among_the_candidates(
            texts in prop::collection::vec("[a-d ]{0,8}", 1..10), query in "[a-d ]{1,6}",
        ) {
            let analyzer = Analyzer::new("none").unwrap();
            let mut index = Index::new(analyzer, "test", 2).unwrap();
            let documents = texts.iter().enumerate().map(|(place, text)| {
                (record(&place.to_string(), text), Some(vec![1.0, (place % 3) as f32]))
            });
            index.upsert(documents.collect()).unwrap();
            let found = search(&index, &query, Some(&[1.0, 2.0]));
            let deny = HashSet::new();
            let everything = SearchOptions { blend: BLEND, per_channel: 99, allow: None, deny: &deny };
            let all = scored(&index, &query, Some(&[1.0, 2.0]), &everything);
            prop_assert_eq!(all.len(), texts.len());
            for score in [|one: &Scored| one.cosine.unwrap(), |one: &Scored| one.bm25, |one: &Scored| one.blend] {
                let best = |list: &[Scored]| list.iter().map(score).fold(f64::MIN, f64::max);
                prop_assert_eq!(best(&found), best(&all));
            }
        }

        /// What is left out could not have had a place, however scores tie and whoever is allowed.
        #[test]
        fn candidates_are_the_best_of_all(
            texts in prop::collection::vec("[a-d ]{0,6}", 1..40),
            query in "[a-d ]{0,6}",
            per_channel in 2_usize..6,
            with_vector in any::<bool>(),
            denied in 0_usize..40,
            numbers in prop::collection::vec(-1.0_f32..1.0, 40 * 5 + 5),
            (cosine_weight, bm25_weight) in
                prop_oneof![Just((0.0, 1.0)), Just((1.0, 0.0)), (0.1..1.0_f64, 0.1..1.0_f64)],
        ) {
            let blend = Blend { cosine_weight, bm25_weight, ..BLEND };
            let mut index = Index::new(Analyzer::new("none").unwrap(), "test", 5).unwrap();
            let documents = texts.iter().enumerate().map(|(place, text)| {
                let id = (place * 7 % 41).to_string();
                // Every third vector twice, so that cosines tie.
                let start = (place - usize::from(place % 3 == 1)) * 5;
                (record(&id, text), Some(numbers[start..start + 5].to_vec()))
            });
            index.upsert(documents.collect()).unwrap();
            let deny = [denied.to_string()].into();
            let run = |per_channel| {
                let options = SearchOptions { blend, per_channel, allow: None, deny: &deny };
                let vector = with_vector.then_some(&numbers[200..]);
                scored(&index, &query, vector, &options)
            };
            let all = run(99);
            let mut expected = HashSet::new();
            for score in [
                |one: &Scored| one.cosine,
                |one: &Scored| (one.bm25 > 0.0).then_some(one.bm25),
                |one: &Scored| Some(one.blend),
            ] {
                let mut ranked: Vec<_> =
                    all.iter().filter_map(|one| Some((score(one)?, one.id.as_str()))).collect();
                ranked.sort_by(|left, right| best_first(*left, *right));
                expected.extend(ranked.into_iter().take(per_channel).map(|(_, id)| id));
            }
            let expected: Vec<_> =
                all.iter().filter(|one| expected.contains(one.id.as_str())).cloned().collect();
            prop_assert_eq!(run(per_channel), expected);
        }
    }
}
