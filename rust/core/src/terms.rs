//! Terms with their postings, in memory or in the blocks of an index file.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::blocks::{Block, Lazy};
use crate::error::{Damage, Error, Result};

/// A length as the number that postings and files store; an index has fewer than 2^32 of anything.
pub(crate) fn number_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The occurrences of a term: its count in each head and in each passage of a body.
///
/// A head is identified by the document's slot, a passage by a number that grows with the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Postings {
    /// Sorted by slot.
    pub(crate) heads: Vec<(u32, u32)>,
    /// Sorted by passage.
    pub(crate) passages: Vec<(u32, u32)>,
    /// Number of documents that have the term, in head or body.
    pub(crate) documents: u32,
}

impl Postings {
    /// `owners` has the slot of each passage.
    pub(crate) fn new(heads: Vec<(u32, u32)>, passages: Vec<(u32, u32)>, owners: &[u32]) -> Self {
        let mut documents = 0;
        for_each_document(&heads, &passages, owners, |_, _, _| documents += 1);
        Self { heads, passages, documents }
    }
}

/// Calls `visit` with slot, count in the head and count in the body, in the order of the slots.
pub(crate) fn for_each_document(
    heads: &[(u32, u32)],
    passages: &[(u32, u32)],
    owners: &[u32],
    mut visit: impl FnMut(u32, u32, u32),
) {
    let owner = |passage: u32| owners.get(passage as usize).copied().unwrap_or(u32::MAX);
    let mut heads = heads.iter().copied().peekable();
    let bodies = passages.chunk_by(|(passage, _), (next, _)| owner(*passage) == owner(*next));
    for body in bodies {
        let slot = body.first().map_or(u32::MAX, |(passage, _)| owner(*passage));
        while let Some((before, head)) = heads.next_if(|(before, _)| *before < slot) {
            visit(before, head, 0);
        }
        let head = heads.next_if(|(same, _)| *same == slot).map_or(0, |(_, head)| head);
        // A crafted file can hold counts of any size; their sum must not overflow.
        visit(slot, head, body.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count)));
    }
    for (slot, head) in heads {
        visit(slot, head, 0);
    }
}

/// All terms of an index.
#[derive(Clone, Debug)]
pub(crate) enum Terms {
    /// In memory, where they can change. Clones share postings until one of them changes them.
    InMemory(Vocabulary),
    /// In an open file. Clones share the blocks that were read.
    InFile(Arc<FileTerms>),
}

impl Default for Terms {
    fn default() -> Self {
        Self::InMemory(Vocabulary::default())
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Vocabulary {
    numbers: HashMap<Arc<str>, u32>,
    /// The postings of each term.
    postings: Vec<Arc<Postings>>,
    /// Number of terms that are in no document.
    pub(crate) dead: usize,
}

impl Vocabulary {
    pub(crate) fn len(&self) -> usize {
        self.postings.len()
    }

    pub(crate) fn list(&self, term: &str) -> Option<&Postings> {
        let number = self.numbers.get(term)?;
        self.postings.get(*number as usize).map(|list| &**list).filter(|list| list.documents > 0)
    }

    /// The postings of a term; a new term counts as dead until it has a document.
    pub(crate) fn postings_of(&mut self, term: &str) -> &mut Postings {
        let next = number_of(self.postings.len());
        let number = self.numbers.get(term).copied().unwrap_or(next);
        if number == next {
            self.numbers.insert(term.into(), next);
            self.postings.push(Arc::default());
            self.dead += 1;
        }
        let postings = self.postings.get_mut(number as usize);
        Arc::make_mut(postings.expect("each number in the map has postings"))
    }

    /// The postings of a known term, to be changed.
    pub(crate) fn known(&mut self, term: &str) -> Option<&mut Postings> {
        let number = self.numbers.get(term)?;
        self.postings.get_mut(*number as usize).map(Arc::make_mut)
    }

    /// Adds a term that is not known yet.
    pub(crate) fn insert(&mut self, term: &str, list: Postings) {
        *self.postings_of(term) = list;
        self.dead -= 1;
    }

    /// The terms that occur in documents, with their postings, in alphabetical order.
    pub(crate) fn sorted(&self) -> Vec<(&str, &Postings)> {
        let all = self.numbers.keys().filter_map(|term| Some((&**term, self.list(term)?)));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|(term, _)| *term);
        all
    }
}

/// The terms of a file in alphabetical order, in blocks.
#[derive(Debug)]
pub(crate) struct FileTerms {
    /// Of each block, its first term.
    pub(crate) firsts: Vec<String>,
    pub(crate) blocks: Vec<Lazy<Vec<(String, Postings)>>>,
    pub(crate) documents: usize,
}

impl FileTerms {
    pub(crate) fn new(blocks: Vec<(String, Block)>, documents: usize) -> Result<Self> {
        let (firsts, blocks): (Vec<_>, Vec<_>) =
            blocks.into_iter().map(|(first, block)| (first, Lazy::from_block(block))).unzip();
        if !firsts.is_sorted_by(|first, next| first < next) {
            return Err(corrupt());
        }
        Ok(Self { firsts, blocks, documents })
    }

    fn block(&self, number: usize, owners: &[u32]) -> Result<&[(String, Postings)]> {
        let Some(block) = self.blocks.get(number) else { return Ok(&[]) };
        let found = block.get(|bytes| {
            let first = self.firsts.get(number).map_or("", String::as_str);
            decoded(bytes, first, self.firsts.get(number + 1), self.documents, owners)
        })?;
        Ok(found)
    }

    fn list(&self, term: &str, owners: &[u32]) -> Result<Option<&Postings>> {
        let after = self.firsts.partition_point(|first| first.as_str() <= term);
        let Some(number) = after.checked_sub(1) else { return Ok(None) };
        let block = self.block(number, owners)?;
        let place = block.binary_search_by(|(other, _)| other.as_str().cmp(term)).ok();
        Ok(place.and_then(|place| block.get(place)).map(|(_, postings)| postings))
    }
}

impl Terms {
    /// The postings of a term, if any document has it. `owners` has the slot of each passage.
    pub(crate) fn list(&self, term: &str, owners: &[u32]) -> Result<Option<&Postings>> {
        match self {
            Self::InMemory(vocabulary) => Ok(vocabulary.list(term)),
            Self::InFile(file) => file.list(term, owners),
        }
    }

    /// Reads all blocks that were not read yet.
    pub(crate) fn load(&self, owners: &[u32]) -> Result<()> {
        if let Self::InFile(file) = self {
            for number in 0..file.blocks.len() {
                file.block(number, owners)?;
            }
        }
        Ok(())
    }

    /// All terms, which are moved into memory first.
    pub(crate) fn in_memory(&mut self, owners: &[u32]) -> Result<&mut Vocabulary> {
        if let Self::InFile(file) = self {
            let mut vocabulary = Vocabulary::default();
            for number in 0..file.blocks.len() {
                for (term, list) in file.block(number, owners)? {
                    vocabulary.insert(term, list.clone());
                }
            }
            *self = Self::InMemory(vocabulary);
        }
        match self {
            Self::InMemory(vocabulary) => Ok(vocabulary),
            Self::InFile(_) => unreachable!("the terms were moved into memory above"),
        }
    }
}

/// A term in a file. Slots and passage numbers are stored as distances from the entry before.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Term {
    pub(crate) text: String,
    pub(crate) heads: Vec<(u32, u32)>,
    pub(crate) passages: Vec<(u32, u32)>,
}

impl Term {
    pub(crate) fn of(text: &str, list: &Postings) -> Self {
        let distances = |postings: &[(u32, u32)]| {
            let mut before = 0;
            let distance = |(place, count): &(u32, u32)| {
                let distance = place - before;
                before = *place;
                (distance, *count)
            };
            postings.iter().map(distance).collect()
        };
        Self {
            text: text.to_owned(),
            heads: distances(&list.heads),
            passages: distances(&list.passages),
        }
    }

    /// Approximate size in a file, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.text.len() + 2 * (self.heads.len() + self.passages.len())
    }
}

fn corrupt() -> Error {
    Error::corrupt(Damage::Postings)
}

/// Decodes a block of terms of which the first is `first` and the last comes before `end`.
fn decoded(
    bytes: &[u8],
    first: &str,
    end: Option<&String>,
    documents: usize,
    owners: &[u32],
) -> Result<Vec<(String, Postings)>> {
    let terms: Vec<Term> = postcard::from_bytes(bytes).map_err(|_| corrupt())?;
    let sorted = terms.is_sorted_by(|term, next| term.text < next.text);
    let starts = terms.first().is_some_and(|term| term.text == first);
    let ends = end.is_none_or(|end| terms.last().is_none_or(|last| last.text < *end));
    if !(sorted && starts && ends) {
        return Err(corrupt());
    }
    terms
        .into_iter()
        .map(|Term { text, heads, passages }| {
            let heads = postings(&heads, documents).ok_or_else(corrupt)?;
            let passages = postings(&passages, owners.len()).ok_or_else(corrupt)?;
            if heads.is_empty() && passages.is_empty() {
                return Err(corrupt());
            }
            Ok((text, Postings::new(heads, passages, owners)))
        })
        .collect()
}

/// Postings of distances and counts. None if a number repeats or is not below `end`, or if a count
/// is 0.
fn postings(distances: &[(u32, u32)], end: usize) -> Option<Vec<(u32, u32)>> {
    let mut decoded: Vec<(u32, u32)> = Vec::with_capacity(distances.len());
    for (distance, count) in distances.iter().copied() {
        let before = decoded.last().map_or(0, |(number, _)| *number);
        let number = before.checked_add(distance)?;
        let repeated = distance == 0 && !decoded.is_empty();
        if number as usize >= end || repeated || count == 0 {
            return None;
        }
        decoded.push((number, count));
    }
    Some(decoded)
}
