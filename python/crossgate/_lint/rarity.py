"""The words of a library, and how rare each one is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from crossgate._core import analyze
from crossgate._values.results import Document

COMMON = 0.1
"""A word in this share of the heads sets none of them apart."""


class Words:
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
        """How many heads each term is in."""
        return Counter(
            term for document in self._documents for term in self.terms(document.content)
        )

    @cached_property
    def in_documents(self) -> Counter[str]:
        """How many documents each term is in, head or body."""
        return Counter(
            term
            for document in self._documents
            for term in self.terms(f"{document.content}\n{document.body}")
        )

    def is_common(self, term: str) -> bool:
        """Return whether a term is in so many heads that it sets none of them apart."""
        return self.in_heads[term] >= max(3, COMMON * self.count)
