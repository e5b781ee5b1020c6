"""Haystack: a ranker that keeps the documents that fit."""

# Haystack reads the annotations of `run` as types, so they are not postponed here.

from dataclasses import replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict

from crossgate.integrations._selection import REASON, Selected, aselect, select

__all__ = ["CrossgateRanker"]


@component
class CrossgateRanker:
    """Keeps the documents that fit the query, best first, or none of them.

    A kept document is a copy; its score is its relevance, and its meta has `crossgate_reason`.

    Args:
        top_k: Maximum number to keep; None for all that fit.
        reranker: Name or folder of a model, or None for stage 1 alone.
        profile: File of a calibration profile; None for the bundled one.
        policy: File of a policy, or None.

    Raises:
        ValueError: If `top_k` is below 1.
    """

    def __init__(
        self,
        top_k: int | None = None,
        reranker: str | None = "default",
        profile: str | None = None,
        policy: str | None = None,
    ) -> None:
        self.top_k = _check(top_k)
        self.reranker = reranker
        self.profile = profile
        self.policy = policy

    def to_dict(self) -> dict[str, Any]:
        """Return the component in the form in which Haystack stores it."""
        return default_to_dict(self, top_k=self.top_k, **self._options())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "CrossgateRanker":
        """Make the component from the output of `to_dict`."""
        ranker: CrossgateRanker = default_from_dict(cls, data)
        return ranker

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Keep the documents that fit the query.

        Raises:
            ValueError: For a query or `top_k` that cannot be used.
        """
        limit = self.top_k if _check(top_k) is None else top_k
        texts = [document.content for document in documents]
        return {"documents": _kept(documents, select(query, texts, limit, self._options()))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Do what `run` does without blocking the event loop."""
        limit = self.top_k if _check(top_k) is None else top_k
        texts = [document.content for document in documents]
        return {"documents": _kept(documents, await aselect(query, texts, limit, self._options()))}

    def _options(self) -> dict[str, Any]:
        return {"reranker": self.reranker, "profile": self.profile, "policy": self.policy}


def _check(top_k: int | None) -> int | None:
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k is {top_k}: it must be at least 1")
    return top_k


def _kept(documents: list[Document], chosen: Selected) -> list[Document]:
    return [
        replace(documents[index], score=relevance, meta={**documents[index].meta, REASON: reason})
        for index, relevance, reason in chosen
    ]
