"""Ranking metrics of one query, as trec_eval defines them.

Each takes the ranked ids, best first and without repetition, and the grades of the documents that
fit. An empty ranking scores 0. A no-match query has no recall: it raises a `ValueError`, since such
queries are judged by whether anything was selected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def recall(ranking: Sequence[str], relevant: Mapping[str, int], k: int) -> float:
    """Return recall@k in [0, 1]: |relevant in the first k| / |relevant|."""
    return _hits(ranking, relevant, k) / len(relevant)


def precision(ranking: Sequence[str], relevant: Mapping[str, int], k: int) -> float:
    """Return precision@k in [0, 1]: |relevant in the first k| / k, also where fewer are ranked."""
    return _hits(ranking, relevant, k) / k


def reciprocal_rank(ranking: Sequence[str], relevant: Mapping[str, int], k: int) -> float:
    """Return 1 / rank of the first relevant document, or 0 if it is not among the first k.

    Its mean over queries is MRR@k.
    """
    _check(relevant, k)
    for rank, id in enumerate(ranking[:k], start=1):
        if id in relevant:
            return 1 / rank
    return 0.0


def ndcg(ranking: Sequence[str], relevant: Mapping[str, int], k: int) -> float:
    """Return nDCG@k in [0, 1]: DCG@k over that of the best possible ranking.

    DCG@k = sum over ranks r = 1..k of grade(r) / log2(r + 1): linear gains, as in Järvelin and
    Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002, and in trec_eval.
    """
    _check(relevant, k)
    gained = _discounted([relevant.get(id, 0) for id in ranking[:k]])
    return gained / _discounted(sorted(relevant.values(), reverse=True)[:k])


def _discounted(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1))


def _hits(ranking: Sequence[str], relevant: Mapping[str, int], k: int) -> int:
    _check(relevant, k)
    return sum(id in relevant for id in ranking[:k])


def _check(relevant: Mapping[str, int], k: int) -> None:
    if not relevant or min(relevant.values()) < 1:
        raise ValueError("the metric needs documents that fit, with grades of at least 1")
    if k < 1:
        raise ValueError(f"k is {k}: it must be at least 1")
