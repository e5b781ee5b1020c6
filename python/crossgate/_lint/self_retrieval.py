"""Stage-1 results for each document's own sentences, with the sentence left out of the document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from crossgate._core import Blend
from crossgate._lint.rarity import LibraryTerms
from crossgate._lint.sentences import Sentence
from crossgate._retrieval.document_index import Index
from crossgate._values.results import Document, Vector

LEFT = 4
"""A sentence is left out of a head only if this many different terms remain in the head."""

_POOL = 20

Progress = Callable[[int, int], None] | None


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

    Otherwise every document would rank first for its own sentences.

    Args:
        documents: The library, with the vectors of the index.
        sentences: The queries.
        index: A private index of the documents; changed during the call, and restored.
        words: The library's words.
        blend: The weights of stage 1.
        progress: Called with the number of texts embedded so far and the total.
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
    found = index.search(query, vector, embed=False, blend=blend, per_channel=_POOL).scored
    scores = {scored.id: scored.blend for scored in found}
    if sentence.id not in scores:
        alone = index.search(query, vector, embed=False, blend=blend, allow=[sentence.id]).scored
        scores[sentence.id] = alone[0].blend if alone else 0.0
    return scores
