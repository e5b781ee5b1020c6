"""Fitting how scores are weighed: the blend of stage 1, the combination with stage 2, the pool.

Only queries that something fits take part: what the weights decide is an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from crossgate.evaluation.runs import StoredQuery
from crossgate.profile import Blend, Combine

Array = NDArray[np.float64]

BLEND_LOSS = 0.01
"""Recall@1 that the chosen blend may lose for more weight of the cosine; see `fit_blend`."""
POOL_LOSS = 0.002
"""Recall@1 that the chosen pool may lose against the largest."""
POOLS = (4, 6, 8, 10, 12, 16, 20)

_RIDGE = 1e-4


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one query's candidates, as arrays of one number per candidate.

    Attributes:
        cosine: Cosine similarities.
        bm25: Raw BM25 scores.
        logit: Logits of the cross-encoder.
        right: Whether the candidate fits.
    """

    cosine: Array
    bm25: Array
    logit: Array
    right: NDArray[np.bool_]

    @classmethod
    def of(cls, query: StoredQuery) -> Scores:
        """Take the scores from a stored query; candidates that stage 2 never read are left out."""
        read = sorted(
            (one for one in query.scored if one.id in query.pairs), key=lambda one: one.id
        )
        return cls(
            cosine=np.array([one.cosine or 0.0 for one in read]),
            bm25=np.array([one.bm25 for one in read]),
            logit=np.array([query.pairs[one.id].logit for one in read]),
            right=np.array([one.id in query.relevant for one in read], dtype=np.bool_),
        )

    def blended(self, blend: Blend) -> Array:
        """Return the stage-1 score of each candidate."""
        total = blend.cosine_weight + blend.bm25_weight
        bounded = self.bm25 / (self.bm25 + blend.bm25_half)
        return (blend.cosine_weight * self.cosine + blend.bm25_weight * bounded) / total

    def features(self, blend: Blend) -> Array:
        """Return cosine, bounded BM25 and logit, of shape (candidates, 3), as `Combine` weighs."""
        bounded = self.bm25 / (self.bm25 + blend.bm25_half)
        return np.stack([self.cosine, bounded, self.logit], axis=1)


def fit_blend(rows: Sequence[Scores], corpora: Sequence[str]) -> Blend:
    """Return the blend that serves every corpus nearly as well as its own best one would.

    What counts is the recall@1 that the worst served corpus loses against its own best blend. Of
    blends within a point of the least such loss it is the one with the largest cosine weight: words
    carry long prompts further than short requests, on which the cosine does better, and where the
    data hardly cares, the weight goes to where other queries want it.

    Args:
        rows: The scores of queries that something fits.
        corpora: The corpus of each.
    """
    choices = [
        Blend(cosine_weight=weight / 20, bm25_weight=1 - weight / 20, bm25_half=half)
        for weight, half in product(range(4, 18), (4.0, 6.0, 8.0, 12.0, 16.0))
    ]
    members = [
        [row for row, one in zip(rows, corpora, strict=True) if one == corpus]
        for corpus in sorted(set(corpora))
    ]
    recalls = np.array(
        [
            [_first_right(part, [row.blended(blend) for row in part]) for part in members]
            for blend in choices
        ]
    )
    losses = (recalls.max(axis=0) - recalls).max(axis=1)
    good = [
        (blend.cosine_weight, -loss, -blend.bm25_half, blend)
        for blend, loss in zip(choices, losses.tolist(), strict=True)
        if loss <= losses.min() + BLEND_LOSS
    ]
    return max(good, key=lambda one: one[:3])[3]


def fit_combine(rows: Sequence[Scores], blend: Blend) -> Combine:
    """Return the weights under which the right candidates are the most likely ones of their lists.

    The loss is the softmax cross-entropy over each query's candidates, ListNet's top-one
    probability: Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", 2007.
    """
    lists = [row for row in rows if row.right.any()]
    shape = len(lists), max(len(row.right) for row in lists)
    features, target = np.zeros((*shape, 3)), np.zeros(shape)
    present = np.zeros(shape, dtype=np.bool_)
    for place, row in enumerate(lists):
        size = len(row.right)
        features[place, :size] = row.features(blend)
        target[place, :size] = row.right / row.right.sum()
        present[place, :size] = True

    def loss(weights: Array) -> tuple[float, Array]:
        scores = features @ weights
        largest = np.max(scores, axis=1, where=present, initial=-np.inf, keepdims=True)
        likely = np.where(present, np.exp(np.where(present, scores - largest, 0.0)), 0.0)
        total = likely.sum(axis=1, keepdims=True)
        value = np.mean(largest + np.log(total)) - (scores * target).sum() / len(lists)
        slope = np.einsum("qc,qcf->f", likely / total - target, features) / len(lists)
        # Without the ridge a feature that separates everything would get an endless weight.
        return float(value + _RIDGE * weights @ weights), slope + 2 * _RIDGE * weights

    # More of a score never counts against a candidate, whatever chance did to the data.
    fitted = minimize(loss, np.ones(3), jac=True, bounds=[(0, None)] * 3).x
    cosine, bm25, logit = (rounded(float(one)) for one in fitted)
    return Combine(mode="weighted", cosine=cosine, bm25=bm25, logit=logit)


def fit_pool(rows: Sequence[Scores], blend: Blend, combine: Combine) -> int:
    """Return the size of the smallest pool that loses next to nothing against the largest."""
    weights = np.array([combine.cosine, combine.bm25, combine.logit])

    def recall(size: int) -> float:
        kept = []
        for row in rows:
            scores = row.features(blend) @ weights
            scores[np.argsort(-row.blended(blend), kind="stable")[size:]] = -np.inf
            kept.append(scores)
        return _first_right(rows, kept)

    enough = recall(POOLS[-1]) - POOL_LOSS
    return next(size for size in POOLS if recall(size) >= enough)


def rounded(value: float) -> float:
    """Return a fitted number with as many digits as a reader of the profile wants to see."""
    return float(f"{value:.5g}")


def _first_right(rows: Sequence[Scores], scores: Sequence[Array]) -> float:
    return float(
        np.mean([row.right[np.argmax(one)] for row, one in zip(rows, scores, strict=True)])
    )
