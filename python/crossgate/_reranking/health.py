"""What stage 2 has learned of a reranker from earlier calls: how fast it is, whether it fails."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self

from crossgate._support.checks import check_count, check_number

# A call of this many pairs or more moves the estimate by the whole of `_RATE`; one of fewer says
# less about the pace, since most of its time is the way there and back.
_FULL_WEIGHT_PAIRS = 10
_RATE = 0.2
# How far a refused call moves the estimate back to its start: a slow spell must not shut a reranker
# out for good, since only calls that are made can show that it is over.
_FORGETTING = 0.05
# A clock that stands still would make a pair free, and so endlessly many of them affordable.
_LEAST_MS_PER_PAIR = 1e-6

# Enough to see what happened in a day of flapping every few minutes.
_LOG_LENGTH = 256


class LatencyEstimate:
    """How long a reranker takes per pair of query and passage, learned from its calls.

    The estimate is an exponentially weighted mean of milliseconds per pair. The first call does not
    count: it loads a model or opens a connection. Threads may share a pace: two that write at once
    may lose one of the two observations, and no more.

    Args:
        ms_per_pair: What to assume before the first call; above 0.
        absolute_floor_ms: Less than this is never enough, however few the pairs; at least 0.

    Raises:
        InputError: `out_of_range` for a number outside of these limits.
    """

    __slots__ = ("_start", "_warm", "absolute_floor_ms", "ms_per_pair")

    def __init__(self, *, ms_per_pair: float, absolute_floor_ms: float = 0.0) -> None:
        check_number("ms_per_pair", ms_per_pair, 0, above=True)
        check_number("absolute_floor_ms", absolute_floor_ms, 0)
        self._start = ms_per_pair
        self._warm = False
        self.ms_per_pair = ms_per_pair
        self.absolute_floor_ms = absolute_floor_ms

    def floor_ms(self, pairs: int) -> float:
        """Return how many milliseconds a call with so many pairs needs."""
        return max(self.absolute_floor_ms, pairs * self.ms_per_pair)

    def affordable(self, ms: float) -> int:
        """Return how many pairs fit into so many milliseconds."""
        return 0 if ms < self.absolute_floor_ms else int(ms / self.ms_per_pair)

    def observe(self, pairs: int, ms: float) -> None:
        """Learn from a call that scored so many pairs."""
        if pairs > 0 and self._warm:
            self._move(pairs, ms)
        self._warm = True

    def observe_at_least(self, pairs: int, ms: float) -> None:
        """Learn from a call that was given up after so long: it would have taken longer."""
        if pairs > 0 and ms / pairs > self.ms_per_pair:
            self._move(pairs, ms)

    def forget(self) -> None:
        """Move back towards the start a little, after a call that was not made."""
        self.ms_per_pair += _FORGETTING * (self._start - self.ms_per_pair)

    def _move(self, pairs: int, ms: float) -> None:
        weight = _RATE * min(1.0, pairs / _FULL_WEIGHT_PAIRS)
        self.ms_per_pair += weight * (ms / pairs - self.ms_per_pair)
        self.ms_per_pair = max(self.ms_per_pair, _LEAST_MS_PER_PAIR)


class State(StrEnum):
    """What a circuit breaker lets through."""

    CLOSED = "closed"
    """Every call: all is well."""
    OPEN = "open"
    """None, until the cool-down is over."""
    HALF_OPEN = "half_open"
    """A few trial calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of a breaker's state.

    Attributes:
        at: When, in seconds of the breaker's clock.
        before: The state that was left.
        after: The state that was entered.
    """

    at: float
    before: State
    after: State


class CircuitBreaker:
    """Stops calls to an endpoint that fails, and finds out when it is well again.

        closed ──3 failures in a row──► open ──60 s──► half open ──2 successes──► closed
                                         ▲                │
                                         └───1 failure────┘

    Nygard, "Release It!" (2nd edition, 2018), chapter 5. Threads and tasks may share a breaker.
    Ask `admit` for a permit before each call, and settle the permit after it:

        permit = breaker.admit()
        if permit is None:
            ...  # do without
        with permit:  # an exception is a failure, a cancelled call counts for nothing
            call()

    Only calls that were admitted since the last change of state count: what a call says that was
    sent before the endpoint broke down tells nothing about whether it has recovered. A child that
    is forked starts with a closed breaker of its own.

    Args:
        failures: How many failures in a row open the breaker; at least 1.
        cooldown: Seconds until an open breaker allows trial calls; at least 0.
        successes: How many trial calls must succeed, one failing none, to close it; at least 1.
        trials: How many trial calls may be under way at once; at least 1.
        clock: Returns seconds that never go back.

    Raises:
        InputError: `out_of_range` for a number outside of these limits.
    """

    def __init__(
        self,
        *,
        failures: int = 3,
        cooldown: float = 60.0,
        successes: int = 2,
        trials: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value in (("failures", failures), ("successes", successes), ("trials", trials)):
            check_count(name, value)
        check_number("cooldown", cooldown, 0)
        self.failures = failures
        self.cooldown = cooldown
        self.successes = successes
        self.trials = trials
        self._clock = clock
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._state = State.CLOSED
        self._generation = 0
        self._counted = 0  # failures in a row while closed, successes while half open
        self._trials_out = 0
        self._opened_at = 0.0
        self._log: deque[Transition] = deque(maxlen=_LOG_LENGTH)

    @property
    def state(self) -> State:
        """The state now. An open breaker stays so until a call asks after the cool-down."""
        with self._own_lock():
            return self._state

    @property
    def seconds_closed_off(self) -> float:
        """Seconds until an open breaker allows a trial call; 0 in every other state."""
        with self._own_lock():
            return self._wait()

    @property
    def transitions(self) -> tuple[Transition, ...]:
        """The last 256 changes of state, oldest first."""
        with self._own_lock():
            return tuple(self._log)

    def admit(self) -> Permit | None:
        """Return a permit for one call, or None if the call must not be made."""
        with self._own_lock():
            if self._wait() > 0:
                return None
            if self._state is State.OPEN:
                self._move(State.HALF_OPEN)
            if self._state is State.HALF_OPEN:
                if self._trials_out >= self.trials:
                    return None
                self._trials_out += 1
            return Permit(self, self._generation)

    def _own_lock(self) -> threading.Lock:
        # In a forked child another thread of the parent may have held the lock, and the calls under
        # way are the parent's to settle.
        if self._process != os.getpid():
            self._start()
        return self._lock

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.state}>"

    def _wait(self) -> float:
        if self._state is not State.OPEN:
            return 0.0
        return max(0.0, self._opened_at + self.cooldown - self._clock())

    def _settle(self, generation: int, succeeded: bool | None) -> None:
        with self._own_lock():
            if generation != self._generation:
                return
            if self._state is State.HALF_OPEN:
                self._trials_out -= 1
                if succeeded is False:
                    self._move(State.OPEN)
                elif succeeded:
                    self._counted += 1
                    if self._counted >= self.successes:
                        self._move(State.CLOSED)
            elif succeeded is False:
                self._counted += 1
                if self._counted >= self.failures:
                    self._move(State.OPEN)
            elif succeeded:
                self._counted = 0

    def _move(self, state: State) -> None:
        now = self._clock()
        self._log.append(Transition(at=now, before=self._state, after=state))
        self._state = state
        self._generation += 1
        self._counted = 0
        self._trials_out = 0
        self._opened_at = now


class Permit:
    """Leave to make one call. The first word on how the call went counts, later ones do not."""

    __slots__ = ("_breaker", "_generation", "_settled")

    def __init__(self, breaker: CircuitBreaker, generation: int) -> None:
        self._breaker = breaker
        self._generation = generation
        self._settled = False

    def success(self) -> None:
        """Say that the endpoint answered as it should."""
        self._settle(True)

    def failure(self) -> None:
        """Say that the endpoint failed."""
        self._settle(False)

    def release(self) -> None:
        """Say that the call was given up before the endpoint could show how it is."""
        self._settle(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.success()
        elif issubclass(kind, Exception):
            self.failure()
        else:  # cancelled or interrupted
            self.release()

    def _settle(self, succeeded: bool | None) -> None:
        if not self._settled:
            self._settled = True
            self._breaker._settle(self._generation, succeeded)
