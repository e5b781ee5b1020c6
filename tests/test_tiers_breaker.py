"""The circuit breaker against a naive model, from threads and tasks; deadline and latency."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections import Counter, deque
from collections.abc import Sequence
from itertools import cycle, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from commands import python
from conftest import refused
from crossgate._reranking.shared_state import Permit, Transition
from crossgate.rerankers import CircuitBreaker, Deadline, LatencyEstimate, State

LAWFUL = {
    (State.CLOSED, State.OPEN),
    (State.OPEN, State.HALF_OPEN),
    (State.HALF_OPEN, State.OPEN),
    (State.HALF_OPEN, State.CLOSED),
}


def check_log(log: Sequence[Transition], *, cooldown: float) -> None:
    """Check that a breaker went from state to state as it may, and waited where it must."""
    for one in log:
        assert (one.before, one.after) in LAWFUL
    for one, following in pairwise(log):
        assert one.after == following.before
        assert one.at <= following.at
        if one.after is State.OPEN:
            assert following.at - one.at >= cooldown


class Clock:
    """A clock that is advanced by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class BreakerMachine(RuleBasedStateMachine):
    """Any sequence of calls; the model keeps every event and works the state out of them."""

    @initialize(
        failures=st.integers(1, 4),
        successes=st.integers(1, 3),
        trials=st.integers(1, 3),
        cooldown=st.sampled_from([0.0, 1.0, 60.0]),
    )
    def start(self, failures: int, successes: int, trials: int, cooldown: float) -> None:
        """Make a breaker and its model."""
        self.clock = Clock()
        self.breaker = CircuitBreaker(
            failures=failures,
            cooldown=cooldown,
            successes=successes,
            trials=trials,
            clock=self.clock,
        )
        self.events: list[str] = []  # since the last change of state
        self.state = State.CLOSED
        self.since = 0.0
        self.log: list[tuple[State, State]] = []
        self.under_way: list[tuple[Permit, int]] = []  # with the number of changes before it

    def change(self, state: State) -> None:
        """Enter a state of the model."""
        self.log.append((self.state, state))
        self.state, self.since, self.events = state, self.clock.now, []

    @rule(seconds=st.sampled_from([0.25, 1.0, 59.0, 60.0]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.now += seconds

    @rule()
    def admit(self) -> None:
        """Ask for a permit."""
        permit = self.breaker.admit()
        if self.state is State.OPEN and self.clock.now >= self.since + self.breaker.cooldown:
            self.change(State.HALF_OPEN)
        out = sum(changes == len(self.log) for _, changes in self.under_way)
        allowed = self.state is State.CLOSED or (
            self.state is State.HALF_OPEN and out < self.breaker.trials
        )
        assert (permit is not None) == allowed
        if permit is not None:
            self.under_way.append((permit, len(self.log)))

    @rule(place=st.integers(0, 9), how=st.sampled_from(["success", "failure", "release"]))
    def settle(self, place: int, how: str) -> None:
        """Say how one of the calls under way went, and then say otherwise, which must not count."""
        if not self.under_way:
            return
        permit, changes = self.under_way.pop(place % len(self.under_way))
        getattr(permit, how)()
        permit.failure()
        permit.success()
        if changes != len(self.log) or how == "release":
            return
        self.events.append(how)
        if self.state is State.HALF_OPEN:
            if how == "failure":
                self.change(State.OPEN)
            elif self.events.count("success") >= self.breaker.successes:
                self.change(State.CLOSED)
        elif self.events[-self.breaker.failures :] == ["failure"] * self.breaker.failures:
            self.change(State.OPEN)

    @rule(error=st.sampled_from([None, RuntimeError, asyncio.CancelledError, KeyboardInterrupt]))
    def call(self, error: type[BaseException] | None) -> None:
        """Use a permit as a context manager."""
        before = len(self.under_way)
        self.admit()
        if len(self.under_way) == before:
            return
        permit = self.under_way[-1][0]
        try:
            with permit:
                if error is not None:
                    raise error
        except (RuntimeError, asyncio.CancelledError, KeyboardInterrupt):
            pass
        how = "success" if error is None else "failure" if error is RuntimeError else "release"
        self.settle(len(self.under_way) - 1, how)

    @invariant()
    def agrees(self) -> None:
        """The breaker's state is the model's."""
        assert self.breaker.state is self.state
        log = self.breaker.transitions
        assert [(one.before, one.after) for one in log] == self.log[-256:]
        check_log(log, cooldown=self.breaker.cooldown)
        waits = self.breaker.seconds_closed_off
        if self.state is State.OPEN:
            assert waits == max(0.0, self.since + self.breaker.cooldown - self.clock.now)
        else:
            assert waits == 0.0


TestBreaker = BreakerMachine.TestCase


def test_the_defaults_are_three_failures_a_minute_and_two_successes() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock=clock)

    def call(how: str) -> bool:
        permit = breaker.admit()
        if permit is not None:
            getattr(permit, how)()
        return permit is not None

    assert [call("failure"), call("failure"), call("success")] == [True] * 3
    assert [call("failure"), call("failure"), call("failure"), call("success")] == [
        True,
        True,
        True,
        False,
    ]
    clock.now += 59.9
    assert not call("success")
    assert breaker.seconds_closed_off == pytest.approx(0.1)
    clock.now += 0.2
    assert breaker.state == "open"  # until somebody asks
    assert call("success")
    assert breaker.state == "half_open"
    trial = breaker.admit()
    assert trial is not None
    assert breaker.admit() is None  # one trial call at a time
    trial.failure()
    assert breaker.state == "open"
    clock.now += 60
    assert call("success")
    assert call("success")
    assert breaker.state == "closed"
    assert "closed" in repr(breaker)


def test_a_call_that_was_sent_before_the_breakdown_says_nothing_about_the_recovery() -> None:
    clock = Clock()
    breaker = CircuitBreaker(failures=1, successes=1, clock=clock)
    late, broken = breaker.admit(), breaker.admit()
    assert late is not None
    assert broken is not None
    broken.failure()
    clock.now += 60
    trial = breaker.admit()
    assert trial is not None
    late.success()
    assert breaker.state == "half_open"
    assert breaker.admit() is None  # nor does it free the trial's place
    trial.success()
    assert breaker.state == "closed"


@pytest.mark.parametrize(
    "options",
    [{"failures": 0}, {"successes": 0}, {"trials": 0}, {"cooldown": -1}, {"cooldown": math.nan}],
)
def test_bad_settings(options: dict[str, Any]) -> None:
    refused("out_of_range", lambda: CircuitBreaker(**options))


def test_threads_never_exceed_the_trials_nor_leave_one_taken() -> None:
    breaker = CircuitBreaker(failures=2, cooldown=0, successes=2, trials=2)
    breaker._log = deque()  # all of it
    lock = threading.Lock()
    held: Counter[int] = Counter()
    most: Counter[int] = Counter()

    def work(number: int) -> None:
        for turn in range(500):
            permit = breaker.admit()
            if permit is None:
                continue
            generation = permit._generation
            with lock:
                held[generation] += 1
                most[generation] = max(most[generation], held[generation])
            with lock:
                held[generation] -= 1
            (permit.success, permit.failure, permit.release)[(number + turn) % 3]()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = breaker.transitions
    check_log(log, cooldown=0)
    half_open = [place for place, one in enumerate(log, 1) if one.after is State.HALF_OPEN]
    assert half_open
    assert all(most[generation] <= 2 for generation in half_open)
    # No slot is lost: with everything settled it can still be closed.
    for _ in range(8):
        permit = breaker.admit()
        if permit is not None:
            permit.success()
    assert breaker.state == "closed"


def test_jumps_of_the_wall_clock_end_neither_cooldown_nor_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = cycle((0.0, 4e9, 1e9))
    monkeypatch.setattr("time.time", lambda: next(times))
    breaker = CircuitBreaker(failures=1, cooldown=3600.0)
    permit = breaker.admit()
    assert permit
    with pytest.raises(OSError), permit:
        raise OSError
    deadline = Deadline(3_600_000)
    for _ in range(6):
        assert breaker.admit() is None
        assert 0 < breaker.seconds_closed_off <= 3600
        assert 0 < (deadline.left or 0) <= 3600


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_child_starts_anew() -> None:
    script = """
import os
from crossgate.rerankers import CircuitBreaker
breaker = CircuitBreaker(failures=1)
breaker.admit().failure()
with breaker._lock:  # as another thread may hold it
    child = os.fork()
    if not child:
        os._exit(17 if breaker.state == "closed" and not breaker.transitions else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 17, status
assert breaker.state == "open"
"""
    python(script)


# Deadline and latency.


def test_a_deadline_runs_down_and_never_below_zero() -> None:
    clock = Clock()
    deadline = Deadline(250, clock=clock)
    assert deadline.left == pytest.approx(0.25)
    clock.now += 0.2
    assert deadline.left == pytest.approx(0.05)
    clock.now += 1
    assert deadline.left == 0


def test_share_is_taken_from_the_time_left() -> None:
    clock = Clock()
    deadline = Deadline(1_000, clock=clock)
    clock.now += 0.5
    share = deadline.share(0.8)
    assert share.left == pytest.approx(0.4)
    clock.now += 0.3
    assert share.left == pytest.approx(0.1)
    assert Deadline(None).share(0.8).left is None


@pytest.mark.parametrize("budget", [0, -1, -math.inf, -(10**400)])
def test_no_budget_leaves_nothing(budget: float) -> None:
    assert Deadline(budget).left == 0


@pytest.mark.parametrize("budget", [None, math.inf, 10**400])
def test_no_budget_means_no_deadline(budget: float | None) -> None:
    deadline = Deadline(budget)
    assert (deadline.left, deadline.budget_ms) == (None, None)


@pytest.mark.parametrize("budget", [math.nan, "100", True, b"1", [1], 1j])
def test_deadline_refuses_a_budget_that_is_not_a_number(budget: Any) -> None:
    assert "budget_ms" in refused("out_of_range", Deadline, budget)


PACES = st.lists(st.tuples(st.integers(1, 200), st.floats(0.01, 10_000)), max_size=30)


@given(PACES, st.integers(0, 1_000))
def test_latency_estimate_stays_within_the_observed_range(
    calls: list[tuple[int, float]], pairs: int
) -> None:
    latency = LatencyEstimate(ms_per_pair=25.0, absolute_floor_ms=100.0)
    seen = [25.0]
    for number, ms in calls:
        latency.observe(number, ms)
        seen.append(ms / number)
    assert min(seen) * (1 - 1e-9) <= latency.ms_per_pair <= max(seen) * (1 + 1e-9)
    assert latency.floor_ms(pairs) == max(100.0, pairs * latency.ms_per_pair)


def test_the_pace_is_learned_and_forgotten() -> None:
    latency = LatencyEstimate(ms_per_pair=25.0, absolute_floor_ms=100.0)
    assert latency.floor_ms(1) == 100
    assert latency.floor_ms(60) == 1_500
    latency.observe(60, 60_000)  # the first call loads a model or opens a connection
    assert latency.floor_ms(60) == 1_500
    for _ in range(50):
        latency.observe(60, 600)
    assert latency.ms_per_pair == pytest.approx(10, rel=0.01)
    latency.observe_at_least(60, 60)  # given up sooner than it takes: nothing to learn
    assert latency.ms_per_pair == pytest.approx(10, rel=0.01)
    latency.observe_at_least(60, 6_000)
    assert latency.ms_per_pair > 20
    for _ in range(50):
        latency.observe(60, 60_000)
    assert latency.floor_ms(60) > 50_000
    for _ in range(200):
        latency.forget()
    assert latency.ms_per_pair == pytest.approx(25, rel=0.05)
