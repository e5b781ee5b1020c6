//! The decision as Python functions: gate, conclude, and both again from a trace.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crossgate_core::conclude::{self as core, Decision, Pair};
use crossgate_core::exclusions;
use crossgate_core::gate::{self, Gated, Request};
use crossgate_core::need;
use crossgate_core::policy::Policy;
use crossgate_core::profile::Profile;
use crossgate_core::signals::{self, Reading, Signals};
use crossgate_core::stage1::{self, Blend, Scored};
use crossgate_core::text::Analyzer;
use crossgate_core::trace::Trace;
use pyo3::prelude::*;

use crate::index::numbers;

/// The terms of a text, as index and query have them.
#[pyfunction]
pub(crate) fn analyze(py: Python<'_>, text: &str, language: &str) -> PyResult<Vec<String>> {
    let analyzer = Analyzer::new(language)?;
    Ok(py.detach(|| analyzer.terms(text)))
}

/// A description without the sentences and clauses that say what it is not for.
#[pyfunction]
pub(crate) fn announced(text: &str) -> Cow<'_, str> {
    exclusions::announced(text)
}

/// How probable it is that a query asks for anything that a document could serve.
#[pyfunction(name = "need")]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn need_of(
    vector: &Bound<'_, PyAny>,
    intercept: f64,
    weights: Vec<f64>,
) -> PyResult<f64> {
    Ok(need::need(&numbers(vector)?, intercept, &weights)?)
}

/// Whether stage 1 has a winner, nothing relevant, or a question for stage 2.
#[pyfunction(name = "gate")]
pub(crate) fn gated(
    scored: Vec<Scored>,
    profile: &Profile,
    policy: &Policy,
    request: &Request,
) -> PyResult<Gated> {
    Ok(gate::gate(scored, profile, policy, request)?)
}

/// Whether the numbers of a profile hold for the scores of a reranker of this identity.
#[pyfunction]
pub(crate) fn fits(profile: &Profile, reranker: Option<&str>) -> bool {
    profile.fits(reranker)
}

/// Orders and selects the candidates.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn conclude(
    gated: &Gated,
    pairs: Vec<Pair>,
    reranker: Option<&str>,
    profile: &Profile,
    policy: &Policy,
) -> PyResult<Decision> {
    Ok(core::conclude(gated, &pairs, reranker, profile, policy)?)
}

/// The trace of a decision, as JSON.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn trace(
    profile: &Profile,
    policy: &Policy,
    request: &Request,
    gated: &Gated,
    reranker: Option<&str>,
    pairs: Vec<Pair>,
    decision: &Decision,
) -> PyResult<String> {
    let trace = Trace::new(profile, policy, request, gated, reranker, &pairs, decision);
    serde_json::to_string(&trace)
        .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
}

/// The gate's answer and the decision that follow from a trace.
#[pyfunction]
pub(crate) fn replay(text: &str) -> PyResult<(Gated, Decision)> {
    Ok(Trace::read(text)?.replay()?)
}

/// Profile, candidates, reranker and its pairs.
type Inputs = (Profile, Vec<Scored>, Option<String>, Vec<Pair>);

/// What went into the decision of a trace: profile, candidates, reranker, pairs.
#[pyfunction]
pub(crate) fn read_trace(text: &str) -> PyResult<Inputs> {
    let Trace { profile, stage1, reranker, stage2, .. } = Trace::read(text)?;
    Ok((profile, stage1, reranker, stage2))
}

/// Lets what another retriever knows stand in for what an index would.
#[pyfunction]
#[pyo3(signature = (candidates, *, cosines, scores, keep, blend))]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn known_elsewhere(
    candidates: Vec<Scored>,
    cosines: BTreeMap<String, f64>,
    scores: BTreeMap<String, f64>,
    keep: bool,
    blend: &Blend,
) -> Vec<Scored> {
    stage1::known_elsewhere(candidates, &cosines, &scores, keep, blend)
}

/// The candidates blended anew, best first; one without a cosine keeps its BM25 alone. Where another
/// BM25 score is given for a candidate, it takes the place of its own.
#[pyfunction]
#[pyo3(signature = (scored, blend, bm25=None))]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over an owned map")]
pub(crate) fn reblend(
    mut scored: Vec<Scored>,
    blend: &Blend,
    bm25: Option<BTreeMap<String, f64>>,
) -> Vec<Scored> {
    for one in &mut scored {
        let given = bm25.as_ref().and_then(|scores| scores.get(&one.id));
        one.bm25 = given.copied().unwrap_or(one.bm25);
        one.blend = blend.score(one.cosine, one.bm25);
    }
    stage1::sort(&mut scored);
    scored
}

/// What the gate looks at, or none without candidates.
#[pyfunction(name = "signals")]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn read_signals(scored: Vec<Scored>) -> PyResult<Option<Signals>> {
    Ok(signals::signals(&scored)?)
}

/// Combined scores and ranks of candidates that a reranker read, and what they add to the signals.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands over owned lists")]
pub(crate) fn combine(
    candidates: Vec<Scored>,
    rerank_scores: Vec<f64>,
    profile: &Profile,
) -> PyResult<(Vec<f64>, Vec<usize>, Option<Reading>)> {
    let read: Vec<&Scored> = candidates.iter().collect();
    let scores = core::combine(&read, &rerank_scores, &profile.blend, profile.combine)?;
    let ranks = core::ranks(&read, &scores);
    let reading = signals::reading(&read, &rerank_scores, &scores);
    Ok((scores, ranks, reading))
}
