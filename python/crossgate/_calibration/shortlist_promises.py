"""Fits what a shortlist promises, and checks the promise on held-out queries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

import crossgate._core as _core
from crossgate._calibration.fits import fit_any_fits, fit_relevance, stated
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
        held_out: The figures by mode: each half of the queries with weights and promises that were
            fitted on the other half. Empty without a promise.
        notes: Remarks for the reader.
    """

    shortlist: Shortlist
    held_out: Mapping[str, Shortlists]
    notes: tuple[str, ...]


def fit_shortlist(
    halves: tuple[Sequence[StoredQuery], Sequence[StoredQuery]],
    profile: Profile,
    *,
    coverage: float | None,
    most: int,
    seed: int,
) -> FittedShortlist:
    """Fit the promises of a profile on both halves of the queries, and check them on both.

    The promises rest on all queries: each half is read by weights that were fitted on the other
    half. Cross-conformal prediction: Vovk, "Cross-conformal predictors", Annals of Mathematics and
    Artificial Intelligence 74, 2015.

    Args:
        halves: The queries to promise for, those that the profile was fitted on first.
        profile: The profile, with its weights and models.
        coverage: The coverage that must be promised; None for `COVERAGE`, or less if it cannot be.
        most: Maximum length of a shortlist.
        seed: Seed of the intervals.

    Raises:
        CalibrationError: If the coverage is given: `too_few_labels` if it takes more queries with a
            match, naming how many; `promise_impossible` if no list of at most `most` can promise
            it, naming the coverage that can be; `promise_broken` if the held-out queries
            contradict it.
    """
    matched = sum(bool(query.relevant) for half in halves for query in half)
    needed = _core.queries_needed(COVERAGE if coverage is None else coverage)
    if coverage is not None and matched < 2 * needed:
        raise CalibrationError(
            "too_few_labels",
            f"a coverage of {coverage:g} needs {counted(2 * needed, 'query')} with a match, half "
            f"of them to fit on and half to check, and there are {matched}: give more, or promise "
            "less",
        )
    if not all(any(map(_is_found, half)) for half in halves):
        problem = "in a half of the queries, no fitting document is found"
        if coverage is not None:
            raise CalibrationError(
                "promise_impossible",
                f"{problem}, so no coverage can be promised. Do the labels belong to these "
                "queries?",
            )
        return FittedShortlist(Shortlist(), {}, (f"no shortlist was fitted: {problem}",))
    first, second = halves
    of_first, of_second = _weighed(first, profile), _weighed(second, profile)
    least = _least([*first, *second], profile)
    pooled = _promises(((first, of_second), (second, of_first)), least, most)
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
    shortlist = pooled.replace(coverage=promised)
    apart = [
        _decided(
            queries, used.replace(shortlist=_promises(((others, used),), least, most)), promised
        )
        for queries, others, used in ((second, first, of_first), (first, second, of_second))
    ]
    held_out: dict[str, Shortlists] = {
        mode: measure_shortlists(
            [*second, *first], [*apart[0][mode], *apart[1][mode]], most=most, seed=seed
        )
        for mode in MODES
    }
    broken = [note for mode in MODES if (note := _broken(promised, held_out[mode], mode))]
    if broken and coverage is not None:
        message = f"{broken[0]}. Nothing was written; give more queries, or promise less"
        raise CalibrationError("promise_broken", message)
    if broken:
        return FittedShortlist(Shortlist(), held_out, (f"no shortlist was fitted: {broken[0]}",))
    return FittedShortlist(shortlist, held_out, tuple(notes))


def _weighed(queries: Sequence[StoredQuery], profile: Profile) -> Profile:
    """Return a profile with the weights and models of these queries."""
    weighed = without_thresholds(profile).replace(relevance=fit_relevance(queries, profile))
    return weighed.replace(any_fits=fit_any_fits(queries, weighed))


def _is_found(query: StoredQuery) -> bool:
    return any(scored.id in query.relevant for scored in query.scored)


def _least(queries: Sequence[StoredQuery], profile: Profile) -> float | None:
    """Return the threshold that leaves few shortlists of queries with a match empty."""
    if profile.any_fits.stage1 is None:
        return None
    matched = [query for query in queries if query.relevant]
    lowest = np.minimum(*(known.any_fits for known in stated(matched, profile)))
    least = float(np.sort(lowest)[math.floor(EMPTIED * len(lowest))])
    return math.floor(least * 1e4) / 1e4


def _promises(
    read: Sequence[tuple[Sequence[StoredQuery], Profile]], least: float | None, most: int
) -> Shortlist:
    """Return the promises that queries allow, each read by a profile's weights."""
    everything = [
        (
            [query for query in queries if query.relevant],
            profile.replace(shortlist=_everything(least)),
        )
        for queries, profile in read
    ]
    stages = [
        _core.fit_shortlist(
            [
                _found(query, result)
                for matched, listing in everything
                for query, result in zip(matched, decide_all(matched, listing, mode), strict=True)
            ]
        )
        for mode in STAGES
    ]
    return Shortlist(least=least, most=most, stage1=stages[0], stage2=stages[1])


def _everything(least: float | None) -> Shortlist:
    """Return a shortlist of all candidates."""
    whole = Promise(most=1, least_shares=[0.0])
    return Shortlist(
        least=least, coverage=0.5, most=MOST_CANDIDATES, stage1=[whole], stage2=[whole]
    )


def _found(query: StoredQuery, result: RouteResult) -> Found | None:
    """Return rank and share of the best fitting candidate in line, or None if none is."""
    total = sum(hit.relevance or 0.0 for hit in result.hits)
    for rank, hit in enumerate(result.shortlist, start=1):
        if hit.id in query.relevant:
            return rank, (hit.relevance or 0.0) / total if total else 0.0
    return None


def _highest(shortlist: Shortlist) -> float:
    """Return the highest coverage that both stages promise; 0 for none."""
    highest = []
    for promises in (shortlist.stage1, shortlist.stage2):
        applicable = [promise for promise in promises if promise.most <= shortlist.most]
        highest.append((49 + len(applicable[-1].least_shares)) / 100 if applicable else 0.0)
    return min(highest)


def _decided(
    queries: Sequence[StoredQuery], profile: Profile, coverage: float
) -> dict[Mode, list[RouteResult]]:
    shortlist = profile.shortlist
    used = profile.replace(
        shortlist=shortlist.replace(
            coverage=coverage,
            stage1=_extended(shortlist.stage1, shortlist.most, coverage),
            stage2=_extended(shortlist.stage2, shortlist.most, coverage),
        )
    )
    return {mode: decide_all(queries, used, mode) for mode in MODES}


def _extended(promises: Sequence[Promise], most: int, coverage: float) -> list[Promise]:
    """Return the promise for a length, with full lists for coverages that it cannot reach."""
    applicable = [promise for promise in promises if promise.most <= most]
    shares = applicable[-1].least_shares if applicable else []
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
