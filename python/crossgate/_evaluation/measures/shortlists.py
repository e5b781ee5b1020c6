"""What shortlists hold: how often a fitting document, how many hits, and how much text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crossgate._core import Profile
from crossgate._evaluation.measures.statistics import Interval, mean, means
from crossgate._evaluation.runs.stored_runs import StoredQuery
from crossgate._values.results import RouteResult

CURVE = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
"""The promised coverages of a curve, besides that of the profile."""
CHARACTERS_PER_TOKEN = 4
"""English text has about four characters per token of a large model's tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortlists:
    """Figures of the shortlists of one mode.

    Attributes:
        promised: The coverage that the profile promises; None without a promise.
        coverage: Share of the queries with a match whose shortlist contains a fitting document.
        coverage_all: Share of the queries with a match whose shortlist contains all of them.
        size: Mean length for queries with a match.
        size_no_match: Mean length for no-match queries.
        lengths: Number of queries with a match by length.
        empty: Share of the queries with a match whose shortlist is empty.
        shown: Share of the no-match queries whose shortlist is not empty.
        full: Share of the no-match queries whose shortlist has the maximum length.
        characters: Mean number of characters of the listed documents' texts, over all queries; None
            if the run does not hold their lengths.
    """

    promised: float | None
    coverage: Interval | None
    coverage_all: Interval | None
    size: Interval | None
    size_no_match: Interval | None
    lengths: Mapping[int, int]
    empty: Interval | None
    shown: Interval | None
    full: Interval | None
    characters: float | None

    @property
    def single(self) -> float | None:
        """Share of the queries with a match whose shortlist has one document."""
        total = sum(self.lengths.values())
        return self.lengths.get(1, 0) / total if total else None

    @property
    def tokens(self) -> float | None:
        """Estimated tokens of the listed documents' texts."""
        return None if self.characters is None else self.characters / CHARACTERS_PER_TOKEN


def measure_shortlists(
    queries: Sequence[StoredQuery], results: Sequence[RouteResult], *, most: int, seed: int
) -> Shortlists:
    """Return the figures of the shortlists of results, one per query."""
    matched = np.array([bool(query.relevant) for query in queries])
    sizes = np.array([float(len(result.shortlist)) for result in results])
    listed = [{hit.id for hit in result.shortlist} for result in results]
    any_listed = np.array(
        [bool(ids & set(query.relevant)) for ids, query in zip(listed, queries, strict=True)]
    )
    all_listed = np.array(
        [ids >= set(query.relevant) for ids, query in zip(listed, queries, strict=True)]
    )
    promised = {result.coverage for result in results} - {None}
    known = [
        float(sum(query.lengths[id] for id in ids))
        for ids, query in zip(listed, queries, strict=True)
        if ids <= query.lengths.keys()
    ]

    # Columns of one table share the resampled queries, which take longer to draw than to count.
    coverage, coverage_all, empty = means(
        np.column_stack([any_listed, all_listed, sizes == 0])[matched], seed=seed, shares=True
    )
    shown, full = means(
        np.column_stack([sizes > 0, sizes >= most])[~matched], seed=seed, shares=True
    )
    return Shortlists(
        promised=max(filter(None, promised), default=None),
        coverage=coverage,
        coverage_all=coverage_all,
        size=mean(sizes[matched], seed=seed) if matched.any() else None,
        size_no_match=mean(sizes[~matched], seed=seed) if not matched.all() else None,
        lengths=dict(sorted(Counter(map(int, sizes[matched])).items())),
        empty=empty,
        shown=shown,
        full=full,
        characters=float(np.mean(known)) if len(known) == len(queries) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveragePoint:
    """One point of the curve of coverage against size.

    Attributes:
        promised: The coverage that was asked for.
        size: Mean length of the shortlists of queries with a match.
        coverage: Share of them that contain a fitting document.
        shipped: Whether it is the profile's own coverage.
    """

    promised: float
    size: float
    coverage: float
    shipped: bool


def coverage_curve(
    queries: Sequence[StoredQuery],
    profile: Profile,
    decide_all: Callable[[Sequence[StoredQuery], Profile], Sequence[RouteResult]],
) -> tuple[CoveragePoint, ...]:
    """Return coverage against size, as the promised coverage varies.

    Args:
        queries: The stored queries.
        profile: The profile.
        decide_all: Decides queries by a profile.

    Returns:
        Points from the lowest coverage to the highest; none without a promise, or without a query
        that has a match.
    """
    fitted = profile.shortlist
    matched = [query for query in queries if query.relevant]
    if not fitted.stage1 or not matched:
        return ()
    points = []
    for promised in sorted({*CURVE, fitted.coverage}):
        used = profile.replace(shortlist=fitted.replace(coverage=promised))
        results = decide_all(matched, used)
        listed = [
            any(hit.id in query.relevant for hit in result.shortlist)
            for query, result in zip(matched, results, strict=True)
        ]
        points.append(
            CoveragePoint(
                promised=promised,
                size=sum(len(result.shortlist) for result in results) / len(results),
                coverage=sum(listed) / len(listed),
                shipped=promised == fitted.coverage,
            )
        )
    return tuple(points)
