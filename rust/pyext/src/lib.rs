//! Python bindings: convert arguments, call the core without the interpreter's lock, convert results.

mod decide;
mod embedder;
mod fusion;
mod history;
mod index;

/// The compiled core of crossgate, which the package wraps.
#[pyo3::pymodule(gil_used = false)]
mod _core {
    use pyo3::exceptions::PyImportError;
    use pyo3::ffi;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::decide::{
        analyze, can_stop, combine, conclude, evidence, fit_shortlist, fits, form_of, gated,
        history_weights, information, is_courtesy, is_description, language, log_mean,
        names_something, need_log_odds, needs_document_in_session_of, needs_document_of,
        queries_needed, read_signals, read_trace, reblend, replay, split, standing,
        strip_exclusions, technology_names, trace, usefulness_weights_of, with_coverage,
        with_external_scores,
    };
    #[pymodule_export]
    use crate::embedder::{Embedder, WordPieces, blake3_of, sha256_of};
    #[pymodule_export]
    use crate::fusion::{
        diversify_vectors, diversify_words, fuse_ranks, fuse_scores, near_duplicates,
    };
    #[pymodule_export]
    use crate::history::history_features;
    #[pymodule_export]
    use crate::index::Index;
    #[pymodule_export]
    use crossgate_core::{
        cliff::Cliff,
        conclude::{Decision, Pair, Place},
        evidence::{Evidence, EvidenceWeights},
        gate::{Gated, Note, Request},
        policy::{Floors, Lexical, Policy, Warnings},
        profile::{
            Answer, AnyFits, Anytime, Combine, Profile, Promise, Relevance, RunnerUpRule,
            Shortlist, Stage1AnyFits, Stage1Relevance, Stage2AnyFits, Stage2Relevance, Winner,
        },
        request::{Material, Split},
        signals::{Signals, Stage2Signals},
        stage1::{Blend, Coverage, Scored, Span},
    };

    /// The processors of the process, by affinity and by the CPU quota of its control group.
    #[pyfunction]
    fn available_processors() -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }

    /// Refuses a subinterpreter: the process aborts if one ends while a thread of it still runs,
    /// and the models have such threads.
    #[pymodule_init]
    #[allow(unsafe_code, reason = "no safe function returns the interpreter's number")]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // SAFETY: The module is being loaded, so this thread is attached to an interpreter.
        let interpreter = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
        if interpreter == 0 {
            return Ok(());
        }
        Err(PyImportError::new_err(format!(
            "{} runs in the main interpreter of a process only, and this is a subinterpreter",
            module.name()?
        )))
    }

    #[pymodule_export]
    const MOST_CANDIDATES: usize = crossgate_core::profile::MOST_CANDIDATES;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python expects")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
