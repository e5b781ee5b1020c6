"""`GuardedReranker`: budget, latency estimate and circuit breaker around any reranker."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from crossgate._reranking import shared_state
from crossgate._reranking.contract import (
    LEAST_PAIRS,
    NO_DEADLINE,
    AnytimeReranker,
    AsyncReranker,
    Deadline,
    Enough,
    PairScore,
    Reranker,
    Scores,
    check_reranker,
)
from crossgate._reranking.shared_state import CircuitBreaker, LatencyEstimate, State
from crossgate._runtime.threads import run_on_thread
from crossgate._support.errors import InputError, ModelError, RerankerError, raise_panic
from crossgate._support.wording import counted, share_of
from crossgate._values.results import Degradation, Passage

Result = TypeVar("Result")

# A score beyond this could overflow when it is combined with those of stage 1.
_GREATEST_SCORE = 1e30
# Seconds after the deadline in which a reranker can still raise its own, more precise error.
_GRACE = 0.02
_MS_PER_PAIR = 10.0


class GuardedReranker:
    """Adds a budget, a latency estimate and a circuit breaker to a reranker.

    A router wraps each of its rerankers in this class. Wrap one yourself to choose the options:

        Router(index, reranker=[GuardedReranker(VoyageReranker(), breaker=mine), "default"])

    A call is refused while the breaker is open, or if its expected latency exceeds the time left.
    The answer is checked: one finite score per passage, none beyond 1e30.

    With a deadline, the call runs on a thread of its own. After the deadline the caller stops
    waiting, but the call runs to its end and occupies its thread, memory and CPU until then. Such a
    call counts as a failure, so a reranker that never returns costs three threads, and then one
    more after each cool-down. Without a deadline, the call runs on the calling thread.

    Args:
        reranker: The reranker; `Reranker` lists its optional attributes.
        breaker: Circuit breaker to use. By default, all rerankers of one endpoint share one, and
            without an endpoint, all of one class and identity; for these, only missed deadlines
            count as failures.
        latency: Latency estimate to use. By default, all rerankers of one class and identity share
            one.
        clock: Returns monotonic seconds; used to measure latency.
    """

    def __init__(
        self,
        reranker: Reranker,
        *,
        breaker: CircuitBreaker | None = None,
        latency: LatencyEstimate | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_reranker(reranker)
        self.reranker = reranker
        kind = (type(reranker), reranker.identity)
        endpoint: str | None = getattr(reranker, "endpoint", None)
        self._has_endpoint = endpoint is not None
        self._stops_in_time: bool = getattr(reranker, "stops_in_time", False)
        self.breaker = breaker or _shared(shared_state.breakers, endpoint or kind, CircuitBreaker)
        first = partial(_initial_latency, reranker)
        self.latency = latency or _shared(shared_state.latencies, kind, first)
        self._clock = clock

    def __repr__(self) -> str:
        return f"<GuardedReranker {self.identity} {self.breaker.state}>"

    @property
    def name(self) -> str:
        """The reranker's name."""
        return self.reranker.name

    @property
    def identity(self) -> str:
        """The reranker's identity."""
        return self.reranker.identity

    @property
    def available(self) -> bool:
        """Whether the breaker is closed and the reranker takes calls."""
        if self.breaker.state is not State.CLOSED:
            return False
        try:
            available = getattr(self.reranker, "available", True)
            return bool(available() if callable(available) else available)
        except Exception:  # a reranker that fails here would fail in `score` too
            return False

    def score(
        self,
        query: str,
        passages: Sequence[Passage],
        *,
        deadline: Deadline = NO_DEADLINE,
        enough: Enough | None = None,
    ) -> Scores:
        """Return the scores that the reranker computes in time; at least two for several passages.

        If the reranker is an `AnytimeReranker`, it stops after the first passages for which
        `enough` returns True.

        Raises:
            RerankerError: `circuit_breaker`, `budget`, or an error of the reranker.
            ValueError: If the answer is not one finite score per passage.
        """
        if not passages:
            return Scores()
        with self._attempt(passages, deadline) as (pool, settle):
            call = partial(self._ask, query, pool, deadline, enough)
            left = deadline.left
            if left is None:
                return settle(call())
            future = run_on_thread(call, self.name)
            concurrent.futures.wait([future], left + _GRACE)
            if not future.done():
                raise self._overrun(left)
            return settle(future.result())

    async def ascore(
        self,
        query: str,
        passages: Sequence[Passage],
        *,
        deadline: Deadline = NO_DEADLINE,
        enough: Enough | None = None,
    ) -> Scores:
        """Like `score`, from an event loop: remote rerankers run natively, others on threads.

        Raises:
            RerankerError: As `score` does.
            ValueError: As `score` does.
        """
        import asyncio

        if not passages:
            return Scores()
        with self._attempt(passages, deadline) as (pool, settle):
            call = partial(self._ask, query, pool, deadline, enough)
            left = deadline.left
            end = asyncio.timeout(None if left is None else left + _GRACE)
            try:
                async with end:
                    if isinstance(self.reranker, AsyncReranker):
                        answer = await self.reranker.ascore(query, pool, deadline=deadline)
                    elif left is None:
                        answer = await asyncio.to_thread(call)
                    else:  # not on the loop's pool, which an abandoned call would block
                        answer = await asyncio.wrap_future(run_on_thread(call, self.name))
            except TimeoutError:
                if left is None or not end.expired():
                    raise
                raise self._overrun(left) from None
            return settle(answer)

    def _check_time(self, least: int, deadline: Deadline) -> None:
        """Refuse a call that cannot score the least number of passages in time."""
        left = deadline.left
        if left == 0:
            raise RerankerError("budget", f"the time was up before {self.name} was called")
        if self.breaker.seconds_closed_off > 0:
            raise self._blocked()
        needed = self.latency.floor_ms(least)
        if left is not None and needed > left * 1000:
            self.latency.forget()
            raise RerankerError(
                "budget",
                f"{self.name} needs {needed:.0f} ms for {counted(least, 'passage')}, but only "
                f"{left * 1000:.0f} ms are left",
            )

    @contextmanager
    def _attempt(
        self, passages: Sequence[Passage], deadline: Deadline
    ) -> Iterator[tuple[list[Passage], Callable[[Sequence[PairScore | None]], Scores]]]:
        """Hold a permit for one call, and update latency estimate and breaker with its outcome.

        Yields a copy of the passages, and the function that checks the answer.
        """
        number = len(passages)
        least = min(LEAST_PAIRS, number) if self._stops_in_time else number
        self._check_time(least, deadline)
        permit = self.breaker.admit()
        if permit is None:
            raise self._blocked()
        start = self._clock()

        def settle(answer: Sequence[PairScore | None]) -> Scores:
            scores = self._checked(passages, answer)
            scored = len(scores) - scores.count(None)
            self.latency.observe(scored, (self._clock() - start) * 1000)
            return scores

        with permit:
            try:
                yield list(passages), settle
            except Exception as error:
                if not isinstance(error, InputError | ModelError):
                    self.latency.observe_at_least(least, (self._clock() - start) * 1000)
                if not self._is_failure(error):
                    permit.release()
                raise

    def _is_failure(self, error: Exception) -> bool:
        """Return whether an error is likely to recur on the next call."""
        if isinstance(error, _Overrun):  # a reranker that stops in time was loading its model
            return not self._stops_in_time
        if isinstance(error, InputError | ModelError):  # bad query or missing library
            return False
        spent = isinstance(error, RerankerError) and error.code == "budget"
        return self._has_endpoint and not spent

    def _ask(
        self, query: str, pool: list[Passage], deadline: Deadline, enough: Enough | None
    ) -> Sequence[PairScore | None]:
        try:
            if enough is not None and isinstance(self.reranker, AnytimeReranker):
                return self.reranker.score_until(query, pool, deadline=deadline, enough=enough)
            return self.reranker.score(query, pool, deadline=deadline)
        except StopIteration:  # futures and generators cannot carry a StopIteration
            raise RuntimeError(f"{self.name} raised StopIteration") from None
        except BaseException as error:
            raise_panic(error, self.name)
            raise

    def _checked(self, passages: Sequence[Passage], answer: Sequence[PairScore | None]) -> Scores:
        """Check the answer: one finite score per passage, unless some are known to be missing."""
        missing: Degradation | None = getattr(answer, "missing", None)
        stopped: bool = getattr(answer, "stopped", False)
        number = len(passages)
        if len(answer) != number:
            raise ValueError(
                f"{self.name} returned {counted(len(answer), 'score')} for "
                f"{counted(number, 'passage')}"
            )
        pairs = [
            None if pair is None else _finite(passage, pair)
            for passage, pair in zip(passages, answer, strict=True)
        ]
        scored = number - pairs.count(None)
        if stopped and scored:
            return Scores(pairs, stopped=True)
        if scored < number:
            detail = f"{self.name} scored {share_of(scored, number, 'passage')}"
            missing = missing or Degradation(code="partial_scores", detail=detail)
            if scored < min(LEAST_PAIRS, number):
                raise RerankerError(missing.code, missing.detail)
        return Scores(pairs, missing)

    def _blocked(self) -> RerankerError:
        seconds = self.breaker.seconds_closed_off
        if self.breaker.state is State.HALF_OPEN or not seconds:
            return RerankerError(
                "circuit_breaker",
                f"{self.name} was not called: circuit half-open, a trial call is in progress",
            )
        return RerankerError(
            "circuit_breaker",
            f"{self.name} was not called: circuit open after failures, next trial in "
            f"{seconds:.0f} s",
        )

    def _overrun(self, seconds: float) -> RerankerError:
        return _Overrun(
            "budget",
            f"{self.name} did not answer within {seconds * 1000:.0f} ms; the call was abandoned",
        )


class _Overrun(RerankerError):
    """A call that missed its deadline."""


def _shared(
    states: dict[shared_state.RerankerKey, Result],
    key: shared_state.RerankerKey,
    make: Callable[[], Result],
) -> Result:
    # Without a lock two threads may both create one; setdefault keeps the first.
    return states.get(key) or states.setdefault(key, make())


def _initial_latency(reranker: Reranker) -> LatencyEstimate:
    return LatencyEstimate(
        ms_per_pair=getattr(reranker, "ms_per_pair", _MS_PER_PAIR),
        absolute_floor_ms=getattr(reranker, "absolute_floor_ms", 0.0),
    )


def _finite(passage: Passage, pair: PairScore) -> PairScore:
    score = float(pair.score)
    if not abs(score) <= _GREATEST_SCORE:
        raise ValueError(f"the score of {passage.id!r} is {score}: it must be within 1e30 of 0")
    return PairScore(score, bool(pair.truncated))
