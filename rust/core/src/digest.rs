//! Digests of model files and of prompts.

use std::io::Result;
use std::path::Path;
use std::thread::available_parallelism;

use rayon::ThreadPoolBuilder;

/// Threads that read a file. More gain nothing below 100 MB.
const THREADS: usize = 4;

/// The BLAKE3 digest of a file, in hex. It delays the first decision of a process; SHA-256 takes
/// two to eight times as long.
pub fn blake3_of(path: &Path) -> Result<String> {
    let threads = available_parallelism().map_or(1, |count| count.get().min(THREADS));
    let mut hasher = blake3::Hasher::new();
    // Rayon's own pool would not survive a fork.
    match ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => pool.install(|| hasher.update_mmap_rayon(path).map(drop))?,
        // The process may not start more threads.
        Err(_) => drop(hasher.update_mmap(path)?),
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// The SHA-256 digest of bytes, in hex. Python's `hashlib` loads OpenSSL, which takes 4 MiB and,
/// at the start of a process, 2 to 5 ms.
pub fn sha256_of(bytes: &[u8]) -> String {
    hmac_sha256::Hash::hash(bytes).map(|byte| format!("{byte:02x}")).concat()
}
