"""The outcome of each query under a fitted ranking, before any threshold is set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import crossgate._core as _core
from crossgate._core import Profile
from crossgate._evaluation.runs.runs import StoredQuery

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

STAGE1_SIGNALS = ("cosine", "bm25", "margin", "agreement")
STAGE2_SIGNALS = (*STAGE1_SIGNALS, "rerank_score", "score_margin", "same_first")


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One number per query and column, in the order of the queries.

    Attributes:
        signals: The signals of `STAGE2_SIGNALS` as the confidence models weigh them, of shape
            (queries, 7).
        stage1_right: Whether stage 1's first candidate fits.
        stage2_right: Whether stage 2's first candidate fits.
        matched: Whether any document fits.
        need: The probability that the query needs a document; 1 if it was not computed.
        chance: The share of the pool that fits: the probability that a random pick is right.
        stage1_lead: The lead of stage 1's first candidate over its second, in blend.
        stage1_second: Whether that second candidate fits.
        stage2_lead: The lead of stage 2's first candidate over its second, in combined score.
        stage2_second: Whether that second candidate fits.
    """

    signals: Array
    stage1_right: Flags
    stage2_right: Flags
    matched: Flags
    need: Array
    chance: Array
    stage1_lead: Array
    stage1_second: Flags
    stage2_lead: Array
    stage2_second: Flags

    def __len__(self) -> int:
        return len(self.matched)

    def column(self, name: str) -> Array:
        """Return one signal of every query."""
        return self.signals[:, STAGE2_SIGNALS.index(name)]


def outcomes(queries: Sequence[StoredQuery], ranking: Profile) -> Outcomes:
    """Rank the candidates of each query by a profile's weights, with the router's functions.

    Args:
        queries: Queries with at least one candidate and with the logits of the whole pool.
        ranking: A profile; only its blend, pool and combination are used.
    """
    rows = [_outcome(query, ranking) for query in queries]
    return Outcomes(
        signals=np.array([row.signals for row in rows]),
        stage1_right=np.array([row.stage1_right for row in rows]),
        stage2_right=np.array([row.stage2_right for row in rows]),
        matched=np.array([bool(query.relevant) for query in queries]),
        need=np.array([1.0 if query.need is None else query.need for query in queries]),
        chance=np.array([row.chance for row in rows]),
        stage1_lead=np.array([row.stage1_lead for row in rows]),
        stage1_second=np.array([row.stage1_second for row in rows]),
        stage2_lead=np.array([row.stage2_lead for row in rows]),
        stage2_second=np.array([row.stage2_second for row in rows]),
    )


class _Outcome(NamedTuple):
    """One row of `Outcomes`."""

    signals: list[float]
    stage1_right: bool
    stage2_right: bool
    chance: float
    stage1_lead: float
    stage1_second: bool
    stage2_lead: float
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
        signals=[
            0.0 if signals.cosine is None else signals.cosine,
            math.log1p(signals.bm25),
            signals.margin,
            float(signals.agreement),
            reading.rerank_score,
            reading.score_margin,
            float(reading.same_first),
        ],
        stage1_right=query.scored[0].id in query.relevant,
        stage2_right=first in query.relevant,
        chance=sum(scores.id in query.relevant for scores in pool) / len(pool),
        stage1_lead=signals.margin,
        stage1_second=runner_up in query.relevant,
        stage2_lead=reading.score_margin,
        stage2_second=second in query.relevant,
    )
