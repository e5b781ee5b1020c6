"""Decisions as OpenTelemetry spans and metrics; needs the extra `otel`.

One span per decision follows the retrieval span of the GenAI semantic conventions, status
Development, as they stood in the repository open-telemetry/semantic-conventions-genai in August
2026 (https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-spans.md#retrievals):
split from the general conventions 1.41, with `gen_ai.retrieval.top_k` in place of
`gen_ai.request.top_k`. Attributes that the conventions lack have the prefix `crossgate.`.

Only the API is used: the application configures tracers, exporters and sampling. Without them,
calls have no effect.
"""

from __future__ import annotations

import json
from time import time_ns
from typing import Any

from crossgate._core import __version__
from crossgate._support.errors import ModelError
from crossgate._telemetry.events import Event
from crossgate._values.results import RouteResult

try:
    from opentelemetry import metrics, trace
except ImportError as error:
    raise ModelError(
        "dependency_missing",
        "opentelemetry-api is not installed: pip install 'crossgate[otel]'",
    ) from error


class OpenTelemetryHook:
    """A telemetry hook that records a span and metrics for each decision.

    The span is a child of the current span of the thread that decides. Export it with a
    `BatchSpanProcessor`: with a `SimpleSpanProcessor`, each decision waits for the exporter.
    Metrics have few distinct attributes and never contain ids, sections or texts:

    - `crossgate.decisions`: decisions by verdict, reason, stage and whether anything was selected
    - `crossgate.stage.duration`: seconds by stage, `stage1` or the name of the reranker
    - `crossgate.pairs`: pairs that stage 2 scored, by reranker
    - `crossgate.rerankers.skipped`: rerankers that were not called or failed, by name and reason

    Args:
        data_source_id: Name of the data source, on the span and in its name; None for no name.
        text: Also record the query on the span, as `gen_ai.retrieval.query.text`.
        documents: Also record ids and scores of the selected documents on the span, as
            `gen_ai.retrieval.documents`.
        tracer_provider: Provider of the tracer; None for the application's.
        meter_provider: Provider of the meter; None for the application's.

    Raises:
        ModelError: `dependency_missing`, at import, without opentelemetry-api.
    """

    def __init__(
        self,
        *,
        data_source_id: str | None = None,
        text: bool = False,
        documents: bool = False,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._data_source_id = data_source_id
        self._text = text
        self._documents = documents
        self._tracer = trace.get_tracer("crossgate", __version__, tracer_provider=tracer_provider)
        meter = metrics.get_meter("crossgate", __version__, meter_provider=meter_provider)
        self._decisions = meter.create_counter(
            "crossgate.decisions", unit="{decision}", description="Decisions made"
        )
        self._durations = meter.create_histogram(
            "crossgate.stage.duration", unit="s", description="Time that a stage took"
        )
        self._pairs = meter.create_counter(
            "crossgate.pairs", unit="{pair}", description="Pairs that stage 2 scored"
        )
        self._skipped = meter.create_counter(
            "crossgate.rerankers.skipped",
            unit="{reranker}",
            description="Rerankers not called, or failed",
        )

    def on_event(self, event: Event) -> None:
        """Record metrics for the event, and a span if it ends a decision."""
        seconds = (event.duration_ms or 0.0) / 1000
        reranker, reason = event.reranker or "", event.reason or ""
        match event.step:
            case "stage1_finished":
                self._durations.record(seconds, {"crossgate.stage": "stage1"})
            case "reranker_finished":
                self._durations.record(seconds, {"crossgate.stage": reranker})
                self._pairs.add(event.pair_count or 0, {"crossgate.reranker": reranker})
            case "reranker_skipped":
                self._skipped.add(1, {"crossgate.reranker": reranker, "crossgate.reason": reason})
        if event.result is not None:
            self._finish(event, event.result, seconds)

    def _finish(self, event: Event, result: RouteResult, seconds: float) -> None:
        end = time_ns()
        name = "retrieval" if self._data_source_id is None else f"retrieval {self._data_source_id}"
        span = self._tracer.start_span(
            name,
            kind=trace.SpanKind.CLIENT,
            start_time=end - round(seconds * 1e9),
            attributes=self._attributes(event, result),
        )
        span.end(end)
        self._decisions.add(
            1,
            {
                "crossgate.verdict": result.verdict.value,
                "crossgate.reason": result.reason,
                "crossgate.stage": result.stage,
                "crossgate.abstained": not result.selected,
            },
        )

    def _attributes(self, event: Event, result: RouteResult) -> dict[str, Any]:
        trace_, request = result.trace, result.trace["request"]
        providers = (hit.provider for hit in result.hits if hit.stage2_rank is not None)
        attributes = {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.provider.name": "crossgate",
            "gen_ai.data_source.id": self._data_source_id,
            "gen_ai.request.model": trace_["reranker"] if trace_["stage2"] else None,
            "gen_ai.retrieval.top_k": request["limit"],
            "crossgate.decision.id": event.decision_id,
            "crossgate.verdict": result.verdict.value,
            "crossgate.reason": result.reason,
            "crossgate.stage": result.stage,
            "crossgate.provider": next(providers, "stage1"),
            "crossgate.profile": trace_["profile"]["name"],
            "crossgate.candidates": len(result.hits),
            "crossgate.pairs": len(trace_["stage2"]),
            "crossgate.selected": len(result.selected),
            "crossgate.section": request["section"],
            "crossgate.grade": request["grade"],
            "crossgate.degraded": [degradation.code for degradation in result.degraded] or None,
        }
        cliff = trace_["gate"]["cliff"]
        if cliff is not None:
            attributes["crossgate.tighten_applied"] = cliff["skip_reason"] is None
            attributes["crossgate.tighten_dropped_count"] = len(cliff["cut"])
            for key in ("effective_floor", "cliff_position", "skip_reason"):
                attributes[f"crossgate.tighten_{key}"] = cliff[key]
        if self._text:
            attributes["gen_ai.retrieval.query.text"] = event.query
        if self._documents:
            attributes["gen_ai.retrieval.documents"] = json.dumps(
                [{"id": hit.id, "score": hit.score} for hit in result.selected]
            )
        return {key: value for key, value in attributes.items() if value is not None}
