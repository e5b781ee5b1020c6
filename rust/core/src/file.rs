//! The index file: written to a temporary file and renamed, read in blocks and never trusted.
//!
//! Layout, all numbers little-endian: magic (8 bytes), version (u32), length of the directory (u64),
//! BLAKE3 checksum of the directory (32 bytes), directory, blocks in the order of the directory.
//! Directory and blocks are encoded with postcard, except for blocks of vectors: those hold the
//! numbers row by row, either as f32, or as 8-bit levels after the step and error (both f32) of each
//! row.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::blocks::{Block, Extent, Lazy, Source};
use crate::dense::Dense;
use crate::error::{Damage, Error, FileProblem, Result};
use crate::index::{FileRecords, Index, MAX_DIMENSION, Record, Slot};
use crate::terms::{FileTerms, Term};
use crate::text::Analyzer;

const MAGIC: &[u8; 8] = b"\x89CGX\r\n\x1a\n";

/// Raised with every change that an older reader would misread.
const VERSION: u32 = 11;

/// Bytes before the directory: magic, version, length, checksum.
const HEADER: usize = 8 + 4 + 8 + 32;

/// Bytes after which a block of documents or terms ends, rounded up to a whole document or term.
const BLOCK_BYTES: usize = 32 * 1024;

/// The blocks of a file and how to read them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Directory {
    embedder: String,
    language: String,
    fingerprint: String,
    dimension: u32,
    /// Prompts that no document fits.
    nothing: Vec<String>,
    /// One [`Row`] per document.
    table: Extent,
    /// Triggers, and the terms and vectors of examples.
    hints: Extent,
    /// Terms in alphabetical order; each block with its first term.
    terms: Vec<(String, Extent)>,
    /// Vectors in 8 bits, 256 to a block.
    levels: Vec<Extent>,
    /// Documents in their order; each block with the number of its documents.
    documents: Vec<(u32, Extent)>,
    /// Vectors in 32 bits, 256 to a block.
    vectors: Vec<Extent>,
}

impl Directory {
    /// The blocks in the order of the file.
    fn extents(&mut self) -> impl Iterator<Item = &mut Extent> {
        [&mut self.table, &mut self.hints]
            .into_iter()
            .chain(self.terms.iter_mut().map(|(_, extent)| extent))
            .chain(&mut self.levels)
            .chain(self.documents.iter_mut().map(|(_, extent)| extent))
            .chain(&mut self.vectors)
    }
}

/// The properties of a document that every search reads.
#[derive(Clone, Serialize, Deserialize)]
struct Row {
    id: String,
    /// Length of the head in terms.
    head: u32,
    /// Length of the body in terms.
    body: u32,
    /// Number of passages.
    passages: u32,
    /// Whether a query finds it by its name alone.
    is_manual: bool,
}

impl Index {
    /// Writes the index to a file, which is replaced only after the new file is complete on disk.
    ///
    /// Fails with `index_unwritable` if the folder is missing, read-only or full; an existing file
    /// is then unchanged.
    pub fn save(&self, path: &Path) -> Result<()> {
        let bytes = self.to_bytes()?;
        let folder = folder_of(path);
        let write = || -> std::io::Result<()> {
            // `create_new` follows the umask, while tempfile's own files are private to the user.
            // It also keeps the temporary name, which means nothing to the user, out of errors.
            let mut file = tempfile::Builder::new()
                .prefix(".crossgate-")
                .make_in(folder, |temporary| File::create_new(temporary))?;
            file.as_file_mut().write_all(&bytes)?;
            file.as_file().sync_all()?;
            // On Windows, this asks for a POSIX rename, which `persist` does not, so that a file that
            // another process has open can be replaced. It needs the file to be closed.
            let mut temporary = file.into_temp_path();
            std::fs::rename(&temporary, path)?;
            temporary.disable_cleanup(true);
            // A rename survives a crash only after its folder is synced. Some systems cannot open
            // or sync a folder, and the file is complete there too, so failures are ignored.
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
            Ok(())
        };
        write().map_err(|error| Error::file(FileProblem::Unwritable(error.to_string())).at(path))
    }

    /// Opens an index file, which stays open; its blocks are read on first use.
    ///
    /// Fails with `index_missing` or `index_unreadable`, and with `not_an_index`, `index_version`,
    /// `index_truncated` or `index_corrupt` if header or directory are damaged. Damage in another
    /// block is reported by the first method that needs the block.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| {
            let cause = error.to_string();
            let problem = match error.kind() {
                std::io::ErrorKind::NotFound => FileProblem::Missing(cause),
                _ => FileProblem::CannotOpen(cause),
            };
            Error::file(problem).at(path)
        })?;
        let source = Arc::new(Source::File { file, path: path.to_owned() });
        read(&source).map_err(|error| source.locate(error))
    }

    /// The bytes of an index file; fails if this index was opened from a file that is damaged.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.to_bytes_in_blocks(BLOCK_BYTES)
    }

    fn to_bytes_in_blocks(&self, block_bytes: usize) -> Result<Vec<u8>> {
        self.load()?;
        let (live, slots): (Vec<u32>, Vec<&Slot>) = self.live().unzip();
        // A file has no empty slots, so documents and passages get new numbers.
        let bm25 = self.bm25.compacted(&live)?;
        let row = |(number, slot): (u32, &&Slot)| {
            let (head, body, passages) = bm25.lengths(number);
            Row { id: slot.id.to_string(), head, body, passages, is_manual: slot.is_manual }
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
            dimension: u32::try_from(self.dimension()).expect("it is at most MAX_DIMENSION"),
            nothing: self.nothing.clone(),
            table: (0..).zip(&slots).map(row).collect(),
            hints: encoded(&self.hints()?.compacted(&live)),
            terms: into_blocks(terms.collect(), block_bytes, Term::size),
            levels,
            documents: into_blocks(records, block_bytes, size_of),
            vectors,
        };
        Ok(contents.to_bytes())
    }

    /// Reads a whole index from the bytes of a file.
    ///
    /// Fails with `not_an_index`, `index_version`, `index_truncated` or `index_corrupt`. Any bytes
    /// are safe to read: lengths and numbers are checked before they are used.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let index = read(&Arc::new(Source::Memory(bytes.to_vec())))?;
        index.load()?;
        Ok(index)
    }

    /// The bytes with valid checksums, so that a fuzzer reaches the code behind them.
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
        sealed(&encoded(&directory), all)
    }
}

/// The contents of a file, block by block.
#[derive(Clone)]
struct Contents {
    embedder: String,
    language: String,
    fingerprint: String,
    dimension: u32,
    nothing: Vec<String>,
    table: Vec<Row>,
    hints: Vec<u8>,
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
        // Rust evaluates the fields in the order of this expression, which is that of the file.
        let directory = Directory {
            embedder: self.embedder.clone(),
            language: self.language.clone(),
            fingerprint: self.fingerprint.clone(),
            dimension: self.dimension,
            nothing: self.nothing.clone(),
            table: put(&encoded(&self.table)),
            hints: put(&self.hints),
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

/// The folder of a file; `.` for a name without a folder, so that it can be synced.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Approximate size of a record in a file, in bytes.
fn size_of(record: &Record) -> usize {
    let texts = [&record.id, &record.title, &record.text, &record.body, &record.metadata];
    let lists = [&record.triggers, &record.examples, &record.counterexamples];
    texts.into_iter().chain(lists.into_iter().flatten()).map(String::len).sum()
}

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("strings, numbers and lists of known length have encodings")
}

/// Divides a list into blocks that end with the entry that fills them.
fn into_blocks<T>(list: Vec<T>, block_bytes: usize, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut blocks: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for entry in list {
        let size = size(&entry);
        if let Some(block) = blocks.last_mut().filter(|_| room > 0) {
            block.push(entry);
        } else {
            blocks.push(vec![entry]);
            room = block_bytes;
        }
        room = room.saturating_sub(size);
    }
    blocks
}

/// A file of a directory and its blocks, with a valid header.
fn sealed(directory: &[u8], blocks: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((directory.len() as u64).to_le_bytes());
    bytes.extend(blake3::hash(directory).as_bytes());
    bytes.extend(directory);
    bytes.extend(blocks);
    bytes
}

/// Reads header, directory and table. A valid checksum does not make content trustworthy, so every
/// number is checked.
fn read(source: &Arc<Source>) -> Result<Index> {
    let truncated = || Error::file(FileProblem::Truncated);
    let length = source.len()?;
    let header = source.read(0, length.min(HEADER as u64))?;
    if header.get(..MAGIC.len()).is_none_or(|magic| magic != MAGIC) {
        return Err(Error::file(FileProblem::NotAnIndex));
    }
    let version = bytes_at(&header, 8).map(u32::from_le_bytes).ok_or_else(truncated)?;
    if version != VERSION {
        return Err(Error::file(FileProblem::Version { found: version, supported: VERSION }));
    }
    let directory = bytes_at(&header, 12).map(u64::from_le_bytes).ok_or_else(truncated)?;
    let checksum: [u8; 32] = bytes_at(&header, 20).ok_or_else(truncated)?;
    let bytes = source.read(HEADER as u64, directory)?;
    if *blake3::hash(&bytes).as_bytes() != checksum {
        return Err(Error::corrupt(Damage::DirectoryChecksum));
    }
    let (mut directory, rest): (Directory, _) = postcard::take_from_bytes(&bytes)
        .map_err(|_| Error::corrupt(Damage::DirectoryUnreadable))?;
    if !rest.is_empty() {
        return Err(Error::corrupt(Damage::DirectoryTooLong));
    }
    let mut end = (HEADER + bytes.len()) as u64;
    let mut starts = Vec::new();
    for extent in directory.extents() {
        starts.push(end);
        end =
            end.checked_add(extent.length).ok_or_else(|| Error::corrupt(Damage::BlocksTooLong))?;
    }
    match end.cmp(&length) {
        std::cmp::Ordering::Greater => Err(truncated()),
        std::cmp::Ordering::Less => Err(Error::corrupt(Damage::TrailingBytes)),
        std::cmp::Ordering::Equal => index(directory, source, starts),
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], start: usize) -> Option<[u8; N]> {
    bytes.get(start..start + N)?.try_into().ok()
}

/// The index of a directory whose blocks start at these positions.
fn index(directory: Directory, source: &Arc<Source>, starts: Vec<u64>) -> Result<Index> {
    let analyzer = Analyzer::new(&directory.language)
        .map_err(|_| Error::corrupt(Damage::Language(directory.language.clone())))?;
    let dimension = directory.dimension as usize;
    if dimension > MAX_DIMENSION {
        return Err(Error::corrupt(Damage::Dimension(dimension)));
    }
    let mut starts = starts.into_iter();
    let mut block = |part: &'static str, number: usize, extent: Extent| Block {
        source: Arc::clone(source),
        start: starts.next().expect("there is one start for each block"),
        extent,
        part,
        number,
    };
    let table = block("table", 0, directory.table).read(|bytes| {
        postcard::from_bytes::<Vec<Row>>(bytes).map_err(|_| Error::corrupt(Damage::TableUnreadable))
    })?;
    let hints = Lazy::from_block(block("hints", 0, directory.hints));
    let terms = (0..).zip(directory.terms);
    let terms = terms.map(|(number, (first, extent))| (first, block("terms", number, extent)));
    let terms = FileTerms::new(terms.collect(), table.len())?;
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
    index.unread = true;
    index.hints = hints;
    index.nothing = directory.nothing;
    index.fingerprint = directory.fingerprint.into();
    // Every passage takes bytes in the file, so a larger number would only reserve memory.
    let passages = table.iter().map(|row| u64::from(row.passages)).sum::<u64>();
    if passages > source.len()? || u32::try_from(table.len()).is_err() {
        return Err(Error::corrupt(Damage::TooManyDocuments));
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
        _ => return Err(Error::corrupt(Damage::VectorCount)),
    };
    let count = table.len();
    let mut rows = table.into_iter().map(|row| (Arc::from(row.id), row.passages, row.is_manual));
    for (count, block) in documents {
        let rows = rows.by_ref().take(count as usize).collect();
        let records = FileRecords { block: Lazy::from_block(block), rows };
        index.slots.extend(Slot::of_records(records).map(Some));
    }
    if index.slots.len() != count {
        return Err(Error::corrupt(Damage::DocumentsNotInTable));
    }
    for (number, slot) in (0..).zip(index.slots.iter().flatten()) {
        if index.by_id.insert(Arc::clone(&slot.id), number).is_some() {
            return Err(Error::corrupt(Damage::DuplicateId { id: slot.id.to_string() }));
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

    /// Few enough bytes that each document and most terms get a block of their own.
    const SMALL_BLOCK: usize = 20;

    fn small_blocks(index: &Index) -> Vec<u8> {
        index.to_bytes_in_blocks(SMALL_BLOCK).unwrap()
    }

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

    /// A file of these documents, without vectors or with the same vector for each.
    fn contents(documents: Vec<Record>, dimension: u32, terms: Vec<Term>) -> Contents {
        let rows = documents.iter().map(|record| Row {
            id: record.id.clone(),
            head: 2,
            body: 3,
            passages: u32::try_from(record.passages.len()).unwrap(),
            is_manual: false,
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
            nothing: Vec::new(),
            table: rows.collect(),
            hints: encoded(&crate::hints::Hints::default()),
            terms: terms.into_iter().map(|term| vec![term]).collect(),
            levels,
            documents: vec![documents],
            vectors,
        }
        .signed()
    }

    impl Contents {
        /// The same contents with a valid fingerprint.
        fn signed(mut self) -> Self {
            if let Ok(index) = read(&Arc::new(Source::Memory(self.to_bytes()))) {
                self.fingerprint = index.fingerprint_of_documents().unwrap();
            }
            self
        }
    }

    fn term(text: &str, heads: &[(u32, u32)], passages: &[(u32, u32)]) -> Term {
        Term { text: text.to_owned(), heads: heads.to_vec(), passages: passages.to_vec() }
    }

    /// A crafted file can have valid checksums and postings that differ from its text.
    #[test]
    fn removing_a_document_removes_crafted_postings_too() {
        let documents =
            vec![record("fox", "red fox"), record("hen", "a hen"), record("cod", "fish")];
        // A word of no text, and a word of the first text in postings of the others only.
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
    fn a_written_file_is_read_back_equal() {
        let index = sample();
        let bytes = small_blocks(&index);
        let read = Index::from_bytes(&bytes).unwrap();
        assert_eq!(read.fingerprint().unwrap(), index.fingerprint().unwrap());
        assert_eq!((read.embedder(), read.dimension(), read.len()), ("test", 2, 4));
        assert_eq!(read.get("owl").unwrap(), index.get("owl").unwrap());
        assert_eq!(read.vector("dog").unwrap(), index.vector("dog").unwrap());
        assert_eq!(small_blocks(&read), bytes);
        let terms = ["red".to_owned(), "dog".to_owned()];
        let (before, after) = (index.bm25.matches(&terms, 0.5), read.bm25.matches(&terms, 0.5));
        // The file has no slot for the removed document; all other scores are equal to the bit.
        assert_eq!(before.get(1..), after.get(..));
    }

    /// BLAKE3 checksum of the file of [`sample`] in small blocks.
    const GOLDEN: &str = "fe7af9d89d502c203e7f35ed73acd093dc584b3542864131a1fee40efabbf1ac";

    /// All numbers are little-endian, so a big-endian or 32-bit machine writes and reads this file.
    #[test]
    fn a_file_has_the_same_bytes_on_every_machine() {
        let bytes = small_blocks(&sample());
        assert_eq!(bytes[..8], *b"\x89CGX\r\n\x1a\n");
        assert_eq!(bytes[8..12], VERSION.to_le_bytes());
        assert_eq!(bytes[12..20], [184, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(blake3::hash(&bytes).to_hex().as_str(), GOLDEN);
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_refused() {
        let bytes = small_blocks(&sample());
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
    fn a_later_version_is_refused_with_its_number() {
        let mut bytes = sample().to_bytes().unwrap();
        bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        let error = Index::from_bytes(&bytes).unwrap_err();
        assert_eq!(error.code(), "index_version");
        assert!(error.to_string().contains(&format!("version {}", VERSION + 1)));
    }

    type Change<'a> = &'a dyn Fn(&mut Contents);

    #[test]
    fn contradictory_contents_with_valid_checksums_are_refused() {
        let sound = contents(
            vec![record("a", "text"), long("b", "one", "two")],
            2,
            vec![term("same", &[(1, 1)], &[]), term("text", &[(0, 1), (1, 1)], &[(1, 1)])],
        );
        assert!(Index::from_bytes(&sound.to_bytes()).is_ok());
        let changes: &[(&str, Change<'_>)] = &[
            ("language", &|file| file.language = "klingon".to_owned()),
            ("fingerprint", &|file| file.fingerprint.push('0')),
            ("same id", &|file| {
                file.table[1].id = "a".to_owned();
                file.documents[0][1].id = "a".to_owned();
            }),
            ("another id", &|file| file.table[1].id = "c".to_owned()),
            ("more rows", &|file| file.table.push(file.table[0].clone())),
            ("fewer rows", &|file| file.table.truncate(1)),
            ("other passages", &|file| file.table[1].passages = 1),
            ("passages without end", &|file| file.table[1].passages = u32::MAX),
            ("dimension", &|file| file.dimension = 3),
            ("no dimension", &|file| file.dimension = 0),
            ("huge dimension", &|file| file.dimension = u32::MAX),
            ("missing vector", &|file| file.vectors[0].truncate(8)),
            ("missing levels", &|file| file.levels[0].truncate(8)),
            ("an extra level", &|file| file.levels[0].push(0)),
            ("a missing block", &|file| {
                file.levels.clear();
                file.vectors.clear();
            }),
            ("a passage outside of its body", &|file| file.documents[0][1].passages[1].end = 8),
            ("passages that overlap", &|file| {
                file.documents[0][1].passages[1] = Span { start: 2, end: 7 };
            }),
            ("infinite vector", &|file| {
                file.vectors[0][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
            }),
            ("zero vector", &|file| file.vectors[0].fill(0)),
            ("unknown passage", &|file| file.terms[1][0].passages[0].0 = 2),
            ("unknown document", &|file| file.terms[1][0].heads[1].0 = 2),
            ("document twice", &|file| file.terms[1][0].heads[1].0 = 0),
            ("overflowing document", &|file| file.terms[1][0].passages.push((u32::MAX, 1))),
            ("count of zero", &|file| file.terms[1][0].passages[0].1 = 0),
            ("term without documents", &|file| file.terms[0][0].heads.clear()),
            ("term twice", &|file| file.terms.push(file.terms[1].clone())),
            ("term twice in a block", &|file| {
                let again = file.terms[1][0].clone();
                file.terms[1].push(again);
            }),
            ("terms in disorder", &|file| file.terms.swap(0, 1)),
            ("a term of the next block", &|file| {
                let next = file.terms[1][0].clone();
                file.terms[0].push(next);
            }),
            ("a block without terms", &|file| file.terms[0].clear()),
        ];
        for (name, change) in changes {
            let mut contents = sound.clone();
            change(&mut contents);
            let error = Index::from_bytes(&contents.to_bytes()).err();
            assert_eq!(error.map(|error| error.code()), Some("index_corrupt"), "{name}");
        }
    }

    /// The agent hook opens a large file for one prompt and reads few of its blocks.
    #[test]
    fn a_search_reads_only_the_blocks_that_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skills.cgx");
        let bytes = small_blocks(&sample());
        let sound = Index::from_bytes(&bytes).unwrap();
        let search = |index: &Index, query: &str| {
            let blend = crate::stage1::Blend::default();
            let options =
                crate::index::SearchOptions { blend, per_channel: 2, ..Default::default() };
            let found = index.search(query, None, &options)?;
            Ok::<_, Error>(found.into_iter().map(|(scored, _)| scored).collect::<Vec<_>>())
        };
        let mut unread = 0;
        for place in HEADER..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            // The result is that of the sound file, or an error that names file and block.
            let Ok(index) = Index::open(&path) else { continue };
            match search(&index, "red fish") {
                Ok(found) => {
                    assert_eq!(found, search(&sound, "red fish").unwrap());
                    unread += 1;
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
        assert!(unread > 50, "{unread} of {} bytes were not read", bytes.len());
    }

    #[test]
    fn an_open_index_survives_replacement_and_reports_truncation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skills.cgx");
        sample().save(&path).unwrap();
        let before = Index::open(&path).unwrap();
        index(&[("new", "new", [1.0, 0.0])]).save(&path).unwrap();
        assert_eq!(before.to_bytes().unwrap(), sample().to_bytes().unwrap());
        assert_eq!(Index::open(&path).unwrap().ids().collect::<Vec<_>>(), ["new"]);
        let shortened = Index::open(&path).unwrap();
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(shortened.get("new").unwrap_err().code(), "index_truncated");
    }

    #[test]
    fn a_name_without_a_folder_is_in_the_working_folder() {
        assert_eq!(folder_of(Path::new("skills.cgx")), Path::new("."));
        assert_eq!(folder_of(Path::new("a/b/skills.cgx")), Path::new("a/b"));
        assert_eq!(folder_of(Path::new("/skills.cgx")), Path::new("/"));
    }

    #[test]
    fn the_size_of_a_record_is_that_of_its_texts() {
        let list = |of: &str| vec![of.to_owned(), of.to_owned()];
        let record = Record {
            id: "1".to_owned(),
            title: "12".to_owned(),
            body: "1234".to_owned(),
            metadata: "{123456}".to_owned(),
            triggers: list(&"t".repeat(8)),
            examples: list(&"e".repeat(32)),
            counterexamples: list(&"c".repeat(64)),
            ..record("", &"d".repeat(16))
        };
        assert_eq!(size_of(&record), 1 + 2 + 16 + 4 + 8 + 2 * (8 + 32 + 64));
    }

    #[test]
    fn documents_are_stored_in_blocks_of_32_kib() {
        let text = "word ".repeat(200);
        let ids: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
        let documents: Vec<_> = ids.iter().map(|id| (&**id, &*text, [1.0, 0.0])).collect();
        let bytes = index(&documents).to_bytes().unwrap();
        let (directory, _) = postcard::take_from_bytes::<Directory>(&bytes[HEADER..]).unwrap();
        let counts: Vec<u32> = directory.documents.iter().map(|(count, _)| *count).collect();
        assert_eq!(counts, [33, 33, 33, 1]);
    }

    #[test]
    fn a_resealed_file_is_the_sound_file_again() {
        let bytes = small_blocks(&sample());
        assert_eq!(Index::resealed(&bytes), bytes);
        let length = usize::try_from(u64::from_le_bytes(bytes_at(&bytes, 12).unwrap())).unwrap();
        let mut damaged = bytes.clone();
        damaged[20..HEADER].fill(0);
        assert_eq!(Index::resealed(&damaged), bytes);
        // Another byte in the last block, a vector of 32 bits, is another file.
        *damaged.last_mut().unwrap() ^= 1;
        assert!(length < damaged.len());
        assert_ne!(Index::resealed(&damaged), bytes);
        assert!(read(&Arc::new(Source::Memory(Index::resealed(&damaged)))).is_ok());
    }

    /// What the directory and the table contradict is refused before any other block is read.
    #[test]
    fn contradictions_of_the_table_are_refused_without_other_blocks() {
        let opened = |file: &Contents| read(&Arc::new(Source::Memory(file.to_bytes())));
        let none = |dimension| contents(Vec::new(), u32::try_from(dimension).unwrap(), Vec::new());
        assert!(opened(&none(MAX_DIMENSION)).is_ok());
        assert!(opened(&none(MAX_DIMENSION + 1)).is_err());

        let sound = contents(vec![record("a", "text"), record("b", "words")], 2, Vec::new());
        assert!(opened(&sound).is_ok());
        let changes: [Change<'_>; 4] = [
            &|file| file.dimension = 0,
            &|file| file.vectors.clear(),
            &|file| file.levels.clear(),
            &|file| file.documents.clear(),
        ];
        for change in changes {
            let mut file = sound.clone();
            change(&mut file);
            assert_eq!(opened(&file).unwrap_err().code(), "index_corrupt");
        }

        // Every passage takes a byte, so there are at most as many as the file has bytes.
        let with = |passages| {
            let mut file = sound.clone();
            file.table[1].passages = passages;
            file
        };
        let length = u32::try_from(with(1_000).to_bytes().len()).unwrap();
        assert_eq!(with(length).to_bytes().len(), length as usize);
        assert!(opened(&with(length)).is_ok());
        assert!(opened(&with(length + 1)).is_err());
        assert!(opened(&with(10 * length)).is_err());
    }

    /// A network file system can return old pages of a file that was written in place.
    #[test]
    fn pages_of_two_versions_give_one_version_or_an_error() {
        let mut newer = sample();
        newer.upsert(vec![(record("cod", "blue fish"), Some(vec![1.0, 0.5]))]).unwrap();
        let (before, after) = (small_blocks(&sample()), small_blocks(&newer));
        let versions = [sample(), newer].map(|index| index.fingerprint().unwrap());
        for page in [1, 16, 64, 512] {
            for cut in (0..before.len().max(after.len())).step_by(page) {
                let torn = |head: &[u8], tail: &[u8]| {
                    let head = &head[..cut.min(head.len())];
                    [head, tail.get(cut..).unwrap_or_default()].concat()
                };
                for bytes in [torn(&before, &after), torn(&after, &before)] {
                    match Index::from_bytes(&bytes) {
                        Ok(index) => assert!(versions.contains(&index.fingerprint().unwrap())),
                        Err(error) => assert!(
                            ["index_corrupt", "index_truncated"].contains(&error.code()),
                            "{error}"
                        ),
                    }
                }
            }
        }
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skills.cgx");
        let error = Index::open(&path).unwrap_err();
        assert_eq!(error.code(), "index_missing");
        std::fs::write(&path, "not an index").unwrap();
        let error = Index::open(&path).unwrap_err();
        assert_eq!(error.code(), "not_an_index");
        let message = error.to_string();
        assert!(message.ends_with("skills.cgx: the file is not a crossgate index"), "{message}");
        assert_eq!(Index::open(folder.path()).unwrap_err().code(), "index_unreadable");
        let nowhere = folder.path().join("missing").join("skills.cgx");
        assert_eq!(sample().save(&nowhere).unwrap_err().code(), "index_unwritable");
    }

    #[test]
    fn saving_replaces_the_file_and_leaves_no_temporary_file() {
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
        fn any_bytes_with_a_valid_checksum_are_read_or_refused(
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = Index::from_bytes(&Index::resealed(&body));
        }

        #[test]
        fn a_changed_file_with_valid_checksums_is_refused_or_works(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = small_blocks(&sample());
            for (place, value) in changes {
                let place = HEADER + place.index(bytes.len() - HEADER);
                bytes[place] = value;
            }
            let Ok(mut index) = Index::from_bytes(&Index::resealed(&bytes)) else { return Ok(()) };
            let blend = crate::stage1::Blend::default();
            let options =
                crate::index::SearchOptions { blend, per_channel: 5, ..Default::default() };
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
