"""Uses of the public API that must type-check under `mypy --strict`; this file is never run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

import numpy as np

from crossgate import (
    Candidate,
    Context,
    CrossEncoder,
    Degradation,
    Document,
    Embedder,
    Hit,
    Index,
    OnnxEmbedder,
    PairScore,
    Passage,
    PrecomputedVectors,
    Reranker,
    ResultWarning,
    Router,
    RouteResult,
    ToolRouter,
    Verdict,
    rerank,
)
from crossgate._decision.log_replay import Difference, check_decision
from crossgate._telemetry.events import Event, TelemetryHook
from crossgate._telemetry.log import JsonLinesLog, LoggedDecision, MalformedLine, read_log
from crossgate._telemetry.otel import OpenTelemetryHook
from crossgate.rerankers import (
    AsyncReranker,
    Deadline,
    GuardedReranker,
    RemoteReranker,
    Transport,
)


class OwnEmbedder:
    """An embedder of the user's own, with plain attributes."""

    identity = "own@1"
    dimension = 2

    def embed(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[list[float]]:
        """Return one vector per text."""
        return [[1.0, 0.0] for _ in texts]


class ArrayEmbedder:
    """An embedder of the user's own that returns arrays."""

    identity = "arrays@1"
    dimension = 2

    def embed(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
        """Return one vector per text."""
        return [np.ones(2, np.float32) for _ in texts]


class OwnReranker:
    """A reranker of the user's own, with properties."""

    @property
    def name(self) -> str:
        """The provider's name in hits."""
        return "own"

    @property
    def identity(self) -> str:
        """Name and version."""
        return "own@1"

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> list[PairScore | None]:
        """Return one score per passage."""
        assert_type(passages[0].cosine, float | None)
        assert_type(deadline.left, float | None)
        return [PairScore(0.5), PairScore(score=0.5, truncated=True), None]


def protocols() -> None:
    """Objects that satisfy the protocols of embedders and rerankers."""
    embedders: list[Embedder] = [OwnEmbedder(), OnnxEmbedder(), PrecomputedVectors("own", 2)]
    rerankers: list[Reranker] = [OwnReranker(), CrossEncoder(), CrossEncoder(Path("folder"))]
    assert isinstance(embedders[0], Embedder)
    assert isinstance(rerankers[0], Reranker)


def result(found: RouteResult) -> None:
    """Fields of a decision."""
    assert_type(found.ids, list[str])
    assert_type(found.verdict, Verdict)
    assert_type(found.selected, tuple[Hit, ...])
    assert_type(found.degraded, tuple[Degradation, ...])
    assert_type(found.warnings, tuple[ResultWarning, ...])
    assert_type(found.timings, Mapping[str, float])
    assert_type(found.to_dict(trace=True), dict[str, Any])
    for hit in found.hits:
        assert_type(hit.cosine, float | None)
        assert_type(hit.bm25, float)
        assert_type(hit.score, float | None)
        assert_type(hit.rerank_score, float | None)
        assert_type(hit.document, Document)
    match found.verdict:
        case Verdict.CONFIDENT | Verdict.AMBIGUOUS:
            pass
        case Verdict.NOTHING_RELEVANT:
            pass


class OwnHook:
    """A telemetry hook of the user's own."""

    def on_event(self, event: Event) -> None:
        """Handle an event."""
        assert_type(event.decision_id, str)
        assert_type(event.result, RouteResult | None)


def telemetry(index: Index) -> None:
    """Telemetry hooks, the decision log, and reading it."""
    hooks: list[TelemetryHook] = [OwnHook(), JsonLinesLog("log"), OpenTelemetryHook(text=True)]
    router = Router(index, telemetry=hooks[0])
    found = router.route("red", section="exit_strategy", grade="C")
    rerank("red", ["red"], section=None, grade=None, telemetry=OwnHook())
    assert_type(found.decision_id, str | None)
    JsonLinesLog(Path("log"), text=True).used(found.decision_id or "", ["a"])
    for entry in read_log("log"):
        if isinstance(entry, LoggedDecision):
            assert_type(check_decision(entry), Difference | MalformedLine | None)


def own_transport(
    query: str, documents: Sequence[str], *, timeout: float
) -> list[tuple[int, float]]:
    """A transport of the user's own."""
    return [(place, timeout) for place, _ in enumerate(documents)]


def tiers(index: Index) -> None:
    """Rerankers of stage 2."""
    remote = RemoteReranker(own_transport, name="own", identity="own@1", endpoint="own")
    waiting: AsyncReranker = remote
    transport: Transport = own_transport
    assert isinstance(transport, Transport)
    Router(index, reranker=[GuardedReranker(waiting), "default", OwnReranker(), None])


def arrays(router: Router) -> None:
    """NumPy arrays as vectors, which are not sequences to a type checker."""
    vector = np.ones(2, np.float32)
    router.route("red", vector=vector)
    router.route("red", vector=vector.astype(np.float64))
    router.route("red", vector=vector.tolist())
    rerank("red", [Candidate(id="a", text="b", vector=vector)], vector=vector)
    Document(id="a", text="red", vector=vector)
    embedders: list[Embedder] = [ArrayEmbedder()]
    Index.build([Document(id="a", text="red", vector=array("f", [1.0]))], embedder=embedders[0])
    # Text is not a vector, and must be refused.
    router.route("red", vector="red")  # type: ignore[arg-type]
    router.route("red", vector=["red"])  # type: ignore[list-item]


async def check_tools(tools: list[dict[str, object]], prompt: str) -> None:
    """Tools keep their type, and earlier requests may be a plain list."""
    router = ToolRouter(tools, reranker=None)
    context = Context(history=[prompt], technologies=["react"])
    assert_type(router.select(prompt, limit=3, context=context), list[dict[str, object]])
    assert_type(await router.aselect(prompt, coverage=0.9), list[dict[str, object]])
    assert_type(router.explain(prompt, "a", context=context).step, str)
    assert_type(router.teach(prompt, None), bool)
