"""Human-readable texts for the codes of a decision."""

from __future__ import annotations

REASONS = {
    "no_candidates": "there was nothing to choose from",
    "improbable": "no candidate is likely enough",
    "below_floor": "no candidate reaches the floor of this section",
    "no_overlap": "no document shares a word with the query",
    "confident_winner": "one document is far enough ahead",
    "lexical_winner": "the words match one document, and no other comes close",
    "undecided": "no clear winner, and no cross-encoder available",
    "reranked": "no clear winner, so the cross-encoder decided",
    "rejected": "no clear winner, and no candidate is likely enough",
}
"""Explanation of a decision, by `RouteResult.reason`."""

_SEVERAL = "stage 1 is confident of the first, and the others have similar scores"


def why(reason: str, picks: int) -> str:
    """Return the explanation of a decision that selected `picks` documents."""
    if picks > 1 and reason in ("confident_winner", "lexical_winner"):
        return _SEVERAL
    return REASONS.get(reason, reason)


DROPPED = {
    "nothing_relevant": "nothing is relevant",
    "below_floor": "below the floor",
    "below_cliff": "below the cliff",
    "not_reranked": "not in the pool",
    "disagreement": "stage 1 disagrees",
    "rerank_min": "score too low",
    "rerank_margin": "too far behind",
    "irrelevant": "not relevant enough",
    "improbable": "unlikely to fit",
    "runner_up": "too far behind",
    "over_limit": "over the limit",
    "empty": "empty",
}
"""Why a hit was not selected, by `Hit.dropped`."""
