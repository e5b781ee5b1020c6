"""`RemoteReranker`: batches, retries, deadlines and checks around a provider's transport."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import random
import time
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from crossgate._reranking.contract import LEAST_PAIRS, NO_DEADLINE, Deadline, PairScore, Scores
from crossgate._reranking.http import (
    CONCURRENCY,
    ApiKey,
    Exchange,
    HttpTransport,
    NoConnection,
    TransportError,
    no_answer,
    require_key,
    switched_off,
)
from crossgate._reranking.providers import PROVIDERS, Provider, RequestLimits
from crossgate._runtime.model_files import ROUTING_RERANKER, locate
from crossgate._runtime.threads import run_on_thread
from crossgate._support.checks import check_count, check_number, check_text
from crossgate._support.errors import InputError, ModelError, RerankerError
from crossgate._support.wording import counted, share_of
from crossgate._values.results import Degradation, Passage

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# Upper bound of characters per token on average. Text beyond the bound is not tokenised, since
# tokenising a book to keep one page would cost seconds.
_CHARACTERS_PER_TOKEN = 16
_UNKNOWN = "[UNK]"


def cut_to_tokens(text: str, most: int) -> tuple[str, bool]:
    """Return a text of at most `most` tokens, and whether its end was cut off.

    Tokens are counted with the bundled WordPiece vocabulary of 30,522 pieces. Providers have larger
    vocabularies and need fewer tokens for the same text, so the count is an upper bound. An unknown
    word counts as its number of UTF-8 bytes, the most tokens that any tokenizer makes of it.

    Args:
        text: The text.
        most: Maximum number of tokens; at least 1.
    """
    if len(text.encode()) <= most:
        return text, False
    start = text[: most * _CHARACTERS_PER_TOKEN]
    left = most
    for begin, end, tokens in _costs(start):
        if tokens > left:
            rest = start[begin:end].encode()[:left].decode(errors="ignore")
            return start[:begin] + rest, True
        left -= tokens
    return start, len(start) < len(text)


def count_tokens(text: str, most: int) -> int:
    """Return the number of tokens of a text, counted as in `cut`, or any number above `most`."""
    size = len(text.encode())
    if size <= most // 2:
        return size
    if len(text) > most * _CHARACTERS_PER_TOKEN:
        return most + 1
    return sum(tokens for _, _, tokens in _costs(text))


def _costs(text: str) -> list[tuple[int, int, int]]:
    encoding: Encoding = _tokenizer().encode(text, add_special_tokens=False)
    return [
        (begin, end, len(text[begin:end].encode()) if token == _UNKNOWN else 1)
        for token, (begin, end) in zip(encoding.tokens, encoding.offsets, strict=True)
    ]


@cache
def _tokenizer() -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(locate(ROUTING_RERANKER, "cross-encoder").tokenizer))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


# Pools of more than `_ONE_BATCH` passages are sent in batches of `_BATCH`.
_ONE_BATCH = 80
_BATCH = 60
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# No provider answers faster, so a request with less time left would only count as a failure.
_LEAST_SECONDS = 0.005
# A request ends by its own timeouts first; this margin applies to a server that sends its headers
# byte by byte, and to a machine without free CPU time.
_GRACE = 0.02


@runtime_checkable
class Transport(Protocol):
    """Sends one request to a provider; implement it for tests or for another provider."""

    def __call__(
        self, query: str, documents: Sequence[str], *, timeout: float
    ) -> Sequence[tuple[int, float]]:
        """Return one pair of position in `documents` and score for each document, in any order.

        Runs on a thread, also for `ascore`. The result is checked: every position once, every score
        finite. After `timeout` seconds the caller stops waiting.

        Raises:
            TransportError: If the request fails. Other exceptions count as not retryable.
        """


class RemoteReranker:
    """A reranker behind a network; threads, tasks and event loops may share it.

    Pools of more than 80 passages are sent as parallel batches of 60. If some batches fail, only
    the passages of the others get scores; if all fail, the call raises. Temporary failures are
    retried after a pause with jitter, while time is left.

    Args:
        transport: Sends a request.
        name: Provider name of the hits that it scores.
        identity: Provider and model, for profiles.
        endpoint: Address of the provider. Rerankers of one endpoint share a circuit breaker.
        limits: Largest request; None to send queries and documents uncut.
        timeout: Maximum seconds of a call, if the deadline does not leave less.
        attempts: Maximum number of times that a request is sent.

    Raises:
        InputError: `out_of_range` if timeout or attempts is not above 0.
    """

    ms_per_pair = 25.0
    absolute_floor_ms = 100.0

    def __init__(
        self,
        transport: Transport,
        *,
        name: str,
        identity: str,
        endpoint: str,
        limits: RequestLimits | None = None,
        timeout: float = 10.0,
        attempts: int = 3,
    ) -> None:
        check_number("timeout", timeout, 0, above=True)
        check_count("attempts", attempts)
        check_text("the address", endpoint)
        self.name = name
        self.identity = identity
        self.endpoint = endpoint
        self.timeout = timeout
        self._transport = transport
        self._limits = limits
        self._attempts = attempts

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.identity}>"

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline = NO_DEADLINE
    ) -> Scores:
        """Return the scores that arrive in time.

        Raises:
            RerankerError: `api_error` if fewer than two arrive, or `budget` if nothing was sent.
            InputError: `query_too_long` if the query exceeds the provider's limit.
        """
        if not passages:
            return Scores()
        call = _Call(self._seconds(deadline), self._attempts, self.name)
        texts, cut, batches = self._prepared(query, passages)
        futures = [
            run_on_thread(partial(self._batch, query, [texts[n] for n in batch], call), self.name)
            for batch in batches
        ]
        concurrent.futures.wait(futures, call.left + _GRACE)
        answers = [
            (future.exception() or future.result()) if future.done() else call.late()
            for future in futures
        ]
        return self._merged(batches, answers, cut)

    async def ascore(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline = NO_DEADLINE
    ) -> Scores:
        """Like `score`, on an event loop; cancellation ends the requests.

        Raises:
            RerankerError: As `score` does.
            InputError: As `score` does.
        """
        if not passages:
            return Scores()
        call = _Call(self._seconds(deadline), self._attempts, self.name)
        try:
            async with asyncio.timeout(call.left):
                # Imports, certificates and counting tokens would block the event loop.
                texts, cut, batches = await asyncio.to_thread(self._prepared, query, passages)
        except TimeoutError:
            problem = call.late()
        else:
            answers = await asyncio.gather(
                *(self._abatch(query, [texts[n] for n in batch], call) for batch in batches),
                return_exceptions=True,
            )
            return self._merged(batches, answers, cut)
        raise problem

    def _seconds(self, deadline: Deadline) -> float:
        left = deadline.left
        return self.timeout if left is None else min(self.timeout, left)

    def _prepared(
        self, query: str, passages: Sequence[Passage]
    ) -> tuple[list[str], list[bool], list[list[int]]]:
        """Return the texts to send, whether each was cut, and the positions of each batch."""
        if isinstance(self._transport, HttpTransport):
            self._transport.prepare()
        texts, cut, size = self._cut(query, [passage.text for passage in passages])
        return texts, cut, self._split(len(texts), size)

    def _cut(
        self, query: str, documents: Sequence[str]
    ) -> tuple[list[str], list[bool], int | None]:
        """Return the texts to send, whether each was cut, and the documents per request."""
        limits = self._limits
        if limits is None:
            return list(documents), [False] * len(documents), None
        size = count_tokens(query, limits.query_tokens)
        if size > limits.query_tokens:
            raise InputError(
                "query_too_long",
                f"the query has {counted(len(query), 'character')}, and {self.name} reads at "
                f"most {counted(limits.query_tokens, 'token')}: pass only the part that states "
                "the request",
            )
        pairs = [cut_to_tokens(document, limits.document_tokens) for document in documents]
        return [text for text, _ in pairs], [cut for _, cut in pairs], limits.batch(size)

    def _split(self, documents: int, most: int | None) -> list[list[int]]:
        """Return the positions of each batch; a subclass may send all documents at once."""
        return _batches(documents, most)

    def _batch(self, query: str, documents: Sequence[str], call: _Call) -> list[float]:
        """Send one batch, retry temporary failures, and return one score per document."""
        tries = _Tries(call)
        while True:
            timeout = tries.begin()
            try:
                return checked(self._transport(query, documents, timeout=timeout), len(documents))
            except ModelError:
                raise  # a missing library is not a failure of the endpoint
            except Exception as error:
                problem = _problem_of(error)
            time.sleep(tries.pause_after(problem))

    async def _abatch(self, query: str, documents: Sequence[str], call: _Call) -> list[float]:
        """Like `_batch`, on an event loop."""
        tries = _Tries(call)
        while True:
            timeout = tries.begin()
            try:
                async with asyncio.timeout(timeout):
                    if isinstance(self._transport, HttpTransport):
                        answer = await self._transport.acall(query, documents, timeout=timeout)
                    else:
                        send = partial(self._transport, query, documents, timeout=timeout)
                        answer = await asyncio.wrap_future(run_on_thread(send, self.name))
                return checked(answer, len(documents))
            except ModelError:
                raise
            except TimeoutError:
                problem = no_answer(timeout)
            except Exception as error:
                problem = _problem_of(error)
            await asyncio.sleep(tries.pause_after(problem))

    def _merged(
        self,
        batches: Sequence[Sequence[int]],
        answers: Sequence[list[float] | BaseException],
        cut: Sequence[bool],
    ) -> Scores:
        pairs: list[PairScore | None] = [None] * len(cut)
        errors: list[RerankerError] = []
        for batch, answer in zip(batches, answers, strict=True):
            if isinstance(answer, RerankerError):
                errors.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                for position, score in zip(batch, answer, strict=True):
                    pairs[position] = PairScore(score, cut[position])
        if not errors:
            return Scores(pairs)
        scored = len(pairs) - pairs.count(None)
        if scored < LEAST_PAIRS:
            raise next((error for error in errors if error.code == "api_error"), errors[0])
        detail = f"only {share_of(scored, len(pairs), 'passage')} got a score: {errors[0]}"
        return Scores(pairs, Degradation(code="partial_scores", detail=detail))


class _Call:
    """Time and progress of one call.

    Args:
        seconds: Seconds until the call must end.
        attempts: Maximum number of times that a request is sent.
        name: Name of the reranker, for errors.
    """

    def __init__(self, seconds: float, attempts: int, name: str) -> None:
        self.seconds = seconds
        self.attempts = attempts
        self.name = name
        self.is_sent = False
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def late(self) -> RerankerError:
        """Return the error of a call that is out of time."""
        if not self.is_sent:
            return RerankerError("budget", f"{self.name}: the time was used up before a request")
        return self.failed(no_answer(self.seconds))

    def failed(self, problem: object) -> RerankerError:
        """Return the error for a failure of the endpoint."""
        return RerankerError("api_error", f"{self.name}: {problem}")


class _Tries:
    """The attempts to send one batch."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._number = 0

    def begin(self) -> float:
        """Return the seconds for the next attempt.

        Raises:
            RerankerError: If no time is left.
        """
        left = self._call.left
        if left < _LEAST_SECONDS:
            raise self._call.late()
        self._number += 1
        self._call.is_sent = True
        return left

    def pause_after(self, problem: TransportError) -> float:
        """Return the seconds until the next attempt.

        Raises:
            RerankerError: `api_error` if there is none, `budget` if the request was not sent.
        """
        if isinstance(problem, NoConnection):
            raise RerankerError("budget", f"{self._call.name}: {problem}")
        pause = max(_pause(self._number), problem.retry_after)
        last = self._number >= self._call.attempts
        if not problem.retryable or last or pause >= self._call.left:
            sent = f" (sent {counted(self._number, 'time')})" if self._number > 1 else ""
            raise self._call.failed(f"{problem}{sent}")
        return pause


def _problem_of(error: Exception) -> TransportError:
    """Return a transport's error, or fixed words for one whose text may contain the key."""
    if not isinstance(error, TransportError):
        return TransportError(f"the transport raised {type(error).__name__}")
    # Without the traceback, whose frames contain the request.
    return error.with_traceback(None)


def checked(results: object, documents: int) -> list[float]:
    """Return the scores in the order of the documents.

    Raises:
        TransportError: If they are not exactly one finite number per document.
    """
    scores: dict[int, float] = {}
    problem = ""
    try:
        for index, score in results:  # type: ignore[attr-defined]
            if type(index) is not int or isinstance(score, bool | str):
                problem = "values that are not pairs of position and score"
            elif not 0 <= index < documents:
                problem = f"a score for document {index} of {documents}"
            elif index in scores:
                problem = f"two scores for document {index}"
            elif not math.isfinite(score):
                problem = f"a score that is not a number for document {index}"
            if problem:
                break
            scores[index] = float(score)
    except (TypeError, ValueError, OverflowError):
        problem = "a value that is not a list of positions and scores"
    if not problem and len(scores) < documents:
        problem = f"{counted(len(scores), 'score')} for {counted(documents, 'document')}"
    if problem:
        raise TransportError(f"it returned {problem}")
    return [scores[index] for index in range(documents)]


def _batches(documents: int, most: int | None) -> list[list[int]]:
    size = documents if documents <= _ONE_BATCH else _BATCH
    size = max(1, size if most is None else min(size, most))
    batches: list[list[int]] = [[] for _ in range(math.ceil(documents / size))]
    position = 0
    # Deal positions in turn, so that a failed batch does not contain all of the best candidates.
    for turn in range(size):
        for number, batch in enumerate(batches):
            if turn < documents - number * size:
                batch.append(position)
                position += 1
    return batches


def _pause(attempt: int) -> float:
    """Full jitter: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015."""
    return random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)))  # noqa: S311


class _RerankTransport(HttpTransport):
    """Posts a query and documents, and reads a list of `index` and `relevance_score`."""

    def __init__(self, url: str, key: ApiKey, concurrency: int, model: str, kind: Provider) -> None:
        super().__init__(url, key, concurrency)
        self._fields = {"model": model, **kind.fields}
        self._results = kind.results

    def exchange(self, query: str, documents: Sequence[str]) -> Exchange:
        """Send one request, and return position and score of each result."""
        answer = yield {**self._fields, "query": query, "documents": list(documents)}
        try:
            rows = answer[self._results]
            return [(row["index"], row["relevance_score"]) for row in rows]
        except (TypeError, KeyError):
            pass
        raise TransportError(f"the answer lacks {self._results} with index and relevance_score")


class HostedReranker(RemoteReranker):
    """A reranker of a provider in `PROVIDERS`.

    Args:
        model: Name of the model; None for the provider's default.
        api_key: The API key; by default from the environment.
        base_url: Address of the interface; by default the provider's.
        concurrency: Maximum number of requests at once to the address, over all threads, and again
            over each event loop.
        options: As for `RemoteReranker`.

    Raises:
        RerankerError: `no_key` without an API key.
    """

    provider: ClassVar[Provider]

    def __init__(
        self,
        model: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        concurrency: int = CONCURRENCY,
        **options: Any,
    ) -> None:
        provider = self.provider
        model = provider.model if model is None else model
        check_text("the model", model)
        check_count("concurrency", concurrency)
        key = require_key(provider.title, api_key, provider.variables)
        url = provider.url_for(key.reveal()) if base_url is None else base_url
        check_text("base_url", url)
        super().__init__(
            _RerankTransport(url.rstrip("/") + provider.path, key, concurrency, model, provider),
            name=provider.name,
            identity=f"{provider.name}/{model}",
            endpoint=url,
            **{"limits": provider.limits, **options},
        )

    @classmethod
    def from_environment(cls, model: str | None = None, **options: Any) -> Self | None:
        """Return a reranker, or None without a key in the environment or if CROSSGATE_REMOTE=0."""
        if switched_off() or not ApiKey(None, cls.provider.variables):
            return None
        return cls(model, **options)


class VoyageReranker(HostedReranker):
    """Voyage's rerankers: `rerank-2.5`, or the cheaper `rerank-2.5-lite`.

    The key is read from `VOYAGE_API_KEY`. Further arguments: `base_url`, and those of
    `RemoteReranker`.
    """

    provider = PROVIDERS["voyage"]


class CohereReranker(HostedReranker):
    """Cohere's rerankers: `rerank-v4.0-pro`, or the faster `rerank-v4.0-fast`.

    The key is read from `COHERE_API_KEY` or `CO_API_KEY`. Further arguments: `base_url`,
    and those of `RemoteReranker`.
    """

    provider = PROVIDERS["cohere"]


class JinaReranker(HostedReranker):
    """Jina's rerankers.

    The default model scores each pair independently. `jina-reranker-v3` reads the documents of a
    request together, so scores of two batches are not comparable: pass at most 80 documents.

    The key is read from `JINA_API_KEY`. Further arguments: `base_url`, and those of
    `RemoteReranker`.
    """

    provider = PROVIDERS["jina"]


HOSTED: dict[str, type[HostedReranker]] = {
    kind.provider.name: kind for kind in (VoyageReranker, CohereReranker, JinaReranker)
}
"""Classes of hosted rerankers by the provider's name."""
