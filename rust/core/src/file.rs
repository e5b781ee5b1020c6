//! The index file: one checksummed file, written aside and renamed, read without trusting a byte.
//!
//! Layout, all numbers little-endian: magic (8 bytes), version (u32), length of the body (u64),
//! BLAKE3 of the body (32 bytes), body. The body is the length of the contents (u64), the contents
//! in postcard's format, the vectors (f32, row by row).

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bm25::{Bm25, Postings};
use crate::dense::Dense;
use crate::error::{Error, Result};
use crate::index::{Index, MAX_DIMENSION, Record};
use crate::text::Analyzer;

const MAGIC: &[u8; 8] = b"\x89CGX\r\n\x1a\n";
/// Grows with every change that an older reader would misread.
const VERSION: u32 = 3;

/// Bytes before the body: magic, version, length, checksum.
const HEADER: usize = 8 + 4 + 8 + 32;

/// Everything but the vectors. Documents stand in their order.
#[derive(Serialize, Deserialize)]
struct Contents {
    embedder: String,
    language: String,
    dimension: u32,
    documents: Vec<Record>,
    terms: Vec<Term>,
}

/// A term with the documents that have it in the head, the passages that have it, and how often
/// each does. Both are named by the distance to the one before; passages are numbered through.
#[derive(Clone, Serialize, Deserialize)]
struct Term {
    text: String,
    heads: Vec<(u32, u32)>,
    passages: Vec<(u32, u32)>,
}

impl Index {
    /// Writes the index to a file, which is replaced only when the new one is complete and on disk.
    ///
    /// Fails with `index_unwritable` where the folder is missing, read-only or full; a file that
    /// was there before is still whole then.
    pub fn save(&self, path: &Path) -> Result<()> {
        let bytes = self.to_bytes();
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let write = || -> std::io::Result<()> {
            // Opened as any program opens a file: the umask decides who may read it, and an error
            // does not name the file aside, which nobody knows.
            let mut file = tempfile::Builder::new()
                .prefix(".crossgate-")
                .make_in(folder, |aside| File::create_new(aside))?;
            file.as_file_mut().write_all(&bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            // The rename itself is safe on disk only once its folder is.
            File::open(folder)?.sync_all()
        };
        write().map_err(|error| {
            Error::file(
                "index_unwritable",
                format!(
                    "cannot write the index {}: {error}: choose another file with -o, or make room",
                    path.display()
                ),
            )
        })
    }

    /// Reads an index from a file.
    ///
    /// Fails with `index_missing`, `index_unreadable`, or as [`Index::from_bytes`] does.
    pub fn open(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| {
            // No more is read than the header speaks of, and nothing where it is none of ours.
            Read::by_ref(&mut file).take(HEADER as u64).read_to_end(&mut bytes)?;
            let length = body_length(&bytes).unwrap_or_default();
            file.take(length.saturating_add(1)).read_to_end(&mut bytes)
        });
        if let Err(error) = read {
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => "index_missing",
                _ => "index_unreadable",
            };
            return Err(Error::file(
                code,
                format!("cannot read the index {}: {error}: {REBUILD}", path.display()),
            ));
        }
        Self::from_bytes(&bytes).map_err(|error| {
            Error::file(error.code(), format!("{}: {error}: {REBUILD}", path.display()))
        })
    }

    /// The bytes of an index file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (live, records): (Vec<u32>, Vec<&Record>) = self.live().unzip();
        // Empty slots are left behind, so documents and passages get new numbers.
        let bm25 = self.bm25.compacted(&live);
        let distances = |postings: &[(u32, u32)]| {
            let mut before = 0;
            let distance = |(place, count): &(u32, u32)| {
                let distance = place - before;
                before = *place;
                (distance, *count)
            };
            postings.iter().map(distance).collect::<Vec<_>>()
        };
        let contents = Contents {
            embedder: self.embedder.clone(),
            language: self.analyzer.language().to_owned(),
            dimension: u32::try_from(self.dimension()).unwrap_or_default(),
            documents: records.into_iter().cloned().collect(),
            terms: bm25
                .vocabulary()
                .into_iter()
                .map(|(text, list)| Term {
                    text: text.to_owned(),
                    heads: distances(&list.heads),
                    passages: distances(&list.passages),
                })
                .collect(),
        };
        // Strings and numbers in memory have no way to fail to be written to memory.
        let contents = postcard::to_allocvec(&contents).unwrap_or_default();
        let mut body = (contents.len() as u64).to_le_bytes().to_vec();
        body.extend(contents);
        if let Some(dense) = &self.dense {
            for slot in &live {
                body.extend(dense.row(*slot).iter().flat_map(|value| value.to_le_bytes()));
            }
        }
        Self::sealed(&body)
    }

    /// The file of a body, with the header that fits it: the fuzzer gets past the checksum by it.
    #[doc(hidden)]
    pub fn sealed(body: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(blake3::hash(body).as_bytes());
        bytes.extend(body);
        bytes
    }

    /// Reads an index from the bytes of a file.
    ///
    /// Fails with `not_an_index`, `index_version`, `index_truncated` or `index_corrupt`. A file of
    /// any content is safe to read: lengths and numbers are checked before they are used.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader { rest: bytes };
        if reader.take(MAGIC.len()).is_none_or(|magic| magic != MAGIC) {
            return Err(Error::file("not_an_index", "this is no crossgate index"));
        }
        let version = reader.number().map(u32::from_le_bytes).ok_or_else(truncated)?;
        if version != VERSION {
            return Err(Error::file(
                "index_version",
                format!("the index has format version {version}, this crossgate reads {VERSION}"),
            ));
        }
        let length = reader.number().map(u64::from_le_bytes).ok_or_else(truncated)?;
        let checksum: [u8; 32] = reader.number().ok_or_else(truncated)?;
        let body = reader.rest;
        if (body.len() as u64) < length {
            return Err(truncated());
        }
        if body.len() as u64 > length || blake3::hash(body) != checksum {
            return Err(corrupt("its checksum does not match"));
        }
        read_body(body)
    }
}

/// The length of the body that the header of a file of this format and version speaks of.
fn body_length(header: &[u8]) -> Option<u64> {
    let mut reader = Reader { rest: header };
    let known =
        reader.take(MAGIC.len())? == MAGIC && reader.number().map(u32::from_le_bytes)? == VERSION;
    known.then(|| reader.number().map(u64::from_le_bytes)).flatten()
}

const REBUILD: &str = "rebuild it with `crossgate index SOURCE... -o FILE`";

fn truncated() -> Error {
    Error::file("index_truncated", "the index ends too early")
}

fn corrupt(what: &str) -> Error {
    Error::file("index_corrupt", format!("the index is damaged, {what}"))
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N).and_then(|bytes| bytes.try_into().ok())
    }
}

/// Everything past the checksum. A matching checksum proves no good will, so all is checked again.
fn read_body(body: &[u8]) -> Result<Index> {
    let mut reader = Reader { rest: body };
    let contents = reader
        .number()
        .map(u64::from_le_bytes)
        .and_then(|length| usize::try_from(length).ok())
        .and_then(|length| reader.take(length))
        .ok_or_else(|| corrupt("its contents end too early"))?;
    let (contents, rest): (Contents, _) =
        postcard::take_from_bytes(contents).map_err(|_| corrupt("its contents cannot be read"))?;
    if !rest.is_empty() {
        return Err(corrupt("its contents are longer than they say"));
    }
    let dimension = contents.dimension as usize;
    let analyzer = Analyzer::new(&contents.language)
        .map_err(|_| corrupt(&format!("its language {:?} is unknown", contents.language)))?;
    let slots = u32::try_from(contents.documents.len())
        .map_err(|_| corrupt("it holds too many documents"))?;
    let mut index = Index::new(analyzer, &contents.embedder, dimension.min(MAX_DIMENSION))?;
    if let Some(record) = contents.documents.iter().find(|record| !record.passages_fit()) {
        return Err(corrupt(&format!("the passages of {:?} are not in its body", record.id)));
    }
    index.bm25 = read_terms(contents.terms, &contents.documents)?;
    index.dense = read_vectors(reader.rest, dimension, slots)?;
    for (slot, record) in (0..).zip(&contents.documents) {
        if index.by_id.insert(record.id.as_str().into(), slot).is_some() {
            return Err(corrupt(&format!("the id {:?} stands twice", record.id)));
        }
    }
    index.slots = contents.documents.into_iter().map(|record| Some(Arc::new(record))).collect();
    Ok(index)
}

fn read_terms(terms: Vec<Term>, documents: &[Record]) -> Result<Bm25> {
    let wrong = || corrupt("its postings contradict each other");
    let owners: Vec<usize> = documents
        .iter()
        .enumerate()
        .flat_map(|(slot, record)| record.passages.iter().map(move |_| slot))
        .collect();
    let mut lengths = vec![(0_u32, 0_u32); documents.len()];
    let mut seen = HashSet::new();
    let mut read = Vec::with_capacity(terms.len());
    for Term { text, heads, passages } in terms {
        let heads = places(&heads, documents.len()).ok_or_else(wrong)?;
        let passages = places(&passages, owners.len()).ok_or_else(wrong)?;
        if (heads.is_empty() && passages.is_empty()) || !seen.insert(text.clone()) {
            return Err(wrong());
        }
        for (slot, count) in &heads {
            let (head, _) = lengths.get_mut(*slot as usize).ok_or_else(wrong)?;
            *head = head.checked_add(*count).ok_or_else(wrong)?;
        }
        for (passage, count) in &passages {
            let slot = owners.get(*passage as usize).ok_or_else(wrong)?;
            let (_, body) = lengths.get_mut(*slot).ok_or_else(wrong)?;
            *body = body.checked_add(*count).ok_or_else(wrong)?;
        }
        read.push((text, Postings::new(heads, passages)));
    }
    let mut bm25 = Bm25::default();
    for ((slot, record), (head, body)) in (0..).zip(documents).zip(lengths) {
        let passages = u32::try_from(record.passages.len()).map_err(|_| wrong())?;
        bm25.add_lengths(slot, head, body, passages);
    }
    for (text, list) in read {
        bm25.restore_term(&text, list);
    }
    Ok(bm25)
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

fn read_vectors(bytes: &[u8], dimension: usize, rows: u32) -> Result<Option<Dense>> {
    if dimension > MAX_DIMENSION {
        return Err(corrupt(&format!("its vectors have {dimension} numbers")));
    }
    let expected = (rows as usize).checked_mul(dimension).and_then(|values| values.checked_mul(4));
    if expected != Some(bytes.len()) {
        return Err(corrupt("it does not hold one vector per document"));
    }
    if dimension == 0 {
        return Ok(None);
    }
    let mut dense = Dense::new(dimension);
    for (row, bytes) in (0..rows).zip(bytes.chunks_exact(dimension * 4)) {
        let values: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let square: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
        if !square.is_finite() || (square - 1.0).abs() > 1e-3 {
            return Err(corrupt(&format!("vector {row} is not of length 1")));
        }
        dense.set(row, &values);
    }
    Ok(Some(dense))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::index::tests::{index, long, record};
    use crate::stage1::Span;

    fn sample() -> Index {
        let mut index = index(&[
            ("fox", "a quick red fox", [1.0, 0.0]),
            ("hen", "a red hen, a red comb", [0.0, 1.0]),
            ("dog", "the lazy dog", [0.6, 0.8]),
        ]);
        index.remove("fox");
        let owl = long("owl", "hunts red mice", "nests in \u{e9}glise towers");
        let vector = || Some(vec![1.0, 1.0]);
        index.upsert(vec![(record("cod", "red fish"), vector()), (owl, vector())]).unwrap();
        index
    }

    /// A file whose postings contradict its text has a valid checksum, too.
    #[test]
    fn postings_that_contradict_the_text_do_not_outlive_their_document() {
        let documents =
            vec![record("fox", "red fox"), record("hen", "a hen"), record("cod", "fish")];
        let term = |text: &str, heads: &[(u32, u32)]| Term {
            text: text.to_owned(),
            heads: heads.to_vec(),
            passages: Vec::new(),
        };
        let contents = Contents {
            embedder: String::new(),
            language: "none".to_owned(),
            dimension: 0,
            documents,
            // Words that no text holds, and a word of the first text that only the others have.
            terms: vec![term("ghost", &[(0, 1), (1, 1), (1, 7)]), term("red", &[(1, 1), (1, 2)])],
        };
        let contents = postcard::to_allocvec(&contents).unwrap();
        let mut body = (contents.len() as u64).to_le_bytes().to_vec();
        body.extend(contents);
        let mut index = read_body(&body).unwrap();
        for id in ["fox", "hen", "cod"] {
            assert!(index.remove(id));
            let read = Index::from_bytes(&index.to_bytes()).unwrap();
            assert_eq!((read.len(), read.get(id)), (index.len(), None));
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let index = sample();
        let read = Index::from_bytes(&index.to_bytes()).unwrap();
        assert_eq!(read.fingerprint(), index.fingerprint());
        assert_eq!((read.embedder(), read.dimension(), read.len()), ("test", 2, 4));
        assert_eq!(read.get("owl"), index.get("owl"));
        assert_eq!(read.vector("dog"), index.vector("dog"));
        assert_eq!(read.to_bytes(), index.to_bytes());
        let terms = ["red".to_owned(), "dog".to_owned()];
        let (before, after) = (index.bm25.matches(&terms, 0.5), read.bm25.matches(&terms, 0.5));
        // The slot of the removed document is gone, the rest is the same to the bit.
        assert_eq!(before.get(1..), after.get(..));
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_noticed() {
        let bytes = sample().to_bytes();
        for length in 0..bytes.len() {
            let code = Index::from_bytes(&bytes[..length]).unwrap_err().code();
            assert_eq!(code, if length < 8 { "not_an_index" } else { "index_truncated" });
        }
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[place] ^= 1 << bit;
                assert!(Index::from_bytes(&flipped).is_err(), "byte {place} bit {bit}");
            }
        }
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = sample().to_bytes();
        bytes[8] = 4;
        let error = Index::from_bytes(&bytes).unwrap_err();
        assert_eq!(error.code(), "index_version");
        assert!(error.to_string().contains("version 4"));
    }

    type Change<'a> = &'a dyn Fn(&mut Contents, &mut Vec<u8>);

    #[test]
    fn contents_that_contradict_themselves_are_refused_behind_a_good_checksum() {
        let record = |id: &str| record(id, "text");
        let vector = [0.6_f32, 0.8].map(f32::to_le_bytes).concat();
        let check = |change: Change<'_>| {
            let mut contents = Contents {
                embedder: "test".to_owned(),
                language: "english".to_owned(),
                dimension: 2,
                documents: vec![record("a"), long("b", "one", "two")],
                terms: vec![Term {
                    text: "text".to_owned(),
                    heads: vec![(0, 1), (1, 1)],
                    passages: vec![(1, 1)],
                }],
            };
            let mut vectors = [vector.clone(), vector.clone()].concat();
            change(&mut contents, &mut vectors);
            let contents = postcard::to_allocvec(&contents).unwrap();
            let mut body = (contents.len() as u64).to_le_bytes().to_vec();
            body.extend(contents);
            body.extend(vectors);
            Index::from_bytes(&Index::sealed(&body)).map_err(|error| error.code())
        };
        assert!(check(&|_, _| ()).is_ok());
        let changes: &[(&str, Change<'_>)] = &[
            ("language", &|contents, _| contents.language = "klingon".to_owned()),
            ("same id", &|contents, _| contents.documents[1].id = "a".to_owned()),
            ("dimension", &|contents, _| contents.dimension = 3),
            ("huge dimension", &|contents, _| contents.dimension = u32::MAX),
            ("missing vector", &|_, vectors| vectors.truncate(8)),
            ("unknown passage", &|contents, _| contents.terms[0].passages[0].0 = 2),
            ("a passage outside of its body", &|contents, _| {
                contents.documents[1].passages[1].end = 8;
            }),
            ("passages that overlap", &|contents, _| {
                contents.documents[1].passages[1] = Span { start: 2, end: 7 };
            }),
            ("infinite vector", &|_, vectors| {
                vectors[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
            }),
            ("zero vector", &|_, vectors| vectors.fill(0)),
            ("unknown document", &|contents, _| contents.terms[0].heads[1].0 = 2),
            ("document twice", &|contents, _| contents.terms[0].heads[1].0 = 0),
            ("overflowing document", &|contents, _| {
                contents.terms[0].passages.push((u32::MAX, 1));
            }),
            ("count of zero", &|contents, _| contents.terms[0].passages[0].1 = 0),
            ("overflowing count", &|contents, _| {
                contents.terms[0].heads[0].1 = u32::MAX;
                let more =
                    Term { text: "more".to_owned(), heads: vec![(0, 1)], passages: Vec::new() };
                contents.terms.push(more);
            }),
            ("term without documents", &|contents, _| {
                contents.terms[0].heads.clear();
                contents.terms[0].passages.clear();
            }),
            ("term twice", &|contents, _| {
                let term = contents.terms[0].clone();
                contents.terms.push(term);
            }),
        ];
        for (name, change) in changes {
            assert_eq!(check(*change).err(), Some("index_corrupt"), "{name}");
        }
    }

    #[test]
    fn errors_name_the_file_and_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skills.cgx");
        let error = Index::open(&path).unwrap_err();
        assert_eq!(error.code(), "index_missing");
        std::fs::write(&path, "not an index").unwrap();
        let error = Index::open(&path).unwrap_err();
        assert_eq!(error.code(), "not_an_index");
        let message = error.to_string();
        assert!(message.contains("skills.cgx") && message.contains("crossgate index"), "{message}");
        assert_eq!(Index::open(folder.path()).unwrap_err().code(), "index_unreadable");
        let nowhere = folder.path().join("missing").join("skills.cgx");
        assert_eq!(sample().save(&nowhere).unwrap_err().code(), "index_unwritable");
    }

    #[test]
    fn saving_replaces_the_file_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skills.cgx");
        for _ in 0..2 {
            sample().save(&path).unwrap();
        }
        assert_eq!(Index::open(&path).unwrap().len(), 4);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn any_body_behind_a_good_checksum_is_read_or_refused(
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = Index::from_bytes(&Index::sealed(&body));
        }

        #[test]
        fn a_changed_body_behind_a_good_checksum_is_refused_or_a_sound_index(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut body = sample().to_bytes()[HEADER..].to_vec();
            for (place, value) in changes {
                let place = place.index(body.len());
                body[place] = value;
            }
            let Ok(mut index) = Index::from_bytes(&Index::sealed(&body)) else { return Ok(()) };
            let deny = HashSet::new();
            let blend = crate::stage1::Blend::default();
            let options =
                crate::index::SearchOptions { blend, per_channel: 5, allow: None, deny: &deny };
            let vector = vec![1.0; index.dimension()];
            let vector = (index.dimension() > 0).then_some(vector.as_slice());
            let ids: Vec<String> = index.records().map(|record| record.id.clone()).collect();
            for id in ids {
                prop_assert!(index.search("red towers", vector, &options).is_ok());
                let again = Index::from_bytes(&index.to_bytes()).unwrap();
                prop_assert_eq!(again.fingerprint(), index.fingerprint());
                prop_assert!(index.remove(&id));
            }
            prop_assert!(index.is_empty());
        }
    }
}
