"""What a call may cost in time: the deadline of one query, and how fast a tier has been."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from numbers import Real

from crossgate._errors import InputError

# A call of this many pairs or more moves the estimate by the whole of `_RATE`; one of fewer says
# less about the pace, since most of its time is the way there and back.
_FULL_WEIGHT_PAIRS = 10
_RATE = 0.2
# How far a refused call moves the estimate back to its start: a slow spell must not shut a tier out
# for good, since only calls that are made can show that it is over.
_FORGETTING = 0.05
# A clock that stands still would make a pair free, and so endlessly many of them affordable.
_LEAST_MS_PER_PAIR = 1e-6


class Deadline:
    """The end of one query's time, counted from when it is made.

    Args:
        budget_ms: Milliseconds from now on; None or infinite for no end. Zero or less: nothing is
            left.
        clock: Returns seconds that never go back.

    Raises:
        InputError: `out_of_range` if the budget is no number.
    """

    __slots__ = ("_at", "_clock", "budget_ms")

    def __init__(
        self, budget_ms: float | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        number = isinstance(budget_ms, Real) and not isinstance(budget_ms, bool)
        # Comparing keeps NaN out, and a Python integer that no float can hold from overflowing.
        if budget_ms is not None and not (number and -math.inf <= budget_ms <= math.inf):
            raise InputError(
                "out_of_range",
                f"budget_ms is {budget_ms!r}: it must be a number of milliseconds, or None",
            )
        endless = budget_ms is None or budget_ms > sys.float_info.max
        self.budget_ms = None if endless or budget_ms is None else float(max(0, budget_ms))
        self._clock = clock
        self._at = math.inf if self.budget_ms is None else clock() + self.budget_ms / 1000

    @property
    def left(self) -> float | None:
        """Seconds that are left, 0 where it has passed; None where there is no end."""
        if self._at == math.inf:
            return None
        return max(0.0, self._at - self._clock())


class Pace:
    """How long a tier takes per pair of query and document, learned from its calls.

    The estimate is an exponentially weighted mean of milliseconds per pair. Threads may share it:
    two that write at once may lose one of the two observations, and no more.

    Args:
        ms_per_pair: What to assume before the first call; above 0.
        absolute_floor_ms: Less than this is never enough, however few the pairs; at least 0.
    """

    __slots__ = ("_start", "absolute_floor_ms", "ms_per_pair")

    def __init__(self, *, ms_per_pair: float, absolute_floor_ms: float = 0.0) -> None:
        for name, value in (
            ("ms_per_pair", ms_per_pair),
            ("absolute_floor_ms", absolute_floor_ms),
        ):
            if not 0 <= value < math.inf or (name == "ms_per_pair" and not value):
                raise InputError("out_of_range", f"{name} is {value}: it must be a number above 0")
        self._start = ms_per_pair
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
        if pairs > 0:
            weight = _RATE * min(1.0, pairs / _FULL_WEIGHT_PAIRS)
            self.ms_per_pair += weight * (ms / pairs - self.ms_per_pair)
            self.ms_per_pair = max(self.ms_per_pair, _LEAST_MS_PER_PAIR)

    def observe_at_least(self, pairs: int, ms: float) -> None:
        """Learn from a call that was given up after so long: it would have taken longer."""
        if pairs > 0 and ms / pairs > self.ms_per_pair:
            self.observe(pairs, ms)

    def forget(self) -> None:
        """Move back towards the start a little, after a call that was not made."""
        self.ms_per_pair += _FORGETTING * (self._start - self.ms_per_pair)
