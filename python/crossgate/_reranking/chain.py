"""Asks the tiers of stage 2 in order of preference until one has answered: exactly one does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crossgate import _core
from crossgate._cascade import degradation, milliseconds
from crossgate._errors import TierError
from crossgate._reranking.budget import Deadline, Pace
from crossgate._reranking.cross_encoder import (
    LEAST_PAIRS,
    LOCAL_MS_PER_PAIR,
    AsyncReranker,
    PairScore,
    Reranker,
    Scores,
    TimedReranker,
    check_pace,
)
from crossgate._reranking.lexical import SemanticBM25
from crossgate._types import Degradation

if TYPE_CHECKING:
    from crossgate._telemetry.events import Watch

# How much of the time that is left a tier may take: what follows it needs some, too. A tier with
# the whole of it would leave nothing to fall back into.
_SHARE = 0.8
_SHARE_OF_THE_LAST = 0.95

_paces: dict[str, Pace] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One question to one tier, to be carried out by `cascade.run` or `cascade.arun`.

    Attributes:
        tier: Whom to ask.
        query: What is wanted.
        documents: What to read, best first after stage 1.
        cosines: What stage 1 knows of each document.
        end: When `time.monotonic` shows this it must be over; None for any time.
    """

    tier: Reranker
    query: str
    documents: Sequence[str]
    cosines: Sequence[float | None]
    end: float | None

    @property
    def seconds(self) -> float | None:
        """How long it may still take.

        Raises:
            TierError: `budget` if nothing is left: a queue of threads may have eaten it up.
        """
        if self.end is None:
            return None
        left = self.end - time.monotonic()
        if left <= 0:
            raise TierError("budget", f"the time for {self.tier.name} passed before it was asked")
        return left

    def run(self) -> Scores:
        """Ask on this thread."""
        tier, seconds = self.tier, self.seconds
        if isinstance(tier, SemanticBM25):
            return Scores(tier.score_with_cosines(self.query, self.documents, self.cosines))
        if isinstance(tier, TimedReranker):
            return tier.score_within(self.query, self.documents, seconds)
        pace = _paces.setdefault(tier.identity, Pace(ms_per_pair=LOCAL_MS_PER_PAIR))
        check_pace(tier.name, pace, len(self.documents), seconds)
        start = time.monotonic()
        scores = tier.score(self.query, self.documents)
        pace.observe(len(self.documents), (time.monotonic() - start) * 1000)
        return Scores(scores)

    async def arun(self) -> Scores:
        """Ask from an event loop: a remote tier natively, a local one on another thread."""
        if isinstance(self.tier, AsyncReranker):
            return await self.tier.ascore_within(self.query, self.documents, self.seconds)
        import asyncio

        def run() -> Scores | Exception:
            try:
                return self.run()
            except Exception as error:  # a future cannot hold a StopIteration
                return error

        answer = await asyncio.to_thread(run)
        if isinstance(answer, StopIteration):
            raise RuntimeError(f"{self.tier.name} raised StopIteration")
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(slots=True, kw_only=True)
class Reply:
    """What became of stage 2.

    Attributes:
        name: Name of the tier that answered; None if none did.
        identity: Its identity.
        pairs: Its scores by the document's id.
        degraded: What did not go as configured.
        asked: Each tier that had its turn: its identity, and `answered` or why it did not.
    """

    name: str | None = None
    identity: str | None = None
    pairs: Mapping[str, PairScore] = field(default_factory=dict)
    degraded: list[Degradation] = field(default_factory=list)
    asked: list[tuple[str | None, str]] = field(default_factory=list)


def ask(
    tiers: Sequence[Callable[[], Reranker]],
    query: str,
    pool: Sequence[_core.Scored],
    texts: Sequence[str],
    deadline: Deadline,
    check: Callable[[Mapping[str, PairScore], str], object],
    watch: Watch | None = None,
) -> Generator[Call, Scores, Reply]:
    """Yield a call for each tier in turn until one of them is answered.

    Send what the call returned, or throw what it raised: each tier that does not answer is noted,
    and the next one has its turn.

    Args:
        tiers: Return the tiers, the preferred one first; what they raise is noted, too.
        query: What is wanted.
        pool: The candidates to read, best first.
        texts: What they say, in the same order.
        deadline: When the query must be decided.
        check: Raises where the scores of the tier of this identity cannot be combined with stage 1.
        watch: Is told of each tier.
    """
    reply = Reply()
    cosines = [one.cosine for one in pool]
    for place, load in enumerate(tiers, start=1):
        left = deadline.left
        if left == 0:
            message = f"nothing is left of the {deadline.budget_ms:g} ms: the rest is not asked"
            reply.degraded.append(Degradation(code="budget", detail=message))
            if watch:
                watch.tier_skipped("reranker", "budget", 0.0)
            break
        start = time.perf_counter()
        name = "reranker"
        share = _SHARE if place < len(tiers) else _SHARE_OF_THE_LAST
        identity: str | None = None
        try:
            tier = load()
            name, identity = tier.name, tier.identity
            left = deadline.left  # loading takes its part
            scores = yield Call(
                tier=tier,
                query=query,
                documents=texts,
                cosines=cosines,
                end=None if left is None else time.monotonic() + left * share,
            )
            pairs = _by_id(pool, scores)
            check(pairs, identity)
        except Exception as error:  # whatever a tier does, the next one or stage 1 stands
            if isinstance(error, TierError):
                why = Degradation(code=error.code, detail=str(error))
            else:
                why = degradation("reranker", error)
            reply.degraded.append(why)
            reply.asked.append((identity, why.code))
            if watch:
                watch.tier_skipped(name, why.code, milliseconds(start))
            continue
        if scores.missing is not None:
            reply.degraded.append(scores.missing)
        reply.asked.append((identity, "answered"))
        if watch:
            watch.tier_finished(name, len(pairs), milliseconds(start))
        reply.name, reply.identity, reply.pairs = name, identity, pairs
        break
    return reply


def _by_id(pool: Sequence[_core.Scored], scores: Scores) -> dict[str, PairScore]:
    if len(scores.pairs) != len(pool):
        raise ValueError(f"{len(scores.pairs)} scores for {len(pool)} documents")
    pairs = {}
    for one, pair in zip(pool, scores.pairs, strict=True):
        if pair is None and scores.missing is not None:
            continue
        logit = float(pair.logit)  # type: ignore[union-attr]
        if not math.isfinite(logit):
            raise ValueError(f"the logit of {one.id!r} is {logit}")
        pairs[one.id] = PairScore(logit, bool(pair.truncated))  # type: ignore[union-attr]
    if scores.missing is not None and len(pairs) < LEAST_PAIRS:
        raise TierError(scores.missing.code, scores.missing.detail)
    return pairs
