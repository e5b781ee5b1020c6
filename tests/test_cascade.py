"""The cascade on the cases of the gate, which the core's tests run too, and its properties."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from conftest import FunctionReranker, LengthReranker, is_replayable
from crossgate import (
    Document,
    Index,
    InputError,
    PairScore,
    Policy,
    Profile,
    ProfileError,
    Router,
    RouteResult,
    _core,
    arerank,
    rerank,
)
from crossgate._core import Blend, Combine, Floors, Lexical
from crossgate._decision import cascade
from crossgate._decision.stage1 import Stage1
from crossgate._reranking.chain import Chain
from crossgate._values.inputs import unsplit
from crossgate._values.options import DecisionOptions

Case = dict[str, Any]

HERE = Path(__file__).parent
TABLE = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
TRACE = Draft202012Validator(json.loads((HERE / "schemas" / "trace.json").read_bytes()))


def blended(blend: Blend, cosine: float | None, bm25: float) -> float:
    """Return the blend by its definition, as a reference for the core."""
    bounded = bm25 / (bm25 + blend.pivot)
    if cosine is None:
        return bounded
    total = blend.cosine_weight + blend.bm25_weight
    return (blend.cosine_weight * cosine + blend.bm25_weight * bounded) / total


def scored(row: Mapping[str, Any], blend: Blend) -> _core.Scored:
    cosine, bm25 = row["cosine"], row.get("bm25", 0.0)
    return _core.Scored(
        id=row["id"],
        cosine=cosine,
        bm25=bm25,
        overlap=row.get("overlap", 0),
        blend=blended(blend, cosine, bm25),
    )


def profile_of(case: Case) -> Profile:
    return Profile(**{"blend": TABLE["blend"], **case.get("profile", {})})


def candidates_of(case: Case) -> list[_core.Scored]:
    return [scored(row, profile_of(case).blend) for row in case["candidates"]]


def decide(
    candidates: Sequence[_core.Scored],
    profile: Profile,
    scores: Mapping[str, float] | None,
    limit: int | None = None,
    *,
    policy: Policy | None = None,
    require_overlap: bool = False,
    **request: Any,
) -> RouteResult:
    """Run the whole cascade on the scores of a case for both stages."""
    reranker = FunctionReranker(
        lambda _, texts: [PairScore((scores or {})[text]) for text in texts]
    )
    documents = {
        candidate.id: Document(id=candidate.id, text=candidate.id) for candidate in candidates
    }
    return cascade.run(
        cascade.Request(
            prompt=unsplit("query"),
            stage1=lambda: Stage1(scored=candidates, documents=documents),
            profile=profile,
            policy=policy or Policy(),
            rerankers=Chain(None if scores is None else reranker),
            options=DecisionOptions(limit=limit, **request),
            require_overlap=require_overlap,
        )
    )


def json_round_trip(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value as it is after a round trip through JSON."""
    again: dict[str, Any] = json.loads(json.dumps(trace, allow_nan=False))
    return again


@pytest.mark.parametrize("case", TABLE["gate"], ids=lambda case: case["name"])
def test_gate_decides_as_in_the_table(case: Case) -> None:
    profile, policy = profile_of(case), Policy(**case.get("policy", {}))
    request = {"require_overlap": True, **case.get("request", {})}
    candidates = candidates_of(case)
    for ordered in (candidates, candidates[::-1]):
        gated = _core.gate(ordered, profile, policy, _core.Request(**request))
        assert (gated.verdict, gated.reason) == (case["verdict"], case["reason"])
        assert gated.any_fits == pytest.approx(case.get("any_fits"), abs=1e-12)
        assert bool(gated.pool) == (case["verdict"] == "ambiguous")
    result = decide(candidates, profile, None, policy=policy, **request)
    assert result.any_fits == gated.any_fits
    threshold = profile.answer.threshold or 0.0
    improbable = gated.any_fits is not None and gated.any_fits < threshold
    reason = "rejected" if improbable and gated.verdict == "ambiguous" else case["reason"]
    assert (result.verdict, result.reason) == (case["verdict"], reason)
    assert bool(result.selected) == (case["verdict"] != "nothing_relevant" and not improbable)


def falling(*cosines: float) -> list[_core.Scored]:
    """Return candidates a, b, c, ... of these cosines."""
    rows = zip("abcdefgh", cosines, strict=False)
    return [scored({"id": id, "cosine": cosine}, Blend()) for id, cosine in rows]


REPLACE = Profile(combine=Combine.Replace())


CLEAR = Profile(winner={"agreed": 0.1, "disagreed": 0.5})
IMPROBABLE = Profile(any_fits={"stage1": {"intercept": -9.0}}, answer={"rerank_threshold": 0.1})


def test_clear_winner_of_stage_1_skips_stage_2() -> None:
    for verdict, profile in {"confident": CLEAR, "nothing_relevant": IMPROBABLE}.items():
        # An empty table: reading from it would degrade the result.
        result = decide(falling(0.9, 0.0), profile, {})
        assert (result.verdict, result.stage, result.degraded) == (verdict, 1, ())
        assert "stage2" not in result.timings
        assert result.trace["gate"]["pool"] == []


# Multiples of a half, so that scores tie often; both ends of every scale are included.
QUARTERS = st.integers(-4, 4).map(lambda number: number / 4)
COSINES = st.one_of(st.none(), QUARTERS)
ROWS = st.lists(st.tuples(COSINES, st.integers(0, 6).map(float), st.integers(0, 3)), max_size=8)
BARS = st.one_of(st.none(), QUARTERS)
LOGITS = st.lists(st.floats(-12, 12, allow_nan=False), min_size=8, max_size=8)
LEADS = st.sampled_from([None, 0.0, 0.25])
SHARES = st.sampled_from([None, 0.0, 0.5, 1.0])
STAGE1: st.SearchStrategy[dict[str, float] | None] = st.sampled_from(
    [None, {}, {"intercept": -1.0, "log_mean": 0.5, "cosine": 2.0}]
)
STAGE2: st.SearchStrategy[dict[str, float] | None] = st.sampled_from(
    [None, {}, {"intercept": 0.1, "log_mean": -0.5, "rerank_score": 0.7}]
)
SHARED1: st.SearchStrategy[dict[str, float] | None] = st.sampled_from(
    [None, {}, {"cosine": 4.0, "bm25": 2.0}, {"intercept": -1.0, "cosine": 1.0}]
)
SHARED2: st.SearchStrategy[dict[str, float] | None] = st.sampled_from(
    [None, {}, {"cosine": 2.0, "rerank_score": 0.3, "unread": -1.0}, {"intercept": 0.5}]
)
PROMISED = st.sampled_from(
    [
        [],
        [{"most": 1, "least_shares": [1.0, 0.9]}, {"most": 3, "least_shares": [1.0, 0.4, 0.1]}],
        [{"most": 2, "least_shares": [0.3]}],
    ]
)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Draw profiles with and without each rule."""
    agreed, more = draw(LEADS), draw(LEADS)
    return Profile(
        reranker=draw(st.sampled_from([None, "function@1", "another@1"])),
        combine=draw(
            st.sampled_from(
                [Combine.Replace(), Combine.Rrf(60.0), Combine.Weighted(2.0, -1.0, 1.0)]
            )
        ),
        pool=draw(st.integers(1, 8)),
        any_fits={"stage1": draw(STAGE1), "stage2": draw(STAGE2)},
        relevance={
            "stage1": draw(SHARED1),
            "stage2": draw(SHARED2),
            "threshold": draw(st.sampled_from([None, 0.25])),
        },
        answer={
            "rerank_threshold": draw(SHARES),
            "threshold": draw(SHARES),
            "confidence": draw(SHARES),
        },
        shortlist={
            "least": draw(SHARES),
            "coverage": draw(st.sampled_from([0.3, 0.51, 0.9])),
            "most": draw(st.integers(1, 6)),
            "stage1": draw(PROMISED),
            "stage2": draw(PROMISED),
        },
        winner={
            "agreed": agreed,
            "disagreed": None if agreed is None or more is None else agreed + more,
        },
        runner_up={"stage1": draw(LEADS), "stage2": draw(LEADS)},
    )


POLICIES = st.builds(
    Policy,
    floors=st.builds(
        Floors, default=BARS, sections=st.sampled_from([{}, {"known": 0.25}]), relax=st.just(0.25)
    ),
    cliff_core=st.one_of(st.none(), st.integers(1, 4)),
    lexical=st.sampled_from([None, Lexical(score=0.0, margin=0.0), Lexical(score=3.0, margin=1.0)]),
    rerank_min=BARS,
    agreement=BARS,
    warnings=st.builds(
        _core.Warnings,
        flat_scores=st.sampled_from([None, 2.0]),
        weak_cosine=BARS,
        weak_rerank_score=BARS,
    ),
)
LIMITS = st.one_of(st.none(), st.integers(1, 4))
REQUESTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "section": st.sampled_from([None, "known", "unknown"]),
        "grade": st.sampled_from([None, "A", "c", "Z"]),
        "require_overlap": st.booleans(),
    }
)


def scenario(
    rows: Sequence[tuple[float | None, float, int]], logits: Sequence[float]
) -> tuple[list[_core.Scored], dict[str, float]]:
    candidates = [
        scored({"id": f"d{at}", "cosine": cosine, "bm25": bm25, "overlap": overlap}, Blend())
        for at, (cosine, bm25, overlap) in enumerate(rows)
    ]
    return candidates, {
        candidate.id: logit for candidate, logit in zip(candidates, logits, strict=False)
    }


@given(ROWS, LOGITS, profiles(), POLICIES, LIMITS, st.booleans(), REQUESTS)
def test_decision_replays_and_is_consistent(
    rows: list[tuple[float | None, float, int]],
    logits: list[float],
    profile: Profile,
    policy: Policy,
    limit: int | None,
    stage2: bool,
    request: dict[str, Any],
) -> None:
    candidates, table = scenario(rows, logits)
    result = decide(candidates, profile, table if stage2 else None, limit, policy=policy, **request)

    assert is_replayable(result.trace)
    assert is_replayable(json_round_trip(result.to_dict(trace=True))["trace"])
    TRACE.validate(json_round_trip(result.trace))
    decision = result.trace["decision"]
    assert decision["verdict"] == result.verdict == result.trace["gate"]["verdict"]
    assert (decision["reason"], decision["stage"]) == (result.reason, result.stage)
    assert decision["selected"] == result.ids
    assert [place["id"] for place in decision["places"]] == [hit.id for hit in result.hits]
    assert [warning["code"] for warning in decision["warnings"]] == [
        warning.code for warning in result.warnings
    ]

    assert sorted(hit.id for hit in result.hits) == sorted(candidate.id for candidate in candidates)
    assert result.selected == tuple(hit for hit in result.hits if hit.dropped is None)
    assert limit is None or len(result.selected) <= limit
    assert sorted(hit.stage1_rank for hit in result.hits) == list(range(1, len(rows) + 1))
    read = [hit for hit in result.hits if hit.rerank_score is not None]
    assert [hit.stage2_rank for hit in read] == list(range(1, len(read) + 1))
    assert len(read) <= profile.pool
    scores = [hit.score for hit in result.hits if hit.score is not None]
    assert scores == sorted(scores, reverse=True)
    assert (result.stage == 2) == bool(read)
    if result.stage == 2:
        assert result.verdict == "ambiguous"
        left_out = {"not_reranked", "below_floor", "below_cliff"}
        assert {hit.dropped for hit in result.hits[len(read) :]} <= left_out
    if result.verdict == "nothing_relevant":
        assert not result.selected
    for known, least in (
        (result.any_fits, profile.answer.threshold),
        (result.confidence, profile.answer.confidence),
    ):
        if known is not None and least is not None and known < least:
            assert not result.selected
    assert decision["shortlist"] == [hit.id for hit in result.shortlist]
    assert (decision["coverage"], decision["any_fits"]) == (result.coverage, result.any_fits)
    assert len(result.shortlist) <= profile.shortlist.most
    if result.shortlist and result.selected:
        assert result.shortlist[0] == result.selected[0]
    check_probabilities(result, profile)


def check_probabilities(result: RouteResult, profile: Profile) -> None:
    """Check that the probabilities of a result agree with each other."""
    known = [hit.relevance for hit in result.hits if hit.relevance is not None]
    assert all(0 <= relevance <= 1 for relevance in known)
    if result.hits:
        assert result.confidence == result.hits[0].relevance
    stages = profile.relevance.stage1, profile.relevance.stage2
    one_fits = all(model is None or model.intercept is None for model in stages)
    if one_fits and known:
        # At most one candidate fits, so the relevances are alternatives.
        total = 1.0 if result.any_fits is None else result.any_fits
        assert sum(known) == pytest.approx(total)


EXACT = st.floats(-1, 1, allow_nan=False)


@given(
    st.lists(st.tuples(EXACT, st.floats(0, 99), EXACT), max_size=6),
    st.lists(st.floats(-99, 99), min_size=6, max_size=6),
    profiles(),
    POLICIES,
    LIMITS,
)
def test_decision_replays_from_its_json_byte_for_byte(
    rows: list[tuple[float, float, float]],
    logits: list[float],
    profile: Profile,
    policy: Policy,
    limit: int | None,
) -> None:
    # Numbers with all their digits: the trace must store them without rounding.
    candidates = [
        _core.Scored(id=f"d{at}", cosine=cosine, bm25=bm25, overlap=2, blend=blend)
        for at, (cosine, bm25, blend) in enumerate(rows)
    ]
    table = {candidate.id: logit for candidate, logit in zip(candidates, logits, strict=False)}
    trace = decide(candidates, profile, table, limit, policy=policy).trace
    text = json.dumps(trace, allow_nan=False)
    assert json.dumps(cascade.replay(json.loads(text))) == json.dumps(
        {"gate": trace["gate"], "decision": trace["decision"]}
    )
    given_ = {candidate.id: candidate for candidate in candidates}
    read, stage1, reranker, pairs = _core.read_trace(text)
    # The trace keeps only the promises that the shortlist used.
    used = {
        stage: [promise for promise in of if promise.most <= profile.shortlist.most][-1:]
        for stage, of in (
            ("stage1", profile.shortlist.stage1),
            ("stage2", profile.shortlist.stage2),
        )
    }
    assert read == profile.replace(shortlist=profile.shortlist.replace(**used))
    assert {row.id: row for row in stage1} == given_
    assert {pair.id: pair.score for pair in pairs} == {pair.id: table[pair.id] for pair in pairs}
    # The core writes the trace that it read again byte for byte.
    gated, decision = _core.replay(text)
    again = _core.trace(
        read,
        Policy.from_dict(trace["policy"]),
        _core.Request.from_dict(trace["request"]),
        gated,
        reranker,
        pairs,
        decision,
    )
    ours = {"query_sha256", "prompt", "budget_ms", "asked"}
    assert json.dumps(json.loads(again)) == json.dumps(
        {key: value for key, value in trace.items() if key not in ours}
    )


def test_unreadable_trace_is_refused() -> None:
    trace = json_round_trip(decide(falling(0.9, 0.8), Profile(), {"a": 1.0, "b": 2.0}).trace)
    for key, value, code in (
        ("stage1", None, "malformed_trace"),
        ("stage1", trace["stage1"][:1] * 2, "malformed_trace"),
        (
            "stage1",
            trace["stage1"][:1],
            "malformed_trace",
        ),  # stage 2 has a candidate that stage 1 lacks
        ("stage2", [{**trace["stage2"][0], "score": "high"}], "malformed_trace"),
        ("profile", {**trace["profile"], "pool": 0}, "profile_malformed"),
        ("policy", {**trace["policy"], "cliff_core": 0}, "policy_malformed"),
    ):
        with pytest.raises((InputError, ProfileError)) as caught:
            cascade.replay({**trace, key: value})
        assert caught.value.code == code, key
        with pytest.raises(InputError) as caught_too:
            cascade.replay({name: value for name, value in trace.items() if name != key})
        assert caught_too.value.code == "malformed_trace", key


# The schema of the trace.


REAL: dict[str, Callable[[], RouteResult]] = {
    "confident": lambda: decide(falling(0.9, 0.0), CLEAR, {}),
    "ambiguous": lambda: decide(falling(0.9, 0.8), Profile(), {"a": 1.0, "b": 2.0}, limit=1),
    "ambiguous, without a reranker": lambda: decide(falling(0.9, 0.8), Profile(), None),
    "ambiguous, with one that fails": lambda: decide(falling(0.9, 0.8), Profile(), {}),
    "nothing relevant": lambda: decide(falling(0.9, 0.0), IMPROBABLE, {}),
    "no candidates": lambda: decide([], Profile(), {}),
    "with a cliff": lambda: decide(
        falling(0.9, 0.85, 0.3, 0.2),
        REPLACE,
        {"a": 1.0, "b": 2.0},
        policy=Policy(cliff_core=1, floors=Floors(sections={"known": 0.1})),
        section="unknown",
    ),
    "with a cliff that nothing is cut at": lambda: decide(
        falling(0.9, 0.85), REPLACE, {"a": 1.0, "b": 2.0}, policy=Policy(cliff_core=9)
    ),
    "fused by weights": lambda: decide(
        falling(0.9, 0.85),
        Profile(
            combine=Combine.Weighted(1.0, 1.0, 0.5),
            any_fits={"stage1": {}, "stage2": {}},
            relevance={"stage1": {}, "stage2": {"intercept": 1.0}},
            shortlist={"stage2": [{"most": 2, "least_shares": [0.5]}]},
        ),
        {"a": 1.0, "b": 2.0},
        policy=Policy(lexical=Lexical(score=99.0, margin=1.0)),
    ),
}
VERDICTS = {"confident": "confident", "nothing relevant": "nothing_relevant"}


@pytest.mark.parametrize("kind", REAL)
def test_traces_of_decisions_match_the_schema(kind: str) -> None:
    result = REAL[kind]()
    assert result.verdict == VERDICTS.get(
        kind, "nothing_relevant" if kind == "no candidates" else "ambiguous"
    )
    trace = json_round_trip(result.trace)
    TRACE.validate(trace)
    assert (trace["gate"]["cliff"] is not None) == ("cliff" in kind)


def test_trace_of_a_session_matches_the_schema() -> None:
    documents = [Document(id="debugging", text="Finds the cause of failures.")]
    router = Router(Index.build(documents), profile="session", reranker=None)
    trace = json_round_trip(router.route("find the cause of this failure").trace)
    assert "usefulness" in trace["stage1"][0]["evidence"]
    TRACE.validate(trace)


def test_schema_refuses_a_changed_trace() -> None:
    Draft202012Validator.check_schema(TRACE.schema)
    trace = json_round_trip(REAL["with a cliff"]().trace)
    wrong: list[Callable[[dict[str, Any]], object]] = [
        lambda trace: trace.update(schema="crossgate-trace/1"),
        lambda trace: trace.update(more=1),
        lambda trace: trace.pop("asked"),
        lambda trace: trace["gate"].update(reason="confident_winner"),
        lambda trace: trace["gate"]["cliff"].update(skip_reason="no_room"),
        lambda trace: trace["decision"].update(stage=1),
        lambda trace: trace["decision"]["places"][0].update(dropped="because"),
        lambda trace: trace["profile"].pop("winner"),
        lambda trace: trace["policy"].update(cliff_core=0),
        lambda trace: trace["stage1"][0].update(bm25=-1.0),
        lambda trace: trace["stage2"][0].pop("truncated"),
    ]
    for change in wrong:
        other = json_round_trip(trace)
        change(other)
        assert not TRACE.is_valid(other)


# Calls of the core.


def crossings(monkeypatch: pytest.MonkeyPatch, index: Index) -> list[str]:
    """Record the names of all searches and of the core's functions on queries that are called."""
    calls: list[str] = []

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return function(*arguments, **options)

        return call

    # Each document that is read has its description read, too, and its name if the query has it.
    of_documents = {"is_description", "strip_exclusions", "analyze"}
    for name, function in inspect.getmembers(_core, inspect.isbuiltin):
        if name in of_documents:
            continue
        monkeypatch.setattr(_core, name, counted(name, function))
    monkeypatch.setattr(index, "search", counted("search", index.search))
    return calls


def test_query_calls_the_core_once_for_each_step(
    monkeypatch: pytest.MonkeyPatch, index: Index
) -> None:
    unsure = Router(index, reranker=LengthReranker(), profile=Profile())
    sure = Router(index, reranker=LengthReranker(), profile=CLEAR)
    cutting = Router(
        index, reranker=LengthReranker(), profile=Profile(), policy=Policy(cliff_core=1)
    )
    calls = crossings(monkeypatch, index)
    for router, verdict in ((unsure, "ambiguous"), (sure, "confident"), (cutting, "ambiguous")):
        calls.clear()
        result = router.route("clean and repair messy csv files")
        assert (result.verdict, result.degraded) == (verdict, ())
        # Four calls decide; two write the trace afterwards.
        assert calls == ["split", "search", "gate", "conclude", "trace", "sha256_of"]
    calls.clear()
    asyncio.run(unsure.aroute("clean and repair messy csv files"))
    assert calls == ["split", "search", "gate", "conclude", "trace", "sha256_of"]


# The asynchronous methods.


@pytest.mark.parametrize(
    ("sync", "twin"),
    [(Router.route, Router.aroute), (rerank, arerank)],
    ids=["route", "rerank"],
)
def test_async_method_has_the_signature_of_the_sync_method(
    sync: Callable[..., object], twin: Callable[..., object]
) -> None:
    assert inspect.signature(sync) == inspect.signature(twin)
    assert inspect.signature(sync).return_annotation == "RouteResult"
    assert twin.__name__ == "a" + sync.__name__
    assert twin.__qualname__.rpartition(".")[0] == sync.__qualname__.rpartition(".")[0]
    assert sync.__module__ == twin.__module__
    assert sync.__doc__
    assert twin.__doc__
    assert not inspect.iscoroutinefunction(sync)
    assert inspect.iscoroutinefunction(twin)
