"""Fits the probabilities: that any candidate fits, and how it is shared among the candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import crossgate._core as _core
from crossgate._calibration.answer_threshold import fit_logistic
from crossgate._calibration.fitted_outcomes import Array
from crossgate._calibration.weights import fit_likeliest, log_odds, rounded
from crossgate._core import (
    AnyFits,
    Profile,
    Relevance,
    Stage1AnyFits,
    Stage1Relevance,
    Stage2AnyFits,
    Stage2Relevance,
)
from crossgate._evaluation.runs.stored_runs import StoredQuery

RIDGE = 1e-3


def fit_relevance(queries: Sequence[StoredQuery], ranking: Profile) -> Relevance:
    """Return the weights under which the fitting candidates have the largest shares.

    Args:
        queries: Queries with the rerank scores of the pool; only those count for which stage 1
            finds a fitting document.
        ranking: A profile; only its blend, pool and evidence are used.
    """
    rows = [_features(query, ranking) for query in queries]
    rows = [row for row in rows if row.right.any()]
    right, offset = [row.right for row in rows], [row.evidence for row in rows]
    features = [row.features[:, :2] for row in rows]
    _, (cosine, bm25) = fit_likeliest(features, right, offset=offset)
    stage1 = Stage1Relevance(cosine=rounded(cosine), bm25=rounded(bm25))
    # An unread candidate can be better or worse than one with a rerank score of 0.
    features = [row.features for row in rows]
    _, weights = fit_likeliest(features, right, offset=offset, free=1)
    cosine, bm25, rerank_score, unread = map(rounded, weights)
    stage2 = Stage2Relevance(cosine=cosine, bm25=bm25, rerank_score=rerank_score, unread=unread)
    return Relevance(stage1=stage1, stage2=stage2)


class _Rows(NamedTuple):
    """One row for each candidate of a query.

    Attributes:
        features: What the weights of stage 2 are for, of shape (candidates, 4).
        right: 1 for a candidate that fits, else 0.
        evidence: What the evidence about the candidate adds to its log-weight.
    """

    features: Array
    right: Array
    evidence: Array


def _features(query: StoredQuery, ranking: Profile) -> _Rows:
    pivot = ranking.blend.pivot
    rows = []
    for position, candidate in enumerate(query.scored):
        read = position < ranking.pool
        rows.append(
            (
                candidate.cosine or 0.0,
                candidate.bm25 / (candidate.bm25 + pivot),
                query.pairs[candidate.id].score if read else 0.0,
                float(not read),
            )
        )
    return _Rows(
        features=np.array(rows),
        right=np.array([float(candidate.id in query.relevant) for candidate in query.scored]),
        evidence=np.array([log_odds(candidate, ranking.evidence) for candidate in query.scored]),
    )


def fit_any_fits(queries: Sequence[StoredQuery], profile: Profile) -> AnyFits:
    """Fit the models of both stages, or none without a query that nothing fits.

    Args:
        queries: Queries with at least one candidate and with the rerank scores of the pool.
        profile: The profile, with its weights of relevance.
    """
    if all(query.relevant for query in queries):
        return AnyFits()
    rows = np.array([_signals(query, profile) for query in queries])
    fits = np.array(
        [float(any(scored.id in query.relevant for scored in query.scored)) for query in queries]
    )
    doubt = np.array(
        [0.0 if query.need is None else _core.need_log_odds(query.need) for query in queries]
    )
    # Evidence is in log-odds that a candidate fits, so its weight is 1 and not part of the fit.
    first, second = (
        fit_logistic(rows[:, columns], fits, RIDGE, offset=doubt + rows[:, evidence])
        for columns, evidence in (([0, 4], 1), ([2, 4, 5], 3))
    )
    (log_mean, cosine), (log_mean2, cosine2, rerank_score) = first[1], second[1]
    return AnyFits(
        stage1=Stage1AnyFits(intercept=first[0], log_mean=log_mean, cosine=cosine),
        stage2=Stage2AnyFits(
            intercept=second[0], log_mean=log_mean2, cosine=cosine2, rerank_score=rerank_score
        ),
    )


def _signals(query: StoredQuery, profile: Profile) -> tuple[float, ...]:
    """Return the signals of `any_fits`.

    For each stage the log-mean without evidence and what evidence adds to it, then the best cosine,
    and the rerank score of the first candidate.
    """
    pool = query.scored[: profile.pool]
    scores = {candidate.id: query.pairs[candidate.id].score for candidate in pool}
    signals = _core.signals(query.scored)
    _, _, reading = _core.combine(pool, list(scores.values()), profile)
    documents = query.documents or len(query.scored)
    means = (_core.log_mean(query.scored, read, documents, profile) for read in (None, scores))
    first, second = ((0.0, 0.0) if known is None else known for known in means)
    if signals is None or reading is None:
        raise ValueError(f"query {query.id!r} has no candidates")
    return *first, *second, signals.cosine or 0.0, reading.rerank_score
