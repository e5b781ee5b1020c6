"""The order of the stages, and the only place that knows it.

    stage 1 -> gate -> stage 2 -> conclude -> RouteResult

Library, command line, hooks and evaluation all call `run`, or `arun` from an event loop. Here is
what has effects: stage 1's embedder, the rerankers, the clock, telemetry. What decides is two pure
functions of the core, `gate` and `conclude`, so that a trace alone is enough to decide again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import crossgate._core as _core
from crossgate._reranking.chain import CallOutcome, Chain, RerankerCall, Stage2Outcome
from crossgate._reranking.contract import NO_DEADLINE, Deadline
from crossgate._support.checks import is_text
from crossgate._values.results import (
    Degradation,
    Document,
    Hit,
    Passage,
    ResultWarning,
    RouteResult,
    Verdict,
)

if TYPE_CHECKING:
    from crossgate._telemetry.events import TelemetryHook, Watch

STAGE1 = "stage1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage1:
    """What stage 1 returns.

    Attributes:
        scored: The candidates.
        documents: What they say, by id.
        degraded: What of stage 1 did not run as configured.
        warnings: Signs that what it found is worth less than it looks.
        timings: Milliseconds per step of stage 1.
        need: The probability that the query asks for anything that a document could serve, in
            [0, 1]; None where that is not known, and where the caller has decided that it does.
        indexes: Places of the documents in the caller's list, from 0; none without such a list.
    """

    scored: Sequence[_core.Scored]
    documents: Mapping[str, Document]
    degraded: tuple[Degradation, ...] = ()
    warnings: tuple[ResultWarning, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    need: float | None = None
    indexes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One query, with all that its decision takes.

    Attributes:
        query: The query, already checked.
        stage1: Finds and scores the candidates.
        profile: What was fitted.
        policy: What was chosen.
        rerankers: Stage 2, asked only in doubt; an empty chain where it is switched off.
        limit: Maximum number of documents to select, or None for all that pass.
        section: What part of the caller's work this is for; picks the floor.
        grade: How good the caller finds the retrieval, `A` to `F`; a low one relaxes the floor.
        min_confidence: The least confidence of an answer; None for what the profile says alone.
        require_overlap: Whether, without vectors, nothing is relevant that shares no term.
        deadline: When the query must be decided.
        telemetry: Receives events; None for no telemetry.
        started: When the call entered, by `perf_counter`.
    """

    query: str
    stage1: Callable[[], Stage1]
    profile: _core.Profile
    policy: _core.Policy
    rerankers: Chain
    limit: int | None
    section: str | None = None
    grade: str | None = None
    min_confidence: float | None = None
    require_overlap: bool = False
    deadline: Deadline = NO_DEADLINE
    telemetry: TelemetryHook | None = None
    started: float = field(default_factory=perf_counter)


def run(request: Request) -> RouteResult:
    """Decide one query.

    Whatever a reranker raises degrades the result, at worst to the order of stage 1.
    """
    steps = _steps(request)
    reached = _advanced(steps, None)
    while isinstance(reached, RerankerCall):
        reached = _advanced(steps, reached.run())
    return reached


async def arun(request: Request) -> RouteResult:
    """Do what `run` does, and leave the event loop free.

    A remote reranker is awaited; cancelling this cancels its requests. What keeps the processor
    busy, stage 1 and local rerankers, runs on threads, and goes on to its end where this is
    cancelled.
    """
    import asyncio

    steps = _steps(request)
    reached = await asyncio.to_thread(_advanced, steps, None)
    while isinstance(reached, RerankerCall):
        reached = await asyncio.to_thread(_advanced, steps, await reached.arun())
    return reached


def _advanced(
    steps: Generator[RerankerCall, CallOutcome, RouteResult], answer: CallOutcome | None
) -> RerankerCall | RouteResult:
    """Go on with a decision, up to the next call of a reranker or to its end."""
    try:
        return next(steps) if answer is None else steps.send(answer)
    except StopIteration as done:  # which a future could not hold
        result: RouteResult = done.value
        return result


def _steps(request: Request) -> Generator[RerankerCall, CallOutcome, RouteResult]:
    """Decide one query; a call to a reranker is yielded, since waiting is the caller's affair."""
    start = request.started
    profile, policy = request.profile, request.policy
    watch = None if request.telemetry is None else _watch(request.telemetry)
    stage1 = request.stage1()
    timings = dict(stage1.timings)
    if watch:
        watch.stage1_finished(len(stage1.scored), milliseconds(start))

    asked = _asked(request, stage1)
    gated = _core.gate(stage1.scored, profile, policy, asked)
    if gated.cliff is not None and gated.cliff.cut and not request.rerankers.is_available():
        # Asked only now that there is something to cut: a fallback wants more candidates, not less.
        asked = asked.replace(reranker_down=True)
        gated = _core.gate(stage1.scored, profile, policy, asked)
    if watch:
        watch.gate_decided(gated)

    degraded = [
        *stage1.degraded,
        *(Degradation(code=note.code, detail=note.detail) for note in gated.notes),
    ]
    reply = Stage2Outcome()
    if gated.verdict == Verdict.AMBIGUOUS and request.rerankers:
        before = perf_counter()
        passages = _passages(gated, stage1.documents)
        reply = yield from request.rerankers.ask(request.query, passages, request.deadline, watch)
        degraded += reply.degraded
        timings["stage2"] = milliseconds(before)

    decision = _core.conclude(gated, reply.pairs, reply.identity, profile, policy)
    degraded += [Degradation(code=note.code, detail=note.detail) for note in decision.notes]
    timings["total"] = milliseconds(start)
    trace = json.loads(
        _core.trace(profile, policy, asked, gated, reply.identity, reply.pairs, decision)
    )
    trace |= {
        "query_sha256": hashlib.sha256(request.query.encode()).hexdigest(),
        "budget_ms": request.deadline.budget_ms,
        "asked": [list(answer) for answer in reply.asked],
    }
    hits = _hits(gated, decision, reply, stage1)
    warnings = (ResultWarning(code=note.code, detail=note.detail) for note in decision.warnings)
    result = RouteResult(
        verdict=Verdict(decision.verdict),
        reason=decision.reason,
        stage=decision.stage,
        confidence=decision.confidence,
        selected=tuple(hit for hit in hits if hit.dropped is None),
        hits=hits,
        degraded=tuple(degraded),
        timings=timings,
        trace=trace,
        warnings=(*stage1.warnings, *warnings),
    )
    return watch.route_finished(request.query, result) if watch else result


def replay(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Decide again from a trace, without index, models or clock.

    Returns:
        What the trace should hold under `gate` and `decision`, to be compared with what it does.

    Raises:
        ProfileError: `profile_malformed` or `policy_malformed`.
        InputError: `malformed_trace` if it cannot be read; `not_finite` for a score that is not.
    """
    gated, decision = _core.replay(json.dumps(trace))
    return {"gate": gated.to_dict(), "decision": decision.to_dict()}


def _asked(request: Request, stage1: Stage1) -> _core.Request:
    sources: dict[str, str] = {}
    if request.policy.cliff_core is not None:
        sources = sources_of(stage1.documents, request.policy.source_type)
    return _core.Request(
        limit=None if request.limit is None else min(request.limit, sys.maxsize),
        section=request.section,
        grade=request.grade,
        require_overlap=request.require_overlap,
        sources=sources,
        need=stage1.need,
        min_confidence=request.min_confidence,
    )


def sources_of(documents: Mapping[str, Document], key: str) -> dict[str, str]:
    """Return the source types of documents by id; one that is no text counts as none."""
    kinds = {id: document.metadata.get(key) for id, document in documents.items()}
    return {id: kind for id, kind in kinds.items() if isinstance(kind, str) and is_text(kind)}


def _passages(gated: _core.Gated, documents: Mapping[str, Document]) -> list[Passage]:
    scored = gated.scored
    return [
        Passage(
            id=candidate.id,
            text=readable(documents[candidate.id], candidate.passage),
            cosine=candidate.cosine,
            bm25=candidate.bm25,
            blend=candidate.blend,
        )
        for candidate in (scored[rank] for rank in gated.pool)
    ]


def readable(document: Document, passage: _core.Span | None) -> str:
    """Return what stage 2 reads: the head, and the passage of the body that fits best."""
    if passage is None:
        return document.content
    return f"{document.content}\n{document.body[passage.start : passage.end]}"


def _hits(
    gated: _core.Gated, decision: _core.Decision, reply: Stage2Outcome, stage1: Stage1
) -> tuple[Hit, ...]:
    scored, pairs = gated.scored, {pair.id: pair for pair in reply.pairs}
    hits = []
    for place in decision.places:
        candidate, pair = scored[place.stage1_rank - 1], pairs.get(place.id)
        read = None if place.stage2_rank is None else pair
        hits.append(
            Hit(
                document=stage1.documents[place.id],
                cosine=candidate.cosine,
                bm25=candidate.bm25,
                blend=candidate.blend,
                rerank_score=None if read is None else read.score,
                score=place.score,
                stage1_rank=place.stage1_rank,
                stage2_rank=place.stage2_rank,
                provider=STAGE1 if read is None else reply.name or STAGE1,
                truncated=read is not None and read.truncated,
                dropped=place.dropped,
                relevance=place.relevance,
                passage=candidate.passage,
                index=stage1.indexes.get(place.id),
            )
        )
    return tuple(hits)


def _watch(hook: TelemetryHook) -> Watch:
    # Ten milliseconds to import, and of no use to most.
    from crossgate._telemetry.events import Watch

    return Watch(hook)


def milliseconds(since: float) -> float:
    """Return the milliseconds since a reading of `perf_counter`."""
    return (perf_counter() - since) * 1000
