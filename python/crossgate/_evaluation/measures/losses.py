"""Counts at which step right answers get lost, and how stage 2 moves them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from crossgate._evaluation.runs.stored_runs import StoredQuery
from crossgate._values.results import RouteResult, Verdict

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

    Args:
        query: A query with a match.
        result: The decision.
        always: The decision if stage 2 reads every query; None if unknown.

    Returns:
        A key of `PLACES`. A gate that decided alone is to blame only if stage 2 would have been
        right; otherwise the key is that of the later step that would have lost the answer.
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
    """Compare the order of stage 1 with the final one.

    Args:
        queries: The queries, including no-match queries.
        before: Their results without stage 2.
        after: Their results with it.
    """
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
