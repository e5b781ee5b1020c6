"""The order of the stages, and the only place that knows it.

    stage 1 -> gate -> pool -> stage 2 -> combine -> guardrails -> RouteResult

Library, command line, hooks and evaluation all call `run`. What can fail or takes time (stage 1's
embedder, stage 2's model) is called here; what decides is `conclude`, a pure function of the
scores, so that `replay` can decide again from a trace alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from crossgate import _core, health
from crossgate.errors import ModelError
from crossgate.profile import Profile
from crossgate.types import Degradation, Document, Hit, RouteResult, Verdict

if TYPE_CHECKING:
    from crossgate.reranking import PairScore, Reranker

STAGE1 = "stage1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage1:
    """What stage 1 found.

    Attributes:
        scored: The candidates, best blend first.
        degraded: What of stage 1 did not run as configured.
        timings: Milliseconds per step of stage 1.
    """

    scored: Sequence[_core.Scored]
    degraded: tuple[Degradation, ...] = ()
    timings: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where one candidate ended up."""

    scored: _core.Scored
    pair: PairScore | None
    score: float | None
    stage1_rank: int
    stage2_rank: int | None
    dropped: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conclusion:
    """Everything about a decision but the documents themselves."""

    reason: str
    stage: int
    places: tuple[_Place, ...]


def run(
    query: str,
    stage1: Callable[[], Stage1],
    document: Callable[[str], Document | None],
    *,
    profile: Profile,
    reranker: Callable[[], Reranker | None],
    limit: int | None,
) -> RouteResult:
    """Decide one query.

    Args:
        query: The query, already checked.
        stage1: Scores the candidates.
        document: Returns a candidate's document by id.
        profile: Thresholds and weights.
        reranker: Returns stage 2, or None where it is switched off. Called only in doubt; whatever
            it raises degrades the result to the order of stage 1.
        limit: How many documents are selected at most, or None for all that pass.
    """
    start = perf_counter()
    found = stage1()
    degraded = list(found.degraded)
    timings = dict(found.timings or {})
    # Another thread may have deleted a document since stage 1 found it.
    documents = {
        one.id: present for one in found.scored if (present := document(one.id)) is not None
    }
    scored = [one for one in found.scored if one.id in documents]
    decision = _core.decide(scored, profile.gate)
    pairs: Mapping[str, PairScore] = {}
    provider, identity = STAGE1, None
    cliff = None
    if decision.verdict == Verdict.AMBIGUOUS:
        pool, cliff = _pool(scored, profile)
        before = perf_counter()
        try:
            tier = reranker()
            if tier is not None:
                name, identity = tier.name, tier.identity
                pairs = _score(tier, query, [documents[one.id] for one in pool])
                provider = name
        except Exception as error:  # whatever stage 2 does, stage 1 stands
            degraded.append(degradation("reranker", error))
        timings["stage2"] = milliseconds(before)
    conclusion = conclude(scored, decision, pairs, profile, limit)
    hits = tuple(_hit(place, documents, provider) for place in conclusion.places)
    timings["total"] = milliseconds(start)
    trace = {
        "schema": "crossgate-trace/1",
        "query_sha256": hashlib.sha256(query.encode()).hexdigest(),
        "profile": profile.to_dict(),
        "limit": limit,
        "stage1": [[one.id, one.cosine, one.bm25, one.overlap, one.blend] for one in scored],
        "signals": decision.signals and _fields(decision.signals),
        "cliff": cliff and _fields(cliff),
        "stage2": [[id, pair.logit, pair.truncated] for id, pair in pairs.items()],
        "provider": provider,
        "reranker": identity,
        "decision": _summary(decision, conclusion),
    }
    return RouteResult(
        verdict=Verdict(decision.verdict),
        reason=conclusion.reason,
        stage=conclusion.stage,
        selected=tuple(hit for hit in hits if hit.dropped is None),
        hits=hits,
        degraded=tuple(degraded),
        timings=timings,
        trace=trace,
        warnings=health.examine(scored, [one.logit for one in pairs.values()], profile.health),
    )


def conclude(
    scored: Sequence[_core.Scored],
    decision: _core.Decision,
    pairs: Mapping[str, PairScore],
    profile: Profile,
    limit: int | None,
) -> _Conclusion:
    """Order and select the candidates; a pure function of the scores."""
    stage1_ranks = {one.id: rank for rank, one in enumerate(scored, start=1)}
    if decision.verdict == Verdict.NOTHING_RELEVANT:
        places = [
            _Place(
                scored=one,
                pair=None,
                score=one.blend,
                stage1_rank=stage1_ranks[one.id],
                stage2_rank=None,
                dropped=Verdict.NOTHING_RELEVANT.value,
            )
            for one in scored
        ]
        return _Conclusion(reason=decision.reason, stage=1, places=tuple(places))
    if not pairs:
        ranked = [(one, one.blend) for one in scored]
        guardrails = profile.stage1_guardrails
        stage2_ranks: Mapping[str, int] = {}
    else:
        read = [one for one in scored if one.id in pairs]
        logits = [pairs[one.id].logit for one in read]
        scores = _core.combine(read, logits, profile.blend, profile.combine)
        stage2_ranks = dict(zip((one.id for one in read), _core.ranks(read, scores), strict=True))
        ranked = sorted(zip(read, scores, strict=True), key=lambda pair: stage2_ranks[pair[0].id])
        guardrails = profile.stage2_guardrails
    most = None if limit is None else min(limit, len(ranked))
    dropped = _core.passes([(score, one.blend) for one, score in ranked], guardrails, limit=most)
    places = [
        _Place(
            scored=one,
            pair=pairs.get(one.id),
            score=score,
            stage1_rank=stage1_ranks[one.id],
            stage2_rank=stage2_ranks.get(one.id),
            dropped=reason,
        )
        for (one, score), reason in zip(ranked, dropped, strict=True)
    ]
    placed = {place.scored.id for place in places}
    places += [
        _Place(
            scored=one,
            pair=None,
            score=None,
            stage1_rank=stage1_ranks[one.id],
            stage2_rank=None,
            dropped="not_reranked",
        )
        for one in scored
        if one.id not in placed
    ]
    reason = decision.reason
    if pairs:
        reason = "reranked" if None in dropped else "rejected"
    return _Conclusion(reason=reason, stage=2 if pairs else 1, places=tuple(places))


def replay(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Decide again from a trace, without index, models or clock.

    Returns:
        The `decision` that the trace should hold, to be compared with the one that it does.

    Raises:
        ProfileError: `profile_malformed` if the trace's profile cannot be read.
        InputError: `not_finite` if a score in the trace is no number.
    """
    from crossgate.reranking import PairScore

    profile = Profile.from_dict(trace["profile"])
    scored = [
        _core.Scored(id, cosine=cosine, bm25=bm25, overlap=overlap, blend=blend)
        for id, cosine, bm25, overlap, blend in trace["stage1"]
    ]
    pairs = {id: PairScore(logit, truncated) for id, logit, truncated in trace["stage2"]}
    decision = _core.decide(scored, profile.gate)
    return _summary(decision, conclude(scored, decision, pairs, profile, trace["limit"]))


def _pool(
    scored: Sequence[_core.Scored], profile: Profile
) -> tuple[Sequence[_core.Scored], _core.Tightened | None]:
    """Return the candidates that stage 2 reads, and what became of the cliff."""
    pool = scored[: profile.pool.rerank_top_k]
    if profile.pool.core is None:
        return pool, None
    cliff = _core.tighten(
        [one.blend for one in pool], [], core=profile.pool.core, static_floor=-1.0
    )
    return pool[: cliff.keep], cliff


def _score(tier: Reranker, query: str, pool: Sequence[Document]) -> Mapping[str, PairScore]:
    from crossgate.reranking import PairScore

    scores = tier.score(query, [one.content for one in pool])
    if len(scores) != len(pool):
        raise ValueError(f"{len(scores)} scores for {len(pool)} documents")
    pairs = {}
    for one, pair in zip(pool, scores, strict=True):
        logit = float(pair.logit)
        if not math.isfinite(logit):
            raise ValueError(f"the logit of {one.id!r} is {logit}")
        pairs[one.id] = PairScore(logit, bool(pair.truncated))
    return pairs


def degradation(part: str, error: Exception) -> Degradation:
    """Name what went wrong in a part of the cascade that the decision can do without.

    Args:
        part: `embedder` or `reranker`.
        error: What it raised.
    """
    absent = isinstance(error, ModelError) and error.code != "model_failed"
    detail = next(iter(str(error).splitlines()), "") or type(error).__name__
    return Degradation(code=f"{part}_{'unavailable' if absent else 'failed'}", detail=detail)


def milliseconds(since: float) -> float:
    """Return the milliseconds since a reading of `perf_counter`."""
    return (perf_counter() - since) * 1000


def _hit(place: _Place, documents: Mapping[str, Document], provider: str) -> Hit:
    one, pair = place.scored, place.pair
    return Hit(
        document=documents[one.id],
        cosine=one.cosine,
        bm25=one.bm25,
        blend=one.blend,
        logit=None if pair is None else pair.logit,
        score=place.score,
        stage1_rank=place.stage1_rank,
        stage2_rank=place.stage2_rank,
        provider=STAGE1 if pair is None else provider,
        truncated=pair is not None and pair.truncated,
        dropped=place.dropped,
    )


def _summary(decision: _core.Decision, conclusion: _Conclusion) -> dict[str, Any]:
    return {
        "verdict": decision.verdict,
        "reason": conclusion.reason,
        "stage": conclusion.stage,
        "selected": [one.scored.id for one in conclusion.places if one.dropped is None],
        "places": [
            [one.scored.id, one.score, one.stage1_rank, one.stage2_rank, one.dropped]
            for one in conclusion.places
        ],
    }


def _fields(value: object) -> dict[str, Any]:
    return {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}
