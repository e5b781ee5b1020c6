"""The two ways in: `Router` picks from an index, `rerank` reorders what another retriever found."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from numbers import Real
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from crossgate import _core, cascade, models
from crossgate.cascade import Stage1, degradation, milliseconds
from crossgate.checks import check_ids, check_limit, check_query
from crossgate.errors import InputError
from crossgate.index import Index, embedder_mismatch
from crossgate.models import PASSAGE_RERANKER, ROUTING_RERANKER
from crossgate.profile import Pool, Profile
from crossgate.types import Candidate, Degradation, Document, RouteResult

if TYPE_CHECKING:
    from crossgate.embedding import Embedder
    from crossgate.reranking import Reranker

# Retrievers with 32-bit floats report the cosine of a text with itself as 1.0000001.
_MOST_COSINE = 1 + 1e-5
_MOST_FLOAT = sys.float_info.max

DEFAULT_PROFILE = Path(__file__).parent / "profiles" / "default.json"


class Router:
    """Picks the documents of an index that fit a query, or none; threads may share it.

    Models are loaded when a query first needs them: a decision on a given vector that the gate
    takes alone loads none.

    Args:
        index: What to pick from. Changes to it are seen by the next query.
        embedder: What embeds queries; by default the model that made the index's vectors.
        reranker: Stage 2: a reranker, the name or folder of a model, or None to leave the order
            of stage 1 as it is.
        profile: Thresholds: a profile, its file, or None for the bundled one, which applies to
            the bundled models; with any other model every query is reranked and the result says
            so.

    Raises:
        IndexFileError: `embedder_mismatch` if the index was made by another embedder.
        ProfileError: If the profile cannot be read, or was fitted for other models.
        ModelError: If the reranker is given by a name or folder that cannot be used.
    """

    def __init__(
        self,
        index: Index,
        *,
        embedder: Embedder | None = None,
        reranker: Reranker | str | PathLike[str] | None = "default",
        profile: Profile | str | PathLike[str] | None = None,
    ) -> None:
        if embedder is not None and embedder.identity != index.embedder:
            raise embedder_mismatch("the index", index.embedder, embedder.identity)
        self.index = index
        self._embedder = embedder
        self._reranker = reranker
        self._lock = threading.Lock()
        self._notes: tuple[Degradation, ...] = ()
        identity = _identity(reranker, ROUTING_RERANKER)
        if profile is None:
            profile = Profile.from_file(DEFAULT_PROFILE)
            if profile.embedder != index.embedder or identity not in (profile.reranker, None):
                self._notes = (_no_profile(index.embedder, identity),)
                profile = Profile()
        elif not isinstance(profile, Profile):
            profile = Profile.from_file(Path(profile))
        profile.check_models(embedder=index.embedder or None, reranker=identity)
        self.profile = profile

    def route(
        self,
        query: str,
        *,
        limit: int | None = 2,
        vector: Sequence[float] | None = None,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
    ) -> RouteResult:
        """Decide which documents fit a query.

        Only bad input raises. A model that is missing or fails does not: the result says so in
        `degraded`, and rests on what did run.

        Args:
            query: What is wanted, at most 65,536 characters.
            limit: How many documents are selected at most; None for all that pass.
            vector: The query's embedding by the index's embedder, to save making it.
            allow: Consider only these ids; None for all.
            deny: Never consider these ids.

        Raises:
            InputError: `empty_query`, `query_too_long`, `invalid_text`, `out_of_range`,
                `no_documents` if the index is empty, or `wrong_dimension`, `not_finite` or
                `zero_vector` for a vector that is no direction.
        """
        check_query(query)
        check_limit(limit)
        allowed = None if allow is None else check_ids("allow", allow)
        denied = check_ids("deny", deny)
        if not len(self.index):
            raise InputError(
                "no_documents", "the index is empty: add documents with Index.upsert first"
            )

        def search(embedding: Sequence[float] | None) -> Sequence[_core.Scored]:
            return self.index._core.search(
                query,
                embedding,
                blend=self.profile.blend,
                per_channel=self.profile.pool.per_channel,
                allow=allowed,
                deny=denied,
            )

        def stage1() -> Stage1:
            start = perf_counter()
            if vector is not None or not self.index.dimension:
                scored = search(vector)
                timings = {"embed": 0.0, "search": milliseconds(start)}
                return Stage1(scored=scored, degraded=self._notes, timings=timings)
            degraded, embedded = self._notes, start
            try:
                embedding = self._load_embedder().embed([query])[0]
                embedded = perf_counter()
                if embedding is None:
                    raise ValueError("the embedder returned no vector")
                scored = search(embedding)
            except Exception as error:  # words can decide alone
                degraded = (*degraded, degradation("embedder", error))
                scored = search(None)
            timings = {"embed": (embedded - start) * 1000, "search": milliseconds(embedded)}
            return Stage1(scored=scored, degraded=degraded, timings=timings)

        return cascade.run(
            query,
            stage1,
            self.index.get,
            profile=self.profile,
            reranker=self._load_reranker,
            limit=limit,
        )

    async def aroute(self, query: str, **options: Any) -> RouteResult:
        """Do what `route` does, with the same arguments, on a thread of the event loop's pool."""
        import asyncio  # a third of the whole import, and of no use to a hook

        return await asyncio.to_thread(self.route, query, **options)

    def warm_up(self) -> None:
        """Load both models now, so that the first query does not wait for them.

        Raises:
            ModelError: If a model cannot be loaded or run.
        """
        if self.index.dimension:
            self._load_embedder().embed(["warm up"])
        reranker = self._load_reranker()
        if reranker is not None:
            reranker.score("warm up", ["warm up"])

    def _load_embedder(self) -> Embedder:
        with self._lock:
            if self._embedder is None:
                self._embedder = self.index.load_embedder()
            return self._embedder

    def _load_reranker(self) -> Reranker | None:
        return _load(self._reranker, ROUTING_RERANKER)


def rerank(
    query: str,
    candidates: Iterable[str | Mapping[str, Any] | Candidate],
    *,
    limit: int | None = None,
    vector: Sequence[float] | None = None,
    reranker: Reranker | str | PathLike[str] | None = "default",
    profile: Profile | str | PathLike[str] | None = None,
    language: str = "english",
    keep_scores: bool = False,
) -> RouteResult:
    """Reorder the candidates that another retriever found, by the same cascade as `Router`.

    Stage 1 is BM25 over the candidates, blended with their cosines where every candidate brings
    one (or a vector, and the query's is given). Where every candidate brings a `score` instead,
    the retriever's order is stage 1. Without a profile the gate is off, since nobody fitted
    thresholds for these numbers: all candidates are reranked and come back in order.

    Args:
        query: What is wanted, at most 65,536 characters.
        candidates: Texts, `Candidate` values, or mappings with its fields, of which only `text`
            is needed. A text without an id gets its position as id.
        limit: How many are selected at most; None for all that pass.
        vector: The query's embedding, to be compared with the candidates' vectors.
        reranker: Stage 2: a reranker, the name or folder of a model, or None for stage 1 alone.
            By default ms-marco-MiniLM-L6 once it is pulled, or the bundled cross-encoder.
        profile: Thresholds fitted for these models and this retriever: a profile or its file.
        language: Snowball language of the stemmer, or `none`.
        keep_scores: Take the candidates' scores, which must all be there and lie in [0, 1], for the
            blend of stage 1 as they are, as fusion and decay made them. The gate sees the cosines
            that there are all the same.

    Returns:
        The decision; no candidates give `nothing_relevant`, not an error.

    Raises:
        InputError: Bad input, as in `Router.route`; `malformed_candidate`, `duplicate_id` or
            `empty_document` naming the candidate.
        ProfileError: If the profile cannot be read, or was fitted for another reranker.
        ModelError: If the reranker is given by a name or folder that cannot be used.
    """
    check_query(query)
    check_limit(limit)
    if isinstance(candidates, str | Mapping):
        raise InputError("malformed_candidate", "candidates is a single one: pass a list")
    found = [_candidate(place, one) for place, one in enumerate(candidates, start=1)]
    if profile is None:
        profile = Profile(pool=Pool(rerank_top_k=max(1, len(found))))
    elif not isinstance(profile, Profile):
        profile = Profile.from_file(Path(profile))
    # Another retriever had its reasons: a candidate need not share a word with the query.
    profile = replace(profile, gate=replace(profile.gate, require_overlap=False))
    pulled = models.is_pulled(PASSAGE_RERANKER)
    default = PASSAGE_RERANKER if pulled else ROUTING_RERANKER
    profile.check_models(embedder=None, reranker=_identity(reranker, default))
    comparable = vector is not None and all(one.vector is not None for one in found)
    index = Index(_core.Index(language, "", len(vector or ()) if comparable else 0), None)
    index.upsert(one if comparable else replace(one, vector=None) for one in found)
    by_id = {one.id: one for one in found}
    if keep_scores:
        _check_kept_scores(found)

    def stage1() -> Stage1:
        start = perf_counter()
        scored: Sequence[_core.Scored] = index._core.search(
            query,
            vector if comparable else None,
            blend=profile.blend,
            per_channel=max(2, len(found)),
            allow=None,
            deny=set(),
        )
        if keep_scores:
            scored = _with_kept_scores(scored, by_id)
        elif not comparable:
            scored = _with_own_scores(scored, by_id, profile)
        return Stage1(scored=scored, timings={"search": milliseconds(start)})

    return cascade.run(
        query,
        stage1,
        by_id.get,
        profile=profile,
        reranker=lambda: _load(reranker, default),
        limit=limit,
    )


async def arerank(
    query: str, candidates: Iterable[str | Mapping[str, Any] | Candidate], **options: Any
) -> RouteResult:
    """Do what `rerank` does, with the same arguments, on a thread of the event loop's pool."""
    import asyncio

    return await asyncio.to_thread(rerank, query, candidates, **options)


def _candidate(place: int, given: object) -> Candidate:
    """Make a candidate of what the caller handed in; `place` counts from 1."""
    what = f"candidate {place}"
    if isinstance(given, str):
        return Candidate(id=str(place), text=given)
    if isinstance(given, Candidate):
        _check_numbers(what, given.cosine, given.score)
        return given
    if isinstance(given, Document):
        return Candidate(**{one.name: getattr(given, one.name) for one in fields(given)})
    if not isinstance(given, Mapping):
        raise InputError(
            "malformed_candidate",
            f"{what} is a {type(given).__name__}: pass a str, a mapping or a Candidate",
        )
    row = dict(given)
    ids = [one for one in (row.pop("id", None), row.pop("_id", None)) if one is not None]
    title, text = row.pop("title", None) or "", row.pop("text", None)
    metadata = row.pop("metadata", None) or {}
    kinds = (("title", title, str), ("text", text, str), ("metadata", metadata, Mapping))
    for field, value, kind in kinds:
        if not isinstance(value, kind):
            raise InputError(
                "malformed_candidate",
                f"the {field} of {what} is a {type(value).__name__}: it must be a {kind.__name__}",
            )
    vector, cosine, score = (row.pop(field, None) for field in ("vector", "cosine", "score"))
    _check_numbers(what, cosine, score)
    return Candidate(
        id=str(ids[0] if ids else place),
        title=title,
        text=text,
        metadata={**row, **metadata},
        vector=vector,
        cosine=None if cosine is None else float(cosine),
        score=None if score is None else float(score),
    )


def _check_numbers(what: str, cosine: Any, score: Any) -> None:
    for field, value, most in (("cosine", cosine, _MOST_COSINE), ("score", score, _MOST_FLOAT)):
        if value is None:
            continue
        # Comparing keeps a Python integer that no float can hold from overflowing, and NaN out.
        number = isinstance(value, Real)
        if not (number and -most <= value <= most):
            limits = "between -1 and 1" if field == "cosine" else "a finite number"
            raise InputError(
                "malformed_candidate", f"the {field} of {what} is {value!r}: it must be {limits}"
            )


def _with_own_scores(
    scored: Sequence[_core.Scored], by_id: Mapping[str, Candidate], profile: Profile
) -> Sequence[_core.Scored]:
    """Let what the retriever knows stand in for the vectors that are not there."""
    cosines = {id: one.cosine for id, one in by_id.items() if one.cosine is not None}
    scores = {id: one.score for id, one in by_id.items() if one.score is not None}
    if scored and len(cosines) == len(scored):
        scored = [one.with_cosine(cosines[one.id], profile.blend) for one in scored]
    elif scored and len(scores) == len(scored):
        # Only the order of a foreign scale can be trusted: best 1, then down in equal steps.
        ranks = _core.ranks(scored, [scores[one.id] for one in scored])
        scored = [
            _core.Scored(
                one.id,
                cosine=None,
                bm25=one.bm25,
                overlap=one.overlap,
                blend=1 - (rank - 1) / len(scored),
            )
            for one, rank in zip(scored, ranks, strict=True)
        ]
    return sorted(scored, key=lambda one: (-one.blend, one.id))


def _check_kept_scores(found: Iterable[Candidate]) -> None:
    for one in found:
        if one.score is None or not 0 <= one.score <= 1:
            raise InputError(
                "malformed_candidate",
                f"the score of candidate {one.id!r} is {one.score}: with keep_scores each must lie "
                "between 0 and 1",
            )


def _with_kept_scores(
    scored: Sequence[_core.Scored], by_id: Mapping[str, Candidate]
) -> Sequence[_core.Scored]:
    """Let the order that fusion and decay made stand, beside the cosines for the gate."""
    kept = []
    for one in scored:
        candidate = by_id[one.id]
        kept.append(
            _core.Scored(
                one.id,
                cosine=candidate.cosine if one.cosine is None else one.cosine,
                bm25=one.bm25,
                overlap=one.overlap,
                blend=candidate.score or 0.0,
            )
        )
    return sorted(kept, key=lambda one: (-one.blend, one.id))


def _identity(reranker: Reranker | str | PathLike[str] | None, default: str) -> str | None:
    """Return who stage 2 is. Of the default only the manifest is read, not the model's file."""
    if reranker == "default":
        return models.identity(default)
    made = _load(reranker, default)
    return None if made is None else made.identity


def _load(reranker: Reranker | str | PathLike[str] | None, default: str) -> Reranker | None:
    if reranker is None or not isinstance(reranker, str | PathLike):
        return reranker
    from crossgate.reranking import load

    return load(default if reranker == "default" else reranker)


def _no_profile(embedder: str, reranker: str | None) -> Degradation:
    return Degradation(
        code="no_profile",
        detail=f"no thresholds are fitted for {embedder or 'an index without vectors'} and "
        f"{reranker or 'no reranker'}: the gate is off",
    )
