"""The terms of a library and their frequencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from crossgate._core import analyze
from crossgate._values.results import Document

COMMON = 0.1
"""A term in at least this share of the heads is common."""


class LibraryTerms:
    """The terms of all documents, made by the analysis that the index uses.

    Args:
        documents: The library.
        language: The index's language.
    """

    def __init__(self, documents: Iterable[Document], language: str) -> None:
        self._language = language
        self._documents = tuple(documents)
        self.count = len(self._documents)

    def all_terms(self, text: str) -> list[str]:
        """Return the terms of a text in reading order, repetitions included."""
        return analyze(text, self._language)

    def terms(self, text: str) -> set[str]:
        """Return the different terms of a text, without stop words."""
        return set(self.all_terms(text))

    @cached_property
    def in_heads(self) -> Counter[str]:
        """Number of heads that contain each term."""
        return Counter(
            term for document in self._documents for term in self.terms(document.content)
        )

    @cached_property
    def in_documents(self) -> Counter[str]:
        """Number of documents that contain each term in head or body."""
        return Counter(
            term
            for document in self._documents
            for term in self.terms(f"{document.content}\n{document.body}")
        )

    def is_common(self, term: str) -> bool:
        """Return whether a term is in too many heads to distinguish them."""
        return self.in_heads[term] >= max(3, COMMON * self.count)
