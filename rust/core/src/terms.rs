//! Terms with their postings, in memory or in the blocks of an index file.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::blocks::{Block, Lazy, corrupt};
use crate::error::{Error, Result};

/// Indexes hold fewer than 2^32 documents, passages and terms.
pub(crate) fn number_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Where one term stands: how often in which head, and how often in which passage of a body. Heads
/// are known by the document's slot, passages by a number that grows with the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Postings {
    /// Sorted by slot.
    pub(crate) heads: Vec<(u32, u32)>,
    /// Sorted by passage.
    pub(crate) passages: Vec<(u32, u32)>,
    /// How many documents have the term, in head or body.
    pub(crate) documents: u32,
}

impl Postings {
    /// Counts the documents; `owners` has the slot of each passage.
    pub(crate) fn new(heads: Vec<(u32, u32)>, passages: Vec<(u32, u32)>, owners: &[u32]) -> Self {
        let mut documents = 0;
        for_each_document(&heads, &passages, owners, |_, _, _| documents += 1);
        Self { heads, passages, documents }
    }
}

/// Calls with slot, count in the head and count in the body, in the order of the slots.
pub(crate) fn for_each_document(
    heads: &[(u32, u32)],
    passages: &[(u32, u32)],
    owners: &[u32],
    mut call: impl FnMut(u32, u32, u32),
) {
    let owner = |passage: u32| owners.get(passage as usize).copied().unwrap_or(u32::MAX);
    let mut heads = heads.iter().copied().peekable();
    let bodies = passages.chunk_by(|one, next| owner(one.0) == owner(next.0));
    for body in bodies {
        let slot = body.first().map_or(u32::MAX, |(passage, _)| owner(*passage));
        while let Some((before, head)) = heads.next_if(|(before, _)| *before < slot) {
            call(before, head, 0);
        }
        let head = heads.next_if(|(same, _)| *same == slot).map_or(0, |(_, head)| head);
        // A file may hold counts that no text has; a sum of them must not overflow.
        call(slot, head, body.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count)));
    }
    for (slot, head) in heads {
        call(slot, head, 0);
    }
}

/// All terms of an index.
#[derive(Clone, Debug)]
pub(crate) enum Terms {
    /// In memory, where they can change. A clone shares postings until one of both changes them.
    Here(Vocabulary),
    /// In a file that was opened; clones share what was read of it.
    Filed(Arc<Filed>),
}

impl Default for Terms {
    fn default() -> Self {
        Self::Here(Vocabulary::default())
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Vocabulary {
    numbers: HashMap<Arc<str>, u32>,
    /// Per term.
    postings: Vec<Arc<Postings>>,
    /// Terms that no document has any more.
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

    /// The postings of a term; a new one counts as dead until it has a document.
    pub(crate) fn postings_of(&mut self, term: &str) -> &mut Postings {
        let next = number_of(self.postings.len());
        let number = self.numbers.get(term).copied().unwrap_or(next);
        if number == next {
            self.numbers.insert(term.into(), next);
            self.postings.push(Arc::default());
            self.dead += 1;
        }
        // A number in the map is always one of a list.
        #[expect(clippy::indexing_slicing, reason = "each number was given out with its list")]
        Arc::make_mut(&mut self.postings[number as usize])
    }

    /// The postings of a term that is there, to be changed.
    pub(crate) fn known(&mut self, term: &str) -> Option<&mut Postings> {
        let number = self.numbers.get(term)?;
        self.postings.get_mut(*number as usize).map(Arc::make_mut)
    }

    /// Takes a term over that is not there yet.
    pub(crate) fn insert(&mut self, term: &str, list: Postings) {
        *self.postings_of(term) = list;
        self.dead -= 1;
    }

    /// All terms that a document has, with their postings, in alphabetical order.
    pub(crate) fn sorted(&self) -> Vec<(&str, &Postings)> {
        let all = self.numbers.keys().filter_map(|term| Some((&**term, self.list(term)?)));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|(term, _)| *term);
        all
    }
}

/// Terms in alphabetical order, some to a block, behind what all of them refer to.
#[derive(Debug)]
pub(crate) struct Filed {
    /// Of each block, its first term.
    pub(crate) firsts: Vec<String>,
    pub(crate) blocks: Vec<Lazy<Vec<(String, Postings)>>>,
    pub(crate) documents: usize,
}

impl Filed {
    pub(crate) fn new(blocks: Vec<(String, Block)>, documents: usize) -> Result<Self> {
        let (firsts, blocks): (Vec<_>, Vec<_>) =
            blocks.into_iter().map(|(first, block)| (first, Lazy::later(block))).unzip();
        if !firsts.is_sorted_by(|one, next| one < next) {
            return Err(wrong());
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
        Ok(place.and_then(|place| block.get(place)).map(|(_, list)| list))
    }
}

impl Terms {
    /// The postings of a term; none where no document has it. `owners` has the slot of each passage.
    pub(crate) fn list(&self, term: &str, owners: &[u32]) -> Result<Option<&Postings>> {
        match self {
            Self::Here(vocabulary) => Ok(vocabulary.list(term)),
            Self::Filed(filed) => filed.list(term, owners),
        }
    }

    /// Reads what was not read so far.
    pub(crate) fn load(&self, owners: &[u32]) -> Result<()> {
        if let Self::Filed(filed) = self {
            for number in 0..filed.blocks.len() {
                filed.block(number, owners)?;
            }
        }
        Ok(())
    }

    /// The terms in memory, all of them.
    pub(crate) fn here(&mut self, owners: &[u32]) -> Result<&mut Vocabulary> {
        if let Self::Filed(filed) = self {
            let mut vocabulary = Vocabulary::default();
            for number in 0..filed.blocks.len() {
                for (term, list) in filed.block(number, owners)? {
                    vocabulary.insert(term, list.clone());
                }
            }
            *self = Self::Here(vocabulary);
        }
        match self {
            Self::Here(vocabulary) => Ok(vocabulary),
            Self::Filed(_) => Err(wrong()), // replaced above
        }
    }
}

/// A term as a file holds it. Documents and passages are named by the distance to the one before;
/// passages are numbered through.
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

    /// About how many bytes it takes in a file.
    pub(crate) fn size(&self) -> usize {
        self.text.len() + 2 * (self.heads.len() + self.passages.len())
    }
}

fn wrong() -> Error {
    corrupt("its postings contradict each other")
}

/// The terms of a block, which starts with `first` and ends before `end`.
fn decoded(
    bytes: &[u8],
    first: &str,
    end: Option<&String>,
    documents: usize,
    owners: &[u32],
) -> Result<Vec<(String, Postings)>> {
    let terms: Vec<Term> = postcard::from_bytes(bytes).map_err(|_| wrong())?;
    let sorted = terms.is_sorted_by(|one, next| one.text < next.text);
    let starts = terms.first().is_some_and(|one| one.text == first);
    let ends = end.is_none_or(|end| terms.last().is_none_or(|last| last.text < *end));
    if !(sorted && starts && ends) {
        return Err(wrong());
    }
    terms
        .into_iter()
        .map(|Term { text, heads, passages }| {
            let heads = places(&heads, documents).ok_or_else(wrong)?;
            let passages = places(&passages, owners.len()).ok_or_else(wrong)?;
            if heads.is_empty() && passages.is_empty() {
                return Err(wrong());
            }
            Ok((text, Postings::new(heads, passages, owners)))
        })
        .collect()
}

/// What distances and counts name, of so many places; none where a place is unknown or stands
/// twice, or where a count is 0.
fn places(distances: &[(u32, u32)], count_of_places: usize) -> Option<Vec<(u32, u32)>> {
    let mut found: Vec<(u32, u32)> = Vec::with_capacity(distances.len());
    for (distance, count) in distances.iter().copied() {
        let before = found.last().map_or(0, |(place, _)| *place);
        let place = before.checked_add(distance)?;
        let repeated = distance == 0 && !found.is_empty();
        if place as usize >= count_of_places || repeated || count == 0 {
            return None;
        }
        found.push((place, count));
    }
    Some(found)
}
