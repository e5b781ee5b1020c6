//! Parts of an index file, each with a checksum of its own, read when they are first needed.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

pub(crate) const REBUILD: &str = "rebuild it with `crossgate index SOURCE... -o FILE`";

pub(crate) fn corrupt(what: &str) -> Error {
    Error::file("index_corrupt", format!("the index is damaged, {what}"))
}

/// Where the bytes of an index file are.
///
/// A file is read at places, and not mapped: one that another process shortens is then an error and
/// not the end of this process. It stays open, so that a file put in its place changes nothing.
#[derive(Debug)]
pub(crate) enum Source {
    File { file: File, path: PathBuf },
    Memory(Vec<u8>),
}

impl Source {
    pub(crate) fn len(&self) -> Result<u64> {
        match self {
            Self::File { file, .. } => match file.metadata() {
                Ok(found) => Ok(found.len()),
                Err(error) => Err(self.failed(&error)),
            },
            Self::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Some bytes; fails with `index_truncated` or `index_unreadable`.
    pub(crate) fn read(&self, at: u64, length: u64) -> Result<Vec<u8>> {
        let truncated = || Error::file("index_truncated", "the index ends too early");
        let end = at.checked_add(length).filter(|end| self.len().is_ok_and(|all| *end <= all));
        // Nothing is made room for that is not there.
        let (Some(end), Ok(length)) = (end, usize::try_from(length)) else {
            return Err(self.named(truncated()));
        };
        match self {
            Self::Memory(bytes) => {
                let span = usize::try_from(at).ok().zip(usize::try_from(end).ok());
                let found = span.and_then(|(at, end)| bytes.get(at..end));
                found.map(<[u8]>::to_vec).ok_or_else(truncated)
            }
            Self::File { file, .. } => {
                let mut bytes = vec![0; length];
                read_exact_at(file, &mut bytes, at).map_err(|error| match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => self.named(truncated()),
                    _ => self.failed(&error),
                })?;
                Ok(bytes)
            }
        }
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        self.named(Error::file("index_unreadable", format!("the index cannot be read: {error}")))
    }

    /// The error with the name of the file and the way out.
    pub(crate) fn named(&self, error: Error) -> Error {
        match self {
            Self::File { path, .. } => {
                Error::file(error.code(), format!("{}: {error}: {REBUILD}", path.display()))
            }
            Self::Memory(_) => error,
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, at)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes = bytes.get_mut(read..).unwrap_or_default();
        at += read as u64;
    }
    Ok(())
}

/// How long a block is, and its BLAKE3. Blocks follow each other, so that this tells where each is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Extent {
    pub(crate) length: u64,
    checksum: [u8; 32],
}

impl Extent {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { length: bytes.len() as u64, checksum: *blake3::hash(bytes).as_bytes() }
    }
}

/// A part of a file that nobody has read yet.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) source: Arc<Source>,
    pub(crate) at: u64,
    pub(crate) extent: Extent,
    /// What it holds, for errors, and the how many of these it is.
    pub(crate) name: (&'static str, usize),
}

impl Block {
    /// What the block holds; fails where it was altered, or cannot be decoded.
    pub(crate) fn read<T>(&self, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let bytes = self.source.read(self.at, self.extent.length)?;
        let (what, number) = self.name;
        let found = if *blake3::hash(&bytes).as_bytes() == self.extent.checksum {
            decode(&bytes)
        } else {
            Err(corrupt(&format!("the checksum of block {number} of its {what} does not match")))
        };
        found.map_err(|error| self.source.named(error))
    }
}

/// A value that is here, or in a block that is read when it is first asked for.
#[derive(Clone, Debug)]
pub(crate) struct Lazy<T> {
    value: OnceLock<T>,
    block: Option<Block>,
}

impl<T> From<T> for Lazy<T> {
    fn from(value: T) -> Self {
        Self { value: value.into(), block: None }
    }
}

impl<T> Lazy<T> {
    pub(crate) fn later(block: Block) -> Self {
        Self { value: OnceLock::new(), block: Some(block) }
    }

    /// The value; where two threads are first, one of them reads in vain.
    pub(crate) fn get(&self, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<&T> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        match &self.block {
            Some(block) => {
                let value = block.read(decode)?;
                Ok(self.value.get_or_init(|| value))
            }
            None => Err(corrupt("a part of it is nowhere")), // `from` leaves no such value
        }
    }

    /// The value, once it was got.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }
}
