"""The modes that are compared, and deciding a stored query again in any of them.

The modes use the same profile, and with it the same blend, weights and guardrails. They differ only
in the gate:

    never     no gate and no reranker: the order of stage 1
    gated     the profile's gate, and its rule to stop reading the pool
    always    no gate: the reranker reads the whole pool of every query; without vectors, only of
              queries that share a term with a document
    remote    no gate: a provider's reranker reads the pool of every query; only if asked for
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

import crossgate._core as _core
import crossgate._decision.cascade as cascade
from crossgate._core import Policy, Profile
from crossgate._decision.cascade import Request, Stage1
from crossgate._evaluation.runs.stored_runs import Mode, RunHeader, StoredQuery
from crossgate._reranking.chain import Chain
from crossgate._reranking.contract import Deadline, Enough, PairScore, Scores
from crossgate._support.errors import SourceError
from crossgate._values.profile_files import check_models
from crossgate._values.prompts import read_prompt
from crossgate._values.results import Document, Passage, RouteResult

STAGES: tuple[Mode, Mode] = ("never", "always")
"""The modes that end with stage 1 and with stage 2 for every query."""


def profile_of(mode: Mode, profile: Profile) -> Profile:
    """Return the profile that a mode runs with."""
    if mode == "gated":
        return profile
    answer = profile.answer.replace(rerank_threshold=None)
    return profile.replace(winner={}, answer=answer, anytime=None)


def policy_of(mode: Mode, policy: Policy) -> Policy:
    """Return the policy that a mode runs with."""
    return policy if mode == "gated" else policy.replace(lexical=None)


def without_thresholds(profile: Profile) -> Profile:
    """Return a profile that states its probabilities but applies no threshold to them.

    Candidates of too little relevance stay dropped: their threshold is a different one.
    """
    return profile.replace(answer={}, runner_up={})


def decide(
    query: StoredQuery,
    profile: Profile,
    mode: Mode,
    *,
    remote: str | None = None,
    policy: Policy | None = None,
    hold_back: bool = True,
) -> RouteResult:
    """Route a stored query, with its stored scores instead of the models; see `decide_all`."""
    (result,) = decide_all(
        [query], profile, mode, remote=remote, policy=policy, hold_back=hold_back, traced=True
    )
    return result


def decide_all(
    queries: Iterable[StoredQuery],
    profile: Profile,
    mode: Mode,
    *,
    remote: str | None = None,
    policy: Policy | None = None,
    hold_back: bool = True,
    traced: bool = False,
) -> list[RouteResult]:
    """Route stored queries, with their stored scores instead of the models.

    The cascade itself runs, so that the order of the stages is written once. All that pass are
    selected. If the profile's blend differs from the run's, it orders the candidates of the run.

    Args:
        queries: The queries.
        profile: The profile to decide by.
        mode: The mode.
        remote: Identity of the remote reranker, for the mode of that name. If it did not answer,
            the order of stage 1 is kept.
        policy: The policy to decide by; None for the default.
        hold_back: Whether the answer may be empty. Otherwise no threshold, floor or guardrail keeps
            a candidate from being selected.
        traced: Whether the results have whole traces.
    """
    # Whether the profile suits the stored run was checked before, by `check_suitable`.
    identity = (remote if mode == "remote" else profile.reranker) or "stored"
    policy = policy or Policy()
    if not hold_back:
        profile = without_thresholds(profile).replace(any_fits={}, relevance={})
        policy = Policy()
    # A profile takes longer to change than a query to decide.
    used, applied = profile_of(mode, profile), policy_of(mode, policy)
    results = []
    for query in queries:
        pairs = query.remote_pairs if mode == "remote" else query.pairs
        reranker = None if mode == "never" else _Remembered(pairs, identity=identity)
        results.append(
            cascade.run(
                Request(
                    prompt=read_prompt(query.text),
                    stage1=partial(_stage1, query, policy.source_type, need=hold_back),
                    profile=used,
                    policy=applied,
                    rerankers=Chain(reranker),
                    limit=None,
                    require_overlap=hold_back,
                    traced=traced,
                )
            )
        )
    return results


def _stage1(query: StoredQuery, source_type: str, *, need: bool) -> Stage1:
    documents = {
        scores.id: Document(
            id=scores.id,
            text=scores.id,
            # A run holds no texts, and to look for exclusions in the ids takes time.
            is_description=False,
            metadata={source_type: query.sources[scores.id]} if scores.id in query.sources else {},
        )
        for scores in query.scored
    }
    return Stage1(
        scored=query.scored,
        documents=documents,
        need=query.need if need else None,
        compared=query.documents,
    )


def reblended(query: StoredQuery, profile: Profile) -> StoredQuery:
    """Return a query with its candidates blended and ordered by a profile.

    Raises:
        SourceError: `unsuitable_run` if the candidates have no cosine to blend, or if the run holds
            no score of their bodies under the profile's weight.
    """
    weight = profile.blend.body_weight
    if query.reweighed and weight not in query.reweighed:
        known = ", ".join(f"{other:g}" for other in query.reweighed)
        message = f"query {query.id!r} was run with body weights of {known}, not {weight:g}"
        raise SourceError("unsuitable_run", f"{message}: measure it with this profile")
    if any(scores.cosine is None for scores in query.scored):
        message = f"query {query.id!r} was run without vectors: its blend cannot be changed"
        raise SourceError("unsuitable_run", message)
    bm25 = dict(query.reweighed.get(weight, {}))
    return replace(
        query, scored=tuple(_core.reblend(query.scored, profile.blend, bm25, profile.evidence))
    )


def keeps_pools(header: RunHeader, profile: Profile) -> bool:
    """Return whether stage 2 reads the same candidates under a profile as in the run."""
    mine = header.profile
    return (mine.blend, mine.per_channel, mine.pool) == (
        profile.blend,
        profile.per_channel,
        profile.pool,
    )


def check_suitable(header: RunHeader, profile: Profile, policy: Policy) -> tuple[str, ...]:
    """Refuse a profile or a policy that a run cannot be decided by, and return caveats.

    Raises:
        ProfileError: `profile_mismatch` if it was fitted for other models.
        SourceError: `unsuitable_run` if the run lacks logits that one of them needs.
    """
    pairs = {"profile": (profile, header.profile), "policy": (policy, header.policy)}
    changed = [name for name, (mine, measured) in pairs.items() if mine != measured]
    if not changed:
        return ()
    check_models(profile, embedder=header.embedder or None, reranker=header.reranker)
    if "always" not in header.modes:
        message = (
            "the run was made without the mode always, so another profile or policy lacks logits: "
            "measure it with them"
        )
        raise SourceError("unsuitable_run", message)
    notes = [
        f"decided again from a stored run by another {' and '.join(changed)}: times are taken from "
        "its modes never and always"
    ]
    if (profile.blend, profile.per_channel) != (header.profile.blend, header.profile.per_channel):
        notes.append("the profile searches differently, but the candidates are those of the run")
    if "remote" in header.modes and not keeps_pools(header, profile):
        notes.append("the mode remote is left out: it read the pools of the run's profile")
    return tuple(notes)


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The reranker of a stored query."""

    pairs: Mapping[str, PairScore]
    identity: str
    name: str = "stored"

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> list[PairScore | None]:
        """Return the stored scores; a remote reranker may have scored only some, or none."""
        return [self.pairs.get(passage.id) for passage in passages]

    def score_until(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline, enough: Enough
    ) -> Scores:
        """Return the stored scores up to the passage at which the reranker would have stopped."""
        scores = self.score(query, passages, deadline=deadline)
        known = [score for score in takewhile(lambda score: score is not None, scores) if score]
        for count in range(1, len(known)):
            if enough(known[:count]):
                rest = [None] * (len(scores) - count)
                return Scores([*known[:count], *rest], stopped=True)
        return Scores(scores)
