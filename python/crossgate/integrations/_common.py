"""What the adapters share: texts in, the selected ones out, each with its number and reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from crossgate._ranking import relevances
from crossgate._rerank import arerank, rerank
from crossgate._types import Candidate, RouteResult

REASON = "crossgate_reason"
"""The field of a document's metadata that says which rule selected it; see docs/reasons.md."""

Selected = list[tuple[int, float, str]]
"""Place among the texts from 0, relevance, reason; best first."""


def select(
    query: str, texts: Sequence[str | None], limit: int | None, options: dict[str, Any]
) -> Selected:
    """Return what fits of some texts. Those with nothing to read, as of an image, never do.

    Raises:
        InputError: A query or limit that cannot be used; it is a ValueError.
    """
    return selected(rerank(query, _candidates(texts), limit=limit, **options))


async def aselect(
    query: str, texts: Sequence[str | None], limit: int | None, options: dict[str, Any]
) -> Selected:
    """Do what `select` does without blocking the event loop."""
    return selected(await arerank(query, _candidates(texts), limit=limit, **options))


def selected(result: RouteResult) -> Selected:
    """Return what `rerank` selected, with relevance or, where one has none, with scores."""
    numbers = relevances(result.selected)
    return [
        (int(hit.id), number, result.reason)
        for hit, number in zip(result.selected, numbers, strict=True)
    ]


def _candidates(texts: Iterable[str | None]) -> list[Candidate]:
    return [
        Candidate(id=str(place), text=text)
        for place, text in enumerate(texts)
        if text and text.replace("\0", "").strip()
    ]
