"""Windows of long documents: the passages of a text that fit a query best, by BM25."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import NamedTuple

import crossgate._core as _core
from crossgate._retrieval.passages import BODY_CHARS, PASSAGE_CHARS, passages, surroundings
from crossgate._values.results import Document, Vector, content

WHOLE_CHARS = 1_200
"""Characters of a text that a reranker reads whole; a longer text is read in windows."""

WHOLE_PIECES = 400
"""Estimated word pieces of a text that a reranker reads whole beside a query of 100."""

EMBEDDED = 2
"""Best passages that are embedded together; stage 2 reads the best alone, not diluted by others."""

# An input of the bundled cross-encoders has 512 word pieces, of which a query takes half at most.
_INPUT_PIECES = 500
_QUERY_PIECES = 256
_WINDOW_SHARE = 0.75  # the rest is for title, heading and header
# Words have one piece, long words one more for two letters, numbers one for two digits, other
# scripts one for each letter, and Korean syllables one for each of their two or three letters.
_LATIN = r"[^\W\d_\u0370-\U0010ffff]"
_PIECE = re.compile(rf"\b{_LATIN}{{1,10}}|{_LATIN}{{1,2}}|\d{{1,2}}|\S")
_SYLLABLE = re.compile(r"[\uac00-\ud7a3]")


class Window(NamedTuple):
    """The part of a long document that stage 2 reads.

    Attributes:
        start: First character of the best passage, in the body, or in the text without a body.
        end: The character after its last one.
        text: The head and the best passage.
        embedded: The head and the best passages, the best first, since an embedder cuts the end.

    The texts also have the heading of a passage, and the header of a table that it continues.
    """

    start: int
    end: int
    text: str
    embedded: str


def is_long(document: Document, pieces: int = WHOLE_PIECES) -> bool:
    """Return whether stage 2 must read a document in windows.

    Args:
        document: The document.
        pieces: Word pieces for which the reranker has room.
    """
    if document.body:
        return len(document.body) > BODY_CHARS
    text = document.text
    return len(text) > WHOLE_CHARS or _pieces(text) > pieces


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
    room = min(WHOLE_PIECES, _INPUT_PIECES - min(_pieces(query), _QUERY_PIECES))
    long = [document for document in documents if is_long(document, room)]
    if not long:
        return {}
    spans = {document.id: _passages(document, room) for document in long}
    texts = {document.id: _texts(document, spans[document.id]) for document in long}
    index = _core.Index(language, "", 0)
    rows = [
        (f"{position}:{number}", "", text, "", (), "{}", None)
        for position, document in enumerate(long)
        for number, text in enumerate(texts[document.id])
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
            best = [texts[document.id][number] for number in ranked[:EMBEDDED]]
            chosen[document.id] = Window(
                *own[ranked[0]],
                _with_head(document, best[0]),
                _with_head(document, "\n".join(best)),
            )
    return chosen


def with_window_cosines(
    scored: Sequence[_core.Scored],
    chosen: Mapping[str, Window],
    query: Vector,
    vectors: Mapping[str, Vector],
    profile: _core.Profile,
) -> list[_core.Scored]:
    """Return the candidates, best blend first, with the cosines of their windows that are higher.

    Args:
        scored: The candidates; the vector of a long one has only the beginning of its text.
        chosen: The windows of long candidates, by id.
        query: The query's vector.
        vectors: The vector of each window, by id.
        profile: How cosine, BM25 and evidence are combined.
    """

    def read(found: _core.Scored) -> _core.Scored:
        if found.id not in chosen or found.cosine is None:
            return found
        return found.replace(cosine=max(found.cosine, _cosine(query, vectors[found.id])))

    return _core.reblend(list(map(read, scored)), profile.blend, evidence=profile.evidence)


def _cosine(one: Vector, other: Vector) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / lengths if lengths else 0.0


def _with_head(document: Document, read: str) -> str:
    return f"{document.content}\n{read}" if document.body else content(document.title, read)


def _texts(document: Document, spans: list[tuple[int, int]]) -> list[str]:
    """Return the passages, each behind the heading and the table's header that belong to it."""
    source = _source(document)
    before = surroundings(source, spans)
    return [
        "\n".join(filter(None, (lines, source[start:end])))
        for lines, (start, end) in zip(before, spans, strict=True)
    ]


def _source(document: Document) -> str:
    return document.body or document.text


def _passages(document: Document, room: int) -> list[tuple[int, int]]:
    source = _source(document)
    fitting = int(_WINDOW_SHARE * room * len(source) / max(1, _pieces(source)))
    return passages(source, max_chars=len(source), passage_chars=min(PASSAGE_CHARS, fitting))


def _pieces(text: str) -> int:
    """Return about how many word pieces a text has, without a tokenizer."""
    return len(_PIECE.findall(text)) + 2 * len(_SYLLABLE.findall(text))
