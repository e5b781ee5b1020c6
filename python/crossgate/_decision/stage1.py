"""Stage 1: finds and scores the candidates of a query, in an index or in the caller's list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from heapq import nlargest
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import crossgate._core as _core
from crossgate._decision.context import Context, Conversation, sum_of_directions, trace_of
from crossgate._decision.plain_names import with_plain_names
from crossgate._reranking.contract import OutOfTime
from crossgate._retrieval.passages import Window, windows, with_window_cosines
from crossgate._retrieval.spelling import corrected_to
from crossgate._support.checks import safe_repr
from crossgate._support.errors import CrossgateError, IndexFileError
from crossgate._support.wording import counted
from crossgate._values.results import Degradation, Document, ResultWarning, Vector, degradation

if TYPE_CHECKING:
    from crossgate._core import Profile
    from crossgate._reranking.contract import Deadline
    from crossgate._retrieval.document_index import Index, SearchResult
    from crossgate._retrieval.embedding import Embedder, OnnxEmbedder
    from crossgate._values.inputs import Prompt
    from crossgate._values.options import DecisionOptions


Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage1:
    """The output of stage 1.

    Attributes:
        scored: The candidates with their scores.
        documents: The documents of the candidates, by id.
        degraded: Parts of stage 1 that did not run as configured.
        warnings: Signs that the candidates are unreliable.
        timings: Milliseconds per step of stage 1.
        need: The probability, in [0, 1], that the query asks for something that a document can
            serve; None if it is unknown, or if the caller has decided that a document is needed.
        compared: Number of documents that were compared with the query; None for that of `scored`.
        indexes: Positions of the documents in the caller's list, from 0; empty without a list.
        windows: The parts of long documents that stage 2 reads, by id; those of other documents of
            the pool are chosen when stage 2 begins.
        empty: Documents without text, which are the last hits.
        corrected: The text for stage 2 if words were corrected; None for that of the request.
        read: The text of the query for stage 2; empty for the query itself.
        context: The context of the query for the trace; empty without one.
        unreadable: Whether the model of the vectors does not read the language of the query.
        unknown_name: Whether the query names a document that does not exist; False in a session.
        everything: Scores all documents that the request allows, candidates or not; None if nothing
            was searched.
    """

    scored: Sequence[_core.Scored]
    documents: Mapping[str, Document]
    degraded: tuple[Degradation, ...] = ()
    warnings: tuple[ResultWarning, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    need: float | None = None
    compared: int | None = None
    indexes: Mapping[str, int] = field(default_factory=dict)
    windows: Mapping[str, Window] = field(default_factory=dict)
    empty: Sequence[Document] = ()
    corrected: str | None = None
    read: str = ""
    context: Mapping[str, Any] = field(default_factory=dict)
    unreadable: bool = False
    unknown_name: bool = False
    everything: Callable[[], Sequence[_core.Scored]] | None = None


LEAST_SECONDS = 0.1
"""Seconds of stage 1 in any case, enough for the usual query and number of candidates."""


class Steps:
    """Runs the steps before stage 2 that a decision can do without, if there is time.

    What remains, such as the split of the request and the search, is always done: its cost is
    bounded by the size of the query, and grows linearly with that of the candidates.

    Args:
        deadline: When the query must be decided.

    Attributes:
        deadline: When stage 1 must end: then, or after 100 ms if that is later.
        skipped: The steps that were left out or stopped.
    """

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline.at_least(LEAST_SECONDS)
        self.skipped: list[Degradation] = []

    def corrected(
        self, query: str, documents: Iterable[Document], language: str
    ) -> tuple[str, dict[str, str]]:
        """Return the query with its misspelt words corrected, and the corrections."""
        as_written: tuple[str, dict[str, str]] = query, {}
        return self.run(
            lambda: corrected_to(query, documents, language, self.deadline.check),
            as_written,
            "look for misspelt words",
        )

    def run(self, step: Callable[[], Made], otherwise: Made, purpose: str) -> Made:
        """Return what a step makes, or another value if time runs out before or within it.

        Args:
            step: The step, which may raise `OutOfTime`.
            otherwise: The other value.
            purpose: What the step is for, and the effect without it, as "read the windows".
        """
        try:
            self.deadline.check()
            return step()
        except OutOfTime:
            detail = f"{self.deadline.budget_ms:g} ms was too short to {purpose}"
            self.skipped.append(Degradation(code="budget", detail=detail))
            return otherwise


class Search(Protocol):
    """Scores documents for a query."""

    def __call__(
        self,
        query: str,
        vector: Vector | None,
        *,
        history: Sequence[tuple[str, float]] = (),
    ) -> SearchResult:
        """Return the best documents, with the weighted earlier requests that count."""


class Candidates(NamedTuple):
    """The candidates of a query in its conversation.

    Attributes:
        scored: The candidates.
        documents: Their documents by id.
        vector: The vector of the query and of the earlier requests that count for it.
        conversation: Those requests.
        degraded: Why the vectors of earlier requests are missing, if they are.
    """

    scored: list[_core.Scored]
    documents: Mapping[str, Document]
    vector: Vector | None
    conversation: Conversation = Conversation()
    degraded: tuple[Degradation, ...] = ()


def with_history(
    first: Candidates,
    search: Search,
    query: str,
    context: Context,
    profile: Profile,
    *,
    compared: int,
    embed: Callable[[Sequence[str]], Sequence[Vector]] | None,
) -> Candidates:
    """Search again with the earlier requests that count for a query, if any do.

    Args:
        first: The candidates for the query alone.
        search: Searches.
        query: The query.
        context: Its context.
        profile: The profile whose confidence says how well the best candidate fits.
        compared: Number of documents that were compared.
        embed: Embeds the earlier requests; None if only their words count.
    """
    conversation = Conversation.of(query, context, first.scored, compared, profile)
    if not conversation.history:
        return first._replace(conversation=conversation)
    vector, degraded = first.vector, first.degraded
    if vector is not None and embed is not None:
        texts, weights = zip(*conversation.history, strict=True)
        try:
            vector = sum_of_directions(vector, embed(list(texts)), weights)
        except Exception as error:  # the words of the earlier requests still count
            degraded = (*degraded, degradation("embedder", error))
    result = search(query, vector, history=conversation.history)
    return Candidates(result.scored, result.documents, vector, conversation, degraded)


def search_index(
    index: Index,
    load_embedder: Callable[[], Embedder],
    prompt: Prompt,
    options: DecisionOptions,
    profile: Profile,
    deadline: Deadline,
) -> Stage1:
    """Find the candidates of a query in an index.

    The query is embedded and searched once. A query with misspelt words is searched again with the
    words of the candidates, and one in a conversation with the earlier requests that count.

    Args:
        index: The index.
        load_embedder: Returns the model that made the index's vectors.
        prompt: The prompt, which is not empty.
        options: What the caller has chosen.
        profile: The profile.
        deadline: When the query must be decided.
    """

    def embed(texts: Sequence[str]) -> Sequence[Vector]:
        return load_embedder().embed(texts)

    start = perf_counter()
    steps = Steps(deadline)
    own, context = options.vector, options.context
    vector, degraded = (own, ()) if own is not None else _embedded(index, embed, prompt.searched)
    embedded = milliseconds(start)
    asks = None if own is not None else _asks(load_embedder, vector)
    named, unknown = index.named(prompt.request, allow=options.allow, deny=options.deny)
    # Material must not show whether a document is needed.
    has_material = own is None and prompt.searched != prompt.request
    of_request = vector
    if vector is not None and has_material:
        of_request, _ = _embedded(index, embed, prompt.request)
    is_first = context is None or not context.history
    form = _core.form(prompt.request, prompt.text, is_first) if profile.session else None
    search = partial(
        index.search,
        embed=False,
        blend=profile.blend,
        evidence=profile.evidence,
        usefulness=_usefulness(load_embedder, of_request, form) if index.dimension else None,
        technologies=() if context is None else context.technologies,
        per_channel=profile.per_channel,
        allow=options.allow,
        deny=options.deny,
        named=named,
        asks=asks,
    )
    try:
        first = search(prompt.searched, vector)
    except Exception as error:
        if own is not None or vector is None or isinstance(error, IndexFileError):
            raise
        # An invalid vector counts as a failure of the embedder; BM25 decides alone.
        vector, degraded = None, (degradation("embedder", error),)
        first = search(prompt.searched, None)
    query, corrections = steps.corrected(prompt.searched, first.documents.values(), index.language)
    if corrections:
        if vector is not None and own is None:
            vector, degraded = _embedded(index, embed, query)
        first = search(query, vector)
    if not has_material or vector is None:
        of_request = vector
    need = _need(load_embedder, of_request, form)
    compared = _compared(index, options)
    alone = candidates = Candidates(first.scored, first.documents, vector, degraded=degraded)
    # In a session, earlier requests raise needless candidates more than right ones.
    if context is not None and context.history and not profile.session:
        candidates = steps.run(
            lambda: with_history(
                alone, search, query, context, profile, compared=compared, embed=embed
            ),
            alone,
            "read earlier requests",
        )
    conversation = candidates.conversation
    if need is not None and conversation.goes_on:
        need = max(need, _need(load_embedder, candidates.vector) or 0.0)
    scored, chosen, failed = _with_windows(candidates, query, index, load_embedder, profile, steps)
    if own is None and vector is not None and not conversation.goes_on:
        documents, before = candidates.documents, scored
        try:
            scored = steps.run(
                lambda: with_plain_names(
                    before,
                    documents,
                    query,
                    index.language,
                    embed,
                    profile,
                    steps.deadline.check,
                ),
                before,
                "tell names from ordinary words",
            )
        except Exception as error:  # without this evidence, the scores still count
            failed = (*failed, degradation("embedder", error))
    return Stage1(
        scored=scored,
        documents=candidates.documents,
        everything=lambda: (
            search(
                query,
                candidates.vector,
                history=conversation.history,
                per_channel=max(2, len(index)),
            ).scored
        ),
        degraded=(*candidates.degraded, *steps.skipped, *failed),
        warnings=(*spelling_warnings(corrections), *_unknown_name(unknown)),
        # The skill may be one of the agent that this index does not have.
        unknown_name=bool(unknown) and not profile.session,
        corrected=query if corrections else None,
        timings={"embed": embedded, "search": milliseconds(start) - embedded},
        need=need,
        compared=compared,
        read=conversation.read_with(query) if conversation.goes_on else "",
        context={} if context is None else trace_of(context, conversation),
        windows=chosen,
    )


def _embedded(
    index: Index, embed: Callable[[Sequence[str]], Sequence[Vector]], query: str
) -> tuple[Vector | None, tuple[Degradation, ...]]:
    """Return the vector of a query, or None and the reason."""
    if not index.dimension:
        return None, ()
    try:
        vector = embed([query])[0]
        if vector is None:
            raise ValueError("the embedder returned no vector")
    except Exception as error:  # BM25 decides alone
        return None, (degradation("embedder", error),)
    return vector, ()


def _need(
    load_embedder: Callable[[], Embedder],
    vector: Vector | None,
    form: Sequence[float] | None = None,
) -> float | None:
    """Return the probability that the query needs any document, or None if unknown.

    Args:
        load_embedder: Returns the model that made the vector.
        vector: The vector of the request.
        form: The form of a prompt of a session; None outside a session.
    """
    embedder = _with_heads(load_embedder)
    if vector is None or embedder is None:
        return None
    return embedder.need(vector) if form is None else embedder.need_in_session(vector, form)


def _asks(load_embedder: Callable[[], Embedder], vector: Vector | None) -> float | None:
    """Return the probability that a query asks to read and not to act, or None if unknown."""
    embedder = _with_heads(load_embedder)
    if vector is None or embedder is None:
        return None
    with suppress(CrossgateError):  # the search names a broken vector
        return embedder.asks(vector)
    return None


def _usefulness(
    load_embedder: Callable[[], Embedder],
    vector: Vector | None,
    form: Sequence[float] | None,
) -> tuple[float, Sequence[float]] | None:
    """Return the linear model of how much a prompt of a session asks for a document.

    None outside a session, where `form` is None, or if it is unknown.
    """
    embedder = _with_heads(load_embedder)
    if vector is None or form is None or embedder is None:
        return None
    with suppress(CrossgateError):  # the search names a broken vector
        return embedder.usefulness(vector, form)
    return None


def _with_heads(load_embedder: Callable[[], Embedder]) -> OnnxEmbedder | None:
    """Return the embedder if its model can have heads that read its vectors."""
    from crossgate._retrieval.embedding import OnnxEmbedder

    try:
        embedder = load_embedder()
    except CrossgateError:  # the index has vectors of an external embedder
        return None
    return embedder if isinstance(embedder, OnnxEmbedder) else None


def _compared(index: Index, options: DecisionOptions) -> int:
    """Return how many documents of the index the request allows."""
    if options.allow is None:
        return len(index) - sum(id in index for id in options.deny)
    return sum(id in index for id in set(options.allow).difference(options.deny))


def _with_windows(
    candidates: Candidates,
    query: str,
    index: Index,
    load_embedder: Callable[[], Embedder],
    profile: Profile,
    steps: Steps,
) -> tuple[list[_core.Scored], Mapping[str, Window], tuple[Degradation, ...]]:
    """Return the candidates with the cosines of the windows of long texts, and these windows.

    Windows are only those of long texts that may reach stage 2: of the best by each order. The
    vector of a document in the index has only the beginning of a long text. The profile was fitted
    on cosines without the body, so windows of bodies are chosen later.
    """
    by_words = nlargest(profile.pool, candidates.scored, key=lambda scored: scored.bm25)
    near = {scored.id: None for scored in (*candidates.scored[: profile.pool], *by_words)}
    texts = (candidates.documents[id] for id in near if not candidates.documents[id].body)
    none: dict[str, Window] = {}
    chosen = steps.run(
        lambda: windows(query, texts, language=index.language, check=steps.deadline.check),
        none,
        "choose the passages of long texts: only their beginnings count",
    )
    if not chosen or candidates.vector is None:
        return candidates.scored, chosen, ()
    try:
        embedder = load_embedder()
    except CrossgateError:  # the index has vectors of an external embedder
        return candidates.scored, chosen, ()
    read = [window.text for window in chosen.values()]
    try:
        made = steps.run(
            lambda: in_time(lambda: embedder.embed(read), steps.deadline, "windows"),
            None,
            f"embed {counted(len(read), 'long text')}: only their beginnings have cosines",
        )
        if made is None:
            return candidates.scored, chosen, ()
        vectors = dict(zip(chosen, made, strict=True))
        scored = with_window_cosines(candidates.scored, chosen, candidates.vector, vectors, profile)
    except Exception as error:  # the beginnings of the texts still have cosines
        return candidates.scored, chosen, (degradation("embedder", error),)
    return scored, chosen, ()


def _unknown_name(unknown: tuple[str, str] | None) -> tuple[ResultWarning, ...]:
    """Return a warning for a name that no document has, with the nearest id."""
    if unknown is None:
        return ()
    name, nearest = unknown
    detail = f"no document is called {safe_repr(name)}: the nearest name is {safe_repr(nearest)}"
    return (ResultWarning(code="unknown_name", detail=detail),)


def spelling_warnings(corrections: Mapping[str, str]) -> tuple[ResultWarning, ...]:
    """Return a warning for each word that was replaced by a word of the candidates."""
    return tuple(
        ResultWarning(
            code="spelling",
            detail=f"no candidate has the word {word!r}: it was read as {similar!r}",
        )
        for word, similar in corrections.items()
    )


def readable(document: Document, passage: _core.Span | None) -> str:
    """Return the text for stage 2: the head, and the best-matching passage of the body."""
    if passage is None:
        return document.content
    return f"{document.content}\n{document.body[passage.start : passage.end]}"


def in_time(work: Callable[[], Made], deadline: Deadline, name: str) -> Made:
    """Return what the work makes.

    Args:
        work: The work.
        deadline: When to stop waiting.
        name: Name of the thread that continues the work then.

    Raises:
        OutOfTime: After the deadline.
    """
    left = deadline.left
    if left is None:
        return work()
    from concurrent.futures import wait

    from crossgate._runtime.threads import run_on_thread

    future = run_on_thread(work, name)
    wait([future], left)
    if not future.done():
        raise OutOfTime
    return future.result()


def milliseconds(since: float) -> float:
    """Return the milliseconds since a reading of `perf_counter`."""
    return (perf_counter() - since) * 1000
