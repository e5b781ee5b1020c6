"""crossgate on top of Chroma, as a server or in process: cosines by Chroma, BM25 by crossgate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crossgate.stores import _store_rows as common

if TYPE_CHECKING:
    import chromadb

    from crossgate._values.results import RouteResult

_DOCUMENT = "document"


def search(
    collection: chromadb.Collection,
    query: str,
    *,
    vector: Sequence[float],
    where: Any = None,
    where_document: Any = None,
    text: str | None = None,
    title: str | None = None,
    candidates: int = common.CANDIDATES,
    limit: int | None = None,
    **options: Any,
) -> RouteResult:
    """Search by vector, and select the fitting records with `crossgate.rerank`.

    Records are fetched with their embeddings, so the cosine is the same whatever the collection's
    distance function.

    Args:
        collection: A collection of any of Chroma's clients.
        query: The query.
        vector: Its embedding by the collection's own function, as `embed([query])[0]`.
        where: A filter of Chroma over the metadata, or None.
        where_document: A filter of Chroma over the documents, or None.
        text: Field of the metadata that holds the text; None for the record's document.
        title: Field of the metadata that holds the title; the other fields become metadata.
        candidates: How many records to fetch, at least 1.
        limit: Maximum number to select; None for all that pass.
        options: Further arguments of `crossgate.rerank`, such as `profile`.

    Raises:
        InputError: As `crossgate.rerank`.
        Exception: Any error of Chroma, such as for a collection that was deleted.
    """
    common.check_search(query, vector, candidates, limit)
    asked: Any = common.numbers(vector)
    columns: Any = collection.query(
        query_embeddings=[asked],
        n_results=candidates,
        where=where,
        where_document=where_document,
        include=["documents", "metadatas", "embeddings"],
    )
    rows = []
    for id, document, fields, embedding in zip(
        *(columns[name][0] for name in ("ids", "documents", "metadatas", "embeddings")),
        strict=True,
    ):
        values = dict(fields or {})
        if text is None:
            values[_DOCUMENT] = document
        rows.append(common.Row(id=id, values=values, vector=common.numbers(embedding)))
    options = {"vector": vector, **options}
    text = text or _DOCUMENT
    return common.rerank_rows(query, rows, text=text, title=title, limit=limit, options=options)
