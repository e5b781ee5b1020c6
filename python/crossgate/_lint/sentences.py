"""Sentences of documents as queries: each should retrieve its own document, without the sentence.

Otherwise every document would rank first for its own sentences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Literal

from crossgate._core import Blend
from crossgate._lint.library import DocumentNames, Evidence, Field, LibraryTerms, Places, cut
from crossgate._retrieval.document_index import Index
from crossgate._retrieval.passages import fenced
from crossgate._values.results import Document, Vector

MOST = 8
"""Maximum number of sentences taken from a document's head, and from its body."""

SHORTEST = {"description": 4, "trigger": 2, "heading": 2, "line": 4}
"""Minimum number of different terms of a query, without stop words, by kind of sentence."""

BOILERPLATE = 3
"""A sentence that occurs in at least this many documents is boilerplate."""

LEFT = 4
"""A sentence is left out of a head only if this many different terms remain in the head."""

_POOL = 20
_RELEVANT = 0.5
"""A score below this share of the usual best score counts as noise."""

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
Progress = Callable[[int, int], None] | None


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
    field: Field
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


def _pieces(text: str, end: re.Pattern[str] = _END) -> Iterator[tuple[int, int]]:
    """Yield start and end of each sentence, or other part, of a text, without white space."""
    start = 0
    for stop in [*(match.end() for match in end.finditer(text)), len(text)]:
        if piece := text[start:stop].strip():
            first = text.index(piece, start)
            yield first, first + len(piece)
        start = stop


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
    for start, end in _pieces(document.text):
        sentence = document.text[start:end]
        if _EXCLUDES.search(sentence):
            continue
        quoted = list(_QUOTED.finditer(sentence))
        if len(sentence) > _LONGEST:
            for first, last in _pieces(sentence, _PAUSE):
                if last - first <= _LONGEST:
                    yield _cut(document, "description", start + first, start + last, "text")
        elif len(quoted) < 2:
            yield _cut(document, "description", start, end, "text")
        for quote in quoted:
            yield _cut(document, "trigger", start + quote.start(1), start + quote.end(1), "text")


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
            if _PROSE.match(piece) and len(piece) <= _LONGEST and not _EXCLUDES.search(piece):
                yield _cut(document, "line", first, first + len(piece))


def _cut(
    document: Document, kind: SentenceKind, start: int, end: int, field: Field = "body"
) -> Sentence:
    text: str = getattr(document, field)
    return Sentence(
        id=document.id, kind=kind, field=field, start=start, end=end, text=text[start:end]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceResult:
    """The stage-1 result for one sentence.

    Attributes:
        sentence: The query.
        own: Score of the sentence's own document, with the sentence left out of it.
        repeated: Score of the whole document, with the sentence in it.
        others: Ids and scores of the other documents that were found, best first.
    """

    sentence: Sentence
    own: float
    repeated: float
    others: tuple[tuple[str, float], ...]

    @property
    def rank(self) -> int:
        """The rank of the sentence's own document, from 1."""
        return 1 + sum(score > self.own for _, score in self.others)

    @property
    def ahead(self) -> tuple[str, ...]:
        """The ids of the documents that rank before the sentence's own, best first."""
        return tuple(id for id, score in self.others if score > self.own)


def ask(
    documents: Sequence[Document],
    sentences: Sequence[Sentence],
    index: Index,
    words: LibraryTerms,
    blend: Blend,
    progress: Progress = None,
) -> list[SentenceResult]:
    """Run stage 1 on every sentence, each time with the sentence left out of its own document.

    The documents have the vectors of the index, which is private to the caller: it is changed
    during the call, and restored.
    """
    by_id = {document.id: document for document in documents}
    rests = [_without(by_id[sentence.id], sentence, words) for sentence in sentences]
    heads = [rest.content for rest in rests if rest is not None and rest.vector is None]
    queries = [sentence.query for sentence in sentences]
    vectors = _embedded([*queries, *heads], index, progress)
    answers = []
    for sentence, rest in zip(sentences, rests, strict=True):
        vector = vectors.get(sentence.query)
        scores = _scores(sentence, vector, index, blend)
        repeated = scores[sentence.id]
        if rest is not None:
            index.upsert([replace(rest, vector=vectors.get(rest.content, rest.vector))])
            scores = _scores(sentence, vector, index, blend)
            index.upsert([by_id[sentence.id]])
        own = scores.pop(sentence.id)
        others = tuple(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))
        answers.append(SentenceResult(sentence=sentence, own=own, repeated=repeated, others=others))
    return answers


def _without(document: Document, sentence: Sentence, words: LibraryTerms) -> Document | None:
    """Return a document without one of its sentences, or None if too little of it would remain.

    The vector is that of the head, so it stays the same if the sentence is in the body.
    """
    before: str = getattr(document, sentence.field)
    after = f"{before[: sentence.start]} {before[sentence.end :]}"
    if sentence.field == "body":
        return replace(document, body=after)
    if len(words.terms(after)) < LEFT:
        return None
    return replace(document, text=after, vector=None)


def _embedded(texts: Sequence[str], index: Index, progress: Progress) -> Mapping[str, Vector]:
    """Return the vectors of texts, each embedded once; none if the index has no vectors."""
    if not index.dimension:
        return {}
    unique = sorted(set(texts))
    report = None if progress is None else lambda done: progress(done, len(unique))
    vectors = index.load_embedder().embed(unique, progress=report)
    return dict(zip(unique, vectors, strict=True))


def _scores(
    sentence: Sentence, vector: Vector | None, index: Index, blend: Blend
) -> dict[str, float]:
    """Return the scores of the best documents and of the sentence's own."""
    query = sentence.query
    hits = index.search(query, vector, embed=False, blend=blend, per_channel=_POOL).scored
    scores = {scored.id: scored.blend for scored in hits}
    if sentence.id not in scores:
        alone = index.search(query, vector, embed=False, blend=blend, allow=[sentence.id]).scored
        scores[sentence.id] = alone[0].blend if alone else 0.0
    return scores


@dataclass(frozen=True)
class LintedLibrary:
    """A library with the stage-1 results of its sentences.

    Attributes:
        documents: The documents by id, in the order of the ids.
        words: The terms of the documents.
        answers: Stage-1 results of the sentences.
        places: Files and lines of the documents.
    """

    documents: dict[str, Document]
    words: LibraryTerms
    answers: list[SentenceResult]
    places: Places

    def evidence(self, sentence: Sentence, note: str = "") -> Evidence:
        """Return a sentence as evidence, followed by a note."""
        text = f'"{cut(sentence.query)}" {note}'.strip()
        return self.places.at(self.documents[sentence.id], sentence.field, sentence.start, text)

    @cached_property
    def by_owner(self) -> dict[str, list[SentenceResult]]:
        """The answers to each document's sentences; an empty list for a document without any."""
        owned: dict[str, list[SentenceResult]] = {id: [] for id in self.documents}
        for answer in self.answers:
            owned[answer.sentence.id].append(answer)
        return owned

    @cached_property
    def floor(self) -> float:
        """The smallest score at which a document counts as fitting a sentence.

        It is relative to this library, since scores differ between embedders.
        """
        best = [
            max(answer.own, answer.others[0][1] if answer.others else 0.0)
            for answer in self.answers
            if answer.sentence.field == "text"
        ]
        return _RELEVANT * median(best) if best else 0.0
