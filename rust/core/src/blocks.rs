//! Blocks of an index file, each with its own checksum, read on first use.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::error::{Damage, Error, FileProblem, Result};

/// The bytes of an index file.
///
/// A file is read and not mapped into memory: if another process shortens it, a read fails, while
/// an access to a mapping would end this process. The file stays open, so an index that replaces it
/// on disk changes nothing here.
#[derive(Debug)]
pub(crate) enum Source {
    File { file: File, path: PathBuf },
    Memory(Vec<u8>),
}

impl Source {
    /// Number of bytes; fails with `index_unreadable`.
    pub(crate) fn len(&self) -> Result<u64> {
        match self {
            Self::File { file, .. } => {
                file.metadata().map(|file| file.len()).map_err(|error| self.unreadable(&error))
            }
            Self::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Reads `length` bytes from `start`; fails with `index_truncated` or `index_unreadable`.
    pub(crate) fn read(&self, start: u64, length: u64) -> Result<Vec<u8>> {
        let truncated = || self.locate(Error::file(FileProblem::Truncated));
        let end = start.checked_add(length).ok_or_else(truncated)?;
        // Checked before memory for the bytes is reserved: the length may be of a damaged file.
        if end > self.len()? {
            return Err(truncated());
        }
        let length = usize::try_from(length).map_err(|_| truncated())?;
        match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(start).map_err(|_| truncated())?;
                bytes.get(start..start + length).map(<[u8]>::to_vec).ok_or_else(truncated)
            }
            Self::File { file, .. } => {
                let mut bytes = vec![0; length];
                read_exact_at(file, &mut bytes, start).map_err(|error| match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => truncated(),
                    _ => self.unreadable(&error),
                })?;
                Ok(bytes)
            }
        }
    }

    fn unreadable(&self, error: &std::io::Error) -> Error {
        self.locate(Error::file(FileProblem::Unreadable(error.to_string())))
    }

    /// The error with the path of the file.
    pub(crate) fn locate(&self, error: Error) -> Error {
        match self {
            Self::File { path, .. } => error.at(path),
            Self::Memory(_) => error,
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], start: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, start)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut start: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, start)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes = bytes.get_mut(read..).expect("a read returns at most the bytes that it was given");
        start += read as u64;
    }
    Ok(())
}

/// Length and BLAKE3 checksum of a block. Blocks follow each other, so lengths give positions too.
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

/// A block of a file that may not have been read yet.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) source: Arc<Source>,
    pub(crate) start: u64,
    pub(crate) extent: Extent,
    /// The part of the file that it belongs to, for messages.
    pub(crate) part: &'static str,
    /// Number of the block within its part, from 0.
    pub(crate) number: usize,
}

impl Block {
    /// Reads and decodes the block; fails with `index_corrupt` if its checksum does not match.
    pub(crate) fn read<T>(&self, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let bytes = self.source.read(self.start, self.extent.length)?;
        let decoded = if *blake3::hash(&bytes).as_bytes() == self.extent.checksum {
            decode(&bytes)
        } else {
            let (part, number) = (self.part, self.number);
            Err(Error::corrupt(Damage::BlockChecksum { part, number }))
        };
        decoded.map_err(|error| self.source.locate(error))
    }
}

/// A value in memory, or in a block that is read on first use.
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
    pub(crate) fn from_block(block: Block) -> Self {
        Self { value: OnceLock::new(), block: Some(block) }
    }

    /// The value. If two threads ask first at the same time, both read and one result is kept.
    pub(crate) fn get(&self, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<&T> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let block = self.block.as_ref().expect("there is a value or a block");
        let value = block.read(decode)?;
        Ok(self.value.get_or_init(|| value))
    }

    /// The value if it was read.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of sysfs have fewer bytes than their size, like files that another machine shortened
    /// on a network file system whose attributes are cached.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_with_fewer_bytes_than_its_size_is_truncated() {
        let path = PathBuf::from("/sys/devices/system/cpu/online");
        let Ok(file) = File::open(&path) else { return };
        let source = Source::File { file, path };
        let length = source.len().unwrap();
        assert!(length > 100, "{length}");
        assert_eq!(source.read(0, 1).unwrap().len(), 1);
        assert_eq!(source.read(0, length).unwrap_err().code(), "index_truncated");
    }

    #[test]
    fn a_range_beyond_the_end_is_truncated_without_memory_for_it() {
        let source = Source::Memory(vec![1, 2, 3]);
        assert_eq!(source.read(1, 2).unwrap(), [2, 3]);
        assert!(source.read(3, 0).unwrap().is_empty());
        for (start, length) in [(0, 4), (3, 1), (4, 0), (1, u64::MAX), (u64::MAX, 1)] {
            assert_eq!(source.read(start, length).unwrap_err().code(), "index_truncated");
        }
    }
}
