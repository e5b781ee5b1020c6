"""What other tools expect of a reranker: every candidate with one number, highest first."""

from __future__ import annotations

from collections.abc import Sequence

from crossgate._types import Hit, RouteResult


def relevances(hits: Sequence[Hit]) -> list[float]:
    """Return a number per hit: how relevant it is, in [0, 1].

    Where one of the hits has no relevance, since no profile was fitted for the reranker, or none
    answered, it is the score of each instead, of whatever scale: two scales in one list would
    have an order that means nothing.
    """
    known = [hit.relevance for hit in hits]
    if None in known:
        return [hit.score or 0.0 for hit in hits]
    return [relevance for relevance in known if relevance is not None]


def ranked(
    result: RouteResult, *, limit: int | None = None, least: float | None = None
) -> list[tuple[Hit, float]]:
    """Return all candidates of a result, whether or not they were selected, highest first.

    Args:
        result: The decision.
        limit: Maximum number; None for all.
        least: Leave out those whose number is below it; None leaves out nothing.
    """
    pairs = sorted(
        zip(result.hits, relevances(result.hits), strict=True), key=lambda pair: -pair[1]
    )
    return [pair for pair in pairs if least is None or pair[1] >= least][:limit]


def shortlist(result: RouteResult, limit: int, least: float | None) -> tuple[Hit, ...]:
    """Return the candidates that come nearest, in the decision's order, whatever was selected.

    For a model that picks for itself a wrong tool too many costs little, a right one that is
    missing everything: the bars that hold for a pick would leave most of the right ones out.

    Args:
        result: The decision.
        limit: Maximum number.
        least: None at all where the decision is less confident; None for no such bar.
    """
    if least is not None and (result.confidence is None or result.confidence < least):
        return ()
    return result.hits[:limit]
