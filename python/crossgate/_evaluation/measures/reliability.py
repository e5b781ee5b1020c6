"""How well calibrated the stated probabilities are: stated against observed shares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crossgate._evaluation.runs.stored_runs import StoredQuery
from crossgate._values.results import RouteResult

BINS = 10
RANKS = 5
"""The ranks whose relevance is compared; nearly all others are close to 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """The probabilities in one tenth of [0, 1].

    Attributes:
        count: How many there are.
        stated: Their mean.
        observed: Share of the cases that came true.
    """

    count: int
    stated: float
    observed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How well calibrated one probability is.

    Attributes:
        rank: The rank of the hits whose relevance it is, from 1; 0 for the probability that any hit
            fits.
        bins: The tenths that hold a query, in ascending order.
    """

    rank: int
    bins: tuple[ReliabilityBin, ...]

    @property
    def count(self) -> int:
        """The number of queries."""
        return sum(tenth.count for tenth in self.bins)

    @property
    def stated(self) -> float:
        """The mean of the probabilities."""
        return sum(tenth.count * tenth.stated for tenth in self.bins) / self.count

    @property
    def observed(self) -> float:
        """The share of the cases that came true."""
        return sum(tenth.count * tenth.observed for tenth in self.bins) / self.count

    @property
    def error(self) -> float:
        """The expected calibration error, in [0, 1].

        The mean distance of stated and observed share, weighted by count: Naeini, Cooper and
        Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", 2015.
        """
        distances = (tenth.count * abs(tenth.stated - tenth.observed) for tenth in self.bins)
        return sum(distances) / self.count


def reliability(
    queries: Sequence[StoredQuery], results: Sequence[RouteResult]
) -> tuple[Reliability, ...]:
    """Return the reliability of `any_fits` and of the relevance at each of the first ranks.

    A probability that no query has is left out.
    """
    pairs = list(zip(queries, results, strict=True))
    found = [
        (
            0,
            [
                (result.any_fits, any(hit.id in query.relevant for hit in result.hits))
                for query, result in pairs
                if result.any_fits is not None
            ],
        )
    ]
    for rank in range(1, RANKS + 1):
        ranked = [
            (hit.relevance, hit.id in query.relevant)
            for query, result in pairs
            for hit in result.hits[rank - 1 : rank]
            if hit.relevance is not None
        ]
        found.append((rank, ranked))
    return tuple(Reliability(rank=rank, bins=_bins(cases)) for rank, cases in found if cases)


def _bins(cases: Iterable[tuple[float, bool]]) -> tuple[ReliabilityBin, ...]:
    tenths: dict[int, list[tuple[float, bool]]] = {}
    for stated, came_true in cases:
        tenths.setdefault(min(int(stated * BINS), BINS - 1), []).append((stated, came_true))
    return tuple(
        ReliabilityBin(
            count=len(tenth),
            stated=sum(stated for stated, _ in tenth) / len(tenth),
            observed=sum(came_true for _, came_true in tenth) / len(tenth),
        )
        for _, tenth in sorted(tenths.items())
    )
