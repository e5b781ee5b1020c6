//! Any prompt is split without a panic, and its parts cover it.

#![no_main]

use crossgate_core::request::split;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|prompt: &str| {
    let found = split(prompt);
    let mut all: Vec<_> = found.material.iter().map(|material| material.span).collect();
    all.extend(&found.spans);
    all.sort_by_key(|span| (span.start, span.end));
    let end = all.iter().fold(0, |end, span| {
        assert_eq!(span.start, end);
        span.end
    });
    assert_eq!(end as usize, prompt.chars().count());
    assert!(found.request.len() <= prompt.len() + found.material.len());
});
