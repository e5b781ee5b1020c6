//! Times of BM25, cosine, embedder and gate: `cargo bench --package crossgate-core`.
//!
//! The documents consist of random words with the frequencies of a natural language.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::collections::HashSet;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use crossgate_core::Index;
use crossgate_core::conclude::{Pair, conclude};
use crossgate_core::embedder::Embedder;
use crossgate_core::gate::{Request, gate};
use crossgate_core::index::{Record, SearchOptions};
use crossgate_core::policy::Policy;
use crossgate_core::profile::{Profile, Winner};
use crossgate_core::stage1::Scored;
use crossgate_core::text::Analyzer;

const DOCUMENTS: usize = 10_000;
const DIMENSION: usize = 384;
/// The bundled embedder, from the folder of this crate.
const WEIGHTS: &str = "../../python/crossgate/_weights/crossgate-embedder-minilm-l6";

const QUERY: &str = "w3 w40 w77 w250 w611 w1200";

/// A linear congruential generator, so that every run measures the same documents.
struct Random(u64);

impl Random {
    /// A number in [0, 1).
    fn number(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A word out of 2,000, the first words most frequent.
    fn word(&mut self) -> String {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let rank = 2_000_f64.powf(self.number()) as u32;
        format!("w{rank}")
    }

    fn vector(&mut self) -> Vec<f32> {
        #[expect(clippy::cast_possible_truncation, reason = "a vector has 32-bit numbers")]
        (0..DIMENSION).map(|_| (self.number() - 0.5) as f32).collect()
    }
}

fn index(random: &mut Random) -> Index {
    let mut index = Index::new(Analyzer::new("english").unwrap(), "random", DIMENSION).unwrap();
    let documents = (0..DOCUMENTS).map(|number| {
        let words: Vec<String> = (0..30).map(|_| random.word()).collect();
        let (id, text) = (number.to_string(), words.join(" "));
        (Record { id, text, ..Record::default() }, Some(random.vector()))
    });
    index.upsert(documents.collect()).unwrap();
    index
}

fn searches(criterion: &mut Criterion) {
    let mut random = Random(7);
    let (index, vector) = (index(&mut random), random.vector());
    let deny = HashSet::new();
    let options = SearchOptions { deny: &deny, ..SearchOptions::default() };
    let search = |query: &str, vector: Option<&[f32]>| {
        index.search(black_box(query), vector, &options).unwrap().len()
    };
    criterion.bench_function("BM25, 10,000 documents", |bencher| {
        bencher.iter(|| search(QUERY, None));
    });
    criterion.bench_function("cosine, 10,000 documents", |bencher| {
        bencher.iter(|| search("", Some(&vector)));
    });
    criterion.bench_function("BM25 and cosine, 10,000 documents", |bencher| {
        bencher.iter(|| search(QUERY, Some(&vector)));
    });
}

fn embedder(criterion: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(WEIGHTS);
    let (model, tokenizer) = (folder.join("model.onnx"), folder.join("tokenizer.json"));
    let embedder = Embedder::open(&model, &tokenizer, 256).unwrap();
    let query = "merge the two contracts and send me one pdf";
    criterion.bench_function("embedder, a query of nine words", |bencher| {
        bencher.iter(|| embedder.embed(black_box(query)));
    });
    let text = query.repeat(20);
    criterion.bench_function("embedder, a text of 180 words", |bencher| {
        bencher.iter(|| embedder.embed(black_box(&text)));
    });
}

fn decisions(criterion: &mut Criterion) {
    let mut random = Random(11);
    let winner = Winner { agreed: Some(0.5), disagreed: None };
    let (profile, policy, request) =
        (Profile { winner, ..Profile::default() }, Policy::default(), Request::default());
    let scored = (0..30).map(|number| {
        let (cosine, bm25) = (random.number(), 10.0 * random.number());
        let blend = profile.blend.score(Some(cosine), bm25);
        let (id, cosine) = (number.to_string(), Some(cosine));
        Scored { id, cosine, bm25, overlap: 2, blend, ..Scored::default() }
    });
    let scored: Vec<Scored> = scored.collect();
    criterion.bench_function("gate, 30 candidates", |bencher| {
        bencher.iter(|| gate(black_box(scored.clone()), &profile, &policy, &request).unwrap());
    });
    let gated = gate(scored, &profile, &policy, &request).unwrap();
    let pairs = gated.pool.iter().filter_map(|position| gated.scored.get(*position));
    let pairs: Vec<Pair> = pairs
        .map(|candidate| Pair {
            id: candidate.id.clone(),
            score: 8.0 * random.number() - 4.0,
            truncated: false,
        })
        .collect();
    criterion.bench_function("conclude, 20 rerank scores", |bencher| {
        bencher
            .iter(|| conclude(&gated, black_box(&pairs), Some("toy"), &profile, &policy).unwrap());
    });
}

criterion_group!(benches, searches, embedder, decisions);
criterion_main!(benches);
