"""`SemanticBM25`: the blend of cosine and BM25 as a reranker, the last fallback of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import crossgate._core as _core
from crossgate._reranking.contract import NO_DEADLINE, Deadline, PairScore
from crossgate._values.results import Passage, Vector

if TYPE_CHECKING:
    from crossgate._retrieval.embedding import Embedder


class SemanticBM25:
    """Blend of 70 % cosine and 30 % BM25, mapped to [0, 1).

    Needs neither a network nor a cross-encoder, and takes less than a millisecond for a pool. The
    cosine of a passage is that of stage 1; without a cosine, BM25 alone scores it. BM25
    statistics come from the passages only, so a word that all passages share has no weight.

    Args:
        semantic_weight: Weight of the cosine; the two weights are normalised by their sum.
        bm25_weight: Weight of the bounded BM25 score.
        pivot: The BM25 score that is mapped to 0.5.
        language: Snowball language of the stemmer, or `none`.
        embedder: Embeds query and passages if no passage has a cosine; None to use BM25 alone.

    Raises:
        ProfileError: `profile_malformed` for invalid weights.
        InputError: `out_of_range` for a language without a stemmer.
    """

    name = "semantic-bm25"

    def __init__(
        self,
        *,
        semantic_weight: float = 0.7,
        bm25_weight: float = 0.3,
        pivot: float = 8.0,
        language: str = "english",
        embedder: Embedder | None = None,
    ) -> None:
        self._blend = _core.Blend(
            cosine_weight=semantic_weight, bm25_weight=bm25_weight, pivot=pivot
        )
        self._language = language
        self._embedder = embedder
        _core.analyze("", language)

    @property
    def available(self) -> bool:
        """False, so that the pool is not cut: scoring all candidates is cheap here."""
        return False

    @property
    def identity(self) -> str:
        """Name, share of the cosine, pivot, and language."""
        share = self._blend.cosine_weight / (self._blend.cosine_weight + self._blend.bm25_weight)
        return f"{self.name}@{share:g}/{self._blend.pivot:g}/{self._language}"

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline = NO_DEADLINE
    ) -> list[PairScore]:
        """Return one blend per passage, in [-1, 1].

        Raises:
            ModelError: If the embedder fails.
        """
        query_vector: Vector | None = None
        vectors: Sequence[Vector | None] = [None] * len(passages)
        has_cosines = any(passage.cosine is not None for passage in passages)
        if self._embedder is not None and passages and not has_cosines:
            texts = [passage.text for passage in passages]
            query_vector, *vectors = self._embedder.embed([query, *texts])
            # A text of white space has no vector.
            if query_vector is None or any(vector is None for vector in vectors):
                query_vector, vectors = None, [None] * len(passages)
        index = _core.Index(self._language, "", 0 if query_vector is None else len(query_vector))
        rows = enumerate(zip(passages, vectors, strict=True))
        index.upsert(
            [
                (str(position), "", passage.text, "", [], "{}", vector)
                for position, (passage, vector) in rows
            ]
        )
        most = max(2, len(passages))
        hits, _ = index.search(query, query_vector, blend=self._blend, per_channel=most)
        scored = {int(hit.id): hit for hit in hits}
        blended = _core.reblend(
            [
                scored[position].replace(cosine=passage.cosine)
                if passage.cosine is not None
                else scored[position]
                for position, passage in enumerate(passages)
            ],
            self._blend,
        )
        blends = {int(hit.id): hit.blend for hit in blended}
        return [PairScore(blends[position]) for position in range(len(passages))]
