"""All candidates of a result with one number each, as rerankers of other libraries return them."""

from __future__ import annotations

from collections.abc import Sequence

from crossgate._values.results import Hit, RouteResult

NAMED = "named"
"""The reason of a decision by names in the query."""


def relevances(hits: Sequence[Hit]) -> list[float]:
    """Return the relevance of each hit, in [0, 1], or the score if no relevance is known.

    That of a hit is unknown if the reranker did not read it, and counts as 0. Without a profile for
    the reranker, none is known; the score of every hit is then returned, whatever its scale.
    """
    known = [hit.relevance for hit in hits]
    if all(relevance is None for relevance in known):
        scores = [hit.score for hit in hits if hit.score is not None]
        least = min(scores, default=0.0)  # a hit without a score ranks last
        return [least if hit.score is None else hit.score for hit in hits]
    return [relevance or 0.0 for relevance in known]


def ranked(
    result: RouteResult, *, limit: int | None = None, least: float | None = None
) -> list[tuple[Hit, float]]:
    """Return all candidates of a result, selected or not, in the decision's order.

    The order also counts words and the retriever's scores, so a later candidate can have a higher
    relevance.

    Args:
        result: The decision.
        limit: Maximum number; None for all.
        least: Omit candidates whose number is lower; None to omit none.
    """
    pairs = zip(result.hits, relevances(result.hits), strict=True)
    return [pair for pair in pairs if least is None or pair[1] >= least][:limit]


def nearest(result: RouteResult, limit: int, least: float | None) -> tuple[Hit, ...]:
    """Return the first candidates in the decision's order, selected or not.

    A model that chooses from the list loses little by a wrong tool, but fails without the right
    one, and the thresholds of a selection would omit many of the right tools. A prompt that
    names documents gets these alone.

    Args:
        result: The decision.
        limit: Maximum number.
        least: Return no candidates if the probability that any of them fits is lower, in [0, 1];
            an unknown probability counts as 1. None for no threshold.
    """
    if result.reason == NAMED:
        return result.selected
    if least is not None and result.any_fits is not None and result.any_fits < least:
        return ()
    return result.hits[:limit]
