"""Warnings: when a result carries one, and when it does not."""

from __future__ import annotations

import pytest

from conftest import LIBRARY, FunctionReranker, build
from crossgate import PairScore, Policy, Profile, Router, RouteResult, rerank
from crossgate._core import Warnings

TEXTS = list(LIBRARY.values())[:4]


def ranked(logits: list[float], warnings: Warnings) -> RouteResult:
    """Return a decision on as many texts as there are logits."""
    reranker = FunctionReranker(lambda _, texts: [PairScore(one) for one in logits[: len(texts)]])
    policy = Policy(warnings=warnings)
    texts = TEXTS[: len(logits)]
    return rerank("repair a csv", texts, reranker=reranker, profile=Profile(), policy=policy)


def codes(result: RouteResult) -> list[str]:
    """Return the codes of the warnings, of which each has one line of detail."""
    assert all(len(one.detail.splitlines()) == 1 for one in result.warnings)
    return [one.code for one in result.warnings]


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        ([1.0, 1.1, 0.9], ["flat_scores"]),
        ([-5.0, -5.0, -5.0, -5.0], ["flat_scores"]),
        ([4.0, 0.0, -4.0], []),
        ([1.0, 1.0], []),  # two say nothing about a spread
    ],
)
def test_logits_that_lie_close_together(logits: list[float], expected: list[str]) -> None:
    assert codes(ranked(logits, Warnings(flat_scores=0.5))) == expected


def test_a_best_cosine_that_is_low_is_said_also_where_the_gate_decides() -> None:
    index = build()
    sure = Profile(winner={"agreed": 0.0})
    policy = Policy(warnings=Warnings(weak_cosine=0.99))
    router = Router(index, reranker=None, profile=sure, policy=policy)
    result = router.route("repair messy csv files")
    assert (result.verdict, result.stage, codes(result)) == ("confident", 1, ["weak_retrieval"])
    assert "cosine" in result.warnings[0].detail
    # Without rerank scores nothing is said of them.
    fine = Warnings(weak_cosine=0.1, flat_scores=9.0, weak_rerank_score=9.0)
    router = Router(index, reranker=None, profile=sure, policy=Policy(warnings=fine))
    assert codes(router.route("repair messy csv files")) == []


def test_warnings_are_values_of_the_result() -> None:
    result = ranked([0.0, 0.0, 0.0], Warnings(flat_scores=1.0, weak_rerank_score=1.0))
    assert codes(result) == ["flat_scores", "weak_retrieval"]
    shown = result.to_dict()["warnings"]
    assert [one["code"] for one in shown] == ["flat_scores", "weak_retrieval"]
    assert [one["detail"] for one in shown] == [one.detail for one in result.warnings]
    assert result.degraded == ()
