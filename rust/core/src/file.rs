//! The index file: written aside and renamed, read part by part without trusting a byte.
//!
//! Layout, all numbers little-endian: magic (8 bytes), version (u32), length of the directory (u64),
//! BLAKE3 of the directory (32 bytes), directory, blocks. The directory and the blocks are in
//! postcard's format, but for those of the vectors: numbers row by row, in f32, and in 8 bits behind
//! step and error of each row (f32). Blocks follow each other in the order of the directory.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::blocks::{Block, Extent, Lazy, REBUILD, Source, corrupt};
use crate::dense::Dense;
use crate::error::{Error, Result};
use crate::index::{FiledRecords, Index, MAX_DIMENSION, Record, Slot};
use crate::terms::{Filed, Term};
use crate::text::Analyzer;

const MAGIC: &[u8; 8] = b"\x89CGX\r\n\x1a\n";
/// Grows with every change that an older reader would misread.
const VERSION: u32 = 5;

/// Bytes before the directory: magic, version, length, checksum.
const HEADER: usize = 8 + 4 + 8 + 32;

/// A block of documents or terms ends where it has so many bytes, or soon after.
const BLOCK: usize = if cfg!(test) { 20 } else { 32 * 1024 };

/// What stands in which block.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Directory {
    embedder: String,
    language: String,
    fingerprint: String,
    dimension: u32,
    /// One [`Row`] per document.
    table: Extent,
    /// Terms in alphabetical order; with each block its first term.
    terms: Vec<(String, Extent)>,
    /// Vectors in 8 bits, 256 to a block.
    levels: Vec<Extent>,
    /// Documents in their order; with each block their number.
    documents: Vec<(u32, Extent)>,
    /// Vectors in full.
    vectors: Vec<Extent>,
}

impl Directory {
    /// The blocks in the order of the file.
    fn extents(&mut self) -> impl Iterator<Item = &mut Extent> {
        std::iter::once(&mut self.table)
            .chain(self.terms.iter_mut().map(|(_, extent)| extent))
            .chain(&mut self.levels)
            .chain(self.documents.iter_mut().map(|(_, extent)| extent))
            .chain(&mut self.vectors)
    }
}

/// What a search needs to know of each document.
#[derive(Clone, Serialize, Deserialize)]
struct Row {
    id: String,
    /// Lengths of its head and of its body, in terms.
    head: u32,
    body: u32,
    passages: u32,
}

impl Index {
    /// Writes the index to a file, which is replaced only when the new one is complete and on disk.
    ///
    /// Fails with `index_unwritable` where the folder is missing, read-only or full; a file that
    /// was there before is still whole then.
    pub fn save(&self, path: &Path) -> Result<()> {
        let bytes = self.to_bytes()?;
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
            // The rename is safe on disk only once its folder is; where folders cannot be opened
            // or synced, it is done all the same.
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
            Ok(())
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

    /// Opens an index file. It stays open, and its parts are read when they are first needed.
    ///
    /// Fails with `index_missing` or `index_unreadable`, and with `not_an_index`, `index_version`,
    /// `index_truncated` or `index_corrupt` where the directory is damaged; where another part is,
    /// whoever needs it fails so.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => "index_missing",
                _ => "index_unreadable",
            };
            Error::file(
                code,
                format!("cannot read the index {}: {error}: {REBUILD}", path.display()),
            )
        })?;
        let source = Arc::new(Source::File { file, path: path.to_owned() });
        read(&source).map_err(|error| source.named(error))
    }

    /// The bytes of an index file; fails where a part of the file that was opened is damaged.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.load()?;
        let (live, slots): (Vec<u32>, Vec<&Slot>) = self.live().unzip();
        // Empty slots are left behind, so documents and passages get new numbers.
        let bm25 = self.bm25.compacted(&live)?;
        let row = |(number, slot): (u32, &&Slot)| {
            let (head, body, passages) = bm25.lengths(number);
            Row { id: slot.id.to_string(), head, body, passages }
        };
        let vectors = match &self.dense {
            Some(dense) => dense.to_bytes(&live)?,
            None => Vec::new(),
        };
        let (vectors, levels) = vectors.into_iter().unzip();
        let records =
            slots.iter().map(|slot| slot.record().cloned()).collect::<Result<Vec<_>>>()?;
        let terms = bm25.vocabulary().into_iter().map(|(text, list)| Term::of(text, list));
        let contents = Contents {
            embedder: self.embedder.clone(),
            language: self.analyzer.language().to_owned(),
            fingerprint: self.fingerprint()?,
            dimension: u32::try_from(self.dimension()).unwrap_or_default(),
            table: (0..).zip(&slots).map(row).collect(),
            terms: grouped(terms.collect(), Term::size),
            levels,
            documents: grouped(records, |one| {
                one.id.len()
                    + one.title.len()
                    + one.text.len()
                    + one.body.len()
                    + one.metadata.len()
            }),
            vectors,
        };
        Ok(contents.to_bytes())
    }

    /// Reads an index from the bytes of a file, all of it.
    ///
    /// Fails with `not_an_index`, `index_version`, `index_truncated` or `index_corrupt`. A file of
    /// any content is safe to read: lengths and numbers are checked before they are used.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let index = read(&Arc::new(Source::Memory(bytes.to_vec())))?;
        index.load()?;
        Ok(index)
    }

    /// A file whose checksums fit what it holds, as far as it is one: the fuzzer gets past them.
    #[doc(hidden)]
    pub fn resealed(bytes: &[u8]) -> Vec<u8> {
        let rest = bytes.get(HEADER..).unwrap_or(bytes);
        let Ok((mut directory, mut blocks)) = postcard::take_from_bytes::<Directory>(rest) else {
            return sealed(rest, &[]);
        };
        let all = blocks;
        for extent in directory.extents() {
            let length = usize::try_from(extent.length).unwrap_or(usize::MAX);
            let (block, left) = blocks.split_at(length.min(blocks.len()));
            *extent = Extent::of(block);
            blocks = left;
        }
        sealed(&postcard::to_allocvec(&directory).unwrap_or_default(), all)
    }
}

/// All that a file holds, block by block.
#[derive(Clone)]
struct Contents {
    embedder: String,
    language: String,
    fingerprint: String,
    dimension: u32,
    table: Vec<Row>,
    terms: Vec<Vec<Term>>,
    levels: Vec<Vec<u8>>,
    documents: Vec<Vec<Record>>,
    vectors: Vec<Vec<u8>>,
}

impl Contents {
    fn to_bytes(&self) -> Vec<u8> {
        let mut blocks = Vec::new();
        let mut put = |block: &[u8]| {
            blocks.extend(block);
            Extent::of(block)
        };
        // Fields are evaluated in the order in which they stand here: that of the file.
        let directory = Directory {
            embedder: self.embedder.clone(),
            language: self.language.clone(),
            fingerprint: self.fingerprint.clone(),
            dimension: self.dimension,
            table: put(&encoded(&self.table)),
            terms: (self.terms.iter())
                .map(|terms| {
                    let first = terms.first().map_or("", |term| &term.text);
                    (first.to_owned(), put(&encoded(terms)))
                })
                .collect(),
            levels: self.levels.iter().map(|block| put(block)).collect(),
            documents: (self.documents.iter())
                .map(|records| (crate::terms::number_of(records.len()), put(&encoded(records))))
                .collect(),
            vectors: self.vectors.iter().map(|block| put(block)).collect(),
        };
        sealed(&encoded(&directory), &blocks)
    }
}

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    // Strings and numbers in memory have no way to fail to be written to memory.
    postcard::to_allocvec(value).unwrap_or_default()
}

/// Cuts a list into blocks by the size of what they hold.
fn grouped<T>(list: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for one in list {
        let size = size(&one);
        if let Some(group) = groups.last_mut().filter(|_| room > 0) {
            group.push(one);
        } else {
            groups.push(vec![one]);
            room = BLOCK;
        }
        room = room.saturating_sub(size);
    }
    groups
}

/// The file of a directory and its blocks, with the header that fits them.
fn sealed(directory: &[u8], blocks: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((directory.len() as u64).to_le_bytes());
    bytes.extend(blake3::hash(directory).as_bytes());
    bytes.extend(directory);
    bytes.extend(blocks);
    bytes
}

fn truncated() -> Error {
    Error::file("index_truncated", "the index ends too early")
}

/// Reads header, directory and table. A checksum that fits proves no good will, so all is checked.
fn read(source: &Arc<Source>) -> Result<Index> {
    let length = source.len()?;
    let header = source.read(0, length.min(HEADER as u64))?;
    if header.get(..MAGIC.len()).is_none_or(|magic| magic != MAGIC) {
        return Err(Error::file("not_an_index", "this is not a crossgate index"));
    }
    let version = number(&header, 8).map(u32::from_le_bytes).ok_or_else(truncated)?;
    if version != VERSION {
        return Err(Error::file(
            "index_version",
            format!("the index has format version {version}, this crossgate reads {VERSION}"),
        ));
    }
    let directory = number(&header, 12).map(u64::from_le_bytes).ok_or_else(truncated)?;
    let checksum: [u8; 32] = number(&header, 20).ok_or_else(truncated)?;
    let bytes = source.read(HEADER as u64, directory)?;
    if *blake3::hash(&bytes).as_bytes() != checksum {
        return Err(corrupt("the checksum of its directory does not match"));
    }
    let (mut directory, rest): (Directory, _) =
        postcard::take_from_bytes(&bytes).map_err(|_| corrupt("its directory cannot be read"))?;
    if !rest.is_empty() {
        return Err(corrupt("its directory is longer than it says"));
    }
    let mut at = (HEADER + bytes.len()) as u64;
    let mut starts = Vec::new();
    for extent in directory.extents() {
        starts.push(at);
        at = at.checked_add(extent.length).ok_or_else(|| corrupt("its blocks do not end"))?;
    }
    if at != length {
        return Err(if at > length { truncated() } else { corrupt("it continues past its end") });
    }
    index(directory, source, starts)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// The index of a directory whose blocks start at these places.
fn index(directory: Directory, source: &Arc<Source>, starts: Vec<u64>) -> Result<Index> {
    let analyzer = Analyzer::new(&directory.language)
        .map_err(|_| corrupt(&format!("its language {:?} is unknown", directory.language)))?;
    let dimension = directory.dimension as usize;
    if dimension > MAX_DIMENSION {
        return Err(corrupt(&format!("its vectors have {dimension} numbers")));
    }
    let mut starts = starts.into_iter();
    let mut block = |what: &'static str, number: usize, extent: Extent| Block {
        source: Arc::clone(source),
        at: starts.next().unwrap_or(u64::MAX),
        extent,
        name: (what, number),
    };
    let table = block("table", 0, directory.table).read(|bytes| {
        postcard::from_bytes::<Vec<Row>>(bytes).map_err(|_| corrupt("its table cannot be read"))
    })?;
    let terms = (0..).zip(directory.terms);
    let terms = terms.map(|(number, (first, extent))| (first, block("terms", number, extent)));
    let terms = Filed::new(terms.collect(), table.len())?;
    let levels = (0..).zip(directory.levels);
    let levels: Vec<_> =
        levels.map(|(number, extent)| block("vectors in 8 bits", number, extent)).collect();
    let documents = (0..).zip(directory.documents);
    let documents: Vec<_> = documents
        .map(|(number, (count, extent))| (count, block("documents", number, extent)))
        .collect();
    let vectors = (0..).zip(directory.vectors);
    let vectors: Vec<_> =
        vectors.map(|(number, extent)| block("vectors", number, extent)).collect();

    let mut index = Index::new(analyzer, &directory.embedder, dimension)?;
    index.filed = true;
    index.fingerprint = directory.fingerprint.into();
    // Every passage takes bytes in the file: a table that says more would make room for them.
    let passages = table.iter().map(|row| u64::from(row.passages)).sum::<u64>();
    if passages > source.len()? || u32::try_from(table.len()).is_err() {
        return Err(corrupt("it holds too many documents"));
    }
    for (slot, Row { head, body, passages, .. }) in (0..).zip(&table) {
        index.bm25.add_lengths(slot, *head, *body, *passages);
    }
    index.bm25.restore(terms);
    index.dense = match (dimension, vectors.len() == levels.len()) {
        (0, true) if vectors.is_empty() => None,
        (1.., true) => {
            let blocks = vectors.into_iter().zip(levels).collect();
            Some(Dense::filed(dimension, table.len(), blocks)?)
        }
        _ => return Err(corrupt("it does not hold one vector per document")),
    };
    let count = table.len();
    let mut known = table.into_iter().map(|row| (Arc::from(row.id), row.passages));
    for (count, block) in documents {
        let known = known.by_ref().take(count as usize).collect();
        index
            .slots
            .extend(Slot::filed(FiledRecords { block: Lazy::later(block), known }).map(Some));
    }
    if index.slots.len() != count {
        return Err(corrupt("its documents are not those of its table"));
    }
    for (number, slot) in (0..).zip(index.slots.iter().flatten()) {
        if index.by_id.insert(Arc::clone(&slot.id), number).is_some() {
            return Err(corrupt(&format!("the id {:?} occurs twice", slot.id)));
        }
    }
    Ok(index)
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
        assert!(index.remove("fox").unwrap());
        let owl = long("owl", "hunts red mice", "nests in \u{e9}glise towers");
        let vector = || Some(vec![1.0, 1.0]);
        index.upsert(vec![(record("cod", "red fish"), vector()), (owl, vector())]).unwrap();
        index
    }

    /// What a file of these documents holds, without vectors or with the same one for each.
    fn contents(documents: Vec<Record>, dimension: u32, terms: Vec<Term>) -> Contents {
        let rows = documents.iter().map(|record| Row {
            id: record.id.clone(),
            head: 2,
            body: 3,
            passages: u32::try_from(record.passages.len()).unwrap(),
        });
        let mut dense = Dense::new(dimension as usize);
        let numbers: Vec<u32> = (0..u32::try_from(documents.len()).unwrap()).collect();
        if dimension > 0 {
            for number in &numbers {
                dense.set(*number, &[0.6, 0.8]).unwrap();
            }
        }
        let (vectors, levels) =
            dense.to_bytes(&numbers[..dense.rows()]).unwrap().into_iter().unzip();
        Contents {
            embedder: "test".to_owned(),
            language: "english".to_owned(),
            fingerprint: String::new(),
            dimension,
            table: rows.collect(),
            terms: terms.into_iter().map(|term| vec![term]).collect(),
            levels,
            documents: vec![documents],
            vectors,
        }
        .signed()
    }

    impl Contents {
        /// The same with the fingerprint of its documents.
        fn signed(mut self) -> Self {
            if let Ok(index) = read(&Arc::new(Source::Memory(self.to_bytes()))) {
                self.fingerprint = index.fingerprint_of_documents().unwrap_or_default();
            }
            self
        }
    }

    fn term(text: &str, heads: &[(u32, u32)], passages: &[(u32, u32)]) -> Term {
        Term { text: text.to_owned(), heads: heads.to_vec(), passages: passages.to_vec() }
    }

    /// A file whose postings contradict its text has valid checksums, too.
    #[test]
    fn postings_that_contradict_the_text_do_not_outlive_their_document() {
        let documents =
            vec![record("fox", "red fox"), record("hen", "a hen"), record("cod", "fish")];
        // Words that no text holds, and a word of the first text that only the others have.
        let terms = vec![
            term("ghost", &[(0, 1), (1, 1), (1, 7)], &[]),
            term("red", &[(1, u32::MAX), (1, 2)], &[]),
        ];
        let mut index = Index::from_bytes(&contents(documents, 0, terms).to_bytes()).unwrap();
        for id in ["fox", "hen", "cod"] {
            assert!(index.remove(id).unwrap());
            let read = Index::from_bytes(&index.to_bytes().unwrap()).unwrap();
            assert_eq!((read.len(), read.get(id).unwrap()), (index.len(), None));
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let index = sample();
        let bytes = index.to_bytes().unwrap();
        let read = Index::from_bytes(&bytes).unwrap();
        assert_eq!(read.fingerprint().unwrap(), index.fingerprint().unwrap());
        assert_eq!((read.embedder(), read.dimension(), read.len()), ("test", 2, 4));
        assert_eq!(read.get("owl").unwrap(), index.get("owl").unwrap());
        assert_eq!(read.vector("dog").unwrap(), index.vector("dog").unwrap());
        assert_eq!(read.to_bytes().unwrap(), bytes);
        let terms = ["red".to_owned(), "dog".to_owned()];
        let (before, after) = (index.bm25.matches(&terms, 0.5), read.bm25.matches(&terms, 0.5));
        // The slot of the removed document is gone, the rest is the same to the bit.
        assert_eq!(before.get(1..), after.get(..));
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_noticed() {
        let bytes = sample().to_bytes().unwrap();
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
        assert!(Index::from_bytes(&[bytes, vec![0]].concat()).is_err());
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = sample().to_bytes().unwrap();
        bytes[8] = 9;
        let error = Index::from_bytes(&bytes).unwrap_err();
        assert_eq!(error.code(), "index_version");
        assert!(error.to_string().contains("version 9"));
    }

    type Change<'a> = &'a dyn Fn(&mut Contents);

    #[test]
    fn contents_that_contradict_themselves_are_refused_behind_good_checksums() {
        let sound = contents(
            vec![record("a", "text"), long("b", "one", "two")],
            2,
            vec![term("same", &[(1, 1)], &[]), term("text", &[(0, 1), (1, 1)], &[(1, 1)])],
        );
        assert!(Index::from_bytes(&sound.to_bytes()).is_ok());
        let changes: &[(&str, Change<'_>)] = &[
            ("language", &|all| all.language = "klingon".to_owned()),
            ("fingerprint", &|all| all.fingerprint.push('0')),
            ("same id", &|all| {
                all.table[1].id = "a".to_owned();
                all.documents[0][1].id = "a".to_owned();
            }),
            ("another id", &|all| all.table[1].id = "c".to_owned()),
            ("more rows", &|all| all.table.push(all.table[0].clone())),
            ("fewer rows", &|all| all.table.truncate(1)),
            ("other passages", &|all| all.table[1].passages = 1),
            ("passages without end", &|all| all.table[1].passages = u32::MAX),
            ("dimension", &|all| all.dimension = 3),
            ("no dimension", &|all| all.dimension = 0),
            ("huge dimension", &|all| all.dimension = u32::MAX),
            ("missing vector", &|all| all.vectors[0].truncate(8)),
            ("missing levels", &|all| all.levels[0].truncate(8)),
            ("one level too many", &|all| all.levels[0].push(0)),
            ("a missing block", &|all| {
                all.levels.clear();
                all.vectors.clear();
            }),
            ("a passage outside of its body", &|all| all.documents[0][1].passages[1].end = 8),
            ("passages that overlap", &|all| {
                all.documents[0][1].passages[1] = Span { start: 2, end: 7 };
            }),
            ("infinite vector", &|all| {
                all.vectors[0][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
            }),
            ("zero vector", &|all| all.vectors[0].fill(0)),
            ("unknown passage", &|all| all.terms[1][0].passages[0].0 = 2),
            ("unknown document", &|all| all.terms[1][0].heads[1].0 = 2),
            ("document twice", &|all| all.terms[1][0].heads[1].0 = 0),
            ("overflowing document", &|all| all.terms[1][0].passages.push((u32::MAX, 1))),
            ("count of zero", &|all| all.terms[1][0].passages[0].1 = 0),
            ("term without documents", &|all| all.terms[0][0].heads.clear()),
            ("term twice", &|all| all.terms.push(all.terms[1].clone())),
            ("term twice in a block", &|all| {
                let again = all.terms[1][0].clone();
                all.terms[1].push(again);
            }),
            ("terms in disorder", &|all| all.terms.swap(0, 1)),
            ("a term of the next block", &|all| {
                let next = all.terms[1][0].clone();
                all.terms[0].push(next);
            }),
            ("a block without terms", &|all| all.terms[0].clear()),
        ];
        for (name, change) in changes {
            let mut contents = sound.clone();
            change(&mut contents);
            let error = Index::from_bytes(&contents.to_bytes()).err();
            assert_eq!(error.map(|error| error.code()), Some("index_corrupt"), "{name}");
        }
    }

    /// A hook that decides one prompt reads little of a large file.
    #[test]
    fn a_file_is_read_where_it_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skills.cgx");
        let bytes = sample().to_bytes().unwrap();
        let sound = Index::from_bytes(&bytes).unwrap();
        let search = |index: &Index, query: &str| {
            let deny = std::collections::HashSet::new();
            let blend = crate::stage1::Blend::default();
            let options =
                crate::index::SearchOptions { blend, per_channel: 2, allow: None, deny: &deny };
            let found = index.search(query, None, &options)?;
            Ok::<_, Error>(found.into_iter().map(|(scored, _)| scored).collect::<Vec<_>>())
        };
        let mut found = 0;
        for place in HEADER..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            // Either a search finds what it finds in the sound file, or it fails and says where.
            let Ok(index) = Index::open(&path) else { continue };
            match search(&index, "red fish") {
                Ok(same) => {
                    assert_eq!(same, search(&sound, "red fish").unwrap());
                    found += 1;
                }
                Err(error) => {
                    assert_eq!(error.code(), "index_corrupt");
                    let message = error.to_string();
                    assert!(
                        message.contains("skills.cgx") && message.contains("block"),
                        "{message}"
                    );
                }
            }
            assert!(index.load().is_err());
            let before: Vec<_> = index.ids().map(str::to_owned).collect();
            let mut changed = index.clone();
            assert!(changed.remove("cod").is_err() && changed.to_bytes().is_err());
            assert_eq!(changed.ids().collect::<Vec<_>>(), before);
        }
        assert!(found > 50, "{found} of {} bytes were not needed", bytes.len());
    }

    #[test]
    fn a_file_that_is_replaced_or_cut_while_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skills.cgx");
        sample().save(&path).unwrap();
        let (before, cut) = (Index::open(&path).unwrap(), Index::open(&path).unwrap());
        index(&[("new", "new", [1.0, 0.0])]).save(&path).unwrap();
        assert_eq!(before.to_bytes().unwrap(), sample().to_bytes().unwrap());
        assert_eq!(Index::open(&path).unwrap().ids().collect::<Vec<_>>(), ["new"]);
        drop(cut);
        let cut = Index::open(&path).unwrap();
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(cut.get("new").unwrap_err().code(), "index_truncated");
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
            let _ = Index::from_bytes(&Index::resealed(&body));
        }

        #[test]
        fn a_changed_body_behind_a_good_checksum_is_refused_or_a_sound_index(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = sample().to_bytes().unwrap();
            for (place, value) in changes {
                let place = HEADER + place.index(bytes.len() - HEADER);
                bytes[place] = value;
            }
            let Ok(mut index) = Index::from_bytes(&Index::resealed(&bytes)) else { return Ok(()) };
            let deny = std::collections::HashSet::new();
            let blend = crate::stage1::Blend::default();
            let options =
                crate::index::SearchOptions { blend, per_channel: 5, allow: None, deny: &deny };
            let vector = vec![1.0; index.dimension()];
            let vector = (index.dimension() > 0).then_some(vector.as_slice());
            let ids: Vec<String> = index.ids().map(str::to_owned).collect();
            for id in ids {
                prop_assert!(index.search("red towers", vector, &options).is_ok());
                let again = Index::from_bytes(&index.to_bytes().unwrap()).unwrap();
                prop_assert_eq!(again.fingerprint().unwrap(), index.fingerprint().unwrap());
                prop_assert!(index.remove(&id).unwrap());
            }
            prop_assert!(index.is_empty());
        }
    }
}
