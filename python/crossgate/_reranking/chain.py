"""Asks rerankers in order of preference until one has answered: exactly one does."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crossgate._clock import Deadline, milliseconds
from crossgate._errors import RerankerError
from crossgate._reranking.admission import Admitted, admitted
from crossgate._reranking.contract import PairScore, Reranker, Scores
from crossgate._types import Degradation, Passage, degradation

if TYPE_CHECKING:
    from crossgate._telemetry.events import Watch

# How much of the time that is left a reranker may take: what follows it needs some, too. One with
# the whole of it would leave nothing to fall back into.
_SHARE = 0.8
_SHARE_OF_THE_LAST = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One question to one reranker, to be carried out by whoever decides.

    Attributes:
        reranker: Whom to ask.
        query: The query.
        passages: What to read, best first after stage 1.
        deadline: When the answer must be there.
    """

    reranker: Admitted
    query: str
    passages: Sequence[Passage]
    deadline: Deadline

    def run(self) -> Scores:
        """Ask, and wait for the answer."""
        return self.reranker.score(self.query, self.passages, deadline=self.deadline)

    async def arun(self) -> Scores:
        """Ask from an event loop."""
        return await self.reranker.ascore(self.query, self.passages, deadline=self.deadline)


@dataclass(slots=True, kw_only=True)
class Reply:
    """What became of stage 2.

    Attributes:
        name: Name of the reranker that answered; None if none did.
        identity: Its identity.
        scores: Its scores by the passage's id.
        degraded: What did not go as configured.
        asked: Each reranker that had its turn: its identity, and `answered` or why it did not.
    """

    name: str | None = None
    identity: str | None = None
    scores: Mapping[str, PairScore] = field(default_factory=dict)
    degraded: list[Degradation] = field(default_factory=list)
    asked: list[tuple[str | None, str]] = field(default_factory=list)


def ask(
    loaders: Sequence[Callable[[], Reranker]],
    query: str,
    passages: Sequence[Passage],
    deadline: Deadline,
    watch: Watch | None = None,
) -> Generator[Call, Scores, Reply]:
    """Yield a call for each reranker in turn until one of them is answered.

    Send what the call returned, or throw what it raised: each reranker that does not answer is
    noted, and the next one has its turn.

    Args:
        loaders: Return the rerankers, the preferred one first; what they raise is noted, too.
        query: The query.
        passages: What to read, best first; each reranker gets a copy of its own.
        deadline: When the query must be decided.
        watch: Hears of each reranker.
    """
    reply = Reply()
    for turn, load in enumerate(loaders, start=1):
        if deadline.left == 0:
            message = f"the {deadline.budget_ms:g} ms are used up: no further reranker is asked"
            reply.degraded.append(Degradation(code="budget", detail=message))
            if watch:
                watch.reranker_skipped("reranker", "budget", 0.0)
            break
        start = time.perf_counter()
        name = "reranker"
        identity: str | None = None
        try:
            reranker = admitted(load())
            name, identity = reranker.name, reranker.identity
            share = _SHARE if turn < len(loaders) else _SHARE_OF_THE_LAST
            scores = yield Call(
                reranker=reranker, query=query, passages=passages, deadline=deadline.share(share)
            )
        except Exception as error:  # whatever one does, the next one or stage 1 stands
            if isinstance(error, RerankerError):
                why = Degradation(code=error.code, detail=str(error))
            else:
                why = degradation("reranker", error)
            reply.degraded.append(why)
            reply.asked.append((identity, why.code))
            if watch:
                watch.reranker_skipped(name, why.code, milliseconds(start))
            continue
        reply.name, reply.identity = name, identity
        reply.scores = {
            passage.id: pair
            for passage, pair in zip(passages, scores, strict=True)
            if pair is not None
        }
        if scores.missing is not None:
            reply.degraded.append(scores.missing)
        reply.asked.append((identity, "answered"))
        if watch:
            watch.reranker_finished(name, len(reply.scores), milliseconds(start))
        break
    return reply
