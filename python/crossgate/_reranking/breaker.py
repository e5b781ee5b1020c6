"""A circuit breaker: stops asking an endpoint that fails, and finds out when it is well again.

    closed ──3 failures in a row──► open ──60 s──► half open ──2 successes──► closed
                                     ▲                │
                                     └───1 failure────┘

Nygard, "Release It!" (2nd edition, 2018), chapter 5.
"""

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

from crossgate._checks import check_count, check_number

# Enough to see what happened in a day of flapping every few minutes.
_LOG_LENGTH = 256


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
    """Admits calls to one endpoint; threads and tasks may share it.

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
