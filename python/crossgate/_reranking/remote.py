"""`RemoteReranker`: batches, retries, deadlines and checks around a provider's transport."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from crossgate._reranking import tokens
from crossgate._reranking.contract import LEAST_PAIRS, NO_DEADLINE, Deadline, PairScore, Scores
from crossgate._reranking.providers import RequestLimits
from crossgate._reranking.shared_state import background
from crossgate._support.checks import check_count, check_number, check_text
from crossgate._support.errors import InputError, ModelError, RerankerError
from crossgate._support.wording import counted, share_of, type_of
from crossgate._values.results import Degradation, Passage

Result = TypeVar("Result")

# If "0", "false", "no" or "off", `from_environment` of every remote reranker returns None.
SWITCH = "CROSSGATE_REMOTE"

# Pools of more than `_ONE_BATCH` passages are sent in batches of `_BATCH`.
_ONE_BATCH = 80
_BATCH = 60
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# No provider answers faster, so a request with less time left would only count as a failure.
_LEAST_SECONDS = 0.005
# The event loop enforces the deadline first; this margin applies if the loop gets no CPU time.
_GRACE = 0.02


class TransportError(Exception):
    """A request that did not return scores.

    The message reaches users and logs. Never quote a server or a library in it: their text may
    contain the key.

    Attributes:
        retryable: Whether the same request may succeed a moment later.
        retry_after: Seconds to wait, as requested by the endpoint, or 0.
    """

    def __init__(self, message: str, *, retryable: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after


@runtime_checkable
class Transport(Protocol):
    """Sends one request to a provider; implement it for tests or for another provider.

    An optional method `prepare()` is called on a thread before the first request, for imports and
    other work that would block the event loop.
    """

    async def __call__(
        self, query: str, documents: Sequence[str], *, timeout: float
    ) -> Sequence[tuple[int, float]]:
        """Return one pair of position in `documents` and score for each document, in any order.

        Runs on the event loop that all remote calls share, and is cancelled after `timeout`
        seconds. The result is checked: every position once, every score finite.

        Raises:
            TransportError: If the request fails. Other exceptions count as not retryable.
        """


class ApiKey:
    """An API key that does not appear in `repr`, `vars`, pickles or errors.

    Args:
        value: The key, or None to read it from the environment.
        variables: Environment variables to read, in order of precedence.
    """

    __slots__ = ("_reveal", "_variables")

    def __init__(self, value: str | None, variables: tuple[str, ...]) -> None:
        if value is not None and not isinstance(value, str):
            # The message leaves the value out, which may be a secret.
            raise InputError("out_of_range", f"the key must be a string, not {type_of(value)}")
        key = value or next(
            (os.environ[variable] for variable in variables if os.environ.get(variable)), ""
        )
        key = key.strip()
        self._reveal: Callable[[], str] = lambda: key
        self._variables = variables

    def reveal(self) -> str:
        """Return the key, or an empty string."""
        return self._reveal()

    @property
    def is_sendable(self) -> bool:
        """Whether a header can contain the key; HTTP libraries log keys that cannot be sent."""
        key = self._reveal()
        return key.isascii() and key.isprintable() and " " not in key

    def __bool__(self) -> bool:
        return bool(self._reveal())

    def __repr__(self) -> str:
        return f"<ApiKey {'hidden' if self else 'missing'}>"

    def __reduce__(self) -> tuple[type[ApiKey], tuple[None, tuple[str, ...]]]:
        """Pickle only the variable names: another process reads its own environment."""
        return ApiKey, (None, self._variables)


def require_key(provider: str, value: str | None, variables: tuple[str, ...]) -> ApiKey:
    """Return a provider's API key.

    Raises:
        RerankerError: `no_key` if the key is missing, or contains characters no header can hold.
    """
    key = ApiKey(value, variables)
    if not key:
        raise RerankerError(
            "no_key",
            f"no API key for {provider}: set {variables[0]}, pass api_key, or use "
            "from_environment, which returns None without a key",
        )
    if not key.is_sendable:
        raise RerankerError(
            "no_key",
            f"the API key for {provider} contains characters that no header can hold: copy it "
            "again, without line breaks",
        )
    return key


def switched_off() -> bool:
    """Return whether the environment switches remote rerankers off."""
    return os.environ.get(SWITCH, "").strip().lower() in ("0", "false", "no", "off")


class RemoteReranker:
    """A reranker behind a network; threads, tasks and event loops may share it.

    Pools of more than 80 passages are sent as parallel batches of 60. If some batches fail, only
    the passages of the others get scores; if all fail, the call raises. Temporary failures are
    retried after a pause with jitter, while time is left.

    Args:
        transport: Sends a request.
        name: Provider name of the hits that it scores.
        identity: Provider and model, for profiles.
        endpoint: Address of the provider. Rerankers of one endpoint share a circuit breaker and
            the limit of concurrent requests.
        limits: Largest request; None to send queries and documents uncut.
        timeout: Maximum seconds of a call, if the deadline does not leave less.
        attempts: Maximum number of times that a request is sent.
        concurrency: Maximum number of concurrent requests, over all callers of the endpoint.

    Raises:
        InputError: `out_of_range` if timeout, attempts or concurrency is not above 0.
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
        concurrency: int = 8,
    ) -> None:
        check_number("timeout", timeout, 0, above=True)
        check_count("attempts", attempts)
        check_count("concurrency", concurrency)
        check_text("the address", endpoint)
        self.name = name
        self.identity = identity
        self.endpoint = endpoint
        self.timeout = timeout
        self._transport = transport
        self._limits = limits
        self._attempts = attempts
        self._concurrency = concurrency
        self._ready = False

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
        seconds, wire = self._seconds(deadline), _Wire()
        answer = self._answer(query, passages, time.monotonic() + seconds, wire)
        try:
            return background().run(answer, seconds + _GRACE)
        except concurrent.futures.TimeoutError:
            pass
        except concurrent.futures.CancelledError:
            raise self._shut_down() from None
        raise self._late(seconds, wire)

    async def ascore(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline = NO_DEADLINE
    ) -> Scores:
        """Like `score`; cancellation cancels the requests.

        Raises:
            RerankerError: As `score` does.
            InputError: As `score` does.
        """
        if not passages:
            return Scores()
        seconds, wire = self._seconds(deadline), _Wire()
        answer = self._answer(query, passages, time.monotonic() + seconds, wire)
        future = background().submit(answer)
        try:
            async with asyncio.timeout(seconds + _GRACE):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise self._shut_down() from None
        finally:
            future.cancel()
        raise self._late(seconds, wire)

    def _seconds(self, deadline: Deadline) -> float:
        left = deadline.left
        return self.timeout if left is None else min(self.timeout, left)

    async def _answer(
        self, query: str, passages: Sequence[Passage], end: float, wire: _Wire
    ) -> Scores:
        """Send the request, and retry until `time.monotonic` reaches `end`."""
        until = asyncio.get_running_loop().time() + end - time.monotonic()
        await self._prepare_transport(until)
        texts, cut, size = await self._cut(query, [passage.text for passage in passages], until)
        batches = self._split(len(texts), size)
        answers = await asyncio.gather(
            *(
                self._batch(query, [texts[position] for position in batch], until, wire)
                for batch in batches
            ),
            return_exceptions=True,
        )
        pairs: list[PairScore | None] = [None] * len(texts)
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
        detail = f"only {share_of(scored, len(texts), 'passage')} got a score: {errors[0]}"
        return Scores(pairs, Degradation(code="partial_scores", detail=detail))

    def _split(self, documents: int, most: int | None) -> list[list[int]]:
        """Return the positions of each batch; a subclass may send all documents at once."""
        return _batches(documents, most)

    async def _prepare_transport(self, until: float) -> None:
        prepare = getattr(self._transport, "prepare", None)
        if prepare is not None and not self._ready:
            await self._in_thread(prepare, until, "preparing the first request")
            self._ready = True

    async def _cut(
        self, query: str, documents: Sequence[str], until: float
    ) -> tuple[list[str], list[bool], int | None]:
        """Return the texts to send, whether each was cut, and the documents per request."""
        limits = self._limits
        if limits is None:
            return list(documents), [False] * len(documents), None

        def prepare() -> tuple[list[str], list[bool], int | None]:
            asked = tokens.count(query, limits.query_tokens)
            if asked > limits.query_tokens:
                raise InputError(
                    "query_too_long",
                    f"the query has {counted(len(query), 'character')}, and {self.name} reads at "
                    f"most {counted(limits.query_tokens, 'token')}: pass only the part that states "
                    "the request",
                )
            pairs = [tokens.cut(document, limits.document_tokens) for document in documents]
            return [text for text, _ in pairs], [cut for _, cut in pairs], limits.batch(asked)

        longest = max([len(query) * 2, *map(len, documents)])
        if longest * 4 <= limits.document_tokens:  # UTF-8 has at most four bytes per character
            return prepare()
        # Counting tokens takes long enough to delay other calls.
        return await self._in_thread(prepare, until, "cutting long documents")

    async def _in_thread(self, work: Callable[[], Result], until: float, what: str) -> Result:
        """Run work on a thread that would block the event loop, before anything is sent."""
        try:
            async with asyncio.timeout_at(until):
                return await asyncio.to_thread(work)
        except TimeoutError:
            pass
        raise RerankerError("budget", f"{self.name}: {what} used up the time")

    async def _batch(
        self, query: str, documents: Sequence[str], until: float, wire: _Wire
    ) -> list[float]:
        """Send one batch, retry temporary failures, and return one score per document."""
        loop = asyncio.get_running_loop()
        limit = background().limit(self.endpoint, self._concurrency)
        started = loop.time()
        had = 0.0
        attempt = 0
        while True:
            attempt += 1
            problem: TransportError | None = TransportError(
                f"no answer within {(until - started) * 1000:.0f} ms"
            )
            try:
                async with asyncio.timeout_at(until), limit:
                    left = until - loop.time()
                    if left < _LEAST_SECONDS:  # it waited too long for a free connection
                        raise TimeoutError
                    had = left
                    wire.had = max(wire.had, left)
                    results = await self._transport(query, documents, timeout=left)
                return checked(results, len(documents))
            except TimeoutError:  # final, since no time is left
                # If most of the time went into waiting for a connection, the endpoint did not fail.
                if attempt == 1 and had < (until - started) / 2:
                    problem = None
            except TransportError as error:
                problem = TransportError(
                    str(error), retryable=error.retryable, retry_after=error.retry_after
                )
            except ModelError:
                raise  # a missing library is not a failure of the endpoint
            except Exception as error:  # its text may contain the key
                problem = TransportError(f"the transport raised {type(error).__name__}")
            if problem is None:
                raise self._not_sent()
            pause = max(_pause(attempt), problem.retry_after)
            if not problem.retryable or attempt >= self._attempts or loop.time() + pause >= until:
                tried = f" (sent {counted(attempt, 'time')})" if attempt > 1 else ""
                raise RerankerError("api_error", f"{self.name}: {problem}{tried}")
            await asyncio.sleep(pause)

    def _late(self, seconds: float, wire: _Wire) -> RerankerError:
        if wire.had < seconds / 2:
            return self._not_sent()
        return RerankerError("api_error", f"{self.name}: no answer within {seconds * 1000:.0f} ms")

    def _shut_down(self) -> RerankerError:
        return RerankerError("api_error", f"{self.name} was shut down during the call")

    def _not_sent(self) -> RerankerError:
        return RerankerError("budget", f"{self.name}: no connection was free in time")


@dataclass(slots=True)
class _Wire:
    """Progress of the requests of one call, read when the call times out.

    Attributes:
        had: Most seconds that any request had left when it was sent; 0 if none was sent.
    """

    had: float = 0.0


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
