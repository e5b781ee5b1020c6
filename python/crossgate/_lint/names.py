"""The names of the documents, where others speak of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from crossgate._types import Document

# A name of one word is a word like any other, unless something sends the reader to it.
_WORD = re.compile(
    r"(?P<sent>\b(?:see|use|load|run|prefer|try|to|by)\s+(?:the\s+)?)?[`/\[\"']*"
    r"(?P<name>\w+(?P<joined>(?:[-_]\w+)+)?)",
    re.IGNORECASE,
)


class Names:
    """Finds the names of documents in a text.

    Args:
        documents: The library.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._ids: dict[str, str] = {}
        for one in documents:
            # An id is unique, a title may not be.
            self._ids.setdefault(one.title.lower(), one.id)
            self._ids[one.id.lower()] = one.id

    def named(self, text: str, owner: str) -> Iterator[tuple[str, str]]:
        """Yield the other documents that a text names: the name as it stands there, and the id."""
        for word in _WORD.finditer(text):
            id = self._ids.get(word["name"].lower())
            if id is not None and id != owner and (word["joined"] or word["sent"]):
                yield word["name"], id
