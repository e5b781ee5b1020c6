"""Faults that a hostile reading of the tiers, the steps and the stores brought to light."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from crossgate import (
    Candidate,
    InputError,
    PairScore,
    Passage,
    PluginError,
    RerankerError,
    arerank,
    rerank,
)
from crossgate._cli import doctor
from crossgate._pipelines.decay import decay
from crossgate._pipelines.diversity import deduplicate
from crossgate._pipelines.fusion import CrossEncoderFusion
from crossgate._reranking import plugins
from crossgate._reranking.chain import RerankerCall
from crossgate._reranking.listwise import permutation
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
from crossgate.stores._store_rows import candidate


class Tier:
    """Scores by length, after doing what it is told to."""

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
        return [PairScore(float(len(one.text))) for one in passages]


def test_time_that_passes_before_a_tier_is_asked_counts() -> None:
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


def test_a_stop_iteration_ends_a_tier_and_nothing_else() -> None:
    tier = Tier(lambda: next(iter(())))
    result = asyncio.run(asyncio.wait_for(arerank("fox", ["red fox", "hen"], reranker=tier), 30))
    assert [one.code for one in result.degraded] == ["no_profile", "reranker_failed"]
    assert result.ids


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_without_words_degrades_like_any_other() -> None:
    def fail() -> None:
        raise Mute

    result = rerank("fox", ["red fox", "hen"], reranker=Tier(fail))
    (_, degraded) = result.degraded  # the first says that there is no profile
    assert (degraded.code, degraded.detail) == ("reranker_failed", "Mute")


@pytest.mark.parametrize("kind", [CohereReranker, JinaReranker, VoyageReranker])
@pytest.mark.parametrize("key", ["sk-se\ncret9", "sk-se\0cret9", "sk se cret9", "sk-sécret9"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_quoted(kind: Any, key: str) -> None:
    with pytest.raises(RerankerError) as caught:
        kind(api_key=key)
    assert caught.value.code == "no_key"
    assert "cret9" not in str(caught.value)


def test_a_batch_that_fails_takes_its_share_of_the_best_and_not_all() -> None:
    assert [len(one) for one in _batches(121, None)] == [60, 60, 1]
    for count in (81, 120, 121, 300, 1000):
        batches = _batches(count, None)
        assert sorted(place for one in batches for place in one) == list(range(count))
        # Of the first ten no batch but the only other one holds more than half and one.
        assert all(len([place for place in one if place < 10]) <= 6 for one in batches)


def test_a_pace_stays_above_nothing() -> None:
    latency = LatencyEstimate(ms_per_pair=25.0)
    for _ in range(10_000):
        latency.observe(100, 0.0)
    assert latency.affordable(1e6) > 0


def test_words_and_vectors_want_the_whole_pool() -> None:
    assert SemanticBM25().available is False


@pytest.mark.parametrize("endpoint", ["http://[bad", "user:topsecret@host", ""])
def test_no_address_breaks_the_doctor_or_shows_a_password(endpoint: str) -> None:
    assert "secret" not in doctor._host(endpoint)


def test_a_cross_encoder_overturns_the_fused_order() -> None:
    stores = [[Candidate(id=one, text="x" * length) for one, length in (("a", 1), ("b", 9))]]
    fused = asyncio.run(CrossEncoderFusion(Tier()).fuse(stores, k=1, query="q"))
    assert [one.id for one in fused] == ["b"]


def test_an_empty_source_is_none() -> None:
    hits = [
        Candidate(id=str(place), text=f"text {place}", metadata={"source_id": source})
        for place, source in enumerate(["", "", True, 1, "s", "s"])
    ]
    assert [one.id for one in deduplicate(hits, similarity=None)] == ["0", "1", "2", "3", "4"]


def test_a_plug_in_that_leaves_is_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave() -> None:
        raise SystemExit(3)

    made_by = SimpleNamespace(name="leaver", version="1")
    point = SimpleNamespace(name="leaver", value="leaver:make", load=lambda: leave, dist=made_by)
    monkeypatch.setattr(plugins, "entry_points", lambda **options: [point])
    with pytest.raises(PluginError) as caught:
        plugins.load("leaver")
    assert "SystemExit: 3" in str(caught.value)


def test_what_json_cannot_hold_does_not_end_a_search() -> None:
    now = datetime(2031, 3, 15, tzinfo=UTC)
    row = {"text": "red fox", "at": now, "blob": b"\0", "odd": float("nan"), "n": 3}
    found = candidate("a", row, text="text", title=None, vector=[0.0, 0.0])
    assert found.metadata == {"at": now.isoformat(), "blob": "<bytes>", "odd": "<float>", "n": 3}
    assert found.vector is None
    assert rerank("fox", [found], reranker=None).ids == ["a"]


def test_a_run_of_digits_is_read_in_time_and_the_list_is_still_found() -> None:
    assert permutation(f"[{'1' * 200_000}] {'1' * 200_000} [2] > [1]", 2) == [1, 0]


@pytest.mark.parametrize("half_life", [10**400, float("inf"), 0, -1, "30"])
def test_a_half_life_that_is_none_is_refused(half_life: Any) -> None:
    with pytest.raises(InputError):
        decay([], now=datetime.now(UTC), half_life_days=half_life)


@pytest.mark.parametrize("now", [None, "2031-03-15", 5])
def test_a_time_that_is_none_is_refused(now: Any) -> None:
    with pytest.raises(InputError) as caught:
        decay([], now=now)
    assert caught.value.code == "out_of_range"
