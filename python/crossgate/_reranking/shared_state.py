"""Health of rerankers, learned from their calls, and the state that the process shares.

Health is a latency estimate and a circuit breaker; all rerankers of an endpoint share one breaker.
A forked child starts with fresh locks and connections.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from crossgate._support.checks import check_count, check_number

if TYPE_CHECKING:
    from crossgate._reranking.contract import Reranker

# Calls with fewer pairs move the estimate less: round-trip time dominates them.
_FULL_WEIGHT_PAIRS = 10
_RATE = 0.2
# Share by which a refused call moves the estimate back to its initial value. Without it a slow
# period would exclude a reranker for ever, since only calls can show that the period is over.
_FORGETTING = 0.05
# Keeps a clock with coarse resolution from making pairs free.
_LEAST_MS_PER_PAIR = 1e-6

# Covers a day in which the state changes every few minutes.
_LOG_LENGTH = 256


class LatencyEstimate:
    """Latency of a reranker per pair of query and passage, learned from its calls.

    The estimate is an exponentially weighted mean of milliseconds per pair. The first call is
    ignored, since it loads a model or opens a connection. Threads may share an estimate: if two
    write at the same time, one of the two observations may be lost.

    Args:
        ms_per_pair: Initial estimate in milliseconds; above 0.
        absolute_floor_ms: Minimum milliseconds of a call, whatever its number of pairs; at least 0.

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
        """Return the expected milliseconds of a call with this number of pairs."""
        return max(self.absolute_floor_ms, pairs * self.ms_per_pair)

    def observe(self, pairs: int, ms: float) -> None:
        """Update the estimate with a call that scored `pairs` pairs in `ms` milliseconds."""
        if pairs > 0 and self._warm:
            self._move(pairs, ms)
        self._warm = True

    def observe_at_least(self, pairs: int, ms: float) -> None:
        """Update the estimate with a call that was abandoned after `ms` milliseconds."""
        if pairs > 0 and ms / pairs > self.ms_per_pair:
            self._move(pairs, ms)

    def forget(self) -> None:
        """Move the estimate towards its initial value, after a call that was refused."""
        self.ms_per_pair += _FORGETTING * (self._start - self.ms_per_pair)

    def _move(self, pairs: int, ms: float) -> None:
        weight = _RATE * min(1.0, pairs / _FULL_WEIGHT_PAIRS)
        self.ms_per_pair += weight * (ms / pairs - self.ms_per_pair)
        self.ms_per_pair = max(self.ms_per_pair, _LEAST_MS_PER_PAIR)


class State(StrEnum):
    """State of a circuit breaker."""

    CLOSED = "closed"
    """All calls are admitted."""
    OPEN = "open"
    """No call is admitted until the cool-down is over."""
    HALF_OPEN = "half_open"
    """A limited number of trial calls is admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One change of a breaker's state.

    Attributes:
        at: Time of the change, in seconds of the breaker's clock.
        before: The previous state.
        after: The new state.
    """

    at: float
    before: State
    after: State


class CircuitBreaker:
    """Stops calls to a failing endpoint, and admits trial calls until it has recovered.

        closed ──3 failures in a row──► open ──60 s──► half open ──2 successes──► closed
                                         ▲                │
                                         └───1 failure────┘

    Nygard, "Release It!" (2nd edition, 2018), chapter 5. Threads and tasks may share a breaker.
    Get a permit from `admit` before each call, and settle it afterwards:

        permit = breaker.admit()
        if permit is None:
            ...  # skip the call
        with permit:  # an exception is a failure; a cancelled call is ignored
            call()

    Only calls that were admitted after the last change of state count: an older call tells nothing
    about whether the endpoint has recovered. A forked child starts with a closed breaker.

    Args:
        failures: Consecutive failures that open the breaker; at least 1.
        cooldown: Seconds until an open breaker admits trial calls; at least 0.
        successes: Consecutive successful trial calls that close the breaker; at least 1.
        trials: Maximum number of concurrent trial calls; at least 1.
        clock: Returns monotonic seconds.

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
        self._counted = 0  # consecutive failures while closed, successes while half open
        self._trials_out = 0
        self._opened_at = 0.0
        self._log: deque[Transition] = deque(maxlen=_LOG_LENGTH)

    @property
    def state(self) -> State:
        """Current state. An open breaker becomes half open at the first call after cool-down."""
        with self._own_lock():
            return self._state

    @property
    def seconds_closed_off(self) -> float:
        """Seconds until an open breaker admits a trial call; 0 in every other state."""
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
        # After a fork, the lock may have been held by another thread of the parent, and the calls
        # in progress belong to the parent.
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
    """Permission for one call. Only the first outcome is recorded."""

    __slots__ = ("_breaker", "_generation", "_settled")

    def __init__(self, breaker: CircuitBreaker, generation: int) -> None:
        self._breaker = breaker
        self._generation = generation
        self._settled = False

    def success(self) -> None:
        """Record that the call succeeded."""
        self._settle(True)

    def failure(self) -> None:
        """Record that the call failed."""
        self._settle(False)

    def release(self) -> None:
        """Record that the call ended without evidence about the endpoint."""
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


RerankerKey = str | tuple[type, str]
"""An endpoint, or the class and identity of a reranker without an endpoint."""

loaded: dict[tuple[str, str], Reranker] = {}
"""Loaded rerankers by kind and by name or folder; guarded by `load_lock`."""
# Reentrant, since a plug-in may load another model by name in its constructor.
load_lock = threading.RLock()
breakers: dict[RerankerKey, CircuitBreaker] = {}
latencies: dict[RerankerKey, LatencyEstimate] = {}

_lock = threading.Lock()
_clients: dict[str, Client] = {}
_lost: list[dict[str, Client]] = []


class Client(Protocol):
    """Holds the connections to an address."""

    def close(self) -> None:
        """Close all connections."""


def client(address: str, make: Callable[[], Client]) -> Any:
    """Return the client of an address that all threads share, and create it on first use."""
    with _lock:
        if address not in _clients:
            _clients[address] = make()
        return _clients[address]


def shut_down() -> None:
    """Close the connections that threads share; the next remote call opens new ones.

    The process calls this at exit. An event loop closes its own connections when it ends.
    """
    with _lock:
        ended = list(_clients.values())
        _clients.clear()
    for each in ended:
        each.close()


def _after_fork() -> None:
    # Another thread of the parent may have held a lock. The connections belong to the parent:
    # `_lost` keeps them from the garbage collector, which would close them. A circuit breaker
    # detects the new process itself.
    global _lock, load_lock, _clients
    _lock, load_lock = threading.Lock(), threading.RLock()
    _lost.append(_clients)
    _clients = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(shut_down)
