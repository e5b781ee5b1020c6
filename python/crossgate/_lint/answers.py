"""Who answers a document's own sentence, when the document may not win by having written it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from crossgate._core import Blend
from crossgate._index import Index
from crossgate._lint.sentences import Sentence
from crossgate._lint.words import Words
from crossgate._types import Document, Vector

LEFT = 4
"""Different terms that a head keeps when one of its sentences is left out; else it stays whole."""

_POOL = 20

Progress = Callable[[int, int], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What stage 1 makes of one sentence.

    Attributes:
        sentence: The query.
        own: Score of the document that the sentence is from, the sentence left out of it.
        repeated: Its score as it is, with the sentence in it.
        others: Ids and scores of the other documents that came up, best first.
        whole: Whether the sentence could not be left out, since next to nothing would remain.
    """

    sentence: Sentence
    own: float
    repeated: float
    others: tuple[tuple[str, float], ...]
    whole: bool

    @property
    def place(self) -> int:
        """The place of the sentence's own document, from 1."""
        return 1 + sum(score > self.own for _, score in self.others)

    @property
    def ahead(self) -> tuple[str, ...]:
        """The ids of the documents before it, best first."""
        return tuple(id for id, score in self.others if score > self.own)


def ask(
    documents: Sequence[Document],
    sentences: Sequence[Sentence],
    index: Index,
    words: Words,
    blend: Blend,
    progress: Progress = None,
) -> list[Answer]:
    """Ask stage 1 every sentence, each time with the sentence left out of its own document.

    Otherwise every document would win its own sentences by repeating them, and nothing would show.

    Args:
        documents: The library, with the vectors of the index.
        sentences: The queries.
        index: A private index of the documents; it is changed, and then as it was.
        words: The library's words.
        blend: How stage 1 scores.
        progress: Called with the number of texts embedded so far and the total.
    """
    by_id = {one.id: one for one in documents}
    rests = [_without(by_id[one.id], one, words) for one in sentences]
    heads = [one.content for one in rests if one is not None and one.vector is None]
    vectors = _embedded([*(one.query for one in sentences), *heads], index, progress)
    found = []
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
        whole = rest is None
        found.append(
            Answer(sentence=sentence, own=own, repeated=repeated, others=others, whole=whole)
        )
    return found


def _without(document: Document, sentence: Sentence, words: Words) -> Document | None:
    """Return a document without one of its sentences, or None if too little of it would remain.

    The vector is that of the head: it stays where the sentence is of the body.
    """
    before: str = getattr(document, sentence.field)
    after = f"{before[: sentence.start]} {before[sentence.end :]}"
    if sentence.field == "body":
        return replace(document, body=after)
    if len(words.terms(after)) < LEFT:
        return None
    return replace(document, text=after, vector=None)


def _embedded(texts: Sequence[str], index: Index, progress: Progress) -> Mapping[str, Vector]:
    """Return the vectors of texts, each embedded once; none where the index has none."""
    if not index.dimension:
        return {}
    unique = sorted(set(texts))
    report = None if progress is None else lambda done: progress(done, len(unique))
    made = index.load_embedder().embed(unique, progress=report)
    return dict(zip(unique, made, strict=True))


def _scores(
    sentence: Sentence, vector: Vector | None, index: Index, blend: Blend
) -> dict[str, float]:
    """Return the scores of the best documents and of the sentence's own."""
    query = sentence.query
    found = index.search(query, vector, blend=blend, per_channel=_POOL).scored
    scores = {one.id: one.blend for one in found}
    if sentence.id not in scores:
        alone = index.search(query, vector, blend=blend, allow=[sentence.id]).scored
        scores[sentence.id] = alone[0].blend if alone else 0.0
    return scores
