//! The digest of model files.

use std::path::Path;

/// The BLAKE3 digest of a file, in hex. SHA-256 would take twice as long, which delays the first
/// decision of a process.
pub fn blake3_of(path: &Path) -> std::io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_mmap(path)?;
    Ok(hasher.finalize().to_hex().to_string())
}
