"""Invalid arguments of callers are refused with an error that has a code and a remedy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crossgate import (
    Document,
    Index,
    InputError,
    PairScore,
    Passage,
    Router,
    rerank,
)
from crossgate.rerankers import Deadline

DOCUMENTS = [Document(id=f"d{place}", text=f"fox number {place}") for place in range(4)]


def repr_of(value: object) -> str:
    """Return a name for a case; an integer of 5,000 digits has no repr."""
    return type(value).__name__ if isinstance(value, int) else repr(value)


@pytest.fixture(scope="module")
def index() -> Index:
    """An index without vectors."""
    return Index.build(DOCUMENTS, embedder=None)


@pytest.mark.parametrize("ids", [None, 3, "d1"])
def test_ids_that_are_not_a_list_are_refused(index: Index, ids: Any) -> None:
    router = Router(index, reranker=None)
    calls: list[Callable[[], object]] = [
        lambda: router.route("fox", deny=ids),
        lambda: index.search("fox", deny=ids),
        lambda: index.delete(ids),
    ]
    if ids is not None:
        calls.append(lambda: router.route("fox", allow=ids))
    for call in calls:
        with pytest.raises(InputError, match="pass a list of ids") as caught:
            call()
        assert caught.value.code == "out_of_range"
    assert len(index) == len(DOCUMENTS)


@pytest.mark.parametrize("field", ["score", "cosine"])
@pytest.mark.parametrize(
    "value", [10**5000, -(10**400), True, "1", float("nan"), [1.0]], ids=repr_of
)
def test_value_that_is_not_a_number_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"the {field} of candidate 0 is") as caught:
        rerank("fox", [{"text": "fox", field: value}], reranker=None)
    assert caught.value.code == "malformed_candidate"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("documents", [None, 3, "fox", {"id": "a"}, [3], [{"text": 3}]])
def test_invalid_documents_are_refused(index: Index, documents: Any) -> None:
    for call in (
        lambda: Index.build(documents, embedder=None),
        lambda: index.upsert(documents),
    ):
        with pytest.raises(InputError, match=r"pass a list|document 0 ") as caught:
            call()
        assert caught.value.code == "malformed_candidate"


@pytest.mark.parametrize("candidates", [None, 3, "fox", {"text": "fox"}])
def test_invalid_candidates_are_refused(candidates: Any) -> None:
    with pytest.raises(InputError, match="pass a list") as caught:
        rerank("fox", candidates, reranker=None)
    assert caught.value.code == "malformed_candidate"


class Anonymous:
    """A reranker without a name and an identity."""

    name = "anonymous"

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> list[PairScore]:
        """Return equal scores."""
        return [PairScore(0.0) for _ in passages]


@pytest.mark.parametrize("reranker", [3, Anonymous(), [Anonymous()], [None, 3.5]])
def test_invalid_reranker_is_refused(index: Index, reranker: Any) -> None:
    for call in (
        lambda: Router(index, reranker=reranker),
        lambda: rerank("fox", DOCUMENTS, reranker=reranker),
    ):
        with pytest.raises(InputError, match="identity") as caught:
            call()
        assert caught.value.code == "out_of_range"


def test_reading_a_huge_text_does_not_exceed_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading continues on its own thread; the result keeps the retriever's order."""
    going = threading.Event()
    upsert = Index.upsert

    def held(self: Index, *args: Any, **options: Any) -> None:
        going.wait()
        upsert(self, *args, **options)

    monkeypatch.setattr(Index, "upsert", held)
    try:
        result = rerank("number 2", ["fox", "hen", "number 2"], budget_ms=1, reranker=None)
        kept = rerank(
            "number 2",
            [{"text": "fox", "score": 0.1}, {"text": "hen", "score": 0.9}],
            budget_ms=1,
            reranker=None,
        )
    finally:
        going.set()
    assert result.ids == ["0", "1", "2"]
    assert "budget" in {note.code for note in result.degraded}
    assert {hit.bm25 for hit in result.hits} == {0.0}
    assert kept.ids == ["1", "0"]


def test_total_time_includes_checking_the_input() -> None:
    """Checking and copying ten megabytes is part of the call's time."""
    candidates = [f"word{place} " * 120_000 for place in range(10)]
    result = rerank("word3", candidates, budget_ms=200, reranker=None)
    timings = result.timings
    assert timings["search"] <= timings["total"]
    assert timings["total"] >= 1
