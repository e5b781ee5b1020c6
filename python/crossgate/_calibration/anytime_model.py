"""Fits the model by which stage 2 stops reading: rerank scores predicted from stage-1 scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossgate._calibration.weights import Scores
from crossgate._core import Anytime

STOP = 0.02
"""Reading stops below this probability that an unread candidate becomes the first pick."""

LEAST_PAIRS = 100
"""Fewest pairs for a fit."""


def fit_anytime(rows: Sequence[Scores]) -> Anytime | None:
    """Fit a linear model of rerank scores, or return None for fewer than 100 pairs.

    The weights are those of least squares. The share of the residuals' variance that belongs to a
    query is the mean product of two residuals of one query, divided by the variance.

    Args:
        rows: The scores of queries, with or without a match.
    """
    rows = [row for row in rows if len(row.rerank_score)]
    if sum(len(row.rerank_score) for row in rows) < LEAST_PAIRS:
        return None
    features = [
        np.stack([np.ones_like(row.cosine), row.cosine, np.log1p(row.bm25)], axis=1) for row in rows
    ]
    scores = np.concatenate([row.rerank_score for row in rows])
    weights, *_ = np.linalg.lstsq(np.concatenate(features), scores, rcond=None)
    residuals = [row.rerank_score - x @ weights for row, x in zip(rows, features, strict=True)]
    variance = float(np.mean(np.concatenate(residuals) ** 2))
    if variance <= 0:
        return None
    products = sum(float(r.sum() ** 2 - (r**2).sum()) for r in residuals)
    number = sum(len(r) * (len(r) - 1) for r in residuals)
    shared = products / number / variance if number else 0.0
    intercept, cosine, bm25 = (round(float(weight), 5) for weight in weights)
    return Anytime(
        intercept=intercept,
        cosine=cosine,
        bm25=bm25,
        deviation=round(variance**0.5, 5),
        shared=round(min(max(shared, 0.0), 1.0), 5),
        stop=STOP,
    )
