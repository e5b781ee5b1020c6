"""The package `rerankers`: crossgate as one of its rankers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias

from rerankers.documents import Document
from rerankers.models.ranker import BaseRanker
from rerankers.results import RankedResults, Result

from crossgate._decision.orderings import ranked
from crossgate._decision.rerank_candidates import arerank, rerank
from crossgate._support.checks import without_surrogates
from crossgate._support.wording import counted
from crossgate._values.results import RouteResult

__all__ = ["CrossgateRanker"]

Texts: TypeAlias = str | Document | Sequence[str] | Sequence[Document]
Ids: TypeAlias = Sequence[str] | Sequence[int] | None
Metadata: TypeAlias = Sequence[Mapping[str, Any]] | None


class CrossgateRanker(BaseRanker):  # type: ignore[misc, unused-ignore]
    """Ranks all documents, whether or not they fit, as every ranker of `rerankers` does.

    The score is the relevance, so a threshold on it means the same for every query.

    Args:
        model_name_or_path: As `reranker` of `crossgate.rerank`.
        verbose: Ignored; accepted because every ranker accepts it.
        profile: As in `crossgate.rerank`.
        policy: As in `crossgate.rerank`.
    """

    def __init__(
        self,
        model_name_or_path: Any = "default",
        verbose: int = 0,
        *,
        profile: Any = None,
        policy: Any = None,
    ) -> None:
        self.verbose = verbose
        self._options = {"reranker": model_name_or_path, "profile": profile, "policy": policy}

    def score(self, query: str, doc: str) -> float:
        """Return the relevance of one text.

        Raises:
            InputError: For a query or text that cannot be used; it is a ValueError.
        """
        ((_, number),) = ranked(
            rerank(without_surrogates(query), [without_surrogates(doc)], **self._options)
        )
        return number

    def rank(
        self, query: str, docs: Texts, doc_ids: Ids = None, metadata: Metadata = None
    ) -> RankedResults:
        """Return the documents in the order of `crossgate.rerank`.

        Args:
            query: The query.
            docs: Texts, or documents of `rerankers`, of which copies are returned.
            doc_ids: An id per document; None for its own, or its position from 0.
            metadata: Metadata per document; None for its own.

        Raises:
            InputError: For a query or text that cannot be used; it is a ValueError.
            ValueError: If there are fewer or more ids or metadata than documents.
        """
        documents = _documents(docs, doc_ids, metadata)
        texts = [without_surrogates(document.text) for document in documents]
        return _results(query, documents, rerank(without_surrogates(query), texts, **self._options))

    async def rank_async(
        self, query: str, docs: Texts, doc_ids: Ids = None, metadata: Metadata = None
    ) -> RankedResults:
        """Do what `rank` does without blocking the event loop."""
        documents = _documents(docs, doc_ids, metadata)
        texts = [without_surrogates(document.text) for document in documents]
        return _results(
            query, documents, await arerank(without_surrogates(query), texts, **self._options)
        )


def _documents(docs: Texts, ids: Ids, metadata: Metadata) -> list[Document]:
    inputs = [docs] if isinstance(docs, str | Document) else list(docs)
    for name, values in (("doc_ids", ids), ("metadata", metadata)):
        if values is not None and len(values) != len(inputs):
            raise ValueError(
                f"{len(values)} {name} for {counted(len(inputs), 'document')}: pass one for each"
            )
    documents = []
    for position, value in enumerate(inputs):
        document = Document(value) if isinstance(value, str) else copy(value)
        if ids is not None:
            document.doc_id = ids[position]
        elif document.doc_id is None:
            document.doc_id = position
        if metadata is not None:
            document.metadata = dict(metadata[position])
        documents.append(document)
    return documents


def _results(query: str, documents: list[Document], result: RouteResult) -> RankedResults:
    rows = [
        Result(document=documents[hit.index or 0], score=number, rank=rank)
        for rank, (hit, number) in enumerate(ranked(result), start=1)
    ]
    return RankedResults(results=rows, query=query, has_scores=True)
