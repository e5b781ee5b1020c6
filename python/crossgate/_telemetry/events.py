"""The steps of a decision, as one frozen value for a telemetry hook such as a log or a tracer."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from crossgate._support.errors import first_line
from crossgate._values.results import Degradation, RouteResult, Verdict

if TYPE_CHECKING:
    from crossgate._core import Gated

Step = Literal[
    "stage1_finished",
    "gate_decided",
    "tightened",
    "reranker_skipped",
    "reranker_finished",
    "route_finished",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A step of a decision. Attributes that do not belong to the step are None.

    The events of one decision come in this order, on the thread that decides:

        stage1_finished -> gate_decided -> [tightened] [reranker_skipped...] [reranker_finished]
                        -> route_finished

    Steps in brackets are sent only if the gate requires stage 2. A call with bad input raises, and
    then `route_finished` is not sent.

    Attributes:
        step: Name of the step.
        decision_id: Id of the decision, 32 hexadecimal digits.
        duration_ms: Milliseconds of stage 1 (embedding and searching), of a reranker, or of the
            whole decision.
        candidate_count: Number of candidates of stage 1, before any floor.
        verdict: The gate's judgement of stage 1.
        reason: Stable code: of the rule by which the gate decided; or why a reranker was skipped,
            such as `circuit_breaker`, `budget`, `api_error`, `reranker_unavailable` or
            `reranker_failed`.
        tighten_applied: Whether a tail of the pool was cut off at a score cliff.
        tighten_effective_floor: The floor in force, a cosine in [-1, 1]; None if there is none.
        tighten_cliff_position: Number of candidates above the cliff; None if there is none.
        tighten_dropped_count: Number of candidates that the cut removed from the pool.
        tighten_skip_reason: Stable code of why nothing was cut; None if something was.
        reranker: Name of the reranker; `reranker` if it could not be loaded.
        pair_count: Number of pairs that the reranker scored.
        query: The query as the caller passed it. Do not store it without the user's consent.
        result: The decision, before it is returned to the caller.
    """

    step: Step
    decision_id: str
    duration_ms: float | None = None
    candidate_count: int | None = None
    verdict: Verdict | None = None
    reason: str | None = None
    tighten_applied: bool | None = None
    tighten_effective_floor: float | None = None
    tighten_cliff_position: int | None = None
    tighten_dropped_count: int | None = None
    tighten_skip_reason: str | None = None
    reranker: str | None = None
    pair_count: int | None = None
    query: str | None = None
    result: RouteResult | None = None


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

    def gate_decided(self, gated: Gated) -> None:
        """Send `gate_decided`, and `tightened` if a cliff was searched for."""
        self.send("gate_decided", verdict=Verdict(gated.verdict), reason=gated.reason)
        if gated.cliff is not None:
            self.send(
                "tightened",
                tighten_applied=gated.cliff.skip_reason is None,
                tighten_effective_floor=gated.cliff.effective_floor,
                tighten_cliff_position=gated.cliff.cliff_position,
                tighten_dropped_count=len(gated.cliff.cut),
                tighten_skip_reason=gated.cliff.skip_reason,
            )

    def route_finished(self, query: str, result: RouteResult) -> RouteResult:
        """Send `route_finished`; return the result with its id and any failure of the hook."""
        result = replace(result, decision_id=self.decision_id)
        duration_ms = result.timings["total"]
        self.send("route_finished", query=query, result=result, duration_ms=duration_ms)
        if self._failure is None:
            return result
        return replace(result, degraded=(*result.degraded, self._failure))

    def send(self, step: Step, **attributes: Any) -> None:
        """Send an event with these attributes, unless the hook has failed."""
        if self._failure is not None:
            return
        try:
            self._hook.on_event(Event(step=step, decision_id=self.decision_id, **attributes))
        except Exception as error:  # telemetry must not change a decision
            self._failure = Degradation(
                code="telemetry_failed", detail=f"{type(self._hook).__name__}: {first_line(error)}"
            )
