//! The cases of `tests/cases.json`; the Python tests run those of the gate through the whole cascade.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test may panic")]

use std::path::Path;

use crossgate_core::cliff::{CliffOptions, SkipReason, tighten};
use crossgate_core::conclude::{Dropped, Guardrails, Judged, combine, passes, ranks};
use crossgate_core::evidence::EvidenceWeights;
use crossgate_core::gate::{Request, gate};
use crossgate_core::policy::Policy;
use crossgate_core::profile::{Combine, Profile};
use crossgate_core::signals::Reranked;
use crossgate_core::stage1::{Blend, Scored};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    blend: Blend,
    gate: Vec<GateCase>,
    stage2: Vec<Stage2Case>,
    tighten: Vec<TightenCase>,
    refused_blends: Vec<RefusedBlend>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CandidateValues {
    id: String,
    cosine: Option<f64>,
    #[serde(default)]
    bm25: f64,
    #[serde(default)]
    overlap: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GateCase {
    name: String,
    candidates: Vec<CandidateValues>,
    profile: Option<serde_json::Value>,
    #[serde(default)]
    policy: Policy,
    request: Option<Request>,
    verdict: String,
    reason: String,
    any_fits: Option<f64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GuardrailValues {
    rerank_min: Option<f64>,
    rerank_margin: Option<f64>,
    agreement: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stage2Case {
    name: String,
    candidates: Vec<CandidateValues>,
    rerank_scores: Vec<f64>,
    combine: Combine,
    #[serde(default)]
    guardrails: GuardrailValues,
    limit: Option<usize>,
    #[serde(default)]
    order: Vec<String>,
    scores: Option<Vec<f64>>,
    #[serde(default)]
    dropped: Vec<Option<String>>,
    code: Option<String>,
}

fn available() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TightenCase {
    name: String,
    scores: Vec<f64>,
    #[serde(default)]
    sources: Vec<Option<String>>,
    core: usize,
    pool: Option<usize>,
    static_floor: Option<f64>,
    grade: Option<char>,
    #[serde(default = "available")]
    reranker_available: bool,
    #[serde(default)]
    cut: Vec<usize>,
    effective_floor: Option<f64>,
    cliff_position: Option<usize>,
    skip_reason: Option<String>,
    code: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedBlend {
    name: String,
    blend: Blend,
}

fn table() -> Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases.json");
    let text = std::fs::read_to_string(&path).expect("the file of cases can be read");
    serde_json::from_str(&text).expect("the cases have the types above")
}

fn scored(values: &[CandidateValues], blend: &Blend) -> Vec<Scored> {
    values
        .iter()
        .map(|values| Scored {
            id: values.id.clone(),
            cosine: values.cosine,
            bm25: values.bm25,
            overlap: values.overlap,
            blend: blend.score(values.cosine, values.bm25),
            ..Scored::default()
        })
        .collect()
}

#[test]
fn the_gate_decides_each_case() {
    let table = table();
    for case in &table.gate {
        let mut profile = Profile { blend: table.blend, ..Profile::default() };
        if let Some(values) = &case.profile {
            let blend = profile.blend;
            profile =
                serde_json::from_value(values.clone()).expect("the profile of a case is valid");
            if values.get("blend").is_none() {
                profile.blend = blend;
            }
        }
        profile.check().unwrap();
        let request =
            case.request.clone().unwrap_or(Request { require_overlap: true, ..Request::default() });
        let mut candidates = scored(&case.candidates, &profile.blend);
        for _ in 0..2 {
            let gated = gate(candidates.clone(), &profile, &case.policy, &request).unwrap();
            assert_eq!(
                (gated.verdict.code(), gated.reason.code()),
                (case.verdict.as_str(), case.reason.as_str()),
                "{}",
                case.name
            );
            match (gated.any_fits, case.any_fits) {
                (Some(found), Some(expected)) => {
                    assert!((found - expected).abs() < 1e-12, "{}: {found}", case.name);
                }
                (found, expected) => assert_eq!(found, expected, "{}", case.name),
            }
            candidates.reverse();
        }
    }
}

#[test]
fn stage_2_orders_and_drops_in_each_case() {
    let table = table();
    for case in &table.stage2 {
        let candidates = scored(&case.candidates, &table.blend);
        let outcome = Reranked::zip(&candidates, &case.rerank_scores).and_then(|reranked| {
            Ok((
                combine(&reranked, &table.blend, &EvidenceWeights::default(), case.combine)?,
                reranked,
            ))
        });
        if let Some(code) = &case.code {
            assert_eq!(outcome.unwrap_err().code(), code, "{}", case.name);
            continue;
        }
        let (scores, reranked) = outcome.unwrap();
        let mut ranked: Vec<_> = ranks(&reranked, &scores)
            .into_iter()
            .zip(candidates.iter().zip(&scores))
            .map(|(rank, (candidate, score))| (rank, candidate, *score))
            .collect();
        ranked.sort_by_key(|(rank, ..)| *rank);
        let order: Vec<_> = ranked.iter().map(|(_, candidate, _)| candidate.id.as_str()).collect();
        assert_eq!(order, case.order, "{}", case.name);
        if let Some(expected) = &case.scores {
            assert_eq!(expected.len(), ranked.len(), "{}", case.name);
            for ((_, _, score), expected) in ranked.iter().zip(expected) {
                assert!((score - expected).abs() < 1e-12, "{}: {score} {expected}", case.name);
            }
        }
        let GuardrailValues { rerank_min, rerank_margin, agreement } = case.guardrails;
        let (relevance, runner_up) = (None, None);
        let limit = case.limit;
        let guardrails =
            Guardrails { rerank_min, rerank_margin, relevance, runner_up, agreement, limit };
        let judged: Vec<_> = ranked
            .iter()
            .map(|(_, candidate, score)| Judged {
                score: *score,
                blend: candidate.blend,
                relevance: None,
                truncated: false,
            })
            .collect();
        let dropped: Vec<_> = passes(&judged, &guardrails)
            .into_iter()
            .map(|dropped| dropped.map(Dropped::code))
            .collect();
        let expected: Vec<_> = case.dropped.iter().map(Option::as_deref).collect();
        assert_eq!(dropped, expected, "{}", case.name);
    }
}

#[test]
fn the_pool_is_cut_in_each_case() {
    for case in &table().tighten {
        let sources: Vec<Option<&str>> = case.sources.iter().map(Option::as_deref).collect();
        let options = CliffOptions {
            core: case.core,
            pool: case.pool.unwrap_or(case.scores.len()),
            static_floor: case.static_floor,
            grade: case.grade,
            reranker_available: case.reranker_available,
        };
        let outcome = tighten(&case.scores, &sources, &options);
        if let Some(code) = &case.code {
            assert_eq!(outcome.unwrap_err().code(), code, "{}", case.name);
            continue;
        }
        let outcome = outcome.unwrap();
        assert_eq!(outcome.cut, case.cut, "{}", case.name);
        assert_eq!(outcome.effective_floor, case.effective_floor, "{}", case.name);
        assert_eq!(outcome.cliff_position, case.cliff_position, "{}", case.name);
        assert_eq!(
            outcome.skip_reason.map(SkipReason::code),
            case.skip_reason.as_deref(),
            "{}",
            case.name
        );
    }
}

#[test]
fn unusable_blends_are_refused() {
    for case in &table().refused_blends {
        let error = case.blend.check().unwrap_err();
        assert_eq!(error.code(), "out_of_range", "{}", case.name);
    }
}
