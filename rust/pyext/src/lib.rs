//! Python bindings: take values over, call the core without the interpreter's lock, hand values back.

mod errors;
mod fusion;
mod index;
mod steps;

/// The compiled core of crossgate; its public face is the package around it.
#[pyo3::pymodule]
mod _core {
    #[pymodule_export]
    use crate::fusion::{
        TokenVectors, diversify_vectors, diversify_words, fuse_ranks, fuse_scores,
        max_similarities, near_duplicates,
    };
    #[pymodule_export]
    use crate::index::Index;
    #[pymodule_export]
    use crate::steps::{
        Decision, Reading, Scored, Signals, Tightened, analyze, combine, confidence, decide,
        find_cliff, passes, ranks, reading, tighten,
    };

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python expects")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
