"""The two ways in: `Router` picks from an index, `rerank` reorders what another retriever found."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from numbers import Real
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from crossgate import _cascade as cascade
from crossgate import _core
from crossgate._cascade import Request, Stage1
from crossgate._checks import check_ids, check_limit, check_query, check_request
from crossgate._clock import ENDLESS, Deadline, milliseconds
from crossgate._errors import InputError, RerankerError
from crossgate._index import Index, embedder_mismatch
from crossgate._model_files import models
from crossgate._model_files.models import PASSAGE_RERANKER, ROUTING_RERANKER
from crossgate._profile import MOST_CANDIDATES, Pool, Profile
from crossgate._types import (
    Candidate,
    Degradation,
    Document,
    ResultWarning,
    RouteResult,
    Vector,
    degradation,
)

if TYPE_CHECKING:
    from crossgate._embedding import Embedder
    from crossgate._reranking.contract import Reranker
    from crossgate._telemetry.events import TelemetryHook

    Tier = Reranker | str | PathLike[str]
    Tiers = Tier | Sequence[Tier | None] | None

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
            of stage 1 as it is. Of a sequence of these the first one that answers decides, so
            that each next one is what remains when those before it fail; None in it is left out.
        profile: Thresholds: a profile or its file; None for the file beside the index
            (`skills.profile.json` beside `skills.cgx`), or without one for the bundled profile,
            which applies to the bundled models; with any other model every query is reranked and
            the result says so.
        telemetry: Is told what happens in each decision; None for nobody.

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
        reranker: Tiers = "default",
        profile: Profile | str | PathLike[str] | None = None,
        telemetry: TelemetryHook | None = None,
    ) -> None:
        if embedder is not None and embedder.identity != index.embedder:
            raise embedder_mismatch("the index", index.embedder, embedder.identity)
        self.index = index
        self._embedder = embedder
        self._tiers = _tiers(reranker)
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._notes: tuple[Degradation, ...] = ()
        identities = [_identity(one, ROUTING_RERANKER) for one in self._tiers]
        if profile is None:
            profile = _beside(index)
        if profile is None:
            profile = Profile.from_file(DEFAULT_PROFILE)
            fitted = not identities or profile.reranker in identities
            if profile.embedder != index.embedder or not fitted:
                identity = next(iter(identities), None)
                self._notes = (_no_profile(index.embedder, identity),)
                profile = Profile()
        elif not isinstance(profile, Profile):
            profile = Profile.from_file(Path(profile))
        _check_models(profile, index.embedder or None, identities)
        self.profile = profile
        self._warnings = _other_corpus(profile, index)

    def route(
        self,
        query: str,
        *,
        limit: int | None = 2,
        vector: Vector | None = None,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        section: str | None = None,
        grade: str | None = None,
        budget_ms: float | None = None,
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
            section: What part of your work this is for: picks a floor of the profile. A section
                that has none gets the default floor, and the result says so.
            grade: How good you find the retrieval, `A` (best) to `F`. C, D and F relax the floor
                and widen the pool; an unknown one does nothing, and the result says so.
            budget_ms: Milliseconds that the decision may take, counted from here; None for any
                time. A tier of stage 2 that they are not enough for is left out, and `degraded`
                says so; with zero or less the order of stage 1 stands. Stage 1 always runs.

        Raises:
            InputError: `empty_query`, `query_too_long`, `invalid_text`, `out_of_range`,
                `no_documents` if the index is empty, or `wrong_dimension`, `not_finite` or
                `zero_vector` for a vector that is no direction.
        """
        return cascade.run(
            self._request(
                query,
                Deadline(budget_ms),
                limit=limit,
                vector=vector,
                allow=allow,
                deny=deny,
                section=section,
                grade=grade,
            )
        )

    async def aroute(
        self, query: str, *, budget_ms: float | None = None, **options: Any
    ) -> RouteResult:
        """Do what `route` does, with the same arguments, without holding up the event loop.

        A remote tier is awaited, and gives up its requests when this is cancelled; models run on
        threads of the loop's pool.
        """
        return await cascade.arun(self._request(query, Deadline(budget_ms), **options))

    def warm_up(self) -> None:
        """Load the models now, so that the first query does not wait for them.

        A remote tier is asked once, which opens its connection; that it may fail is no error.

        Raises:
            ModelError: If a model cannot be loaded or run.
        """
        if self.index.dimension:
            self._load_embedder().embed(["warm up"])
        from crossgate._reranking.contract import passages_of

        for load in self._loaders():
            with suppress(RerankerError):
                load().score("warm up", passages_of(["warm up"]), deadline=ENDLESS)

    def _request(
        self,
        query: str,
        deadline: Deadline,
        *,
        limit: int | None = 2,
        vector: Vector | None = None,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        section: str | None = None,
        grade: str | None = None,
    ) -> Request:
        check_query(query)
        check_limit(limit)
        check_request(section, grade)
        allowed = None if allow is None else check_ids("allow", allow)
        denied = check_ids("deny", deny)
        if not len(self.index):
            raise InputError(
                "no_documents", "the index is empty: add documents with Index.upsert first"
            )

        def search(embedding: Vector | None) -> Sequence[_core.Scored]:
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
                return Stage1(
                    scored=scored,
                    degraded=self._notes,
                    warnings=self._warnings,
                    timings=timings,
                )
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
            return Stage1(
                scored=scored, degraded=degraded, warnings=self._warnings, timings=timings
            )

        return Request(
            query=query,
            stage1=stage1,
            document=self.index.get,
            profile=self.profile,
            tiers=self._loaders(),
            limit=limit,
            section=section,
            grade=grade,
            deadline=deadline,
            telemetry=self._telemetry,
        )

    def _load_embedder(self) -> Embedder:
        with self._lock:
            if self._embedder is None:
                self._embedder = self.index.load_embedder()
            return self._embedder

    def _loaders(self) -> list[Callable[[], Reranker]]:
        return [partial(_load, one, ROUTING_RERANKER) for one in self._tiers]


def rerank(
    query: str,
    candidates: Iterable[str | Mapping[str, Any] | Document],
    *,
    limit: int | None = None,
    vector: Vector | None = None,
    reranker: Tiers = "default",
    profile: Profile | str | PathLike[str] | None = None,
    language: str = "english",
    section: str | None = None,
    grade: str | None = None,
    budget_ms: float | None = None,
    telemetry: TelemetryHook | None = None,
    keep_scores: bool = False,
) -> RouteResult:
    """Reorder the candidates that another retriever found, by the same cascade as `Router`.

    Stage 1 is BM25 over the candidates, blended with their cosines where every candidate brings
    one (or a vector, and the query's is given). Where every candidate brings a `score` instead,
    the retriever's order is stage 1. Without a profile the gate is off, since nobody fitted
    thresholds for these numbers: all candidates are reranked and come back in order.

    Args:
        query: What is wanted, at most 65,536 characters.
        candidates: Texts, `Candidate` or `Document` values, or mappings with the fields of a
            `Candidate`, of which only `text` is needed. A text without an id gets its position
            as id.
        limit: How many are selected at most; None for all that pass.
        vector: The query's embedding, to be compared with the candidates' vectors.
        reranker: Stage 2: a reranker, the name or folder of a model, a sequence of these as in
            `Router`, or None for stage 1 alone. By default ms-marco-MiniLM-L6 once it is pulled,
            or the bundled cross-encoder.
        profile: Thresholds fitted for these models and this retriever: a profile or its file.
        language: Snowball language of the stemmer, or `none`.
        section: Picks a floor of the profile, as in `Router.route`.
        grade: How good you find the retrieval, as in `Router.route`.
        budget_ms: Milliseconds that the decision may take, as in `Router.route`.
        telemetry: Is told what happens; None for nobody.
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
    return cascade.run(
        _request(
            query,
            candidates,
            Deadline(budget_ms),
            limit=limit,
            vector=vector,
            reranker=reranker,
            profile=profile,
            language=language,
            section=section,
            grade=grade,
            telemetry=telemetry,
            keep_scores=keep_scores,
        )
    )


async def arerank(
    query: str,
    candidates: Iterable[str | Mapping[str, Any] | Document],
    *,
    budget_ms: float | None = None,
    **options: Any,
) -> RouteResult:
    """Do what `rerank` does, with the same arguments, without holding up the event loop."""
    import asyncio  # a third of the whole import, and of no use to a hook

    deadline = Deadline(budget_ms)
    request = await asyncio.to_thread(_request, query, candidates, deadline, **options)
    return await cascade.arun(request)


def _request(
    query: str,
    candidates: Iterable[str | Mapping[str, Any] | Document],
    deadline: Deadline,
    *,
    limit: int | None = None,
    vector: Vector | None = None,
    reranker: Tiers = "default",
    profile: Profile | str | PathLike[str] | None = None,
    language: str = "english",
    section: str | None = None,
    grade: str | None = None,
    telemetry: TelemetryHook | None = None,
    keep_scores: bool = False,
) -> Request:
    check_query(query)
    check_limit(limit)
    check_request(section, grade)
    if isinstance(candidates, str | Mapping):
        raise InputError("malformed_candidate", "candidates is a single one: pass a list")
    found = [_candidate(place, one) for place, one in enumerate(candidates, start=1)]
    if profile is None:
        profile = Profile(pool=Pool(rerank_top_k=min(max(1, len(found)), MOST_CANDIDATES)))
    elif not isinstance(profile, Profile):
        profile = Profile.from_file(Path(profile))
    # Another retriever had its reasons: a candidate need not share a word with the query.
    profile = replace(profile, gate=replace(profile.gate, require_overlap=False))
    pulled = models.is_pulled(PASSAGE_RERANKER)
    default = PASSAGE_RERANKER if pulled else ROUTING_RERANKER
    tiers = _tiers(reranker)
    _check_models(profile, None, [_identity(one, default) for one in tiers])
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

    return Request(
        query=query,
        stage1=stage1,
        document=by_id.get,
        profile=profile,
        tiers=[partial(_load, one, default) for one in tiers],
        limit=limit,
        section=section,
        grade=grade,
        deadline=deadline,
        telemetry=telemetry,
    )


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


def _other_corpus(profile: Profile, index: Index) -> tuple[ResultWarning, ...]:
    """Return a warning where a profile was fitted on other documents than the index holds."""
    if not profile.corpora or index.fingerprint in profile.corpora:
        return ()
    detail = (
        f"profile {profile.name!r} was fitted on other documents: its bars may stand too high or "
        "too low for these; see what it does with `crossgate eval`, or fit it again with "
        "`crossgate calibrate`"
    )
    return (ResultWarning(code="other_corpus", detail=detail),)


def _beside(index: Index) -> Path | None:
    """Return the profile that was written for an index: it stands beside the index's file."""
    path = None if index.path is None else index.path.with_suffix(".profile.json")
    return path if path is not None and path.is_file() else None


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


def _tiers(reranker: Tiers) -> list[Tier]:
    """Return the tiers of stage 2 as a list, the preferred one first."""
    if reranker is None or isinstance(reranker, str | PathLike) or hasattr(reranker, "score"):
        return [] if reranker is None else [reranker]  # type: ignore[list-item]
    return [one for one in reranker if one is not None]


def _identity(tier: Tier, default: str) -> str | None:
    """Return who a tier is. Of the default only the manifest is read, not the model's file."""
    return models.identity(default) if tier == "default" else _load(tier, default).identity


def _check_models(profile: Profile, embedder: str | None, tiers: Sequence[str | None]) -> None:
    """Refuse a profile that was fitted for none of the tiers; one is enough."""
    fitted = (one for one in tiers if profile.settings_for(one) is not None)
    profile.check_models(embedder=embedder, reranker=next(fitted, next(iter(tiers), None)))


def _load(tier: Tier, default: str) -> Reranker:
    if not isinstance(tier, str | PathLike):
        return tier
    from crossgate._reranking.loading import load

    return load(default if tier == "default" else tier)


def _no_profile(embedder: str, reranker: str | None) -> Degradation:
    return Degradation(
        code="no_profile",
        detail=f"no thresholds are fitted for {embedder or 'an index without vectors'} and "
        f"{reranker or 'no reranker'}: the gate is off",
    )
