"""Finds where a text names another document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from crossgate._values.results import Document

# A name of one word counts only after a verb such as "see" or "use".
_WORD = re.compile(
    r"(?P<sent>\b(?:see|use|load|run|prefer|try|to|by)\s+(?:the\s+)?)?[`/\[\"']*"
    r"(?P<name>\w+(?P<joined>(?:[-_]\w+)+)?)",
    re.IGNORECASE,
)


class DocumentNames:
    """Finds the names of documents in a text.

    Args:
        documents: The library.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._ids: dict[str, str] = {}
        for document in documents:
            # Ids are unique, titles may not be.
            self._ids.setdefault(document.title.lower(), document.id)
            self._ids[document.id.lower()] = document.id

    def named(self, text: str, owner: str) -> Iterator[tuple[str, str]]:
        """Yield the other documents that a text names: the name as written, and the id."""
        for word in _WORD.finditer(text):
            id = self._ids.get(word["name"].lower())
            if id is not None and id != owner and (word["joined"] or word["sent"]):
                yield word["name"], id
