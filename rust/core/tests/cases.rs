//! The table of cases in `tests/cases.json`, which Python runs too, so that both halves of
//! crossgate hold to one meaning of every rule.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may stop at the first surprise"
)]

use std::path::Path;

use crossgate_core::cliff::{SkipReason, TightenOptions, tighten};
use crossgate_core::confidence::Confidence;
use crossgate_core::gate::{Answer, Thresholds, decide};
use crossgate_core::stage1::{Blend, Scored};
use crossgate_core::stage2::{Combine, Dropped, Guardrails, combine, passes, ranks};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    blend: BlendValues,
    gate: Vec<GateCase>,
    stage2: Vec<Stage2Case>,
    tighten: Vec<TightenCase>,
    refused_blends: Vec<RefusedBlend>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlendValues {
    cosine_weight: f64,
    bm25_weight: f64,
    bm25_half: f64,
}

impl From<BlendValues> for Blend {
    fn from(values: BlendValues) -> Self {
        let BlendValues { cosine_weight, bm25_weight, bm25_half } = values;
        Self { cosine_weight, bm25_weight, bm25_half }
    }
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

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ThresholdValues {
    #[serde(default = "yes")]
    require_overlap: bool,
    relevance_cosine: Option<f64>,
    relevance_bm25: Option<f64>,
    confident_cosine: Option<f64>,
    #[serde(default)]
    confident_gap: f64,
    lexical_score: Option<f64>,
    #[serde(default)]
    lexical_gap: f64,
    agreed_margin: Option<f64>,
    disagreed_margin: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GateCase {
    name: String,
    blend: Option<BlendValues>,
    candidates: Vec<CandidateValues>,
    thresholds: Option<ThresholdValues>,
    #[serde(default)]
    answer: AnswerValues,
    verdict: String,
    reason: String,
    confidence: Option<f64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AnswerValues {
    stage1: Option<ConfidenceValues>,
    floor: Option<f64>,
    least: Option<f64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ConfidenceValues {
    intercept: f64,
    cosine: f64,
    bm25: f64,
    blend_margin: f64,
    agreement: f64,
    logit: f64,
    score_margin: f64,
    same_first: f64,
}

impl From<ConfidenceValues> for Confidence {
    fn from(values: ConfidenceValues) -> Self {
        Self {
            intercept: values.intercept,
            cosine: values.cosine,
            bm25: values.bm25,
            blend_margin: values.blend_margin,
            agreement: values.agreement,
            logit: values.logit,
            score_margin: values.score_margin,
            same_first: values.same_first,
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "mode", rename_all = "lowercase", deny_unknown_fields)]
enum CombineValues {
    Replace,
    Rrf { k: f64 },
    Weighted { cosine: f64, bm25: f64, logit: f64 },
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GuardrailValues {
    minimum: Option<f64>,
    margin: Option<f64>,
    agreement: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stage2Case {
    name: String,
    candidates: Vec<CandidateValues>,
    logits: Vec<f64>,
    combine: CombineValues,
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
    #[serde(default = "yes")]
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
    blend: BlendValues,
}

fn table() -> Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases.json");
    let text = std::fs::read_to_string(&path).expect("the table of cases is there");
    serde_json::from_str(&text).expect("the table of cases has the shape that is written above")
}

fn scored(values: &[CandidateValues], blend: &Blend) -> Vec<Scored> {
    values
        .iter()
        .map(|one| Scored::new(one.id.clone(), one.cosine, one.bm25, one.overlap, blend))
        .collect()
}

#[test]
fn gate() {
    let table = table();
    for case in &table.gate {
        let blend = case.blend.unwrap_or(table.blend).into();
        let thresholds = match &case.thresholds {
            None => Thresholds { require_overlap: true, ..Thresholds::default() },
            Some(values) => Thresholds {
                require_overlap: values.require_overlap,
                relevance_cosine: values.relevance_cosine,
                relevance_bm25: values.relevance_bm25,
                confident_cosine: values.confident_cosine,
                confident_gap: values.confident_gap,
                lexical_score: values.lexical_score,
                lexical_gap: values.lexical_gap,
                agreed_margin: values.agreed_margin,
                disagreed_margin: values.disagreed_margin,
            },
        };
        let AnswerValues { stage1, floor, least } = case.answer;
        let answer = Answer { stage1: stage1.map(Into::into), floor, least };
        let mut candidates = scored(&case.candidates, &blend);
        for _ in 0..2 {
            let decision = decide(&candidates, &thresholds, &answer).unwrap();
            assert_eq!(
                (decision.verdict.code(), decision.reason.code()),
                (case.verdict.as_str(), case.reason.as_str()),
                "{}",
                case.name
            );
            match (decision.confidence, case.confidence) {
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
fn stage2() {
    let table = table();
    let blend = table.blend.into();
    for case in &table.stage2 {
        let candidates = scored(&case.candidates, &blend);
        let mode = match case.combine {
            CombineValues::Replace => Combine::Replace,
            CombineValues::Rrf { k } => Combine::ReciprocalRank { k },
            CombineValues::Weighted { cosine, bm25, logit } => {
                Combine::Weighted { cosine, bm25, logit }
            }
        };
        let outcome = combine(&candidates, &case.logits, &blend, mode);
        if let Some(code) = &case.code {
            assert_eq!(outcome.unwrap_err().code(), code, "{}", case.name);
            continue;
        }
        let scores = outcome.unwrap();
        let mut ranked: Vec<_> = ranks(&candidates, &scores)
            .into_iter()
            .zip(candidates.iter().zip(&scores))
            .map(|(rank, (one, score))| (rank, one, *score))
            .collect();
        ranked.sort_by_key(|(rank, ..)| *rank);
        let order: Vec<_> = ranked.iter().map(|(_, one, _)| one.id.as_str()).collect();
        assert_eq!(order, case.order, "{}", case.name);
        if let Some(expected) = &case.scores {
            assert_eq!(expected.len(), ranked.len(), "{}", case.name);
            for ((_, _, score), expected) in ranked.iter().zip(expected) {
                assert!((score - expected).abs() < 1e-12, "{}: {score} {expected}", case.name);
            }
        }
        let GuardrailValues { minimum, margin, agreement } = case.guardrails;
        let guardrails = Guardrails { minimum, margin, agreement, limit: case.limit };
        let pairs: Vec<_> = ranked.iter().map(|(_, one, score)| (*score, one.blend)).collect();
        let dropped: Vec<_> =
            passes(&pairs, &guardrails).into_iter().map(|why| why.map(Dropped::code)).collect();
        let expected: Vec<_> = case.dropped.iter().map(Option::as_deref).collect();
        assert_eq!(dropped, expected, "{}", case.name);
    }
}

#[test]
fn tightening() {
    for case in &table().tighten {
        let sources: Vec<Option<&str>> = case.sources.iter().map(Option::as_deref).collect();
        let options = TightenOptions {
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
fn blends_that_mean_nothing_are_refused() {
    for case in &table().refused_blends {
        let error = Blend::from(case.blend).check().unwrap_err();
        assert_eq!(error.code(), "out_of_range", "{}", case.name);
    }
}
