"""Admission to stage 2: the bounds around any reranker, of which the reranker knows nothing."""

from __future__ import annotations

import concurrent.futures
import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from crossgate._reranking import shared_state
from crossgate._reranking.contract import (
    LEAST_PAIRS,
    NO_DEADLINE,
    AsyncReranker,
    Deadline,
    PairScore,
    Reranker,
    Scores,
    check_reranker,
)
from crossgate._reranking.health import CircuitBreaker, LatencyEstimate, State
from crossgate._support.errors import InputError, ModelError, RerankerError
from crossgate._values.results import Degradation, Passage

Result = TypeVar("Result")

# A score beyond this could overflow when it is combined with those of stage 1.
_GREATEST_SCORE = 1e30
# A reranker that keeps its deadline itself says more about what happened, and comes first.
_GRACE = 0.02
_MS_PER_PAIR = 10.0


class GuardedReranker:
    """A reranker within bounds: budget, pace and circuit breaker around each of its calls.

    Every reranker that a router is given runs within such bounds; make them yourself to choose
    them:

        Router(index, reranker=[GuardedReranker(VoyageReranker(), allow_partial=True), "default"])

    A call is refused while the breaker is open, or if less time is left than the pace expects it
    to take. The answer is checked: one finite score per passage, none beyond 1e30.

    With a deadline, the call runs on a thread of its own. When the deadline has passed, nobody
    waits for it any more: it runs to its end, and keeps its thread, its memory and the processors
    that it uses until then. Such a call counts as a failure, so that a reranker that never returns
    costs three threads, and then one more after each cool-down. Without a deadline, a call runs on
    the calling thread, for as long as it takes.

    Args:
        reranker: Whom to ask; attributes that tell about it are listed at `Reranker`.
        breaker: In place of the one that all rerankers of this endpoint share, or, without an
            endpoint, all of this class and identity. There, only calls that did not keep their
            deadline count as failures.
        pace: In place of the one that all rerankers of this class and identity share.
        allow_partial: If there is not enough time for all passages, score as many of the first ones
            as there is time for, instead of none.
        clock: Returns seconds that never go back; used to measure the pace.
    """

    def __init__(
        self,
        reranker: Reranker,
        *,
        breaker: CircuitBreaker | None = None,
        pace: LatencyEstimate | None = None,
        allow_partial: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_reranker(reranker)
        self.reranker = reranker
        kind = (type(reranker), reranker.identity)
        endpoint: str | None = getattr(reranker, "endpoint", None)
        self._has_endpoint = endpoint is not None
        self._stops_in_time: bool = getattr(reranker, "stops_in_time", False)
        self.breaker = breaker or _shared(shared_state.breakers, endpoint or kind, CircuitBreaker)
        self.pace = pace or _shared(shared_state.paces, kind, partial(_first_pace, reranker))
        self._fewer_pairs = allow_partial
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
        """Whether the breaker is closed and the reranker does not say that it takes no calls."""
        if self.breaker.state is not State.CLOSED:
            return False
        try:
            said = getattr(self.reranker, "available", True)
            return bool(said() if callable(said) else said)
        except Exception:  # whatever it raises, it will not do better when it is asked to score
            return False

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline = NO_DEADLINE
    ) -> Scores:
        """Return what scores the reranker gives in time, at least two of two passages or more.

        Raises:
            RerankerError: `circuit_breaker`, `budget`, or what the reranker raises.
            ValueError: If its answer is not one finite score per passage.
        """
        if not passages:
            return Scores()
        with self._attempt(passages, deadline) as (given, settle):
            call = partial(self._ask, query, given, deadline)
            left = deadline.left
            if left is None:
                return settle(call())
            future = beside(call, self.name)
            concurrent.futures.wait([future], left + _GRACE)
            if not future.done():
                raise self._overrun(left)
            return settle(future.result())

    async def ascore(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline = NO_DEADLINE
    ) -> Scores:
        """Do what `score` does from an event loop: a remote reranker natively, others on threads.

        Raises:
            RerankerError: As `score` does.
            ValueError: As `score` does.
        """
        import asyncio

        if not passages:
            return Scores()
        with self._attempt(passages, deadline) as (given, settle):
            call = partial(self._ask, query, given, deadline)
            left = deadline.left
            end = asyncio.timeout(None if left is None else left + _GRACE)
            try:
                async with end:
                    if isinstance(self.reranker, AsyncReranker):
                        answer = await self.reranker.ascore(query, given, deadline=deadline)
                    elif left is None:
                        answer = await asyncio.to_thread(call)
                    else:  # not in the loop's pool: what is abandoned would block it
                        answer = await asyncio.wrap_future(beside(call, self.name))
            except TimeoutError:
                if left is None or not end.expired():
                    raise
                raise self._overrun(left) from None
            return settle(answer)

    def _given(self, passages: Sequence[Passage], deadline: Deadline) -> list[Passage]:
        """Return the reranker's own copy of what it is to read, or refuse the call."""
        left = deadline.left
        if left == 0:
            raise RerankerError("budget", f"the time for {self.name} passed before it was asked")
        if self.breaker.seconds_closed_off > 0:
            raise self._blocked()
        given = list(passages)
        if left is None:
            return given
        if self._fewer_pairs:
            given = given[: max(self.pace.affordable(left * 1000), LEAST_PAIRS)]
        least = self._least(given)
        needed = self.pace.floor_ms(least)
        if needed > left * 1000:
            self.pace.forget()
            raise RerankerError(
                "budget",
                f"{self.name} needs {needed:.0f} ms for {least} passages, and {left * 1000:.0f} ms "
                "are left for it",
            )
        return given

    def _least(self, given: Sequence[Passage]) -> int:
        """Return how many passages must be scored for the call to be worth making."""
        return min(LEAST_PAIRS, len(given)) if self._stops_in_time else len(given)

    @contextmanager
    def _attempt(
        self, passages: Sequence[Passage], deadline: Deadline
    ) -> Iterator[tuple[list[Passage], Callable[[Sequence[PairScore | None]], Scores]]]:
        """Hold a permit for one call; pace and breaker learn from how it ends.

        Yields what the reranker is to read, and the function that checks its answer.
        """
        given = self._given(passages, deadline)
        number, least = len(given), self._least(given)
        permit = self.breaker.admit()
        if permit is None:
            raise self._blocked()
        start = self._clock()

        def settle(answer: Sequence[PairScore | None]) -> Scores:
            scores = self._checked(passages, number, answer)
            scored = len(scores) - scores.count(None)
            self.pace.observe(scored, (self._clock() - start) * 1000)
            return scores

        with permit:
            try:
                yield given, settle
            except Exception as error:
                if not isinstance(error, InputError | ModelError):
                    self.pace.observe_at_least(least, (self._clock() - start) * 1000)
                if not self._is_failure(error):
                    permit.release()
                raise

    def _is_failure(self, error: Exception) -> bool:
        """Return whether an error says that the next call would most likely end as this one."""
        if isinstance(error, _Overrun):  # one that stops by itself is loading its model
            return not self._stops_in_time
        if isinstance(error, InputError | ModelError):  # the query, or a library that is missing
            return False
        spent = isinstance(error, RerankerError) and error.code == "budget"
        return self._has_endpoint and not spent

    def _ask(
        self, query: str, given: list[Passage], deadline: Deadline
    ) -> Sequence[PairScore | None]:
        try:
            return self.reranker.score(query, given, deadline=deadline)
        except StopIteration:  # no future and no generator can hold one
            raise RuntimeError(f"{self.name} raised StopIteration") from None

    def _checked(
        self, passages: Sequence[Passage], number: int, answer: Sequence[PairScore | None]
    ) -> Scores:
        """Return the answer for the first so many passages with a place for all, or refuse it."""
        missing: Degradation | None = getattr(answer, "missing", None)
        if len(answer) != number:
            raise ValueError(f"{self.name} returned {len(answer)} scores for {number} passages")
        pairs = [
            None if pair is None else _finite(passage, pair)
            for passage, pair in zip(passages, answer, strict=False)
        ]
        scored = number - pairs.count(None)
        told = f"{scored} of {len(passages)} passages"
        if scored < number:
            detail = f"{self.name} scored {told}"
            missing = missing or Degradation(code="partial_scores", detail=detail)
            if scored < min(LEAST_PAIRS, len(passages)):
                raise RerankerError(missing.code, missing.detail)
        elif number < len(passages):
            detail = f"{self.name} was given {told}, which is what the time is enough for"
            missing = Degradation(code="budget", detail=detail)
        return Scores([*pairs, *[None] * (len(passages) - number)], missing)

    def _blocked(self) -> RerankerError:
        seconds = self.breaker.seconds_closed_off
        if self.breaker.state is State.HALF_OPEN or not seconds:
            return RerankerError(
                "circuit_breaker", f"{self.name} is being tried out after it failed: not asked"
            )
        return RerankerError(
            "circuit_breaker", f"{self.name} has failed: not asked again for {seconds:.0f} s"
        )

    def _overrun(self, seconds: float) -> RerankerError:
        return _Overrun(
            "budget",
            f"{self.name} gave no answer within {seconds * 1000:.0f} ms: its call is not waited "
            "for any more",
        )


class _Overrun(RerankerError):
    """A call that did not keep its deadline."""


def _shared(
    kept: dict[shared_state.Key, Result], key: shared_state.Key, make: Callable[[], Result]
) -> Result:
    # No lock: of two that are made at once, setdefault keeps one.
    return kept.get(key) or kept.setdefault(key, make())


def _first_pace(reranker: Reranker) -> LatencyEstimate:
    return LatencyEstimate(
        ms_per_pair=getattr(reranker, "ms_per_pair", _MS_PER_PAIR),
        absolute_floor_ms=getattr(reranker, "absolute_floor_ms", 0.0),
    )


def _finite(passage: Passage, pair: PairScore) -> PairScore:
    score = float(pair.score)
    if not abs(score) <= _GREATEST_SCORE:
        raise ValueError(f"the score of {passage.id!r} is {score}: it must be within 1e30 of 0")
    return PairScore(score, bool(pair.truncated))


def beside(work: Callable[[], Result], name: str) -> concurrent.futures.Future[Result]:
    """Start work on a thread of its own, which does not keep the process from ending."""
    future: concurrent.futures.Future[Result] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # from here on nobody can cancel it
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = context.run(work)
        except BaseException as error:  # it belongs to who waits
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=f"crossgate-{name}", daemon=True).start()
    return future
