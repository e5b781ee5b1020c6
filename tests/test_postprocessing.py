"""Tests of the steps after the reranker, with properties that hold for every list of hits."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import LIBRARY, LengthReranker, TableReranker, refused
from crossgate import Document, Hit, Profile, RouteResult, rerank
from crossgate._core import AnyFits, Relevance, Stage1AnyFits, Stage1Relevance
from crossgate._decision import cascade
from crossgate._pipelines.postprocessing import (
    LEXICAL_PROVIDERS,
    Step,
    diversify_sources,
    keep_survivors,
    postprocess,
    prefer_sources,
    readmit_recovered,
    spread_documents,
)

ORDER = ["user", "excel", "web", "pdf"]
TAKEN_BACK = {"over_limit", "not_reranked", "below_cliff"}
REJECTED = {
    "nothing_relevant",
    "below_floor",
    "disagreement",
    "rerank_min",
    "rerank_margin",
    "irrelevant",
    "runner_up",
}


def hit(id: str, score: float | None = 0.0, dropped: str | None = None, **options: Any) -> Hit:
    provider = options.pop("provider", "voyage")
    return Hit(
        document=Document(id=id, text=id, metadata=options),
        cosine=None,
        bm25=0.0,
        blend=0.0,
        rerank_score=score,
        score=score,
        stage1_rank=1,
        stage2_rank=1,
        provider=provider,
        truncated=False,
        dropped=dropped,
    )


def ids(hits: Sequence[Hit]) -> str:
    return "".join(one.id for one in hits)


def selected(hits: Sequence[Hit]) -> str:
    return ids([one for one in hits if one.dropped is None])


# Metadata may have any values; few are drawn, so that they often coincide.
KIND = st.sampled_from(["user", "excel", "pdf", "unheard of", None, 5, ["pdf"], ""])
CODES = sorted(TAKEN_BACK | REJECTED)


@st.composite
def hits_of(draw: st.DrawFn) -> list[Hit]:
    """Lists of hits as in a decision, with any metadata."""
    count = draw(st.integers(0, 12))
    scores = draw(
        st.lists(
            st.one_of(st.none(), st.integers(-40, 40).map(lambda number: number / 200)),
            min_size=count,
            max_size=count,
        )
    )
    made = []
    for place, score in enumerate(sorted(scores, key=lambda one: (one is None, -(one or 0)))):
        metadata: dict[str, Any] = {}
        for key, values in (
            ("source_type", KIND),
            ("document_id", st.sampled_from(["d1", "d2", 3, None, ["d1"]])),
            ("recovered", st.sampled_from([True, False, None, "false", 1])),
        ):
            if draw(st.booleans()):
                metadata[key] = draw(values)
        made.append(
            hit(
                chr(ord("a") + place),
                score,
                draw(st.one_of(st.none(), st.just("over_limit"), st.sampled_from(CODES))),
                provider=draw(st.sampled_from(["voyage", "stage1", "semantic_bm25"])),
                **metadata,
            )
        )
    # Slots are held from the top.
    codes = [one.dropped for one in made if one.dropped in (None, "over_limit")]
    held = iter(sorted(codes, key=lambda code: code is not None))
    return [
        replace(one, dropped=next(held)) if one.dropped in (None, "over_limit") else one
        for one in made
    ]


STEPS: list[Step] = [
    partial(prefer_sources, order=ORDER),
    partial(prefer_sources, order=[]),
    spread_documents,
    partial(spread_documents, most=1, key="source_type"),
    diversify_sources,
    readmit_recovered,
    partial(readmit_recovered, most=0),
    partial(keep_survivors, floors={"excel": 2, "pdf": 1, "absent": 5}),
    partial(keep_survivors, floors={}),
]
EVERY_STEP = pytest.mark.parametrize(
    "step", STEPS, ids=lambda step: getattr(step, "func", step).__name__
)


@EVERY_STEP
@given(hits=hits_of())
def test_every_step_keeps_every_hit_once_and_changes_none(step: Step, hits: list[Hit]) -> None:
    before = copy.deepcopy(hits)
    after = step(tuple(hits))
    assert hits == before
    assert sorted(ids(after)) == sorted(ids(hits))
    originals = {one.id: one for one in hits}
    for one in after:
        # Only the slots may differ.
        assert replace(one, dropped=None) == replace(originals[one.id], dropped=None)
        assert {one.dropped, originals[one.id].dropped} & {*TAKEN_BACK, None} or (
            one == originals[one.id]
        )
        if originals[one.id].dropped in REJECTED:
            assert one.dropped == originals[one.id].dropped
    assert step(tuple(hits)) == after
    if not selected(hits):
        assert not selected(after)


@given(hits_of())
def test_reordering_keeps_the_number_of_slots(hits: list[Hit]) -> None:
    for step in STEPS[:5]:
        after = step(hits)
        assert len(selected(after)) == len(selected(hits))
        # Hits that do not compete keep their positions.
        for place, one in enumerate(hits):
            if one.dropped not in (None, "over_limit"):
                assert after[place] == one
        competing = [one for one in after if one.dropped in (None, "over_limit")]
        assert [one.dropped is None for one in competing] == sorted(
            (one.dropped is None for one in competing), reverse=True
        )
        assert step(after) == after or step is STEPS[4]


# Source precedence.


@given(
    st.lists(
        st.tuples(
            st.floats(-1e4, 1e4, allow_nan=False),
            KIND,
            st.sampled_from(["voyage", "stage1", "semantic_bm25"]),
        ),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from([0.001, 0.01, 0.5]),
)
def test_a_difference_above_the_margin_is_never_reversed(
    rows: list[tuple[float, Any, str]], margin: float
) -> None:
    hits = [
        hit(chr(ord("a") + place), score, source_type=kind, provider=provider)
        for place, (score, kind, provider) in enumerate(rows)
    ]
    after = prefer_sources(hits, order=ORDER, margin=margin)
    place = {one.id: n for n, one in enumerate(after)}
    for one in hits:
        for other in hits:
            assert one.score is not None
            assert other.score is not None
            if one.score - other.score >= margin:
                assert place[one.id] < place[other.id]


def test_relevance_beats_precedence_and_precedence_breaks_ties() -> None:
    def first(*pairs: tuple[str, float], **options: Any) -> str:
        hits = [hit(kind[0], score, source_type=kind, **options) for kind, score in pairs]
        return prefer_sources(hits, order=ORDER)[0].id

    assert first(("pdf", 0.95), ("excel", 0.85)) == "p"
    assert first(("pdf", 0.850), ("excel", 0.851)) == "e"
    assert first(("pdf", 0.851), ("excel", 0.850)) == "e"
    assert first(("pdf", 0.5), ("excel", 0.5)) == "e"
    assert first(("other", 0.5), ("pdf", 0.5)) == "p"
    # Between neighbours of the order lies a fifth of the margin, half of that for words.
    assert first(("web", 0.5015), ("excel", 0.5)) == "e"
    for provider in LEXICAL_PROVIDERS:
        assert first(("web", 0.5015), ("excel", 0.5), provider=provider) == "w"
        assert first(("web", 0.5005), ("excel", 0.5), provider=provider) == "e"


def test_equal_sums_keep_their_order_and_no_score_stays_behind() -> None:
    hits = [hit("a", 0.5), hit("b", 0.5), hit("c", None, source_type="user"), hit("d", 0.4)]
    assert ids(prefer_sources(hits, order=ORDER)) == "abdc"
    odd = [hit("a", math.nan, source_type="user"), hit("b", -1e9), hit("c", math.inf)]
    assert ids(prefer_sources(odd, order=ORDER)) == "cba"


def test_boost_may_change_the_document_in_the_last_slot() -> None:
    hits = [
        hit("a", 0.9),
        hit("b", 0.501, source_type="pdf"),
        hit("c", 0.5, "over_limit", source_type="user"),
    ]
    after = prefer_sources(hits, order=ORDER)
    assert [(one.id, one.dropped) for one in after] == [
        ("a", None),
        ("c", None),
        ("b", "over_limit"),
    ]


@pytest.mark.parametrize("margin", [0, -1.0, math.nan, math.inf])
def test_invalid_margin_is_refused(margin: float) -> None:
    refused("out_of_range", prefer_sources, [], order=ORDER, margin=margin)
    refused("out_of_range", prefer_sources, [], order="user")


# Fairness.


@given(hits_of(), st.integers(1, 3))
def test_no_document_has_more_than_its_share_while_others_wait(hits: list[Hit], most: int) -> None:
    after = spread_documents(hits, most=most)

    def document(one: Hit) -> object:
        value = one.document.metadata.get("document_id")
        return value if isinstance(value, str | int) else one.id

    seats = Counter(document(one) for one in after if one.dropped is None)
    waiting = Counter(document(one) for one in after if one.dropped == "over_limit")
    greedy = {name for name, count in seats.items() if count > most}
    if greedy:
        # Every waiting document has had the same share.
        assert all(seats[name] >= most for name in waiting)
    for name in seats:
        mine = [one.id for one in after if document(one) == name and one.dropped in (None,)]
        assert mine == [one.id for one in hits if one.id in mine]


def test_the_surplus_of_a_document_moves_behind() -> None:
    hits = [hit(id, document_id="big") for id in "abc"]
    hits += [hit("d", None, "rerank_min"), hit("e", document_id="small")]
    hits += [hit("f", dropped="over_limit", document_id="other")]
    assert ids(spread_documents(hits, most=2)) == "abedfc"
    assert selected(spread_documents(hits, most=2)) == "abef"
    assert selected(spread_documents(hits, most=1)) == "aefb"
    alone = [hit(id, document_id="big") for id in "abc"]
    assert selected(spread_documents(alone, most=1)) == "abc"
    refused("out_of_range", spread_documents, hits, most=0)


@given(hits_of())
def test_every_source_type_gets_a_slot_if_there_are_enough(hits: list[Hit]) -> None:
    after = diversify_sources(hits)

    def kinds(some: Sequence[Hit]) -> set[str]:
        found = [one.document.metadata.get("source_type") for one in some if one.dropped is None]
        return {kind for kind in found if isinstance(kind, str)}

    competing = [one for one in hits if one.dropped in (None, "over_limit")]
    all_kinds = {
        kind
        for one in competing
        if isinstance(kind := one.document.metadata.get("source_type"), str)
    }
    slots = len(selected(hits))
    assert kinds(hits) <= kinds(after)
    first = competing[:1]
    # The first hit holds a slot of its own, whether or not it has a source type.
    typed = first and isinstance(first[0].document.metadata.get("source_type"), str)
    room = slots if typed or not slots else slots - 1
    assert len(kinds(after)) == min(len(all_kinds), room) or kinds(after) == all_kinds
    if slots:
        assert selected(after)[0] == competing[0].id


def test_a_source_type_takes_the_slot_of_the_last_that_can_spare_one() -> None:
    kinds = ["pdf", "pdf", "user", "pdf"]
    hits = [hit(id, source_type=kind) for id, kind in zip("abcd", kinds, strict=True)]
    hits += [hit("e", dropped="over_limit", source_type="pdf")]
    hits += [hit("f", dropped="over_limit", source_type="excel")]
    hits += [hit("g", dropped="over_limit", source_type="web")]
    after = diversify_sources(hits)
    assert ids(after) == "acfgbde"
    assert selected(after) == "acfg"


# Protection.


@given(hits_of(), st.integers(0, 9))
def test_recovered_hits_are_readmitted(hits: list[Hit], most: int) -> None:
    after = readmit_recovered(hits, most=most)
    cut = [
        one.id
        for one in hits
        if one.dropped in TAKEN_BACK and one.document.metadata.get("recovered") is True
    ]
    back = cut[:most] if selected(hits) else []
    assert selected(after) == selected(hits) + "".join(back)
    rest = [one for one in hits if one.id not in back]
    assert [one for one in after if one.id not in back] == rest


@given(hits_of(), st.dictionaries(st.sampled_from(["user", "excel", "pdf"]), st.integers(0, 3)))
def test_a_source_type_keeps_its_survivors(hits: list[Hit], floors: dict[str, int]) -> None:
    after = keep_survivors(hits, floors=floors)
    assert selected(after)[: len(selected(hits))] == selected(hits)
    if not selected(hits):
        return

    def count(some: Sequence[Hit], kind: str, codes: set[str | None]) -> int:
        return sum(
            one.document.metadata.get("source_type") == kind and one.dropped in codes
            for one in some
        )

    for kind in ("user", "excel", "pdf", "unheard of"):
        had, could = count(hits, kind, {None}), count(hits, kind, {*TAKEN_BACK})
        wanted = floors.get(kind, 0)
        assert count(after, kind, {None}) == max(had, min(wanted, had + could))


# A whole result.


def decided(limit: int | None = 2) -> RouteResult:
    rows = [
        {"id": id, "text": text, "source_type": kind, "recovered": id == "translator"}
        for (id, text), kind in zip(
            LIBRARY.items(), ["pdf", "pdf", "user", "web", "pdf", "excel"], strict=True
        )
    ]
    return rerank("clean csv files", rows, reranker=LengthReranker(), limit=limit)


def test_result_after_steps_is_consistent_and_replays() -> None:
    result = decided()
    before = json.dumps(result.to_dict(trace=True))
    precedence = partial(prefer_sources, order=ORDER, margin=100.0)
    after = postprocess(result, [precedence, diversify_sources, readmit_recovered])
    assert json.dumps(result.to_dict(trace=True)) == before
    assert after.selected == tuple(one for one in after.hits if one.dropped is None)
    assert after.ids != result.ids
    assert "translator" in after.ids
    assert after.trace["steps"] == [
        {"step": "prefer_sources", "selected": after.trace["steps"][0]["selected"]},
        {"step": "diversify_sources", "selected": after.trace["steps"][1]["selected"]},
        {"step": "readmit_recovered", "selected": after.ids},
    ]
    assert after.trace["decision"] == result.trace["decision"]
    assert cascade.replay(after.trace)["decision"] == result.trace["decision"]
    json.dumps(after.to_dict(trace=True), allow_nan=False)


def test_limit_sets_the_number_of_slots() -> None:
    result = decided(limit=2)
    assert len(postprocess(result, [], limit=1).ids) == 1
    assert postprocess(result, [], limit=1).ids == result.ids[:1]
    assert len(postprocess(result, [], limit=9).ids) == len(LIBRARY)
    assert postprocess(result, []).hits == result.hits
    twice = postprocess(postprocess(result, [], limit=3), [diversify_sources])
    assert [one["step"] for one in twice.trace["steps"]] == ["limit", "diversify_sources"]
    refused("out_of_range", postprocess, result, [], limit=0)


def test_empty_selection_stays_empty() -> None:
    nothing = rerank("clean csv", [], reranker=LengthReranker())
    assert postprocess(nothing, STEPS, limit=3).ids == []
    rejected = rerank(
        "csv", [{"text": "a", "recovered": True}], reranker=TableReranker({}), limit=1
    )
    cut = replace(
        rejected, hits=tuple(replace(one, dropped="not_reranked") for one in rejected.hits)
    )
    assert postprocess(replace(cut, selected=()), STEPS).ids == []


def test_limit_does_not_refill_an_empty_selection() -> None:
    unsure = Profile(
        any_fits=AnyFits(stage1=Stage1AnyFits(intercept=-9.0)),
        relevance=Relevance(stage1=Stage1Relevance()),
    )
    texts = ["clean csv files", "csv", "files"]
    abstained = rerank(
        "clean csv", texts, reranker=None, profile=unsure, limit=1, min_confidence=0.5
    )
    # The first is held back, and those behind it are beyond the limit of the decision.
    assert [one.dropped for one in abstained.hits] == ["improbable", "over_limit", "over_limit"]
    after = postprocess(abstained, [], limit=3)
    assert (after.ids, after.hits) == ([], abstained.hits)
    assert after.trace["steps"] == [{"step": "limit", "selected": []}]


def test_a_step_that_loses_doubles_or_invents_a_hit_is_named() -> None:
    def lose(hits: Sequence[Hit]) -> list[Hit]:
        return list(hits[1:])

    def double(hits: Sequence[Hit]) -> list[Hit]:
        return [*hits, hits[0]]

    class Invent:
        def __call__(self, hits: Sequence[Hit]) -> list[Hit]:
            return [*hits, hit("new")]

    for step, name in ((lose, "lose"), (partial(double), "double"), (Invent(), "Invent")):
        assert name in refused("malformed_step", postprocess, decided(), [step])
