"""Regression tests for faults in the tiers, the steps and the stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import refused
from crossgate import (
    Candidate,
    PairScore,
    Passage,
    PluginError,
    RerankerError,
    arerank,
    rerank,
)
from crossgate._pipelines.diversity import deduplicate
from crossgate._pipelines.fusion import CrossEncoderFusion
from crossgate._reranking import plugins
from crossgate._reranking.chain import RerankerCall
from crossgate._reranking.generative import permutation
from crossgate._reranking.remote import _batches
from crossgate.rerankers import (
    CohereReranker,
    Deadline,
    GuardedReranker,
    JinaReranker,
    LatencyEstimate,
    SemanticBM25,
    VoyageReranker,
    passages_of,
)


class Tier:
    """Scores by length, after calling a function."""

    name = "length"
    identity = "length@1"

    def __init__(self, before: Any = None) -> None:
        self.before = before

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> list[PairScore]:
        """Return the lengths."""
        if self.before is not None:
            self.before()
        return [PairScore(float(len(passage.text))) for passage in passages]


def test_time_before_the_call_counts_towards_the_budget() -> None:
    asked: list[bool] = []
    call = RerankerCall(
        reranker=GuardedReranker(Tier(lambda: asked.append(True))),
        query="q",
        passages=passages_of(["a"]),
        deadline=Deadline(0),
    )
    for answer in (call.run(), asyncio.run(call.arun())):
        assert isinstance(answer, RerankerError)
        assert answer.code == "budget"
    assert asked == []


def test_stop_iteration_of_a_tier_degrades_the_result() -> None:
    tier = Tier(lambda: next(iter(())))
    result = asyncio.run(asyncio.wait_for(arerank("fox", ["red fox", "hen"], reranker=tier), 30))
    assert [note.code for note in result.degraded] == ["no_profile", "reranker_failed"]
    assert result.ids


class ErrorWithoutText(Exception):
    """An error whose text raises."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_error_that_cannot_be_printed_degrades_the_result() -> None:
    def fail() -> None:
        raise ErrorWithoutText

    result = rerank("fox", ["red fox", "hen"], reranker=Tier(fail))
    (_, degraded) = result.degraded  # the first is `no_profile`
    assert (degraded.code, degraded.detail) == ("reranker_failed", "ErrorWithoutText")


@pytest.mark.parametrize("kind", [CohereReranker, JinaReranker, VoyageReranker])
@pytest.mark.parametrize("key", ["sk-se\ncret9", "sk-se\0cret9", "sk se cret9", "sk-sécret9"])
def test_key_with_invalid_characters_is_refused_without_showing_it(kind: Any, key: str) -> None:
    said = refused("no_key", kind, api_key=key)
    assert "cret9" not in said


def test_no_batch_holds_most_of_the_best_candidates() -> None:
    assert [len(batch) for batch in _batches(121, None)] == [60, 60, 1]
    for count in (81, 120, 121, 300, 1000):
        batches = _batches(count, None)
        assert sorted(place for batch in batches for place in batch) == list(range(count))
        # No batch has more than half of the first ten, plus one.
        assert all(len([place for place in batch if place < 10]) <= 6 for batch in batches)


def test_latency_estimate_stays_above_0() -> None:
    latency = LatencyEstimate(ms_per_pair=25.0)
    for _ in range(10_000):
        latency.observe(100, 0.0)
    assert latency.ms_per_pair > 0


def test_words_and_vectors_need_the_whole_pool() -> None:
    assert SemanticBM25().available is False


def test_cross_encoder_overrides_the_fused_order() -> None:
    stores = [[Candidate(id=name, text="x" * length) for name, length in (("a", 1), ("b", 9))]]
    fused = asyncio.run(CrossEncoderFusion(Tier()).fuse(stores, k=1, query="q"))
    assert [hit.id for hit in fused] == ["b"]


def test_empty_source_is_ignored() -> None:
    hits = [
        Candidate(id=str(place), text=f"text {place}", metadata={"source_id": source})
        for place, source in enumerate(["", "", True, 1, "s", "s"])
    ]
    assert [hit.id for hit in deduplicate(hits, similarity=None)] == ["0", "1", "2", "3", "4"]


def test_plug_in_that_exits_is_a_load_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave() -> None:
        raise SystemExit(3)

    made_by = SimpleNamespace(name="leaver", version="1")
    point = SimpleNamespace(name="leaver", value="leaver:make", load=lambda: leave, dist=made_by)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **options: [point])
    with pytest.raises(PluginError) as caught:
        plugins.load("leaver")
    assert "SystemExit: 3" in str(caught.value)


def test_long_run_of_digits_is_parsed_in_time() -> None:
    assert permutation(f"[{'1' * 200_000}] {'1' * 200_000} [2] > [1]", 2) == [1, 0]
