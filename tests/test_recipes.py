"""The two recipes, end to end on the memory corpus with the bundled models, and step by step."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from conftest import (
    FunctionReranker,
    LengthReranker,
    TableReranker,
    WordEmbedder,
    build,
    refused,
)
from crossgate import Candidate, Document, Index, Profile, RouteResult, rerank
from crossgate._core import (
    Answer,
    AnyFits,
    Combine,
    Relevance,
    RunnerUpRule,
    Stage2AnyFits,
    Stage2Relevance,
    Winner,
)
from crossgate._decision import cascade
from crossgate._evaluation.label_files import read_dataset
from crossgate._evaluation.labels import Dataset
from crossgate._evaluation.metrics import recall
from crossgate._pipelines.postprocessing import postprocess
from crossgate._pipelines.recipes import (
    AGREEMENT,
    Retrieve,
    Switches,
    agent_memory,
    context_engine,
    diversified,
    from_index,
    fused,
)
from crossgate._values.profile_files import profile_values

NOW = datetime(2031, 3, 15, 12, tzinfo=UTC)
REPLACE = AGREEMENT.replace(winner=Winner(), combine=Combine.Replace())


def store(*rows: tuple[str, str, str]) -> list[Candidate]:
    """Return a ranked list of (id, text, timestamp)."""
    return [
        Candidate(id=id, text=text, score=1.0, metadata={"timestamp": time})
        for id, text, time in rows
    ]


def given(*stores: list[Candidate]) -> Retrieve:
    """Return what always finds the same, as much of it as it is asked for."""
    return lambda _, limit: [one[:limit] for one in stores]


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """The memory corpus."""
    return read_dataset(Path(__file__).parents[1] / "eval" / "memory")


@pytest.fixture(scope="module")
def index(dataset: Dataset) -> Index:
    """The memory corpus with the bundled embedder."""
    return Index.build(dataset.documents)


@pytest.mark.parametrize("recipe", [agent_memory, context_engine])
def test_a_recipe_finds_memories_with_the_bundled_models(
    recipe: Any, dataset: Dataset, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ENABLED", "MODEL", "TOP_K_FACTOR", "RETRIEVAL_MULTIPLIER"):
        monkeypatch.delenv(f"CROSSGATE_CONTEXT_ENGINE_RERANKER_{name}", raising=False)
    retrieve = from_index(index)
    found, stages = [], set()
    for query in dataset.queries:
        result: RouteResult = recipe(query.text, retrieve, now=NOW)
        assert (result.degraded, result.warnings) == ((), ())
        assert 1 <= len(result.selected) <= 5
        assert result.trace["recipe"]["name"] == recipe.__name__
        stages.add(result.stage)
        if query.relevant:
            found.append(recall(result.ids, query.relevant, 5))
    assert stages == {1, 2}
    assert sum(found) / len(found) > 0.75


@pytest.mark.parametrize("recipe", [agent_memory, context_engine])
def test_the_same_question_has_the_same_answer_and_replays(recipe: Any, index: Index) -> None:
    query = "how many nodes does staging have right now"
    first, again = (recipe(query, from_index(index), now=NOW) for _ in range(2))
    assert first.hits == again.hits
    assert first.trace == again.trace
    decision = cascade.replay(first.trace)["decision"]
    assert decision == first.trace["decision"]
    # The trace lists the steps after the decision, too.
    order = first.trace.get("diversified", {}).get("order", decision["selected"])
    assert order == first.ids
    assert set(order) <= set(decision["selected"])


def test_agent_memory_step_by_step() -> None:
    texts = {
        "old": "the old note says that the heating is broken",
        "new": "the new note",
        "copy": "the old note says that the heating is broken",
        "far": "a word",
    }
    time = {"old": "2030-01-01", "new": "2031-03-14", "copy": "2030-06-01", "far": "2020-01-01"}
    rows = {id: (id, text, time[id]) for id, text in texts.items()}
    retrieve = given(
        store(rows["old"], rows["new"], rows["copy"]), store(rows["old"], rows["far"], rows["new"])
    )
    reranker = LengthReranker()
    result = agent_memory("note", retrieve, now=NOW, limit=2, reranker=reranker, profile=REPLACE)
    ((_, read),) = reranker.calls
    # One of the two that say the same is left, the newer; the fused and aged order decides.
    assert len(read) == 3
    scores = {hit.id: hit.blend for hit in result.hits}
    most = 2 / 3
    assert scores == {
        "new": pytest.approx((1 / 4 + 1 / 5) / most * 0.5 ** (1.5 / 30)),
        "copy": pytest.approx((1 / 3 + 1 / 3) / most * 0.3),
        "far": pytest.approx((1 / 4) / most * 0.3),
    }
    assert result.ids == ["far", "new"]
    assert [hit.dropped for hit in result.hits] == [None, None, "over_limit"]
    assert result.trace["recipe"] == {
        "name": "agent_memory",
        "now": "2031-03-15T12:00:00+00:00",
        "retrieved": [["old", "new", "copy"], ["old", "far", "new"]],
    }


def test_the_cross_encoder_reads_fifteen_of_twenty_per_store() -> None:
    asked: list[int] = []
    rows = [(f"{place:02}", f"text {'x' * place}", "2031-03-01") for place in range(60)]

    def retrieve(query: str, limit: int) -> Sequence[Sequence[Candidate]]:
        asked.append(limit)
        return [store(*rows[:limit]), store(*rows[limit : 2 * limit])]

    reranker = LengthReranker()
    result = agent_memory("text", retrieve, now=NOW, reranker=reranker)
    assert asked == [20]
    assert len(reranker.calls[0][1]) == 15
    assert len(result.selected) == 5


def test_context_engine_step_by_step() -> None:
    rows = [
        ("fox", "the red fox runs home", "2031-03-15"),
        ("again", "the red fox runs away", "2031-03-15"),
        ("hen", "a blue hen", "2031-03-15"),
        ("dog", "an old dog", "2031-03-15"),
    ]
    asked: list[int] = []

    def retrieve(query: str, limit: int) -> Sequence[Sequence[Candidate]]:
        asked.append(limit)
        return [store(*rows)]

    logits = {"the red fox runs home": 4.0, "the red fox runs away": 3.9, "a blue hen": 1.0}
    reranker = TableReranker(logits)
    switches = Switches(model=reranker, top_k_factor=2, retrieval_multiplier=3)
    result = context_engine("fox", retrieve, now=NOW, limit=2, switches=switches, profile=REPLACE)
    assert asked == [6]
    # Without diversity it would be the two foxes; 4 candidates go on to that step.
    assert result.ids == ["fox", "hen"]
    assert result.trace["decision"]["selected"] == ["fox", "again", "hen", "dog"]
    assert result.trace["diversified"] == {"trade_off": 0.7, "order": ["fox", "hen"]}
    dropped = [(hit.id, hit.dropped) for hit in result.hits]
    assert dropped == [
        ("fox", None),
        ("hen", None),
        ("again", "over_limit"),
        ("dog", "over_limit"),
    ]
    # Steps behind it keep its order.
    three = replace(switches, top_k_factor=1)
    result = context_engine("fox", retrieve, now=NOW, limit=3, switches=three, profile=REPLACE)
    assert postprocess(result, []).ids == result.ids == ["fox", "hen", "again"]
    assert postprocess(result, [], limit=2).ids == ["fox", "hen"]


def test_disabled_reranker_loads_no_model_and_retrieves_less() -> None:
    asked: list[int] = []

    def retrieve(query: str, limit: int) -> Sequence[Sequence[Candidate]]:
        asked.append(limit)
        return [store(("a", "fox", "2031-03-01"), ("b", "hen", "2031-03-01"))]

    reranker = LengthReranker()
    switches = Switches(enabled=False, model=reranker)
    result = context_engine("fox", retrieve, now=NOW, limit=3, switches=switches)
    assert (asked, reranker.calls, result.stage, result.ids) == ([3], [], 1, ["a", "b"])


def test_the_gate_skips_where_words_meaning_and_age_agree() -> None:
    def candidates(times: Sequence[str]) -> Retrieve:
        rows = [("a", "the red fox", 0.9, times[0]), ("b", "a hen", 0.1, times[1])]
        hits = [
            Candidate(id=id, text=text, score=1.0, cosine=cosine, metadata={"timestamp": time})
            for id, text, cosine, time in rows
        ]
        return given(hits, hits)

    reranker = LengthReranker()
    agreed = candidates(["2031-03-15", "2031-03-15"])
    result = agent_memory("red fox", agreed, now=NOW, reranker=reranker)
    assert (result.reason, result.ids, reranker.calls) == ("confident_winner", ["a", "b"], [])
    # Much older, the winner of words and meaning is no longer that of the fused and aged scores.
    aged = candidates(["2020-01-01", "2031-03-15"])
    result = agent_memory("red fox", aged, now=NOW, reranker=reranker)
    assert (result.reason, len(reranker.calls)) == ("reranked", 1)


def test_guardrails_and_nothing_relevant_apply() -> None:
    profile = REPLACE.replace(
        any_fits=AnyFits(stage2=Stage2AnyFits(rerank_score=1.0)),
        relevance=Relevance(stage2=Stage2Relevance(rerank_score=1.0)),
        answer=Answer(threshold=0.5),
        runner_up=RunnerUpRule(stage2=1.0),
    )
    # Without a cosine no model says how probable an answer is.
    rows = store(("a", "fox", "2031-03-01"), ("b", "hen", "2031-03-01"))
    retrieve = given([replace(one, cosine=0.5) for one in rows])
    reranker = TableReranker({"fox": 2.0})
    options: dict[str, Any] = {"now": NOW, "profile": profile}
    result = agent_memory("fox", retrieve, reranker=reranker, **options)
    assert (result.ids, result.reason) == (["a"], "reranked")
    switches = Switches(model=TableReranker({}))
    none = context_engine("fox", retrieve, switches=switches, **options)
    assert (none.ids, none.reason) == ([], "rejected")
    for empty in (given(), given([], [])):
        result = agent_memory("fox", empty, now=NOW, reranker=reranker)
        assert (result.ids, result.verdict, result.reason) == (
            [],
            "nothing_relevant",
            "no_candidates",
        )
        assert context_engine("fox", empty, now=NOW, switches=switches).ids == []


def test_a_failing_cross_encoder_leaves_the_fused_and_aged_order() -> None:
    def fail(query: str, documents: Sequence[str]) -> object:
        raise RuntimeError("gone")

    retrieve = given(store(("a", "fox", "2020-01-01"), ("b", "hen", "2031-03-15")))
    result = agent_memory("fox", retrieve, now=NOW, reranker=FunctionReranker(fail))
    assert [one.code for one in result.degraded] == ["reranker_failed"]
    assert result.ids == ["b", "a"]


@pytest.mark.parametrize("recipe", [agent_memory, context_engine])
def test_bad_queries_and_limits_reach_no_retriever(recipe: Any) -> None:
    def retrieve(query: str, limit: int) -> Sequence[Sequence[Candidate]]:
        raise AssertionError("asked")

    refused("empty_query", recipe, " ", retrieve, now=NOW)
    refused("invalid_text", recipe, "\ud800", retrieve, now=NOW)
    refused("out_of_range", recipe, "fox", retrieve, now=NOW, limit=0)


def test_bad_hits_are_named() -> None:
    bare = given([Candidate(id="bare", text=" ", score=1.0)])
    result = agent_memory("fox", bare, now=NOW, reranker=None)
    assert {hit.id: hit.dropped for hit in result.hits} == {"bare": "empty"}
    odd = given(store(("odd", "fox", "soon")))
    assert "'odd'" in refused("malformed_candidate", agent_memory, "fox", odd, now=NOW)


def test_an_index_is_searched_by_words_and_by_meaning() -> None:
    index = build()
    words, meaning = from_index(index)("messy csv files", 3)
    assert words[0].id == "csv-cleaner"
    assert all(one.score and one.score > 0 for one in words)
    assert len(meaning) == 3
    assert [one.score for one in meaning] == [one.cosine for one in meaning]
    assert [one.cosine for one in meaning] == sorted(
        (one.cosine or 0 for one in meaning), reverse=True
    )
    assert words[0].cosine == next(one.cosine for one in meaning if one.id == words[0].id)
    only = build(embedder=None)
    assert [len(one) for one in from_index(only)("messy csv files", 3)] == [2, 0]
    assert [len(one) for one in from_index(index, by="words")("messy csv files", 1)] == [1]


def test_stage_2_reads_the_matching_passage_of_a_body() -> None:
    head = "Notes of the weekly meeting of the platform team, as they were taken"
    bodies = {
        "budget": "The budget of the year was raised by a third and will pay for a second cluster.",
        "lunch": "Everyone wants another place for lunch because the canteen closes in the summer.",
        "copy": "Everyone wants another place for lunch because the canteen closes in the summer.",
    }
    index = Index.build(
        [Document(id=id, text=head, body=body) for id, body in bodies.items()],
        embedder=WordEmbedder(),
    )
    words, _ = from_index(index)("lunch canteen", 5)
    assert [one.body for one in words] == [bodies[one.id] for one in words]
    reranker = LengthReranker()
    result = agent_memory("lunch", from_index(index), now=NOW, reranker=reranker, profile=REPLACE)
    (read,) = [texts for _, texts in reranker.calls]
    assert len(read) == 2
    assert any("canteen" in text for text in read)
    assert "budget" in result.ids


def test_kept_scores_are_the_blend_and_must_lie_in_range() -> None:
    hits = [
        Candidate(id="a", text="fox", score=0.2, cosine=0.9),
        Candidate(id="b", text="hen", score=0.6, cosine=0.1),
    ]
    result = rerank("fox", hits, reranker=None, keep_scores=True)
    seen = [(hit.id, hit.blend, hit.cosine) for hit in result.hits]
    assert seen == [("b", 0.6, 0.1), ("a", 0.2, 0.9)]
    assert rerank("fox", hits, reranker=None).ids == ["a", "b"]
    for score in (None, -0.1, 1.1):
        odd = [replace(hits[0], score=score)]
        message = refused("malformed_candidate", rerank, "fox", odd, keep_scores=True)
        assert "'a'" in message


def test_fused_scores_are_shares_of_the_best_possible_score() -> None:
    hits = store(("a", "x", "2031-01-01"), ("b", "y", "2031-01-01"))
    assert [(one.id, one.score) for one in fused([hits, hits])] == [("a", 1.0), ("b", 0.75)]
    assert fused([]) == []


@pytest.mark.parametrize(
    ("mode", "scores"),
    [(Combine.Replace(), [800.0, 0.0, -800.0]), (Combine.Rrf(k=60.0), [2 / 61, 2 / 62, 2 / 63])],
)
def test_relevance_for_diversity_lies_between_0_and_1(mode: Any, scores: list[float]) -> None:
    from crossgate._pipelines.recipes import _relevance

    logits = dict(zip(["a", "bb", "ccc"], [800.0, 0.0, -800.0], strict=True))
    profile = REPLACE.replace(combine=mode)
    rows = [(text, text, "2031-03-15") for text in logits]
    result = agent_memory(
        "a", given(store(*rows)), now=NOW, reranker=TableReranker(logits), profile=profile
    )
    assert [hit.score for hit in result.hits] == scores
    values = [_relevance(hit, profile.to_dict()["combine"]) for hit in result.hits]
    assert values[0] == 1.0
    assert values == sorted(values, reverse=True)
    assert all(0 <= value <= 1 and math.isfinite(value) for value in values)
    stage1 = agent_memory("a", given(store(*rows)), now=NOW, reranker=None, profile=profile)
    assert diversified(stage1, limit=3).ids == stage1.ids


def test_relevance_is_that_of_the_reranker_that_answered() -> None:
    def fail(query: str, texts: Sequence[str]) -> Any:
        raise OSError("no answer")

    texts = ["the red fox runs home", "the red fox runs far", "a blue hen"]
    logits = dict(zip(texts, [3.0, 2.0, 1.0], strict=True))
    # Stage 1 has the same order. The profile's own reranker fails, and the next one takes over.
    rows = [{"text": text, "score": 1.0 - place / 10} for place, text in enumerate(texts)]
    fitted = REPLACE.replace(reranker="function@1")
    result = rerank(
        "fox",
        rows,
        reranker=[FunctionReranker(fail), TableReranker(logits)],
        profile=fitted,
        keep_scores=True,
    )
    assert "reranker_not_fitted" in {note.code for note in result.degraded}
    # By shares of the best rank the second fox is a little better than the hen, as a logit is not.
    assert diversified(result, limit=3, trade_off=0.99).ids == result.ids == ["0", "1", "2"]


def test_latency_and_spread_are_logged_and_the_query_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="crossgate")
    retrieve = given(store(("a", "fox", "2031-03-01"), ("b", "a hen", "2031-03-01")))
    agent_memory("secret fox", retrieve, now=NOW, reranker=LengthReranker())
    agent_memory("secret fox", retrieve, now=NOW, reranker=None)
    read, unread = (record.message for record in caplog.records)
    assert "scores -5.00 to -3.00" in read
    assert "ms" in read
    assert "no rerank scores" in unread
    assert "secret" not in caplog.text


DEFAULTS = Switches()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, DEFAULTS),
        (
            {
                "CROSSGATE_CONTEXT_ENGINE_RERANKER_ENABLED": "",
                "CROSSGATE_CONTEXT_ENGINE_RERANKER_MODEL": " ",
            },
            DEFAULTS,
        ),
        ({"CROSSGATE_CONTEXT_ENGINE_RERANKER_ENABLED": "0"}, Switches(enabled=False)),
        ({"CROSSGATE_CONTEXT_ENGINE_RERANKER_ENABLED": " Off "}, Switches(enabled=False)),
        ({"CROSSGATE_CONTEXT_ENGINE_RERANKER_ENABLED": "TRUE"}, DEFAULTS),
        (
            {"CROSSGATE_CONTEXT_ENGINE_RERANKER_MODEL": "crossgate-router-minilm-l12"},
            Switches(model="crossgate-router-minilm-l12"),
        ),
        (
            {
                "CROSSGATE_CONTEXT_ENGINE_RERANKER_TOP_K_FACTOR": "5",
                "CROSSGATE_CONTEXT_ENGINE_RERANKER_RETRIEVAL_MULTIPLIER": "1",
            },
            Switches(top_k_factor=5, retrieval_multiplier=1),
        ),
        ({"RERANKER_ENABLED": "0"}, DEFAULTS),  # no prefix, not ours
    ],
)
def test_switches_are_read(environment: dict[str, str], expected: Switches) -> None:
    assert Switches.from_environment(environment) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENABLED", "maybe"),
        ("TOP_K_FACTOR", "0"),
        ("TOP_K_FACTOR", "-3"),
        ("TOP_K_FACTOR", "three"),
        ("RETRIEVAL_MULTIPLIER", "2.5"),
        ("RETRIEVAL_MULTIPLIER", "1001"),
        ("RETRIEVAL_MULTIPLIER", "٣"),
    ],
)
def test_invalid_switches_are_refused(name: str, value: str) -> None:
    variable = f"CROSSGATE_CONTEXT_ENGINE_RERANKER_{name}"
    message = refused("malformed_setting", Switches.from_environment, {variable: value})
    assert variable in message
    assert repr(value) in message
    assert "use " in message


def test_environment_applies_without_explicit_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSGATE_CONTEXT_ENGINE_RERANKER_ENABLED", "no")
    retrieve = given(store(("a", "fox", "2031-03-01"), ("b", "a hen", "2031-03-01")))
    assert context_engine("fox", retrieve, now=NOW).stage == 1
    switches = Switches(model=LengthReranker())
    assert context_engine("fox", retrieve, now=NOW, switches=switches).stage == 2
    monkeypatch.setenv("CROSSGATE_CONTEXT_ENGINE_RERANKER_ENABLED", "yes")
    monkeypatch.setenv("CROSSGATE_CONTEXT_ENGINE_RERANKER_MODEL", "nonsense")
    refused("unknown_model", context_engine, "fox", retrieve, now=NOW)


def test_switches_in_code_are_checked_too() -> None:
    refused("out_of_range", Switches, top_k_factor=0)
    refused("out_of_range", Switches, retrieval_multiplier=0)


def test_a_profile_may_be_a_file(tmp_path: Path) -> None:
    import json

    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile_values(Profile(name="mine"))), encoding="utf-8")
    retrieve = given(store(("a", "fox", "2031-03-01")))
    switches = Switches(enabled=False)
    for result in (
        agent_memory("fox", retrieve, now=NOW, reranker=None, profile=path),
        context_engine("fox", retrieve, now=NOW, switches=switches, profile=path),
    ):
        assert result.trace["profile"]["name"] == "mine"
