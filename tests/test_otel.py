"""The OpenTelemetry adapter, against the SDK with in-memory exporters."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from conftest import FunctionReranker, LengthReranker, build, refused
from crossgate import Policy, Profile, Router, RouteResult
from crossgate._core import Floors
from crossgate._telemetry.otel import OpenTelemetryHook

QUERY = "clean up this messy csv"


class Collected:
    """A hook with its own providers, and their exported data."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader])
        self.hook = OpenTelemetryHook(
            tracer_provider=self.tracers, meter_provider=self._meters, **options
        )

    def route(self, **options: Any) -> RouteResult:
        """Route a query, the hook watching."""
        values: dict[str, Any] = {"reranker": LengthReranker(), "profile": Profile(), **options}
        return Router(build(), telemetry=self.hook, **values).route(QUERY, limit=3, section="here")

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that ended, those of the application among them."""
        return list(self._exporter.get_finished_spans())

    @property
    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Attributes with the sum of the values, by metric."""
        data: Any = self._reader.get_metrics_data()
        return {
            metric.name: [
                (dict(point.attributes), getattr(point, "value", None) or getattr(point, "sum", 0))
                for point in metric.data.data_points
            ]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def test_a_decision_is_a_retrieval_span() -> None:
    collected = Collected(data_source_id="skills")
    result = collected.route(policy=Policy(cliff_core=1))
    (span,) = collected.spans
    assert (span.name, span.kind) == ("retrieval skills", SpanKind.CLIENT)
    assert span.status.status_code is StatusCode.UNSET
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "crossgate"
    attributes = dict(span.attributes or {})
    assert attributes["gen_ai.operation.name"] == "retrieval"
    assert attributes["gen_ai.provider.name"] == "crossgate"
    assert attributes["gen_ai.data_source.id"] == "skills"
    assert attributes["gen_ai.request.model"] == "length@1"
    assert attributes["gen_ai.retrieval.top_k"] == 3
    assert attributes["crossgate.decision.id"] == result.decision_id
    assert attributes["crossgate.verdict"] == "ambiguous"
    assert attributes["crossgate.reason"] == result.reason
    assert attributes["crossgate.section"] == "here"
    assert attributes["crossgate.provider"] == "length"
    assert attributes["crossgate.profile"] == "ungated"
    assert attributes["crossgate.selected"] == len(result.selected)
    assert attributes["crossgate.pairs"] == len(result.trace["stage2"])
    tighten = result.trace["gate"]["cliff"]
    for key in ("effective_floor", "cliff_position", "skip_reason"):
        assert attributes.get(f"crossgate.tighten_{key}") == tighten[key]
    assert attributes["crossgate.tighten_dropped_count"] == len(tighten["cut"])
    assert attributes["crossgate.tighten_applied"] == (tighten["skip_reason"] is None)
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == round(result.timings["total"] * 1_000_000)


def test_texts_and_documents_are_kept_only_if_asked_for() -> None:
    plain = Collected()
    plain.route()
    (span,) = plain.spans
    assert span.name == "retrieval"
    assert QUERY not in json.dumps(dict(span.attributes or {}))
    assert not any(key.startswith("gen_ai.retrieval.d") for key in span.attributes or {})

    asked = Collected(text=True, documents=True)
    result = asked.route()
    attributes = dict(asked.spans[0].attributes or {})
    assert attributes["gen_ai.retrieval.query.text"] == QUERY
    assert json.loads(str(attributes["gen_ai.retrieval.documents"])) == [
        {"id": hit.id, "score": hit.score} for hit in result.selected
    ]


def test_the_span_is_a_child_of_the_current_one() -> None:
    collected = Collected()
    with collected.tracers.get_tracer("app").start_as_current_span("request") as request:
        collected.route()
    child = next(span for span in collected.spans if span.name == "retrieval")
    assert child.parent is not None
    assert child.parent.span_id == request.get_span_context().span_id


def test_metrics_count_by_few_attributes() -> None:
    collected = Collected()
    result = collected.route()
    collected.route(policy=Policy(floors=Floors(default=1.0)))

    def fail(query: str, documents: object) -> Any:
        raise OSError("broken")

    degraded = collected.route(reranker=FunctionReranker(fail))
    found = collected.metrics
    decisions = {
        one["crossgate.reason"]: (one, value) for one, value in found["crossgate.decisions"]
    }
    assert set(decisions) == {"reranked", "below_floor", "undecided"}
    assert decisions["below_floor"][0]["crossgate.abstained"] is True
    assert decisions["reranked"][0]["crossgate.abstained"] is False
    assert [value for _, value in decisions.values()] == [1, 1, 1]
    assert found["crossgate.pairs"] == [
        ({"crossgate.reranker": "length"}, len(result.trace["stage2"]))
    ]
    assert found["crossgate.rerankers.skipped"] == [
        ({"crossgate.reranker": "function", "crossgate.reason": "reranker_failed"}, 1)
    ]
    stages = {one["crossgate.stage"] for one, _ in found["crossgate.stage.duration"]}
    assert stages == {"stage1", "length"}
    spans = [dict(span.attributes or {}) for span in collected.spans]
    assert spans[-1]["crossgate.degraded"] == ("reranker_failed",)
    assert [one.code for one in degraded.degraded] == ["reranker_failed"]
    assert "gen_ai.request.model" not in spans[1]


def test_without_an_sdk_it_does_nothing() -> None:
    result = Router(
        build(), reranker=LengthReranker(), profile=Profile(), telemetry=OpenTelemetryHook()
    ).route(QUERY)
    assert result.degraded == ()


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    from crossgate._telemetry import otel

    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    said = refused("dependency_missing", importlib.reload, otel)
    assert "'crossgate[otel]'" in said
    monkeypatch.undo()
    importlib.reload(otel)


def test_an_exporter_that_hangs_holds_up_no_decision() -> None:
    going = threading.Event()
    exported: list[str] = []

    class Hanging(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            going.wait()
            exported.extend(span.name for span in spans)
            return SpanExportResult.SUCCESS

    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(
        BatchSpanProcessor(Hanging(), max_queue_size=20, max_export_batch_size=10)
    )
    router = Router(
        build(),
        reranker=None,
        profile=Profile(),
        telemetry=OpenTelemetryHook(tracer_provider=tracers),
    )
    try:
        # More than the queue can hold: further spans are dropped without waiting.
        results = [router.route(QUERY) for _ in range(100)]
    finally:
        going.set()
        tracers.shutdown()
    assert all(result.ids and not result.degraded for result in results)
    assert 0 < len(exported) < 100
