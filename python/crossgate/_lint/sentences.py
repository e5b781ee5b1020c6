"""Extracts sentences of documents that should retrieve their own document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from crossgate._lint.names import DocumentNames
from crossgate._lint.rarity import LibraryTerms
from crossgate._retrieval.passages import fenced
from crossgate._values.results import Document

MOST = 8
"""Maximum number of sentences taken from a document's head, and from its body."""

SHORTEST = {"description": 4, "trigger": 2, "heading": 2, "line": 4}
"""Minimum number of different terms of a query, without stop words, by kind of sentence."""

BOILERPLATE = 3
"""A sentence that occurs in at least this many documents is boilerplate."""

_LONGEST = 300
_END = re.compile(r"(?<=[.!?…])[\"')\]”’]*\s+|(?<=[。！？])|\n+")
_PAUSE = re.compile(r"\s[—–-]\s|—|[;:]\s")
_QUOTED = re.compile(r"[\"“]([^\"“”\n]{4,80})[\"”]")
_EXCLUDES = re.compile(
    r"\b(?:do(?:es)? not|don['’]t|doesn['’]t|not for|never|not intended|will not|won['’]t|"
    r"cannot|instead|rather than|avoid|excludes?|skip|refuse|defer to|hand off|route)\b|"
    # The name of another document.
    r"\b(?:use|see|load|prefer|run) [`/\[]*\w+(?:[-_]\w+)+",
    re.IGNORECASE,
)
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*\n?$")
# The end of a paragraph, or of the first sentence in it.
_STOP = re.compile(r"(?<=[.!?…])[\"')\]”’]*\s|(?<=[。！？])|\n\s*(?:\n|[-*+|#>]|\d+[.)]|```|~~~)")
_PROSE = re.compile(r"(?=[^\W\d_]|[*`_\"“(])")
# An underscore inside a word is part of a name.
_MARKS = re.compile(r"[*`]+|(?<!\w)_+|_+(?!\w)|\[([^\]\n]*)\]\([^)\n]*\)")

SentenceKind = Literal["description", "trigger", "heading", "line"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence, trigger or heading of a document.

    Attributes:
        id: The document's id.
        kind: The kind of sentence.
        field: The field of the document.
        start: Offset of its first character in that field.
        end: Offset after its last character.
        text: The text, as written.
    """

    id: str
    kind: SentenceKind
    field: Literal["text", "body"]
    start: int
    end: int
    text: str

    @property
    def query(self) -> str:
        """The sentence as a query, without Markdown marks."""
        return " ".join(_MARKS.sub(r"\1", self.text).split())


def own_sentences(documents: Iterable[Document], words: LibraryTerms) -> list[Sentence]:
    """Return the sentences of each document, in the order of the documents.

    Exclusions, referrals to other documents, and sentences that name another document are left
    out, since another document should rank first for them.
    """
    listed = list(documents)
    names = DocumentNames(listed)
    sentences = [sentence for document in listed for sentence in _of_one(document, words, names)]
    seen = Counter({(sentence.id, sentence.query.lower()) for sentence in sentences})
    owners = Counter(query for _, query in seen)

    def is_own(sentence: Sentence) -> bool:
        return owners[sentence.query.lower()] < BOILERPLATE

    # Copies of a document keep their shared sentences, or they would have none.
    heads = {sentence.id for sentence in sentences if is_own(sentence) and sentence.field == "text"}
    return [
        sentence
        for sentence in sentences
        if is_own(sentence) or (sentence.field == "text" and sentence.id not in heads)
    ]


def split_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each sentence of a text, without surrounding white space."""
    start = 0
    for end in [*(match.end() for match in _END.finditer(text)), len(text)]:
        piece = text[start:end].strip()
        if piece:
            first = text.index(piece, start)
            yield first, first + len(piece)
        start = end


def excludes(sentence: str) -> bool:
    """Return whether a sentence is an exclusion or a referral to another document."""
    return bool(_EXCLUDES.search(sentence))


def _of_one(document: Document, words: LibraryTerms, names: DocumentNames) -> list[Sentence]:
    taken: list[Sentence] = []
    for sentences in (_head(document), _body(document)):
        kept: dict[str, Sentence] = {}
        for sentence in sentences:
            enough = len(words.terms(sentence.query)) >= SHORTEST[sentence.kind]
            if enough and not any(names.named(sentence.query, document.id)):
                kept.setdefault(sentence.query.lower(), sentence)
        taken += list(kept.values())[:MOST]
    return taken


def _head(document: Document) -> Iterator[Sentence]:
    """Yield the sentences of the description, and the phrases that it quotes."""
    text = document.text
    for start, end in split_sentences(text):
        sentence = text[start:end]
        if excludes(sentence):
            continue
        quoted = list(_QUOTED.finditer(sentence))
        base = Sentence(
            id=document.id, kind="description", field="text", start=start, end=end, text=sentence
        )
        if len(sentence) > _LONGEST:
            for first, last in _clauses(sentence):
                clause = sentence[first:last]
                yield replace(base, start=start + first, end=start + last, text=clause)
        elif len(quoted) < 2:
            yield base
        for quote in quoted:
            first, last = start + quote.start(1), start + quote.end(1)
            yield replace(base, kind="trigger", start=first, end=last, text=text[first:last])


def _clauses(sentence: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the parts of a long sentence that can stand alone."""
    start = 0
    for end in [*(match.end() for match in _PAUSE.finditer(sentence)), len(sentence)]:
        piece = sentence[start:end].strip()
        if piece and len(piece) <= _LONGEST:
            first = sentence.index(piece, start)
            yield first, first + len(piece)
        start = end


def _body(document: Document) -> Iterator[Sentence]:
    """Yield the headings of a body, and the first sentence below each."""
    wanted = True
    start = 0
    for fence, line in fenced(document.body):
        first, start = start, start + len(line)
        heading = None if fence else _HEADING.match(line)
        if heading:
            yield _cut(document, "heading", first + heading.start(1), first + heading.end(1))
            wanted = True
        elif wanted and not fence and line.strip():
            wanted = False
            stop = _STOP.search(document.body, first)
            piece = document.body[first : stop.start() if stop else len(document.body)].rstrip()
            if _PROSE.match(piece) and len(piece) <= _LONGEST and not excludes(piece):
                yield _cut(document, "line", first, first + len(piece))


def _cut(document: Document, kind: SentenceKind, start: int, end: int) -> Sentence:
    text = document.body[start:end]
    return Sentence(id=document.id, kind=kind, field="body", start=start, end=end, text=text)
