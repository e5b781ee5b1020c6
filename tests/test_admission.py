"""The bounds around any reranker: a third party's that knows of none of them keeps to them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from conftest import FunctionReranker, TableReranker, WordEmbedder, build, refused
from crossgate import PairScore, Passage, Profile, RerankerError, Router, RouteResult, rerank
from crossgate._core import Combine
from crossgate.rerankers import (
    AsyncReranker,
    CircuitBreaker,
    Deadline,
    GuardedReranker,
    LatencyEstimate,
    Reranker,
    Scores,
    SemanticBM25,
    passages_of,
)

QUERY = "clean up this messy csv"
REPLACE = Profile(combine=Combine.Replace())
INDEX = build()
PASSAGES = passages_of(["a", "bb", "ccc"])

Scoring = Callable[[Sequence[Passage], Deadline], Any]


class Own:
    """A third party's reranker with the required attributes only."""

    name = "own"
    identity = "own@1"

    def __init__(self, scoring: Scoring) -> None:
        self.scoring = scoring
        self.threads: list[threading.Thread] = []

    def score(self, query: str, passages: Sequence[Passage], *, deadline: Deadline) -> Any:
        """Run the planned behaviour, and remember the thread."""
        self.threads.append(threading.current_thread())
        return self.scoring(passages, deadline)


class Remote(Own):
    """A reranker with an endpoint."""

    endpoint = "https://own.example"


class Waiting(Own):
    """One that waits on an event loop."""

    async def ascore(self, query: str, passages: Sequence[Passage], *, deadline: Deadline) -> Any:
        """Wait for longer than anybody has the patience for."""
        self.threads.append(threading.current_thread())
        await asyncio.sleep(3_600)


def lengths(passages: Sequence[Passage], deadline: Deadline) -> list[PairScore]:
    return [PairScore(float(len(one.text))) for one in passages]


def failing(passages: Sequence[Passage], deadline: Deadline) -> list[PairScore]:
    raise OSError("no route to host")


def stopped() -> float:
    """A clock that stands still, so that a busy machine takes nothing of a budget."""
    return 0.0


def bounded(reranker: Reranker, **bounds: Any) -> GuardedReranker:
    defaults = {
        "breaker": CircuitBreaker(),
        "latency": LatencyEstimate(ms_per_pair=0.1),
        "clock": stopped,
    }
    return GuardedReranker(reranker, **{**defaults, **bounds})


def ask(admitted: GuardedReranker, native: bool, budget_ms: float | None = None) -> Scores:
    deadline = Deadline(budget_ms, clock=stopped)
    if native:
        return asyncio.run(admitted.ascore(QUERY, PASSAGES, deadline=deadline))
    return admitted.score(QUERY, PASSAGES, deadline=deadline)


def route(router: Router, native: bool, **options: Any) -> RouteResult:
    if native:
        return asyncio.run(router.aroute(QUERY, **options))
    return router.route(QUERY, **options)


def codes(result: RouteResult) -> list[str]:
    return [one.code for one in result.degraded]


@pytest.fixture
def stuck() -> Iterator[Scoring]:
    """Scores only once the test is over."""
    over = threading.Event()

    def scoring(passages: Sequence[Passage], deadline: Deadline) -> list[PairScore]:
        over.wait()
        return lengths(passages, deadline)

    yield scoring
    over.set()


both = pytest.mark.parametrize("native", [False, True], ids=["sync", "async"])


@both
def test_call_that_does_not_return_is_abandoned(native: bool, stuck: Scoring) -> None:
    for budget_ms in (500.0, 10_000.0, 50_000.0):
        reranker = bounded(Own(stuck), clock=time.monotonic)
        router = Router(INDEX, reranker=[reranker, SemanticBM25()], profile=REPLACE)
        result = route(router, native, budget_ms=budget_ms)
        if result.stage == 2:  # on a busy machine the time may be over before both were asked
            break
    assert codes(result) == ["budget"]
    assert "the call was abandoned" in result.degraded[0].detail
    assert {hit.provider for hit in result.hits} == {"semantic-bm25"}
    assert reranker.latency.ms_per_pair > 0.1


@both
def test_three_that_do_not_return_are_enough(native: bool, stuck: Scoring) -> None:
    entered = threading.Semaphore(0)

    def scoring(passages: Sequence[Passage], deadline: Deadline) -> Any:
        entered.release()
        return stuck(passages, deadline)

    own = Own(scoring)
    reranker = bounded(own)
    for _ in range(3):
        refused("budget", ask, reranker, native, 50)
        assert entered.acquire(timeout=60)
    for _ in range(20):
        refused("circuit_breaker", ask, reranker, native, 50)
    assert len(own.threads) == 3


def test_one_that_stops_by_itself_may_be_late_while_it_loads(stuck: Scoring) -> None:
    class Loading(Own):
        stops_in_time = True

    admitted = bounded(Loading(stuck))
    for _ in range(5):
        refused("budget", ask, admitted, False, 20)
    assert admitted.available


def test_one_that_waits_on_the_loop_is_cancelled_in_time() -> None:
    waiting = Waiting(lengths)
    assert isinstance(waiting, AsyncReranker)
    admitted = bounded(waiting)
    refused("budget", ask, admitted, True, 50)
    assert waiting.threads == [threading.current_thread()]  # on the loop, not beside it
    assert admitted.breaker._counted == 1


def test_a_timeout_of_its_own_is_its_own() -> None:
    def timed_out(passages: Sequence[Passage], deadline: Deadline) -> Any:
        raise TimeoutError("the database")

    for native in (False, True):
        with pytest.raises(TimeoutError, match="the database"):
            ask(bounded(Own(timed_out)), native, 60_000)


def test_without_a_deadline_it_runs_where_it_is_called() -> None:
    own = Own(lengths)
    assert [pair.score for pair in ask(bounded(own), False).complete()] == [1.0, 2.0, 3.0]
    assert own.threads == [threading.current_thread()]
    ask(bounded(own), False, 60_000)
    assert own.threads[1] is not threading.current_thread()
    assert own.threads[1].daemon  # it does not keep the process from ending


@both
def test_each_reranker_gets_a_list_of_its_own(native: bool) -> None:
    def clear(passages: Any, deadline: Deadline) -> Any:
        passages.clear()
        raise RuntimeError("broken")

    table = TableReranker({})
    router = Router(INDEX, reranker=[bounded(Own(clear)), table], profile=REPLACE)
    result = route(router, native)
    assert codes(result) == ["reranker_failed"]
    assert len(table.calls[0][1]) == len(INDEX)
    assert {hit.provider for hit in result.hits} == {"table"}


class SlowEmbedder(WordEmbedder):
    """Takes longer for a query than the budget allows for everything."""

    def embed(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[list[float]]:
        """Wait, and do as any other."""
        time.sleep(0.3)
        return super().embed(texts, progress=progress)


def test_time_of_stage_1_is_deducted_for_the_reranker() -> None:
    reranker = Own(lambda passages, deadline: [PairScore(1.0) for _ in passages])
    router = Router(build(embedder=SlowEmbedder()), reranker=reranker, profile=REPLACE)
    result = router.route(QUERY, budget_ms=250)
    assert {one.code for one in result.degraded} == {"budget"}
    assert reranker.threads == []
    assert router.route(QUERY, budget_ms=60_000).stage == 2


def test_reading_candidates_counts_as_time() -> None:
    reranker = Own(lambda passages, deadline: [PairScore(1.0) for _ in passages])

    def rows() -> Iterator[str]:
        yield "clean a csv"
        time.sleep(0.3)
        yield "merge pdf files"

    result = rerank(QUERY, rows(), reranker=reranker, budget_ms=250)
    assert {note.code for note in result.degraded} - {"no_profile"} == {"budget"}
    assert reranker.threads == []
    assert result.timings["total"] >= 300


def test_passages_carry_the_scores_of_stage_1() -> None:
    seen: list[Passage] = []

    def scoring(passages: Sequence[Passage], deadline: Deadline) -> list[PairScore]:
        seen.extend(passages)
        return lengths(passages, deadline)

    result = Router(INDEX, reranker=bounded(Own(scoring)), profile=REPLACE).route(QUERY, limit=None)
    known = {hit.id: (hit.cosine, hit.bm25, hit.blend, hit.document.content) for hit in result.hits}
    assert {one.id: (one.cosine, one.bm25, one.blend, one.text) for one in seen} == known


@pytest.mark.parametrize("score", [1.01e30, -1e31, 1e308, float("inf"), float("nan")])
def test_scores_that_could_overflow_are_refused(score: float) -> None:
    own = FunctionReranker(lambda _, texts: [PairScore(score)] * len(texts))
    with pytest.raises(ValueError, match="within 1e30"):
        ask(bounded(own), False)
    assert ask(bounded(Own(lambda passages, _: [PairScore(1e30)] * 3)), False).complete()


def test_a_plain_list_may_leave_passages_out() -> None:
    found = ask(bounded(Own(lambda *_: [PairScore(1.0), None, PairScore(2.0)])), False)
    assert [pair and pair.score for pair in found] == [1.0, None, 2.0]
    assert found.missing is not None
    assert found.missing.code == "partial_scores"
    assert "2 of 3" in found.missing.detail
    refused("partial_scores", found.complete)
    with pytest.raises(RerankerError, match="scored 1 of 3"):
        ask(bounded(Own(lambda *_: [PairScore(1.0), None, None])), False)


def test_one_without_an_endpoint_may_raise_as_often_as_it_likes() -> None:
    admitted = bounded(Own(failing))
    for _ in range(5):
        with pytest.raises(OSError, match="no route"):
            ask(admitted, False)
    assert admitted.available


def test_rerankers_of_one_kind_share_their_bounds() -> None:
    first, again = GuardedReranker(Own(lengths)), GuardedReranker(Own(failing))
    assert first.breaker is again.breaker
    assert first.latency is again.latency
    other = FunctionReranker(lambda *_: [])
    other.identity = Own.identity
    assert GuardedReranker(other).latency is not first.latency
    assert GuardedReranker(Remote(lengths)).breaker is not first.breaker
    assert GuardedReranker(SemanticBM25()).available is False


def test_too_little_time_is_refused_before_it_is_spent() -> None:
    own = Own(lengths)
    slow = bounded(own, latency=LatencyEstimate(ms_per_pair=1_000.0))
    with pytest.raises(RerankerError, match="needs 3000 ms for 3 passages"):
        ask(slow, False, 2_500)
    assert own.threads == []
