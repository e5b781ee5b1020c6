"""Telemetry hooks: which events they get, in which order, and that they can break nothing."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from conftest import LIBRARY, FunctionReranker, LengthReranker, build, refused
from crossgate import ModelError, Policy, Profile, Router, RouteResult, rerank
from crossgate._core import Floors, Winner
from crossgate._reranking import chain
from crossgate._telemetry.events import Event, TelemetryHook

QUERY = "clean up this messy csv"


class Notebook:
    """A hook that records its events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        """Keep the event."""
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        """The steps, in order."""
        return [event.step for event in self.events]


class Loud(Notebook):
    """A hook that raises on one kind of event."""

    def __init__(self, kind: str, error: Exception) -> None:
        super().__init__()
        self._kind, self._error = kind, error

    def on_event(self, event: Event) -> None:
        """Keep the event, and raise if it is of the kind."""
        super().on_event(event)
        if event.step == self._kind:
            raise self._error


def route(hook: TelemetryHook | None, **options: Any) -> RouteResult:
    values: dict[str, Any] = {"reranker": LengthReranker(), "profile": Profile(), **options}
    return Router(build(), telemetry=hook, **values).route(QUERY)


def without_id(result: RouteResult) -> dict[str, Any]:
    values = result.to_dict(trace=True)
    for key in ("timings_ms", "decision_id", "degraded"):
        values.pop(key, None)
    return values


# Events.


def test_the_events_of_a_reranked_decision() -> None:
    hook = Notebook()
    result = route(hook, policy=Policy(cliff_core=1))
    stage1, gate, tightened, asked, finished = hook.events
    assert stage1.step == "stage1_finished"
    assert stage1.candidate_count == len(result.hits)
    assert gate.step == "gate_decided"
    assert (gate.verdict, gate.reason) == ("ambiguous", "undecided")
    assert tightened.step == "tightened"
    recorded = result.trace["gate"]["cliff"]
    for name in ("effective_floor", "cliff_position", "skip_reason"):
        assert getattr(tightened, f"tighten_{name}") == recorded[name]
    assert tightened.tighten_dropped_count == len(recorded["cut"])
    assert tightened.tighten_applied == (recorded["skip_reason"] is None)
    assert asked.step == "reranker_finished"
    assert (asked.reranker, asked.pair_count) == ("length", len(result.trace["stage2"]))
    assert finished.step == "route_finished"
    assert (finished.query, finished.result) == (QUERY, result)
    assert finished.duration_ms == result.timings["total"]
    assert {event.decision_id for event in hook.events} == {result.decision_id}
    assert re.fullmatch("[0-9a-f]{32}", result.decision_id or "")
    assert result.to_dict()["decision_id"] == result.decision_id


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({}, ["reranker_finished"]),
        ({"reranker": None}, []),
        ({"profile": Profile(winner=Winner(agreed=0.0, disagreed=0.0))}, []),
        ({"policy": Policy(floors=Floors(default=1.0))}, []),
        ({"reranker": None, "policy": Policy(cliff_core=1)}, ["tightened"]),
    ],
)
def test_stage_2_is_told_of_where_it_was_asked(options: Any, kinds: list[type]) -> None:
    hook = Notebook()
    route(hook, **options)
    assert hook.kinds == ["stage1_finished", "gate_decided", *kinds, "route_finished"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelError("model_missing", "not pulled"), "reranker_unavailable"),
        (OSError("broken"), "reranker_failed"),
    ],
)
def test_a_tier_that_fails_is_told_of(error: Exception, reason: str) -> None:
    def fail(query: str, documents: object) -> Any:
        raise error

    hook = Notebook()
    result = route(hook, reranker=FunctionReranker(fail))
    skipped = hook.events[-2]
    assert skipped.step == "reranker_skipped"
    assert (skipped.reranker, skipped.reason) == ("function", reason)
    assert [one.code for one in result.degraded] == [reason]
    assert "reranker_finished" not in hook.kinds


def test_a_tier_that_cannot_be_loaded_has_no_name(
    index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = Notebook()
    router = Router(index, profile=Profile(), telemetry=hook)

    def nowhere(model: str) -> Any:
        raise ModelError("model_missing", "not pulled")

    monkeypatch.setattr(chain, "load", nowhere)
    router.route(QUERY)
    skipped = hook.events[-2]
    assert skipped.step == "reranker_skipped"
    assert (skipped.reranker, skipped.reason) == ("reranker", "reranker_unavailable")


def test_rerank_tells_too() -> None:
    hook = Notebook()
    result = rerank(QUERY, list(LIBRARY.values()), reranker=LengthReranker(), telemetry=hook)
    assert hook.kinds == ["stage1_finished", "gate_decided", "reranker_finished", "route_finished"]
    assert result.decision_id is not None


def test_bad_input_sends_no_decision_events() -> None:
    hook = Notebook()
    router = Router(build(), reranker=None, profile=Profile(), telemetry=hook)
    refused("query_too_long", router.route, "x" * 65_537)
    refused("wrong_dimension", router.route, QUERY, vector=[1.0])
    assert "route_finished" not in hook.kinds


# Failures.


def test_no_hook_gives_no_decision_id() -> None:
    result = route(None)
    assert result.decision_id is None
    assert "decision_id" not in result.to_dict()


def test_a_hook_changes_nothing_and_every_decision_has_an_id_of_its_own() -> None:
    plain, watched = route(None), [route(Notebook()) for _ in range(20)]
    assert [without_id(one) for one in watched] == [without_id(plain)] * 20
    assert len({one.decision_id for one in watched}) == 20


@pytest.mark.parametrize(
    "kind", ["stage1_finished", "gate_decided", "reranker_finished", "route_finished"]
)
@pytest.mark.parametrize("error", [ValueError("two\nlines"), RuntimeError(), RecursionError("x")])
def test_a_hook_that_raises_is_reported_once_and_not_called_again(
    kind: str, error: Exception
) -> None:
    hook = Loud(kind, error)
    result = route(hook)
    assert without_id(result) == without_id(route(None))
    assert [one.code for one in result.degraded] == ["telemetry_failed"]
    (line,) = result.degraded[0].detail.splitlines()
    assert line.startswith("Loud: ")
    assert hook.kinds[-1] == kind
    assert hook.kinds.count(kind) == 1
    # The hook gets the events of the next decision.
    before = len(hook.events)
    Router(build(), reranker=None, profile=Profile(), telemetry=hook).route(QUERY)
    assert len(hook.events) > before


def test_ctrl_c_in_a_hook_is_ctrl_c() -> None:
    class Interrupted:
        def on_event(self, event: Event) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        route(Interrupted())


def test_threads_share_a_hook() -> None:
    hook = Notebook()
    router = Router(build(), reranker=LengthReranker(), profile=Profile(), telemetry=hook)
    threads = [
        threading.Thread(target=lambda: [router.route(QUERY) for _ in range(10)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_id: dict[str, list[str]] = {}
    for event in hook.events:
        by_id.setdefault(event.decision_id, []).append(event.step)
    assert len(by_id) == 80
    assert {tuple(kinds) for kinds in by_id.values()} == {
        ("stage1_finished", "gate_decided", "reranker_finished", "route_finished")
    }


def test_the_protocol_is_one_method() -> None:
    assert isinstance(Notebook(), TelemetryHook)
    assert not isinstance(object(), TelemetryHook)
