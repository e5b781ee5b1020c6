"""Shortlists through the public interface: promises, and inputs that do not change them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conftest import FunctionReranker, build
from crossgate import (
    Candidate,
    PairScore,
    Policy,
    Profile,
    Router,
    RouteResult,
    _core,
    rerank,
)
from crossgate._core import Combine, Floors, Promise
from crossgate._decision import cascade

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


@given(ROWS, PROFILES, POLICIES, COVERAGES, COVERAGES, LENGTHS)
def test_shortlist_only_grows_with_coverage(
    rows: list[tuple[float, float]],
    profile: Profile,
    policy: Policy,
    one: float,
    other: float,
    most: int | None,
) -> None:
    low, high = (
        reranked(
            candidates_of(rows), rows, profile, policy=policy, coverage=asked, max_shortlist=most
        )
        for asked in sorted((one, other))
    )
    assert listed(low) == listed(high)[: len(low.shortlist)]
    assert bool(low.shortlist) == bool(high.shortlist)
    # Nothing else depends on it.
    assert (low.selected, low.hits, low.any_fits) == (high.selected, high.hits, high.any_fits)


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


@given(ROWS, PROFILES, POLICIES, COVERAGES, LENGTHS, st.integers(0, 99))
def test_order_of_candidates_does_not_change_the_shortlist(
    rows: list[tuple[float, float]],
    profile: Profile,
    policy: Policy,
    coverage: float,
    most: int | None,
    seed: int,
) -> None:
    candidates = candidates_of(rows)
    shuffled = random.Random(seed).sample(candidates, len(candidates))
    first, second = (
        reranked(given_, rows, profile, policy=policy, coverage=coverage, max_shortlist=most)
        for given_ in (candidates, shuffled)
    )
    assert listed(first) == listed(second)
    assert first.coverage == second.coverage


@given(ROWS, PROFILES, POLICIES, st.one_of(st.none(), COVERAGES), LENGTHS)
def test_trace_replays_the_shortlist_byte_for_byte(
    rows: list[tuple[float, float]],
    profile: Profile,
    policy: Policy,
    coverage: float | None,
    most: int | None,
) -> None:
    result = reranked(
        candidates_of(rows), rows, profile, policy=policy, coverage=coverage, max_shortlist=most
    )
    text = json.dumps(result.trace, allow_nan=False)
    decision = cascade.replay(json.loads(text))["decision"]
    assert json.dumps(decision) == json.dumps(result.trace["decision"])
    assert decision["shortlist"] == listed(result) == result.to_dict()["shortlist"]
    assert decision["coverage"] == result.coverage == result.to_dict()["coverage"]


@given(ROWS, COVERAGES)
def test_shortlist_is_the_shortest_of_its_promise(
    rows: list[tuple[float, float]], coverage: float
) -> None:
    """The rule by its definition: the first candidate, and each other with enough share."""
    result = reranked(candidates_of(rows), rows, coverage=coverage)
    total = sum(hit.relevance or 0.0 for hit in result.hits)
    shares = PROMISES[2]["least_shares"]
    assert isinstance(shares, list)
    level = max(0, math.ceil(round((coverage - 0.5) * 100, 9)))
    least = shares[min(level, len(shares) - 1)]
    others = [(hit.relevance or 0.0) / total for hit in result.hits[1:]]
    # A share that equals the limit up to rounding can be on either side of it.
    assume(all(abs(share - least) > 1e-9 for share in others if least))
    assert len(result.shortlist) == min(5, 1 + sum(share >= least for share in others))


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


FOUND = st.one_of(
    st.none(),
    st.tuples(st.integers(1, 9), st.sampled_from([0.0, 0.1, 0.25, 0.4]) | st.floats(0, 1)),
)


def is_covered(found: tuple[int, float] | None, promise: Promise, percent: int) -> bool:
    """Return whether a list contains the best fitting candidate, given its rank and its share."""
    level = percent - 50
    if found is None or level >= len(promise.least_shares):
        return False
    rank, share = found
    return rank <= promise.most and (rank == 1 or share >= promise.least_shares[level])


@given(st.lists(FOUND, min_size=2, max_size=40), st.integers(50, 99), st.integers(1, 8))
def test_enough_of_n_plus_one_queries_are_covered(
    found: list[tuple[int, float] | None], percent: int, most: int
) -> None:
    """The finite-sample property: each query in turn is the new one, the others are labelled."""
    covered = promised = 0
    for place, new in enumerate(found):
        promises = _core.fit_shortlist(found[:place] + found[place + 1 :])
        fitted: Mapping[int, Promise] = {promise.most: promise for promise in promises}
        known = fitted.get(most)
        promised += known is not None and len(known.least_shares) > percent - 50
        covered += known is not None and is_covered(new, known, percent)
    # If a promise is possible whichever query is left out, it is kept on average.
    if promised == len(found):
        assert 100 * covered >= percent * len(found)
