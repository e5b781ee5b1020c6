//! Reads any text as a trace and repeats the decision.

#![no_main]

use crossgate_core::trace::Trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(trace) = Trace::read(text) {
        let decided = trace.replay();
        assert_eq!(format!("{decided:?}"), format!("{:?}", trace.replay()));
        if let Ok((gated, decision)) = decided {
            assert_eq!(gated.scored.len(), decision.places.len());
        }
    }
});
