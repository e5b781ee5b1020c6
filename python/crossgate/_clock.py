"""The clock of one decision: when it must be over, and how long a step of it took."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from numbers import Real

from crossgate._errors import InputError


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

    def share(self, part: float) -> Deadline:
        """Return the deadline of a step that may take this part of what is left, in [0, 1]."""
        left = self.left
        return Deadline(None if left is None else left * part * 1000, clock=self._clock)


ENDLESS = Deadline(None)
"""The deadline of who has all the time in the world."""


def milliseconds(since: float) -> float:
    """Return the milliseconds since a reading of `time.perf_counter`."""
    return (time.perf_counter() - since) * 1000
