//! Any bytes are a readable index or a refused one, with and without a checksum that fits them.

#![no_main]

use std::collections::HashSet;

use crossgate_core::Index;
use crossgate_core::index::SearchOptions;
use crossgate_core::stage1::Blend;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    use_index(bytes);
    // A fuzzer cannot guess a hash; with one that fits, it reaches what lies behind.
    let mut file = b"\x89CGX\r\n\x1a\n".to_vec();
    file.extend(2_u32.to_le_bytes());
    file.extend((bytes.len() as u64).to_le_bytes());
    file.extend(blake3::hash(bytes).as_bytes());
    file.extend(bytes);
    use_index(&file);
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
