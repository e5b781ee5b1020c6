"""Anytime reranking: what stage 2 leaves unread, and that the decision does not depend on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crossgate import Document, Index, Profile, Router, set_threads
from crossgate._calibration.fits import Scores as RowScores
from crossgate._calibration.fits import fit_anytime
from crossgate._core import Anytime, Combine, RunnerUpRule
from crossgate._runtime import threads
from crossgate.rerankers import Deadline, PairScore, Passage, Scores

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
DOCUMENTS = [
    Document(id=f"{number}", text=" ".join(["merge", *WORDS[number:]])) for number in range(6)
]
MODEL = Anytime(intercept=0.0, cosine=0.0, bm25=0.0, deviation=1.0, shared=0.0, stop=0.02)
PROFILE = Profile(
    combine=Combine.Weighted(cosine=0.0, bm25=1.0, rerank_score=1.0),
    runner_up=RunnerUpRule(stage2=0.0),
    pool=6,
    anytime=MODEL,
)


class ByTable:
    """A reranker with fixed scores that counts the passages it reads."""

    name = identity = "table"

    def __init__(self, scores: dict[str, float]) -> None:
        self.scores = scores
        self.read: list[str] = []

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> list[PairScore]:
        """Score all passages."""
        self.read += [passage.id for passage in passages]
        return [PairScore(self.scores[passage.id]) for passage in passages]

    def score_until(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline, enough: Any
    ) -> Scores:
        """Score passages until the scores are enough."""
        scored: list[PairScore] = []
        for passage in passages:
            self.read.append(passage.id)
            scored.append(PairScore(self.scores[passage.id]))
            if enough(scored):
                break
        rest = [None] * (len(passages) - len(scored))
        return Scores([*scored, *rest], stopped=bool(rest))


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.build(DOCUMENTS, embedder=None)


def route(index: Index, reranker: Any, profile: Profile = PROFILE, **options: Any) -> Any:
    router = Router(index, reranker=reranker, profile=profile)
    return router.route("merge " + " ".join(WORDS), **options)


def test_reading_stops_after_a_high_score(index: Index) -> None:
    reranker = ByTable({str(number): 9.0 if number == 1 else 0.0 for number in range(6)})
    result = route(index, reranker)
    assert result.ids == ["1"]
    assert len(reranker.read) == 2
    assert result.degraded == ()
    assert [pair["id"] for pair in result.trace["stage2"]] == reranker.read
    assert len(result.trace["gate"]["pool"]) == 6
    unread = [hit for hit in result.hits if hit.id not in reranker.read]
    assert {hit.dropped for hit in unread} == {"not_reranked"}


def test_reading_goes_on_after_low_scores(index: Index) -> None:
    reranker = ByTable({str(number): number - 6.0 for number in range(6)})
    result = route(index, reranker)
    assert result.ids == ["5"]
    assert len(reranker.read) == 6


def test_async_decision_reads_the_same(index: Index) -> None:
    def router() -> tuple[ByTable, Router]:
        reranker = ByTable({str(number): 9.0 if number == 1 else 0.0 for number in range(6)})
        return reranker, Router(index, reranker=reranker, profile=PROFILE)

    (first, one), (second, other) = router(), router()
    result = one.route("merge alpha beta")
    again = asyncio.run(other.aroute("merge alpha beta"))
    assert result.trace == again.trace
    assert first.read == second.read


@pytest.mark.parametrize("enough_at", [1, 2, 3, 5, 8, 9])
def test_prefix_does_not_depend_on_the_number_of_threads(
    enough_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for number in (1, 2, 3, 8):
        monkeypatch.setattr(threads, "_threads", 0)
        set_threads(number)
        found.append(
            threads.run_prefix(
                lambda item: item * item, range(8), None, lambda done: len(done) >= enough_at
            )
        )
    monkeypatch.setattr(threads, "_workers", None)
    assert found == [[item * item for item in range(min(enough_at, 8))]] * 4


def test_cross_encoder_stops_early(index: Index) -> None:
    result = route(index, "default", PROFILE.replace(anytime=MODEL.replace(intercept=-1e3)))
    whole = route(index, "default", PROFILE.replace(anytime=None))
    assert len(result.trace["stage2"]) == 2
    assert len(whole.trace["stage2"]) == 6
    scores = {pair["id"]: pair["score"] for pair in whole.trace["stage2"]}
    assert all(scores[pair["id"]] == pair["score"] for pair in result.trace["stage2"])


def test_fit_recovers_the_parameters() -> None:
    random = np.random.default_rng(5)
    rows = []
    for _ in range(3_000):
        cosine, bm25 = random.uniform(0, 1, 4), random.uniform(0, 20, 4)
        noise = random.normal(0, 1.2) + random.normal(0, 1.6, 4)  # variance 4, of which 0.36 shared
        score = -5 + 9 * cosine + 0.4 * np.log1p(bm25) + noise
        rows.append(RowScores(cosine, bm25, score, np.zeros(4), np.zeros(4, dtype=np.bool_)))
    model = fit_anytime(rows)
    assert model is not None
    assert model.intercept == pytest.approx(-5, abs=0.3)
    assert model.cosine == pytest.approx(9, abs=0.3)
    assert model.bm25 == pytest.approx(0.4, abs=0.1)
    assert model.deviation == pytest.approx(2, abs=0.05)
    assert model.shared == pytest.approx(0.36, abs=0.03)
    assert fit_anytime(rows[:20]) is None
