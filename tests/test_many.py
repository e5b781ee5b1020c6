"""Batches of decisions: equal to single decisions, in order, with the first failure named."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import LIBRARY, FunctionReranker, LengthReranker, build, refused
from crossgate import Index, PairScore, Profile, Router, RouteResult, rerank, rerank_many
from crossgate._runtime import threads as runtime


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use four threads on any machine."""
    monkeypatch.setenv("CROSSGATE_THREADS", "4")
    monkeypatch.setattr(runtime, "_threads", 0)


def without_times(result: RouteResult) -> dict[str, Any]:
    values = result.to_dict(trace=True, text=True)
    del values["timings_ms"]
    return values


@given(st.lists(st.sampled_from([*LIBRARY.values(), "what is the time", "zzz"]), max_size=12))
def test_batch_equals_single_decisions(queries: list[str]) -> None:
    router = Router(build(), reranker=LengthReranker(), profile=Profile())
    one_by_one = [without_times(router.route(query, limit=3)) for query in queries]
    together = router.route_many(queries, limit=3, progress=False)
    assert [without_times(result) for result in together] == one_by_one

    pairs = [(query, list(LIBRARY.values())[: place % 4]) for place, query in enumerate(queries)]
    many = rerank_many(iter(pairs), reranker=LengthReranker(), limit=2, progress=False)
    assert [without_times(result) for result in many] == [
        without_times(rerank(*pair, reranker=LengthReranker(), limit=2)) for pair in pairs
    ]


@pytest.mark.usefixtures("four_threads")
def test_queries_are_decided_concurrently() -> None:
    # Passes only if four calls run at the same time.
    barrier = threading.Barrier(4, timeout=60)

    def score(query: str, texts: Sequence[str]) -> list[PairScore]:
        barrier.wait()
        return [PairScore(float(place)) for place in range(len(texts))]

    pairs = [("red fox", ["red", "fox"])] * 8
    results = rerank_many(pairs, reranker=FunctionReranker(score), progress=False)
    assert [result.reason for result in results] == ["reranked"] * 8


def test_ids_of_an_iterator_apply_to_every_query(index: Index) -> None:
    router = Router(index, reranker=None, profile=Profile())
    query = LIBRARY["pdf-toolkit"]
    results = router.route_many([query] * 3, deny=iter(["pdf-toolkit"]), progress=False)
    assert ["pdf-toolkit" in {hit.id for hit in result.hits} for result in results] == [False] * 3
    results = router.route_many([query] * 3, allow=iter(["pdf-toolkit"]), progress=False)
    assert [result.ids for result in results] == [["pdf-toolkit"]] * 3
    refused("out_of_range", router.route_many, [], deny="pdf-toolkit")


def test_progress_counts_to_the_total(index: Index) -> None:
    told: list[tuple[int, int]] = []
    router = Router(index, reranker=None)
    router.route_many(list(LIBRARY), progress=lambda done, total: told.append((done, total)))
    assert told == [(done, len(LIBRARY)) for done in range(1, len(LIBRARY) + 1)]


def test_progress_bar_is_shown_only_on_a_terminal(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Router(index, reranker=None)

    def stderr_of(terminal: bool, progress: bool) -> str:
        stream = io.StringIO()
        stream.isatty = lambda: terminal  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stderr", stream)
        router.route_many(["merge pdf files"] * 3, progress=progress)
        return stream.getvalue()

    assert "deciding" in stderr_of(terminal=True, progress=True)
    assert stderr_of(terminal=True, progress=False) == ""
    assert stderr_of(terminal=False, progress=True) == ""
    monkeypatch.setattr(sys, "stderr", None)
    router.route_many(["merge pdf files"])


def test_first_unusable_query_is_named(index: Index) -> None:
    router = Router(index, reranker=None)
    assert "query 1: " in refused("invalid_text", router.route_many, ["a", 5, "", "b"])
    assert "query 2: candidate 0 " in refused(
        "malformed_candidate", rerank_many, [("a", ["b"]), ("a", []), ("a", [5])]
    )
    assert "query 0: a str is not a pair" in refused("malformed_candidate", rerank_many, ["ab"])
    refused("malformed_candidate", rerank_many, [("a", ["b"], 5)])
    refused("out_of_range", router.route_many, "merge pdf files")
    refused("out_of_range", router.route_many, ["a"], vector=[1.0])
    refused("out_of_range", rerank_many, [("a", ["b"])], vector=[1.0])
    assert router.route_many([]) == rerank_many([]) == []


@pytest.mark.usefixtures("four_threads")
def test_failure_starts_no_further_query() -> None:
    begun: list[str] = []

    def score(query: str, texts: Sequence[str]) -> list[PairScore]:
        begun.append(query)
        return [PairScore(0.0)] * len(texts)

    pairs: list[Any] = [("", ["a"])] + [("red fox", ["red", "fox"])] * 1_000
    refused("empty_query", rerank_many, pairs, reranker=FunctionReranker(score))
    assert len(begun) < 1_000


@pytest.mark.usefixtures("four_threads")
def test_failing_reranker_degrades_each_result() -> None:
    def score(query: str, texts: Sequence[str]) -> list[PairScore]:
        raise OSError("no answer")

    results = rerank_many([("a", ["a", "b"])] * 5, reranker=FunctionReranker(score))
    codes = [[note.code for note in result.degraded] for result in results]
    assert codes == [["no_profile", "reranker_failed"]] * 5
