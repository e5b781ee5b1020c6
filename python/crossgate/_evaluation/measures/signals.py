"""How well the signals answer the gate's questions, and how scores are distributed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crossgate._evaluation.measures.losses import is_right
from crossgate._evaluation.measures.statistics import Interval, area_interval
from crossgate._evaluation.runs.stored_runs import StoredQuery
from crossgate._values.results import RouteResult

BINS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalStrength:
    """How well one signal answers the two questions; 0.5 is chance, less is misleading.

    Attributes:
        name: The signal.
        rerank: AUC of a low value for queries that stage 2 gets right and stage 1 does not,
            against the other queries with a match.
        answer: AUC of a high value for queries with a match against no-match queries.
    """

    name: str
    rerank: Interval | None
    answer: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """The distributions of a score over queries with a match, and over no-match queries.

    Attributes:
        name: The score.
        low: Lower edge of the first bin.
        high: Upper edge of the last bin.
        match: Queries with a match, per bin.
        no_match: No-match queries, per bin.
    """

    name: str
    low: float
    high: float
    match: tuple[int, ...]
    no_match: tuple[int, ...]


def signals_of(query: StoredQuery, always: RouteResult | None) -> dict[str, float]:
    """Return the gate's signals, and with stage 2 its first logit and its probabilities."""
    values = {
        name: float(value) for name, value in (query.signals or {}).items() if value is not None
    }
    if always is not None and always.hits and always.hits[0].rerank_score is not None:
        values["rerank_score"] = always.hits[0].rerank_score
    if always is not None and always.confidence is not None:
        values["confidence"] = always.confidence
    if always is not None and always.any_fits is not None:
        values["any_fits"] = always.any_fits
    return values


def strengths(
    queries: Sequence[StoredQuery],
    never: Sequence[RouteResult] | None,
    always: Sequence[RouteResult] | None,
    *,
    seed: int,
) -> tuple[SignalStrength, ...]:
    """Return the strength of each signal, the strongest for *rerank?* first.

    Args:
        queries: The stored queries.
        never: Their results without stage 2; None leaves out the first question.
        always: Their results with it; None leaves out the first question.
        seed: Of the intervals.
    """
    matched = [bool(query.relevant) for query in queries]
    worth: list[bool] | None = None
    if never is not None and always is not None:
        worth = [
            not is_right(query, stage1) and is_right(query, stage2)
            for query, stage1, stage2 in zip(queries, never, always, strict=True)
        ]
    rows = [
        signals_of(query, None if always is None else always[position])
        for position, query in enumerate(queries)
    ]
    rated = []
    for name in dict.fromkeys(name for row in rows for name in row):
        having = [position for position, row in enumerate(rows) if name in row]
        values = np.array([rows[position][name] for position in having])
        labels = np.array([matched[position] for position in having])
        rerank = None
        # These are known only after the reranker has run, so they cannot decide whether to run it.
        if worth is not None and name not in ("rerank_score", "confidence", "any_fits"):
            answers = np.array([worth[position] for position in having])
            rerank = area_interval(-values[labels], answers[labels], seed=seed)
        answer = area_interval(values, labels, seed=seed)
        rated.append(SignalStrength(name=name, rerank=rerank, answer=answer))
    return tuple(
        sorted(
            rated, key=lambda strength: -1.0 if strength.rerank is None else strength.rerank.value
        )[::-1]
    )


def histograms(
    queries: Sequence[StoredQuery], always: Sequence[RouteResult] | None
) -> tuple[Histogram, ...]:
    """Return how the best scores of stage 1, the first logit and the probabilities spread."""
    rows = [
        (bool(query.relevant), signals_of(query, None if always is None else always[position]))
        for position, query in enumerate(queries)
    ]
    return tuple(
        _histogram(name, rows)
        for name in ("cosine", "bm25", "rerank_score", "any_fits", "confidence")
        if any(name in values for _, values in rows)
    )


def _histogram(name: str, rows: Sequence[tuple[bool, Mapping[str, float]]]) -> Histogram:
    match = [values[name] for matched, values in rows if matched and name in values]
    no_match = [values[name] for matched, values in rows if not matched and name in values]
    low, high = min(match + no_match), max(match + no_match)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return Histogram(
        name=name,
        low=low,
        high=high,
        match=tuple(np.histogram(match, BINS, (low, high))[0].tolist()),
        no_match=tuple(np.histogram(no_match, BINS, (low, high))[0].tolist()),
    )
