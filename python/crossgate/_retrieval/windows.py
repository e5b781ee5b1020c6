"""Windows of long documents: the passages of a text that fit a query best, by BM25."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import crossgate._core as _core
from crossgate._retrieval.passages import BODY_CHARS, PASSAGE_CHARS, passages
from crossgate._values.results import Document, content

WHOLE_CHARS = 1_200
"""Characters of a text that a reranker reads whole; a longer text is read in windows."""

WINDOWS = 2
"""Windows of a text that stage 2 reads, in one input; of a body it reads one with the head."""

# Latin text has about four characters per word piece, Chinese or Korean about one.
_DENSE = 4
_DENSE_FROM = "\u0e00"


class Window(NamedTuple):
    """The part of a long document that stage 2 reads.

    Attributes:
        start: First character of the best passage, in the body, or in the text without a body.
        end: The character after its last one.
        text: The head and the best passages, in the order of the document.
    """

    start: int
    end: int
    text: str


def is_long(document: Document) -> bool:
    """Return whether stage 2 must read a document in windows."""
    if document.body:
        return len(document.body) > BODY_CHARS
    return len(document.text) > WHOLE_CHARS // _density(document.text)


def windows(
    query: str, documents: Iterable[Document], *, language: str = "english"
) -> dict[str, Window]:
    """Return the windows of the long documents that fit a query best, by id.

    The idf of a term comes from all passages of these documents. If no passage of a document shares
    a term with the query, its first passages are used.

    Args:
        query: The query.
        documents: The documents; those that are not long are ignored.
        language: Snowball language of the stemmer, or `none`.
    """
    long = [document for document in documents if is_long(document)]
    if not long:
        return {}
    spans = {document.id: _passages(document) for document in long}
    index = _core.Index(language, "", 0)
    rows = [
        (f"{position}:{number}", "", _source(document)[start:end], "", (), "{}", None)
        for position, document in enumerate(long)
        for number, (start, end) in enumerate(spans[document.id])
    ]
    if not rows:
        return {}
    index.upsert(rows)
    scored, _ = index.search(query, None, per_channel=max(2, len(rows)))
    scores: Mapping[str, float] = {passage.id: passage.bm25 for passage in scored}
    chosen = {}
    for position, document in enumerate(long):
        own = spans[document.id]
        ranked = sorted(
            range(len(own)), key=lambda number: (-scores.get(f"{position}:{number}", 0.0), number)
        )
        if ranked:
            count = 1 if document.body else WINDOWS
            chosen[document.id] = _window(document, own, ranked[:count])
    return chosen


def _window(document: Document, spans: list[tuple[int, int]], best: list[int]) -> Window:
    source = _source(document)
    head = document.content if document.body else document.title
    read = "\n".join(source[start:end] for start, end in (spans[number] for number in sorted(best)))
    start, end = spans[best[0]]
    return Window(start, end, f"{head}\n{read}" if document.body else content(head, read))


def _source(document: Document) -> str:
    return document.body or document.text


def _passages(document: Document) -> list[tuple[int, int]]:
    source = _source(document)
    return passages(source, max_chars=len(source), passage_chars=PASSAGE_CHARS // _density(source))


def _density(text: str) -> int:
    """Return how many times more word pieces per character a text has than English."""
    start = text[:PASSAGE_CHARS]
    dense = sum(letter >= _DENSE_FROM for letter in start)
    return _DENSE if 2 * dense > len(start) else 1
