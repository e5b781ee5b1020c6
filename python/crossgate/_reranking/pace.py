"""How fast a reranker has been, and so what a call of it will cost."""

from __future__ import annotations

from crossgate._checks import check_number

# A call of this many pairs or more moves the estimate by the whole of `_RATE`; one of fewer says
# less about the pace, since most of its time is the way there and back.
_FULL_WEIGHT_PAIRS = 10
_RATE = 0.2
# How far a refused call moves the estimate back to its start: a slow spell must not shut a reranker
# out for good, since only calls that are made can show that it is over.
_FORGETTING = 0.05
# A clock that stands still would make a pair free, and so endlessly many of them affordable.
_LEAST_MS_PER_PAIR = 1e-6


class Pace:
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
