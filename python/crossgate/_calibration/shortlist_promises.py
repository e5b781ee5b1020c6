"""Fits what a shortlist promises, and checks the promise on held-out queries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

import crossgate._core as _core
from crossgate._calibration.fits import stated
from crossgate._core import MOST_CANDIDATES, Profile, Promise, Shortlist
from crossgate._evaluation.economics import Shortlists, measure_shortlists
from crossgate._evaluation.stored_runs import (
    MODES,
    STAGES,
    Mode,
    StoredQuery,
    decide_all,
    without_thresholds,
)
from crossgate._support.errors import CalibrationError
from crossgate._support.wording import counted
from crossgate._values.results import RouteResult

EMPTIED = 0.005
"""Share of the queries with a match whose shortlist is empty because of the threshold."""
COVERAGE = 0.9
"""The coverage of a fit that names none."""
SIGNIFICANCE = 0.05
"""A promise counts as broken if the held-out coverage would be this improbable under it."""

Found = tuple[int, float]
"""Rank and share of the best fitting candidate."""


@dataclass(frozen=True, slots=True)
class FittedShortlist:
    """The promises of a profile, with their figures on held-out queries.

    Attributes:
        shortlist: The promises.
        held_out: The figures by mode, each query with weights and promises that were fitted on the
            other folds. Empty without a promise.
        notes: Remarks for the reader.
    """

    shortlist: Shortlist
    held_out: Mapping[str, Shortlists]
    notes: tuple[str, ...]


def fit_shortlist(
    folds: Sequence[tuple[Sequence[StoredQuery], Profile]],
    *,
    coverage: float | None,
    most: int,
    seed: int,
) -> FittedShortlist:
    """Fit the promises of a profile on queries that its weights were not fitted on, and check them.

    Cross-conformal prediction: Vovk, "Cross-conformal predictors", Annals of Mathematics and
    Artificial Intelligence 74, 2015.

    Args:
        folds: The queries to promise for, each fold with the profile that was fitted on the others.
        coverage: The coverage that must be promised; None for `COVERAGE`, or less if it cannot be.
        most: Maximum length of a shortlist.
        seed: Seed of the intervals.

    Raises:
        CalibrationError: If the coverage is given: `too_few_labels` if it takes more queries with a
            match, naming how many; `promise_impossible` if no list of at most `most` can promise
            it, naming the coverage that can be; `promise_broken` if the held-out queries
            contradict it.
    """
    folds = [(queries, without_thresholds(profile)) for queries, profile in folds]
    matched = sum(bool(query.relevant) for queries, _ in folds for query in queries)
    needed = _core.queries_needed(COVERAGE if coverage is None else coverage)
    if coverage is not None and matched < 2 * needed:
        raise CalibrationError(
            "too_few_labels",
            f"a coverage of {coverage:g} needs {counted(2 * needed, 'query')} with a match, to fit "
            f"and to check it, and there are {matched}: give more, or promise less",
        )
    least = _least(folds)
    whole = Promise(most=1, least_shares=[0.0])
    everything = Shortlist(
        least=least, coverage=0.5, most=MOST_CANDIDATES, stage1=[whole], stage2=[whole]
    )
    found = [
        _all_found(queries, profile.replace(shortlist=everything)) for queries, profile in folds
    ]
    pooled = _promises(found, least, most)
    highest = _highest(pooled)
    promised = COVERAGE if coverage is None else coverage
    if coverage is not None and highest < coverage:
        raise CalibrationError(
            "promise_impossible",
            f"at most {counted(most, 'document')} contain a fitting one with a probability of "
            f"{highest:g} at best, not {coverage:g}: promise {highest:g}, or allow a longer "
            "shortlist",
        )
    if not highest:
        note = f"no shortlist was fitted: {counted(matched, 'query')} with a match promise nothing"
        return FittedShortlist(Shortlist(), {}, (note,))
    notes = []
    if highest < promised:
        notes.append(
            f"the coverage of a shortlist of length {most} is {highest:g}, the highest that these "
            f"queries allow, not {promised:g}"
        )
        promised = highest
    decided: dict[Mode, list[RouteResult]] = {mode: [] for mode in MODES}
    for place, (queries, profile) in enumerate(folds):
        others = _promises([*found[:place], *found[place + 1 :]], least, most)
        listing = profile.replace(
            shortlist=others.replace(
                coverage=promised,
                stage1=_extended(others.stage1, most, promised),
                stage2=_extended(others.stage2, most, promised),
            )
        )
        for mode in MODES:
            decided[mode] += decide_all(queries, listing, mode)
    all_queries = [query for queries, _ in folds for query in queries]
    held_out: dict[str, Shortlists] = {
        mode: measure_shortlists(all_queries, results, most=most, seed=seed)
        for mode, results in decided.items()
    }
    broken = [note for mode in MODES if (note := _broken(promised, held_out[mode], mode))]
    if broken and coverage is not None:
        message = f"{broken[0]}. Nothing was written; give more queries, or promise less"
        raise CalibrationError("promise_broken", message)
    if broken:
        return FittedShortlist(Shortlist(), held_out, (f"no shortlist was fitted: {broken[0]}",))
    return FittedShortlist(pooled.replace(coverage=promised), held_out, tuple(notes))


def _least(folds: Sequence[tuple[Sequence[StoredQuery], Profile]]) -> float | None:
    """Return the threshold that leaves few shortlists of queries with a match empty."""
    lowest: list[float] = []
    for queries, profile in folds:
        if profile.any_fits.stage1 is None:
            return None
        matched = [query for query in queries if query.relevant]
        lowest += np.minimum(*(known.any_fits for known in stated(matched, profile))).tolist()
    if not lowest:
        return None
    return math.floor(sorted(lowest)[math.floor(EMPTIED * len(lowest))] * 1e4) / 1e4


def _all_found(queries: Sequence[StoredQuery], listing: Profile) -> list[list[Found | None]]:
    """Return the fitting candidates that each stage found, for the queries with a match."""
    matched = [query for query in queries if query.relevant]
    return [
        [
            _found(query, result)
            for query, result in zip(matched, decide_all(matched, listing, mode), strict=True)
        ]
        for mode in STAGES
    ]


def _promises(
    found: Sequence[list[list[Found | None]]], least: float | None, most: int
) -> Shortlist:
    """Return the promises that the queries of some folds allow."""
    stages = [
        _core.fit_shortlist([one for of_fold in found for one in of_fold[stage]])
        for stage in range(len(STAGES))
    ]
    return Shortlist(least=least, most=most, stage1=stages[0], stage2=stages[1])


def _found(query: StoredQuery, result: RouteResult) -> Found | None:
    """Return rank and share of the best fitting candidate in line, or None if none is."""
    total = sum(hit.relevance or 0.0 for hit in result.hits)
    for rank, hit in enumerate(result.shortlist, start=1):
        if hit.id in query.relevant:
            return rank, (hit.relevance or 0.0) / total if total else 0.0
    return None


def _highest(shortlist: Shortlist) -> float:
    """Return the highest coverage that both stages promise; 0 for none."""
    lengths = (len(_shares(each, shortlist.most)) for each in (shortlist.stage1, shortlist.stage2))
    return min((49 + length) / 100 if length else 0.0 for length in lengths)


def _shares(promises: Sequence[Promise], most: int) -> list[float]:
    """Return the least shares of the promise for a length; none without one."""
    applicable = [promise for promise in promises if promise.most <= most]
    return applicable[-1].least_shares if applicable else []


def _extended(promises: Sequence[Promise], most: int, coverage: float) -> list[Promise]:
    """Return the promise for a length, with full lists for coverages that it cannot reach."""
    shares = _shares(promises, most)
    full = [0.0] * (_percent(coverage) - 49 - len(shares))
    return [Promise(most=most, least_shares=[*shares, *full])]


def _percent(coverage: float) -> int:
    """Return the percentage of the promise for a coverage: the next whole one, at least 50."""
    return max(50, math.ceil(round(100 * coverage, 9)))


def _broken(promised: float, measured: Shortlists, mode: str) -> str:
    """Return how held-out queries contradict a promise; empty if they do not.

    Under the promise, the number of covered queries has a beta-binomial distribution: Vovk,
    "Conditional validity of inductive conformal predictors", 2012, proposition 2a.
    """
    coverage = measured.coverage
    if coverage is None:
        return ""
    count, percent = coverage.count, _percent(promised)
    covered, k = round(coverage.value * count), math.ceil(percent * (count + 1) / 100)
    if _at_most(covered, count, k) >= SIGNIFICANCE:
        return ""
    return (
        f"{covered} of {count} held-out shortlists contain a fitting document in the mode {mode}, "
        f"too few for a coverage of {percent}%"
    )


def _at_most(covered: int, count: int, k: int) -> float:
    """Return the probability under a promise that at most this many queries are covered.

    The distribution is the beta-binomial one for the parameters k and count + 1 - k. Importing
    `scipy.stats`, which has it, takes a second.
    """
    number = np.arange(covered + 1)
    ways = -betaln(number + 1, count - number + 1) - math.log(count + 1)
    each = betaln(number + k, 2 * count + 1 - k - number) - betaln(k, count + 1 - k)
    return float(np.exp(ways + each).sum())
