"""The outcome of each query under a fitted ranking, before any threshold is set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import crossgate._core as _core
from crossgate._core import Profile
from crossgate._evaluation.runs.modes import STAGES, decide_all, without_thresholds
from crossgate._evaluation.runs.stored_runs import StoredQuery

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One value per query, in the order of the queries.

    Attributes:
        agreement: Whether cosine, BM25 and blend agree on the first candidate.
        stage1_right: Whether stage 1's first candidate fits.
        stage2_right: Whether stage 2's first candidate fits.
        matched: Whether any document fits.
        chance: The share of the pool that fits: the probability that a random pick is right.
        stage1_margin: The margin of stage 1's first candidate over its second, in blend.
        stage1_second: Whether that second candidate fits.
        stage2_margin: The margin of stage 2's first candidate over its second, in combined score.
        stage2_second: Whether that second candidate fits.
    """

    agreement: Flags
    stage1_right: Flags
    stage2_right: Flags
    matched: Flags
    chance: Array
    stage1_margin: Array
    stage1_second: Flags
    stage2_margin: Array
    stage2_second: Flags

    def __len__(self) -> int:
        return len(self.matched)


def outcomes(queries: Sequence[StoredQuery], ranking: Profile) -> Outcomes:
    """Rank the candidates of each query by a profile's weights, with the router's functions.

    Args:
        queries: Queries with at least one candidate and with the logits of the whole pool.
        ranking: A profile; only its blend, pool, combination and evidence are used.
    """
    rows = [_outcome(query, ranking) for query in queries]
    return Outcomes(*(np.array(column) for column in zip(*rows, strict=True)))


class _Outcome(NamedTuple):
    """One row of `Outcomes`, with its columns in their order."""

    agreement: bool
    stage1_right: bool
    stage2_right: bool
    matched: bool
    chance: float
    stage1_margin: float
    stage1_second: bool
    stage2_margin: float
    stage2_second: bool


def _outcome(query: StoredQuery, ranking: Profile) -> _Outcome:
    signals = _core.signals(query.scored)
    pool = query.scored[: ranking.pool]
    _, ranks, reading = _core.combine(
        pool, [query.pairs[scores.id].score for scores in pool], ranking
    )
    if signals is None or reading is None:
        raise ValueError(f"query {query.id!r} has no candidates")
    ordered = sorted(zip(ranks, pool, strict=True), key=lambda ranked: ranked[0])
    first, second = ordered[0][1].id, ordered[1][1].id if len(ordered) > 1 else ""
    runner_up = query.scored[1].id if len(query.scored) > 1 else ""
    return _Outcome(
        agreement=signals.agreement,
        stage1_right=query.scored[0].id in query.relevant,
        stage2_right=first in query.relevant,
        matched=bool(query.relevant),
        chance=sum(scores.id in query.relevant for scores in pool) / len(pool),
        stage1_margin=signals.margin,
        stage1_second=runner_up in query.relevant,
        stage2_margin=reading.score_margin,
        stage2_second=second in query.relevant,
    )


@dataclass(frozen=True, slots=True)
class Stated:
    """The probabilities that a profile states for each query, after one stage.

    Attributes:
        any_fits: That any candidate fits; 1 if the profile has no model of it.
        confidence: That the first candidate fits.
    """

    any_fits: Array
    confidence: Array


def stated(queries: Sequence[StoredQuery], profile: Profile) -> tuple[Stated, Stated]:
    """Return the probabilities after stage 1 and after stage 2, as the router computes them."""
    shown = without_thresholds(profile)
    return tuple(  # type: ignore[return-value]
        Stated(
            any_fits=np.array([_known(result.any_fits) for result in results]),
            confidence=np.array([_known(result.confidence) for result in results]),
        )
        for results in (decide_all(queries, shown, mode) for mode in STAGES)
    )


def _known(probability: float | None) -> float:
    return 1.0 if probability is None else probability
