"""LangChain: a compressor that keeps the documents that fit, and a retriever that routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
    Callbacks,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field

from crossgate._decision.orderings import relevances
from crossgate._decision.router import Router
from crossgate._support.checks import without_surrogates
from crossgate._values.results import RouteResult
from crossgate.integrations._selection import REASON, Selected, aselect, select

__all__ = ["CrossgateCompressor", "CrossgateRetriever"]

SCORE = "relevance_score"  # where LangChain's own rerankers write it


class CrossgateCompressor(BaseDocumentCompressor):
    """Keeps the documents that fit the query, best first, or none of them.

    A kept document is a copy, whose metadata also has `relevance_score` and `crossgate_reason`.

    Attributes:
        top_n: Maximum number to keep; None for all that fit.
        reranker: As in `crossgate.rerank`.
        profile: As in `crossgate.rerank`.
        policy: As in `crossgate.rerank`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    top_n: int | None = Field(default=None, ge=1)
    reranker: Any = "default"
    profile: Any = None
    policy: Any = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Keep the documents that fit the query.

        Raises:
            InputError: For a query that cannot be used; it is a ValueError.
        """
        texts = [document.page_content for document in documents]
        return _kept(documents, select(query, texts, self.top_n, self._options()))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Do what `compress_documents` does without blocking the event loop."""
        texts = [document.page_content for document in documents]
        return _kept(documents, await aselect(query, texts, self.top_n, self._options()))

    def _options(self) -> dict[str, Any]:
        return {"reranker": self.reranker, "profile": self.profile, "policy": self.policy}


class CrossgateRetriever(BaseRetriever):
    """Retrieves the documents of an index that fit, or none.

    Attributes:
        router: The router that decides.
        k: Maximum number of documents; `invoke(query, k=1)` takes precedence.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    router: Router
    k: int = Field(default=2, ge=1)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
    ) -> list[Document]:
        return _routed(
            self.router.route(without_surrogates(query), limit=self.k if k is None else k)
        )

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
    ) -> list[Document]:
        limit = self.k if k is None else k
        return _routed(await self.router.aroute(without_surrogates(query), limit=limit))


def _kept(documents: Sequence[Document], chosen: Selected) -> list[Document]:
    return [
        documents[index].model_copy(
            update={"metadata": {**documents[index].metadata, SCORE: relevance, REASON: reason}}
        )
        for index, relevance, reason in chosen
    ]


def _routed(result: RouteResult) -> list[Document]:
    return [
        Document(
            id=hit.id,
            page_content=hit.document.text,
            metadata={
                **hit.document.metadata,
                "title": hit.document.title,
                SCORE: number,
                REASON: result.reason,
            },
        )
        for hit, number in zip(result.selected, relevances(result.selected), strict=True)
    ]
