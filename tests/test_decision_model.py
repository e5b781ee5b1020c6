"""Decision models as rerankers, against a local server."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import refused
from crossgate import InputError, RerankerError, rerank
from crossgate._reranking.generative import (
    checked_probabilities,
    log_ratio,
    shuffled,
)
from crossgate._reranking.http import TransportError
from crossgate.rerankers import (
    CircuitBreaker,
    DecisionReranker,
    GuardedReranker,
    LatencyEstimate,
    passages_of,
)
from providers_server import DECISION_FAULTS, KEY, NONE, ProvidersServer, relevance

DOCUMENTS = [f"document number {number}" for number in range(7)]
PASSAGES = passages_of(DOCUMENTS)


def reranker(server: ProvidersServer, **options: Any) -> DecisionReranker:
    options = {"api_key": KEY, "base_url": server.url, **options}
    return DecisionReranker(**options)


def guarded(server: ProvidersServer, **options: Any) -> GuardedReranker:
    return GuardedReranker(
        reranker(server, **options),
        breaker=CircuitBreaker(),
        latency=LatencyEstimate(ms_per_pair=0.1),
    )


def expected(documents: list[str]) -> list[float]:
    total = sum(map(relevance, documents))
    return [log_ratio((1 - NONE) * relevance(text) / total, NONE) for text in documents]


def scores_of(tier: DecisionReranker | GuardedReranker, documents: list[str]) -> list[float]:
    return [pair.score for pair in tier.score("query", passages_of(documents)).complete()]


def options_of(body: dict[str, Any]) -> dict[str, str]:
    """Return the options of a request, by label and in order."""
    (question,) = body["questions"].values()
    return dict(question["criteria"])


def test_score_is_the_log_odds_against_none(server: ProvidersServer) -> None:
    assert scores_of(reranker(server), DOCUMENTS) == pytest.approx(expected(DOCUMENTS))


def test_async_score_equals_score(server: ProvidersServer) -> None:
    tier = reranker(server)
    found = asyncio.run(tier.ascore("query", PASSAGES))
    assert found == tier.score("query", PASSAGES)


def test_request_asks_one_question(server: ProvidersServer) -> None:
    reranker(server, model="some-model").score("the query", PASSAGES)
    (request,) = server.requests
    assert request.authorization == f"Bearer {KEY}"
    assert request.body["model"] == "some-model"
    assert request.body["state"] == "the query"
    options = options_of(request.body)
    assert sorted(text for label, text in options.items() if label != "none") == DOCUMENTS
    assert list(options)[-1] == "none"
    assert request.path == "/v1/systemone"


def test_order_of_options_does_not_depend_on_the_order_of_documents(
    server: ProvidersServer,
) -> None:
    tier = reranker(server)
    backwards = DOCUMENTS[::-1]
    assert scores_of(tier, DOCUMENTS) == scores_of(tier, backwards)[::-1]
    first, second = (options_of(request.body) for request in server.requests)
    assert list(first.items()) == list(second.items())
    assert list(first.values())[:-1] != DOCUMENTS


@given(texts=st.lists(st.text(max_size=8), max_size=12), seed=st.integers(0, 9))
def test_shuffle_is_a_permutation_that_ignores_the_order_of_texts(
    texts: list[str], seed: int
) -> None:
    order = shuffled("query", texts, seed)
    assert sorted(order) == list(range(len(texts)))
    mixed = texts.copy()
    random.Random(seed).shuffle(mixed)
    assert [texts[place] for place in order] == [
        mixed[place] for place in shuffled("query", mixed, seed)
    ]


def test_first_option_is_any_rank_equally_often() -> None:
    documents = [f"text {number}" for number in range(4)]
    firsts = [shuffled(f"query {number}", documents, 0)[0] for number in range(2_000)]
    assert all(400 < firsts.count(rank) < 600 for rank in range(4))


@pytest.mark.parametrize(("number", "most", "questions"), [(254, 255, 1), (255, 255, 2), (7, 3, 4)])
def test_large_pools_are_split_into_questions(
    number: int, most: int, questions: int, server: ProvidersServer
) -> None:
    documents = [f"document number {place}" for place in range(number)]
    tier = reranker(server, options_per_question=most)
    scores = scores_of(tier, documents)
    assert len(server.requests) == questions
    sizes = [len(options_of(request.body)) for request in server.requests]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    for first in range(questions):  # each question is normalised separately
        batch = documents[first::questions]
        assert scores[first::questions] == pytest.approx(expected(batch))


def test_documents_are_cut_and_marked(server: ProvidersServer) -> None:
    tier = reranker(server, document_characters=10)
    pairs = tier.score("query", passages_of(["short", "long " * 10])).complete()
    assert [pair.truncated for pair in pairs] == [False, True]
    assert max(map(len, list(options_of(server.requests[0].body).values())[:-1])) == 10


@pytest.mark.parametrize("fault", DECISION_FAULTS)
def test_malformed_answers_fail_without_a_retry(fault: str, server: ProvidersServer) -> None:
    server.plan.append(fault)
    said = refused("api_error", guarded(server, timeout=30.0).score, "query", PASSAGES)
    assert KEY not in said
    assert len(server.requests) == 1


def test_failed_question_leaves_the_other_scores(server: ProvidersServer) -> None:
    server.plan.append("sum")
    tier = reranker(server, options_per_question=4)
    scores = tier.score("query", PASSAGES)
    assert scores.missing is not None
    assert scores.missing.code == "partial_scores"
    assert 0 < scores.count(None) < len(DOCUMENTS)


def test_stage1_order_stands_when_the_model_fails(server: ProvidersServer) -> None:
    server.plan.append("no_none")
    result = rerank("query", DOCUMENTS, reranker=reranker(server))
    assert "api_error" in [degradation.code for degradation in result.degraded]
    assert {hit.provider for hit in result.hits} == {"stage1"}


def test_local_server_without_a_key_gets_no_token(server: ProvidersServer) -> None:
    with pytest.raises(RerankerError, match="API key was rejected"):
        reranker(server, api_key=None).score("query", PASSAGES)
    assert server.requests[0].authorization == ""


def test_key_of_the_environment_is_not_sent_to_an_address_given_in_code(
    server: ProvidersServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TYPESAFE_API_KEY", "environment-key")
    with pytest.raises(RerankerError):
        reranker(server, api_key=None).score("query", PASSAGES)
    assert server.requests[0].authorization == ""


def test_environment(server: ProvidersServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TYPESAFE_API_KEY", "CROSSGATE_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    assert DecisionReranker.from_environment() is None
    with pytest.raises(RerankerError, match="TYPESAFE_API_KEY"):
        DecisionReranker()
    monkeypatch.setenv("TYPESAFE_BASE_URL", server.url)
    assert DecisionReranker.from_environment() is not None  # a local server needs no key
    monkeypatch.setenv("TYPESAFE_API_KEY", KEY)
    tier = DecisionReranker.from_environment()
    assert tier is not None
    assert tier.identity == "decision/jev-latest"
    assert scores_of(tier, DOCUMENTS) == pytest.approx(expected(DOCUMENTS))
    monkeypatch.setenv("CROSSGATE_REMOTE", "0")
    assert DecisionReranker.from_environment() is None


@pytest.mark.parametrize(
    "options",
    [
        {"options_per_question": 1},
        {"options_per_question": 256},
        {"document_characters": 0},
        {"shuffle": -1},
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        DecisionReranker(base_url="http://localhost", **options)


@given(
    probabilities=st.lists(st.floats(0, 1), min_size=2, max_size=300),
    digits=st.integers(2, 17),
)
def test_rounded_probabilities_are_accepted(probabilities: list[float], digits: int) -> None:
    total = math.fsum(probabilities)
    if total == 0:
        return
    labels = [f"option {number}" for number in range(len(probabilities))]
    values = [round(value / total, digits) for value in probabilities]
    pairs = list(zip(labels, values, strict=True))
    assert checked_probabilities(pairs, labels) == values
    assert checked_probabilities(pairs[::-1], labels) == values


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        [],
        [("a", 1.0)],
        [("a", 0.5), ("b", 0.5), ("a", 0.5)],
        [("a", 0.5), ("c", 0.5)],
        [("a", 0.2), ("b", 0.2)],
        [("a", 1.0), ("b", 1.0)],
        [("a", True), ("b", 0.0)],
        [("a", "1"), ("b", 0.0)],
        [("a", float("nan")), ("b", 1.0)],
        [("a", float("inf")), ("b", 0.0)],
        [("a", -0.1), ("b", 1.1)],
        [(1, 0.5), ("b", 0.5)],
        [(["a"], 0.5), ("b", 0.5)],
    ],
)
def test_invalid_probabilities_are_refused(answer: object) -> None:
    with pytest.raises(TransportError):
        checked_probabilities(answer, ["a", "b"])


def test_log_ratio_is_bounded_and_increasing() -> None:
    values = [log_ratio(probability, 0.1) for probability in (0.0, 0.001, 0.1, 0.5, 1.0)]
    assert values == sorted(values)
    assert log_ratio(0.1, 0.1) == 0
    assert math.isfinite(log_ratio(1.0, 0.0))
    assert math.isfinite(log_ratio(0.0, 1.0))
