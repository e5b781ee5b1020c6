"""Finds file and line of parts of a document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from crossgate._lint.findings import Evidence, cut
from crossgate._lint.sentences import Sentence
from crossgate._sources.common import Unusable, decoded, printable
from crossgate._sources.reading import SourceLocation
from crossgate._support.files import read_source
from crossgate._support.limits import TEXT_BYTES
from crossgate._values.results import Document

Field = Literal["text", "body"]

_WORDS = 8
_DESCRIPTION = re.compile(r"^description[ \t]*:", re.MULTILINE)


class Places:
    """Files and lines of documents; a file is read when its lines are first asked for.

    Args:
        places: File and line of each document by id; a document that is not listed has no file.
    """

    def __init__(self, places: Mapping[str, SourceLocation]) -> None:
        self._places = places
        self._texts: dict[str, str | None] = {}

    def file(self, id: str) -> str | None:
        """Return the file of a document, printable."""
        return printable(self._places[id].path) if id in self._places else None

    def line(self, document: Document, field: Field, start: int) -> int | None:
        """Return the line of the character at an offset of a field."""
        place = self._places.get(document.id)
        if place is None:
            return None
        text = self.text(place.path)
        first = place.line or 1
        if text is None:
            return place.line
        value: str = getattr(document, field)
        at = text.rfind(value) if field == "body" else text.find(value, _offset(text, first))
        if at >= 0:
            return text.count("\n", 0, at + start) + 1
        return _line_of_words(text, value[start:], first)

    def evidence(self, document: Document, sentence: Sentence, note: str = "") -> Evidence:
        """Return a sentence as evidence, followed by a note."""
        text = f'"{cut(sentence.query)}"'
        return self.at(document, sentence.field, sentence.start, f"{text} {note}".strip())

    def at(self, document: Document, field: Field, start: int, text: str) -> Evidence:
        """Return evidence at an offset of a field."""
        return Evidence(
            file=self.file(document.id), line=self.line(document, field, start), text=text
        )

    def path(self, id: str) -> str | None:
        """Return the path of a document's file, if it has one."""
        return self._places[id].path if id in self._places else None

    def text(self, path: str) -> str | None:
        """Return the text of a file; None for rows, whose lines are known, and if it is gone."""
        if path.endswith((".jsonl", ".ndjson")):
            return None
        if path not in self._texts:
            try:
                self._texts[path] = decoded(read_source(path, TEXT_BYTES))
            except (OSError, Unusable):
                self._texts[path] = None
        return self._texts[path]


def _line_of_words(text: str, value: str, first: int) -> int:
    """Return the line of words that YAML has folded or escaped, else that of the description."""
    words = value.split()[:_WORDS]
    while words:
        found = re.search(r"\s+".join(map(re.escape, words)), text)
        if found:
            return text.count("\n", 0, found.start()) + 1
        words = words[: len(words) // 2]
    found = _DESCRIPTION.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else first


def _offset(text: str, line: int) -> int:
    """Return the offset at which a line starts."""
    at = 0
    for _ in range(line - 1):
        at = text.find("\n", at) + 1
    return at
