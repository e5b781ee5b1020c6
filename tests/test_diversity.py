"""Near-duplicates, and maximal marginal relevance by words and by vectors."""

from __future__ import annotations

import math
from array import array
from typing import Any

import pytest

from conftest import refused
from crossgate import Candidate
from crossgate._pipelines.diversity import deduplicate, diversify


def candidate(id: str, text: str = "text", score: float | None = None, **more: Any) -> Candidate:
    """Return a candidate with metadata."""
    return Candidate(id=id, text=text, score=score, metadata=more)


def ids(hits: list[Candidate]) -> list[str]:
    """Return the ids in order."""
    return [hit.id for hit in hits]


LONG = "the staging cluster has five nodes since the upgrade in february"


def test_one_hit_per_source_is_kept() -> None:
    hits = [
        candidate("a", "one", source_id="note"),
        candidate("b", "two", source_id="mail"),
        candidate("c", "three", source_id="note"),
        candidate("d", "four"),
        candidate("e", "five", source_id=None),
        candidate("f", "six", source_id=7),
        candidate("g", "seven", source_id=7),
    ]
    assert ids(deduplicate(hits)) == ["a", "b", "d", "e", "f"]
    assert ids(deduplicate(hits, source="other")) == ["a", "b", "c", "d", "e", "f", "g"]


def test_duplicate_under_another_id_is_dropped() -> None:
    hits = [candidate("a", LONG), candidate("b", LONG.upper() + "!"), candidate("c", "hens")]
    assert ids(deduplicate(hits)) == ["a", "c"]
    assert ids(deduplicate(hits, similarity=None)) == ["a", "b", "c"]


def test_messages_that_differ_in_a_number_stay_two() -> None:
    hits = [candidate(id, f"{LONG}, ticket {id}") for id in ("12", "13")]
    assert ids(deduplicate(hits, similarity=0.1)) == ["12", "13"]


def test_the_newest_of_a_group_stands_where_its_best_stood() -> None:
    hits = [
        candidate("old", LONG, 0.9, timestamp="2031-02-01T00:00Z"),
        candidate("other", "hens and foxes", 0.8),
        candidate("new", f"{LONG} again", 0.1, timestamp="2031-03-01T00:00Z"),
    ]
    kept = deduplicate(hits)
    assert [(hit.id, hit.score) for hit in kept] == [("new", 0.9), ("other", 0.8)]
    for more in ({}, {"timestamp": "soon"}):
        untimed = [hits[0], candidate("untimed", LONG, 0.5, **more), hits[2]]
        assert [(hit.id, hit.score) for hit in deduplicate(untimed)] == [("old", 0.9)]


def test_hits_without_text_are_not_duplicates() -> None:
    class Bare:
        def __init__(self, id: str) -> None:
            self.id = id

    hits = [Bare("a"), Bare("b")]
    assert deduplicate(hits) == hits
    assert deduplicate([]) == []


@pytest.mark.parametrize("similarity", [0.0, -1.0, 1.1, math.nan])
def test_invalid_similarities_are_refused(similarity: float) -> None:
    refused("out_of_range", deduplicate, [candidate("a")], similarity=similarity)


PETS = [
    candidate("fox", "the red fox runs", 0.9),
    candidate("fox-again", "the red fox ran", 0.88),
    candidate("hen", "a blue hen sits", 0.7),
]


def test_vectors_are_compared_by_cosine_whatever_their_length() -> None:
    def hit(id: str, score: float, vector: Any) -> Candidate:
        return Candidate(id=id, text="same words", score=score, vector=vector)

    hits = [hit("a", 0.9, [2.0, 0.0]), hit("b", 0.8, array("f", [9.0, 1.0])), hit("c", 0.6, [0, 1])]
    assert ids(diversify(hits, by="vectors")) == ["a", "c", "b"]
    assert ids(diversify(hits, by="words")) == ["a", "b", "c"]
    refused("malformed_candidate", diversify, [*hits, candidate("d", score=1.0)], by="vectors")
    wide = hit("wide", 0.5, [1.0, 0.0, 0.0])
    assert '"wide"' in refused("wrong_dimension", diversify, [*hits, wide], by="vectors")
    refused("not_finite", diversify, [hit("nan", 0.5, [math.nan])], by="vectors")
    refused("zero_vector", diversify, [hit("zero", 0.5, [0.0])], by="vectors")


def test_options_outside_of_their_limits() -> None:
    for trade_off in (-0.01, 1.01, math.nan):
        refused("out_of_range", diversify, PETS, trade_off=trade_off)
    refused("out_of_range", diversify, PETS, k=0)
    refused("out_of_range", diversify, PETS, by="letters")
    refused("out_of_range", diversify, PETS, relevance=[1.0])
    refused("not_finite", diversify, PETS, relevance=[1.0, math.nan, 0.0])
    refused("malformed_candidate", diversify, [candidate("a")])
