"""Shortlists through the public interface: promises, and inputs that do not change them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import FunctionReranker, build
from crossgate import (
    Candidate,
    PairScore,
    Policy,
    Profile,
    Router,
    RouteResult,
    rerank,
)
from crossgate._core import Combine, Floors

PROMISES = [
    {"most": 1, "least_shares": [1.0]},
    {"most": 3, "least_shares": [1.0, 0.9, 0.6, 0.3]},
    {"most": 5, "least_shares": [1.0, 0.8, 0.5, 0.2, 0.1, 0.05, 0.0]},
]
FITTED = Profile(
    name="fitted",
    reranker="function@1",
    combine=Combine.Replace(),
    any_fits={
        "stage1": {"intercept": 1.0, "log_mean": 0.2},
        "stage2": {"intercept": 1.0, "rerank_score": 0.2},
    },
    relevance={
        "stage1": {"cosine": 6.0, "bm25": 2.0},
        "stage2": {"cosine": 3.0, "rerank_score": 1.0, "unread": -1.0},
    },
    shortlist={"coverage": 0.52, "most": 5, "stage1": PROMISES, "stage2": PROMISES},
    pool=4,
)

QUARTERS = st.integers(0, 4).map(lambda number: number / 4)
# The cosine of a candidate, and the score that the reranker gives it; often equal.
ROWS = st.lists(st.tuples(QUARTERS, st.integers(-3, 3).map(float)), min_size=1, max_size=8)
COVERAGES = st.one_of(st.sampled_from([0.5, 0.51, 0.53, 0.56, 0.9]), st.floats(0.001, 0.999))
LENGTHS = st.one_of(st.none(), st.integers(1, 7))
POLICIES = st.sampled_from(
    [
        Policy(),
        Policy(floors=Floors(default=0.5)),
        Policy(rerank_min=0.0),
        Policy(rerank_margin=1.0),
        Policy(agreement=0.5),
    ]
)
PROFILES = st.sampled_from(
    [
        FITTED,
        FITTED.replace(winner={"agreed": 0.1, "disagreed": 0.1}),
        FITTED.replace(answer={"rerank_threshold": 0.75}),
        FITTED.replace(answer={"threshold": 0.75}, runner_up={"stage1": 0.0, "stage2": 0.0}),
        FITTED.replace(shortlist=FITTED.shortlist.replace(least=0.75)),
    ]
)


def candidates_of(rows: Sequence[tuple[float, float]]) -> list[Candidate]:
    return [
        Candidate(id=f"d{place}", text=f"d{place}", vector=[cosine, math.sqrt(1 - cosine**2)])
        for place, (cosine, _) in enumerate(rows)
    ]


def reranked(
    candidates: Sequence[Candidate],
    rows: Sequence[tuple[float, float]],
    profile: Profile = FITTED,
    **options: Any,
) -> RouteResult:
    """Rerank candidates, by a reranker that knows their scores."""
    scores = {f"d{place}": score for place, (_, score) in enumerate(rows)}
    reranker = FunctionReranker(lambda _, texts: [PairScore(scores[text]) for text in texts])
    options = {"vector": [1.0, 0.0], **options}
    return rerank("query", candidates, profile=profile, reranker=reranker, **options)


def listed(result: RouteResult) -> list[str]:
    return [hit.id for hit in result.shortlist]


def codes(result: RouteResult) -> list[str]:
    return [note.code for note in result.degraded]


@given(ROWS, PROFILES, POLICIES, COVERAGES, LENGTHS)
def test_shortlist_starts_with_the_first_pick_and_is_limited(
    rows: list[tuple[float, float]],
    profile: Profile,
    policy: Policy,
    coverage: float,
    most: int | None,
) -> None:
    result = reranked(
        candidates_of(rows), rows, profile, policy=policy, coverage=coverage, max_shortlist=most
    )
    assert len(result.shortlist) <= (most or profile.shortlist.most)
    assert all(hit in result.hits for hit in result.shortlist)
    assert len(set(listed(result))) == len(result.shortlist)
    if result.shortlist and result.selected:
        assert result.shortlist[0] == result.selected[0]
    # The others are the most relevant of those that the policy does not exclude.
    relevances = [hit.relevance or 0.0 for hit in result.shortlist[1:]]
    assert relevances == sorted(relevances, reverse=True)
    excluded = {"below_floor", "disagreement", "rerank_min", "rerank_margin"}
    assert not excluded & {hit.dropped for hit in result.shortlist}
    # The promised coverage is never above the asked one, and a lower one is stated.
    if result.coverage is not None:
        assert result.coverage <= coverage
        assert ("coverage" in codes(result)) == (result.coverage < coverage)


def test_longer_shortlist_has_the_promise_of_the_longest_fitted_length() -> None:
    rows = [(0.5, 0.0)] * 8
    for most, wanted, coverage in ((1, 1, 0.5), (2, 1, 0.5), (3, 1, 0.53), (9, 8, 0.56)):
        result = reranked(candidates_of(rows), rows, coverage=0.9, max_shortlist=most)
        assert (len(result.shortlist), result.coverage) == (wanted, coverage)
        (note,) = result.degraded
        assert note.code == "coverage"
        assert f"at most {most} " in note.detail
        assert f"{coverage}" in note.detail


@pytest.mark.parametrize(
    "profile",
    [
        Profile(name="plain"),
        FITTED.replace(name="plain", shortlist={}),
        # Fitted for no list that is this short.
        FITTED.replace(name="plain", shortlist={"most": 1, "stage1": PROMISES[1:]}),
    ],
)
def test_profile_without_the_fit_has_an_empty_shortlist_and_a_note(profile: Profile) -> None:
    profile = profile.replace(reranker=None)
    router = Router(build({"a": "red fox", "b": "lazy hen"}), reranker=None, profile=profile)
    assert router.route("red fox").degraded == ()  # no shortlist was requested
    result = router.route("red fox", coverage=0.8)
    assert (result.shortlist, result.coverage) == ((), None)
    (note,) = result.degraded
    assert note.code == "no_shortlist"
    assert "'plain'" in note.detail or '"plain"' in note.detail
    # The answer does not depend on it.
    assert result.ids


def test_candidates_without_a_cosine_have_no_shortlist() -> None:
    options: dict[str, Any] = {"profile": FITTED, "reranker": None, "embed": False}
    result = rerank("red fox", ["red fox", "hen"], coverage=0.8, **options)
    assert (result.shortlist, result.coverage) == ((), None)
    assert "no_shortlist" in codes(result)


def test_no_candidates_give_no_note() -> None:
    result = rerank("red fox", [], profile=Profile(), reranker=None)
    assert (result.shortlist, result.coverage, result.degraded) == ((), None, ())


def test_shortlist_in_doubt_is_not_empty_and_nothing_is_selected() -> None:
    rows = [(0.5, 0.0), (0.5, 0.1), (0.0, -3.0)]
    unsure = FITTED.replace(answer={"confidence": 0.99})
    result = reranked(candidates_of(rows), rows, unsure, coverage=0.53)
    assert (result.ids, result.reason) == ([], "rejected")
    assert listed(result) == ["d1", "d0"]
    # Below the least probability that any fits, it is empty, and the promise still holds: it counts
    # such queries as not covered.
    silent = unsure.replace(shortlist=unsure.shortlist.replace(least=0.99))
    result = reranked(candidates_of(rows), rows, silent, coverage=0.53)
    assert (result.shortlist, result.coverage, result.degraded) == ((), 0.53, ())


# The promise, for labelled queries that are exchangeable with further ones.
