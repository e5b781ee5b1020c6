"""Tests of `rerank` with the bundled passage model and profile."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import LengthReranker
from crossgate import Profile, rerank
from crossgate._decision.rerank import PASSAGE_PROFILE
from crossgate._runtime.models import cache
from crossgate._runtime.models.manifest import PASSAGE_RERANKER
from crossgate._values.profile_files import read_profile

PASSAGES = (
    "The staging cluster has five nodes since the March upgrade.",
    "Production runs on twelve nodes in two regions.",
    "The canteen is closed on Friday.",
)


def test_bundled_profile_names_the_default_reranker() -> None:
    profile = read_profile(PASSAGE_PROFILE)
    assert profile.reranker == cache.identity(PASSAGE_RERANKER)
    assert profile.relevance.stage2 is not None
    # Other candidates change the BM25 score of a passage, and must not change how relevant it is.
    assert (profile.relevance.stage2.cosine, profile.relevance.stage2.bm25) == (0, 0)
    assert profile.relevance.stage2.rerank_score > 0


def test_answering_passage_is_selected_with_its_relevance() -> None:
    result = rerank("how many nodes does the staging cluster have", PASSAGES)
    assert result.degraded == ()
    assert result.selected[0].document.text == PASSAGES[0]
    relevance = [hit.relevance for hit in result.hits]
    assert all(one is not None and 0 <= one <= 1 for one in relevance)
    assert result.confidence == result.hits[0].relevance
    assert result.hits[-1].document.text == PASSAGES[2]
    assert result.hits[-1].dropped == "irrelevant"
    assert result.to_dict()["hits"][0]["relevance"] == relevance[0]


def test_nothing_is_selected_without_an_answer() -> None:
    result = rerank("how do I bake bread", PASSAGES)
    assert (result.selected, result.degraded) == ((), ())
    assert {hit.dropped for hit in result.hits} == {"irrelevant"}


def test_relevance_does_not_depend_on_other_passages() -> None:
    query = "how many nodes does the staging cluster have"
    among = {hit.document.text: hit.relevance for hit in rerank(query, PASSAGES).hits}
    for text in PASSAGES:
        (alone,) = rerank(query, [text]).hits
        assert alone.relevance == pytest.approx(among[text], abs=1e-6)


def test_every_candidate_is_read() -> None:
    profile = read_profile(PASSAGE_PROFILE)
    texts = [f"The staging cluster has {n} nodes." for n in range(profile.pool + 5)]
    result = rerank("how many nodes does staging have", texts)
    assert all(hit.rerank_score is not None for hit in result.hits)
    assert result.trace["profile"]["combine"]["mode"] == "weighted"


@pytest.mark.parametrize(
    ("known", "reranker", "mode"),
    [
        ({}, "default", "weighted"),
        ({"cosine": 0.5}, "default", "z_score"),
        ({"score": 0.5}, "default", "rrf"),
        ({"score": 0.5, "cosine": 0.5}, "default", "z_score"),
        ({"cosine": 0.5}, LengthReranker(), "rrf"),
    ],
)
def test_combination_depends_on_cosines_and_scores(
    known: dict[str, float], reranker: str | LengthReranker, mode: str
) -> None:
    rows = [{"text": text, **known} for text in PASSAGES]
    result = rerank("how many nodes does staging have", rows, reranker=reranker)
    assert result.trace["profile"]["combine"]["mode"] == mode


@pytest.mark.parametrize("key", ["cosine", "score"])
def test_number_of_one_candidate_has_no_effect_on_the_combination(key: str) -> None:
    rows: list[str | dict[str, object]] = [{"text": PASSAGES[0], key: 0.5}, *PASSAGES[1:]]
    result = rerank("how many nodes does staging have", rows)
    assert result.trace["profile"]["combine"]["mode"] == "weighted"


def test_kept_scores_take_precedence_over_cosines() -> None:
    rows = [{"text": text, "cosine": 0.5, "score": 0.5} for text in PASSAGES]
    result = rerank("how many nodes does staging have", rows, keep_scores=True)
    assert result.trace["profile"]["combine"]["mode"] == "rrf"


def test_cosines_and_rerank_scores_are_combined_as_standard_scores() -> None:
    query = "how many nodes does the staging cluster have"
    rows = [
        {"text": text, "cosine": cosine}
        for text, cosine in zip(PASSAGES, (0.50, 0.52, 0.10), strict=True)
    ]
    hits = rerank(query, rows).hits
    blends = np.array([hit.blend for hit in hits])
    logits = np.array([hit.rerank_score for hit in hits])
    expected = sum(
        weight * (scores - scores.mean()) / scores.std()
        for weight, scores in ((1, blends), (1.1, logits))
    )
    assert [hit.score for hit in hits] == pytest.approx(expected)
    assert hits[0].document.text == PASSAGES[0]


def test_between_two_candidates_the_cross_encoder_decides() -> None:
    rows = [{"text": PASSAGES[0], "cosine": 0.50}, {"text": PASSAGES[1], "cosine": 0.52}]
    result = rerank("how many nodes does the staging cluster have", rows)
    assert result.hits[0].document.text == PASSAGES[0]


def test_scores_of_another_reranker_have_no_threshold() -> None:
    result = rerank("how do I bake bread", PASSAGES, reranker=LengthReranker())
    assert [note.code for note in result.degraded] == ["no_profile"]
    assert len(result.selected) == len(PASSAGES)
    assert {hit.relevance for hit in result.hits} == {None}
    open_gate = rerank("how do I bake bread", PASSAGES, profile=Profile())
    assert len(open_gate.selected) == len(PASSAGES)
