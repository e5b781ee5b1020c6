//! Analyses any text in every language, and strips the exclusions of any description.

#![no_main]

use crossgate_core::exclusions::strip_exclusions;
use crossgate_core::text::Analyzer;
use crossgate_core::versions::Versions;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &str)| {
    let languages = [
        "none", "danish", "dutch", "english", "finnish", "french", "german", "hungarian", "italian",
        "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "turkish",
    ];
    let language = languages[usize::from(input.0) % languages.len()];
    let terms = Analyzer::new(language).expect("a known language").terms(input.1);
    assert!(terms.iter().all(|term| !term.is_empty()));
    assert!(strip_exclusions(input.1).len() <= input.1.len());
    let versions = Versions::of_query(input.1);
    assert!(!versions.contradict(&versions));
});
