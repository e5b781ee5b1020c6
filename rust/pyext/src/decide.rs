//! Python functions for decisions: gate, conclude, traces and replays.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crossgate_core::anytime;
use crossgate_core::common_words;
use crossgate_core::conclude::{self as core, Decision, Pair};
use crossgate_core::coverage;
use crossgate_core::description;
use crossgate_core::evidence::{Evidence, EvidenceWeights};
use crossgate_core::exclusions;
use crossgate_core::gate::{self, Gated, Request};
use crossgate_core::history;
use crossgate_core::language as core_language;
use crossgate_core::needs_document;
use crossgate_core::policy::Policy;
use crossgate_core::probability;
use crossgate_core::profile::{Profile, Promise};
use crossgate_core::request::{self, Split};
use crossgate_core::shortlist::{self, Found};
use crossgate_core::signals::{self, Reranked, Signals, Stage2Signals};
use crossgate_core::stage1::{self, Blend, Scored};
use crossgate_core::technologies;
use crossgate_core::text::Analyzer;
use crossgate_core::trace::Trace;
use pyo3::prelude::*;

use crate::index::numbers;

/// The terms of a text, as in indexes and queries.
#[pyfunction]
pub(crate) fn analyze(py: Python<'_>, text: &str, language: &str) -> PyResult<Vec<String>> {
    let analyzer = Analyzer::new(language)?;
    Ok(py.detach(|| analyzer.terms(text)))
}

/// The information of an English word in [0, 1], by its stem.
#[pyfunction]
pub(crate) fn information(stem: &str) -> f64 {
    common_words::information(stem)
}

/// The candidates with the share of the query that their texts, by id, cover, and with the evidence
/// of its dates, which the weights of the profile add to the blend.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned maps")]
pub(crate) fn with_coverage(
    py: Python<'_>,
    scored: Vec<Scored>,
    query: &str,
    texts: BTreeMap<String, String>,
    language: &str,
    profile: Option<&Profile>,
) -> PyResult<Vec<Scored>> {
    let analyzer = Analyzer::new(language)?;
    let weights = profile.map(|profile| (&profile.evidence, &profile.blend));
    Ok(py.detach(|| coverage::with_coverage(scored, query, &texts, analyzer, weights)))
}

/// A description without its exclusions.
#[pyfunction]
pub(crate) fn strip_exclusions(text: &str) -> Cow<'_, str> {
    exclusions::strip_exclusions(text)
}

/// Whether the text of a document is a description of a skill or tool.
#[pyfunction]
pub(crate) fn is_description(id: &str, title: &str, text: &str, body: &str) -> bool {
    description::is_description(id, title, text, body)
}

/// Names and meanings of the pieces of evidence.
#[pyfunction]
pub(crate) fn evidence() -> Vec<(&'static str, &'static str)> {
    Evidence::DEFINITIONS.iter().map(|piece| (piece.name, piece.meaning)).collect()
}

/// The weights of earlier requests, oldest first, if that of the prompt is 1.
#[pyfunction]
pub(crate) fn history_weights(prompt: &str, count: usize, standing: f64) -> Vec<f64> {
    history::weights(prompt, count, standing)
}

/// Whether a prompt consists of thanks, greetings and agreement.
#[pyfunction]
pub(crate) fn is_courtesy(prompt: &str) -> bool {
    history::is_courtesy(prompt)
}

/// The probability that the best candidate fits a query that needs a document; none without a
/// candidate.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned lists")]
pub(crate) fn standing(
    scored: Vec<Scored>,
    documents: usize,
    profile: &Profile,
) -> PyResult<Option<f64>> {
    Ok(probability::standing(&scored, documents, profile)?)
}

/// Names of the known technologies.
#[pyfunction(name = "technologies")]
pub(crate) fn technology_names() -> Vec<&'static str> {
    technologies::names().collect()
}

/// The probability that a query needs any document.
#[pyfunction(name = "needs_document")]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn needs_document_of(
    vector: &Bound<'_, PyAny>,
    intercept: f64,
    weights: Vec<f64>,
) -> PyResult<f64> {
    Ok(needs_document::needs_document(&numbers(vector)?, intercept, &weights)?)
}

/// The probability that a prompt of a session needs any document.
#[pyfunction(name = "needs_document_in_session")]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn needs_document_in_session_of(
    vector: &Bound<'_, PyAny>,
    form: Vec<f64>,
    intercept: f64,
    weights: Vec<f64>,
    form_weights: Vec<f64>,
) -> PyResult<f64> {
    let vector = numbers(vector)?;
    let (form, form_weights) = (&form, &form_weights);
    Ok(needs_document::needs_document_in_session(&vector, form, intercept, &weights, form_weights)?)
}

/// The weights of how much a prompt of a session asks for what a document does; `model` holds
/// little-endian numbers of 32 bits.
#[pyfunction(name = "usefulness_weights")]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn usefulness_weights_of(
    vector: &Bound<'_, PyAny>,
    form: Vec<f64>,
    model: &[u8],
) -> PyResult<Vec<f32>> {
    let (numbers_of_model, _) = model.as_chunks::<4>();
    let model: Vec<f32> = numbers_of_model.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    Ok(needs_document::usefulness_weights(&numbers(vector)?, &form, &model)?)
}

/// The form of a prompt, four numbers that `needs_document_in_session` and `usefulness_weights` read.
#[pyfunction(name = "form")]
pub(crate) fn form_of(request: &str, prompt: &str, is_first: bool) -> Vec<f64> {
    needs_document::form(request, prompt, is_first).to_vec()
}

/// Splits a prompt into the request and the pasted material.
#[pyfunction]
pub(crate) fn split(py: Python<'_>, prompt: &str) -> Split {
    py.detach(|| request::split(prompt))
}

/// Whether a request names something to do or to know, unlike "fix this".
#[pyfunction]
pub(crate) fn names_something(request: &str) -> bool {
    request::names_something(request)
}

/// The English name of a text's language; None if it is unknown.
#[pyfunction]
pub(crate) fn language(py: Python<'_>, text: &str) -> Option<&'static str> {
    py.detach(|| core_language::language(text)).name()
}

/// Decides whether stage 1 has a winner, has nothing relevant, or needs stage 2.
#[pyfunction(name = "gate")]
pub(crate) fn gated(
    scored: Vec<Scored>,
    profile: &Profile,
    policy: &Policy,
    request: &Request,
) -> PyResult<Gated> {
    Ok(gate::gate(scored, profile, policy, request)?)
}

/// Whether a profile was fitted for the reranker with this identity.
#[pyfunction]
pub(crate) fn fits(profile: &Profile, reranker: Option<&str>) -> bool {
    profile.fits(reranker)
}

/// Whether the unread candidates of the pool are too unlikely to change the first pick.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn can_stop(
    gated: &Gated,
    pairs: Vec<Pair>,
    reranker: Option<&str>,
    profile: &Profile,
) -> PyResult<bool> {
    Ok(anytime::can_stop(gated, &pairs, reranker, profile)?)
}

/// Orders the candidates and selects some of them.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
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
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn trace(
    profile: &Profile,
    policy: &Policy,
    request: &Request,
    gated: &Gated,
    reranker: Option<&str>,
    pairs: Vec<Pair>,
    decision: &Decision,
) -> String {
    let trace = Trace::new(profile, policy, request, gated, reranker, &pairs, decision);
    serde_json::to_string(&trace).expect("all keys of the core's types are strings")
}

/// The result of the gate and the decision, repeated from a trace.
#[pyfunction]
pub(crate) fn replay(text: &str) -> PyResult<(Gated, Decision)> {
    Ok(Trace::read(text)?.replay()?)
}

/// Profile, candidates, reranker and its scores.
type Inputs = (Profile, Vec<Scored>, Option<String>, Vec<Pair>);

/// The inputs of the decision of a trace: profile, candidates, reranker and its scores.
#[pyfunction]
pub(crate) fn read_trace(text: &str) -> PyResult<Inputs> {
    let Trace { profile, stage1, reranker, stage2, .. } = Trace::read(text)?;
    Ok((profile, stage1, reranker, stage2))
}

/// Uses scores of another retriever in stage 1; returns the candidates best blend first.
#[pyfunction]
#[pyo3(signature = (candidates, *, cosines, scores, keep, blend))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn with_external_scores(
    candidates: Vec<Scored>,
    cosines: BTreeMap<String, f64>,
    scores: BTreeMap<String, f64>,
    keep: bool,
    blend: &Blend,
) -> Vec<Scored> {
    stage1::with_external_scores(candidates, &cosines, &scores, keep, blend)
}

/// The candidates with new blends, best first. `bm25` replaces the BM25 scores of its candidates.
/// Without weights, evidence does not count.
#[pyfunction]
#[pyo3(signature = (scored, blend, bm25=None, evidence=None))]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes an owned map")]
pub(crate) fn reblend(
    mut scored: Vec<Scored>,
    blend: &Blend,
    bm25: Option<BTreeMap<String, f64>>,
    evidence: Option<&EvidenceWeights>,
) -> Vec<Scored> {
    let evidence = evidence.copied().unwrap_or_default();
    for candidate in &mut scored {
        if let Some(score) = bm25.as_ref().and_then(|scores| scores.get(&candidate.id)) {
            candidate.bm25 = *score;
        }
        candidate.blend = blend.score(candidate.cosine, candidate.bm25)
            + evidence.in_blend(&candidate.evidence, blend);
    }
    stage1::sort(&mut scored);
    scored
}

/// The signals of stage 1; none without candidates.
#[pyfunction(name = "signals")]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn read_signals(scored: Vec<Scored>) -> PyResult<Option<Signals>> {
    Ok(signals::signals(&scored)?)
}

/// Combined scores, ranks and stage-2 signals of candidates that a reranker has read.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 passes owned lists")]
pub(crate) fn combine(
    candidates: Vec<Scored>,
    rerank_scores: Vec<f64>,
    profile: &Profile,
) -> PyResult<(Vec<f64>, Vec<usize>, Option<Stage2Signals>)> {
    let reranked = Reranked::zip(&candidates, &rerank_scores)?;
    let scores = core::combine(&reranked, &profile.blend, &profile.evidence, profile.combine)?;
    let ranks = core::ranks(&reranked, &scores);
    let signals = signals::stage2_signals(&reranked, &scores);
    Ok((scores, ranks, signals))
}

/// Logarithm of the mean weight of the documents without evidence, and what evidence adds to it; none
/// without weights or a cosine that they need.
///
/// With rerank scores, by id, the weights are those after stage 2.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts owned lists and maps")]
pub(crate) fn log_mean(
    scored: Vec<Scored>,
    rerank_scores: Option<BTreeMap<String, f64>>,
    documents: usize,
    profile: &Profile,
) -> Option<(f64, f64)> {
    probability::log_mean(&scored, rerank_scores.as_ref(), documents, profile)
}

/// What the probability that a query needs a document adds to the log-odds that any fits.
#[pyfunction]
pub(crate) fn need_log_odds(needs_document: f64) -> f64 {
    probability::need_log_odds(needs_document)
}

/// The promises of a shortlist, from the rank and share of the best fitting candidate of each query.
#[pyfunction]
pub(crate) fn fit_shortlist(found: Vec<Option<(usize, f64)>>) -> Vec<Promise> {
    let found = found.into_iter().map(|of| of.map(|(rank, share)| Found { rank, share }));
    shortlist::fit(&found.collect::<Vec<_>>())
}

/// The fewest labelled queries that can promise a coverage.
#[pyfunction]
pub(crate) fn queries_needed(coverage: f64) -> PyResult<u32> {
    Ok(shortlist::queries_needed(coverage)?)
}
