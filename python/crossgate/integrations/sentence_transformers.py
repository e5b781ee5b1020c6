"""A replacement for sentence-transformers' `CrossEncoder.rank`."""

from __future__ import annotations

from typing import Any

from crossgate._decision.orderings import ranked
from crossgate._decision.rerank_candidates import rerank
from crossgate._support.checks import check_count

__all__ = ["rank"]


def rank(
    query: str,
    documents: list[str],
    top_k: int | None = None,
    return_documents: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Return all documents in order, whether or not they fit, as `CrossEncoder.rank` does.

    Args:
        query: The query.
        documents: Texts.
        top_k: Maximum number; None for all.
        return_documents: Whether each row has its `text`.
        options: Further arguments of `crossgate.rerank`.

    Returns:
        Rows with `corpus_id`, the position in `documents` from 0, and `score`, the relevance.

    Raises:
        InputError: As `crossgate.rerank`; `out_of_range` for a `top_k` that is not a whole number.
    """
    if top_k is not None:
        check_count("top_k", top_k, 0)
    return [
        {"corpus_id": hit.index, "score": number}
        | ({"text": hit.document.text} if return_documents else {})
        for hit, number in ranked(rerank(query, documents, **options), limit=top_k)
    ]
