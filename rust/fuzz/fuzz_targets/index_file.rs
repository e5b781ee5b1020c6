//! Any bytes are a readable index or a refused one, with and without a checksum that fits them.

#![no_main]

use std::collections::HashSet;
use std::sync::LazyLock;

use crossgate_core::Index;
use crossgate_core::index::{Record, SearchOptions};
use crossgate_core::stage1::{Blend, Span};
use crossgate_core::text::Analyzer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    use_index(bytes);
    // A fuzzer cannot guess a hash; with one that fits, it reaches what lies behind.
    use_index(&Index::sealed(bytes));
    // Most bodies are none at all: a sound one with some bytes changed is nearly right.
    let mut body = SAMPLE[HEADER..].to_vec();
    for change in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % body.len();
        body[place] = change[2];
    }
    use_index(&Index::sealed(&body));
});

/// Magic, version, length and checksum.
const HEADER: usize = 52;

static SAMPLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let record = |id: &str, text: &str, body: &str| Record {
        id: id.to_owned(),
        title: String::new(),
        text: text.to_owned(),
        body: body.to_owned(),
        passages: if body.is_empty() { Vec::new() } else { vec![Span { start: 0, end: 5 }] },
        metadata: "{}".to_owned(),
    };
    let mut index = Index::new(Analyzer::new("english").expect("known"), "test", 2).expect("fits");
    index
        .upsert(vec![
            (record("fox", "a quick red fox", ""), Some(vec![1.0, 0.0])),
            (record("owl", "hunts red mice", "nests in towers"), Some(vec![0.6, 0.8])),
        ])
        .expect("sound records");
    index.to_bytes()
});

fn use_index(bytes: &[u8]) {
    let Ok(mut index) = Index::from_bytes(bytes) else { return };
    let again = Index::from_bytes(&index.to_bytes()).expect("what was read can be written");
    assert_eq!(again.fingerprint(), index.fingerprint());
    let deny = HashSet::new();
    let options = SearchOptions { blend: Blend::default(), per_channel: 5, allow: None, deny: &deny };
    let vector = vec![1.0; index.dimension()];
    let vector = (index.dimension() > 0).then_some(vector.as_slice());
    index.search("read a file", vector, &options).expect("a valid query is answered");
    let ids: Vec<String> = index.records().map(|record| record.id.clone()).collect();
    for id in &ids {
        assert!(index.remove(id));
    }
    assert!(index.is_empty());
}
