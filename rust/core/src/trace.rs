//! The trace of a decision: what went in and what came out, enough to decide again.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::conclude::{Decision, Pair, conclude};
use crate::error::{Error, Result};
use crate::gate::{Gated, Request, gate};
use crate::json::{self, Json};
use crate::policy::Policy;
use crate::profile::Profile;
use crate::stage1::Scored;

/// Version of the format.
pub const TRACE_SCHEMA: &str = "crossgate-trace/2";

/// What went into a decision and what came out of it.
///
/// Members beside these belong to steps before or after the cascade, and are not read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Version of the format.
    pub schema: String,
    /// The profile, without how it was fitted.
    pub profile: Profile,
    /// The policy.
    pub policy: Policy,
    /// What the caller asked for beside the query.
    pub request: Request,
    /// The candidates, best blend first.
    pub stage1: Vec<Scored>,
    /// What the gate said.
    pub gate: Gated,
    /// Identity of the reranker that answered; none where none did.
    pub reranker: Option<String>,
    /// What it said about the pool.
    pub stage2: Vec<Pair>,
    /// What was decided.
    pub decision: Decision,
}

impl Trace {
    /// Puts the parts of a decision together.
    pub fn new(
        profile: &Profile,
        policy: &Policy,
        request: &Request,
        gated: &Gated,
        reranker: Option<&str>,
        pairs: &[Pair],
        decision: &Decision,
    ) -> Self {
        Self {
            schema: TRACE_SCHEMA.to_owned(),
            profile: Profile { fitted: Json::default(), ..profile.clone() },
            policy: policy.clone(),
            request: request.clone(),
            stage1: gated.scored.clone(),
            gate: gated.clone(),
            reranker: reranker.map(str::to_owned),
            stage2: pairs.to_vec(),
            decision: decision.clone(),
        }
    }

    /// Reads a trace.
    ///
    /// Fails with `malformed_trace`.
    pub fn read(text: &str) -> Result<Self> {
        let malformed = |why: String| Error::input("malformed_trace", format!("the trace: {why}"));
        let trace: Self = json::read(text).map_err(malformed)?;
        if trace.schema != TRACE_SCHEMA {
            return Err(malformed(format!(
                "it is of version {:?}, not {TRACE_SCHEMA:?}: decide again",
                trace.schema
            )));
        }
        trace.profile.check()?;
        trace.policy.check()?;
        if let Some(one) = trace.stage1.iter().find(|one| one.bm25 < 0.0) {
            // It would be bounded to any number, or to none.
            let why =
                format!("the BM25 score of {:?} is {}: it must be at least 0", one.id, one.bm25);
            return Err(malformed(why));
        }
        let ids: HashSet<&str> = trace.stage1.iter().map(|one| one.id.as_str()).collect();
        if ids.len() < trace.stage1.len() {
            return Err(malformed("stage1 names a candidate twice".to_owned()));
        }
        if let Some(pair) = trace.stage2.iter().find(|pair| !ids.contains(pair.id.as_str())) {
            let why = format!("stage2 names {:?}, which is not in stage1", pair.id);
            return Err(malformed(why));
        }
        Ok(trace)
    }

    /// Decides again from what went in: the gate's answer and the decision that should stand here.
    pub fn replay(&self) -> Result<(Gated, Decision)> {
        let Self { profile, policy, request, reranker, stage2, .. } = self;
        let gated = gate(self.stage1.clone(), profile, policy, request)?;
        let decision = conclude(&gated, stage2, reranker.as_deref(), profile, policy)?;
        Ok((gated, decision))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::Winner;

    fn scored(id: &str, blend: f64) -> Scored {
        let scored = Scored { id: id.to_owned(), cosine: Some(blend), blend, ..Scored::default() };
        Scored { bm25: 1.0, overlap: 1, ..scored }
    }

    fn trace() -> Trace {
        let profile =
            Profile { winner: Winner { agreed: Some(0.9), disagreed: None }, ..Profile::default() };
        let (policy, request) = (Policy::default(), Request::default());
        let gated =
            gate(vec![scored("a", 0.5), scored("b", 0.4)], &profile, &policy, &request).unwrap();
        let pairs = ["a", "b"].map(|id| Pair { id: id.to_owned(), score: 1.5, truncated: false });
        let decision = conclude(&gated, &pairs, Some("toy"), &profile, &policy).unwrap();
        Trace::new(&profile, &policy, &request, &gated, Some("toy"), &pairs, &decision)
    }

    #[test]
    fn what_was_written_is_read_and_decides_the_same() {
        let trace = trace();
        let read = Trace::read(&serde_json::to_string(&trace).unwrap()).unwrap();
        let (gated, decision) = read.replay().unwrap();
        assert_eq!(decision, trace.decision);
        assert_eq!(gated, trace.gate);
    }

    #[test]
    fn a_trace_that_was_tampered_with_is_refused_or_decides_otherwise() {
        let text = serde_json::to_string(&trace()).unwrap();
        for (from, to) in [
            (r#""overlap":1"#, r#""overlap":-1"#),
            (r#""bm25":1.0"#, r#""bm25":-1.0"#),
            (r#""pool":20"#, r#""pool":0"#),
            (r#""score":1.5"#, r#""score":null"#),
            ("crossgate-trace/2", "crossgate-trace/1"),
        ] {
            assert!(text.contains(from), "{from}");
            assert!(Trace::read(&text.replacen(from, to, 1)).is_err(), "{to}");
        }
        let other = text.replacen(r#""score":1.5"#, r#""score":-9.0"#, 1);
        let read = Trace::read(&other).unwrap();
        assert_ne!(read.replay().unwrap().1, read.decision);
    }

    proptest! {
        #[test]
        fn damaged_bytes_never_panic(at in 0_usize..4000, byte in any::<u8>(), cut in any::<bool>()) {
            let mut bytes = serde_json::to_string(&trace()).unwrap().into_bytes();
            let at = at % bytes.len();
            if cut { bytes.truncate(at); } else { bytes[at] = byte; }
            if let Ok(read) = Trace::read(&String::from_utf8_lossy(&bytes)) {
                let _ = read.replay();
            }
        }
    }
}
