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
    use_index(&Index::resealed(bytes));
    // Most bytes are no file at all: a sound one with some of them changed is nearly right.
    let mut file = SAMPLE.to_vec();
    for change in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % file.len();
        file[place] = change[2];
    }
    use_index(&Index::resealed(&file));
});

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
    index.to_bytes().expect("it is in memory")
});

fn use_index(bytes: &[u8]) {
    let Ok(mut index) = Index::from_bytes(bytes) else { return };
    let bytes = index.to_bytes().expect("what was read can be written");
    let again = Index::from_bytes(&bytes).expect("what was written can be read");
    assert_eq!(again.fingerprint().ok(), index.fingerprint().ok());
    let deny = HashSet::new();
    let options = SearchOptions { blend: Blend::default(), per_channel: 5, allow: None, deny: &deny };
    let vector = vec![1.0; index.dimension()];
    let vector = (index.dimension() > 0).then_some(vector.as_slice());
    index.search("read a file", vector, &options).expect("a valid query is answered");
    let ids: Vec<String> = index.ids().map(str::to_owned).collect();
    for id in &ids {
        assert!(index.remove(id).expect("it was read"));
    }
    assert!(index.is_empty());
}
