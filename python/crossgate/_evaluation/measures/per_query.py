"""Every query in one row: its text, the fitting and the selected documents, and the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crossgate._evaluation.measures.losses import is_right
from crossgate._evaluation.runs.stored_runs import StoredQuery
from crossgate._values.results import RouteResult

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
