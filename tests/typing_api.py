"""Uses of the public API that must type-check under `mypy --strict`; this file is never run."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, assert_type

import numpy as np

from crossgate import (
    Candidate,
    CrossEncoder,
    CrossgateError,
    Degradation,
    Document,
    Embedder,
    Hit,
    Index,
    IndexFileError,
    InputError,
    ModelError,
    OnnxEmbedder,
    PairScore,
    Passage,
    Policy,
    PrecomputedVectors,
    Profile,
    ProfileError,
    Reranker,
    RerankerError,
    ResultWarning,
    Router,
    RouteResult,
    Scored,
    SearchResult,
    SourceError,
    Verdict,
    __version__,
    arerank,
    read_policy,
    read_profile,
    rerank,
    set_threads,
    write_profile,
)
from crossgate._core import Answer, AnyFits, Blend, Combine, Floors, Stage1AnyFits, Winner
from crossgate._decision.log_replay import Difference, check_decision
from crossgate._pipelines.postprocessing import (
    postprocess,
    prefer_sources,
    readmit_recovered,
    spread_documents,
)
from crossgate._telemetry.events import Event, TelemetryHook
from crossgate._telemetry.log import JsonLinesLog, LoggedDecision, MalformedLine, read_log
from crossgate._telemetry.otel import OpenTelemetryHook
from crossgate.rerankers import (
    AsyncReranker,
    CircuitBreaker,
    CohereReranker,
    Deadline,
    GuardedReranker,
    LatencyEstimate,
    RemoteReranker,
    Scores,
    SemanticBM25,
    State,
    Transport,
    VoyageReranker,
    passages_of,
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


def documents() -> list[Document]:
    """Fields of a document."""
    return [
        Document(id="a", text="red"),
        Document(id="b", text="red", title="Red", metadata={"path": "x", "tags": ["y"]}),
        Document(id="c", text="red", vector=[1.0, 2.0]),
        Document(id="d", text="red", vector=(1.0, 2.0)),
        Document(id="e", text="red", vector=array("f", [1.0, 2.0])),
        Candidate(id="f", text="red", cosine=0.5, score=None),
    ]


def build() -> Index:
    """Ways to build an index."""
    index = Index.build(documents(), embedder=OwnEmbedder(), language="none")
    index = Index.build(iter(documents()), embedder=None, reuse=index)
    index = Index.build(documents(), embedder="crossgate-embedder-minilm-l6", progress=print)
    index.save("skills.cgx")
    index.save(Path("skills.cgx"))
    index = Index.open(Path("skills.cgx"), embedder=OwnEmbedder())
    index.upsert(documents())
    assert_type(index.delete(["a"]), int)
    assert_type(index.get("a"), Document | None)
    assert_type(index.ids, list[str])
    assert_type(index.fingerprint, str)
    found = index.search("red", [1.0, 0.0], blend=Blend(pivot=5.0), per_channel=3, deny=["a"])
    assert_type(found, SearchResult)
    assert_type(found.scored[0], Scored)
    assert_type(found.scored[0].cosine, float | None)
    assert_type(found.documents["a"], Document)
    assert_type(len(index), int)
    assert_type("a" in index, bool)
    return index


def route(index: Index) -> RouteResult:
    """Ways to make and call a router."""
    Router(index, embedder=OwnEmbedder(), reranker=OwnReranker(), profile=Profile())
    Router(index, reranker=None, profile="profile.json")
    Router(index, policy=Policy(cliff_core=3))
    Router(index, policy="policy.json")
    router = Router(index, reranker=Path("folder"), profile=Path("profile.json"))
    assert_type(router.profile, Profile)
    assert_type(router.policy, Policy)
    router.warm_up()
    router.route("red", limit=None, allow={"a"}, deny=["b"])
    router.route("red", vector=[1.0, 0.0])
    router.route("red", vector=array("f", [1.0, 0.0]))
    return router.route("red", limit=1)


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


def candidates() -> None:
    """Kinds of candidates."""
    assert_type(rerank("red", ["red", "fox"]), RouteResult)
    rerank("red", [{"text": "red", "score": 0.5}, "fox", Candidate(id="a", text="b")], limit=2)
    rerank("red", (str(number) for number in range(3)), reranker=OwnReranker())
    rerank("red", [Candidate(id="a", text="b", vector=[1.0])], vector=[1.0], reranker=None)
    rerank("red", ["red"], profile=Profile(), language="none")
    rerank("red", [Document(id="a", text="b"), "fox"])
    rerank("red", documents())


async def twins(router: Router) -> None:
    """The asynchronous methods."""
    assert_type(await router.aroute("red", limit=1), RouteResult)
    assert_type(await arerank("red", ["red"]), RouteResult)
    assert_type(asyncio.run(router.aroute("red")), RouteResult)


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


def steps(found: RouteResult) -> None:
    """Steps after the reranker."""

    def own(hits: Sequence[Hit]) -> list[Hit]:
        return sorted(hits, key=lambda hit: hit.stage1_rank)

    order = partial(prefer_sources, order=("user", "pdf"), margin=0.1)
    assert_type(postprocess(found, [order, own, readmit_recovered], limit=5), RouteResult)
    assert_type(spread_documents(found.hits, most=1), list[Hit])


def settings() -> tuple[Profile, Policy]:
    """Profiles and policies."""
    profile = Profile(
        combine=Combine.Rrf(60.0),
        any_fits=AnyFits(stage1=Stage1AnyFits(intercept=-1.0)),
        answer=Answer(threshold=0.5),
        winner=Winner(agreed=0.1, disagreed=0.2),
    )
    assert_type(profile.winner.agreed, float | None)
    assert_type(profile.replace(pool=10), Profile)
    assert_type(profile.to_dict(), dict[str, Any])
    assert_type(Profile.from_dict({}), Profile)
    match profile.combine:
        case Combine.Rrf(k):
            assert_type(k, float)
        case Combine.Weighted(cosine=weight):
            assert_type(weight, float)
        case _:
            pass
    assert_type(read_profile("profile.json"), Profile)
    write_profile(Path("profile.json"), profile)
    policy = Policy(floors=Floors(default=0.18, sections={"exit_strategy": 0.1}, relax=0.05))
    assert_type(policy.floors.sections, dict[str, float])
    assert_type(policy.cliff_core, int | None)
    assert_type(read_policy(Path("policy.json")), Policy)
    rerank("red", ["red"], policy=policy)
    return profile, policy


def errors() -> str:
    """Attributes of errors."""
    try:
        set_threads(2)
    except (InputError, SourceError, IndexFileError, ModelError, ProfileError) as error:
        return error.code
    except CrossgateError as error:
        return error.code
    return __version__


def own_transport(
    query: str, documents: Sequence[str], *, timeout: float
) -> list[tuple[int, float]]:
    """A transport of the user's own."""
    return [(place, timeout) for place, _ in enumerate(documents)]


async def tiers(index: Index) -> None:
    """Rerankers of stage 2, and settings of the remote rerankers."""
    remote = RemoteReranker(
        own_transport,
        name="own",
        identity="own@1",
        endpoint="own",
    )
    waiting: AsyncReranker = remote
    bounded = GuardedReranker(
        waiting,
        breaker=CircuitBreaker(failures=3, cooldown=60.0, successes=2, trials=1),
        latency=LatencyEstimate(ms_per_pair=25.0, absolute_floor_ms=100.0),
        allow_partial=True,
    )
    transport: Transport = own_transport
    assert isinstance(transport, Transport)
    router = Router(
        index,
        reranker=[
            VoyageReranker.from_environment("rerank-2.5-lite", timeout=2.0),
            bounded,
            "default",
            SemanticBM25(embedder=OwnEmbedder()),
        ],
        profile=Profile(reranker="own@1"),
        policy=Policy(rerank_min=0.5),
    )
    router.route("red", budget_ms=100)
    await router.aroute("red", budget_ms=100.5, deny=["a"])
    await arerank("red", ["red"], reranker=(remote, None), budget_ms=None)
    assert_type(bounded.breaker.state, State)
    assert_type(remote.score("red", passages_of(["fox"])), Scores)
    assert_type(bounded.score("red", passages_of(["fox"])).complete(), list[PairScore])
    assert_type(await bounded.ascore("red", passages_of(["fox"])), Scores)
    try:
        CohereReranker(api_key="key")
    except RerankerError as error:
        assert_type(error.code, str)


def arrays(router: Router) -> None:
    """NumPy arrays as vectors, which are not sequences to a type checker."""
    vector = np.ones(2, np.float32)
    router.route("red", vector=vector)
    router.route("red", vector=vector.astype(np.float64))
    router.route("red", vector=vector.tolist())
    rerank("red", [Candidate(id="a", text="b", vector=vector)], vector=vector)
    Document(id="a", text="red", vector=vector)
    embedders: list[Embedder] = [ArrayEmbedder()]
    Index.build(documents(), embedder=embedders[0])
    # Text is not a vector, and must be refused.
    router.route("red", vector="red")  # type: ignore[arg-type]
    router.route("red", vector=["red"])  # type: ignore[list-item]
