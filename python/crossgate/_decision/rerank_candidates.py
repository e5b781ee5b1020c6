"""`rerank` reorders the candidates that another retriever found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Any, Unpack

import crossgate._core as _core
from crossgate._core import Combine, Policy, Profile
from crossgate._decision.cascade import Progress, Request, arun, decide_many, run
from crossgate._decision.context import Context, check_context, trace_of
from crossgate._decision.stage1 import (
    Candidates,
    Stage1,
    Steps,
    in_time,
    milliseconds,
    readable,
    spelling_warnings,
    with_history,
)
from crossgate._reranking.chain import Chain, load, unloaded
from crossgate._reranking.contract import Deadline
from crossgate._retrieval.document_index import Index, bundled_embedder, check_documents, is_blank
from crossgate._retrieval.passages import Window, windows
from crossgate._runtime import model_files
from crossgate._runtime.model_files import PASSAGE_RERANKER
from crossgate._support.checks import (
    check_confidence,
    check_kind,
    check_query,
    check_text,
    safe_repr,
)
from crossgate._support.errors import InputError, ModelError
from crossgate._support.limits import LANGUAGE_CHARS
from crossgate._support.wording import counted, share_of, type_of
from crossgate._values.inputs import candidate, check_kept_scores, read_prompt, unsplit
from crossgate._values.options import DecisionKeywords, DecisionOptions
from crossgate._values.profile_files import PASSAGE_PROFILE, as_policy, as_profile, read_profile
from crossgate._values.results import (
    Candidate,
    Degradation,
    Document,
    ResultWarning,
    RouteResult,
    Vector,
    degradation,
)

if TYPE_CHECKING:
    from crossgate._reranking.chain import Choice
    from crossgate._telemetry.events import TelemetryHook


BY_COSINE = Combine.ZScore(rerank_score=1.1)
"""How the bundled reranker and a blend with cosines are combined, whatever embedder made them.

The weight is above 1, so that the reranker decides between two candidates, whose standard scores
are always 1 and -1. Between 0.5 and 1.5, results for many candidates hardly differ
(`python eval/rerank_order.py`).
"""

# Number of candidates by which their language is detected, and characters of each.
_SAMPLE_TEXTS, _SAMPLE_CHARS = 160, 400


class RerankKeywords(DecisionKeywords, total=False):
    """The keyword arguments of `rerank`; `RerankOptions` describes them."""

    reranker: Choice
    profile: Profile | str | PathLike[str] | None
    policy: Policy | str | PathLike[str] | None
    language: str
    keep_scores: bool
    embed: bool | None
    telemetry: TelemetryHook | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankOptions(DecisionOptions):
    """The options of `rerank`: those of `DecisionOptions` except `allow` and `deny`, and these.

    Attributes:
        reranker: Stage 2: a reranker, the name or folder of a model, a sequence of these as in
            `Router`, or None for stage 1 alone. The default is the bundled
            crossgate-passages-minilm-l12, which was trained for passages.
        profile: Settings fitted for these models and this retriever: a profile or its file.
        policy: Chosen settings: a policy or its file.
        language: Snowball language of the stemmer, or `none`.
        keep_scores: Use the candidates' scores, for example from fusion or decay, as the blend of
            stage 1; every candidate needs one, in [0, 1]. The gate still uses the cosines.
        embed: Whether stage 1 embeds candidates that have neither cosines nor scores, with the
            bundled embedder. None embeds them if an uncommon word of the query occurs in none of
            them: then BM25 alone is unreliable.
        telemetry: Receives events; None for no telemetry.

    Raises:
        InputError: As `DecisionOptions`.
    """

    reranker: Choice = "default"
    profile: Profile | str | PathLike[str] | None = None
    policy: Policy | str | PathLike[str] | None = None
    language: str = "english"
    keep_scores: bool = False
    embed: bool | None = None
    telemetry: TelemetryHook | None = None

    def __post_init__(self) -> None:
        DecisionOptions.__post_init__(self)
        check_text("the language", self.language)
        check_kind("keep_scores", self.keep_scores, bool, "True or False")
        if self.embed is not None:
            check_kind("embed", self.embed, bool, "True, False, or None")


def rerank(
    query: str,
    candidates: Iterable[str | Mapping[str, Any] | Document],
    **options: Unpack[RerankKeywords],
) -> RouteResult:
    """Reorder the candidates that another retriever found, by the same cascade as `Router`.

    Stage 1 is BM25 over the candidates, blended with their cosines if every candidate has one (or
    a vector, and the query's vector is given). If every candidate has a `score` instead, the
    retriever's order is stage 1. Cosines and rerank scores are combined as standard scores, an
    order and rerank scores by rank. Without a profile, all candidates are reranked, and the bundled
    profile for passages excludes irrelevant ones. With another reranker than the bundled one, no
    threshold applies, and `degraded` contains `no_profile`.

    Args:
        query: The query, at most 65,536 characters.
        candidates: Texts, `Candidate` or `Document` values, or mappings with the fields of a
            `Candidate`, of which only `text` is required. The default id is the position, from 0.
            One without text is the last hit, with relevance 0, and `dropped` is `empty`.
        options: The attributes of `RerankOptions`.

    Returns:
        The decision. Without candidates it is `nothing_relevant`, not an error.

    Raises:
        InputError: Bad input, as in `Router.route`; `malformed_candidate` or `duplicate_id`, with
            the candidate.
        ProfileError: If the profile cannot be read, or was fitted for another reranker.
        ModelError: If the reranker is given by a name or folder that cannot be used.
        TypeError: For an unknown option; it names `limit` for `k`, `top_k` and `top_n`.
    """
    return run(request(query, candidates, RerankOptions.of("rerank", options, RerankKeywords)))


async def arerank(
    query: str,
    candidates: Iterable[str | Mapping[str, Any] | Document],
    **options: Unpack[RerankKeywords],
) -> RouteResult:
    """Like `rerank`, with the same arguments, without blocking the event loop."""
    import asyncio

    chosen = RerankOptions.of("arerank", options, RerankKeywords)
    for model in unloaded(chosen.reranker):
        await asyncio.to_thread(load, model)
    return await arun(request(query, candidates, chosen))


def request(
    query: str,
    candidates: Iterable[str | Mapping[str, Any] | Document],
    options: RerankOptions,
    rerankers: Chain | None = None,
    deadline: Deadline | None = None,
    notes: tuple[Degradation, ...] = (),
) -> Request:
    """Check the query and the candidates, and return the request that the cascade decides.

    Args:
        query: The query.
        candidates: The candidates.
        options: What the caller has chosen.
        rerankers: The rerankers of `options`, if they are loaded already.
        deadline: When the query must be decided, if that is known already.
        notes: What did not run as configured when the candidates were found.
    """
    started = perf_counter()
    deadline = Deadline(options.budget_ms) if deadline is None else deadline
    check_query(query)
    material = options.material
    prompt = unsplit(query) if material is None else read_prompt(query, material)
    documents = _documents(candidates)
    check_documents(documents, empty=True)
    if options.keep_scores:
        check_kept_scores(documents)
    if rerankers is None:
        rerankers = Chain(options.reranker, PASSAGE_RERANKER)
    if options.context is not None:
        check_context(options.context)
    search = _CandidateSearch(prompt.searched, documents, options, deadline)
    if options.profile is None or options.profile == PASSAGE_PROFILE:
        fitted = _default_profile(rerankers.identities, search)
        if fitted.reranker is None:
            notes = (*notes, rerankers.no_profile(""))
    else:
        fitted = as_profile(options.profile)
        rerankers.check_fitted(fitted, None)
    check_confidence(options.min_confidence, fitted)
    return Request(
        prompt=prompt,
        options=options,
        stage1=partial(search.run, fitted, notes),
        profile=fitted,
        policy=options.with_guardrails(as_policy(options.policy)),
        rerankers=rerankers,
        deadline=deadline,
        telemetry=options.telemetry,
        started=started,
    )


def _documents(candidates: Iterable[str | Mapping[str, Any] | Document]) -> list[Candidate]:
    if isinstance(candidates, str | Mapping) or not isinstance(candidates, Iterable):
        what = "a single one" if isinstance(candidates, str | Mapping) else safe_repr(candidates)
        raise InputError("malformed_candidate", f"candidates is {what}: pass a list")
    return [candidate(position, row) for position, row in enumerate(candidates)]


class _CandidateSearch:
    """Stage 1 over the candidates of one call.

    Args:
        query: The query.
        candidates: The candidates, in the order of the retriever.
        options: What the caller has chosen.
        deadline: When the query must be decided.
    """

    def __init__(
        self,
        query: str,
        candidates: list[Candidate],
        options: RerankOptions,
        deadline: Deadline,
    ) -> None:
        language, embed = options.language, options.embed
        self.keep_scores = options.keep_scores
        self._context = options.context or Context()
        self._steps = steps = Steps(deadline)
        self.query, corrections = steps.corrected(query, candidates, language)
        self._language = language
        self._positions = {given.id: position for position, given in enumerate(candidates)}
        self._empty = [given for given in candidates if is_blank(given)]
        self.documents = [given for given in candidates if not is_blank(given)]
        self.warnings: list[ResultWarning] = [*spelling_warnings(corrections)]
        self._foreign = steps.run(
            lambda: _foreign_language(query, self.documents), None, "detect the language"
        )
        if self._foreign is not None:
            self._warn(
                "unsupported_language",
                f"the text is {self._foreign}, and the bundled models read English: no threshold "
                "applies; use a multilingual reranker",
            )
        self._vector = self._comparable(options.vector)
        self._cosines = self._complete("cosine", "the cosines are not used")
        self._scores = self._complete("score", "the others rank behind them")
        if self.has_cosines or self.has_scores or self.keep_scores:
            self.embeds = False
        elif embed is not None:
            self.embeds = embed
        else:
            self.embeds = steps.run(
                lambda: _has_unknown_words(
                    self.query, self.documents, language, steps.deadline.check
                ),
                False,
                "look for words that no candidate has: the candidates are not embedded",
            )

    @property
    def has_cosines(self) -> bool:
        """Whether every candidate has a cosine, or a vector to compare."""
        return self._vector is not None or len(self._cosines) == len(self.documents) > 0

    @property
    def has_own_cosines(self) -> bool:
        """Whether every candidate has a cosine of the bundled embedder that says what is in it."""
        own = model_files.identity(model_files.EMBEDDER)
        known = all(document.embedder == own for document in self.documents)
        embedded = self.embeds or (self._vector is None and self.has_cosines and known)
        return embedded and not any(document.body for document in self.documents)

    @property
    def has_scores(self) -> bool:
        """Whether the retriever scored candidates."""
        return bool(self._scores)

    @property
    def is_foreign(self) -> bool:
        """Whether the query or most candidates are in another language than English."""
        return self._foreign is not None

    def run(self, profile: Profile, notes: tuple[Degradation, ...]) -> Stage1:
        """Score the candidates; when time runs out, keep the order of the retriever."""
        start = perf_counter()
        steps = self._steps
        searched = steps.run(
            lambda: in_time(lambda: self._search(profile), steps.deadline, "stage1"),
            None,
            "score the candidates: the retriever's order was kept",
        )
        is_late = searched is None
        if searched is None:
            unread = [_unread(document.id) for document in self.documents]
            searched = Candidates(unread, {}, None), {}
        (_, _, _, conversation, failed), chosen = searched
        scored: Sequence[_core.Scored] = searched[0].scored
        if is_late or self.keep_scores or self._vector is None:
            scored = self._with_given_scores(scored, profile, is_late=is_late)
        if profile.relevance.stage2 is not None and not is_late:
            unchecked = scored
            scored = steps.run(
                lambda: self._with_coverage(unchecked, chosen, profile),
                unchecked,
                "compare words, numbers and dates with those of the query",
            )
        return Stage1(
            scored=scored,
            documents={document.id: document for document in self.documents},
            degraded=(*notes, *steps.skipped, *failed),
            warnings=tuple(self.warnings),
            timings={"search": milliseconds(start)},
            indexes=self._positions,
            windows=chosen,
            empty=self._empty,
            corrected=self.query,
            read=conversation.read_with(self.query) if conversation.goes_on else "",
            context={} if self._context == Context() else trace_of(self._context, conversation),
        )

    def _comparable(self, vector: Vector | None) -> Vector | None:
        """Return the query's vector if every candidate has one too; warn about unused vectors."""
        having = sum(document.vector is not None for document in self.documents)
        if vector is not None and having == len(self.documents):
            return vector
        if having and vector is None:
            self._warn(
                "vectors_unused", f"{counted(having, 'candidate')} with a vector: pass the query's"
            )
        elif vector is not None and self.documents:
            self._warn(
                "vectors_unused",
                f"only {share_of(having, len(self.documents), 'candidate')} with a vector: all "
                "need one to be compared with the query's",
            )
        return None

    def _complete(self, name: str, effect: str) -> dict[str, float]:
        """Return the candidates' values of a field by id; warn if only some have it."""
        values = {d.id: getattr(d, name) for d in self.documents if getattr(d, name) is not None}
        if 0 < len(values) < len(self.documents):
            self._warn(
                f"{name}s_missing",
                f"only {share_of(len(values), len(self.documents), 'candidate')} with a "
                f"{name}: {effect}",
            )
        return values

    def _warn(self, code: str, detail: str) -> None:
        self.warnings.append(ResultWarning(code=code, detail=detail))

    def _search(self, profile: Profile) -> tuple[Candidates, Mapping[str, Window]]:
        deadline = self._steps.deadline
        chosen = windows(self.query, self.documents, language=self._language, check=deadline.check)
        vector, vectors = self._vector, {d.id: d.vector for d in self.documents}
        failed: tuple[Degradation, ...] = ()
        if self.embeds:
            vector, vectors, failed = self._embedded(chosen)
        core = _core.Index(self._language, "", 0 if vector is None else len(vector))
        index = Index(core, None, body_chars=sys.maxsize)

        def documents() -> Iterator[Document]:
            for document in self.documents:
                deadline.check()
                own = None if vector is None else vectors[document.id]
                # Metadata is not stored here, so it may be of any type.
                stored = replace(document, vector=own, metadata={})
                only_body = not (stored.title.strip() or stored.text.strip())
                yield replace(stored, text=stored.body, body="") if only_body else stored

        index.upsert(documents())
        search = partial(
            index.search,
            blend=profile.blend,
            evidence=profile.evidence,
            technologies=self._context.technologies,
            per_channel=max(2, len(self.documents)),
            embed=False,
        )
        deadline.check()
        found = search(self.query, vector)
        candidates = with_history(
            Candidates(found.scored, found.documents, vector, degraded=failed),
            search,
            self.query,
            self._context,
            profile,
            compared=len(found.scored),
            embed=bundled_embedder().embed if self.embeds and vector is not None else None,
        )
        return candidates, chosen

    def _embedded(
        self, chosen: Mapping[str, Window]
    ) -> tuple[Vector | None, dict[str, Vector | None], tuple[Degradation, ...]]:
        """Return the vectors of query and candidates; of a long candidate, that of its windows."""
        texts = [
            chosen[document.id].embedded if document.id in chosen else document.content
            for document in self.documents
        ]
        deadline = self._steps.deadline
        stop = None if deadline.left is None else lambda _: deadline.check()
        try:
            query, *vectors = bundled_embedder().embed([self.query, *texts], progress=stop)
        except ModelError as error:  # BM25 decides alone
            return None, {}, (degradation("embedder", error),)
        return query, {d.id: vector for d, vector in zip(self.documents, vectors, strict=True)}, ()

    def _with_coverage(
        self, scored: Sequence[_core.Scored], chosen: Mapping[str, Window], profile: Profile
    ) -> Sequence[_core.Scored]:
        documents = {document.id: document for document in self.documents}
        texts = {
            found.id: chosen[found.id].text
            if found.id in chosen
            else readable(documents[found.id], found.passage)
            for found in scored
        }
        # The scores of a retriever have an unknown scale, to which nothing can be added.
        scale = None if self.has_scores or self.keep_scores else profile
        return _core.with_coverage(scored, self.query, texts, self._language, scale)

    def _with_given_scores(
        self, scored: Sequence[_core.Scored], profile: Profile, *, is_late: bool
    ) -> Sequence[_core.Scored]:
        scores = dict(self._scores)
        if scores or (is_late and not self.keep_scores):
            # Candidates without a score keep the order of the retriever, behind the others.
            least = min(scores.values(), default=0.0)
            for behind, document in enumerate(self.documents, start=1):
                scores.setdefault(document.id, least - behind * max(1.0, abs(least)))
        return _core.with_external_scores(
            list(scored),
            cosines=self._cosines,
            scores=scores,
            keep=self.keep_scores,
            blend=profile.blend,
        )


def _foreign_language(query: str, documents: Sequence[Document]) -> str | None:
    """Return the language of the query or of most of the first candidates; None if unknown."""
    sample = "\n".join(document.content[:_SAMPLE_CHARS] for document in documents[:_SAMPLE_TEXTS])
    for text in (query[:LANGUAGE_CHARS], sample):
        language = _core.language(text)
        if language not in (None, "English"):
            return language
    return None


def _has_unknown_words(
    query: str, documents: Sequence[Document], language: str, check: Callable[[], None]
) -> bool:
    """Return whether an uncommon word of the query occurs in no candidate."""
    asked = {stem for stem in _core.analyze(query, language) if _core.information(stem) >= 1}
    for document in documents:
        check()
        if not asked:
            return False
        asked.difference_update(_core.analyze(document.content, language))
    return bool(asked)


def _unread(id: str) -> _core.Scored:
    return _core.Scored(id=id, cosine=None, bm25=0.0, overlap=0, blend=0.0, passage=None)


def _default_profile(rerankers: Sequence[str | None], search: _CandidateSearch) -> Profile:
    """Return the bundled profile for passages if it was fitted for the reranker, else an open gate.

    Args:
        rerankers: Identities of the rerankers, in order of preference.
        search: Stage 1, whose scores decide how they are combined with the reranker's.
    """
    bundled = read_profile(PASSAGE_PROFILE)
    fitted = bundled if rerankers and rerankers[0] == bundled.reranker else Profile()
    if search.keep_scores or not search.has_own_cosines:
        # Without cosines of its own embedder, it cannot predict the scores of stage 2.
        fitted = fitted.replace(anytime=None)
        if search.has_cosines and not search.keep_scores and fitted.reranker:
            fitted = fitted.replace(combine=BY_COSINE, runner_up=Profile().runner_up)
        elif search.keep_scores or search.has_scores:
            # The scale of the scores is unknown, so only their order counts.
            fitted = fitted.replace(combine=Profile().combine, runner_up=Profile().runner_up)
    if fitted.reranker and search.is_foreign:
        # The bundled models read English: other languages keep their order and meet no threshold.
        fitted = fitted.replace(
            answer=Profile().answer,
            relevance=fitted.relevance.replace(threshold=None),
            runner_up=Profile().runner_up,
            anytime=None,
        )
    return fitted.replace(pool=min(max(1, len(search.documents)), _core.MOST_CANDIDATES))


def rerank_many(
    queries: Iterable[tuple[str, Iterable[str | Mapping[str, Any] | Document]]],
    *,
    progress: Progress = True,
    **options: Unpack[RerankKeywords],
) -> list[RouteResult]:
    """Call `rerank` for each query and its candidates, on all cores.

    Args:
        queries: Pairs of a query and its candidates, such as `zip(queries, candidate_lists)`.
        progress: Called with the number of decisions made so far and the total; True for a bar on
            stderr if that is a terminal, False for none.
        options: As in `rerank`, except `vector`; they apply to every query.

    Returns:
        The decisions, in the order of the queries.

    Raises:
        InputError: As `rerank`, with the position of the first bad query, from 0;
            `malformed_candidate` for an element that is not a pair; `out_of_range` for the option
            `vector`, which cannot apply to every query.
    """
    if "vector" in options:
        raise InputError(
            "out_of_range",
            "vector applies to one query: give each candidate a cosine, or call rerank with each "
            "query and its vector",
        )
    chosen = RerankOptions.of("rerank_many", options, RerankKeywords)

    def decide(pair: tuple[str, Iterable[str | Mapping[str, Any] | Document]]) -> RouteResult:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(
                "malformed_candidate",
                f"{type_of(pair)} is not a pair: pass pairs of a query and its candidates",
            )
        return run(request(*pair, chosen))

    return decide_many(decide, queries, progress)
