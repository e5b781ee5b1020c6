"""How certain a figure is: bootstrap intervals, the noise floor, and the AUC of a signal.

Queries are resampled with a seed, so that the same runs give the same intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95
ROUNDS = 1000
_AREA_ROUNDS = 200  # an area takes longer than a mean
_CHUNK = 4_000_000  # resampling weights in memory at once; 32 MB

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the interval that contains 95 % of its bootstrap replicates.

    Attributes:
        value: The estimate.
        low: The lower end.
        high: The upper end.
        count: How many queries it rests on.
    """

    value: float
    low: float
    high: float
    count: int


def means(
    values: ArrayLike, *, seed: int, rounds: int = ROUNDS, shares: bool = False
) -> list[Interval | None]:
    """Return the mean of each column with its percentile bootstrap interval.

    Rows are queries, and all columns share the resampled queries. So a column of differences gives
    the interval of a paired difference. Percentile method: Efron and Tibshirani, "An Introduction
    to the Bootstrap", 1993, section 13.3.

    Args:
        values: Of shape (queries, columns); NaN where a query does not count for a column.
        seed: Of the resampling.
        rounds: Number of replicates.
        shares: Whether all values are in [0, 1]. If they are all 0 or all 1, resampling sees no
            spread and would claim certainty; then the far end is Clopper and Pearson's exact one,
            1 - 0.025^(1/n) away (1934).

    Returns:
        One interval per column; None for a column without a number.
    """
    table = np.asarray(values, dtype=np.float64)
    if not len(table):
        return [None] * table.shape[1]
    replicates = _replicates(table, seed=seed, rounds=rounds)
    intervals: list[Interval | None] = []
    for column in range(table.shape[1]):
        present = table[~np.isnan(table[:, column]), column]
        if not len(present):
            intervals.append(None)
            continue
        low, high = _ends(replicates[:, column])
        if shares and present.min() == present.max() and present[0] in (0.0, 1.0):
            unseen = 1 - ((1 - CONFIDENCE) / 2) ** (1 / len(present))
            low, high = max(0.0, low - unseen), min(1.0, high + unseen)
        intervals.append(Interval(float(present.mean()), low, high, len(present)))
    return intervals


def mean(
    values: ArrayLike, *, seed: int, rounds: int = ROUNDS, shares: bool = False
) -> Interval | None:
    """Return the mean of one column, as `means` does."""
    column = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    return means(column, seed=seed, rounds=rounds, shares=shares)[0]


def noise_floor(values: ArrayLike, *, seed: int) -> float | None:
    """Return the most that two samples from the same system differ by in 95 of 100 cases.

    An A/A comparison: both samples have as many queries as there are values, and are drawn from
    them independently. A smaller difference between two sets of queries is noise.
    """
    column = np.asarray(values, dtype=np.float64).reshape(-1, 1)
    if np.isnan(column).all():
        return None
    first = _replicates(column, seed=seed, rounds=ROUNDS)[:, 0]
    second = _replicates(column, seed=seed + 1, rounds=ROUNDS)[:, 0]
    return float(np.nanquantile(np.abs(first - second), CONFIDENCE))


def area_under_curve(scores: ArrayLike, positive: ArrayLike) -> float | None:
    """Return the area under the ROC curve in [0, 1]; 0.5 is chance.

    It is the probability that a positive scores above a negative, ties counting half: the
    Mann-Whitney statistic; Hanley and McNeil, "The meaning and use of the area under a receiver
    operating characteristic curve", 1982.

    Returns:
        The area, or None if either class is empty.
    """
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=np.bool_)
    positives, negatives = int(labels.sum()), int((~labels).sum())
    if not positives or not negatives:
        return None
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    # The mean of the ranks, from 1, that a group of equal scores takes.
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[group]
    above = ranks[labels].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def area_interval(scores: ArrayLike, positive: ArrayLike, *, seed: int) -> Interval | None:
    """Return `area_under_curve` with its bootstrap interval, or None if a class is empty."""
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=np.bool_)
    area = area_under_curve(values, labels)
    if area is None:
        return None
    generator = np.random.default_rng(seed)
    draws = (generator.integers(0, len(values), len(values)) for _ in range(_AREA_ROUNDS))
    areas = [area_under_curve(values[draw], labels[draw]) for draw in draws]
    low, high = _ends(np.array([drawn for drawn in areas if drawn is not None] or [area]))
    return Interval(area, low, high, len(values))


def _replicates(table: Array, *, seed: int, rounds: int) -> Array:
    """Return the column means of resampled rows, of shape (rounds, columns)."""
    count = len(table)
    present = ~np.isnan(table)
    filled = np.where(present, table, 0.0)
    generator = np.random.default_rng(seed)
    blocks = []
    step = max(1, _CHUNK // max(1, count))
    for start in range(0, rounds, step):
        # How often each row is drawn; one product then serves all columns.
        size = min(step, rounds - start)
        weights = generator.multinomial(count, np.full(count, 1 / count), size=size).astype(float)
        totals = weights @ present
        blocks.append(
            np.divide(weights @ filled, totals, out=np.full(totals.shape, np.nan), where=totals > 0)
        )
    return np.concatenate(blocks)


def _ends(replicates: Array) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(replicates, [tail, 1 - tail])
    return float(low), float(high)
