//! The steps of the cascade as Python functions, and the values that pass between them.

use crossgate_core::cliff::TightenOptions;
use crossgate_core::gate::{Answer, Thresholds};
use crossgate_core::stage1::Blend;
use crossgate_core::stage2::{Combine, Guardrails};
use crossgate_core::text::Analyzer;
use crossgate_core::{cliff, confidence as model, gate, stage1, stage2};
use pyo3::prelude::*;

use crate::errors::to_python;

/// The fields of `crossgate._profile.Blend`.
#[derive(FromPyObject)]
pub(crate) struct BlendOptions {
    cosine_weight: f64,
    bm25_weight: f64,
    bm25_half: f64,
}

impl From<BlendOptions> for Blend {
    fn from(options: BlendOptions) -> Self {
        let BlendOptions { cosine_weight, bm25_weight, bm25_half } = options;
        Self { cosine_weight, bm25_weight, bm25_half }
    }
}

/// The fields of `crossgate._profile.Gate`.
#[derive(FromPyObject)]
pub(crate) struct GateOptions {
    require_overlap: bool,
    relevance_cosine: Option<f64>,
    relevance_bm25: Option<f64>,
    confident_cosine: Option<f64>,
    confident_gap: f64,
    lexical_score: Option<f64>,
    lexical_gap: f64,
    agreed_margin: Option<f64>,
    disagreed_margin: Option<f64>,
}

/// The fields of `crossgate._profile.Confidence`.
#[derive(FromPyObject)]
pub(crate) struct ConfidenceOptions {
    intercept: f64,
    cosine: f64,
    bm25: f64,
    blend_margin: f64,
    agreement: f64,
    logit: f64,
    score_margin: f64,
    same_first: f64,
}

impl From<ConfidenceOptions> for model::Confidence {
    fn from(options: ConfidenceOptions) -> Self {
        Self {
            intercept: options.intercept,
            cosine: options.cosine,
            bm25: options.bm25,
            blend_margin: options.blend_margin,
            agreement: options.agreement,
            logit: options.logit,
            score_margin: options.score_margin,
            same_first: options.same_first,
        }
    }
}

/// The fields of `crossgate._profile.Answer` that the gate looks at.
#[derive(FromPyObject)]
pub(crate) struct AnswerOptions {
    stage1: Option<ConfidenceOptions>,
    floor: Option<f64>,
    least: Option<f64>,
}

/// The fields of `crossgate._profile.Combine`.
#[derive(FromPyObject)]
pub(crate) struct CombineOptions {
    mode: String,
    k: f64,
    cosine: f64,
    bm25: f64,
    logit: f64,
}

/// The fields of `crossgate._profile.Guardrails`.
#[derive(FromPyObject)]
pub(crate) struct GuardrailOptions {
    minimum: Option<f64>,
    margin: Option<f64>,
    agreement: Option<f64>,
}

/// One candidate with its stage-1 scores.
#[pyclass(frozen, module = "crossgate._core")]
#[derive(Clone)]
pub(crate) struct Scored(pub(crate) stage1::Scored);

#[pymethods]
impl Scored {
    #[new]
    #[pyo3(signature = (id, *, cosine, bm25, overlap, blend))]
    fn new(id: String, cosine: Option<f64>, bm25: f64, overlap: u32, blend: f64) -> Self {
        Self(stage1::Scored { id, cosine, bm25, overlap, blend })
    }

    /// The same candidate with a cosine, and the blend of both.
    fn with_cosine(&self, cosine: f64, blend: BlendOptions) -> Self {
        let Self(one) = self;
        Self(stage1::Scored::new(
            one.id.clone(),
            Some(cosine),
            one.bm25,
            one.overlap,
            &blend.into(),
        ))
    }

    #[getter]
    fn id(&self) -> &str {
        &self.0.id
    }

    #[getter]
    fn cosine(&self) -> Option<f64> {
        self.0.cosine
    }

    #[getter]
    fn bm25(&self) -> f64 {
        self.0.bm25
    }

    #[getter]
    fn overlap(&self) -> u32 {
        self.0.overlap
    }

    #[getter]
    fn blend(&self) -> f64 {
        self.0.blend
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// What the gate looked at.
#[pyclass(frozen, get_all, module = "crossgate._core")]
#[derive(Clone)]
pub(crate) struct Signals {
    cosine: Option<f64>,
    cosine_gap: f64,
    bm25: f64,
    bm25_gap: f64,
    overlap: u32,
    blend: f64,
    blend_margin: f64,
    agreement: bool,
}

/// The gate's verdict, its reason and what it looked at.
#[pyclass(frozen, get_all, module = "crossgate._core")]
#[derive(Clone)]
pub(crate) struct Decision {
    verdict: &'static str,
    reason: &'static str,
    signals: Option<Signals>,
    confidence: Option<f64>,
}

/// What stage 2 adds to the signals of the gate.
#[pyclass(frozen, get_all, module = "crossgate._core")]
#[derive(Clone)]
pub(crate) struct Reading {
    logit: f64,
    score_margin: f64,
    same_first: bool,
}

/// The outcome of `tighten`.
#[pyclass(frozen, get_all, module = "crossgate._core")]
#[derive(Clone)]
pub(crate) struct Tightened {
    cut: Vec<usize>,
    effective_floor: Option<f64>,
    cliff_position: Option<usize>,
    skip_reason: Option<&'static str>,
}

/// The terms of a text, as index and query have them.
#[pyfunction]
pub(crate) fn analyze(py: Python<'_>, text: &str, language: &str) -> PyResult<Vec<String>> {
    let analyzer = Analyzer::new(language).map_err(|error| to_python(py, &error))?;
    Ok(py.detach(|| analyzer.terms(text)))
}

/// Whether stage 1 has a clear winner, nothing relevant, or a question for stage 2.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn decide(
    py: Python<'_>,
    candidates: Vec<PyRef<'_, Scored>>,
    thresholds: GateOptions,
    answer: AnswerOptions,
) -> PyResult<Decision> {
    let AnswerOptions { stage1, floor, least } = answer;
    let answer = Answer { stage1: stage1.map(Into::into), floor, least };
    let thresholds = Thresholds {
        require_overlap: thresholds.require_overlap,
        relevance_cosine: thresholds.relevance_cosine,
        relevance_bm25: thresholds.relevance_bm25,
        confident_cosine: thresholds.confident_cosine,
        confident_gap: thresholds.confident_gap,
        lexical_score: thresholds.lexical_score,
        lexical_gap: thresholds.lexical_gap,
        agreed_margin: thresholds.agreed_margin,
        disagreed_margin: thresholds.disagreed_margin,
    };
    let decision = gate::decide(&inner(&candidates), &thresholds, &answer)
        .map_err(|error| to_python(py, &error))?;
    Ok(Decision {
        verdict: decision.verdict.code(),
        reason: decision.reason.code(),
        signals: decision.signals.map(|signals| Signals {
            cosine: signals.cosine,
            cosine_gap: signals.cosine_gap,
            bm25: signals.bm25,
            bm25_gap: signals.bm25_gap,
            overlap: signals.overlap,
            blend: signals.blend,
            blend_margin: signals.blend_margin,
            agreement: signals.agreement,
        }),
        confidence: decision.confidence,
    })
}

/// What stage 2 adds to the signals of the gate, or none without candidates.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn reading(
    candidates: Vec<PyRef<'_, Scored>>,
    logits: Vec<f64>,
    scores: Vec<f64>,
) -> Option<Reading> {
    model::reading(&inner(&candidates), &logits, &scores).map(
        |model::Reading { logit, score_margin, same_first }| Reading {
            logit,
            score_margin,
            same_first,
        },
    )
}

/// How probable it is that the first pick fits, or none where there is no cosine.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over the values that it holds")]
pub(crate) fn confidence(
    weights: ConfidenceOptions,
    signals: PyRef<'_, Signals>,
    reading: PyRef<'_, Reading>,
) -> Option<f64> {
    let signals = gate::Signals {
        cosine: signals.cosine,
        cosine_gap: signals.cosine_gap,
        bm25: signals.bm25,
        bm25_gap: signals.bm25_gap,
        overlap: signals.overlap,
        blend: signals.blend,
        blend_margin: signals.blend_margin,
        agreement: signals.agreement,
    };
    let reading = model::Reading {
        logit: reading.logit,
        score_margin: reading.score_margin,
        same_first: reading.same_first,
    };
    model::Confidence::from(weights).probability(&signals, Some(&reading))
}

/// Index of the first score below the first cliff at or past the core.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn find_cliff(scores: Vec<f64>, core: usize) -> Option<usize> {
    cliff::find_cliff(&scores, core)
}

/// Cuts the tail of a pool below a cliff.
#[pyfunction]
#[pyo3(signature = (scores, sources, *, core, pool, static_floor=None, grade=None, reranker_available=true))]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub(crate) fn tighten(
    py: Python<'_>,
    scores: Vec<f64>,
    sources: Vec<Option<String>>,
    core: usize,
    pool: usize,
    static_floor: Option<f64>,
    grade: Option<char>,
    reranker_available: bool,
) -> PyResult<Tightened> {
    let sources: Vec<Option<&str>> = sources.iter().map(Option::as_deref).collect();
    let options = TightenOptions { core, pool, static_floor, grade, reranker_available };
    let outcome =
        cliff::tighten(&scores, &sources, &options).map_err(|error| to_python(py, &error))?;
    Ok(Tightened {
        cut: outcome.cut,
        effective_floor: outcome.effective_floor,
        cliff_position: outcome.cliff_position,
        skip_reason: outcome.skip_reason.map(cliff::SkipReason::code),
    })
}

/// One score per candidate from its logit and its stage-1 scores.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn combine(
    py: Python<'_>,
    candidates: Vec<PyRef<'_, Scored>>,
    logits: Vec<f64>,
    blend: BlendOptions,
    options: CombineOptions,
) -> PyResult<Vec<f64>> {
    let CombineOptions { mode, k, cosine, bm25, logit } = options;
    let mode = match mode.as_str() {
        "replace" => Combine::Replace,
        "rrf" => Combine::ReciprocalRank { k },
        _ => Combine::Weighted { cosine, bm25, logit },
    };
    stage2::combine(&inner(&candidates), &logits, &blend.into(), mode)
        .map_err(|error| to_python(py, &error))
}

/// The place of each candidate by a score, from 1; ties go to the smaller id.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn ranks(candidates: Vec<PyRef<'_, Scored>>, scores: Vec<f64>) -> Vec<usize> {
    stage2::ranks(&inner(&candidates), &scores)
}

/// For each (score, stage-1 blend) pair, best first, why it is dropped, or none.
#[pyfunction]
#[pyo3(signature = (ranked, guardrails, *, limit=None))]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn passes(
    ranked: Vec<(f64, f64)>,
    guardrails: GuardrailOptions,
    limit: Option<usize>,
) -> Vec<Option<&'static str>> {
    let GuardrailOptions { minimum, margin, agreement } = guardrails;
    stage2::passes(&ranked, &Guardrails { minimum, margin, agreement, limit })
        .into_iter()
        .map(|dropped| dropped.map(stage2::Dropped::code))
        .collect()
}

fn inner(candidates: &[PyRef<'_, Scored>]) -> Vec<stage1::Scored> {
    candidates.iter().map(|one| one.0.clone()).collect()
}
