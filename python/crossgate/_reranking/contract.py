"""What a reranker is: a query, passages and a deadline in, one score per passage out."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol, Self, runtime_checkable

from crossgate._support.checks import safe_repr
from crossgate._support.errors import InputError, RerankerError
from crossgate._values.results import Degradation, Passage

LEAST_PAIRS = 2
"""One score alone orders nothing: of two passages or more at least so many must get one."""


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


NO_DEADLINE = Deadline(None)
"""The deadline of who has all the time in the world."""


@dataclass(frozen=True, slots=True)
class PairScore:
    """What a reranker says about one pair of query and passage.

    Attributes:
        score: Higher is better; the logit of a cross-encoder, without bounds, or a provider's own
            number, usually in [0, 1]. Comparable within one query and one model only.
        truncated: Whether the end of the passage did not fit.
    """

    score: float
    truncated: bool = False


class Scores(tuple[PairScore | None, ...]):
    """One score per passage, by position; None for a passage that has none.

    Args:
        pairs: The scores.
        missing: Why some passages have none; None where all have one.
    """

    missing: Degradation | None

    def __new__(
        cls, pairs: Iterable[PairScore | None] = (), missing: Degradation | None = None
    ) -> Self:
        """Return the scores with the reason for those that are missing."""
        self = super().__new__(cls, pairs)
        self.missing = missing
        return self

    def complete(self) -> list[PairScore]:
        """Return the scores of all passages.

        Raises:
            RerankerError: With the code of `missing`, if a passage has none.
        """
        if self.missing is not None:
            raise RerankerError(self.missing.code, self.missing.detail)
        return [pair for pair in self if pair is not None]


@runtime_checkable
class Reranker(Protocol):
    """Anything that reads query and passage together.

    `GuardedReranker` wraps each one in a budget, a latency estimate and a circuit breaker. What it
    goes by may be told with attributes, none of which is needed:

    - `endpoint`: what fails and recovers as one, such as an address; all that a reranker raises
      then counts as a failure of the endpoint, but for what is wrong with the query or with the
      installation
    - `ms_per_pair`, `absolute_floor_ms`: how fast it is taken to be before it has been asked, in
      milliseconds; by default 10 per pair, and no floor
    - `stops_in_time`: whether it stops by itself at the deadline and returns the scores of the
      first passages; then time for two of them is enough, and being late is no failure
    - `available`: a property or method that says whether it takes calls at this moment

    Attributes:
        name: What the hits that it scored are stamped with.
        identity: Name and version of the model; a profile names the one it was fitted for.
    """

    @property
    def name(self) -> str:
        """What the hits that it scored are stamped with."""

    @property
    def identity(self) -> str:
        """Name and version of the model."""

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> Sequence[PairScore | None]:
        """Return one score per passage, in the order of the passages.

        None stands for a passage without a score, since time ran out or a batch failed; a plain
        list will do, and `Scores` can say why. Whatever it raises, the cascade goes on with the
        next reranker, or with the order of stage 1.

        Args:
            query: The query.
            passages: What to read, the most promising first, with what stage 1 knows of each.
            deadline: When nobody waits for the answer any more.
        """


@runtime_checkable
class AsyncReranker(Reranker, Protocol):
    """A reranker that waits for something other than this processor."""

    async def ascore(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> Sequence[PairScore | None]:
        """Do what `score` does on an event loop; cancelling it leaves nothing behind."""


def check_reranker(reranker: object) -> None:
    """Refuse what is not a reranker, before a query finds out.

    Raises:
        InputError: `out_of_range`, naming what it lacks.
    """
    lacks = [
        attribute
        for attribute, kind in (("name", str), ("identity", str), ("score", Callable))
        if not _has(reranker, attribute, kind)
    ]
    if lacks:
        raise InputError(
            "out_of_range",
            f"the reranker is a {type(reranker).__name__} without {' and '.join(lacks)}: pass a "
            "name or folder of a model, None, or what has name and identity (texts) and score (a "
            "method)",
        )


def _has(reranker: object, attribute: str, kind: Any) -> bool:
    try:
        return isinstance(getattr(reranker, attribute), kind)
    except AttributeError:
        return False
    except Exception:  # a property that fails is one that is there; a query will say so
        return True


def passages_of(texts: Iterable[str]) -> list[Passage]:
    """Return a passage per text, with the ids "1", "2" and so on, to ask a reranker by hand."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InputError(
            "malformed_candidate", f"texts is {safe_repr(texts)}: pass a list of texts"
        )
    return [Passage(id=str(number), text=text) for number, text in enumerate(texts, start=1)]
