"""Arguments of a wrong type are refused with a code and a remedy; reading them counts as time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from conftest import refused
from crossgate import Document, Index, PairScore, Passage, Router, rerank
from crossgate.rerankers import Deadline

DOCUMENTS = [Document(id=f"d{place}", text=f"fox number {place}") for place in range(4)]


class Anonymous:
    """A reranker without an identity."""

    name = "anonymous"

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> list[PairScore]:
        """Return equal scores."""
        return [PairScore(0.0) for _ in passages]


IDS = [None, 3, "d1"]
LISTS = [None, 3, "fox", {"id": "a"}, [3], [{"text": 3}]]
RERANKERS = [3, Anonymous(), [Anonymous()], [None, 3.5]]
CALLS: list[tuple[Callable[[Index, Any], object], list[Any], str, str]] = [
    (lambda index, ids: index.search("fox", deny=ids), IDS, "out_of_range", "pass a list of ids"),
    (lambda index, ids: index.delete(ids), IDS, "out_of_range", "pass a list of ids"),
    (lambda _, rows: Index.build(rows, embedder=None), LISTS, "malformed_candidate", ""),
    (lambda index, rows: index.upsert(rows), LISTS, "malformed_candidate", ""),
    (lambda index, of: Router(index, reranker=of), RERANKERS, "out_of_range", "identity"),
    (lambda _, of: rerank("fox", DOCUMENTS, reranker=of), RERANKERS, "out_of_range", "identity"),
]


@pytest.mark.parametrize(
    ("call", "values", "code", "remedy"),
    CALLS,
    ids=["search", "delete", "build", "upsert", "Router", "rerank"],
)
def test_argument_of_a_wrong_type_is_refused(
    call: Callable[[Index, Any], object], values: list[Any], code: str, remedy: str
) -> None:
    index = Index.build(DOCUMENTS, embedder=None)
    for value in values:
        assert remedy in refused(code, call, index, value)
    assert len(index) == len(DOCUMENTS)


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
