"""The cascade, which defines the order of the stages.

    stage 1 -> gate -> stage 2 -> conclude -> RouteResult

Library, command line, hooks and evaluation call `run`, or `arun` from an event loop. This module
has the side effects: the embedder of stage 1, rerankers, clock and telemetry. Two pure functions of
the core, `gate` and `conclude`, decide, so that a trace is enough to replay a decision.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import crossgate._core as _core
from crossgate._decision.stage1 import Stage1, milliseconds, readable
from crossgate._reranking.chain import CallOutcome, CanStop, Chain, RerankerCall, Stage2Outcome
from crossgate._reranking.contract import NO_DEADLINE, Deadline, OutOfTime
from crossgate._retrieval.passages import Window, is_long, windows
from crossgate._support.checks import is_text, safe_repr
from crossgate._support.errors import InputError
from crossgate._support.wording import counted
from crossgate._values.results import (
    Degradation,
    Document,
    Hit,
    Passage,
    ResultWarning,
    RouteResult,
    Verdict,
    span,
)

if TYPE_CHECKING:
    from crossgate._telemetry.events import TelemetryHook, Watch
    from crossgate._values.inputs import Prompt
    from crossgate._values.options import DecisionOptions
    from crossgate._values.results import RouteResult


STAGE1 = "stage1"
EMPTY = "empty"
_SHORT_QUERY = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One query with everything that its decision needs.

    Attributes:
        prompt: The prompt in its parts, already checked.
        stage1: Finds and scores the candidates.
        profile: The fitted settings.
        policy: The policy, with the guardrails of `options`.
        rerankers: Stage 2, used only for ambiguous queries; an empty chain switches it off.
        options: What the caller has chosen.
        require_overlap: Whether, without vectors, a document must share a term with the query.
        deadline: When the query must be decided.
        telemetry: Receives events; None for no telemetry.
        started: Start of the call, by `perf_counter`.
        traced: Whether the trace is whole. Otherwise it has only the key `asked`, and a decision
            takes half of the time.
    """

    prompt: Prompt
    stage1: Callable[[], Stage1]
    profile: _core.Profile
    policy: _core.Policy
    rerankers: Chain
    options: DecisionOptions
    require_overlap: bool = False
    deadline: Deadline = NO_DEADLINE
    telemetry: TelemetryHook | None = None
    started: float = field(default_factory=perf_counter)
    traced: bool = True


def run(request: Request) -> RouteResult:
    """Decide one query.

    If a reranker raises, the result is degraded, at worst to the order of stage 1.
    """
    steps = _steps(request)
    reached = _advanced(steps, None)
    while isinstance(reached, RerankerCall):
        reached = _advanced(steps, reached.run())
    return reached


async def arun(request: Request) -> RouteResult:
    """Like `run`, without blocking the event loop.

    Remote rerankers are awaited, and cancellation cancels their requests. Stage 1 and local
    rerankers run on threads, and continue to their end after a cancellation.
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
    """Continue a decision until the next reranker call or the result."""
    try:
        return next(steps) if answer is None else steps.send(answer)
    except StopIteration as done:  # a future cannot carry a StopIteration
        result: RouteResult = done.value
        return result


def _steps(request: Request) -> Generator[RerankerCall, CallOutcome, RouteResult]:
    """Decide one query; reranker calls are yielded, so that the caller can run or await them."""
    start = request.started
    profile, policy = request.profile, request.policy
    watch = None if request.telemetry is None else _watch(request.telemetry)
    stage1 = request.stage1()
    timings = dict(stage1.timings)
    if watch:
        taken = milliseconds(start)
        watch.send("stage1_finished", candidate_count=len(stage1.scored), duration_ms=taken)

    asked = _asked(request, stage1)
    gated = _core.gate(stage1.scored, profile, policy, asked)
    if gated.cliff is not None and gated.cliff.cut and not request.rerankers.is_available():
        # Checked only if the pool would be cut: a fallback reranker needs more candidates.
        asked = asked.replace(reranker_down=True)
        gated = _core.gate(stage1.scored, profile, policy, asked)
    if watch:
        watch.gate_decided(gated)

    degraded = [
        *stage1.degraded,
        *(Degradation(code=note.code, detail=note.detail) for note in gated.notes),
    ]
    reply = Stage2Outcome()
    found_warnings = list(stage1.warnings)
    chosen = stage1.windows
    if gated.verdict == Verdict.AMBIGUOUS and request.rerankers:
        before = perf_counter()
        query = stage1.read or stage1.corrected or request.prompt.searched
        chosen = _windows(query, gated, stage1, request.deadline)
        passages = _passages(gated, stage1.documents, chosen)
        reply = yield from request.rerankers.ask(
            query, passages, request.deadline, watch, _stop_rule(gated, profile)
        )
        degraded += reply.degraded
        found_warnings += _cut_query(query, reply, request.rerankers)
        timings["stage2"] = milliseconds(before)

    decision = _core.conclude(gated, reply.pairs, reply.identity, profile, policy)
    degraded += [Degradation(code=note.code, detail=note.detail) for note in decision.notes]
    timings["total"] = milliseconds(start)
    trace: dict[str, Any] = {}
    if request.traced:
        trace = json.loads(
            _core.trace(profile, policy, asked, gated, reply.identity, reply.pairs, decision)
        )
        trace |= {
            "query_sha256": _core.sha256_of(request.prompt.text.encode()),
            "prompt": request.prompt.to_trace(),
            "budget_ms": request.deadline.budget_ms,
            **({"context": dict(stage1.context)} if stage1.context else {}),
        }
    trace["asked"] = [list(answer) for answer in reply.asked]
    hits = _hits(gated, decision, reply, stage1, chosen)
    by_id = {hit.id: hit for hit in hits}
    found_warnings += [
        ResultWarning(code=note.code, detail=note.detail) for note in decision.warnings
    ]
    result = RouteResult(
        verdict=Verdict(decision.verdict),
        reason=decision.reason,
        stage=decision.stage,
        confidence=decision.confidence,
        any_fits=decision.any_fits,
        shortlist=tuple(by_id[id] for id in decision.shortlist),
        coverage=decision.coverage,
        selected=tuple(hit for hit in hits if hit.dropped is None),
        hits=hits,
        degraded=tuple(degraded),
        timings=timings,
        trace=trace,
        warnings=tuple(found_warnings),
    )
    return watch.route_finished(request.prompt.text, result) if watch else result


def replay(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Decide again from a trace, without index, models or clock.

    Returns:
        The recomputed values of the trace's keys `gate` and `decision`.

    Raises:
        ProfileError: `profile_malformed` or `policy_malformed`.
        InputError: `malformed_trace` if it cannot be parsed; `not_finite` for such a score.
    """
    gated, decision = _core.replay(json.dumps(trace))
    return {"gate": gated.to_dict(), "decision": decision.to_dict()}


def _stop_rule(gated: _core.Gated, profile: _core.Profile) -> CanStop | None:
    """Return the rule by which stage 2 stops reading, or None if the profile has no model of it."""
    if profile.anytime is None:
        return None
    return lambda pairs, identity: _core.can_stop(gated, pairs, identity, profile)


def _asked(request: Request, stage1: Stage1) -> _core.Request:
    sources: dict[str, str] = {}
    if request.policy.cliff_core is not None:
        sources = sources_of(stage1.documents, request.policy.source_type)
    options = request.options
    return _core.Request(
        limit=None if options.limit is None else min(int(options.limit), sys.maxsize),
        section=options.section,
        grade=options.grade,
        require_overlap=request.require_overlap,
        sources=sources,
        documents=stage1.compared,
        needs_document=stage1.need,
        names_unknown=stage1.unknown_name,
        unreadable=stage1.unreadable,
        min_confidence=None if options.min_confidence is None else float(options.min_confidence),
        coverage=None if options.coverage is None else float(options.coverage),
        max_shortlist=None if options.max_shortlist is None else int(options.max_shortlist),
    )


def sources_of(documents: Mapping[str, Document], key: str) -> dict[str, str]:
    """Return the source types of documents by id; values that are not text are ignored."""
    kinds = {id: document.metadata.get(key) for id, document in documents.items()}
    return {id: kind for id, kind in kinds.items() if isinstance(kind, str) and is_text(kind)}


def _windows(
    query: str, gated: _core.Gated, stage1: Stage1, deadline: Deadline
) -> Mapping[str, Window]:
    """Return the windows of the long documents of the pool, and those that are known."""
    pool = (gated.scored[rank].id for rank in gated.pool)
    unknown = [stage1.documents[id] for id in pool if id not in stage1.windows]
    try:
        deadline.check()
        return {**stage1.windows, **windows(query, unknown, check=deadline.check)}
    except OutOfTime:  # stage 2 reads nothing, and says so
        return stage1.windows


def _cut_query(query: str, reply: Stage2Outcome, rerankers: Chain) -> list[ResultWarning]:
    """Return a warning if the reranker that answered read only the ends of the query."""
    if reply.identity is None or len(query) <= _SHORT_QUERY:
        return []
    for reranker in rerankers:
        if reranker.identity == reply.identity and getattr(reranker, "cuts", None):
            if not reranker.cuts(query):  # type: ignore[attr-defined]
                return []
            detail = (
                f"{reranker.name} read only the beginning and the end of the query of "
                f"{counted(len(query), 'character')}: pass only the part with the request"
            )
            return [ResultWarning(code="query_cut", detail=detail)]
    return []


def _passages(
    gated: _core.Gated, documents: Mapping[str, Document], chosen: Mapping[str, Window]
) -> list[Passage]:
    scored = gated.scored
    return [
        Passage(
            id=candidate.id,
            text=chosen[candidate.id].text
            if candidate.id in chosen
            else readable(documents[candidate.id], candidate.passage),
            cosine=candidate.cosine,
            bm25=candidate.bm25,
            blend=candidate.blend,
        )
        for candidate in (scored[rank] for rank in gated.pool)
    ]


def _hits(
    gated: _core.Gated,
    decision: _core.Decision,
    reply: Stage2Outcome,
    stage1: Stage1,
    chosen: Mapping[str, Window],
) -> tuple[Hit, ...]:
    scored, pairs = gated.scored, {pair.id: pair for pair in reply.pairs}
    hits = []
    for place in decision.places:
        candidate, pair = scored[place.stage1_rank - 1], pairs.get(place.id)
        read = None if place.stage2_rank is None else pair
        window = chosen.get(place.id)
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
                truncated=window is not None
                or is_long(stage1.documents[place.id])
                or (read is not None and read.truncated),
                dropped=place.dropped,
                relevance=place.relevance,
                passage=candidate.passage if window is None else span(window.start, window.end),
                index=stage1.indexes.get(place.id),
            )
        )
    for document in stage1.empty:
        hits.append(_empty(document, len(hits) + 1, stage1))
    return tuple(hits)


def _empty(document: Document, rank: int, stage1: Stage1) -> Hit:
    """Return the hit of a document without text, behind all others."""
    return Hit(
        document=document,
        cosine=None,
        bm25=0.0,
        blend=0.0,
        rerank_score=None,
        score=None,
        stage1_rank=rank,
        stage2_rank=None,
        provider=STAGE1,
        truncated=False,
        dropped=EMPTY,
        relevance=0.0,
        index=stage1.indexes.get(document.id),
    )


def _watch(hook: TelemetryHook) -> Watch:
    # Imported here: it costs ten milliseconds that calls without telemetry do not need.
    from crossgate._telemetry.events import Watch

    return Watch(hook)


Item = TypeVar("Item")
Progress = bool | Callable[[int, int], None]


def decide_many(
    decide: Callable[[Item], RouteResult], items: Iterable[Item], progress: Progress
) -> list[RouteResult]:
    """Decide each item; results keep the order of the items.

    Args:
        decide: Decides one item. Models release the interpreter's lock while they run, so threads
            use all cores.
        items: The queries.
        progress: Called with the number of decisions made so far and the total; True for a bar on
            stderr if that is a terminal, False for none.

    Raises:
        InputError: For the first bad query, with its position, from 0. Queries that have not
            started are then skipped.
    """
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise InputError("out_of_range", f"queries is {safe_repr(items)}: pass a list")
    given = list(items)
    with _shown(progress, len(given)) as report:
        return _decided(decide, given, report)


def _decided(
    decide: Callable[[Item], RouteResult], items: list[Item], report: Callable[[int], None]
) -> list[RouteResult]:
    # Imported here, since they cost milliseconds that a single decision of a hook does not need.
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from crossgate._runtime.threads import number_of_threads

    pool = ThreadPoolExecutor(number_of_threads(), "crossgate-many")
    try:
        futures = [pool.submit(decide, item) for item in items]
        for done, future in enumerate(as_completed(futures), start=1):
            if future.exception() is not None:
                break
            report(done)
        # Items start in order, so no item before the first failure is cancelled.
        pool.shutdown(cancel_futures=True)
        return [_result(position, future.result) for position, future in enumerate(futures)]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(position: int, result: Callable[[], RouteResult]) -> RouteResult:
    try:
        return result()
    except InputError as error:
        raise InputError(error.code, f"query {position}: {error}") from error


@contextmanager
def _shown(progress: Progress, total: int) -> Iterator[Callable[[int], None]]:
    if callable(progress):
        yield lambda done: progress(done, total)
        return
    if not progress or sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc="deciding", unit="", leave=False) as bar:

        def report(done: int) -> None:
            bar.update(done - bar.n)

        yield report
