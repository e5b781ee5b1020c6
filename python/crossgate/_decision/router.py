"""`Router` selects the documents of an index that fit a query."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from heapq import nsmallest
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Unpack

import crossgate._core as _core
from crossgate._core import Policy, Profile
from crossgate._decision.cascade import Progress, Request, arun, decide_many, run
from crossgate._decision.context import check_context
from crossgate._decision.stage1 import Stage1, search_index
from crossgate._reranking.chain import Chain
from crossgate._reranking.contract import NO_DEADLINE, Deadline, passages_of
from crossgate._retrieval.document_index import Index, check_embedder, embedder_mismatch, id_of
from crossgate._retrieval.embedding import is_english
from crossgate._runtime import model_files
from crossgate._runtime.model_files import (
    EMBEDDER,
    PASSAGE_RERANKER,
    ROUTING_RERANKER,
    is_multilingual,
    languages_of,
)
from crossgate._support.checks import (
    check_confidence,
    check_prompt,
    check_text,
    is_empty,
)
from crossgate._support.errors import IndexFileError, InputError, RerankerError
from crossgate._support.limits import LANGUAGE_CHARS
from crossgate._support.wording import type_of
from crossgate._values.inputs import Prompt, read_prompt
from crossgate._values.options import DecisionOptions
from crossgate._values.profile_files import PASSAGE_PROFILE, as_policy, as_profile, read_profile
from crossgate._values.results import (
    Degradation,
    ResultWarning,
    RouteResult,
    degradation,
)

if TYPE_CHECKING:
    from crossgate._decision.explain import Explanation
    from crossgate._reranking.chain import Choice
    from crossgate._retrieval.embedding import Embedder
    from crossgate._telemetry.events import TelemetryHook
    from crossgate._values.options import RouteKeywords

_EMPTY_QUERY = ResultWarning(
    code="empty_query",
    detail="the query is empty, so nothing was searched: pass a prompt or question",
)


# How many documents of an index tell whether it holds passages; all of them would take too long.
_JUDGED = 16

DEFAULT_PROFILE = Path(__file__).parents[1] / "profiles" / "default.json"


class Router:
    """Selects the documents of an index that fit a query, or none; threads may share it.

    Models are loaded on first use: a query with a vector for which the gate skips stage 2 loads
    none.

    Args:
        index: The index, or its file. Changes to the index take effect with the next query.
        embedder: Embeds the queries; by default the model that made the index's vectors.
        reranker: Stage 2: a reranker, the name or folder of a model, or None to keep the order of
            stage 1. In a sequence, each reranker is the fallback of those before it, and None is
            ignored.
        profile: Fitted settings: a profile, its file, or the name of a bundled one. None uses the
            file next to the index (`skills.profile.json` for `skills.cgx`), or else `default`,
            which applies to the bundled models; with other models, every query is reranked, and
            `degraded` contains `no_profile`.
        policy: Chosen settings: a policy or its file; None switches off floors, fast paths and
            warnings.
        telemetry: Receives the events of each decision; None for no telemetry.

    Raises:
        InputError: `out_of_range` if `index` is not an index.
        IndexFileError: `embedder_mismatch` if the index was made by another embedder; as
            `Index.open` for a file.
        ProfileError: If profile or policy cannot be read, or the profile was fitted for other
            models.
        ModelError: If the reranker is given by a name or folder that cannot be used.
    """

    def __init__(
        self,
        index: Index | str | PathLike[str],
        *,
        embedder: Embedder | None = None,
        reranker: Choice = "default",
        profile: Profile | str | PathLike[str] | None = None,
        policy: Policy | str | PathLike[str] | None = None,
        telemetry: TelemetryHook | None = None,
    ) -> None:
        index = _as_index(index)
        if embedder is not None:
            check_embedder(embedder)
        if embedder is not None and embedder.identity != index.embedder:
            raise embedder_mismatch("the index", index.embedder, embedder.identity)
        self.index = index
        self._embedder = embedder
        self._telemetry = telemetry
        self._notes: tuple[Degradation, ...] = ()
        if profile is None:
            profile = profile_beside(index)
        if profile is None and _holds_passages(index):
            of_passages = Chain(reranker, PASSAGE_RERANKER)
            if model_files.identity(PASSAGE_RERANKER) in of_passages.identities:
                profile = PASSAGE_PROFILE
        fitted = None if profile is None else as_profile(profile)
        reads_passages = fitted is not None and _is_of_passages(fitted)
        self._rerankers = Chain(reranker, PASSAGE_RERANKER if reads_passages else ROUTING_RERANKER)
        if fitted is None:
            fitted = read_profile(DEFAULT_PROFILE)
            known = self._rerankers.identities
            if fitted.embedder != index.embedder or (known and fitted.reranker not in known):
                self._notes = (self._rerankers.no_profile(index.embedder),)
                fitted = Profile()
        self._passages = profile if reads_passages else None
        self.profile = fitted
        self.policy = as_policy(policy)
        self._rerankers.check_fitted(self.profile, index.embedder or None)
        self._warnings = _other_corpus(self.profile, index)

    def route(self, query: str, **options: Unpack[RouteKeywords]) -> RouteResult:
        """Decide which documents fit a query.

        Only bad input raises. If a model is missing or fails, `degraded` names it, and the decision
        uses the remaining parts. For an empty query, nothing fits, and the result has the warning
        `empty_query`.

        Args:
            query: The query, at most 65,536 characters.
            options: The attributes of `DecisionOptions`; `limit` is 2 by default.

        Raises:
            InputError: `query_too_long`, `invalid_text`, `out_of_range`,
                `no_documents` if the index is empty, or `wrong_dimension`, `not_finite` or
                `zero_vector` for a vector that cannot be compared.
            TypeError: For an unknown option; it names `limit` for `k`, `top_k` and `top_n`.
        """
        return run(self._request(query, self._options("route", options)))

    async def aroute(self, query: str, **options: Unpack[RouteKeywords]) -> RouteResult:
        """Like `route`, with the same arguments, without blocking the event loop.

        Remote rerankers are awaited, and cancellation cancels their requests; models run on threads
        of the loop's pool.
        """
        chosen = self._options("aroute", options)
        if self._passages is None:
            return await arun(self._request(query, chosen))
        import asyncio

        # The request is made of what the index finds.
        return await arun(await asyncio.to_thread(self._request, query, chosen))

    def _request(self, query: str, options: DecisionOptions) -> Request:
        """Check the query, and return the request that the cascade decides."""
        started = perf_counter()
        deadline = Deadline(options.budget_ms)
        check_prompt(query)
        check_confidence(options.min_confidence, self.profile)
        if options.context is not None:
            check_context(options.context)
        if not len(self.index):
            raise InputError(
                "no_documents", "the index is empty: add documents with Index.upsert first"
            )
        if self._passages is not None and not is_empty(query):
            return self._of_passages(query, options, deadline)
        prompt = read_prompt(query, options.material)
        return Request(
            prompt=prompt,
            options=options,
            stage1=partial(self._stage1, prompt, options, deadline),
            profile=self.profile,
            policy=options.with_guardrails(self.policy),
            rerankers=self._readers(prompt),
            require_overlap=True,
            deadline=deadline,
            telemetry=self._telemetry,
            started=started,
        )

    def _options(self, function: str, keywords: RouteKeywords) -> DecisionOptions:
        limit = 2 if self._passages is None else None
        return DecisionOptions.of(function, {"limit": limit, **keywords})

    def _of_passages(self, query: str, options: DecisionOptions, deadline: Deadline) -> Request:
        """Search for passages; the request to decide is that of `rerank` for what is found."""
        from crossgate._decision.rerank_candidates import RerankOptions, request

        search = partial(
            self.index.search,
            query,
            limit=self.profile.pool,
            technologies=() if options.context is None else options.context.technologies,
            allow=options.allow,
            deny=options.deny,
        )
        notes = self._notes
        try:
            vector = options.vector
            if vector is None and self._embedder is not None:
                vector = self._embedder.embed([query])[0]
            found = search(vector)
        except Exception as error:
            if options.vector is not None or isinstance(error, IndexFileError):
                raise
            # As over skills, BM25 decides alone.
            notes = (*notes, degradation("embedder", error))
            found = search(embed=False)
        given = {each.name: getattr(options, each.name) for each in fields(DecisionOptions)}
        return request(
            query,
            found.candidates,
            RerankOptions(
                **{**given, "vector": None},
                profile=self._passages,
                policy=self.policy,
                language=self.index.language,
                telemetry=self._telemetry,
            ),
            self._rerankers,
            deadline,
            notes,
        )

    def explain(self, query: str, id: str, **options: Unpack[RouteKeywords]) -> Explanation:
        """Decide a query, and explain at which step one document was lost, or that it is selected.

        The decision is that of `route`, without telemetry.

        Args:
            query: The query.
            id: Id of the document, or its title.
            options: As in `route`.

        Raises:
            InputError: As `route`; `unknown_document` if no document has this id or title.
        """
        from crossgate._decision.explain import explain

        check_text("the id", id)
        document = self.index[id_of(self.index, id)]
        chosen = self._options("explain", options)
        request = self._request(query, chosen)
        if document.id in chosen.deny:
            left_out = ("denied", "`deny` names it", "take it out of `deny`")
        elif chosen.allow is not None and document.id not in chosen.allow:
            left_out = ("not_allowed", "`allow` does not name it", "add it to `allow`")
        else:
            left_out = None
        return explain(replace(request, telemetry=None), document, left_out, self.index.nothing)

    def route_many(
        self,
        queries: Iterable[str],
        *,
        progress: Progress = True,
        **options: Unpack[RouteKeywords],
    ) -> list[RouteResult]:
        """Call `route` for each query, on all cores; results keep the order of the queries.

        Args:
            queries: The queries, each as `route` takes it.
            progress: Called with the number of decisions made so far and the total; True for a
                progress bar on stderr if that is a terminal, False for none.
            options: As in `route`, except `vector`; they apply to every query.

        Raises:
            InputError: As `route`, with the position of the first bad query, from 0; `out_of_range`
                for the option `vector`, which cannot apply to every query.
        """
        if "vector" in options:
            raise InputError(
                "out_of_range",
                "vector applies to one query: call route with each query and its vector",
            )
        chosen = self._options("route_many", options)
        return decide_many(lambda query: run(self._request(query, chosen)), queries, progress)

    def warm_up(self) -> None:
        """Load models and index, so that the first query does not wait for them.

        A remote reranker is called once, to open its connection; failures are ignored.

        Raises:
            IndexFileError: If a part of the index file is damaged.
            ModelError: If a model cannot be loaded or run.
        """
        self.index.load()
        if self.index.dimension:
            self._load_embedder().embed(["warm up"])
        for reranker in self._rerankers:
            with suppress(RerankerError):
                reranker.score("warm up", passages_of(["warm up"]), deadline=NO_DEADLINE)

    def _stage1(self, prompt: Prompt, options: DecisionOptions, deadline: Deadline) -> Stage1:
        if is_empty(prompt.text):
            return Stage1(scored=[], documents={}, warnings=(_EMPTY_QUERY,))
        stage1 = search_index(
            self.index, self._load_embedder, prompt, options, self.profile, deadline
        )
        unreadable, warnings = self._unreadable(prompt)
        return replace(
            stage1,
            unreadable=unreadable,
            degraded=(*self._notes, *stage1.degraded),
            warnings=(*self._warnings, *warnings, *stage1.warnings),
        )

    def _readers(self, prompt: Prompt) -> Chain:
        """Return the rerankers; none if only the embedder reads the language of the request.

        Their scores would be noise, and the order of stage 1 is sound.
        """
        english = all(name and languages_of(name) for name in self._rerankers.identities)
        if not english or not self.index.embedder.startswith(EMBEDDER) or not is_multilingual():
            return self._rerankers
        return self._rerankers if is_english(prompt.request) else Chain(None)

    def _unreadable(self, prompt: Prompt) -> tuple[bool, tuple[ResultWarning, ...]]:
        """Return whether stage 1 cannot read the request, and a warning if a model cannot."""
        models = [self.index.embedder, *self._readers(prompt).identities]
        limited = {name: languages for name in models if name and (languages := languages_of(name))}
        if not self.index.embedder and self.index.language == "english":
            limited["the index"] = ("English",)
        if not limited:
            return False, ()
        language = _core.language(prompt.request[:LANGUAGE_CHARS])
        unable = [
            f"{name.partition('@')[0]} reads {' and '.join(languages)} only"
            for name, languages in limited.items()
            if language is not None and language not in languages
        ]
        if not unable:
            return False, ()
        detail = (
            f"the query seems to be in {language}, but {' and '.join(unable)}: pip install "
            "'crossgate[multilingual]', or use an embedder and a reranker that read it "
            "(crossgate index --embedder FOLDER, route --reranker FOLDER)"
        )
        # An index without vectors compares words, in whatever language.
        unreadable = bool(self.index.embedder) and language not in (
            limited.get(self.index.embedder) or (language,)
        )
        return unreadable, (ResultWarning(code="unsupported_language", detail=detail),)

    def _load_embedder(self) -> Embedder:
        return self.index.load_embedder() if self._embedder is None else self._embedder


def _is_of_passages(profile: Profile) -> bool:
    """Return whether a profile weighs coverage, which is known for the candidates of `rerank`."""
    model = profile.relevance.stage2
    return model is not None and any((model.covered, model.rarest, model.facts))


def _holds_passages(index: Index) -> bool:
    """Return whether an index holds passages, judged by the documents with the first ids.

    A passage is a part of a file that `crossgate index` has split, whose metadata has its line, or
    a text without a title. A title of several words can be that of a skill or a tool.
    """
    first = [index.get(id) for id in nsmallest(_JUDGED, index.ids)]
    return bool(first) and all(
        document is not None
        and not document.is_read_as_description()
        and ("line" in document.metadata or not document.title)
        for document in first
    )


def _as_index(given: object) -> Index:
    if isinstance(given, Index):
        return given
    if isinstance(given, str | PathLike):
        return Index.open(given)
    raise InputError(
        "out_of_range",
        f"index must be an Index or the path of its file, not {type_of(given)}; "
        "Index.build(documents) creates one from documents or texts",
    )


def _other_corpus(profile: Profile, index: Index) -> tuple[ResultWarning, ...]:
    """Return a warning if a profile was fitted on other documents than those of the index."""
    if not profile.corpora or index.fingerprint in profile.corpora:
        return ()
    detail = (
        f"profile {profile.name!r} was fitted on other documents: its thresholds may not suit "
        "these; evaluate the profile on your data, or fit a new one"
    )
    return (ResultWarning(code="other_corpus", detail=detail),)


def profile_beside(index: Index) -> Path | None:
    """Return the path of the profile beside the index's file, if it exists."""
    path = None if index.path is None else index.path.with_suffix(".profile.json")
    return path if path is not None and os.path.isfile(path) else None
