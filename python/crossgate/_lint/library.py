"""What a check reads and returns: findings, places in files, terms and names of documents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from crossgate._core import analyze
from crossgate._sources.common import Unusable, decoded, printable
from crossgate._sources.reading import SourceLocation
from crossgate._support.files import read_source
from crossgate._support.limits import TEXT_BYTES
from crossgate._values.results import Document

Field = Literal["text", "body"]
Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""From the worst to the mildest."""

COMMON = 0.1
"""A term in at least this share of the heads is common."""

_CUT = 110
_WORDS = 8
_DESCRIPTION = re.compile(r"^description[ \t]*:", re.MULTILINE)
# A name of one word counts only after a verb such as "see" or "use".
_NAME = re.compile(
    r"(?P<sent>\b(?:see|use|load|run|prefer|try|to|by)\s+(?:the\s+)?)?[`/\[\"']*"
    r"(?P<name>\w+(?P<joined>(?:[-_]\w+)+)?)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One piece of evidence for a finding.

    Attributes:
        file: The file, as the user gave the path; None for a document without a file.
        line: 1-based line, or None if it is not known.
        text: The quoted words, shortened if they are long.
    """

    file: str | None
    line: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem in a library that hurts routing.

    Attributes:
        code: Identifier for programs; `docs/lint.md` lists all.
        severity: `error`, `warning` or `info`.
        id: The document to change; empty for a file that was not read.
        others: Ids of other documents involved.
        file: The document's file, as the user gave the path; None for a document without a file.
        line: 1-based line, or None if it is not known.
        message: One line that describes the problem.
        evidence: Quotations that show the problem.
        advice: One sentence with a suggested change.
        hurt: Size of the problem, in [0, 1]; comparable only within the same code.
    """

    code: str
    severity: Severity
    id: str
    others: tuple[str, ...]
    file: str | None
    line: int | None
    message: str
    evidence: tuple[Evidence, ...]
    advice: str
    hurt: float

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {**asdict(self), "hurt": round(self.hurt, 4)}


def cut(text: str, length: int = _CUT) -> str:
    """Return a text on one line, cut to a length."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


class Places:
    """Files and lines of documents by id; a file is read when its lines are first asked for."""

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

    def at(self, document: Document, field: Field, start: int, text: str) -> Evidence:
        """Return evidence at an offset of a field."""
        return Evidence(
            file=self.file(document.id), line=self.line(document, field, start), text=text
        )

    def finding(
        self,
        code: str,
        document: Document,
        message: str,
        evidence: Iterable[Evidence],
        advice: str,
        *,
        severity: Severity = "warning",
        others: Iterable[str] = (),
        hurt: float = 1.0,
        at_evidence: bool = False,
    ) -> Finding:
        """Return a finding about a document, on its first line or on that of the evidence."""
        quoted = tuple(evidence)
        return Finding(
            code=code,
            severity=severity,
            id=document.id,
            others=tuple(others),
            file=self.file(document.id),
            line=quoted[0].line if at_evidence else self.line(document, "text", 0),
            message=message,
            evidence=quoted,
            advice=advice,
            hurt=hurt,
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
        match = re.search(r"\s+".join(map(re.escape, words)), text)
        if match:
            return text.count("\n", 0, match.start()) + 1
        words = words[: len(words) // 2]
    match = _DESCRIPTION.search(text)
    return text.count("\n", 0, match.start()) + 1 if match else first


def _offset(text: str, line: int) -> int:
    """Return the offset at which a line starts."""
    at = 0
    for _ in range(line - 1):
        at = text.find("\n", at) + 1
    return at


class LibraryTerms:
    """The terms of all documents, made by the analysis that the index uses."""

    def __init__(self, documents: Iterable[Document], language: str) -> None:
        self._language = language
        self._documents = tuple(documents)

    def terms(self, text: str) -> set[str]:
        """Return the different terms of a text, without stop words."""
        return set(analyze(text, self._language))

    @cached_property
    def in_heads(self) -> Counter[str]:
        """Number of heads that contain each term."""
        return Counter(
            term for document in self._documents for term in self.terms(document.content)
        )

    def is_common(self, term: str) -> bool:
        """Return whether a term is in too many heads to distinguish them."""
        return self.in_heads[term] >= max(3, COMMON * len(self._documents))


class DocumentNames:
    """Finds the names of the documents of a library in a text."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._ids: dict[str, str] = {}
        for document in documents:
            # Ids are unique, titles may not be.
            self._ids.setdefault(document.title.lower(), document.id)
            self._ids[document.id.lower()] = document.id

    def named(self, text: str, owner: str) -> Iterator[tuple[str, str]]:
        """Yield the other documents that a text names: the name as written, and the id."""
        for word in _NAME.finditer(text):
            id = self._ids.get(word["name"].lower())
            if id is not None and id != owner and (word["joined"] or word["sent"]):
                yield word["name"], id
