"""Fusion of the results of several retrievers into one ranked list."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import StrEnum
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import crossgate._core as _core
from crossgate._pipelines.hits import AnyHit, H, merged, score_of, text_of, vector_of, with_score
from crossgate._support.checks import (
    check_count,
    check_hits,
    check_number,
    check_numbers,
    check_text,
    safe_repr,
)
from crossgate._support.errors import InputError
from crossgate._values.results import Candidate

if TYPE_CHECKING:
    from crossgate._core import Profile
    from crossgate._reranking.contract import Reranker

_log = logging.getLogger("crossgate")

_Any = TypeVar("_Any", bound=Any)

RRF_K = 60.0
"""Constant of reciprocal rank fusion in the paper that introduced it."""


class Normalisation(StrEnum):
    """How the scores of one list are made comparable with those of another."""

    MIN_MAX = "min_max"
    """(s - min) / (max - min); 1 where all are equal (Montague and Aslam 2001)."""
    SUM = "sum"
    """Shifted to start at 0 and divided by their sum (Montague and Aslam 2001)."""
    Z_SCORE = "z_score"
    """(s - mean) / standard deviation (Montague and Aslam 2001, there ZMUV)."""
    THREE_SIGMA = "three_sigma"
    """The position between mean - 3 and mean + 3 standard deviations (Mazzeschi 2023)."""
    RANK = "rank"
    """(n - rank + 1) / n, whatever the scores: Borda count (Aslam and Montague 2001)."""


@runtime_checkable
class Fusion(Protocol):
    """Anything that merges several ranked lists into one.

    It is asynchronous, so that fusion may wait for a network or a model.
    """

    async def fuse(
        self, per_store: list[list[_Any]], *, k: int, query: str | None = None
    ) -> list[_Any]:
        """Return at most `k` hits, best first.

        Args:
            per_store: One list per store, best first; hits with the same `id` are one document.
            k: Maximum number of hits to return, at least 1.
            query: The query; fusion by ranks or scores ignores it.
        """


def reciprocal_rank(
    per_store: Sequence[Sequence[H]],
    *,
    k: int | None = None,
    k_param: float = RRF_K,
    weights: Sequence[float] | None = None,
) -> list[H]:
    """Fuse by rank: a document's score is the sum of weight / (k_param + rank) over its ranks.

    Ranks count from 1, and every occurrence of an id counts, also a second one in the same list.
    The terms of a sum are sorted before they are added, so scores and order are the same to the bit
    whatever the order of the stores. Ties go to the smaller id. Cormack, Clarke and Büttcher,
    "Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods" (2009).

    Args:
        per_store: One list per store, best first. Only the order counts, not the scores.
        k: Maximum number of hits to return; None for all.
        k_param: At least 0; the smaller, the more the first ranks stand out.
        weights: One per store, at least 0; None for equal weights.

    Returns:
        Copies of the hits with the fused `score`; of two with the same id the one that
        `crossgate._pipelines.hits.merged` chooses.

    Raises:
        InputError: `out_of_range` for `k`, `k_param` or weights outside their limits;
            `malformed_candidate` if a hit has no `id`, or no score can be set on it.
    """
    _check_lists(per_store, k, weights)
    check_number("k_param", k_param, 0)
    ids = [[_id(hit) for hit in hits] for hits in per_store]
    return _chosen(_core.fuse_ranks(ids, k_param=k_param, weights=_listed(weights)), per_store, k)


def fuse_scores(
    per_store: Sequence[Sequence[H]],
    *,
    k: int | None = None,
    normalisation: Normalisation | str = Normalisation.MIN_MAX,
    weights: Sequence[float] | None = None,
) -> list[H]:
    """Fuse by score: the weighted sum of each document's normalised scores.

    A list adds 0 for a document that it lacks, and with `z_score` the lowest of its normalised
    scores; an id that occurs twice in a list counts with its better rank. Scores are comparable
    within one call only.

    Args:
        per_store: One list per store, best first, each hit with a `score`, higher is better.
        k: Maximum number of hits to return; None for all.
        normalisation: How the scores of a list are normalised.
        weights: One per store, at least 0; None for equal weights.

    Raises:
        InputError: As `reciprocal_rank` does; `malformed_candidate` or `not_finite` for a score
            that is not a finite number, and `out_of_range` for an unknown normalisation.
    """
    _check_lists(per_store, k, weights)
    check_text("the normalisation", normalisation)
    rows = [[(_id(hit), score_of(hit)) for hit in hits] for hits in per_store]
    fused = _core.fuse_scores(rows, normalisation=str(normalisation), weights=_listed(weights))
    return _chosen(fused, per_store, k)


class RRFReranker:
    """Reciprocal rank fusion behind the `Fusion` protocol: no model, no query.

    Args:
        k_param: At least 0; the smaller, the more the first ranks stand out.
        weights: One per store, such as 0.3 for words and 0.7 for meaning; None for equal weights.
    """

    def __init__(self, k_param: float = RRF_K, *, weights: Sequence[float] | None = None) -> None:
        self.k_param = k_param
        self.weights = weights

    async def fuse(
        self, per_store: Sequence[Sequence[H]], *, k: int, query: str | None = None
    ) -> list[H]:
        """Do what `reciprocal_rank` does."""
        return reciprocal_rank(per_store, k=k, k_param=self.k_param, weights=self.weights)


class ScoreFusion:
    """Fusion of normalised scores behind the `Fusion` protocol: no model, no query.

    Args:
        normalisation: How the scores of a list are normalised.
        weights: One per store; None for equal weights.
    """

    def __init__(
        self,
        normalisation: Normalisation | str = Normalisation.MIN_MAX,
        *,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.normalisation = normalisation
        self.weights = weights

    async def fuse(
        self, per_store: Sequence[Sequence[H]], *, k: int, query: str | None = None
    ) -> list[H]:
        """Do what `fuse_scores` does."""
        return fuse_scores(per_store, k=k, normalisation=self.normalisation, weights=self.weights)


class CrossEncoderFusion:
    """A cross-encoder behind the `Fusion` protocol, through the same cascade as `rerank`.

    Reciprocal rank fusion makes the order of stage 1; the cross-encoder reads the first `pool`
    documents with the query. If it is missing or fails, the fused order is kept and a warning is
    logged.

    Args:
        reranker: As in `crossgate.rerank`.
        profile: As in `crossgate.rerank`; None for no gate, and ordering by the logits alone.
        pool: Maximum number of documents to read, at least 1.
    """

    def __init__(
        self,
        reranker: Reranker | str | PathLike[str] | None = "default",
        *,
        profile: Profile | str | PathLike[str] | None = None,
        pool: int = 50,
    ) -> None:
        check_count("the pool", pool)
        self.reranker = reranker
        self.profile = profile
        self.pool = pool

    async def fuse(
        self, per_store: Sequence[Sequence[H]], *, k: int, query: str | None = None
    ) -> list[H]:
        """Return the hits that the cascade selects, with its scores, on a thread of the pool.

        Raises:
            InputError: `empty_query` without a query; `empty_document` for a hit without text;
                otherwise as `reciprocal_rank` and `crossgate.rerank` do.
        """
        import asyncio

        return await asyncio.to_thread(self._fuse, per_store, k, query)

    def _fuse(self, per_store: Sequence[Sequence[H]], k: int, query: str | None) -> list[H]:
        from crossgate._core import Combine, Profile
        from crossgate._decision.rerank_candidates import rerank

        if query is None:
            raise InputError(
                "empty_query", "a cross-encoder reads the query: pass fuse(..., query=...)"
            )
        _check_lists(per_store, k, None)
        fused = reciprocal_rank(per_store, k=self.pool)
        # Combined with the fused order, a cross-encoder could hardly overturn it.
        ungated = Profile(combine=Combine.Replace(), pool=self.pool)
        result = rerank(
            query,
            [as_candidate(hit) for hit in as_shares(fused, stores=len(per_store))],
            limit=k,
            reranker=self.reranker,
            profile=self.profile or ungated,
            keep_scores=True,
        )
        for degradation in result.degraded:
            _log.warning("the fused order is kept, %s: %s", degradation.code, degradation.detail)
        by_id = {hit.id: hit for hit in fused}
        return [
            with_score(by_id[hit.id], hit.score) for hit in result.selected if hit.score is not None
        ]


def as_shares(fused: Sequence[H], *, stores: int, k_param: float = RRF_K) -> list[H]:
    """Divide scores of `reciprocal_rank` by the largest possible one: first in every store.

    The results lie in [0, 1] and mean the same for every query, unlike shares of the query's best
    score. Only a document that occurs twice in one list could get more, and is capped at 1.

    Args:
        fused: The hits that `reciprocal_rank` returned.
        stores: How many lists it fused.
        k_param: The `k_param` that it was called with.
    """
    most = stores / (k_param + 1)
    return [with_score(hit, min(1.0, score_of(hit) / most)) for hit in fused]


def as_candidate(hit: AnyHit) -> Candidate:
    """Return a hit of any kind as a candidate of the cascade, with its score.

    Raises:
        InputError: `empty_document` if the hit has no text; `malformed_candidate` if it has no
            score.
    """
    if isinstance(hit, Candidate):
        return hit
    text = text_of(hit)
    if not text:
        raise InputError(
            "empty_document",
            f"hit {hit.id!r} has no text: a cross-encoder needs `text`, `content`, `body`, "
            "`passage` or `chunk` on the hit or in its metadata",
        )
    return Candidate(id=hit.id, text=text, vector=vector_of(hit), score=score_of(hit))


def _chosen(
    fused: Sequence[tuple[str, float]], per_store: Sequence[Sequence[H]], k: int | None
) -> list[H]:
    """Return the hits of the first `k` ids, with their fused scores."""
    hits: dict[str, H] = {}
    for hit in (hit for found in per_store for hit in found):
        hits[hit.id] = merged(hits[hit.id], hit) if hit.id in hits else hit
    return [with_score(hits[id], score) for id, score in fused[:k]]


def _id(hit: object) -> str:
    id = getattr(hit, "id", None)
    if not isinstance(id, str) or not id:
        raise InputError(
            "malformed_candidate",
            f"a hit of type {type(hit).__name__} has the id {id!r}: it must be a string",
        )
    return id


def _check_lists(per_store: object, k: object, weights: object) -> None:
    if isinstance(per_store, str | bytes | Mapping) or not isinstance(per_store, Sequence):
        raise InputError(
            "malformed_candidate",
            f"per_store is {safe_repr(per_store)}: pass a list of hits per store",
        )
    for number, hits in enumerate(per_store, start=1):
        check_hits(f"list {number}", hits)
    if k is not None:
        check_count("k", k)
    if weights is not None:
        check_numbers("weights", weights, 0)


def _listed(weights: Sequence[float] | None) -> list[float] | None:
    return None if weights is None else list(weights)
