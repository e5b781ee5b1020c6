"""Metrics of one query: of its ranking, its outcome, and the step that lost a right answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from crossgate._evaluation.stored_runs import StoredQuery
from crossgate._values.results import RouteResult, Verdict


def recall(ranking: Sequence[str], relevant: Mapping[str, int], k: int) -> float:
    """Return recall@k in [0, 1]: |relevant in the first k| / |relevant|."""
    _check(relevant, k)
    return sum(id in relevant for id in ranking[:k]) / len(relevant)


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


def _check(relevant: Mapping[str, int], k: int) -> None:
    if not relevant or min(relevant.values()) < 1:
        raise ValueError("the metric needs documents that fit, with grades of at least 1")
    if k < 1:
        raise ValueError(f"k is {k}: it must be at least 1")


PICKS = 2
"""How many documents a router selects by default; see `Router.route`."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of the report.

    Attributes:
        name: As in `recall@1`.
        higher_is_better: Whether a fall is a loss.
        meaning: One line for people.
    """

    name: str
    higher_is_better: bool
    meaning: str


METRICS = (
    Metric("recall@1", True, "share of the fitting documents at rank 1"),
    Metric("recall@3", True, "share of the fitting documents in the first 3"),
    Metric("recall@5", True, "share of the fitting documents in the first 5"),
    Metric("recall@10", True, "share of the fitting documents in the first 10"),
    Metric("precision@1", True, "first picks that fit"),
    Metric("mrr@10", True, "mean of 1 / rank of the first document that fits"),
    Metric("ndcg@10", True, "normalised discounted cumulative gain"),
    Metric("false_positive_rate", False, "no-match queries for which something was selected"),
    Metric("abstention_precision", True, "empty answers to queries without a match"),
    Metric("abstention_recall", True, "no-match queries that got an empty answer"),
    Metric("wrong_pick@1", False, "the first pick is known not to fit"),
    Metric(f"wrong_pick@{PICKS}", False, f"one of the first {PICKS} is known not to fit"),
    Metric("skipped", True, "queries for which stage 2 was not asked"),
)


def measure_answer(query: StoredQuery, result: RouteResult) -> dict[str, float | None]:
    """Return the value of every metric, None where the query does not count for it.

    Recall, mrr and ndcg count queries with a match; `false_positive_rate` and `abstention_recall`
    no-match queries; `precision@1` those with a pick, and `abstention_precision` those with an
    empty answer; and `wrong_pick` those with documents that are known not to fit.
    """
    ranking, relevant = result.ids, query.relevant
    values: dict[str, float | None] = dict.fromkeys(metric.name for metric in METRICS)
    if relevant:
        for k in (1, 3, 5, 10):
            values[f"recall@{k}"] = recall(ranking, relevant, k)
        values["mrr@10"] = reciprocal_rank(ranking, relevant, 10)
        values["ndcg@10"] = ndcg(ranking, relevant, 10)
    else:
        values["false_positive_rate"] = float(bool(ranking))
        values["abstention_recall"] = float(not ranking)
    if ranking:
        values["precision@1"] = float(ranking[0] in relevant)
    else:
        values["abstention_precision"] = float(not relevant)
    if query.wrong:
        for k in (1, PICKS):
            values[f"wrong_pick@{k}"] = float(not query.wrong.isdisjoint(ranking[:k]))
    values["skipped"] = float(not result.trace["asked"])
    return values


DEPTH = 3
"""A right document that stage 1 ranks below this is deep; one that ends within it is pulled in."""

PLACES = {
    "retrieval": "not found by stage 1",
    "floor": "below the floor",
    "pool": "no room in the pool",
    "gate": "stage 2 was skipped",
    "model": "stage 2 chose another",
    "guardrail": "a guardrail held it back",
    "stage1": "stage 1 chose another",
}
"""The steps at which a right answer can get lost, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """How stage 2 changed the order of stage 1, guardrails aside.

    Attributes:
        first: Queries for which stage 1 ranked a right document first.
        pushed_out: Those of them with no right document first in the end.
        deep: Queries whose best right document stage 1 ranked below 3.
        pulled_in: Those of them with a right document in the first 3 in the end.
    """

    first: int
    pushed_out: int
    deep: int
    pulled_in: int


def where_lost(query: StoredQuery, result: RouteResult, always: RouteResult | None) -> str | None:
    """Return where the right answer got lost, or None if the first pick fits.

    Returns:
        A key of `PLACES`. A gate that decided alone is to blame only if stage 2, which decided
        `always`, would have been right; otherwise the key is that of the later step that would have
        lost the answer.
    """
    if is_right(query, result):
        return None
    if all(hit.id not in query.relevant for hit in result.hits):
        return "retrieval"
    if _all_dropped(query, result, {"below_floor"}):
        return "floor"
    if result.verdict is not Verdict.AMBIGUOUS:
        if always is None or is_right(query, always):
            return "gate"
        return where_lost(query, always, None)
    if _all_dropped(query, result, {"below_floor", "below_cliff", "not_reranked"}):
        return "pool"
    in_the_way = [hit for hit in result.hits if hit.id in query.relevant or hit.dropped is None]
    if in_the_way[0].id in query.relevant:
        return "guardrail"
    return "model" if result.stage == 2 else "stage1"


def is_right(query: StoredQuery, result: RouteResult) -> bool:
    """Return whether the first pick fits."""
    return bool(result.ids) and result.ids[0] in query.relevant


def _all_dropped(query: StoredQuery, result: RouteResult, codes: Set[str]) -> bool:
    return all(hit.dropped in codes for hit in result.hits if hit.id in query.relevant)


def best_rank(query: StoredQuery, result: RouteResult) -> int | None:
    """Return the best rank of a document that fits among all candidates, or None."""
    ranks = (rank for rank, hit in enumerate(result.hits, start=1) if hit.id in query.relevant)
    return next(ranks, None)


def count_moves(
    queries: Sequence[StoredQuery], before: Sequence[RouteResult], after: Sequence[RouteResult]
) -> Moves:
    """Compare the order of stage 1, which decided `before`, with the final one."""
    ranks = [
        (best_rank(query, earlier), best_rank(query, later))
        for query, earlier, later in zip(queries, before, after, strict=True)
    ]
    first = [last for rank, last in ranks if rank == 1]
    deep = [last for rank, last in ranks if rank is not None and rank > DEPTH]
    return Moves(
        first=len(first),
        pushed_out=sum(last != 1 for last in first),
        deep=len(deep),
        pulled_in=sum(last is not None and last <= DEPTH for last in deep),
    )


OUTCOMES = {
    "right": "the first pick fits",
    "wrong": "the first pick does not fit, but something else does",
    "missed": "a document fits, but nothing was selected",
    "silent": "nothing fits, and nothing was selected",
    "injected": "nothing fits, but something was selected",
}
"""The outcomes of a query, with their meanings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One query and its answer.

    Attributes:
        id: The query's id.
        text: The query.
        kind: The kind of query; empty if the dataset does not name it.
        fits: The ids of the fitting documents, best grade first.
        picked: The ids that were selected.
        outcome: A key of `OUTCOMES`.
        confidence: The probability that the first pick fits; None if the profile has no confidence
            model.
        reason: The rule that decided.
        stage: Which stage answered.
    """

    id: str
    text: str
    kind: str
    fits: tuple[str, ...]
    picked: tuple[str, ...]
    outcome: str
    confidence: float | None
    reason: str
    stage: int


def answered(
    queries: Sequence[StoredQuery], results: Sequence[RouteResult]
) -> tuple[Answered, ...]:
    """Return every query with its answer, in their order."""
    return tuple(
        Answered(
            id=query.id,
            text=query.text,
            kind=query.kind,
            fits=tuple(sorted(query.relevant, key=lambda id: (-query.relevant[id], id))),
            picked=tuple(result.ids),
            outcome=outcome_of(query, result),
            confidence=None if result.confidence is None else round(result.confidence, 4),
            reason=result.reason,
            stage=result.stage,
        )
        for query, result in zip(queries, results, strict=True)
    )


def outcome_of(query: StoredQuery, result: RouteResult) -> str:
    """Return the outcome of a query, a key of `OUTCOMES`."""
    if query.relevant:
        if is_right(query, result):
            return "right"
        return "wrong" if result.ids else "missed"
    return "injected" if result.ids else "silent"
