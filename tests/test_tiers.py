"""Rerankers in the cascade: calls, fallbacks, provider names and replay."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import soak as soak_module
from conftest import LIBRARY, FunctionReranker, TableReranker, WordEmbedder, build, refused
from crossgate import (
    CrossEncoder,
    Index,
    PairScore,
    Passage,
    Policy,
    Profile,
    RerankerError,
    Router,
    RouteResult,
    arerank,
    rerank,
)
from crossgate._core import Blend, Combine, RunnerUpRule
from crossgate._decision import cascade
from crossgate._runtime.threads import run_until
from crossgate._values.results import Degradation
from crossgate.rerankers import (
    CircuitBreaker,
    CohereReranker,
    Deadline,
    GuardedReranker,
    LatencyEstimate,
    Scores,
    SemanticBM25,
    TransportError,
    VoyageReranker,
    passages_of,
    shut_down,
)
from providers_server import KEY, ProvidersServer, relevance
from test_tiers_breaker import check_log

QUERY = "clean up this messy csv"
REPLACE = Profile(combine=Combine.Replace())

pytestmark = pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated")


@pytest.fixture
def server() -> Iterator[ProvidersServer]:
    """A server of its own for each test."""
    with ProvidersServer() as server:
        yield server
    shut_down()


def remote(server: ProvidersServer, kind: type = CohereReranker, **bounds: Any) -> GuardedReranker:
    """Return a remote reranker with a breaker of its own that is in no hurry."""
    url = server.voyage if kind is VoyageReranker else server.url
    defaults: dict[str, Any] = {
        "breaker": CircuitBreaker(),
        "latency": LatencyEstimate(ms_per_pair=0.01),
    }
    return GuardedReranker(kind(api_key=KEY, base_url=url, attempts=1), **{**defaults, **bounds})


def codes(result: RouteResult) -> list[str]:
    return [one.code for one in result.degraded]


def raising(error: Exception) -> FunctionReranker:
    def score(query: str, documents: Sequence[str]) -> Any:
        raise error

    return FunctionReranker(score)


class Both:
    """Routes and reranks, from a thread or from an event loop."""

    def __init__(self, native: bool) -> None:
        self.native = native

    def route(self, router: Router, query: str = QUERY, **options: Any) -> RouteResult:
        """Call `route` or its twin."""
        if self.native:
            return asyncio.run(router.aroute(query, **options))
        return router.route(query, **options)

    def rerank(self, *arguments: Any, **options: Any) -> RouteResult:
        """Call `rerank` or its twin."""
        if self.native:
            return asyncio.run(arerank(*arguments, **options))
        return rerank(*arguments, **options)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def both(request: pytest.FixtureRequest) -> Both:
    """Both ways in."""
    return Both(request.param)


# Which tier answers.


@pytest.mark.parametrize("kind", [VoyageReranker, CohereReranker])
def test_the_first_tier_that_answers_decides(
    both: Both, index: Index, server: ProvidersServer, kind: type
) -> None:
    second = TableReranker({})
    tier = remote(server, kind)
    result = both.route(Router(index, reranker=[tier, second], profile=REPLACE), limit=None)
    assert codes(result) == []
    assert {hit.provider for hit in result.hits} == {tier.name}
    assert [hit.rerank_score for hit in result.hits] == sorted(map(relevance, LIBRARY.values()))[
        ::-1
    ]
    assert second.calls == []
    assert result.trace["reranker"] == tier.identity
    assert result.trace["asked"] == [[tier.identity, "answered"]]


def test_the_next_tier_takes_over(both: Both, index: Index, server: ProvidersServer) -> None:
    server.plan.append("500")
    tier = remote(server)
    table = TableReranker({LIBRARY["translator"]: 5.0})
    lexical = SemanticBM25()
    router = Router(index, reranker=[tier, table, lexical], profile=REPLACE)
    result = both.route(router)
    assert result.ids[0] == "translator"
    assert codes(result) == ["api_error"]
    assert {hit.provider for hit in result.hits} == {"table"}  # one tier alone
    assert result.trace["asked"] == [[tier.identity, "api_error"], ["table@1", "answered"]]
    assert (
        cascade.replay(json.loads(json.dumps(result.trace)))["decision"] == result.trace["decision"]
    )


def test_where_no_tier_answers_stage_1_stands(
    both: Both, index: Index, server: ProvidersServer
) -> None:
    expected = Router(index, reranker=None, profile=REPLACE).route(QUERY)
    opened = CircuitBreaker(failures=1)
    permit = opened.admit()
    assert permit is not None
    permit.failure()
    tiers: list[Any] = [remote(server, breaker=opened), raising(RuntimeError("broken")), None]
    result = both.route(Router(index, reranker=tiers, profile=REPLACE))
    assert (result.ids, result.stage, result.reason) == (expected.ids, 1, "undecided")
    assert codes(result) == ["circuit_breaker", "reranker_failed"]
    assert server.requests == []
    assert result.trace["reranker"] is None


def test_a_clear_stage_1_asks_no_tier(both: Both, index: Index) -> None:
    from crossgate._core import Winner

    tier = raising(RuntimeError("never"))
    profile = Profile(winner=Winner(agreed=0.0, disagreed=0.0))
    result = both.route(Router(index, reranker=[tier], profile=profile), budget_ms=0)
    assert (result.verdict, codes(result), tier.calls) == ("confident", [], [])


def test_none_in_the_sequence_is_left_out(both: Both, index: Index) -> None:
    result = both.route(Router(index, reranker=[None, TableReranker({})], profile=REPLACE))
    assert codes(result) == []
    assert result.stage == 2
    for nothing in ([], [None], None):
        result = both.route(Router(index, reranker=nothing, profile=REPLACE), budget_ms=0)
        assert (codes(result), result.stage) == ([], 1)


def test_rerank_takes_tiers_too(both: Both, server: ProvidersServer) -> None:
    texts = list(LIBRARY.values())
    result = both.rerank(QUERY, texts, reranker=[remote(server), SemanticBM25()])
    assert {hit.provider for hit in result.hits} == {"cohere"}
    server.plan.append("503")
    result = both.rerank(QUERY, texts, reranker=[remote(server), SemanticBM25()])
    assert {hit.provider for hit in result.hits} == {"semantic-bm25"}
    assert codes(result) == ["no_profile", "api_error"]
    result = both.rerank(QUERY, [], reranker=[remote(server)], budget_ms=-1)
    assert result.verdict == "nothing_relevant"
    no_profile, *late = result.degraded
    assert no_profile.code == "no_profile"
    # On a busy machine, stage 1 may not end in its least time. The reranker is not to be called.
    assert all("too short to score the candidates" in note.detail for note in late)


def test_more_candidates_than_a_request_takes(both: Both, server: ProvidersServer) -> None:
    texts = [f"document {number}" for number in range(250)]
    server.plan += [None, "500", None, None, None]
    result = both.rerank("document", texts, reranker=remote(server))
    assert codes(result) == ["no_profile", "partial_scores"]
    unread = [hit for hit in result.hits if hit.rerank_score is None]
    assert len(unread) in (60, 10)
    assert {hit.dropped for hit in unread} == {"not_reranked"}
    assert {hit.provider for hit in unread} == {"stage1"}
    assert cascade.replay(result.trace)["decision"] == result.trace["decision"]


def test_the_outage_from_end_to_end(both: Both, index: Index, server: ProvidersServer) -> None:
    now = 0.0
    breaker = CircuitBreaker(clock=lambda: now)
    tier = remote(server, breaker=breaker)
    router = Router(index, reranker=[tier, SemanticBM25()], profile=Profile())
    server.plan += [None, "500", "reset", "truncated"]
    answered, labels = [], []
    for call in range(9):
        if call == 6:
            now = 60.0
        result = both.route(router)
        answered.append(result.selected[0].provider)
        labels.append(codes(result))
    assert answered == ["cohere", *["semantic-bm25"] * 5, *["cohere"] * 3]
    assert labels == [[], *[["api_error"]] * 3, *[["circuit_breaker"]] * 2, [], [], []]
    assert [one.after for one in breaker.transitions] == ["open", "half_open", "closed"]


# The budget.


@pytest.mark.parametrize("budget", [0, -5.0, -math.inf])
def test_with_no_budget_stage_1_stands(both: Both, index: Index, budget: float) -> None:
    tier = TableReranker({})
    router = Router(index, reranker=[tier, SemanticBM25()], profile=REPLACE)
    result = both.route(router, budget_ms=budget)
    assert (codes(result), result.stage, tier.calls) == (["budget"], 1, [])
    assert result.ids == Router(index, reranker=None, profile=REPLACE).route(QUERY).ids
    assert json.loads(json.dumps(result.trace, allow_nan=False))["budget_ms"] == 0


def test_too_little_for_one_tier_may_be_enough_for_the_next(
    both: Both, index: Index, server: ProvidersServer
) -> None:
    tier = remote(server, latency=LatencyEstimate(ms_per_pair=25.0, absolute_floor_ms=100_000.0))
    router = Router(index, reranker=[tier, SemanticBM25()], profile=REPLACE)
    result = both.route(router, budget_ms=10_000)
    assert codes(result) == ["budget"]
    assert {hit.provider for hit in result.hits} == {"semantic-bm25"}
    assert "100000 ms" in result.degraded[0].detail
    assert server.requests == []


def test_each_tier_gets_only_a_share_of_the_time_left(index: Index) -> None:
    asked: list[float] = []

    class Timed(TableReranker):
        def score(self, query: str, passages: Sequence[Passage], *, deadline: Deadline) -> Scores:
            assert deadline.left is not None
            asked.append(deadline.left)
            raise RerankerError("api_error", "no")

    tiers = [Timed({}) for _ in range(4)]
    Router(index, reranker=tiers, profile=REPLACE).route(QUERY, budget_ms=1_000)
    assert len(asked) == 4
    assert all(0 < one <= 0.8 for one in asked[:3])
    assert 0 < asked[3] <= 0.95


def test_a_slow_remote_tier_is_given_up_in_time_for_the_next(
    both: Both, index: Index, server: ProvidersServer
) -> None:
    server.plan.append("slow_body")
    tier = remote(server)
    router = Router(index, reranker=[tier, SemanticBM25()], profile=REPLACE)
    result = both.route(router, budget_ms=3_000)  # enough for a busy machine to ask both
    assert codes(result) == ["api_error"]
    assert {hit.provider for hit in result.hits} == {"semantic-bm25"}


# The local cross-encoder and the clock.


def test_a_local_tier_keeps_the_prefix_that_it_had_time_for() -> None:
    released = threading.Event()

    def slow(item: int) -> int:
        if item == 3:
            released.wait(30)
        return item * 10

    try:
        done = run_until(slow, range(8), time.monotonic() + 1.0)
    finally:
        released.set()
    assert done == [0, 10, 20]
    assert run_until(slow, range(8), None) == [item * 10 for item in range(8)]
    assert run_until(slow, [5], time.monotonic() + 30) == [50]
    assert run_until(slow, [], time.monotonic() + 30) == []
    with pytest.raises(ZeroDivisionError):
        run_until(lambda item: 1 // item, [0], time.monotonic() + 30)


def test_the_bundled_model_stops_in_time_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # The model stops by itself. On a busy machine that may be heard of late.
    monkeypatch.setattr("crossgate._reranking.guard._GRACE", 60.0)
    encoder = CrossEncoder()
    encoder.score("warm up", passages_of(["warm up"]))
    passages = passages_of(["what is wanted here " * 200] * 4_000)
    whole = encoder.score(QUERY, passages[:3])
    latency = LatencyEstimate(ms_per_pair=0.01)
    admitted = GuardedReranker(encoder, latency=latency)
    for _ in range(2):  # the first call says nothing about the latency
        # Seconds enough for two pairs even where much else runs, and too few for all anywhere.
        found = admitted.score(QUERY, passages, deadline=Deadline(5_000))
        scored = [pair for pair in found if pair is not None]
        assert list(found) == [*scored, *[None] * (4_000 - len(scored))]
        assert 2 <= len(scored) < 4_000
        assert scored[:2] == list(whole[:2])
        assert found.missing is not None
        assert found.missing.code == "budget"
    assert latency.ms_per_pair > 0.01
    latency.ms_per_pair = 1_000.0
    assert "2000 ms" in refused("budget", admitted.score, QUERY, passages, deadline=Deadline(1_000))
    latency.ms_per_pair = 0.0001
    refused("budget", admitted.score, QUERY, passages, deadline=Deadline(1))
    assert encoder.score(QUERY, passages[:3]).complete()
    assert encoder.score(QUERY, [], deadline=Deadline(1_000)) == ()


class Partial(TableReranker):
    """Scores only the configured documents."""

    def __init__(self, kept: int, code: str = "budget") -> None:
        super().__init__({})
        self.kept = kept
        self.code = code

    def score(self, query: str, passages: Sequence[Passage], *, deadline: Deadline) -> Scores:
        """Score the first ones."""
        pairs = [PairScore(float(-len(one.text))) for one in passages[: self.kept]]
        rest = [None] * (len(passages) - len(pairs))
        return Scores([*pairs, *rest], Degradation(code=self.code, detail="out of time"))


@pytest.mark.parametrize("kept", range(7))
def test_partial_scores_count_from_two_on(both: Both, index: Index, kept: int) -> None:
    result = both.route(Router(index, reranker=Partial(kept), profile=REPLACE), limit=None)
    assert codes(result) == ["budget"]
    assert result.stage == (2 if kept >= 2 else 1)
    assert len(result.trace["stage2"]) == (kept if kept >= 2 else 0)
    assert cascade.replay(result.trace)["decision"] == result.trace["decision"]
    if kept >= 2:
        assert [hit.dropped for hit in result.hits[kept:]] == ["not_reranked"] * (6 - kept)


# Async.


def test_cancelling_a_route_cancels_its_request(index: Index, server: ProvidersServer) -> None:
    tier = remote(server, breaker=CircuitBreaker(failures=1, cooldown=0))
    router = Router(index, reranker=[tier, SemanticBM25()], profile=REPLACE)
    server.plan.append("500")
    router.route(QUERY)

    async def cancelled() -> None:
        server.requests.clear()
        server.plan.append("slow_headers")
        task = asyncio.create_task(router.aroute(QUERY))
        while not server.requests:
            await asyncio.sleep(0.002)
        assert tier.breaker.state == "half_open"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while tier.breaker._trials_out:
            await asyncio.sleep(0.002)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(cancelled())
    assert router.route(QUERY).selected[0].provider == "cohere"


def test_the_loop_stays_free_while_a_remote_tier_is_asked(
    index: Index, server: ProvidersServer
) -> None:
    server.delay = 2.0  # on a busy machine, the last call starts long after the first
    router = Router(index, reranker=remote(server), profile=REPLACE)

    async def many() -> list[RouteResult]:
        return await asyncio.gather(*(router.aroute(f"{QUERY} {n}") for n in range(8)))

    results = asyncio.run(many())
    assert {hit.provider for result in results for hit in result.hits} == {"cohere"}
    assert server.most_at_once == 8  # all were waiting at once, without a thread each


# Profiles.


def fitted(**options: Any) -> Profile:
    return Profile(
        name="mine",
        reranker="table@1",
        combine=Combine.Replace(),
        runner_up=RunnerUpRule(stage2=0.0),
        **options,
    )


def test_the_tier_of_the_profile_meets_its_bars(index: Index) -> None:
    bars = Policy(rerank_min=0.5)
    router = Router(index, reranker=[TableReranker({})], profile=fitted(), policy=bars)
    result = router.route(QUERY)
    assert (codes(result), result.reason) == ([], "rejected")


def test_another_tier_does_not(both: Both, index: Index) -> None:
    tiers: list[Any] = [raising(RuntimeError("down")), SemanticBM25(), TableReranker({})]
    # Neither bar stands on its scores: not the smallest score of a pick, nor the largest lead.
    router = Router(index, reranker=tiers, profile=fitted(), policy=Policy(rerank_min=0.5))
    result = both.route(router, limit=None)
    assert codes(result) == ["reranker_failed", "reranker_not_fitted"]
    assert len(result.selected) == len(LIBRARY)
    assert cascade.replay(result.trace)["decision"] == result.trace["decision"]
    # By reciprocal rank: the order of both stages, on no scale of the tier's own.
    assert all(hit.score is not None and 0 < hit.score < 0.04 for hit in result.hits)


def test_a_trace_says_whose_scores_they_were(both: Both, index: Index) -> None:
    lexical = SemanticBM25()
    profile = fitted().replace(reranker=lexical.identity, runner_up=RunnerUpRule(stage2=0.1))
    policy = Policy(rerank_min=0.3)
    router = Router(index, reranker=[lexical], profile=profile, policy=policy)
    result = both.route(router, limit=None)
    assert codes(result) == []
    assert 0 < len(result.selected) < len(LIBRARY)
    assert all(hit.score == hit.rerank_score for hit in result.hits)
    trace = json.loads(json.dumps(result.trace))
    assert cascade.replay(trace)["decision"] == result.trace["decision"]
    changed = {**result.trace, "reranker": "table@1"}
    assert cascade.replay(changed)["decision"] != result.trace["decision"]


def test_one_tier_must_be_the_profiles(index: Index) -> None:
    others: list[Any] = [SemanticBM25(), FunctionReranker(lambda query, documents: [])]
    refused("profile_mismatch", Router, index, reranker=others, profile=fitted())


def test_the_bundled_profile_holds_for_its_tier_behind_another() -> None:
    from crossgate import Document

    index = Index.build([Document(id="pdf", text="Merge PDF files"), Document(id="b", text="hen")])
    router = Router(index, reranker=[SemanticBM25(), "default"])
    assert router.profile.name == "default"
    result = Router(index, reranker=[SemanticBM25()]).route("join these two PDF files")
    assert "no_profile" in codes(result)


# SemanticBM25.


def with_cosines(texts: Sequence[str], cosines: Sequence[float | None]) -> list[Passage]:
    return [
        replace(passage, cosine=cosine)
        for passage, cosine in zip(passages_of(texts), cosines, strict=True)
    ]


@given(
    st.lists(st.sampled_from(list(LIBRARY.values())), min_size=1, max_size=6),
    st.floats(0.1, 9),
    st.floats(0.1, 9),
    st.lists(st.one_of(st.none(), st.floats(-1, 1)), min_size=6, max_size=6),
)
def test_it_is_the_weighted_mean_of_cosine_and_bm25(
    texts: list[str], semantic: float, words: float, cosines: list[float | None]
) -> None:
    tier = SemanticBM25(semantic_weight=semantic, bm25_weight=words, pivot=3.0)
    known = cosines[: len(texts)]
    alone = [pair.score for pair in tier.score(QUERY, passages_of(texts))]
    both = [pair.score for pair in tier.score(QUERY, with_cosines(texts, known))]
    for bm25, blend, cosine in zip(alone, both, known, strict=True):
        assert 0 <= bm25 < 1
        expected = bm25
        if cosine is not None:
            expected = (semantic * cosine + words * bm25) / (semantic + words)
        assert blend == pytest.approx(expected, abs=1e-12)


def test_embeds_if_no_passage_has_a_cosine() -> None:
    embedder = WordEmbedder()
    texts = list(LIBRARY.values())
    cosines = [
        hit.cosine
        for hit in sorted(
            Router(build(embedder=embedder), reranker=None, profile=Profile())
            .route(QUERY, limit=None)
            .hits,
            key=lambda hit: list(LIBRARY).index(hit.id),
        )
    ]
    scores = SemanticBM25(embedder=embedder).score(QUERY, passages_of(texts))
    again = SemanticBM25().score(QUERY, with_cosines(texts, cosines))
    assert [one.score for one in scores] == pytest.approx([one.score for one in again], abs=1e-6)
    assert SemanticBM25(embedder=embedder).score(QUERY, []) == []


def test_it_uses_the_cosines_of_stage_1(index: Index) -> None:
    profile = Profile(combine=Combine.Replace(), blend=Blend(), pool=len(LIBRARY))
    result = Router(index, reranker=SemanticBM25(), profile=profile).route(QUERY, limit=None)
    # Pool and index are the same six documents here, so both stages say the same.
    assert [hit.rerank_score for hit in result.hits] == pytest.approx(
        [hit.blend for hit in result.hits]
    )


# All of it at once.


@given(
    st.lists(
        st.sampled_from(["answers", "raises", "skipped", "partial", "fails"]),
        min_size=0,
        max_size=4,
    ),
    st.one_of(st.none(), st.sampled_from([0.0, 1e6])),
    st.booleans(),
)
def test_any_chain_ends_in_a_sound_result_that_replays(
    kinds: list[str], budget: float | None, native: bool
) -> None:
    made: dict[str, Any] = {
        "answers": TableReranker({}),
        "raises": raising(RuntimeError("x")),
        "skipped": raising(RerankerError("circuit_breaker", "x")),
        "fails": raising(TransportError("x")),
        "partial": Partial(3, "partial_scores"),
    }
    router = Router(_INDEX, reranker=[made[kind] for kind in kinds], profile=REPLACE)
    result = Both(native).route(router, budget_ms=budget)
    names = {"raises": "reranker_failed", "skipped": "circuit_breaker", "fails": "reranker_failed"}
    expected = []
    answered = None
    if kinds and budget == 0.0:
        expected, kinds = ["budget"], []
    for kind in kinds:
        if kind in names:
            expected.append(names[kind])
        else:
            answered = kind
            expected += ["partial_scores"] if kind == "partial" else []
            break
    assert codes(result) == expected
    assert result.stage == (1 if answered is None else 2)
    assert sorted(hit.id for hit in result.hits) == sorted(LIBRARY)
    assert cascade.replay(result.trace)["decision"] == result.trace["decision"]
    assert [code for _, code in result.trace["asked"]].count("answered") == bool(answered)


_INDEX = build(embedder=WordEmbedder())


def test_a_short_soak() -> None:
    report = soak_module.soak(calls=1_200, threads=16, tasks=60, pause=0.3)
    assert report.wrong == []
    assert report.calls + report.cancelled == 1_200
    assert report.late <= report.calls // 100
    assert {"voyage", "cohere", "semantic-bm25", "stage1"} == set(report.providers)
    assert {"api_error", "budget", "circuit_breaker"} <= set(report.codes)
    for breaker in report.breakers:
        log = breaker.transitions
        check_log(log, cooldown=soak_module.COOLDOWN)
        assert {one.after for one in log} == {"open", "half_open", "closed"}
        assert breaker.state == "closed"  # and no trial's place was lost on the way
    megabytes = report.left.pop("megabytes")
    assert megabytes < 30
    # Less than before is none of its own: a thread of an earlier test may end meanwhile.
    assert max(report.left.values()) <= 0, report.left
