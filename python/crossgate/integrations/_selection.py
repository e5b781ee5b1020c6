"""Shared by the adapters: selects texts, with relevance and reason.

Lone surrogates, which answers of models can have, are read as question marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from crossgate._decision.orderings import relevances
from crossgate._decision.rerank_candidates import arerank, rerank
from crossgate._support.checks import without_surrogates
from crossgate._values.results import Candidate, RouteResult

REASON = "crossgate_reason"
"""Metadata field for the reason of the decision; see docs/reasons.md."""

Selected = list[tuple[int, float, str]]
"""Position in the texts from 0, relevance, reason; best first."""


def select(
    query: str, texts: Sequence[str | None], limit: int | None, options: dict[str, Any]
) -> Selected:
    """Return the texts that fit. A document without text, such as an image, never fits.

    Raises:
        InputError: For a query or limit that cannot be used; it is a ValueError.
    """
    return selected(rerank(without_surrogates(query), _candidates(texts), limit=limit, **options))


async def aselect(
    query: str, texts: Sequence[str | None], limit: int | None, options: dict[str, Any]
) -> Selected:
    """Do what `select` does without blocking the event loop."""
    result = await arerank(without_surrogates(query), _candidates(texts), limit=limit, **options)
    return selected(result)


def selected(result: RouteResult) -> Selected:
    """Return the selected hits with their relevances, or with scores if one has no relevance."""
    numbers = relevances(result.selected)
    return [
        (int(hit.id), number, result.reason)
        for hit, number in zip(result.selected, numbers, strict=True)
    ]


def _candidates(texts: Iterable[str | None]) -> list[Candidate]:
    return [
        Candidate(id=str(position), text=without_surrogates(text))
        for position, text in enumerate(texts)
        if text and text.replace("\0", "").strip()
    ]
