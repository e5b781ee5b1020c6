"""The interface of a reranker: it scores passages for a query before a deadline."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol, Self, runtime_checkable

from crossgate._support.checks import safe_repr, scalar
from crossgate._support.errors import InputError, RerankerError
from crossgate._support.wording import type_of
from crossgate._values.results import Degradation, Passage

LEAST_PAIRS = 2
"""Fewest scores of a useful answer to two or more passages; one score orders nothing."""


class OutOfTime(Exception):
    """The deadline has passed, before or within a step that a decision can do without."""


class Deadline:
    """The time by which a query must be decided, counted from construction.

    Args:
        budget_ms: Milliseconds from now; None or infinity for no deadline. At zero or less, the
            deadline has passed.
        clock: Returns monotonic seconds.

    Raises:
        InputError: `out_of_range` if the budget is not a number.
    """

    __slots__ = ("_at", "_clock", "budget_ms")

    def __init__(
        self, budget_ms: float | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        budget_ms = scalar(budget_ms)
        number = isinstance(budget_ms, Real) and not isinstance(budget_ms, bool)
        # A comparison rejects NaN, and does not overflow for a large Python integer.
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
        """Seconds left, 0 after the deadline; None without a deadline."""
        if self._at == math.inf:
            return None
        return max(0.0, self._at - self._clock())

    def check(self) -> None:
        """Raise `OutOfTime` after the deadline."""
        if self.left == 0:
            raise OutOfTime

    def at_least(self, seconds: float) -> Deadline:
        """Return this deadline, or one in so many seconds if that is later."""
        left = self.left
        if left is None or left >= seconds:
            return self
        later = Deadline(seconds * 1000, clock=self._clock)
        later.budget_ms = self.budget_ms  # for messages
        return later

    def share(self, part: float) -> Deadline:
        """Return the deadline of a step that may use this share, in [0, 1], of the time left."""
        left = self.left
        return Deadline(None if left is None else left * part * 1000, clock=self._clock)


NO_DEADLINE = Deadline(None)
"""No deadline."""


@dataclass(frozen=True, slots=True)
class PairScore:
    """The score of one pair of query and passage.

    Attributes:
        score: Higher is better: the unbounded logit of a cross-encoder, or the provider's number,
            usually in [0, 1]. Comparable only within one query and one model.
        truncated: Whether the end of the passage was cut off.
    """

    score: float
    truncated: bool = False


class Scores(tuple[PairScore | None, ...]):
    """One score per passage, by position; None for a passage without a score.

    Args:
        pairs: The scores.
        missing: Why some passages have no score; None if all have one, or after an early stop.
        stopped: Whether the reranker stopped early, because the rest could not change the pick.
    """

    missing: Degradation | None
    stopped: bool

    def __new__(
        cls,
        pairs: Iterable[PairScore | None] = (),
        missing: Degradation | None = None,
        *,
        stopped: bool = False,
    ) -> Self:
        """Create the tuple of scores and attach the reason for missing ones."""
        self = super().__new__(cls, pairs)
        self.missing = missing
        self.stopped = stopped
        return self

    def complete(self) -> list[PairScore]:
        """Return the scores of all passages, or after an early stop, of the first ones.

        Raises:
            RerankerError: With the code of `missing`, if a passage has no score.
        """
        if self.missing is not None:
            raise RerankerError(self.missing.code, self.missing.detail)
        return [pair for pair in self if pair is not None]


@runtime_checkable
class Reranker(Protocol):
    """Protocol for objects that score passages for a query.

    `GuardedReranker` adds a budget, a latency estimate and a circuit breaker. Optional attributes
    configure it:

    - `endpoint`: address or other unit that fails and recovers as a whole. With an endpoint, every
      exception counts as its failure, except errors in the query or the installation.
    - `ms_per_pair`, `absolute_floor_ms`: latency to assume before the first call, in milliseconds;
      by default 10 per pair and no floor
    - `stops_in_time`: whether the reranker stops at the deadline and returns the scores of the
      first passages. Time for two passages is then enough, and a late call is not a failure.
    - `available`: property or method that returns whether the reranker takes calls now

    Attributes:
        name: Provider name of the hits that it scores.
        identity: Name and version of the model; profiles name the model they were fitted for.
    """

    @property
    def name(self) -> str:
        """Provider name of the hits that it scores."""

    @property
    def identity(self) -> str:
        """Name and version of the model."""

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> Sequence[PairScore | None]:
        """Return one score per passage, in the order of the passages.

        Use None for a passage without a score, for example when time ran out or a batch failed.
        A plain list is enough; `Scores` adds the reason for missing scores. If the method raises,
        the cascade continues with the next reranker, or keeps the stage-1 order.

        Args:
            query: The query.
            passages: The passages, most promising first, with their stage-1 scores.
            deadline: When the caller stops waiting.
        """


Enough = Callable[[Sequence[PairScore]], bool]
"""Whether the scores of the first passages are enough to decide."""


@runtime_checkable
class AnytimeReranker(Reranker, Protocol):
    """A reranker that scores passages in order and can stop early."""

    def score_until(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline, enough: Enough
    ) -> Scores:
        """Like `score`, but stop after the first passages for which `enough` returns True."""


@runtime_checkable
class AsyncReranker(Reranker, Protocol):
    """A reranker with a native coroutine, such as a remote one."""

    async def ascore(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> Sequence[PairScore | None]:
        """Like `score`, on an event loop; cancellation stops the requests."""


def check_reranker(reranker: object) -> None:
    """Check that an object implements the `Reranker` protocol.

    Raises:
        InputError: `out_of_range`, naming the missing attributes.
    """
    lacks = [
        attribute
        for attribute, kind in (("name", str), ("identity", str), ("score", Callable))
        if not _has(reranker, attribute, kind)
    ]
    if lacks:
        raise InputError(
            "out_of_range",
            f"the reranker is {type_of(reranker)} without {' and '.join(lacks)}: pass the "
            "name or folder of a model, None, or an object with the strings name and identity and "
            "the method score",
        )


def _has(reranker: object, attribute: str, kind: Any) -> bool:
    try:
        return isinstance(getattr(reranker, attribute), kind)
    except AttributeError:
        return False
    except Exception:  # the property exists; its error is reported in `degraded` by the query
        return True


def passages_of(texts: Iterable[str]) -> list[Passage]:
    """Return one passage per text, with the ids "1", "2", ..., to call a reranker directly."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InputError(
            "malformed_candidate", f"texts is {safe_repr(texts)}: pass a list of texts"
        )
    return [Passage(id=str(number), text=text) for number, text in enumerate(texts)]
