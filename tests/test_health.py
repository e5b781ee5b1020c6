"""Warnings: when a result carries one, and when it does not."""

from __future__ import annotations

import math

import pytest

from conftest import LIBRARY, FunctionReranker, build, refused
from crossgate import PairScore, Profile, ResultWarning, Router, RouteResult, rerank
from crossgate._profile import Gate, Health

TEXTS = list(LIBRARY.values())[:4]


def ranked(logits: list[float], health: Health) -> RouteResult:
    """Return a decision on as many texts as there are logits."""
    reranker = FunctionReranker(lambda _, texts: [PairScore(one) for one in logits[: len(texts)]])
    profile = Profile(health=health)
    return rerank("repair a csv", TEXTS[: len(logits)], reranker=reranker, profile=profile)


def codes(result: RouteResult) -> list[str]:
    """Return the codes of the warnings, of which each has one line of detail."""
    assert all(len(one.detail.splitlines()) == 1 for one in result.warnings)
    return [one.code for one in result.warnings]


def test_nothing_is_said_unless_somebody_asked() -> None:
    assert ranked([-9.0, -9.0, -9.0], Health()).warnings == ()


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
    assert codes(ranked(logits, Health(flat_logits=0.5))) == expected


def test_the_threshold_is_the_standard_deviation() -> None:
    logits = [3.0, 0.0, -3.0]
    assert codes(ranked(logits, Health(flat_logits=math.sqrt(6)))) == []
    (warning,) = ranked(logits, Health(flat_logits=2.45)).warnings
    assert isinstance(warning, ResultWarning)
    assert "2.45" in warning.detail


def test_a_best_logit_that_is_low() -> None:
    assert codes(ranked([-3.0, -6.0], Health(weak_logit=-2.0))) == ["weak_retrieval"]
    assert codes(ranked([-2.0, -6.0], Health(weak_logit=-2.0))) == []


def test_a_best_cosine_that_is_low_is_said_also_where_the_gate_decides() -> None:
    index = build()
    profile = Profile(gate=Gate(agreed_margin=0.0), health=Health(weak_cosine=0.99))
    result = Router(index, reranker=None, profile=profile).route("repair messy csv files")
    assert (result.stage, codes(result)) == (1, ["weak_retrieval"])
    fine = Profile(health=Health(weak_cosine=0.1, flat_logits=9.0, weak_logit=9.0))
    assert codes(Router(index, reranker=None, profile=fine).route("repair messy csv files")) == []


def test_warnings_are_values_of_the_result() -> None:
    result = ranked([0.0, 0.0, 0.0], Health(flat_logits=1.0, weak_logit=1.0))
    assert codes(result) == ["flat_scores", "weak_retrieval"]
    shown = result.to_dict()["warnings"]
    assert [one["code"] for one in shown] == ["flat_scores", "weak_retrieval"]
    assert [one["detail"] for one in shown] == [one.detail for one in result.warnings]
    assert result.degraded == ()


def test_the_section_is_part_of_the_profile() -> None:
    profile = Profile(health=Health(flat_logits=0.5, weak_cosine=0.2))
    assert Profile.from_dict(profile.to_dict()) == profile
    values = {**profile.to_dict(), "health": {"flat_logits": -1}}
    assert "health.flat_logits" in refused("profile_malformed", Profile.from_dict, values)
    values["health"] = {"nonsense": 1}
    assert "health.nonsense" in refused("profile_malformed", Profile.from_dict, values)
    del values["health"]
    assert Profile.from_dict(values).health == Health()
