"""Uses of the public API that must type-check under `mypy --strict`; nothing here is ever run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
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
    HealthWarning,
    Hit,
    Index,
    IndexFileError,
    InputError,
    ModelError,
    OnnxEmbedder,
    PairScore,
    PrecomputedVectors,
    Profile,
    ProfileError,
    Reranker,
    Router,
    RouteResult,
    SourceError,
    Verdict,
    __version__,
    arerank,
    rerank,
    set_threads,
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


class OwnReranker:
    """A reranker of the user's own, with properties."""

    @property
    def name(self) -> str:
        """What hits are stamped with."""
        return "own"

    @property
    def identity(self) -> str:
        """Name and version."""
        return "own@1"

    def score(self, query: str, documents: Sequence[str]) -> list[PairScore]:
        """Return one score per document."""
        return [PairScore(0.5), PairScore(logit=0.5, truncated=True)]


def protocols() -> None:
    """What is an embedder or a reranker."""
    embedders: list[Embedder] = [OwnEmbedder(), OnnxEmbedder(), PrecomputedVectors("own", 2)]
    rerankers: list[Reranker] = [OwnReranker(), CrossEncoder(), CrossEncoder(Path("folder"))]
    assert isinstance(embedders[0], Embedder)
    assert isinstance(rerankers[0], Reranker)


def documents() -> list[Document]:
    """What a document may be made of."""
    return [
        Document(id="a", text="red"),
        Document(id="b", text="red", title="Red", metadata={"path": "x", "tags": ["y"]}),
        Document(id="c", text="red", vector=[1.0, 2.0]),
        Document(id="d", text="red", vector=(1.0, 2.0)),
        Document(id="e", text="red", vector=array("f", [1.0, 2.0])),
        Candidate(id="f", text="red", cosine=0.5, score=None),
    ]


def build() -> Index:
    """What an index is made of."""
    index = Index.build(documents(), embedder=OwnEmbedder(), language="none")
    index = Index.build(iter(documents()), embedder=None, reuse=index)
    index = Index.build(documents(), embedder="all-minilm-l6-v2-int8", progress=print)
    index.save("skills.cgx")
    index.save(Path("skills.cgx"))
    index = Index.open(Path("skills.cgx"), embedder=OwnEmbedder())
    index.upsert(documents())
    assert_type(index.delete(["a"]), int)
    assert_type(index.get("a"), Document | None)
    assert_type(index.ids, list[str])
    assert_type(index.fingerprint, str)
    assert_type(len(index), int)
    assert_type("a" in index, bool)
    return index


def route(index: Index) -> RouteResult:
    """How a router is made and asked."""
    Router(index, embedder=OwnEmbedder(), reranker=OwnReranker(), profile=Profile())
    Router(index, reranker=None, profile="profile.json")
    router = Router(index, reranker=Path("folder"), profile=Path("profile.json"))
    router.warm_up()
    router.route("red", limit=None, allow={"a"}, deny=["b"])
    router.route("red", vector=[1.0, 0.0])
    router.route("red", vector=array("f", [1.0, 0.0]))
    return router.route("red", limit=1)


def result(found: RouteResult) -> None:
    """What a decision holds."""
    assert_type(found.ids, list[str])
    assert_type(found.verdict, Verdict)
    assert_type(found.selected, tuple[Hit, ...])
    assert_type(found.degraded, tuple[Degradation, ...])
    assert_type(found.warnings, tuple[HealthWarning, ...])
    assert_type(found.timings, Mapping[str, float])
    assert_type(found.to_dict(trace=True), dict[str, Any])
    for hit in found.hits:
        assert_type(hit.cosine, float | None)
        assert_type(hit.bm25, float)
        assert_type(hit.score, float | None)
        assert_type(hit.document, Document)
    match found.verdict:
        case Verdict.CONFIDENT | Verdict.AMBIGUOUS:
            pass
        case Verdict.NOTHING_RELEVANT:
            pass


def candidates() -> None:
    """What can be reranked."""
    assert_type(rerank("red", ["red", "fox"]), RouteResult)
    rerank("red", [{"text": "red", "score": 0.5}, "fox", Candidate(id="a", text="b")], limit=2)
    rerank("red", (str(number) for number in range(3)), reranker=OwnReranker())
    rerank("red", [Candidate(id="a", text="b", vector=[1.0])], vector=[1.0], reranker=None)
    rerank("red", ["red"], profile=Profile(), language="none")


async def twins(router: Router) -> None:
    """The asynchronous twins."""
    assert_type(await router.aroute("red", limit=1), RouteResult)
    assert_type(await arerank("red", ["red"]), RouteResult)


def errors() -> str:
    """How errors are told apart."""
    try:
        set_threads(2)
    except (InputError, SourceError, IndexFileError, ModelError, ProfileError) as error:
        return error.code
    except CrossgateError as error:
        return error.code
    return __version__


def arrays(router: Router) -> None:
    """Vectors of numpy, which is no sequence to a type checker."""
    vector = np.ones(2, np.float32)
    router.route("red", vector=vector.tolist())
