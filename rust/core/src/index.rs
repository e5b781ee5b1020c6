//! The index: documents with their terms and vectors, searched by BM25 and cosine in one pass.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, OnceLock};

use serde::{Deserialize, Serialize};

use crate::blocks::Lazy;
use crate::bm25::{Bm25, Fields, Match, SIZES, Scorer, Sizes};
use crate::dense::{Dense, unit};
use crate::error::{Damage, Error, Kind, Result};
use crate::evidence::{Evidence, EvidenceWeights};
use crate::exclusions::strip_exclusions;
use crate::hints::{Asked, Entry, HintVectors, Hinted, Hints, Prompts, Query};
use crate::names::{Library, Names, folded, likeness, names, server_and_tool};
use crate::stage1::{Blend, Scored, Span, best_first};
use crate::technologies::Project;
use crate::terms::number_of;
use crate::text::Analyzer;
use crate::triggers;
use crate::versions::Versions;

/// A document of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Id, unique within the index.
    pub id: String,
    /// Name or heading, searched together with the text; may be empty.
    pub title: String,
    /// Description or short text. Title and text are the head of the document.
    pub text: String,
    /// Full text; may be empty.
    pub body: String,
    /// Parts of the body that can be read alone, in order and without overlap. The rest of the body
    /// is stored and not searched.
    pub passages: Vec<Span>,
    /// A JSON object of the caller. With `implicit` as `false`, a query finds the document by its name
    /// alone; `read_only` and `destructive` say what a tool does. The rest is never interpreted.
    pub metadata: String,
    /// Whether the text is a description, from which triggers are read, and in which the sentences
    /// that exclude something are not searched; see [`crate::description`].
    pub is_description: bool,
    /// Words and phrases that should select the document, beside those of the text.
    pub triggers: Vec<String>,
    /// Prompts that should select the document.
    pub examples: Vec<String>,
    /// Prompts that should not select the document.
    pub counterexamples: Vec<String>,
}

impl Record {
    /// Whether all passages are parts of the body, in order and without overlap.
    pub(crate) fn passages_fit(&self) -> bool {
        let length = self.body.chars().count();
        let mut before = 0;
        self.passages.iter().all(|Span { start, end }| {
            let fits = before <= *start && start < end && *end as usize <= length;
            before = *end;
            fits
        })
    }

    /// The text that is searched: exclusions would match the queries that they exclude.
    fn purpose(&self) -> Cow<'_, str> {
        if self.is_description { strip_exclusions(&self.text) } else { Cow::Borrowed(&self.text) }
    }

    /// Whether the author reserves the document for queries that name it.
    fn is_manual(&self) -> bool {
        self.flag("implicit") == Some(false)
    }

    /// Whether a tool only reads; none if it is unknown, or no tool.
    fn only_reads(&self) -> Option<bool> {
        match self.flag("destructive") {
            Some(true) => Some(false),
            _ => self.flag("read_only"),
        }
    }

    /// A value of the metadata that is true or false.
    fn flag(&self, key: &str) -> Option<bool> {
        // Most documents have none, and then nothing is parsed.
        if !self.metadata.contains(key) {
            return None;
        }
        serde_json::from_str::<serde_json::Value>(&self.metadata).ok()?.get(key)?.as_bool()
    }

    /// Passes the hints to a function: those of the record, followed by those of the text.
    fn with_hints<T>(&self, call: impl FnOnce(Hinted<'_>) -> T) -> T {
        let name = if self.title.trim().is_empty() { &self.id } else { &self.title };
        let read = self.is_description.then(|| triggers::read(name, &self.purpose()));
        let triggers = [self.triggers.as_slice(), read.unwrap_or_default().as_slice()].concat();
        call(Hinted {
            owner: &self.id,
            triggers: &triggers,
            examples: &self.examples,
            counterexamples: &self.counterexamples,
        })
    }

    fn passage(&self, span: Span) -> &str {
        let byte = |character: u32| {
            self.body.char_indices().nth(character as usize).map_or(self.body.len(), |(at, _)| at)
        };
        let passage = self.body.get(byte(span.start)..byte(span.end));
        passage.expect("passages are checked when a document is added or read")
    }
}

/// Settings of a search.
#[derive(Clone, Debug)]
pub struct SearchOptions<'a> {
    /// How BM25 and cosine are combined into one score.
    pub blend: Blend,
    /// Number of best candidates by cosine, by BM25 and by blend that are returned; at least 2.
    pub per_channel: usize,
    /// If given, only documents with these ids are found.
    pub allow: Option<&'a HashSet<String>>,
    /// Documents with these ids are not found.
    pub deny: &'a HashSet<String>,
    /// Weights of the evidence that is added to the blend.
    pub evidence: EvidenceWeights,
    /// Technologies of the project that the query comes from.
    pub project: Project,
    /// Earlier requests of the conversation, with the weight of their terms; that of the query is 1.
    pub history: &'a [(String, f64)],
    /// Intercept and weights of the linear model of a document's usefulness in a session, over its
    /// vector; none outside a session.
    pub usefulness: Option<&'a (f64, Vec<f32>)>,
    /// Probability that the query asks to read and not to act; none if unknown.
    pub asks: Option<f64>,
    /// Ids of the documents that the query names exactly: see [`Index::named`].
    pub named: &'a HashSet<String>,
}

static NO_IDS: LazyLock<HashSet<String>> = LazyLock::new(HashSet::new);

impl Default for SearchOptions<'_> {
    fn default() -> Self {
        Self {
            blend: Blend::default(),
            per_channel: 10,
            allow: None,
            deny: &NO_IDS,
            evidence: EvidenceWeights::default(),
            project: Project::default(),
            history: &[],
            usefulness: None,
            asks: None,
            named: &NO_IDS,
        }
    }
}

/// The documents that a query names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Their ids, in the order of the query.
    pub ids: Vec<String>,
    /// A name that no document has, and the id that is most like it.
    pub unknown: Option<(String, String)>,
}

/// A document in memory, or in a block of an open file.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) id: Arc<str>,
    /// Whether a query finds it by its name alone.
    pub(crate) is_manual: bool,
    record: Stored,
}

#[derive(Clone, Debug)]
enum Stored {
    InMemory(Arc<Record>),
    /// The records of a block, and the position of this record.
    InFile(Arc<FileRecords>, usize),
}

/// The documents of a block of a file.
#[derive(Debug)]
pub(crate) struct FileRecords {
    pub(crate) block: Lazy<Vec<Record>>,
    /// Their ids, numbers of passages and whether they are manual, in the table of the file.
    pub(crate) rows: Vec<(Arc<str>, u32, bool)>,
}

impl FileRecords {
    fn get(&self, position: usize) -> Result<&Record> {
        let records = self.block.get(|bytes| {
            let records: Vec<Record> = postcard::from_bytes(bytes)
                .map_err(|_| Error::corrupt(Damage::DocumentsUnreadable))?;
            let matches =
                |(record, (id, passages, is_manual)): (&Record, &(Arc<str>, u32, bool))| {
                    *record.id == **id
                        && number_of(record.passages.len()) == *passages
                        && record.is_manual() == *is_manual
                };
            if records.len() != self.rows.len() || !records.iter().zip(&self.rows).all(matches) {
                return Err(Error::corrupt(Damage::DocumentsNotInTable));
            }
            match records.iter().find(|record| !record.passages_fit()) {
                Some(record) => Err(Error::corrupt(Damage::Passages { id: record.id.clone() })),
                None => Ok(records),
            }
        })?;
        Ok(records.get(position).expect("there is one record for each row"))
    }
}

impl Slot {
    /// The slots of the documents of a block.
    pub(crate) fn of_records(records: FileRecords) -> impl Iterator<Item = Self> {
        let records = Arc::new(records);
        let slot = move |position: usize| {
            let (id, _, is_manual) = records.rows.get(position)?;
            let record = Stored::InFile(Arc::clone(&records), position);
            Some(Self { id: Arc::clone(id), is_manual: *is_manual, record })
        };
        (0..).map_while(slot)
    }

    pub(crate) fn record(&self) -> Result<&Record> {
        match &self.record {
            Stored::InMemory(record) => Ok(record),
            Stored::InFile(records, position) => records.get(*position),
        }
    }
}

/// Documents that can be searched, added, replaced and removed.
///
/// An index of a file reads each block on first use. Damage in a block is reported by the first
/// method that reads it, with `index_corrupt`, `index_truncated` or `index_unreadable`. Methods that
/// change the index read all of it first.
///
/// Clones share documents, postings and vectors until one of them changes. A clone takes a few words
/// of memory per document and term.
///
/// # Examples
///
/// ```
/// use crossgate_core::Index;
/// use crossgate_core::index::{Record, SearchOptions};
/// use crossgate_core::text::Analyzer;
///
/// let record = |id: &str, text: &str| Record {
///     id: id.to_owned(),
///     text: text.to_owned(),
///     ..Record::default()
/// };
/// let mut index = Index::new(Analyzer::new("english")?, "toy", 2)?;
/// index.upsert(vec![
///     (record("pdf", "Merge and split PDF files"), Some(vec![0.9, 0.1])),
///     (record("csv", "Clean up CSV files"), Some(vec![0.2, 0.8])),
/// ])?;
/// let options = SearchOptions::default();
/// let found = index.search("merge two files", Some(&[1.0, 0.0]), &options)?;
/// let (first, record) = &found[0];
/// assert_eq!((first.id.as_str(), first.overlap), ("pdf", 2));
/// assert_eq!(record.text, "Merge and split PDF files");
/// # Ok::<(), crossgate_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Index {
    pub(crate) analyzer: Analyzer,
    pub(crate) embedder: String,
    pub(crate) bm25: Bm25,
    /// The vectors of the heads; none in an index without vectors.
    pub(crate) dense: Option<Dense>,
    pub(crate) hints: Lazy<Arc<Hints>>,
    /// Prompts that no document fits.
    pub(crate) nothing: Vec<String>,
    /// Documents by slot. A removed document leaves an empty slot until the index is compacted.
    pub(crate) slots: Vec<Option<Slot>>,
    pub(crate) by_id: HashMap<Arc<str>, u32>,
    pub(crate) fingerprint: OnceLock<String>,
    /// Whether some blocks of a file may not have been read.
    pub(crate) unread: bool,
    /// Empty slots, or terms without documents, up to which the index is not compacted.
    pub(crate) spare: usize,
}

/// Compacting a smaller index would cost more time than it saves.
const SPARE: usize = 1_024;

/// The widest vector of an index; known embedders have at most 8,192 numbers.
pub(crate) const MAX_DIMENSION: usize = 65_536;

impl Index {
    /// An empty index.
    ///
    /// `embedder` is the identity of the model of the vectors, and `dimension` their length; with 0
    /// the index has no vectors. Fails with `out_of_range` for a dimension above 65,536.
    pub fn new(analyzer: Analyzer, embedder: &str, dimension: usize) -> Result<Self> {
        if dimension > MAX_DIMENSION {
            let limit = format!("at most {MAX_DIMENSION}");
            return Err(Error::out_of_range("the dimension", dimension, limit));
        }
        Ok(Self {
            analyzer,
            embedder: embedder.to_owned(),
            bm25: Bm25::default(),
            dense: (dimension > 0).then(|| Dense::new(dimension)),
            hints: Lazy::from(Arc::default()),
            nothing: Vec::new(),
            slots: Vec::new(),
            by_id: HashMap::new(),
            fingerprint: OnceLock::new(),
            unread: false,
            spare: SPARE,
        })
    }

    /// Identity of the model of the vectors; empty for an index without vectors.
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

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether the index has no documents.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Whether the index has a document with this id.
    pub fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// The document with this id.
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

    /// Reads and checks all blocks of a file that were not read yet.
    pub fn load(&self) -> Result<()> {
        if !self.unread {
            return Ok(());
        }
        self.bm25.load()?;
        self.dense.as_ref().map_or(Ok(()), Dense::load)?;
        self.hints()?;
        let fingerprint = self.fingerprint_of_documents()?;
        if self.fingerprint.get_or_init(|| fingerprint.clone()) != &fingerprint {
            return Err(Error::corrupt(Damage::Fingerprint));
        }
        Ok(())
    }

    /// Adds documents and replaces those with the same id. An error leaves the index unchanged.
    ///
    /// An index with vectors needs one vector per document, and an index without vectors takes none.
    /// Fails with `duplicate_id` if an id occurs twice in the call, with `out_of_range` if passages
    /// are not in their body, in order and without overlap, and with `wrong_dimension`, `not_finite`
    /// or `zero_vector` for a vector without a direction.
    pub fn upsert(&mut self, documents: Vec<(Record, Option<Vec<f32>>)>) -> Result<()> {
        let without_hints = |(record, vector)| (record, vector, HintVectors::default());
        self.upsert_with_hints(documents.into_iter().map(without_hints).collect())
    }

    /// The same, with the vectors of examples.
    pub fn upsert_with_hints(
        &mut self,
        documents: Vec<(Record, Option<Vec<f32>>, HintVectors)>,
    ) -> Result<()> {
        let mut seen = HashSet::new();
        let repeated = documents.iter().find(|(record, ..)| !seen.insert(&record.id));
        if let Some((repeated, ..)) = repeated {
            return Err(Kind::DuplicateId { id: repeated.id.clone() }.into());
        }
        let (analyzer, dimension) = (self.analyzer, self.dimension());
        let mut checked = Hints::default();
        let units: Vec<Vec<f32>> = documents
            .iter()
            .map(|(record, vector, hints)| {
                // A vector that is refused must leave the index unchanged.
                record.with_hints(|hinted| checked.add(0, hinted, hints, analyzer, dimension))?;
                if !record.passages_fit() {
                    return Err(Kind::Passages { id: record.id.clone() }.into());
                }
                let vector = vector.as_deref().unwrap_or_default();
                match self.dimension() {
                    0 if vector.is_empty() => Ok(Vec::new()),
                    dimension => unit(&format!("document {:?}", record.id), vector, dimension),
                }
            })
            .collect::<Result<_>>()?;
        self.change()?;
        for ((record, _, vectors), unit) in documents.into_iter().zip(units) {
            self.remove_document(&record.id)?;
            let slot = u32::try_from(self.slots.len()).map_err(|_| Kind::TooManyDocuments)?;
            self.bm25.add(slot, &self.terms(&record))?;
            if let Some(dense) = &mut self.dense {
                dense.set(slot, &unit)?;
            }
            let hints = self.hints_to_change()?;
            record.with_hints(|hinted| hints.add(slot, hinted, &vectors, analyzer, dimension))?;
            let id: Arc<str> = record.id.as_str().into();
            self.by_id.insert(Arc::clone(&id), slot);
            let is_manual = record.is_manual();
            self.slots.push(Some(Slot {
                id,
                is_manual,
                record: Stored::InMemory(Arc::new(record)),
            }));
            self.compact_if_sparse()?;
        }
        Ok(())
    }

    /// Removes a document; returns whether the index had it.
    pub fn remove(&mut self, id: &str) -> Result<bool> {
        self.change()?;
        self.remove_document(id)
    }

    /// Reads the whole file before the first change, so that a damaged file leaves the index as it
    /// was.
    fn change(&mut self) -> Result<()> {
        self.load()?;
        self.unread = false;
        self.fingerprint = OnceLock::new();
        Ok(())
    }

    fn remove_document(&mut self, id: &str) -> Result<bool> {
        let Some(slot) = self.by_id.remove(id) else { return Ok(false) };
        if let Some(taken) = self.slots.get_mut(slot as usize).and_then(Option::take) {
            let record = taken.record()?;
            self.bm25.remove(slot, &self.terms(record))?;
            let analyzer = self.analyzer;
            let hints = self.hints_to_change()?;
            record.with_hints(|hinted| hints.remove(slot, hinted, analyzer));
        }
        self.compact_if_sparse()?;
        Ok(true)
    }

    /// The slots with a document, in order.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }

    /// Drops empty slots and terms without documents once they are more than half of all, so that
    /// memory and search time depend on the current documents and not on removed documents.
    fn compact_if_sparse(&mut self) -> Result<()> {
        let sparse = |dead: usize, all: usize| dead > self.spare && dead > all / 2;
        let (dead, terms) = self.bm25.dead_terms();
        if !sparse(dead, terms) && !sparse(self.slots.len() - self.len(), self.slots.len()) {
            return Ok(());
        }
        let live: Vec<u32> = self.live().map(|(number, _)| number).collect();
        self.bm25 = self.bm25.compacted(&live)?;
        if let Some(dense) = &mut self.dense {
            *dense = dense.compacted(&live)?;
        }
        self.hints = Lazy::from(Arc::new(self.hints()?.compacted(&live)));
        self.slots.retain(Option::is_some);
        for (number, slot) in (0..).zip(self.slots.iter().flatten()) {
            self.by_id.insert(Arc::clone(&slot.id), number);
        }
        Ok(())
    }

    pub(crate) fn hints(&self) -> Result<&Arc<Hints>> {
        let (documents, dimension) = (self.slots.len(), self.dimension());
        self.hints.get(|bytes| {
            let hints: Hints =
                postcard::from_bytes(bytes).map_err(|_| Error::corrupt(Damage::HintsUnreadable))?;
            if !hints.fits(documents, dimension) {
                return Err(Error::corrupt(Damage::HintsUnreadable));
            }
            Ok(Arc::new(hints))
        })
    }

    fn hints_to_change(&mut self) -> Result<&mut Hints> {
        self.hints()?;
        let hints = self.hints.get_mut().expect("the hints have been read");
        Ok(Arc::make_mut(hints))
    }

    /// The vectors of a document's hints, within the error of rounding.
    pub fn hint_vectors(&self, id: &str) -> Result<HintVectors> {
        let hints = self.hints()?;
        Ok(self.by_id.get(id).map(|slot| hints.vectors(*slot)).unwrap_or_default())
    }

    /// Prompts that no document fits.
    pub fn nothing(&self) -> &[String] {
        &self.nothing
    }

    /// Adds a prompt that should select a document, or should not select it; or without an id,
    /// a prompt that no document fits. It replaces what contradicts it: earlier prompts with the same
    /// terms. Returns whether that changed the index.
    ///
    /// Fails with `wrong_dimension`, `not_finite` or `zero_vector` for a vector without a direction.
    pub fn teach(
        &mut self,
        id: Option<&str>,
        prompt: &str,
        should_select: bool,
        vector: Option<&[f32]>,
    ) -> Result<bool> {
        let entry = Entry::of("the example", prompt, vector, self.analyzer, self.dimension())?;
        self.change()?;
        let mut is_changed = false;
        let Some(id) = id else {
            for slot in self.hints()?.with_example(&entry) {
                let remove = |mut examples: Prompts<'_>| examples.remove(prompt, &entry);
                is_changed |= self.change_prompts(slot, true, remove)?;
            }
            return Ok(self.prompts_of_nothing()?.add(prompt, entry) || is_changed);
        };
        let Some(slot) = self.by_id.get(id).copied() else { return Ok(false) };
        if should_select {
            is_changed |= self.prompts_of_nothing()?.remove(prompt, &entry);
        }
        let remove = |mut opposite: Prompts<'_>| opposite.remove(prompt, &entry);
        is_changed |= self.change_prompts(slot, !should_select, remove)?;
        let add = |mut same: Prompts<'_>| same.add(prompt, entry);
        Ok(self.change_prompts(slot, should_select, add)? || is_changed)
    }

    fn prompts_of_nothing(&mut self) -> Result<Prompts<'_>> {
        self.hints()?;
        let hints = Arc::make_mut(self.hints.get_mut().expect("the hints have been read"));
        Ok(Prompts { texts: &mut self.nothing, entries: &mut hints.nothing })
    }

    /// Changes the examples of a document, or its counterexamples; returns what the change returns:
    /// whether there was a change.
    fn change_prompts(
        &mut self,
        slot: u32,
        should_select: bool,
        change: impl FnOnce(Prompts<'_>) -> bool,
    ) -> Result<bool> {
        let place = self.slots.get(slot as usize).and_then(Option::as_ref);
        let place = place.expect("each hint has a slot with a document");
        let mut record = place.record()?.clone();
        let texts = if should_select { &mut record.examples } else { &mut record.counterexamples };
        let entries = self.hints_to_change()?.prompts_of(slot, should_select);
        let is_changed = change(Prompts { texts, entries });
        if let Some(Some(place)) = self.slots.get_mut(slot as usize).filter(|_| is_changed) {
            place.record = Stored::InMemory(Arc::new(record));
        }
        Ok(is_changed)
    }

    /// The documents that a prompt names exactly, as `/name`, `mcp__server__tool` or "use the name
    /// skill": by id, or by title if the text is a description.
    ///
    /// Spellings of a name with hyphens, underscores or spaces and in any case are the same, unless a
    /// document has the exact id. Passages have no names.
    pub fn named(&self, prompt: &str) -> Result<Named> {
        let library = Titles { index: self, by_name: OnceCell::new() };
        let Names { known, unknown } = names(prompt, &library)?;
        let mut ids = Vec::new();
        for name in known {
            for id in library.called(&name)? {
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        let nearest = |name: String| {
            let tool = server_and_tool(&name).map_or(name.as_str(), |(_, tool)| tool);
            let scored = self.live().map(|(_, slot)| (likeness(tool, base(&slot.id)), &*slot.id));
            let (_, nearest) = scored.min_by(|left, right| best_first(*left, *right))?;
            Some((name, nearest.to_owned()))
        };
        let unknown = match unknown.and_then(nearest) {
            Some((_, nearest)) if !library.is_described(&nearest)? => None,
            unknown => unknown,
        };
        Ok(Named { ids, unknown })
    }

    /// The best candidates by cosine, by BM25 and by blend, and those with triggers and examples of
    /// the query, with their documents, best blend first.
    ///
    /// Without a query vector there are no cosines, and the blend is the bounded BM25 score. Fails
    /// with `wrong_dimension`, `not_finite` or `zero_vector` for a query vector without a direction,
    /// and with `out_of_range` for unusable weights of the blend.
    pub fn search(
        &self,
        query: &str,
        vector: Option<&[f32]>,
        options: &SearchOptions<'_>,
    ) -> Result<Vec<(Scored, &Record)>> {
        self.search_in_windows(query, vector, options, SIZES)
    }

    fn search_in_windows(
        &self,
        query: &str,
        vector: Option<&[f32]>,
        options: &SearchOptions<'_>,
        sizes: Sizes,
    ) -> Result<Vec<(Scored, &Record)>> {
        options.blend.check()?;
        let terms = self.analyzer.terms(query);
        let versions = Versions::of_query(query);
        let of_query = (options.evidence.other_technology != 0.0).then(|| Project::of_query(query));
        let earlier = options.history.iter();
        let earlier: Vec<(Vec<String>, f64)> =
            earlier.map(|(text, weight)| (self.analyzer.terms(text), *weight)).collect();
        let body_weight = options.blend.body_weight;
        let mut scorer = self.bm25.scorer_with(&terms, &earlier, body_weight, sizes)?;
        let dense = match (&self.dense, vector) {
            (Some(dense), Some(vector)) => {
                Some((dense, unit("the query", vector, dense.dimension())?))
            }
            _ => None,
        };
        let mut best = match &dense {
            Some((dense, unit)) => {
                self.best_by_both(&mut scorer, dense, unit, options, sizes.window)?
            }
            None => self.best_by_bm25(&mut scorer, options, sizes),
        };
        let unit = dense.as_ref().map(|(_, unit)| unit.as_slice());
        let query = Query { terms: &terms, unit, bm25: &self.bm25 };
        let asked = self.hints()?.ask(query)?;
        let known: HashSet<u32> = best.iter().map(|candidate| candidate.number).collect();
        let named = options.named.iter().filter_map(|id| self.by_id.get(id.as_str()).copied());
        let mut recalled = asked.recalled(options.per_channel);
        recalled.extend(named);
        for number in recalled {
            let Some(slot) = self.eligible(number, options).filter(|_| !known.contains(&number))
            else {
                continue;
            };
            let Match { score: bm25, overlap } = scorer.score(number);
            let cosine = match &dense {
                Some((dense, unit)) => Some(f64::from(dense.cosine(number, unit)?)),
                None => None,
            };
            let blend = options.blend.score(cosine, bm25);
            best.push(Candidate { number, slot, cosine, bm25, overlap, blend });
        }
        if !earlier.is_empty() {
            // Terms of earlier requests are not shared with the query.
            let own = self.bm25.scorer_with(&terms, &[], body_weight, sizes)?;
            for candidate in &mut best {
                candidate.overlap = own.score(candidate.number).overlap;
            }
        }
        let usefulness = match (options.usefulness, &self.dense) {
            (Some((intercept, weights)), Some(dense)) => {
                let name = "the model of usefulness";
                let unit = crate::dense::unit(name, weights, dense.dimension())?;
                // A cosine has no length, and is limited to [-1, 1].
                let length = weights.iter().map(|one| f64::from(*one).powi(2)).sum::<f64>().sqrt();
                Some((dense, *intercept, length, unit))
            }
            _ => None,
        };
        let mut best: Vec<(Candidate<'_>, Evidence)> = best
            .into_iter()
            .map(|candidate| {
                let mut evidence =
                    evidence(&asked, &versions, &candidate, options, of_query.as_ref())?;
                if let Some((dense, intercept, length, unit)) = &usefulness {
                    let cosine = f64::from(dense.cosine(candidate.number, unit)?);
                    evidence.usefulness = (intercept + length * cosine).clamp(0.0, 1.0);
                }
                let blend = candidate.blend + options.evidence.in_blend(&evidence, &options.blend);
                Ok((Candidate { blend, ..candidate }, evidence))
            })
            .collect::<Result<_>>()?;
        let is_named = |slot: &Slot| options.named.contains(&*slot.id);
        best.sort_by(|(left, _), (right, _)| {
            is_named(right.slot).cmp(&is_named(left.slot)).then_with(|| {
                best_first((left.blend, &left.slot.id), (right.blend, &right.slot.id))
            })
        });
        let with_record = best.iter().map(|(candidate, evidence)| {
            let record = candidate.slot.record()?;
            let passage = scorer.best_passage(candidate.number);
            let result = Scored {
                id: record.id.clone(),
                cosine: candidate.cosine,
                bm25: candidate.bm25,
                overlap: candidate.overlap,
                blend: candidate.blend,
                passage: passage.and_then(|number| record.passages.get(number).copied()),
                coverage: None,
                evidence: *evidence,
                is_named: options.named.contains(&record.id),
            };
            Ok((result, record))
        });
        with_record.collect()
    }

    fn best_by_bm25<'a>(
        &'a self,
        scorer: &mut Scorer<'_>,
        options: &SearchOptions<'_>,
        sizes: Sizes,
    ) -> Vec<Candidate<'a>> {
        let blend = &options.blend;
        let mut best = Best::new(options.per_channel.max(2));
        let mut least = f64::NEG_INFINITY;
        let all = number_of(self.slots.len());
        // Small windows first: their best scores soon let the scorer skip most documents.
        let (mut end, mut size) = (0, sizes.first_window);
        while end < all {
            let first = end;
            end = all.min(first.saturating_add(size));
            size = sizes.widest_window.min(2 * size);
            scorer.reaching(first..end, least, |number, Match { score: bm25, overlap }| {
                let Some(slot) = self.eligible(number, options) else { return };
                let score = blend.score(None, bm25);
                let candidate =
                    Candidate { number, slot, cosine: None, bm25, overlap, blend: score };
                if best.offer(score, candidate) {
                    least = blend.least_bm25(best.least);
                }
            });
        }
        if best.candidates.len() < best.limit {
            // The caller asked for this many candidates, so documents without a match fill up.
            let mut matched: Vec<u32> =
                best.candidates.iter().map(|(_, candidate)| candidate.number).collect();
            matched.sort_unstable();
            for number in (0..all).filter(|number| matched.binary_search(number).is_err()) {
                if let Some(slot) = self.eligible(number, options) {
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
        window: usize,
    ) -> Result<Vec<Candidate<'a>>> {
        let blend = &options.blend;
        let bounds = dense.bounds(unit)?;
        let [mut by_cosine, mut by_bm25, mut by_blend] =
            [(); 3].map(|()| Best::new(options.per_channel.max(2)));
        // The cosine that a document without a common term needs to enter the list of best blends.
        let mut least_cosine = f64::NEG_INFINITY;
        let mut matches = vec![Match::default(); window.min(self.slots.len())];
        for (first, bounds) in (0_u32..).step_by(window).zip(bounds.chunks(window)) {
            matches.fill(Match::default());
            let matches = matches.get_mut(..bounds.len()).expect("each slot has a bound");
            scorer.next(first, matches);
            for ((number, bound), Match { score: bm25, overlap }) in
                (first..).zip(bounds).zip(matches)
            {
                let (bound, bm25, overlap) = (f64::from(*bound), *bm25, *overlap);
                // Most documents cannot enter any list, which their bounds show without more reads.
                let hopeless = bound < by_cosine.least
                    && if bm25 == 0.0 {
                        bound < least_cosine
                    } else {
                        bm25 < by_bm25.least && blend.score(Some(bound), bm25) < by_blend.least
                    };
                if hopeless {
                    continue;
                }
                let Some(slot) = self.eligible(number, options) else { continue };
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
        Ok(all.filter(|candidate| taken.insert(candidate.number)).collect())
    }

    /// The slot, if it has a document that the options allow.
    fn eligible(&self, number: u32, options: &SearchOptions<'_>) -> Option<&Slot> {
        let slot = self.slots.get(number as usize)?.as_ref()?;
        let allowed = options.allow.is_none_or(|allowed| allowed.contains(&*slot.id));
        let manual = slot.is_manual && !options.named.contains(&*slot.id);
        (allowed && !manual && !options.deny.contains(&*slot.id)).then_some(slot)
    }

    /// Hash of all documents, which does not depend on their order.
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
        head.extend(self.analyzer.terms(&record.purpose()));
        let of_passage = |span: &Span| self.analyzer.terms(record.passage(*span));
        Fields { head, passages: record.passages.iter().map(of_passage).collect() }
    }
}

/// An id without the file in brackets behind the name of one of several documents: "pdf (work)".
fn base(id: &str) -> &str {
    id.strip_suffix(')').and_then(|id| id.rsplit_once(" (")).map_or(id, |(name, _)| name)
}

/// The names of the documents of an index.
struct Titles<'a> {
    index: &'a Index,
    /// The ids by their folded names; read for the first form of a name.
    by_name: OnceCell<HashMap<String, Vec<&'a str>>>,
}

impl Titles<'_> {
    /// Whether the text of the document with an id is a description.
    fn is_described(&self, id: &str) -> Result<bool> {
        Ok(self.index.get(id)?.is_some_and(|record| record.is_description))
    }

    /// The ids of the documents with a name.
    fn called(&self, name: &str) -> Result<Vec<String>> {
        if self.is_described(name)? {
            return Ok(vec![name.to_owned()]);
        }
        if let Some((server, tool)) = server_and_tool(name) {
            let all = self.called(tool)?;
            let of_server = |id: &&String| id.to_lowercase().contains(&server.to_lowercase());
            let own: Vec<String> = all.iter().filter(of_server).cloned().collect();
            return Ok(if own.is_empty() { all } else { own });
        }
        let by_name = self.by_name.get_or_init(|| {
            let mut by_name: HashMap<String, Vec<&str>> = HashMap::new();
            for (_, slot) in self.index.live() {
                by_name.entry(folded(base(&slot.id))).or_default().push(&slot.id);
            }
            by_name
        });
        let mut titled = Vec::new();
        for id in by_name.get(&folded(name)).into_iter().flatten() {
            if self.is_described(id)? {
                titled.push((*id).to_owned());
            }
        }
        if !titled.is_empty() {
            return Ok(titled);
        }
        for slot in self.index.hints()?.with_trigger(name, self.index.analyzer) {
            let slot = self.index.slots.get(slot as usize).and_then(Option::as_ref);
            let Some(record) = slot.map(Slot::record).transpose()? else { continue };
            if folded(&record.title) == folded(name) {
                titled.push(record.id.clone());
            }
        }
        // `/plugin:skill` calls a skill that the index may hold without its plug-in.
        match name.split_once(':') {
            Some((_, inner)) if titled.is_empty() && !inner.is_empty() => self.called(inner),
            _ => Ok(titled),
        }
    }
}

impl Library for Titles<'_> {
    fn has(&self, name: &str) -> Result<bool> {
        Ok(!self.called(name)?.is_empty())
    }

    fn mentions(&self, terms: &[String]) -> Result<bool> {
        for term in terms {
            if self.index.bm25.heads_with(term)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn analyzer(&self) -> Analyzer {
        self.index.analyzer
    }
}

/// The evidence about a candidate.
fn evidence(
    asked: &Asked,
    versions: &Versions,
    candidate: &Candidate<'_>,
    options: &SearchOptions<'_>,
    of_query: Option<&Project>,
) -> Result<Evidence> {
    let project = &options.project;
    let record = candidate.slot.record()?;
    let mut evidence = asked.evidence(candidate.number);
    let named = || format!("{}: {}", record.title, record.purpose());
    // A passage may answer a question about a version that it does not name.
    if record.is_description && !versions.is_empty() {
        let contradicts = versions.contradict(&Versions::of_document(&named()));
        evidence.other_version = f64::from(u8::from(contradicts));
    }
    if !project.is_empty() {
        evidence.technology = f64::from(u8::from(project.has_one_of(&named())));
        if let Some(of_query) = of_query {
            let lacks = project.lacks_all_of(&record.title, &named(), of_query);
            evidence.other_technology = f64::from(u8::from(lacks));
        }
    }
    if let Some(asks) = options.asks {
        (evidence.acts, evidence.reads) = match record.only_reads() {
            Some(true) => (0.0, (1.0 - 2.0 * asks).max(0.0)),
            Some(false) => ((2.0 * asks - 1.0).max(0.0), 0.0),
            None => (0.0, 0.0),
        };
    }
    Ok(evidence)
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

/// The best candidates by one score; so few that sorted insertion is faster than a heap.
struct Best<'a> {
    limit: usize,
    /// Unsorted while there are fewer than the limit, then best first: if all offered candidates
    /// are kept, they are sorted only once.
    candidates: Vec<(f64, Candidate<'a>)>,
    /// A candidate with a lower score is not kept; a candidate with this score is kept if its id is
    /// smaller than that of the last.
    least: f64,
}

impl<'a> Best<'a> {
    fn new(limit: usize) -> Self {
        Self { limit, candidates: Vec::new(), least: f64::NEG_INFINITY }
    }

    /// Adds a candidate if it is among the best; returns whether it was added.
    fn offer(&mut self, score: f64, candidate: Candidate<'a>) -> bool {
        let compare = |(kept_score, kept): &(f64, Candidate<'_>)| {
            best_first((*kept_score, &kept.slot.id), (score, &candidate.slot.id))
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
        let position = self.candidates.partition_point(|kept| compare(kept).is_lt());
        if position >= self.limit {
            return false;
        }
        self.candidates.insert(position, (score, candidate));
        self.candidates.truncate(self.limit);
        self.update_least();
        true
    }

    fn sort(&mut self) {
        self.candidates.sort_unstable_by(|(left_score, left), (right_score, right)| {
            best_first((*left_score, &left.slot.id), (*right_score, &right.slot.id))
        });
        self.update_least();
    }

    fn update_least(&mut self) {
        if let Some((least, _)) = self.candidates.last() {
            self.least = *least;
        }
    }

    /// The candidates, best first.
    fn sorted(mut self) -> impl Iterator<Item = Candidate<'a>> {
        self.sort();
        self.candidates.into_iter().map(|(_, candidate)| candidate)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLEND: Blend = Blend {
        cosine_weight: 0.7,
        bm25_weight: 0.3,
        pivot: 5.0,
        body_weight: 0.5,
        log_odds: 30.0,
    };

    pub(crate) fn record(id: &str, text: &str) -> Record {
        Record {
            id: id.to_owned(),
            text: text.to_owned(),
            metadata: "{}".to_owned(),
            ..Record::default()
        }
    }

    /// A document whose body has two lines, each of them a passage.
    pub(crate) fn long(id: &str, first: &str, second: &str) -> Record {
        let length = |text: &str| u32::try_from(text.chars().count()).unwrap();
        let passages = vec![
            Span { start: 0, end: length(first) },
            Span { start: length(first) + 1, end: length(first) + 1 + length(second) },
        ];
        Record { body: format!("{first}\n{second}"), passages, ..record(id, id) }
    }

    /// Windows so small that a few documents fill several of them.
    const SMALL: Sizes = Sizes { window: 3, first_window: 1, widest_window: 5, ..SIZES };

    pub(crate) fn index(documents: &[(&str, &str, [f32; 2])]) -> Index {
        let mut index = Index::new(Analyzer::new("english").unwrap(), "test", 2).unwrap();
        let documents =
            documents.iter().map(|(id, text, vector)| (record(id, text), Some(vector.to_vec())));
        index.upsert(documents.collect()).unwrap();
        index
    }

    fn search(index: &Index, query: &str, vector: Option<&[f32]>) -> Vec<Scored> {
        let options = SearchOptions { blend: BLEND, per_channel: 2, ..SearchOptions::default() };
        scored(index, query, vector, &options)
    }

    fn scored(
        index: &Index,
        query: &str,
        vector: Option<&[f32]>,
        options: &SearchOptions<'_>,
    ) -> Vec<Scored> {
        let found = index.search_in_windows(query, vector, options, SMALL).unwrap();
        let found: Vec<Scored> = found.into_iter().map(|(scored, _)| scored).collect();
        let shipped = index.search(query, vector, options).unwrap();
        assert!(shipped.into_iter().map(|(scored, _)| scored).eq(found.iter().cloned()));
        found
    }

    fn ids(found: &[Scored]) -> Vec<&str> {
        found.iter().map(|scored| scored.id.as_str()).collect()
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
    fn the_best_of_cosine_and_of_bm25_are_candidates() {
        let found = search(&animals(), "eggs for sale", Some(&[1.0, 0.0]));
        // The fox and the dog are the best by cosine, the hen by BM25, and the cod by neither.
        assert_eq!(ids(&found), ["fox", "dog", "hen"]);
        assert_eq!(found[2].overlap, 1);
    }

    #[test]
    fn the_overlap_counts_terms_of_the_query_and_none_of_earlier_requests() {
        let history = [("feed the lazy dog in the sea".to_owned(), 1.0)];
        let options = SearchOptions { blend: BLEND, per_channel: 4, ..SearchOptions::default() };
        let after = SearchOptions { history: &history, ..options.clone() };
        for vector in [None, Some(&[1.0, 0.0][..])] {
            let overlaps = |options: &SearchOptions<'_>| {
                let found = scored(&animals(), "a red fox in the sea", vector, options);
                let overlaps = found
                    .into_iter()
                    .map(|candidate| (candidate.id, (candidate.overlap, candidate.bm25)));
                overlaps.collect::<std::collections::BTreeMap<_, _>>()
            };
            let (alone, after) = (overlaps(&options), overlaps(&after));
            assert!(after["dog"].1 > 0.0);
            for (id, (overlap, _)) in after {
                assert_eq!(overlap, alone.get(&id).map_or(0, |found| found.0), "{id}");
            }
        }
    }

    #[test]
    fn without_a_query_vector_the_blend_is_the_bounded_bm25_score() {
        let found = search(&animals(), "lazy dogs and red foxes", None);
        assert!(found.iter().all(|scored| scored.cosine.is_none()));
        assert_eq!(found[0].blend, BLEND.bounded_bm25(found[0].bm25));
    }

    #[test]
    fn bodies_are_searched_and_the_best_passage_is_returned() {
        let mut index = animals();
        let owl = long("owl", "hunts at night, nests early", "lives in \u{e9}glise towers");
        index.upsert(vec![(owl, Some(vec![-1.0, -1.0]))]).unwrap();
        let found = search(&index, "nests in towers", None);
        assert_eq!((found[0].id.as_str(), found[0].overlap), ("owl", 2));
        // Each passage has one of two equally rare words: the first passage counts.
        assert_eq!(found[0].passage, Some(Span { start: 0, end: 27 }));
        let passage = |query| search(&index, query, None)[0].passage;
        assert_eq!(passage("lives in towers"), Some(Span { start: 28, end: 50 }));
        // Two distinct words count more than one repeated word.
        assert_eq!(passage("early night night towers"), Some(Span { start: 0, end: 27 }));
        // The head matches and no passage does.
        assert_eq!((search(&index, "owl", None)[0].id.as_str(), passage("owl")), ("owl", None));
    }

    #[test]
    fn allow_and_deny_apply_before_the_limit() {
        let index = animals();
        let (allow, deny) = (["dog", "hen"].map(str::to_owned).into(), ["dog".to_owned()].into());
        let options = SearchOptions {
            blend: BLEND,
            per_channel: 2,
            allow: Some(&allow),
            deny: &deny,
            ..SearchOptions::default()
        };
        assert_eq!(ids(&scored(&index, "fox", Some(&[1.0, 0.0]), &options)), ["hen"]);
    }

    #[test]
    fn a_failed_upsert_changes_nothing() {
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
            &SearchOptions { blend: BLEND, per_channel: 2, ..SearchOptions::default() },
        );
        assert_eq!(error.unwrap_err().code(), "wrong_dimension");
    }

    #[test]
    fn an_index_without_vectors_refuses_vectors() {
        let mut index = Index::new(Analyzer::new("none").unwrap(), "", 0).unwrap();
        index.upsert(vec![(record("a", "red fox"), None)]).unwrap();
        let error = index.upsert(vec![(record("b", "hen"), Some(vec![1.0]))]).unwrap_err();
        assert_eq!(error.code(), "wrong_dimension");
        assert_eq!(ids(&search(&index, "fox", None)), ["a"]);
        assert!(Index::new(Analyzer::new("none").unwrap(), "", MAX_DIMENSION + 1).is_err());
    }

    #[test]
    fn the_fingerprint_depends_on_the_documents_and_not_on_their_order() {
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
    fn changes_do_not_affect_a_clone() {
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
    fn replaced_documents_do_not_accumulate() {
        const SPARE: usize = 4;
        let mut index = animals();
        index.spare = SPARE;
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
        #[test]
        fn a_changed_index_searches_like_a_new_one(steps in steps(), query in "[a-d ]{0,6}") {
            const SPARE: usize = 4;
            let mut changed = Index::new(Analyzer::new("none").unwrap(), "test", 2).unwrap();
            changed.spare = SPARE;
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

        #[test]
        fn the_best_by_each_score_is_a_candidate(
            texts in prop::collection::vec("[a-d ]{0,8}", 1..10), query in "[a-d ]{1,6}",
        ) {
            let analyzer = Analyzer::new("none").unwrap();
            let mut index = Index::new(analyzer, "test", 2).unwrap();
            let documents = texts.iter().enumerate().map(|(place, text)| {
                (record(&place.to_string(), text), Some(vec![1.0, (place % 3) as f32]))
            });
            index.upsert(documents.collect()).unwrap();
            let found = search(&index, &query, Some(&[1.0, 2.0]));
            let everything = SearchOptions { blend: BLEND, per_channel: 99, ..SearchOptions::default() };
            let all = scored(&index, &query, Some(&[1.0, 2.0]), &everything);
            prop_assert_eq!(all.len(), texts.len());
            let scores =
                [|of: &Scored| of.cosine.unwrap(), |of: &Scored| of.bm25, |of: &Scored| of.blend];
            for score in scores {
                let best = |list: &[Scored]| list.iter().map(score).fold(f64::MIN, f64::max);
                prop_assert_eq!(best(&found), best(&all));
            }
        }

        #[test]
        fn candidates_equal_those_of_a_naive_search_with_ties_and_denied_ids(
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
                // Every third vector occurs twice, so that cosines tie.
                let start = (place - usize::from(place % 3 == 1)) * 5;
                (record(&id, text), Some(numbers[start..start + 5].to_vec()))
            });
            index.upsert(documents.collect()).unwrap();
            let deny = [denied.to_string()].into();
            let run = |per_channel| {
                let options = SearchOptions { blend, per_channel, deny: &deny, ..SearchOptions::default() };
                let vector = with_vector.then_some(&numbers[200..]);
                scored(&index, &query, vector, &options)
            };
            let all = run(99);
            let mut expected = HashSet::new();
            for score in [
                |of: &Scored| of.cosine,
                |of: &Scored| (of.bm25 > 0.0).then_some(of.bm25),
                |of: &Scored| Some(of.blend),
            ] {
                let mut ranked: Vec<_> = all
                    .iter()
                    .filter_map(|scored| Some((score(scored)?, scored.id.as_str())))
                    .collect();
                ranked.sort_by(|left, right| best_first(*left, *right));
                expected.extend(ranked.into_iter().take(per_channel).map(|(_, id)| id));
            }
            let expected: Vec<_> =
                all.iter().filter(|of| expected.contains(of.id.as_str())).cloned().collect();
            prop_assert_eq!(run(per_channel), expected);
        }
    }
}
