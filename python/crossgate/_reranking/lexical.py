"""SemanticBM25: the blend of cosine and BM25 as a reranker of its own, the last resort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import crossgate._core as _core
from crossgate._reranking.contract import NO_DEADLINE, Deadline, PairScore
from crossgate._values.results import Passage, Vector

if TYPE_CHECKING:
    from crossgate._retrieval.embedding import Embedder


class SemanticBM25:
    """Scores by words and meaning: 70 % cosine, 30 % BM25 mapped to [0, 1).

    It needs neither a network nor a cross-encoder, and takes well under a millisecond for a pool.
    A passage's cosine is that of stage 1, where it has one; one without goes by its words alone.
    BM25 knows the passages only: a word that all of them share says nothing here, whatever it says
    in the whole index.

    Args:
        semantic_weight: Weight of the cosine; both are divided by their total.
        bm25_weight: Weight of the bounded BM25 score.
        pivot: The BM25 score that is mapped to 0.5.
        language: Snowball language of the stemmer, or `none`.
        embedder: What embeds query and passages where no passage has a cosine; None for BM25 alone
            there.

    Raises:
        ProfileError: `profile_malformed` for weights that mean nothing.
        InputError: `out_of_range` for a language that there is no stemmer for.
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
        """Never for a cut of the pool: words and vectors cost nothing, and want candidates."""
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
        asked: Vector | None = None
        vectors: Sequence[Vector | None] = [None] * len(passages)
        known = any(passage.cosine is not None for passage in passages)
        if self._embedder is not None and passages and not known:
            asked, *vectors = self._embedder.embed([query, *(passage.text for passage in passages)])
            # Texts of nothing but white space have none.
            if asked is None or any(vector is None for vector in vectors):
                asked, vectors = None, [None] * len(passages)
        index = _core.Index(self._language, "", 0 if asked is None else len(asked))
        rows = enumerate(zip(passages, vectors, strict=True))
        index.upsert(
            [
                (str(position), "", passage.text, "", [], "{}", vector)
                for position, (passage, vector) in rows
            ]
        )
        most = max(2, len(passages))
        hits, _ = index.search(query, asked, blend=self._blend, per_channel=most)
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
