"""Passages of long texts, and windows: the passages of a text that fit a query best, by BM25."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import mul
from typing import NamedTuple

import crossgate._core as _core
from crossgate._values.results import Document, Vector, content

BODY_CHARS = 6_000
"""Characters of a body that are indexed; the default profile was fitted on bodies cut there."""

PASSAGE_CHARS = 800
"""Maximum characters of a passage, so that a reranker reads it whole with head and query."""

_LONGEST_CONTEXT = 200
"""Characters of a heading, or of a table's header, that is repeated for later passages."""

_LINE = re.compile(r".*\n|.+")
# Carets follow the tildes of a traceback, and no language begins with them.
_FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}(?!~*\^)")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?=[ \t]|$)")
_INDENTED = 4
"""Columns of indentation, from the text of the list item around it, that make a line code."""
_NESTED = 8
"""Maximum number of list items that begin on one line; a line may consist of their marks."""

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]")

_SENTENCE = re.compile(
    r"(?<=[.!?\u2026])\s+"
    r"|(?<=[.!?\u2026][\"')\]\u2019\u201d])\s+"  # a closing quote or bracket in between
    r"|(?<=[\u3002\uff01\uff1f])"  # Chinese and Japanese: no space follows
)
_WORD = re.compile(r"\s+")
_ROW = re.compile(r"\n")
_PROSE = (_SENTENCE, _ROW, _WORD)
_CODE = (_ROW, _WORD)


def passages(
    body: str, *, max_chars: int = BODY_CHARS, passage_chars: int = PASSAGE_CHARS
) -> list[tuple[int, int]]:
    """Return start and end of each passage of a body, without white space at its ends.

    A passage holds as many sections of Markdown as fit, so that a heading stays with its text; a
    longer section is cut as in `pieces`.

    Args:
        body: The body.
        max_chars: Characters of the body that are split, from its start.
        passage_chars: Maximum characters of a passage.
    """
    spans = []
    start = 0
    parts = (piece for part in _sections(body[:max_chars]) for piece in pieces(part, passage_chars))
    for piece in _pack([(part, ()) for part in parts], passage_chars):
        text = piece.strip()
        if text:
            first = start + piece.index(text)
            spans.append((first, first + len(text)))
        start += len(piece)
    return spans


def _sections(text: str) -> Iterator[str]:
    """Yield the text in parts, each but the first of which starts with a heading."""
    section = ""
    for fence, line in fenced(text):
        if not fence and _HEADING.match(line) and section:
            yield section
            section = ""
        section += line
    yield section


def pieces(text: str, max_chars: int, *, fences: bool = True) -> list[str]:
    """Cut text into pieces of at most `max_chars` characters that concatenate to the text.

    Cuts fall between paragraphs; a longer paragraph is cut between sentences, then lines, then
    words, and only a longer word inside. A fenced code block that fits is one paragraph, and one
    that does not is cut between its lines.
    """
    if len(text) <= max_chars:
        return [text] if text else []
    lines = fenced(text) if fences else ((0, line) for line in _LINE.findall(text))
    blocks = groupby(lines, key=lambda pair: (pair[0], not pair[0] and not pair[1].strip()))
    units = [
        ("".join(line for _, line in block), _CODE if fence else _PROSE)
        for (fence, _), block in blocks
    ]
    return _pack(units, max_chars)


def _pack(units: Sequence[tuple[str, tuple[re.Pattern[str], ...]]], max_chars: int) -> list[str]:
    """Join units up to `max_chars`; cut a longer one at the first pattern that comes with it."""
    packed: list[str] = []
    current = ""
    for unit, patterns in units:
        if len(current) + len(unit) <= max_chars:
            current += unit
            continue
        if current:
            packed.append(current)
        if len(unit) <= max_chars:
            current = unit
            continue
        if patterns:
            ends = [cut.end() for cut in patterns[0].finditer(unit)]
            edges = zip([0, *ends], [*ends, len(unit)], strict=True)
            parts = _pack([(unit[a:b], patterns[1:]) for a, b in edges], max_chars)
        else:
            parts = [unit[at : at + max_chars] for at in range(0, len(unit), max_chars)]
        packed += parts[:-1]
        current = parts[-1]
    return [*packed, current] if current else packed


def surroundings(body: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Return what each passage needs from the text before it: its heading, and its table's header.

    Lines of more than 200 characters are left out, so that the result stays small for any text.

    Args:
        body: The body.
        spans: Start and end of each passage, in order.
    """
    found: list[str] = []
    heading = ""
    table: list[str] = []
    at = 0
    for fence, line in fenced(body):
        at += len(line)
        is_heading = not fence and _HEADING.match(line) is not None
        is_row = not fence and line.lstrip().startswith("|")
        if not is_row:
            table = []
        while len(found) < len(spans) and spans[len(found)][0] < at:
            header = table[:2] if len(table) > 1 and not table[1].strip("|-: ") else []
            lines = header if is_heading else [heading, *header]
            found.append("\n".join(filter(None, lines)))
        if is_heading:
            heading = _short(line)
        if is_row and len(table) < 2:
            table.append(_short(line))
    return found


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _LONGEST_CONTEXT else ""


def fenced(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with the number of the fenced code block that it belongs to, or 0.

    As in CommonMark, a fence is indented by at most three columns, counted from the text of the
    list item that it is in, and one that is never closed runs to the end. Unlike there, a line to
    the left of a list item does not close the item's fence.
    """
    count = 0
    mark = ""
    columns: list[int] = []  # where the texts of the open list items start
    for line in _LINE.findall(text):
        if mark:
            yield count, line
            end = line.strip()
            if end.startswith(mark) and not end.strip(mark[0]):
                mark = ""
            continue
        opening = _opening(line, columns)
        if opening:
            count += 1
            mark = opening
        yield count if opening else 0, line


def _opening(line: str, columns: list[int]) -> str:
    """Return the fence that a line opens, or an empty string; update the open list items."""
    rest = line.expandtabs(_INDENTED).rstrip()
    text = rest.lstrip()
    column = len(rest) - len(text)
    if not text:
        return ""
    while columns and column < columns[-1]:
        columns.pop()
    for _ in range(_NESTED):
        if column - (columns[-1] if columns else 0) >= _INDENTED:
            break
        if fence := _FENCE.match(text):
            return fence[0]
        item = _ITEM.match(text)
        if not item:
            break
        after = text[item.end() :]
        text = after.lstrip()
        space = len(after) - len(text)
        space = space if 0 < space <= _INDENTED else 1
        column += item.end() + space
        columns.append(column)
    return ""


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
    query: str,
    documents: Iterable[Document],
    *,
    language: str = "english",
    check: Callable[[], None] = lambda: None,
) -> dict[str, Window]:
    """Return the windows of the long documents that fit a query best, by id.

    The idf of a term comes from all passages of these documents. If no passage of a document shares
    a term with the query, its first passages are used.

    Args:
        query: The query.
        documents: The documents; those that are not long are ignored.
        language: Snowball language of the stemmer, or `none`.
        check: Called before each document; it may raise.
    """
    room = min(WHOLE_PIECES, _INPUT_PIECES - min(_pieces(query), _QUERY_PIECES))
    spans: dict[str, list[tuple[int, int]]] = {}
    texts: dict[str, list[str]] = {}
    long: list[Document] = []
    for document in documents:
        check()
        if is_long(document, room):
            long.append(document)
            spans[document.id] = _passages(document, room)
            texts[document.id] = _texts(document, spans[document.id])
    if not long:
        return {}
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
        return found.replace(cosine=max(found.cosine, cosine_of(query, vectors[found.id])))

    return _core.reblend(list(map(read, scored)), profile.blend, evidence=profile.evidence)


def cosine_of(one: Vector, other: Vector) -> float:
    """Return the cosine of two vectors, in [-1, 1]; 0 for a vector of zeros."""
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
