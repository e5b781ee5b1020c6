"""What other tools expect of a reranker: every candidate with one number, highest first."""

from __future__ import annotations

from collections.abc import Sequence

from crossgate._values.results import Hit, RouteResult


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


def nearest(result: RouteResult, limit: int, least: float | None) -> tuple[Hit, ...]:
    """Return the nearest candidates, in the decision's order, whatever was selected.

    A model that picks for itself loses little by a wrong tool on the list, and fails without the
    right one. The thresholds of a pick would leave out most of the right tools.

    Args:
        result: The decision.
        limit: Maximum number.
        least: Return no candidates if the confidence is lower; None for no such threshold.
    """
    if least is not None and (result.confidence is None or result.confidence < least):
        return ()
    return result.hits[:limit]
