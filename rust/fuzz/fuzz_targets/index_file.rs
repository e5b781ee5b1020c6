//! Reads any bytes as an index file, with and without valid checksums, and uses the index.

#![no_main]

use std::collections::HashSet;
use std::sync::LazyLock;

use crossgate_core::Index;
use crossgate_core::index::{Record, SearchOptions};
use crossgate_core::stage1::Span;
use crossgate_core::text::Analyzer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    use_index(bytes);
    // A fuzzer cannot guess checksums, so valid checksums are added to reach the code behind them.
    use_index(&Index::resealed(bytes));
    // Random bytes are rarely close to a valid file, so a valid file is changed too.
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
        ..Record::default()
    };
    let mut index = Index::new(Analyzer::new("english").expect("a known language"), "test", 2)
        .expect("a valid dimension");
    index
        .upsert(vec![
            (record("fox", "a quick red fox", ""), Some(vec![1.0, 0.0])),
            (record("owl", "hunts red mice", "nests in towers"), Some(vec![0.6, 0.8])),
        ])
        .expect("valid records");
    index.to_bytes().expect("all of it is in memory")
});

fn use_index(bytes: &[u8]) {
    let Ok(mut index) = Index::from_bytes(bytes) else { return };
    let bytes = index.to_bytes().expect("an index that was read can be written");
    let again = Index::from_bytes(&bytes).expect("an index that was written can be read");
    assert_eq!(again.fingerprint().ok(), index.fingerprint().ok());
    let deny = HashSet::new();
    let options = SearchOptions { per_channel: 5, deny: &deny, ..SearchOptions::default() };
    let vector = vec![1.0; index.dimension()];
    let vector = (index.dimension() > 0).then_some(vector.as_slice());
    index.search("read a file", vector, &options).expect("the query is valid");
    let ids: Vec<String> = index.ids().map(str::to_owned).collect();
    for id in &ids {
        assert!(index.remove(id).expect("all of it was read"));
    }
    assert!(index.is_empty());
}
