//! Any bytes are read as a trace, or refused, without a panic; what is read decides again.

#![no_main]

use crossgate_core::trace::Trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(trace) = Trace::read(text) {
        let decided = trace.replay();
        assert_eq!(decided, trace.replay());
        if let Ok((gated, decision)) = decided {
            assert_eq!(gated.scored.len(), decision.places.len());
        }
    }
});
