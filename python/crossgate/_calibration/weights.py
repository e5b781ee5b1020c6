"""Fits the weights of the scores: the blend of stage 1, the combination with stage 2, the pool.

Only queries with a match are used, since the weights only determine an order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from crossgate._core import Blend, Combine, EvidenceWeights, Scored
from crossgate._evaluation.runs.stored_runs import StoredQuery

Array = NDArray[np.float64]

PIVOTS = (4.0, 8.0, 16.0, 32.0)
"""The pivots to choose from: BM25 scores that are mapped to 0.5.

Above 32 the order hardly changes, and leads of long and short queries become less and less
comparable, although the confidence depends on them.
"""
LEAST_SHARE = 0.1
"""The smallest share of a channel in the blend."""
POOL_LOSS = 0.005
"""How much recall@1 the chosen pool may lose against the largest: every pair costs the same."""
POOLS = (4, 6, 8, 10, 12, 16, 20)

_RIDGE = 1e-4


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one query's candidates, as arrays of one number per candidate.

    Attributes:
        cosine: Cosine similarities.
        bm25: Raw BM25 scores.
        rerank_score: Raw scores of the reranker.
        evidence: What the evidence about each candidate adds to its log-odds.
        right: Whether the candidate fits.
        reweighed: The BM25 scores under other weights of the body, by weight; empty if no candidate
            has a body.
    """

    cosine: Array
    bm25: Array
    rerank_score: Array
    evidence: Array
    right: NDArray[np.bool_]
    reweighed: Mapping[float, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, query: StoredQuery, evidence: EvidenceWeights) -> Scores:
        """Take the scores from a stored query, without candidates that stage 2 did not read."""
        read = sorted(
            (candidate for candidate in query.scored if candidate.id in query.pairs),
            key=lambda candidate: candidate.id,
        )
        return cls(
            cosine=np.array([candidate.cosine or 0.0 for candidate in read]),
            bm25=np.array([candidate.bm25 for candidate in read]),
            rerank_score=np.array([query.pairs[candidate.id].score for candidate in read]),
            evidence=np.array([log_odds(candidate, evidence) for candidate in read]),
            right=np.array([candidate.id in query.relevant for candidate in read], dtype=np.bool_),
            reweighed={
                weight: np.array([scores[candidate.id] for candidate in read])
                for weight, scores in query.reweighed.items()
            },
        )

    def blended(self, blend: Blend) -> Array:
        """Return the stage-1 score of each candidate."""
        total = blend.cosine_weight + blend.bm25_weight
        bounded = self._bounded_bm25(blend)
        return (blend.cosine_weight * self.cosine + blend.bm25_weight * bounded) / total

    def features(self, blend: Blend) -> Array:
        """Return the columns of `Combine`: cosine, bounded BM25, rerank score; (candidates, 3)."""
        return np.stack([self.cosine, self._bounded_bm25(blend), self.rerank_score], axis=1)

    def _bounded_bm25(self, blend: Blend) -> Array:
        bm25 = self.reweighed.get(blend.body_weight, self.bm25)
        return bm25 / (bm25 + blend.pivot)


def fit_blend(rows: Sequence[Scores]) -> Blend:
    """Return the blend under which the right candidates are most likely.

    The pivot and the weight of the body are chosen by likelihood too: the pivot from `PIVOTS`, the
    weight from those that all rows with bodies have. With a larger pivot, BM25 counts more for
    queries of many rare words, which often name the document that they need.

    Args:
        rows: The scores of queries, each with at least one candidate that fits.
    """
    weights = [set(row.reweighed) for row in rows if row.reweighed]
    body_weights = set.intersection(*weights) if weights else {Blend().body_weight}
    blends = []
    for body_weight, pivot in product(sorted(body_weights), PIVOTS):
        blend = Blend(pivot=pivot, body_weight=body_weight)
        loss, (cosine, bm25) = fit_likeliest(
            [row.features(blend)[:, :2] for row in rows],
            [row.right for row in rows],
            offset=[row.evidence for row in rows],
        )
        blends.append((loss, pivot, body_weight, cosine, bm25))
    _, pivot, body_weight, cosine, bm25 = min(blends)
    if not cosine + bm25:  # neither separates right from wrong
        return Blend()
    # Data of one kind must not switch off the other channel entirely.
    share = round(min(max(cosine / (cosine + bm25), LEAST_SHARE), 1 - LEAST_SHARE), 2)
    return Blend(
        cosine_weight=share,
        bm25_weight=round(1 - share, 2),
        pivot=pivot,
        body_weight=body_weight,
    )


def fit_combine(rows: Sequence[Scores], blend: Blend) -> Combine.Weighted:
    """Return the weights under which the right candidates are most likely.

    Args:
        rows: The scores of queries, each with at least one candidate that fits.
        blend: How BM25 is bounded.
    """
    _, weights = fit_likeliest(
        [row.features(blend) for row in rows],
        [row.right for row in rows],
        offset=[row.evidence for row in rows],
    )
    cosine, bm25, rerank_score = (rounded(weight) for weight in weights)
    return Combine.Weighted(cosine=cosine, bm25=bm25, rerank_score=rerank_score)


def log_odds(candidate: Scored, weights: EvidenceWeights) -> float:
    """Return what the evidence about a candidate adds to its log-odds."""
    pieces = candidate.evidence.to_dict()
    return math.fsum(getattr(weights, name) * value for name, value in pieces.items())


def fit_likeliest(
    features: Sequence[Array],
    right: Sequence[Array | NDArray[np.bool_]],
    *,
    offset: Sequence[Array],
    free: int = 0,
) -> tuple[float, tuple[float, ...]]:
    """Return the smallest loss, and the weights of the features that give it.

    The loss is the softmax cross-entropy over each query's candidates, ListNet's top-one
    probability: Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", 2007.

    Args:
        features: One matrix per query, of shape (candidates, features).
        right: Whether each candidate of each query fits; at least one of each query does.
        offset: Added to the score of each candidate of each query, with a weight of 1.
        free: How many weights, the last ones, can be negative.
    """
    width = features[0].shape[1]
    shape = len(right), max(len(row) for row in right)
    values, target = np.zeros((*shape, width)), np.zeros(shape)
    present, given = np.zeros(shape, dtype=np.bool_), np.zeros(shape)
    for position, (row, matrix) in enumerate(zip(right, features, strict=True)):
        size = len(row)
        values[position, :size] = matrix
        target[position, :size] = row / row.sum()
        present[position, :size], given[position, :size] = True, offset[position]
    # The ridge must treat all features alike, whatever their units. A feature with numbers too
    # large to square has an infinite spread and no influence.
    with np.errstate(over="ignore"):
        spread = np.std(values[present], axis=0)
    spread[spread == 0] = 1.0
    values /= spread

    def loss(weights: Array) -> tuple[float, Array]:
        scores = values @ weights + given
        largest = np.max(scores, axis=1, where=present, initial=-np.inf, keepdims=True)
        likely = np.where(present, np.exp(np.where(present, scores - largest, 0.0)), 0.0)
        total = likely.sum(axis=1, keepdims=True)
        value = np.mean(largest + np.log(total)) - (scores * target).sum() / len(right)
        slope = np.einsum("qc,qcf->f", likely / total - target, values) / len(right)
        # Without the ridge, a feature that separates everything would get an infinite weight.
        return float(value + _RIDGE * weights @ weights), slope + 2 * _RIDGE * weights

    # A higher score must never count against a candidate, whatever the noise in the data.
    bounds = [*([(0, None)] * (width - free)), *([(None, None)] * free)]
    fitted = minimize(loss, np.ones(width), jac=True, bounds=bounds)
    return float(fitted.fun), tuple((fitted.x / spread).tolist())


def fit_pool(rows: Sequence[Scores], blend: Blend, combine: Combine.Weighted) -> int:
    """Return the smallest pool whose recall@1 is within `POOL_LOSS` of that of the largest."""
    weights = np.array([combine.cosine, combine.bm25, combine.rerank_score])

    def recall(size: int) -> float:
        kept = []
        for row in rows:
            scores = row.features(blend) @ weights + row.evidence
            scores[np.argsort(-row.blended(blend), kind="stable")[size:]] = -np.inf
            kept.append(scores)
        return _first_right(rows, kept)

    enough = recall(POOLS[-1]) - POOL_LOSS
    return next(size for size in POOLS if recall(size) >= enough)


def rounded(value: float) -> float:
    """Return a fitted number with five significant digits, enough for a reader of the profile."""
    return float(f"{value:.5g}")


def _first_right(rows: Sequence[Scores], scores: Sequence[Array]) -> float:
    return float(
        np.mean(
            [row.right[np.argmax(row_scores)] for row, row_scores in zip(rows, scores, strict=True)]
        )
    )
