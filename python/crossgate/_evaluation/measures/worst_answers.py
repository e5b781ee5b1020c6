"""The worst wrong answers, with the texts that a reader needs in order to judge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crossgate._evaluation.measures.losses import best_rank, is_right, where_lost
from crossgate._evaluation.runs.stored_runs import StoredQuery
from crossgate._values.results import RouteResult

SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A document in an example.

    Attributes:
        id: The document's id.
        excerpt: The beginning of its text; empty if the run did not keep it.
        rank: Its final rank among all candidates, or None if stage 1 did not find it.
        logit: The cross-encoder's logit, or None if the cross-encoder did not read it.
    """

    id: str
    excerpt: str
    rank: int | None
    logit: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstAnswer:
    """A query that was answered wrongly.

    Attributes:
        id: The query's id.
        text: The query.
        reason: The rule that decided.
        lost: Where the right answer was lost; empty for a no-match query.
        picked: The first selected document, or None if nothing was selected.
        expected: The documents that fit.
    """

    id: str
    text: str
    reason: str
    lost: str
    picked: Shown | None
    expected: tuple[Shown, ...]


def missed(
    queries: Sequence[StoredQuery],
    results: Sequence[RouteResult],
    always: Sequence[RouteResult] | None,
) -> tuple[WorstAnswer, ...]:
    """Return queries whose first pick does not fit, those with the lowest ranked answer first."""
    examples = []
    for position, (query, result) in enumerate(zip(queries, results, strict=True)):
        if query.relevant and not is_right(query, result):
            lost = where_lost(query, result, None if always is None else always[position]) or ""
            depth = best_rank(query, result) or len(result.hits) + 1
            examples.append((depth, _example(query, result, lost)))
    examples.sort(key=lambda pair: (-pair[0], pair[1].id))
    return tuple(example for _, example in examples[:SHOWN])


def picked_for_nothing(
    queries: Sequence[StoredQuery], results: Sequence[RouteResult]
) -> tuple[WorstAnswer, ...]:
    """Return no-match queries with a pick, by descending logit or blend."""
    picks = []
    for query, result in zip(queries, results, strict=True):
        if not query.relevant and result.selected:
            first = result.selected[0]
            pair = query.pairs.get(first.id)
            picks.append(((pair is not None, pair.score if pair else first.blend), query, result))
    picks.sort(key=lambda row: row[0], reverse=True)
    return tuple(_example(query, result, "") for _, query, result in picks[:SHOWN])


def _example(query: StoredQuery, result: RouteResult, lost: str) -> WorstAnswer:
    ranks = {hit.id: rank for rank, hit in enumerate(result.hits, start=1)}

    def show(id: str) -> Shown:
        pair = query.pairs.get(id)
        return Shown(
            id=id,
            excerpt=query.excerpts.get(id, ""),
            rank=ranks.get(id),
            logit=None if pair is None else pair.score,
        )

    return WorstAnswer(
        id=query.id,
        text=query.text,
        reason=result.reason,
        lost=lost,
        picked=show(result.ids[0]) if result.ids else None,
        expected=tuple(show(id) for id in query.relevant),
    )
