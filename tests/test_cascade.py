"""The cascade on the table of cases that Rust runs too, and what holds for every decision."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import FunctionReranker
from crossgate import Document, InputError, PairScore, Profile, ProfileError, RouteResult, _core
from crossgate import _cascade as cascade
from crossgate._profile import Answer, Blend, Combine, Confidence, Gate, Guardrails, Pool

Case = dict[str, Any]

TABLE = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))


def cases(part: str) -> pytest.MarkDecorator:
    """Run a test once per case of a part of the table."""
    rows = [pytest.param(one, id=one["name"]) for one in TABLE[part]]
    return pytest.mark.parametrize("case", rows)


def blend_of(case: Case) -> Blend:
    return Blend(**case.get("blend", TABLE["blend"]))


def blended(blend: Blend, cosine: float | None, bm25: float) -> float:
    """The blend, written down once more: the reference that the core is compared with."""
    bounded = bm25 / (bm25 + blend.bm25_half)
    if cosine is None:
        return bounded
    total = blend.cosine_weight + blend.bm25_weight
    return (blend.cosine_weight * cosine + blend.bm25_weight * bounded) / total


def scored(row: Mapping[str, Any], blend: Blend) -> _core.Scored:
    cosine, bm25 = row["cosine"], row.get("bm25", 0.0)
    return _core.Scored(
        row["id"],
        cosine=cosine,
        bm25=bm25,
        overlap=row.get("overlap", 0),
        blend=blended(blend, cosine, bm25),
    )


def candidates_of(case: Case) -> list[_core.Scored]:
    return [scored(row, blend_of(case)) for row in case["candidates"]]


def answer_of(case: Case) -> Answer:
    values = case.get("answer", {})
    model = Confidence(**values["stage1"]) if "stage1" in values else None
    return Answer(stage1=model, floor=values.get("floor"), least=values.get("least"))


def decide(
    candidates: Sequence[_core.Scored],
    profile: Profile,
    logits: Mapping[str, float] | None,
    limit: int | None = None,
) -> RouteResult:
    """Run the whole cascade on scores: stage 1 is what the case says, stage 2 its logits."""
    best_first = sorted(candidates, key=lambda one: (-one.blend, one.id))
    tier = FunctionReranker(lambda _, texts: [PairScore((logits or {})[text]) for text in texts])
    return cascade.run(
        cascade.Request(
            query="query",
            stage1=lambda: cascade.Stage1(scored=best_first),
            document=lambda id: Document(id=id, text=id),
            profile=profile,
            tiers=[] if logits is None else [lambda: tier],
            limit=limit,
        )
    )


@cases("gate")
def test_gate(case: Case) -> None:
    gate = Gate(**case.get("thresholds", {}))
    answer = answer_of(case)
    candidates = candidates_of(case)
    for ordered in (candidates, candidates[::-1]):
        decision = _core.decide(ordered, gate, answer)
        assert (decision.verdict, decision.reason) == (case["verdict"], case["reason"])
        assert decision.confidence == pytest.approx(case.get("confidence"), abs=1e-12)
    result = decide(candidates, Profile(blend=blend_of(case), gate=gate, answer=answer), None)
    assert result.confidence == decision.confidence
    improbable = decision.confidence is not None and decision.confidence < (answer.least or 0.0)
    reason = "rejected" if improbable and decision.verdict == "ambiguous" else case["reason"]
    assert (result.verdict, result.reason) == (case["verdict"], reason)
    assert bool(result.selected) == (case["verdict"] != "nothing_relevant" and not improbable)


@cases("gate")
def test_with_cosine_gives_the_blend_of_the_table(case: Case) -> None:
    blend = blend_of(case)
    for one in candidates_of(case):
        if one.cosine is not None:
            # Rounding differs by the order in which the three numbers are multiplied and divided.
            assert one.with_cosine(one.cosine, blend).blend == pytest.approx(one.blend, abs=1e-15)


@cases("stage2")
def test_stage2(case: Case) -> None:
    blend, candidates, logits = blend_of(case), candidates_of(case), case["logits"]
    # Without the checks of `Combine`, so that those of the core are reached.
    options: Any = SimpleNamespace(**{**asdict(Combine()), **case["combine"]})
    if "code" in case:
        with pytest.raises(InputError) as caught:
            _core.combine(candidates, logits, blend, options)
        assert caught.value.code == case["code"]
        return
    combine = Combine(**case["combine"])
    scores = _core.combine(candidates, logits, blend, combine)
    ranks = _core.ranks(candidates, scores)
    order = [candidates[ranks.index(rank)].id for rank in range(1, len(ranks) + 1)]
    assert order == case["order"]
    by_id = {one.id: score for one, score in zip(candidates, scores, strict=True)}
    if "scores" in case:
        assert [by_id[id] for id in order] == pytest.approx(case["scores"], abs=1e-12)
    if not candidates:
        return
    guardrails = Guardrails(**case.get("guardrails", {}))
    profile = Profile(blend=blend, combine=combine, stage2_guardrails=guardrails)
    table = {one.id: logit for one, logit in zip(candidates, logits, strict=True)}
    for ordered in (candidates, candidates[::-1]):
        result = decide(ordered, profile, table, limit=case.get("limit"))
        assert [hit.id for hit in result.hits] == case["order"]
        assert [hit.dropped for hit in result.hits] == case["dropped"]
        assert [hit.score for hit in result.hits] == [by_id[id] for id in order]
        assert [hit.stage2_rank for hit in result.hits] == list(range(1, len(order) + 1))
        passed = [id for id, why in zip(order, case["dropped"], strict=True) if why is None]
        assert result.ids == passed
        assert result.stage == 2
        assert result.reason == ("reranked" if passed else "rejected")


@cases("tighten")
def test_tighten(case: Case) -> None:
    def tightened() -> _core.Tightened:
        return _core.tighten(
            case["scores"],
            case.get("sources", []),
            core=case["core"],
            pool=case.get("pool", len(case["scores"])),
            static_floor=case["static_floor"],
            grade=case.get("grade"),
            reranker_available=case.get("reranker_available", True),
        )

    if "code" in case:
        with pytest.raises(InputError) as caught:
            tightened()
        assert caught.value.code == case["code"]
        return
    outcome = tightened()
    for key in ("cut", "effective_floor", "cliff_position", "skip_reason"):
        assert getattr(outcome, key) == case[key], key


@cases("refused_blends")
def test_refused_blends(case: Case) -> None:
    core = _core.Index("none", "", 0)
    core.upsert([("a", "", "red", "{}", None)])
    blend: Any = SimpleNamespace(**case["blend"])  # without the checks of `Blend`
    with pytest.raises(InputError) as caught:
        core.search("red", None, blend=blend, per_channel=2)
    assert caught.value.code == "out_of_range"
    with pytest.raises(ProfileError) as refused:
        Blend(**case["blend"])
    assert refused.value.code == "profile_malformed"


def test_the_cliff_bounds_what_stage_2_reads() -> None:
    blend = Blend()
    rows = [
        {"id": id, "cosine": cosine}
        for id, cosine in zip("abcde", (0.9, 0.85, 0.3, 0.2, 0.1), strict=True)
    ]
    logits = {"a": 1.0, "b": 2.0, "c": 9.0, "d": 9.0, "e": 9.0}
    candidates = [scored(row, blend) for row in rows]
    replace = Combine(mode="replace")
    cut = decide(candidates, Profile(combine=replace, pool=Pool(core=1)), logits)
    assert [hit.id for hit in cut.hits if hit.logit is not None] == ["b", "a"]
    assert [hit.dropped for hit in cut.hits] == [None, None, *["below_cliff"] * 3]
    assert [hit.score for hit in cut.hits[2:]] == [None] * 3
    assert cut.trace["tighten"]["cliff_position"] == 2
    uncut = decide(candidates, Profile(pool=Pool(core=5)), logits)
    assert len(uncut.trace["stage2"]) == 5
    assert uncut.trace["tighten"]["skip_reason"] == "no_room"
    off = decide(candidates, Profile(), logits)
    assert len(off.trace["stage2"]) == 5
    assert off.trace["tighten"] is None


def test_the_pool_has_room_for_the_best_blends_only() -> None:
    blend = Blend()
    candidates = [scored({"id": id, "cosine": 0.5}, blend) for id in "dcba"]
    profile = Profile(combine=Combine(mode="replace"), pool=Pool(rerank_top_k=2))
    result = decide(candidates, profile, {"a": -1.0, "b": 1.0})
    assert [(hit.id, hit.dropped, hit.stage1_rank, hit.stage2_rank) for hit in result.hits] == [
        ("b", None, 2, 1),
        ("a", None, 1, 2),
        ("c", "not_reranked", 3, None),
        ("d", "not_reranked", 4, None),
    ]
    assert [hit.provider for hit in result.hits] == ["function", "function", "stage1", "stage1"]


def test_a_clear_stage_1_never_asks_stage_2() -> None:
    blend = Blend()
    candidates = [
        scored({"id": "a", "cosine": 0.9}, blend),
        scored({"id": "b", "cosine": 0}, blend),
    ]
    gates = {
        "confident": Gate(confident_cosine=0.5, confident_gap=0.5),
        "nothing_relevant": Gate(relevance_cosine=0.99),
    }
    for verdict, gate in gates.items():
        # A table without an entry: reading it would degrade the result.
        result = decide(candidates, Profile(gate=gate), {})
        assert (result.verdict, result.stage, result.degraded) == (verdict, 1, ())
        assert "stage2" not in result.timings


def test_the_guardrails_of_each_stage_are_its_own() -> None:
    blend = Blend(cosine_weight=1.0, bm25_weight=0.0)
    candidates = [
        scored({"id": "a", "cosine": 0.9}, blend),
        scored({"id": "b", "cosine": 0}, blend),
    ]
    profile = Profile(
        blend=blend,
        combine=Combine(mode="replace"),
        stage1_guardrails=Guardrails(margin=0.5),
        stage2_guardrails=Guardrails(minimum=5.0),
    )
    assert decide(candidates, profile, None).ids == ["a"]
    assert decide(candidates, profile, {"a": 1.0, "b": 6.0}).ids == ["b"]


# Halves, so that scores tie often; both ends of every scale are in.
COSINES = st.one_of(st.none(), st.integers(-4, 4).map(lambda number: number / 4))
ROWS = st.lists(st.tuples(COSINES, st.integers(0, 6).map(float), st.integers(0, 3)), max_size=8)
BARS = st.one_of(st.none(), st.integers(-4, 4).map(lambda number: number / 4))
LOGITS = st.lists(st.floats(-12, 12, allow_nan=False), min_size=8, max_size=8)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Profiles in which every rule is on in some and off in others."""
    bars = st.builds(Guardrails, minimum=BARS, margin=BARS.map(lambda bar: bar and abs(bar)))
    combine = st.sampled_from(
        [Combine(mode="replace"), Combine(), Combine(mode="weighted", cosine=2.0, bm25=-1.0)]
    )
    gate = st.builds(
        Gate,
        require_overlap=st.booleans(),
        relevance_cosine=BARS,
        relevance_bm25=st.sampled_from([None, 0.0, 3.0]),
        confident_cosine=BARS,
        confident_gap=st.sampled_from([0.0, 0.25]),
        lexical_score=st.sampled_from([None, 0.0, 3.0]),
        agreed_margin=st.sampled_from([None, 0.0, 0.25]),
        disagreed_margin=st.sampled_from([None, 0.0, 0.25]),
    )
    pool = st.builds(
        Pool, rerank_top_k=st.integers(1, 8), core=st.one_of(st.none(), st.integers(1, 4))
    )
    return draw(
        st.builds(
            Profile,
            gate=gate,
            pool=pool,
            combine=combine,
            stage1_guardrails=bars,
            stage2_guardrails=bars,
        )
    )


def scenario(
    rows: Sequence[tuple[float | None, float, int]], logits: Sequence[float]
) -> tuple[list[_core.Scored], dict[str, float]]:
    candidates = [
        _core.Scored(f"d{place}", cosine=cosine, bm25=bm25, overlap=overlap, blend=0.0).with_cosine(
            cosine, Blend()
        )
        if cosine is not None
        else _core.Scored(
            f"d{place}", cosine=None, bm25=bm25, overlap=overlap, blend=bm25 / (bm25 + 8)
        )
        for place, (cosine, bm25, overlap) in enumerate(rows)
    ]
    return candidates, {one.id: logit for one, logit in zip(candidates, logits, strict=False)}


@given(ROWS, LOGITS, profiles(), st.one_of(st.none(), st.integers(1, 4)), st.booleans())
def test_every_decision_replays_and_holds_together(
    rows: list[tuple[float | None, float, int]],
    logits: list[float],
    profile: Profile,
    limit: int | None,
    stage2: bool,
) -> None:
    candidates, table = scenario(rows, logits)
    result = decide(candidates, profile, table if stage2 else None, limit)

    written = json.dumps(result.to_dict(trace=True), allow_nan=False)
    assert cascade.replay(result.trace) == result.trace["decision"]
    assert cascade.replay(json.loads(written)["trace"]) == json.loads(written)["trace"]["decision"]
    decision = result.trace["decision"]
    assert decision["verdict"] == result.verdict
    assert (decision["reason"], decision["stage"]) == (result.reason, result.stage)
    assert decision["selected"] == result.ids
    assert [place[0] for place in decision["places"]] == [hit.id for hit in result.hits]

    assert sorted(hit.id for hit in result.hits) == sorted(one.id for one in candidates)
    assert result.selected == tuple(hit for hit in result.hits if hit.dropped is None)
    assert limit is None or len(result.selected) <= limit
    assert sorted(hit.stage1_rank for hit in result.hits) == list(range(1, len(rows) + 1))
    read = [hit for hit in result.hits if hit.logit is not None]
    assert [hit.stage2_rank for hit in read] == list(range(1, len(read) + 1))
    assert len(read) <= profile.pool.rerank_top_k
    scores = [hit.score for hit in result.hits if hit.score is not None]
    assert scores == sorted(scores, reverse=True)
    assert (result.stage == 2) == bool(read)
    if result.stage == 2:
        assert result.verdict == "ambiguous"
        assert all(hit.dropped == "not_reranked" for hit in result.hits[len(read) :])
    if result.verdict == "nothing_relevant":
        assert not result.selected


@given(ROWS, LOGITS, profiles(), st.randoms(use_true_random=False))
def test_the_order_of_candidates_decides_nothing(
    rows: list[tuple[float | None, float, int]],
    logits: list[float],
    profile: Profile,
    random: Any,
) -> None:
    candidates, table = scenario(rows, logits)
    shuffled = list(candidates)
    random.shuffle(shuffled)
    first, second = decide(candidates, profile, table), decide(shuffled, profile, table)
    assert first.trace == second.trace
    assert first.hits == second.hits


@given(ROWS, profiles())
def test_a_changed_trace_is_noticed(
    rows: list[tuple[float | None, float, int]], profile: Profile
) -> None:
    candidates, table = scenario(rows, [0.0] * 8)
    result = decide(candidates, profile, table)
    trace = json.loads(json.dumps(result.trace))
    trace["decision"]["places"].append(["intruder", 1.0, 1, 1, None])
    assert cascade.replay(trace) != trace["decision"]
    if result.hits:
        trace = json.loads(json.dumps(result.trace))
        trace["stage1"] = trace["stage1"][1:]
        trace["stage2"] = [row for row in trace["stage2"] if row[0] != result.trace["stage1"][0][0]]
        assert cascade.replay(trace) != result.trace["decision"]
