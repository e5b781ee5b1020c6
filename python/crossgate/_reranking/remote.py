"""What all remote rerankers share: batches, retries, deadlines, checks, breaker and secrets."""

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

from crossgate._errors import InputError, ModelError, TierError
from crossgate._reranking import tokens
from crossgate._reranking.background import background
from crossgate._reranking.breaker import CircuitBreaker, State
from crossgate._reranking.budget import Pace
from crossgate._reranking.cross_encoder import LEAST_PAIRS, PairScore, Scores, check_pace
from crossgate._types import Degradation

Result = TypeVar("Result")

# Switches every remote tier off that is made from the environment.
SWITCH = "CROSSGATE_REMOTE"

REMOTE_MS_PER_PAIR = 25.0
REMOTE_FLOOR_MS = 100.0

# Pools over the first number are sent in batches of the second.
_ONE_BATCH = 80
_BATCH = 60
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# The loop's own deadline comes first; this one holds where the loop has no processor to run on.
_GRACE = 0.02


class TransportError(Exception):
    """A request that did not bring the scores.

    The message reaches users and logs: say what happened in words of your own, never in those of
    a server or of a library, which may hold the key.

    Attributes:
        retryable: Whether the same request may succeed a moment later.
        retry_after: Seconds that the endpoint asked to be left alone for, or 0.
    """

    def __init__(self, message: str, *, retryable: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after


@runtime_checkable
class Transport(Protocol):
    """Sends one request to a provider; tests and other providers put their own in its place.

    One with a method `prepare()` has it called on a thread before the first request: the place for
    imports and whatever else would hold up the event loop.
    """

    async def __call__(
        self, query: str, documents: Sequence[str], *, timeout: float
    ) -> Sequence[tuple[int, float]]:
        """Return one pair of position in `documents` and score for each document, in any order.

        Runs on the event loop that all remote calls share, and is cancelled after `timeout`
        seconds. What it returns is checked: every position once, every score finite.

        Raises:
            TransportError: If there is no such answer. Anything else counts as not retryable.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a provider takes in one request.

    Attributes:
        query_tokens: Most tokens of the query.
        document_tokens: What a document is cut to.
        request_tokens: Most tokens of a request, the query counted once per document; None for
            no limit.
    """

    query_tokens: int
    document_tokens: int
    request_tokens: int | None = None

    def batch(self, query_tokens: int) -> int | None:
        """Return how many documents fit into a request, or None for any number."""
        if self.request_tokens is None:
            return None
        return max(1, self.request_tokens // (query_tokens + self.document_tokens))


class Key:
    """An API key that shows in no repr, no `vars`, no pickle and no error.

    Args:
        value: The key, or None to take it from the environment.
        variables: Environment variables that may hold it, the first one that does counts.
    """

    __slots__ = ("_reveal", "_variables")

    def __init__(self, value: str | None, variables: tuple[str, ...]) -> None:
        found = value or next((os.environ[one] for one in variables if os.environ.get(one)), "")
        found = found.strip()
        self._reveal: Callable[[], str] = lambda: found
        self._variables = variables

    def reveal(self) -> str:
        """Return the key, or an empty text where there is none."""
        return self._reveal()

    @property
    def is_sendable(self) -> bool:
        """Whether a header can hold it; an HTTP library would quote in its log one that cannot."""
        key = self._reveal()
        return key.isascii() and key.isprintable() and " " not in key

    def __bool__(self) -> bool:
        return bool(self._reveal())

    def __repr__(self) -> str:
        return f"<Key {'hidden' if self else 'missing'}>"

    def __reduce__(self) -> tuple[type[Key], tuple[None, tuple[str, ...]]]:
        """Pickle the names alone: another process looks into its own environment."""
        return Key, (None, self._variables)


def key_of(provider: str, value: str | None, variables: tuple[str, ...]) -> Key:
    """Return a provider's key.

    Raises:
        TierError: `no_key` if it is neither given nor in the environment.
    """
    key = Key(value, variables)
    if not key:
        raise TierError(
            "no_key",
            f"no API key for {provider}: set {variables[0]}, pass api_key, or use "
            "from_environment, which gives None where there is none",
        )
    if not key.is_sendable:
        raise TierError(
            "no_key",
            f"the API key for {provider} holds characters that no header can: copy it once more, "
            "without line breaks",
        )
    return key


def switched_off() -> bool:
    """Return whether the environment switches remote tiers off."""
    return os.environ.get(SWITCH, "").strip().lower() in ("0", "false", "no", "off")


class RemoteReranker:
    """A reranker behind a network; threads, tasks and event loops may share it.

    Every call asks the circuit breaker and the budget first. A call that fails, for whatever
    reason, counts as a failure of the endpoint, unless nothing was sent.

    Pools of more than 80 documents go in parallel batches of 60. Where some batches fail, the
    documents of the others are scored; where all fail, the call does.

    Args:
        transport: Sends a request.
        name: What the hits that it scored are stamped with.
        identity: Provider and model, for profiles.
        endpoint: What fails and recovers as one, such as the provider's address. Rerankers of one
            endpoint share a circuit breaker and a limit of requests under way.
        limits: What a request may hold; None to send everything as it is.
        timeout: Seconds that a call takes at most where the budget leaves more, or there is none.
        attempts: How often a request is sent at most; only what may pass is tried again.
        concurrency: Most requests under way at once, over all callers of the endpoint.
        fewer_pairs: Where the budget is too small for all documents, score as many of the first
            ones as it is enough for, instead of none.
        breaker: In place of the endpoint's own.
        pace: In place of the identity's own: 25 ms per pair to begin with, never below 100 ms.
        clock: Returns seconds that never go back; by it the pace is measured.

    Raises:
        InputError: `out_of_range` for a timeout, attempts or concurrency that are not above 0.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        name: str,
        identity: str,
        endpoint: str,
        limits: Limits | None = None,
        timeout: float = 10.0,
        attempts: int = 3,
        concurrency: int = 8,
        fewer_pairs: bool = False,
        breaker: CircuitBreaker | None = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for what, value in (
            ("timeout", timeout),
            ("attempts", attempts),
            ("concurrency", concurrency),
        ):
            if not 0 < value < math.inf:
                raise InputError("out_of_range", f"{what} is {value}: it must be above 0")
        self.name = name
        self.identity = identity
        self.endpoint = endpoint
        self.timeout = timeout
        self.breaker = breaker or breaker_of(endpoint)
        self.pace = pace or _paces.setdefault(
            identity, Pace(ms_per_pair=REMOTE_MS_PER_PAIR, absolute_floor_ms=REMOTE_FLOOR_MS)
        )
        self._transport = transport
        self._limits = limits
        self._attempts = attempts
        self._concurrency = concurrency
        self._fewer_pairs = fewer_pairs
        self._clock = clock
        self._ready = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.identity} {self.breaker.state}>"

    @property
    def available(self) -> bool:
        """Whether the breaker is closed; while it is not, no pool is tightened for this tier."""
        return self.breaker.state is State.CLOSED

    def score(self, query: str, documents: Sequence[str]) -> list[PairScore]:
        """Return one score per document.

        Raises:
            TierError: `circuit_breaker`, or `api_error` if any document got no score.
            InputError: `query_too_long` if the provider does not take the query.
        """
        scores = self.score_within(query, documents, None)
        pairs = [pair for pair in scores.pairs if pair is not None]
        if scores.missing is not None:
            raise TierError("api_error", scores.missing.detail)
        return pairs

    def score_within(self, query: str, documents: Sequence[str], seconds: float | None) -> Scores:
        """Return what scores the provider gives within so many seconds.

        Raises:
            TierError: `circuit_breaker`, `budget`, or `api_error` if there is no score at all.
            InputError: `query_too_long` if the provider does not take the query.
        """
        if not documents:
            return Scores([])
        seconds, number = self._admitted(len(documents), seconds)
        end = time.monotonic() + seconds
        future = background().submit(self._answer(query, documents, end, number))
        try:
            return future.result(seconds + _GRACE)
        except concurrent.futures.TimeoutError:
            pass
        finally:
            future.cancel()
        raise self._late(seconds)

    async def ascore_within(
        self, query: str, documents: Sequence[str], seconds: float | None
    ) -> Scores:
        """Do what `score_within` does; cancelling it cancels requests and gives back the permit.

        Raises:
            TierError: As `score_within` does.
            InputError: As `score_within` does.
        """
        if not documents:
            return Scores([])
        seconds, number = self._admitted(len(documents), seconds)
        end = time.monotonic() + seconds
        future = background().submit(self._answer(query, documents, end, number))
        try:
            async with asyncio.timeout(seconds + _GRACE):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            message = f"{self.name} was shut down while it was asked"
            raise TierError("api_error", message) from None
        finally:
            future.cancel()
        raise self._late(seconds)

    def _admitted(self, documents: int, seconds: float | None) -> tuple[float, int]:
        """Return how long a call may take, and how many documents it may read."""
        closed_off = self.breaker.seconds_closed_off
        if closed_off > 0:
            raise self._blocked(closed_off)
        number = documents
        if seconds is not None:
            if self._fewer_pairs:
                affordable = self.pace.affordable(seconds * 1000)
                number = min(documents, max(affordable, LEAST_PAIRS))
            check_pace(self.name, self.pace, number, seconds)
        return min(self.timeout, math.inf if seconds is None else seconds), number

    async def _answer(
        self, query: str, documents: Sequence[str], end: float, number: int
    ) -> Scores:
        """Ask the provider for the scores of the first documents, until `time.monotonic` is end."""
        until = asyncio.get_running_loop().time() + end - time.monotonic()
        permit = self.breaker.admit()
        if permit is None:
            raise self._blocked(self.breaker.seconds_closed_off)
        with permit:
            try:
                texts, cut, size = await self._prepared(query, documents[:number], until)
            except (InputError, ModelError, TierError):
                permit.release()  # nothing was sent
                raise
            start = self._clock()
            batches = self._split(len(texts), size)
            answers = await asyncio.gather(
                *(
                    self._batch(query, [texts[place] for place in places], until)
                    for places in batches
                ),
                return_exceptions=True,
            )
            elapsed = (self._clock() - start) * 1000
            found: list[float | None] = [None] * len(texts)
            errors: list[TierError] = []
            for places, answer in zip(batches, answers, strict=True):
                if isinstance(answer, list):
                    for place, score in zip(places, answer, strict=True):
                        found[place] = score
                elif isinstance(answer, TierError):
                    errors.append(answer)
                else:
                    if isinstance(answer, ModelError):
                        permit.release()
                    raise answer
            scored = len(found) - found.count(None)
            if errors and scored < LEAST_PAIRS:
                if all(one.code == "budget" for one in errors):
                    permit.release()  # nothing was sent
                self.pace.observe_at_least(len(texts), elapsed)
                raise next((one for one in errors if one.code == "api_error"), errors[0])
            self.pace.observe(scored, elapsed)
        pairs = [
            None if score is None else PairScore(score, was_cut)
            for score, was_cut in zip(found, cut, strict=True)
        ]
        missing = None
        if errors:
            missing = Degradation(
                code="partial_scores",
                detail=f"{scored} of {len(texts)} documents were scored: {errors[0]}",
            )
        elif number < len(documents):
            missing = Degradation(
                code="budget",
                detail=f"{self.name} was given {number} of {len(documents)} documents, which is "
                "what the time is enough for",
            )
        return Scores([*pairs, *[None] * (len(documents) - number)], missing)

    def _split(self, documents: int, most: int | None) -> list[list[int]]:
        """Return the places of each batch; whoever ranks all at once makes one of them."""
        return _batches(documents, most)

    async def _prepared(
        self, query: str, documents: Sequence[str], until: float
    ) -> tuple[list[str], list[bool], int | None]:
        """Return the texts to send, which of them were cut, and how many fit into a request."""
        prepare_transport = getattr(self._transport, "prepare", None)
        if prepare_transport is not None and not self._ready:
            await self._in_thread(prepare_transport, until, "what is done only once, at first use")
            self._ready = True
        limits = self._limits
        if limits is None:
            return list(documents), [False] * len(documents), None

        def prepare() -> tuple[list[str], list[bool], int | None]:
            asked = tokens.count(query, limits.query_tokens)
            if asked > limits.query_tokens:
                raise InputError(
                    "query_too_long",
                    f"the query has {len(query):,} characters, {self.name} reads at most "
                    f"{limits.query_tokens:,} tokens: pass the part that says what is wanted",
                )
            pairs = [tokens.cut(one, limits.document_tokens) for one in documents]
            return [text for text, _ in pairs], [cut for _, cut in pairs], limits.batch(asked)

        longest = max([len(query) * 2, *map(len, documents)])
        if longest * 4 <= limits.document_tokens:  # four bytes per character at most: all fit
            return prepare()
        # Counting tokens takes long enough to hold up the calls of others.
        return await self._in_thread(prepare, until, "cutting long documents")

    async def _in_thread(self, work: Callable[[], Result], until: float, what: str) -> Result:
        """Do work that would hold up the loop, and that comes before anything is sent."""
        try:
            async with asyncio.timeout_at(until):
                return await asyncio.to_thread(work)
        except TimeoutError:
            pass
        raise TierError("budget", f"{self.name}: the time was used up by {what}")

    async def _batch(self, query: str, documents: Sequence[str], until: float) -> list[float]:
        """Send one batch, more than once if need be, and return one score per document."""
        loop = asyncio.get_running_loop()
        limit = background().limit(self.endpoint, self._concurrency)
        started = loop.time()
        sent = False
        attempt = 0
        while True:
            attempt += 1
            problem = TransportError(f"no answer within {(until - started) * 1000:.0f} ms")
            try:
                async with asyncio.timeout_at(until), limit:
                    sent = True
                    found = await self._transport(query, documents, timeout=until - loop.time())
                return checked(found, len(documents))
            except TimeoutError:
                pass  # final: it has used up what time there was
            except TransportError as error:
                problem = TransportError(
                    str(error), retryable=error.retryable, retry_after=error.retry_after
                )
            except ModelError:
                raise  # a library that is missing is no fault of the endpoint
            except Exception as error:  # its text may hold anything, even the key
                problem = TransportError(f"the transport raised {type(error).__name__}")
            if not sent:
                raise TierError("budget", f"{self.name}: no connection was free in time")
            pause = max(_pause(attempt), problem.retry_after)
            if not problem.retryable or attempt >= self._attempts or loop.time() + pause >= until:
                tried = f" (sent {attempt} times)" if attempt > 1 else ""
                raise TierError("api_error", f"{self.name}: {problem}{tried}")
            await asyncio.sleep(pause)

    def _blocked(self, seconds: float) -> TierError:
        if self.breaker.state is State.HALF_OPEN or not seconds:
            return TierError(
                "circuit_breaker", f"{self.name} is being tried out after it failed: not asked"
            )
        return TierError(
            "circuit_breaker", f"{self.name} has failed: not asked again for {seconds:.0f} s"
        )

    def _late(self, seconds: float) -> TierError:
        return TierError("api_error", f"{self.name}: no answer within {seconds * 1000:.0f} ms")


def checked(found: object, documents: int) -> list[float]:
    """Return the scores in the order of the documents.

    Raises:
        TransportError: If they are not exactly one finite number for each document.
    """
    scores: dict[int, float] = {}
    problem = ""
    try:
        for index, score in found:  # type: ignore[attr-defined]
            if type(index) is not int or isinstance(score, bool | str):
                problem = "an answer that is no pair of position and score"
            elif not 0 <= index < documents:
                problem = f"a score for document {index} of {documents}"
            elif index in scores:
                problem = f"two scores for document {index}"
            elif not math.isfinite(score):
                problem = f"a score that is no number for document {index}"
            if problem:
                break
            scores[index] = float(score)
    except (TypeError, ValueError, OverflowError):
        problem = "an answer that is no list of positions and scores"
    if not problem and len(scores) < documents:
        problem = f"{len(scores)} scores for {documents} documents"
    if problem:
        raise TransportError(f"it returned {problem}")
    return [scores[place] for place in range(documents)]


def breaker_of(endpoint: str) -> CircuitBreaker:
    """Return the process's one circuit breaker of an endpoint."""
    # No lock: of two that are made at once, setdefault keeps one.
    return _breakers.get(endpoint) or _breakers.setdefault(endpoint, CircuitBreaker())


def breakers() -> dict[str, CircuitBreaker]:
    """Return the circuit breakers of this process by endpoint."""
    return dict(_breakers)


_breakers: dict[str, CircuitBreaker] = {}
_paces: dict[str, Pace] = {}


def _batches(documents: int, most: int | None) -> list[list[int]]:
    size = documents if documents <= _ONE_BATCH else _BATCH
    size = max(1, size if most is None else min(size, most))
    batches: list[list[int]] = [[] for _ in range(math.ceil(documents / size))]
    place = 0
    # Dealt in turn, so that a batch that fails takes its share of the best, and not all of them.
    for turn in range(size):
        for number, batch in enumerate(batches):
            if turn < documents - number * size:
                batch.append(place)
                place += 1
    return batches


def _pause(attempt: int) -> float:
    """Full jitter: Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015."""
    return random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)))  # noqa: S311
