"""Fits the probability that a candidate fits, independently of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crossgate._calibration.answer_threshold import fit_logistic
from crossgate._core import Profile, Relevance, Stage1Relevance, Stage2Relevance
from crossgate._evaluation.runs.runs import StoredQuery

STAGE1_SCORES = ("cosine", "bm25")
STAGE2_SCORES = (*STAGE1_SCORES, "rerank_score")

RIDGE = 1e-4
"""Each query gives many rows, of which few fit: a stronger ridge would flatten the model."""


def fit_relevance(queries: Sequence[StoredQuery], ranking: Profile) -> Relevance:
    """Fit the models of both stages on the candidates of queries, each candidate by itself.

    Args:
        queries: Queries with the rerank scores of the whole pool.
        ranking: The profile; only its pool is used, which stage 2 reads.
    """
    rows = [
        (query, position, candidate)
        for query in queries
        for position, candidate in enumerate(query.scored)
    ]
    scores = np.array(
        [
            [
                candidate.cosine or 0.0,
                math.log1p(max(0.0, candidate.bm25)),
                query.pairs[candidate.id].score,
            ]
            for query, _, candidate in rows
        ]
    )
    fits = np.array([float(candidate.id in query.relevant) for query, _, candidate in rows])
    read = np.array([position < ranking.pool for _, position, _ in rows])
    intercept, weights = fit_logistic(scores[:, : len(STAGE1_SCORES)], fits, RIDGE)
    stage1 = Stage1Relevance(intercept=intercept, **dict(zip(STAGE1_SCORES, weights, strict=True)))
    intercept, weights = fit_logistic(scores[read], fits[read], RIDGE)
    stage2 = Stage2Relevance(intercept=intercept, **dict(zip(STAGE2_SCORES, weights, strict=True)))
    return Relevance(stage1=stage1, stage2=stage2)
