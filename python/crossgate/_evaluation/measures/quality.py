"""Metrics of one decision.

A ranking is what the caller gets: the selected documents, best first. So a query for which the gate
finds nothing relevant, or whose candidates all fail the guardrails, has an empty ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

from crossgate._evaluation.measures import metrics
from crossgate._evaluation.runs.stored_runs import StoredQuery
from crossgate._values.results import RouteResult

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
    Metric("precision@1", True, "queries whose first pick fits"),
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

    Recall and the other ranking metrics count queries with a match; `false_positive_rate` and
    `abstention_recall` no-match queries; `wrong_pick` those with documents that are known not to
    fit; and `abstention_precision` those that got an empty answer.
    """
    ranking, relevant = result.ids, query.relevant
    values: dict[str, float | None] = dict.fromkeys(metric.name for metric in METRICS)
    if relevant:
        for k in (1, 3, 5, 10):
            values[f"recall@{k}"] = metrics.recall(ranking, relevant, k)
        values["precision@1"] = metrics.precision(ranking, relevant, 1)
        values["mrr@10"] = metrics.reciprocal_rank(ranking, relevant, 10)
        values["ndcg@10"] = metrics.ndcg(ranking, relevant, 10)
    else:
        values["false_positive_rate"] = float(bool(ranking))
        values["abstention_recall"] = float(not ranking)
    if not ranking:
        values["abstention_precision"] = float(not relevant)
    if query.wrong:
        for k in (1, PICKS):
            values[f"wrong_pick@{k}"] = float(not query.wrong.isdisjoint(ranking[:k]))
    values["skipped"] = float(not result.trace["asked"])
    return values
