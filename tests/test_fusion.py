"""Fusion of ranked lists: against a naive reference, on any kind of hit, behind its protocol."""

from __future__ import annotations

import asyncio
import math
from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from conftest import FunctionReranker, LengthReranker, refused
from crossgate import Candidate, Profile
from crossgate._core import Combine
from crossgate._pipelines.fusion import (
    CrossEncoderFusion,
    Fusion,
    Normalisation,
    RRFReranker,
    ScoreFusion,
    as_shares,
    fuse_scores,
    reciprocal_rank,
)


@dataclass
class StoreHit:
    """A hit as a vector store returns it: the text is in the metadata."""

    id: str
    score: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)


def hits(*ids: str) -> list[StoreHit]:
    """Return hits in this order."""
    return [StoreHit(id, 1.0 / place) for place, id in enumerate(ids, start=1)]


def test_weights_let_meaning_count_more_than_words() -> None:
    stores = [hits("words"), hits("meaning")]
    assert [hit.id for hit in reciprocal_rank(stores)] == ["meaning", "words"]  # a tie: by id
    fused = reciprocal_rank([hits("words"), hits("also", "meaning")], weights=[0.9, 0.1])
    assert [hit.id for hit in fused] == ["words", "also", "meaning"]
    assert fused[0].score == 0.9 / 61


def test_no_store_one_store_and_empty_stores() -> None:
    assert reciprocal_rank([]) == reciprocal_rank([[], []]) == fuse_scores([[]]) == []
    assert [hit.id for hit in reciprocal_rank([hits("b", "a")], k=5)] == ["b", "a"]
    assert [hit.id for hit in reciprocal_rank([[], hits("b", "a"), []], k=1)] == ["b"]


class Plain:
    """A hit of no particular kind."""

    def __init__(self, id: str, score: float) -> None:
        self.id = id
        self.score = score


class Model:
    """A hit that is copied as pydantic's models are."""

    def __init__(self, id: str, score: float) -> None:
        self.__dict__.update(id=id, score=score)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("frozen")

    def model_copy(self, *, update: Mapping[str, Any]) -> Model:
        """Return a copy with other values."""
        return Model(**{**self.__dict__, **update})


Row = namedtuple("Row", ["id", "score"])


@pytest.mark.parametrize("kind", [Plain, Model, Row, StoreHit])
def test_hits_keep_their_type(kind: Any) -> None:
    given = kind("a", 7.0)
    (made,) = reciprocal_rank([[given]])
    assert (type(made), made.id, made.score) == (kind, "a", 1 / 61)
    assert given.score == 7.0


def test_metadata_of_the_first_list_is_kept() -> None:
    stores = [[StoreHit("a", metadata={"from": "one"})], [StoreHit("a", metadata={"from": "two"})]]
    (fused,) = reciprocal_rank(stores)
    assert fused.metadata == {"from": "one"}


def test_of_two_texts_the_newer_counts_and_else_the_first() -> None:
    def candidate(text: str, time: str | None) -> Candidate:
        return Candidate(id="a", text=text, metadata={"timestamp": time} if time else {})

    old, new = candidate("five nodes", "2031-02-01"), candidate("three nodes", "2031-03-01")
    undated, odd = candidate("some nodes", None), candidate("odd nodes", "soon")
    cases = [([old], [new], new), ([new], [old], new), ([undated], [new], undated)]
    cases += [([odd], [new], odd), ([new], [odd], new)]
    for one, other, wanted in cases:
        (fused,) = reciprocal_rank([one, other])
        assert (fused.text, fused.score) == (wanted.text, 2 / 61)


def test_a_candidate_takes_over_the_numbers_that_it_lacks() -> None:
    words = Candidate(id="a", text="fox", score=3.0)
    meaning = Candidate(id="a", text="fox", cosine=0.4, vector=[1.0])
    (fused,) = reciprocal_rank([[words], [meaning]])
    assert (fused.cosine, fused.vector) == (0.4, [1.0])
    assert (words.cosine, words.score) == (None, 3.0)


def test_shares_are_relative_to_the_best_possible_score() -> None:
    stores = [hits("a", "b"), hits("a")]
    shares = as_shares(reciprocal_rank(stores), stores=2)
    assert [(hit.id, hit.score) for hit in shares] == [("a", 1.0), ("b", 1 / 62 / (2 / 61))]
    twice = as_shares(reciprocal_rank([hits("a", "a")]), stores=1)
    assert twice[0].score == 1.0


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("out_of_range", {"k": 0}),
        ("out_of_range", {"k_param": -1}),
        ("out_of_range", {"k_param": math.nan}),
        ("out_of_range", {"weights": [1.0]}),
        ("out_of_range", {"weights": [0.0, 0.0]}),
        ("out_of_range", {"weights": [-1.0, 2.0]}),
    ],
)
def test_options_outside_of_their_limits(code: str, options: dict[str, Any]) -> None:
    refused(code, reciprocal_rank, [hits("a"), hits("b")], **options)


def test_unusable_hits_are_refused() -> None:
    refused("malformed_candidate", reciprocal_rank, [[object()]])
    refused("malformed_candidate", reciprocal_rank, [[StoreHit("")]])
    refused("malformed_candidate", fuse_scores, [[StoreHit("a", None)]])  # type: ignore[arg-type]
    message = refused("not_finite", fuse_scores, [[StoreHit("a")], [StoreHit("b", math.inf)]])
    assert '"b" in list 2' in message
    message = refused("out_of_range", fuse_scores, [hits("a")], normalisation="softmax")
    assert all(one.value in message for one in Normalisation)


A_FOX, A_HEN, A_DOG = (
    StoreHit("a", 2.0, {"text": "red fox"}),
    StoreHit("b", 1.0, {"text": "blue hen"}),
    StoreHit("c", 0.0, {"text": "old dog"}),
)


@pytest.mark.parametrize("fuser", [RRFReranker(), ScoreFusion(), CrossEncoderFusion(None)])
def test_the_protocol_holds(fuser: Fusion) -> None:
    assert isinstance(fuser, Fusion)
    assert not isinstance(object(), Fusion)
    stores = [
        [A_FOX, A_HEN, A_DOG],
        [StoreHit("b", 9.0, {"text": "blue hen"})],
    ]
    fused = asyncio.run(fuser.fuse(stores, k=1, query="hen"))
    assert [hit.id for hit in fused] == ["b"]
    assert [[hit.score for hit in store] for store in stores] == [[2.0, 1.0, 0.0], [9.0]]


def test_without_models_no_query_is_needed() -> None:
    stores = [hits("a", "b"), hits("b")]
    fused = asyncio.run(RRFReranker(k_param=0).fuse(stores, k=9))
    assert [(hit.id, hit.score) for hit in fused] == [("b", 1.5), ("a", 1.0)]
    weighted = asyncio.run(RRFReranker(weights=[3, 1]).fuse(stores, k=9))
    assert [hit.id for hit in weighted] == ["b", "a"]
    assert weighted[1].score == 3 / 61
    ranked = asyncio.run(ScoreFusion(Normalisation.RANK).fuse(stores, k=9))
    assert [(hit.id, hit.score) for hit in ranked] == [("b", 1.5), ("a", 1.0)]


PASSAGES = [
    [
        StoreHit("long", 0.0, {"content": "a fox that ran and ran"}),
        StoreHit("mid", 0.0, {"text": "a fox"}),
    ],
    [StoreHit("short", 0.0, {"passage": "fox"})],
]


def test_cross_encoder_fusion_orders_by_the_real_model() -> None:
    reranker = LengthReranker()
    profile = Profile(combine=Combine.Replace())
    fuser = CrossEncoderFusion(reranker, profile=profile)
    fused = asyncio.run(fuser.fuse(PASSAGES, k=2, query="fox"))
    assert [(hit.id, hit.score) for hit in fused] == [("short", -3.0), ("mid", -5.0)]
    assert fused[0].metadata == {"passage": "fox"}
    (call,) = reranker.calls
    assert call == ("fox", ["a fox that ran and ran", "fox", "a fox"])


def test_only_the_pool_is_read() -> None:
    reranker = LengthReranker()
    fused = asyncio.run(CrossEncoderFusion(reranker, pool=1).fuse(PASSAGES, k=3, query="fox"))
    assert [hit.id for hit in fused] == ["long"]
    refused("out_of_range", CrossEncoderFusion, pool=0)


def test_a_cross_encoder_that_fails_leaves_the_fused_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(query: str, documents: Sequence[str]) -> object:
        raise RuntimeError("out of memory")

    fused = asyncio.run(CrossEncoderFusion(FunctionReranker(fail)).fuse(PASSAGES, k=3, query="fox"))
    assert [hit.id for hit in fused] == [hit.id for hit in reciprocal_rank(PASSAGES)]
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("crossgate", "WARNING")
    assert "out of memory" in record.message


def test_a_cross_encoder_needs_query_and_texts() -> None:
    def run(stores: list[list[StoreHit]], query: str | None) -> object:
        return asyncio.run(CrossEncoderFusion(LengthReranker()).fuse(stores, k=1, query=query))

    refused("empty_query", run, PASSAGES, None)
    assert "'bare'" in refused("empty_document", run, [[StoreHit("bare")]], "fox")
    assert run([], "fox") == []
