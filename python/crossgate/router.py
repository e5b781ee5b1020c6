"""The two ways in: `Router` picks from an index, `rerank` reorders what another retriever found."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from crossgate import _core, cascade
from crossgate.cascade import Stage1, degradation, milliseconds
from crossgate.checks import check_limit, check_query, check_text
from crossgate.errors import InputError
from crossgate.index import Index, embedder_mismatch
from crossgate.profile import Pool, Profile
from crossgate.types import Candidate, Degradation, Document, RouteResult

if TYPE_CHECKING:
    from crossgate.embedding import Embedder
    from crossgate.reranking import Reranker

# Retrievers with 32-bit floats report the cosine of a text with itself as 1.0000001.
_MOST_COSINE = 1 + 1e-5

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
        identity = _reranker_identity(reranker)
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
        allowed, denied = None if allow is None else _ids("allow", allow), _ids("deny", deny)
        if not len(self.index):
            raise InputError(
                "no_documents", "the index is empty: add documents with Index.upsert first"
            )

        def stage1() -> Stage1:
            start = perf_counter()
            degraded, embedding = list(self._notes), vector
            if embedding is None and self.index.dimension:
                try:
                    embedding = self._load_embedder().embed([query])[0]
                except Exception as error:  # BM25 can decide alone
                    degraded.append(degradation("embedder", error))
            embedded = perf_counter()
            scored = self.index._core.search(
                query,
                embedding,
                blend=self.profile.blend,
                per_channel=self.profile.pool.per_channel,
                allow=allowed,
                deny=denied,
            )
            timings = {"embed": (embedded - start) * 1000, "search": milliseconds(embedded)}
            return Stage1(scored=scored, degraded=tuple(degraded), timings=timings)

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
        return _load_reranker(self._reranker)


def rerank(
    query: str,
    candidates: Iterable[str | Mapping[str, Any] | Candidate],
    *,
    limit: int | None = None,
    vector: Sequence[float] | None = None,
    reranker: Reranker | str | PathLike[str] | None = "default",
    profile: Profile | str | PathLike[str] | None = None,
    language: str = "english",
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
    found = [_candidate(place, one) for place, one in enumerate(candidates, start=1)]
    if profile is None:
        profile = Profile(pool=Pool(rerank_top_k=max(1, len(found))))
    elif not isinstance(profile, Profile):
        profile = Profile.from_file(Path(profile))
    if reranker == "default":
        from crossgate.reranking import passage_reranker

        reranker = passage_reranker()
    profile.check_models(embedder=None, reranker=_reranker_identity(reranker))
    dimension = len(vector) if vector is not None and found and found[0].vector is not None else 0
    index = Index(_core.Index(language, "", dimension), None)
    index.upsert(_without_vector(one) if not dimension else one for one in found)
    by_id = {one.id: one for one in found}

    def stage1() -> Stage1:
        start = perf_counter()
        scored: Sequence[_core.Scored] = index._core.search(
            query,
            vector if dimension else None,
            blend=profile.blend,
            per_channel=max(2, len(found)),
            allow=None,
            deny=set(),
        )
        if not dimension:
            scored = _with_own_scores(scored, by_id, profile)
        return Stage1(scored=scored, timings={"search": milliseconds(start)})

    return cascade.run(
        query,
        stage1,
        by_id.get,
        profile=profile,
        reranker=lambda: _load_reranker(reranker),
        limit=limit,
    )


async def arerank(
    query: str, candidates: Iterable[str | Mapping[str, Any] | Candidate], **options: Any
) -> RouteResult:
    """Do what `rerank` does, with the same arguments, on a thread of the event loop's pool."""
    return await asyncio.to_thread(rerank, query, candidates, **options)


def _candidate(place: int, given: object) -> Candidate:
    """Make a candidate of what the caller handed in; `place` counts from 1."""
    what = f"candidate {place}"
    if isinstance(given, str):
        return Candidate(id=str(place), text=given)
    if isinstance(given, Document):
        fields = ("id", "title", "text", "vector", "cosine", "score")
        row = {field: getattr(given, field, None) for field in fields}
        return _checked(what, row, given.metadata)
    if not isinstance(given, Mapping):
        raise InputError(
            "malformed_candidate",
            f"{what} is a {type(given).__name__}: pass a str, a mapping or a Candidate",
        )
    row = dict(given)
    row.setdefault("id", row.pop("_id", place))
    return _checked(what, row, row.pop("metadata", None) or {})


def _checked(what: str, row: dict[str, Any], metadata: Mapping[str, Any]) -> Candidate:
    """Make a candidate of its fields; what is no field of it joins the metadata."""
    id, title, text = str(row.pop("id")), row.pop("title", None) or "", row.pop("text", "")
    for field, value in (("title", title), ("text", text)):
        check_text(f"the {field} of {what}", value)
    vector = row.pop("vector", None)
    numbers = {field: row.pop(field, None) for field in ("cosine", "score")}
    for field, value in numbers.items():
        if value is not None and not (isinstance(value, Real) and math.isfinite(value)):
            raise InputError(
                "malformed_candidate",
                f"the {field} of {what} is {value!r}: it must be a finite number",
            )
    cosine, score = (None if one is None else float(one) for one in numbers.values())
    if cosine is not None and not -_MOST_COSINE <= cosine <= _MOST_COSINE:
        raise InputError(
            "malformed_candidate",
            f"the cosine of {what} is {cosine}: it must lie between -1 and 1; give a score of "
            "another scale as `score`",
        )
    return Candidate(
        id=id,
        title=title,
        text=text,
        metadata={**row, **metadata},
        vector=vector,
        cosine=cosine,
        score=score,
    )


def _without_vector(one: Candidate) -> Document:
    return Document(id=one.id, title=one.title, text=one.text)


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


def _reranker_identity(reranker: Reranker | str | PathLike[str] | None) -> str | None:
    """Return who stage 2 is, without loading or even hashing a model that has a name."""
    if reranker is None or not isinstance(reranker, str | PathLike):
        return None if reranker is None else reranker.identity
    from crossgate import models
    from crossgate.reranking import ROUTING_RERANKER, load

    name = ROUTING_RERANKER if reranker == "default" else str(reranker)
    return models.identity(name) or load(name).identity


def _load_reranker(reranker: Reranker | str | PathLike[str] | None) -> Reranker | None:
    if reranker is None or not isinstance(reranker, str | PathLike):
        return reranker
    from crossgate.reranking import ROUTING_RERANKER, load

    return load(ROUTING_RERANKER if reranker == "default" else reranker)


def _no_profile(embedder: str, reranker: str | None) -> Degradation:
    return Degradation(
        code="no_profile",
        detail=f"no thresholds are fitted for {embedder or 'an index without vectors'} and "
        f"{reranker or 'no reranker'}: the gate is off",
    )


def _ids(what: str, ids: Iterable[str]) -> set[str]:
    if isinstance(ids, str):
        raise InputError("out_of_range", f"{what} is one text: pass a list of ids")
    found = set(ids)
    for id in found:
        check_text(f"an id in {what}", id)
    return found
