"""crossgate on top of Qdrant, as a server or locally: cosines by Qdrant, BM25 by crossgate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crossgate._support.errors import InputError
from crossgate.stores import _store_rows as common

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

    from crossgate._values.results import RouteResult


def search(
    client: QdrantClient,
    collection: str,
    query: str,
    *,
    vector: Sequence[float],
    using: str | None = None,
    query_filter: Any = None,
    text: str = "text",
    title: str | None = None,
    candidates: int = common.CANDIDATES,
    limit: int | None = None,
    **options: Any,
) -> RouteResult:
    """Search by vector, and select the fitting points with `crossgate.rerank`.

    Points are fetched with their vectors, so the cosine is the same whatever the collection's
    distance function.

    Args:
        client: A client of a server, or a local one such as `QdrantClient(path="folder")`.
        collection: Name of the collection.
        query: The query.
        vector: Its embedding by the model that made the points' vectors.
        using: Name of the vector, if points have several.
        query_filter: A filter of `qdrant_client`, or None.
        text: Field of the payload that holds the text; the other fields become metadata.
        title: Field of the title, or None.
        candidates: How many points to fetch, at least 1.
        limit: Maximum number to select; None for all that pass.
        options: Further arguments of `crossgate.rerank`, such as `profile`.

    Raises:
        InputError: As `crossgate.rerank`.
        Exception: Any error of the client, such as for a missing collection.
    """
    common.check_search(query, vector, candidates, limit)
    points = client.query_points(
        collection,
        query=common.numbers(vector),
        using=using,
        query_filter=query_filter,
        limit=candidates,
        with_payload=True,
        with_vectors=[using] if using else True,
    ).points
    rows = []
    for point in points:
        embedding: Any = point.vector
        if isinstance(embedding, dict):
            embedding = embedding.get(using or "")
        if embedding is None:
            raise InputError(
                "malformed_candidate", f"point {point.id!r} has no vector: name one with using"
            )
        rows.append(common.Row(id=point.id, values=dict(point.payload or {}), vector=embedding))
    options = {"vector": vector, **options}
    return common.rerank_rows(query, rows, text=text, title=title, limit=limit, options=options)
