"""The order of the stages, and the only place that knows it.

    stage 1 -> floor -> gate -> pool -> stage 2 -> combine -> guardrails -> RouteResult

Library, command line, hooks and evaluation all call `run`, or `arun` from an event loop. What can
fail or takes time (stage 1's embedder, stage 2's tiers) is called here; what decides is `conclude`,
a pure function of the scores, so that `replay` can decide again from a trace alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from crossgate import _core
from crossgate import _floors as floors
from crossgate import _health as health
from crossgate._clock import ENDLESS, Deadline, milliseconds
from crossgate._profile import Profile, TierSettings
from crossgate._types import (
    Degradation,
    Document,
    Hit,
    Passage,
    ResultWarning,
    RouteResult,
    Verdict,
)

if TYPE_CHECKING:
    from crossgate._floors import Tightening
    from crossgate._reranking.chain import Call, Reply
    from crossgate._reranking.contract import PairScore, Reranker, Scores
    from crossgate._telemetry.events import TelemetryHook, Watch

STAGE1 = "stage1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage1:
    """What stage 1 found.

    Attributes:
        scored: The candidates, best blend first.
        degraded: What of stage 1 did not run as configured.
        warnings: Signs that what it found is worth less than it looks.
        timings: Milliseconds per step of stage 1.
    """

    scored: Sequence[_core.Scored]
    degraded: tuple[Degradation, ...] = ()
    warnings: tuple[ResultWarning, ...] = ()
    timings: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One query, with all that its decision takes.

    Attributes:
        query: The query, already checked.
        stage1: Scores the candidates.
        document: Returns a candidate's document by id.
        profile: Thresholds and weights.
        tiers: Return stage 2, the preferred reranker first; none where it is switched off. Called
            only in doubt, and each only if those before it did not answer.
        limit: How many documents are selected at most, or None for all that pass.
        section: What part of the caller's work this is for; picks the floor.
        grade: How good the caller finds the retrieval, `A` to `F`; a low one relaxes the floor.
        deadline: When the query must be decided.
        telemetry: Is told what happens; None for nobody.
    """

    query: str
    stage1: Callable[[], Stage1]
    document: Callable[[str], Document | None]
    profile: Profile
    tiers: Sequence[Callable[[], Reranker]]
    limit: int | None
    section: str | None = None
    grade: str | None = None
    deadline: Deadline = ENDLESS
    telemetry: TelemetryHook | None = None


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
    confidence: float | None
    places: tuple[_Place, ...]


def run(request: Request) -> RouteResult:
    """Decide one query.

    Whatever a tier raises degrades the result, at worst to the order of stage 1.
    """
    steps = _steps(request)
    resume: Callable[[], Call] = partial(next, steps)
    while True:
        try:
            call = resume()
        except StopIteration as done:
            result: RouteResult = done.value
            return result
        try:
            scores = call.run()
        except Exception as error:
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, scores)


async def arun(request: Request) -> RouteResult:
    """Do what `run` does, and leave the event loop free.

    A remote tier is awaited; cancelling this cancels its requests. What keeps the processor busy,
    stage 1 and local tiers, runs on threads, and goes on to its end where this is cancelled.
    """
    import asyncio

    steps = _steps(request)

    def resumed(resume: Callable[[], Call]) -> Call | RouteResult:
        # A future cannot hold a StopIteration.
        try:
            return resume()
        except StopIteration as done:
            result: RouteResult = done.value
            return result

    call = await asyncio.to_thread(resumed, partial(next, steps))
    while not isinstance(call, RouteResult):
        resume: Callable[[], Call]
        try:
            scores = await call.arun()
        except Exception as error:
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, scores)
        call = await asyncio.to_thread(resumed, resume)
    return call


def _steps(request: Request) -> Generator[Call, Scores, RouteResult]:
    """Decide one query; what a tier is asked is yielded, so that waiting is the caller's affair."""
    start = perf_counter()
    profile, section, grade = request.profile, request.section, request.grade
    watch = None if request.telemetry is None else _watch(request.telemetry)
    found = request.stage1()
    degraded = list(found.degraded)
    timings = dict(found.timings or {})
    if watch:
        watch.stage1_finished(len(found.scored), milliseconds(start))
    # Another thread may have deleted a document since stage 1 found it.
    documents = {
        one.id: present for one in found.scored if (present := request.document(one.id)) is not None
    }
    scored = [one for one in found.scored if one.id in documents]
    degraded += floors.notes(scored, profile, section, grade)
    floor = floors.floor_of(profile.floors, section, grade)
    eligible = [one for one in scored if floors.clears(one, floor)]
    decision = _core.decide(floors.judged(scored, floor), profile.gate, profile.answer)
    if watch:
        watch.gate_decided(decision.verdict, _reason(decision, scored, eligible))
    reply: Reply | None = None
    tightening = None
    if decision.verdict == Verdict.AMBIGUOUS:
        tightening = floors.tighten(
            scored,
            floors.sources_of(documents, profile.floors.source_type),
            profile,
            section=section,
            grade=grade,
            available=partial(_is_available, request.tiers),
        )
        if watch:
            watch.tightened(tightening)
        pool = _pool(eligible, tightening, floors.pool_size(profile, grade))
        if request.tiers:
            from crossgate._reranking.chain import ask

            before = perf_counter()
            passages = [
                Passage(
                    id=one.id,
                    text=documents[one.id].content,
                    cosine=one.cosine,
                    bm25=one.bm25,
                    blend=one.blend,
                )
                for one in pool
            ]
            reply = yield from ask(request.tiers, request.query, passages, request.deadline, watch)
            degraded += reply.degraded
            timings["stage2"] = milliseconds(before)
    pairs: Mapping[str, PairScore] = reply.scores if reply else {}
    identity = reply.identity if reply else None
    provider = (reply and reply.name) or STAGE1
    if pairs and profile.settings_for(identity) is None:
        degraded.append(_not_fitted(profile, identity))
    conclusion = conclude(
        scored, decision, pairs, profile, request.limit, identity, floor, tightening
    )
    hits = tuple(_hit(place, documents, provider) for place in conclusion.places)
    timings["total"] = milliseconds(start)
    trace = {
        "schema": "crossgate-trace/1",
        "query_sha256": hashlib.sha256(request.query.encode()).hexdigest(),
        "profile": {key: one for key, one in profile.to_dict().items() if key != "fitted"},
        "limit": request.limit,
        "section": section,
        "grade": grade,
        "floor": floor,
        "budget_ms": request.deadline.budget_ms,
        "stage1": [[one.id, one.cosine, one.bm25, one.overlap, one.blend] for one in scored],
        "signals": decision.signals and _fields(decision.signals),
        "tighten": tightening and tightening.to_dict(),
        "stage2": [[id, pair.score, pair.truncated] for id, pair in pairs.items()],
        "provider": provider,
        "reranker": identity,
        "tiers": [list(one) for one in reply.asked] if reply else [],
        "decision": _summary(decision, conclusion),
    }
    result = RouteResult(
        verdict=Verdict(decision.verdict),
        reason=conclusion.reason,
        stage=conclusion.stage,
        confidence=conclusion.confidence,
        selected=tuple(hit for hit in hits if hit.dropped is None),
        hits=hits,
        degraded=tuple(degraded),
        timings=timings,
        trace=trace,
        warnings=(
            *found.warnings,
            *health.examine(scored, [one.score for one in pairs.values()], profile.health),
        ),
    )
    return watch.route_finished(request.query, result) if watch else result


def conclude(
    scored: Sequence[_core.Scored],
    decision: _core.Decision,
    pairs: Mapping[str, PairScore],
    profile: Profile,
    limit: int | None,
    reranker: str | None,
    floor: float | None,
    tightening: Tightening | None,
) -> _Conclusion:
    """Order and select the candidates; a pure function of the scores.

    Args:
        scored: The candidates, best blend first.
        decision: What the gate made of them.
        pairs: What stage 2 made of them, by id; empty where it had no say.
        profile: Thresholds and weights.
        limit: How many are selected at most.
        reranker: Identity of the tier that made the pairs.
        floor: The least cosine of a candidate; None without a floor.
        tightening: What became of the cliff; None where nobody looked for one.
    """
    eligible = [one for one in scored if floors.clears(one, floor)]
    cut = tightening.cut if tightening is not None else frozenset()
    stage1_ranks = {one.id: rank for rank, one in enumerate(scored, start=1)}
    if decision.verdict == Verdict.NOTHING_RELEVANT:
        places = [
            _Place(
                scored=one,
                pair=None,
                score=one.blend,
                stage1_rank=stage1_ranks[one.id],
                stage2_rank=None,
                dropped=Verdict.NOTHING_RELEVANT.value
                if floors.clears(one, floor)
                else floors.BELOW_FLOOR,
            )
            for one in scored
        ]
        reason = _reason(decision, scored, eligible)
        return _Conclusion(
            reason=reason, stage=1, confidence=decision.confidence, places=tuple(places)
        )
    confidence = decision.confidence
    if not pairs:
        ranked = [(one, one.blend) for one in eligible]
        guardrails = profile.stage1_guardrails
        stage2_ranks: Mapping[str, int] = {}
    else:
        settings = profile.settings_for(reranker) or TierSettings()
        read, scores = _combine(eligible, pairs, profile, reranker)
        stage2_ranks = dict(zip((one.id for one in read), _core.ranks(read, scores), strict=True))
        ranked = sorted(zip(read, scores, strict=True), key=lambda pair: stage2_ranks[pair[0].id])
        guardrails = settings.guardrails
        # Another tier's scores say nothing to the model; what stage 1 knew still holds.
        if profile.reranker in (None, reranker):
            confidence = _confidence(read, pairs, scores, decision, profile)
    most = None if limit is None else min(limit, len(ranked))
    dropped = _core.passes([(score, one.blend) for one, score in ranked], guardrails, limit=most)
    least = profile.answer.least
    if least is not None and confidence is not None and confidence < least:
        dropped = [reason or "improbable" for reason in dropped]
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
            dropped=floors.BELOW_FLOOR
            if not floors.clears(one, floor)
            else floors.BELOW_CLIFF
            if one.id in cut
            else "not_reranked",
        )
        for one in scored
        if one.id not in placed
    ]
    reason = "reranked" if pairs else decision.reason
    if None not in dropped:
        reason = "rejected"
    return _Conclusion(
        reason=reason, stage=2 if pairs else 1, confidence=confidence, places=tuple(places)
    )


def _combine(
    scored: Sequence[_core.Scored],
    pairs: Mapping[str, PairScore],
    profile: Profile,
    reranker: str | None,
) -> tuple[list[_core.Scored], list[float]]:
    """Return the candidates that stage 2 read, and the score of each."""
    settings = profile.settings_for(reranker) or TierSettings()
    read = [one for one in scored if one.id in pairs]
    logits = [pairs[one.id].score for one in read]
    return read, _core.combine(read, logits, profile.blend, settings.combine)


def _confidence(
    read: Sequence[_core.Scored],
    pairs: Mapping[str, PairScore],
    scores: Sequence[float],
    decision: _core.Decision,
    profile: Profile,
) -> float | None:
    """Return how probable it is that the first of the candidates that stage 2 read fits."""
    model = profile.answer.stage2
    found = _core.reading(read, [pairs[one.id].score for one in read], scores)
    if model is None or decision.signals is None or found is None:
        return None
    return _core.confidence(model, decision.signals, found)


def replay(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Decide again from a trace, without index, models or clock.

    Returns:
        The `decision` that the trace should hold, to be compared with the one that it does.

    Raises:
        ProfileError: `profile_malformed` if the trace's profile cannot be read.
        InputError: `not_finite` if a score in the trace is no number.
    """
    decision: dict[str, Any] = replayed(trace)["decision"]
    return decision


def replayed(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return every part of a trace that follows from the rest of it, computed anew.

    Returns:
        What the trace should hold under `floor`, `signals`, `tighten` and `decision`.

    Raises:
        ProfileError: `profile_malformed` if the trace's profile cannot be read.
        InputError: `not_finite` if a score in the trace is no number.
    """
    from crossgate._reranking.contract import PairScore

    profile = Profile.from_dict(trace["profile"])
    section, grade = trace["section"], trace["grade"]
    scored = [
        _core.Scored(id, cosine=cosine, bm25=bm25, overlap=overlap, blend=blend)
        for id, cosine, bm25, overlap, blend in trace["stage1"]
    ]
    pairs = {id: PairScore(logit, truncated) for id, logit, truncated in trace["stage2"]}
    floor = floors.floor_of(profile.floors, section, grade)
    decision = _core.decide(floors.judged(scored, floor), profile.gate, profile.answer)
    tightening = None
    if decision.verdict == Verdict.AMBIGUOUS:
        recorded = trace["tighten"] or {}
        tightening = floors.tighten(
            scored,
            recorded.get("sources", {}),
            profile,
            section=section,
            grade=grade,
            available=lambda: recorded.get("reranker_available", True),
        )
    conclusion = conclude(
        scored, decision, pairs, profile, trace["limit"], trace["reranker"], floor, tightening
    )
    return {
        "floor": floor,
        "signals": decision.signals and _fields(decision.signals),
        "tighten": tightening and tightening.to_dict(),
        "decision": _summary(decision, conclusion),
    }


def _watch(hook: TelemetryHook) -> Watch:
    # Ten milliseconds to import, and of no use to most.
    from crossgate._telemetry.events import Watch

    return Watch(hook)


def _is_available(tiers: Sequence[Callable[[], Reranker]]) -> bool:
    """Return whether the preferred tier takes calls at this moment."""
    try:
        from crossgate._reranking.admission import is_available

        return bool(tiers) and is_available(tiers[0]())
    except Exception:  # `ask` will say what is wrong with it
        return False


def _reason(
    decision: _core.Decision, scored: Sequence[_core.Scored], eligible: Sequence[_core.Scored]
) -> str:
    """Return the gate's reason, but for candidates that were there and cleared no floor."""
    return floors.BELOW_FLOOR if scored and not eligible else decision.reason


def _pool(
    eligible: Sequence[_core.Scored], tightening: Tightening | None, size: int
) -> Sequence[_core.Scored]:
    """Return the candidates that stage 2 reads."""
    cut = tightening.cut if tightening is not None else frozenset()
    return [one for one in eligible[:size] if one.id not in cut]


def _not_fitted(profile: Profile, identity: str | None) -> Degradation:
    return Degradation(
        code="tier_not_fitted",
        detail=f"profile {profile.name!r} was fitted for {profile.reranker}, not for {identity}: "
        "its order counts, its scores meet no bar",
    )


def _hit(place: _Place, documents: Mapping[str, Document], provider: str) -> Hit:
    one, pair = place.scored, place.pair
    return Hit(
        document=documents[one.id],
        cosine=one.cosine,
        bm25=one.bm25,
        blend=one.blend,
        logit=None if pair is None else pair.score,
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
        "confidence": conclusion.confidence,
        "selected": [one.scored.id for one in conclusion.places if one.dropped is None],
        "places": [
            [one.scored.id, one.score, one.stage1_rank, one.stage2_rank, one.dropped]
            for one in conclusion.places
        ],
    }


def _fields(value: object) -> dict[str, Any]:
    return {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}
