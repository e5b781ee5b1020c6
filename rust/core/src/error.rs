//! Errors: kinds with the values that they are about, and one place that writes their messages.
//!
//! Messages give the value, the limit and, where the caller can act, the remedy. They never mention
//! the command line: the Python binding adds that advice.

use std::fmt;
use std::path::{Path, PathBuf};

/// Which exception class of the Python package an error becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A query, document, vector or option that cannot be used.
    Input,
    /// An index file that cannot be opened or written.
    IndexFile,
    /// A model that cannot be used.
    Model,
    /// A profile or a policy that cannot be used.
    Profile,
}

/// An error that the caller can correct: a bad value, file or model.
///
/// # Examples
///
/// ```
/// use crossgate_core::Family;
/// use crossgate_core::text::Analyzer;
///
/// let error = Analyzer::new("klingon").unwrap_err();
/// assert_eq!((error.family(), error.code()), (Family::Input, "out_of_range"));
/// assert!(error.to_string().starts_with("unknown language \"klingon\": use none, "));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Error(Box<Kind>);

/// Result with the core's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// The kinds of errors, with the values that the message shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A number outside of its range.
    OutOfRange {
        name: String,
        value: String,
        limit: String,
    },
    /// A name that is not in a fixed list.
    UnknownName {
        what: &'static str,
        name: String,
        known: Vec<&'static str>,
    },
    /// Two lists that must have one entry for each other.
    LengthMismatch {
        what: &'static str,
        found: usize,
        per: &'static str,
        expected: usize,
    },
    /// Weights of the blend that have no usable sum.
    BlendWeights {
        cosine: f64,
        bm25: f64,
    },
    /// Weights of lists of which none counts, or any is unusable.
    ListWeights(Vec<f64>),
    /// Passages outside of the body, or not in order.
    Passages {
        id: String,
    },
    TooManyDocuments,
    DuplicateId {
        id: String,
    },
    NotFinite {
        name: String,
        value: f64,
    },
    /// A weighted sum that no float can hold.
    SumNotFinite {
        id: String,
        rerank_score: f64,
        sum: f64,
    },
    /// A number of a vector above the largest `f32`.
    FloatOverflow,
    WrongDimension {
        owner: String,
        found: usize,
        expected: usize,
    },
    /// Something else than a flat list of numbers.
    NotAVector(String),
    ZeroVector {
        owner: String,
    },
    /// JSON that does not have the shape of its type.
    Json(String),
    Version {
        found: String,
        supported: &'static str,
    },
    /// A margin for winners on which cosine and BM25 disagree that is below the other margin.
    WinnerMargins {
        agreed: Option<f64>,
        disagreed: f64,
    },
    /// A rerank score of a document that is not a candidate.
    UnknownCandidate {
        id: String,
    },
    /// A profile, policy or trace in which something is wrong.
    Malformed {
        format: Format,
        /// The type within the format, where only a part was read.
        part: Option<&'static str>,
        problem: Box<Kind>,
    },
    IndexFile {
        path: Option<PathBuf>,
        problem: FileProblem,
    },
    ModelUnreadable {
        path: PathBuf,
        cause: String,
    },
    ModelUnsupported(ModelProblem),
}

/// The formats that are written as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Profile,
    Policy,
    Trace,
}

/// The problems of index files.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FileProblem {
    Missing(String),
    CannotOpen(String),
    Unreadable(String),
    Unwritable(String),
    NotAnIndex,
    Version { found: u32, supported: u32 },
    Truncated,
    Corrupt(Damage),
}

/// Where an index file contradicts its checksums or itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Damage {
    DirectoryChecksum,
    DirectoryUnreadable,
    DirectoryTooLong,
    BlocksTooLong,
    TrailingBytes,
    BlockChecksum { part: &'static str, number: usize },
    TableUnreadable,
    TooManyDocuments,
    Language(String),
    Dimension(usize),
    VectorCount,
    VectorLength,
    DocumentsUnreadable,
    DocumentsNotInTable,
    Passages { id: String },
    DuplicateId { id: String },
    Fingerprint,
    Postings,
    HintsUnreadable,
}

/// Why the files of a model cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ModelProblem {
    NotOnnx(String),
    MissingConstant { name: String, count: usize, data_type: i32 },
    WordVectors { count: usize, width: usize, needed: usize, step: usize, widest: usize },
    TooFewPositions { found: usize, needed: usize },
    Tokenizer(String),
    TokenizerSteps,
    MissingToken(&'static str),
}

impl Error {
    /// The family that decides the exception's class.
    pub fn family(&self) -> Family {
        match &*self.0 {
            Kind::Malformed { format: Format::Profile | Format::Policy, .. } => Family::Profile,
            Kind::IndexFile { .. } => Family::IndexFile,
            Kind::ModelUnreadable { .. } | Kind::ModelUnsupported(_) => Family::Model,
            _ => Family::Input,
        }
    }

    /// Identifier for programs; it stays the same between releases.
    pub fn code(&self) -> &'static str {
        match &*self.0 {
            Kind::OutOfRange { .. }
            | Kind::UnknownName { .. }
            | Kind::LengthMismatch { .. }
            | Kind::BlendWeights { .. }
            | Kind::ListWeights(_)
            | Kind::Passages { .. }
            | Kind::TooManyDocuments
            | Kind::Json(_)
            | Kind::Version { .. }
            | Kind::WinnerMargins { .. }
            | Kind::UnknownCandidate { .. } => "out_of_range",
            Kind::DuplicateId { .. } => "duplicate_id",
            Kind::NotFinite { .. } | Kind::SumNotFinite { .. } | Kind::FloatOverflow => {
                "not_finite"
            }
            Kind::WrongDimension { .. } | Kind::NotAVector(_) => "wrong_dimension",
            Kind::ZeroVector { .. } => "zero_vector",
            Kind::Malformed { format: Format::Profile, .. } => "profile_malformed",
            Kind::Malformed { format: Format::Policy, .. } => "policy_malformed",
            Kind::Malformed { format: Format::Trace, .. } => "malformed_trace",
            Kind::IndexFile { problem, .. } => problem.code(),
            Kind::ModelUnreadable { .. } => "model_incomplete",
            Kind::ModelUnsupported(_) => "model_unsupported",
        }
    }

    /// A value that is not a flat list of numbers; `problem` is the message.
    pub fn not_a_vector(problem: String) -> Self {
        Kind::NotAVector(problem).into()
    }

    /// A number of a vector above the largest `f32`.
    pub fn float_overflow() -> Self {
        Kind::FloatOverflow.into()
    }

    /// A number outside of its range; `limit` completes "it must be".
    pub(crate) fn out_of_range(
        name: impl Into<String>,
        value: impl fmt::Display,
        limit: impl Into<String>,
    ) -> Self {
        let (name, value, limit) = (name.into(), value.to_string(), limit.into());
        Kind::OutOfRange { name, value, limit }.into()
    }

    /// A number that is not finite.
    pub(crate) fn not_finite(name: impl Into<String>, value: f64) -> Self {
        Kind::NotFinite { name: name.into(), value }.into()
    }

    /// A damaged index file.
    pub(crate) fn corrupt(damage: Damage) -> Self {
        Self::file(FileProblem::Corrupt(damage))
    }

    /// An index file whose path is not known yet: see [`Error::at`].
    pub(crate) fn file(problem: FileProblem) -> Self {
        Kind::IndexFile { path: None, problem }.into()
    }

    /// The same error of the index file at a path.
    pub(crate) fn at(mut self, path: &Path) -> Self {
        if let Kind::IndexFile { path: place @ None, .. } = &mut *self.0 {
            *place = Some(path.to_owned());
        }
        self
    }

    /// The same error as the reason why a profile, policy or trace is malformed.
    pub(crate) fn within(self, format: Format) -> Self {
        Kind::Malformed { format, part: None, problem: self.0 }.into()
    }

    /// The same error in a part of a profile, policy or trace.
    #[cfg(feature = "python")]
    pub(crate) fn within_part(self, format: Format, part: &'static str) -> Self {
        Kind::Malformed { format, part: Some(part), problem: self.0 }.into()
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self(Box::new(kind))
    }
}

impl From<ModelProblem> for Error {
    fn from(problem: ModelProblem) -> Self {
        Kind::ModelUnsupported(problem).into()
    }
}

impl FileProblem {
    fn code(&self) -> &'static str {
        match self {
            Self::Missing(_) => "index_missing",
            Self::CannotOpen(_) | Self::Unreadable(_) => "index_unreadable",
            Self::Unwritable(_) => "index_unwritable",
            Self::NotAnIndex => "not_an_index",
            Self::Version { .. } => "index_version",
            Self::Truncated => "index_truncated",
            Self::Corrupt(_) => "index_corrupt",
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { name, value, limit } => {
                write!(to, "{name} is {value}: it must be {limit}")
            }
            Self::UnknownName { what, name, known } => {
                write!(to, "unknown {what} {name:?}: use {}", known.join(", "))
            }
            Self::LengthMismatch { what, found, per, expected } => {
                write!(to, "{found} {what} for {expected} {per}: give one for each")
            }
            Self::BlendWeights { cosine, bm25 } => write!(
                to,
                "the weights of the blend are cosine {cosine} and bm25 {bm25}: both must be at \
                 least 0 and their sum above 0 and finite"
            ),
            Self::ListWeights(weights) => write!(
                to,
                "the weights are {weights:?}: each must be from 0 to 1e100, and at least one above 0"
            ),
            Self::Passages { id } => write!(
                to,
                "the passages of document {id:?} must be parts of its body, in order and without \
                 overlap"
            ),
            Self::TooManyDocuments => {
                to.write_str("an index holds at most 4,294,967,295 documents")
            }
            Self::DuplicateId { id } => {
                write!(to, "the id {id:?} occurs twice: ids must be unique")
            }
            Self::NotFinite { name, value } => {
                write!(to, "{name} is {value}: it must be finite")
            }
            Self::SumNotFinite { id, rerank_score, sum } => write!(
                to,
                "the weighted sum of {id:?} with the rerank score {rerank_score:e} is {sum}: it \
                 must be finite, so use smaller weights or scores"
            ),
            Self::FloatOverflow => {
                to.write_str("a vector holds a number that is too large for a 32-bit float")
            }
            Self::WrongDimension { owner, found, expected } => write!(
                to,
                "the vector of {owner} has {found} numbers, not {expected}: use one model for all \
                 vectors"
            ),
            Self::NotAVector(problem) | Self::Json(problem) => to.write_str(problem),
            Self::ZeroVector { owner } => {
                write!(to, "the vector of {owner} is all zeros, which has no direction to compare")
            }
            Self::Version { found, supported } => {
                write!(
                    to,
                    "its version is {found:?}, and this release reads {supported:?}: route the query \
                     again"
                )
            }
            Self::WinnerMargins { agreed, disagreed } => {
                let agreed = agreed.map_or("absent".to_owned(), |agreed| agreed.to_string());
                write!(
                    to,
                    "winner.disagreed is {disagreed} and winner.agreed is {agreed}: a winner on \
                     which cosine and BM25 disagree never needs a smaller margin than one on which \
                     they agree"
                )
            }
            Self::UnknownCandidate { id } => {
                write!(to, "stage2 has a score of {id:?}, which is not in stage1")
            }
            Self::Malformed { part: Some(part), problem, .. } => write!(to, "{part}: {problem}"),
            Self::Malformed { format: Format::Trace, problem, .. } => {
                write!(to, "the trace: {problem}")
            }
            Self::Malformed { problem, .. } => problem.fmt(to),
            Self::IndexFile { path, problem } => fmt_file(path.as_deref(), problem, to),
            Self::ModelUnreadable { path, cause } => {
                write!(to, "cannot read {}: {cause}", path.display())
            }
            Self::ModelUnsupported(problem) => problem.fmt(to),
        }
    }
}

fn fmt_file(
    path: Option<&Path>,
    problem: &FileProblem,
    to: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match (path, problem) {
        (Some(path), FileProblem::Missing(cause) | FileProblem::CannotOpen(cause)) => {
            write!(to, "cannot read the index {}: {cause}", path.display())
        }
        (Some(path), FileProblem::Unwritable(cause)) => {
            write!(to, "cannot write the index {}: {cause}", path.display())
        }
        (Some(path), problem) => write!(to, "{}: {problem}", path.display()),
        (None, problem) => write!(to, "{problem}"),
    }
}

impl fmt::Display for FileProblem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(cause) | Self::CannotOpen(cause) | Self::Unreadable(cause) => {
                write!(to, "the index cannot be read: {cause}")
            }
            Self::Unwritable(cause) => write!(to, "the index cannot be written: {cause}"),
            Self::NotAnIndex => to.write_str("the file is not a crossgate index"),
            Self::Version { found, supported } => {
                write!(to, "the index has format version {found}, this release reads {supported}")
            }
            Self::Truncated => to.write_str("the index ends too early"),
            Self::Corrupt(damage) => write!(to, "the index is damaged: {damage}"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DirectoryChecksum => to.write_str("the checksum of its directory does not match"),
            Self::DirectoryUnreadable => to.write_str("its directory cannot be decoded"),
            Self::DirectoryTooLong => to.write_str("its directory has unused bytes"),
            Self::BlocksTooLong => to.write_str("its blocks are longer than any file"),
            Self::TrailingBytes => to.write_str("it continues after its last block"),
            Self::BlockChecksum { part, number } => {
                write!(to, "the checksum of block {number} of its {part} does not match")
            }
            Self::TableUnreadable => to.write_str("its table of documents cannot be decoded"),
            Self::TooManyDocuments => {
                to.write_str("its table of documents and passages is larger than the file")
            }
            Self::Language(language) => write!(to, "its language {language:?} is unknown"),
            Self::Dimension(dimension) => {
                write!(to, "its vectors have {dimension} numbers, more than any index holds")
            }
            Self::VectorCount => to.write_str("it does not hold one vector per document"),
            Self::VectorLength => to.write_str("a vector is not of length 1"),
            Self::DocumentsUnreadable => to.write_str("its documents cannot be decoded"),
            Self::DocumentsNotInTable => {
                to.write_str("its documents differ from its table of documents")
            }
            Self::Passages { id } => write!(to, "the passages of {id:?} are not in its body"),
            Self::DuplicateId { id } => write!(to, "the id {id:?} occurs twice"),
            Self::Fingerprint => to.write_str("its fingerprint does not match its documents"),
            Self::Postings => to.write_str("its postings contradict each other"),
            Self::HintsUnreadable => to.write_str("its hints cannot be read"),
        }
    }
}

impl fmt::Display for ModelProblem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOnnx(cause) => write!(to, "the model is not an ONNX file: {cause}"),
            Self::MissingConstant { name, count, data_type } => {
                write!(to, "the graph has no constant {name} of {count} values of type {data_type}")
            }
            Self::WordVectors { count, width, needed, step, widest } => write!(
                to,
                "the graph has {count} word vectors of length {width}: it must have at least \
                 {needed}, of a length that is a multiple of {step} up to {widest}"
            ),
            Self::TooFewPositions { found, needed } => {
                write!(to, "the graph reads {found} tokens: it must read at least {needed}")
            }
            Self::Tokenizer(cause) => {
                write!(to, "tokenizer.json does not describe an uncased BERT tokenizer: {cause}")
            }
            Self::TokenizerSteps => to.write_str(
                "tokenizer.json does not describe an uncased BERT tokenizer: it normalises or \
                 splits text in another way",
            ),
            Self::MissingToken(token) => write!(
                to,
                "tokenizer.json does not describe an uncased BERT tokenizer: it has no {token}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_error_takes_the_code_of_its_format() {
        let inner = Error::out_of_range("pool", 0, "from 1 to 9");
        for (format, code, family) in [
            (Format::Profile, "profile_malformed", Family::Profile),
            (Format::Policy, "policy_malformed", Family::Profile),
            (Format::Trace, "malformed_trace", Family::Input),
        ] {
            let error = inner.clone().within(format);
            assert_eq!((error.code(), error.family()), (code, family));
            assert!(error.to_string().ends_with("pool is 0: it must be from 1 to 9"), "{error}");
        }
    }

    #[test]
    fn the_first_path_of_an_index_error_stays() {
        let error = Error::file(FileProblem::Truncated);
        assert_eq!(error.to_string(), "the index ends too early");
        let error = error.at(Path::new("a.cgx")).at(Path::new("b.cgx"));
        assert_eq!(error.to_string(), "a.cgx: the index ends too early");
    }
}
