//! The trace of a decision: its inputs and results, from which it can be repeated.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::checks::Range;
use crate::conclude::{Decision, Pair, conclude};
use crate::error::{Format, Kind, Result};
use crate::gate::{Gated, Request, gate};
use crate::json::{self, Json, objects};
use crate::policy::Policy;
use crate::profile::Profile;
use crate::stage1::Scored;

/// Version of the format.
pub const TRACE_SCHEMA: &str = "crossgate-trace/6";

/// The inputs and results of a decision.
///
/// A trace in JSON can have further members, of steps before or after the cascade; they are ignored.
///
/// # Examples
///
/// ```
/// use crossgate_core::conclude::conclude;
/// use crossgate_core::gate::{Request, gate};
/// use crossgate_core::policy::Policy;
/// use crossgate_core::profile::Profile;
/// use crossgate_core::stage1::Scored;
/// use crossgate_core::trace::Trace;
///
/// let (profile, policy, request) = (Profile::default(), Policy::default(), Request::default());
/// let pdf = Scored { id: "pdf".to_owned(), bm25: 3.0, blend: 0.3, ..Scored::default() };
/// let gated = gate(vec![pdf], &profile, &policy, &request)?;
/// let decision = conclude(&gated, &[], None, &profile, &policy)?;
///
/// let trace = Trace::new(&profile, &policy, &request, &gated, None, &[], &decision);
/// let text = serde_json::to_string(&trace).unwrap();
/// assert_eq!(Trace::read(&text)?.replay()?, (gated, decision));
/// # Ok::<(), crossgate_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Trace {
    /// Version of the format.
    pub schema: String,
    /// The profile, without `fitted` and without promises for shortlists of another length.
    pub profile: Profile,
    /// The policy.
    pub policy: Policy,
    /// The caller's options.
    pub request: Request,
    /// The candidates, best blend first.
    pub stage1: Vec<Scored>,
    /// The result of the gate.
    pub gate: Gated,
    /// Identity of the reranker that gave scores, if any did.
    pub reranker: Option<String>,
    /// The scores of the reranker.
    pub stage2: Vec<Pair>,
    /// The decision.
    pub decision: Decision,
}

objects!(Trace);

impl Trace {
    /// A trace of a decision and its inputs.
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
            profile: Profile {
                fitted: Json::default(),
                shortlist: profile.shortlist.promises_of(request.max_shortlist),
                ..profile.clone()
            },
            policy: policy.clone(),
            request: request.clone(),
            stage1: gated.scored.clone(),
            gate: gated.clone(),
            reranker: reranker.map(str::to_owned),
            stage2: pairs.to_vec(),
            decision: decision.clone(),
        }
    }

    /// Reads a trace from JSON.
    ///
    /// Fails with `malformed_trace` if it is of another version or contradicts itself, and with
    /// `profile_malformed` or `policy_malformed`.
    pub fn read(text: &str) -> Result<Self> {
        let trace: Self = json::read(text).map_err(|error| {
            // A trace of another version can have other members, so the version matters most.
            let version = json::read(text).map(|Version { schema }| check_version(&schema));
            version.unwrap_or(Ok(())).err().unwrap_or(error).within(Format::Trace)
        })?;
        check_version(&trace.schema).map_err(|error| error.within(Format::Trace))?;
        trace.profile.check()?;
        trace.policy.check()?;
        trace.check_candidates().map_err(|error| error.within(Format::Trace))?;
        Ok(trace)
    }

    fn check_candidates(&self) -> Result<()> {
        let mut ids = HashSet::new();
        for Scored { id, bm25, .. } in &self.stage1 {
            // The bounded BM25 score of a negative number can be any number.
            Range::NotNegative.check(&format!("the BM25 score of {id:?}"), *bm25)?;
            if !ids.insert(id) {
                return Err(Kind::DuplicateId { id: id.clone() }.into());
            }
        }
        match self.stage2.iter().find(|pair| !ids.contains(&pair.id)) {
            Some(pair) => Err(Kind::UnknownCandidate { id: pair.id.clone() }.into()),
            None => Ok(()),
        }
    }

    /// Decides again from the inputs: the result of the gate and the decision.
    pub fn replay(&self) -> Result<(Gated, Decision)> {
        let Self { profile, policy, request, reranker, stage2, .. } = self;
        let gated = gate(self.stage1.clone(), profile, policy, request)?;
        let decision = conclude(&gated, stage2, reranker.as_deref(), profile, policy)?;
        Ok((gated, decision))
    }
}

/// The version alone of a trace that cannot be read.
#[derive(Deserialize)]
struct Version {
    schema: String,
}

fn check_version(found: &str) -> Result<()> {
    if found == TRACE_SCHEMA {
        return Ok(());
    }
    Err(Kind::Version { found: found.to_owned(), supported: TRACE_SCHEMA }.into())
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
    fn a_trace_that_is_read_back_gives_the_same_decision() {
        let trace = trace();
        let read = Trace::read(&serde_json::to_string(&trace).unwrap()).unwrap();
        let (gated, decision) = read.replay().unwrap();
        assert_eq!(decision, trace.decision);
        assert_eq!(gated, trace.gate);
    }

    #[test]
    fn a_changed_trace_is_refused_or_gives_another_decision() {
        let text = serde_json::to_string(&trace()).unwrap();
        for (from, to) in [
            (r#""overlap":1"#, r#""overlap":-1"#),
            (r#""bm25":1.0"#, r#""bm25":-1.0"#),
            (r#""pool":20"#, r#""pool":0"#),
            (r#""score":1.5"#, r#""score":null"#),
            ("crossgate-trace/6", "crossgate-trace/5"),
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
