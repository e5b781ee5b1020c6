"""Events of a decision, as frozen values for a telemetry hook such as a log or a tracer.

The events of one decision share its id and come in this order, on the thread that decides:

    Stage1Finished -> GateDecided -> [Tightened] [RerankerSkipped...] [RerankerFinished]
                   -> RouteFinished

Events in brackets are sent only if the gate requires stage 2. A call with bad input raises, and
then `RouteFinished` is not sent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from crossgate._support.errors import first_line
from crossgate._values.results import Degradation, RouteResult, Verdict

if TYPE_CHECKING:
    from crossgate._core import Gated


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage1Finished:
    """Stage 1 has scored its candidates.

    Attributes:
        decision_id: Id of the decision, 32 hexadecimal digits.
        candidate_count: Number of candidates, before any floor.
        duration_ms: Milliseconds that embedding and searching took.
    """

    decision_id: str
    candidate_count: int
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecided:
    """The gate has decided whether the order of stage 1 is final.

    Attributes:
        decision_id: Id of the decision.
        verdict: The gate's judgement of stage 1.
        reason: Stable code of the rule that decided.
    """

    decision_id: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tightened:
    """The pool was searched for a score cliff, whether or not it was cut.

    Attributes:
        decision_id: Id of the decision.
        tighten_applied: Whether a tail was cut off.
        tighten_effective_floor: The floor in force, a cosine in [-1, 1]; None if there is none.
        tighten_cliff_position: How many candidates are above the cliff; None if there is none.
        tighten_dropped_count: How many candidates the cut removed from the pool.
        tighten_skip_reason: Stable code of why nothing was cut; None if something was.
    """

    decision_id: str
    tighten_applied: bool
    tighten_effective_floor: float | None
    tighten_cliff_position: int | None
    tighten_dropped_count: int
    tighten_skip_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerSkipped:
    """A reranker was not called, or failed.

    Attributes:
        decision_id: Id of the decision.
        reranker: Its name; `reranker` if it could not be loaded.
        reason: Stable code: `circuit_breaker`, `budget`, `api_error`, `reranker_unavailable` or
            `reranker_failed`.
        duration_ms: Milliseconds that it cost.
    """

    decision_id: str
    reranker: str
    reason: str
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerFinished:
    """A reranker has scored the pool.

    Attributes:
        decision_id: Id of the decision.
        reranker: Its name.
        pair_count: How many pairs it scored.
        duration_ms: Milliseconds that it took.
    """

    decision_id: str
    reranker: str
    pair_count: int
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFinished:
    """The decision has been made.

    Attributes:
        decision_id: Id of the decision.
        query: The query as the caller passed it. Do not store it without the user's consent.
        result: The decision, before it is returned to the caller.
        duration_ms: Milliseconds that the whole decision took.
    """

    decision_id: str
    query: str
    result: RouteResult
    duration_ms: float


Event = (
    Stage1Finished | GateDecided | Tightened | RerankerSkipped | RerankerFinished | RouteFinished
)


@runtime_checkable
class TelemetryHook(Protocol):
    """Receives the events of decisions. Threads that share a router call it concurrently."""

    def on_event(self, event: Event) -> None:
        """Handle an event, and return quickly: the decision waits.

        If it raises, the decision continues. The first exception is reported as `telemetry_failed`
        in the result's `degraded`, and the hook gets no more events of that decision.
        """


class Watch:
    """Sends the events of one decision to a hook."""

    def __init__(self, hook: TelemetryHook) -> None:
        self.decision_id = os.urandom(16).hex()
        self._hook = hook
        self._failure: Degradation | None = None

    def stage1_finished(self, candidate_count: int, duration_ms: float) -> None:
        """Send `Stage1Finished`."""
        self._send(
            Stage1Finished(
                decision_id=self.decision_id,
                candidate_count=candidate_count,
                duration_ms=duration_ms,
            )
        )

    def gate_decided(self, gated: Gated) -> None:
        """Send `GateDecided`, and `Tightened` if a cliff was searched for."""
        self._send(
            GateDecided(
                decision_id=self.decision_id,
                verdict=Verdict(gated.verdict),
                reason=gated.reason,
            )
        )
        if gated.cliff is not None:
            self._send(
                Tightened(
                    decision_id=self.decision_id,
                    tighten_applied=gated.cliff.skip_reason is None,
                    tighten_effective_floor=gated.cliff.effective_floor,
                    tighten_cliff_position=gated.cliff.cliff_position,
                    tighten_dropped_count=len(gated.cliff.cut),
                    tighten_skip_reason=gated.cliff.skip_reason,
                )
            )

    def reranker_skipped(self, reranker: str, reason: str, duration_ms: float) -> None:
        """Send `RerankerSkipped`."""
        self._send(
            RerankerSkipped(
                decision_id=self.decision_id,
                reranker=reranker,
                reason=reason,
                duration_ms=duration_ms,
            )
        )

    def reranker_finished(self, reranker: str, pair_count: int, duration_ms: float) -> None:
        """Send `RerankerFinished`."""
        self._send(
            RerankerFinished(
                decision_id=self.decision_id,
                reranker=reranker,
                pair_count=pair_count,
                duration_ms=duration_ms,
            )
        )

    def route_finished(self, query: str, result: RouteResult) -> RouteResult:
        """Send `RouteFinished`; return the result with its id and any failure of the hook."""
        result = replace(result, decision_id=self.decision_id)
        self._send(
            RouteFinished(
                decision_id=self.decision_id,
                query=query,
                result=result,
                duration_ms=result.timings["total"],
            )
        )
        if self._failure is None:
            return result
        return replace(result, degraded=(*result.degraded, self._failure))

    def _send(self, event: Event) -> None:
        if self._failure is not None:
            return
        try:
            self._hook.on_event(event)
        except Exception as error:  # telemetry must not change a decision
            self._failure = Degradation(
                code="telemetry_failed", detail=f"{type(self._hook).__name__}: {first_line(error)}"
            )
