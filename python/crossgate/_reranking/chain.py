"""A chain of rerankers in order of preference, loaded on first use; the first answer counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple

from crossgate._core import Pair, Profile, fits
from crossgate._reranking.contract import (
    Deadline,
    Enough,
    PairScore,
    Reranker,
    Scores,
    check_reranker,
)
from crossgate._runtime import model_files
from crossgate._support.checks import check_path
from crossgate._support.errors import RerankerError
from crossgate._values.profile_files import check_models
from crossgate._values.results import Degradation, Passage, degradation

if TYPE_CHECKING:
    from crossgate._reranking.guard import GuardedReranker
    from crossgate._telemetry.events import Watch

    Named = Reranker | str | PathLike[str]
    Choice = Named | Sequence[Named | None] | None

CanStop = Callable[[list[Pair], str | None], bool]
"""Whether the first pairs of a reranker, by its identity, are enough to decide."""

CallOutcome = Scores | Exception
"""The scores of a call, or the exception that it raised."""

# Share of the time left that one reranker may use; the rest is for its fallbacks.
_SHARE = 0.8
_SHARE_OF_THE_LAST = 0.95


class RerankerCall(NamedTuple):
    """A call to one reranker, which the cascade runs or awaits.

    Attributes:
        reranker: The reranker to call.
        query: The query.
        passages: The passages, in stage-1 order.
        deadline: When the call must be finished.
        enough: Whether the scores of the first passages are enough; None to score all.
    """

    reranker: GuardedReranker
    query: str
    passages: Sequence[Passage]
    deadline: Deadline
    enough: Enough | None = None

    def run(self) -> CallOutcome:
        """Make the call, and return its scores or its exception."""
        try:
            return self.reranker.score(
                self.query, self.passages, deadline=self.deadline, enough=self.enough
            )
        except Exception as error:
            return error

    async def arun(self) -> CallOutcome:
        """Like `run`, from an event loop."""
        try:
            return await self.reranker.ascore(
                self.query, self.passages, deadline=self.deadline, enough=self.enough
            )
        except Exception as error:
            return error


class Stage2Outcome:
    """The outcome of stage 2.

    Attributes:
        name: Name of the reranker that answered; None if none did.
        identity: Identity of that reranker.
        pairs: Scores by document id.
        degraded: Failures and skipped rerankers.
        asked: Identity of each reranker that was tried, and `answered` or the code of its failure.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.identity: str | None = None
        self.pairs: list[Pair] = []
        self.degraded: list[Degradation] = []
        self.asked: list[tuple[str | None, str]] = []


class Chain:
    """The rerankers of one caller, in order of preference. Exactly one answers a query.

    Args:
        choice: The caller's `reranker` argument; None in a sequence is ignored.
        default: Name of the model that `default` refers to.

    Attributes:
        identities: Identities of the rerankers. The default model's comes from the manifest,
            without reading its file.

    Raises:
        InputError: `out_of_range` if an element is not a reranker.
        ModelError: For a name or folder that cannot be used.
    """

    def __init__(self, choice: Choice, default: str = model_files.ROUTING_RERANKER) -> None:
        self._members = _listed(choice)
        self._default = default
        self._members_guarded: dict[int, GuardedReranker] = {}
        self.identities: list[str | None] = [
            model_files.identity(default) if member == "default" else self._load(member).identity
            for member in self._members
        ]

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Reranker]:
        return map(self._load, self._members)

    def check_fitted(self, profile: Profile, embedder: str | None) -> None:
        """Check that a profile was fitted for at least one of the rerankers.

        Raises:
            ProfileError: `profile_mismatch`.
        """
        identities = self.identities
        fitted = (identity for identity in identities if fits(profile, identity))
        check_models(
            profile, embedder=embedder, reranker=next(fitted, next(iter(identities), None))
        )

    def no_profile(self, embedder: str) -> Degradation:
        """Return the degradation for models without fitted thresholds, which turns the gate off."""
        reranker = next(iter(self.identities), None)
        return Degradation(
            code="no_profile",
            detail=f"no thresholds are fitted for {embedder or 'scores without an embedder'} and "
            f"{reranker or 'no reranker'}: the gate is off",
        )

    def is_available(self) -> bool:
        """Return whether the preferred reranker takes calls now."""
        try:
            return bool(self._members) and self._guarded(0).available
        except Exception:  # reported by `ask`
            return False

    def ask(
        self,
        query: str,
        passages: Sequence[Passage],
        deadline: Deadline,
        watch: Watch | None = None,
        can_stop: CanStop | None = None,
    ) -> Generator[RerankerCall, CallOutcome, Stage2Outcome]:
        """Yield a call for each reranker in turn until one succeeds.

        Send the outcome of each call. Each failure is recorded, and the next reranker is tried.

        Args:
            query: The query.
            passages: The passages, best first; each reranker gets its own copy.
            deadline: When the query must be decided.
            watch: Receives an event for each reranker.
            can_stop: Whether pairs of the reranker with this identity are enough to decide; None to
                score all passages.
        """
        reply = Stage2Outcome()
        last = len(self._members) - 1
        for position in range(len(self._members)):
            if deadline.left == 0:
                message = f"{deadline.budget_ms:g} ms were used up before the next reranker"
                reply.degraded.append(Degradation(code="budget", detail=message))
                if watch:
                    watch.send(
                        "reranker_skipped", reranker="reranker", reason="budget", duration_ms=0.0
                    )
                break
            start = time.perf_counter()
            name = "reranker"
            identity: str | None = None
            answer: CallOutcome
            try:
                reranker = self._guarded(position)
                name, identity = reranker.name, reranker.identity
            except Exception as error:
                answer = error.with_traceback(None)  # the traceback would keep this frame alive
            else:
                share = _SHARE_OF_THE_LAST if position == last else _SHARE
                enough = None if can_stop is None else _enough(can_stop, passages, identity)
                answer = yield RerankerCall(
                    reranker, query, passages, deadline.share(share), enough
                )
            if isinstance(answer, Exception):
                if isinstance(answer, RerankerError):
                    why = Degradation(code=answer.code, detail=str(answer))
                else:
                    why = degradation("reranker", answer)
                reply.degraded.append(why)
                reply.asked.append((identity, why.code))
                if watch:
                    taken = (time.perf_counter() - start) * 1000
                    watch.send(
                        "reranker_skipped", reranker=name, reason=why.code, duration_ms=taken
                    )
                continue
            reply.name, reply.identity = name, identity
            reply.pairs = _pairs(passages, answer)
            if answer.missing is not None:
                reply.degraded.append(answer.missing)
            reply.asked.append((identity, "answered"))
            if watch:
                taken = (time.perf_counter() - start) * 1000
                number = len(reply.pairs)
                watch.send("reranker_finished", reranker=name, pair_count=number, duration_ms=taken)
            break
        return reply

    def _guarded(self, position: int) -> GuardedReranker:
        """Return a reranker of the chain, wrapped in `GuardedReranker` unless it already is."""
        if position not in self._members_guarded:
            from crossgate._reranking.guard import GuardedReranker

            reranker = self._load(self._members[position])
            self._members_guarded[position] = (
                reranker if isinstance(reranker, GuardedReranker) else GuardedReranker(reranker)
            )
        return self._members_guarded[position]

    def _load(self, member: Named) -> Reranker:
        if not isinstance(member, str | PathLike):
            return member
        return load(self._default if member == "default" else member)


def _pairs(passages: Sequence[Passage], scores: Sequence[PairScore | None]) -> list[Pair]:
    return [
        Pair(id=passage.id, score=score.score, truncated=score.truncated)
        for passage, score in zip(passages, scores, strict=False)
        if score is not None
    ]


def _enough(can_stop: CanStop, passages: Sequence[Passage], identity: str | None) -> Enough:
    return lambda scored: can_stop(_pairs(passages, scored), identity)


def _listed(choice: Choice) -> list[Named]:
    if choice is None:
        return []
    if isinstance(choice, str | PathLike):
        return [choice]
    if hasattr(choice, "score"):
        choice = [choice]  # type: ignore[list-item]
    items = choice if isinstance(choice, Iterable) else [choice]
    members = [member for member in items if member is not None]
    for member in members:
        if not isinstance(member, str | PathLike):
            check_reranker(member)
    return members


def load(model: str | PathLike[str]) -> Reranker:
    """Return the reranker of a name or folder, loaded once per process.

    A name is looked up in the manifest, then among the plug-ins, and then as a folder.

    Raises:
        ModelError: As `CrossEncoder` does, or `PluginError` for a plug-in that cannot be used.
    """
    reranker = _loaded(model)  # without the lock, which another thread may hold to read a model
    if reranker is not None:
        return reranker
    from crossgate._reranking import plugins, shared_state
    from crossgate._reranking.cross_encoder import CrossEncoder

    with shared_state.load_lock:
        reranker = _loaded(model)  # another thread may have loaded it
        if reranker is None:
            *names, last = _meanings(model)
            plugin = plugins.load(names[0][1]) if names else None
            reranker = CrossEncoder(model) if plugin is None else plugin
            shared_state.loaded[last if plugin is None else names[0]] = reranker
        return reranker


def unloaded(choice: object) -> list[str | PathLike[str]]:
    """Return the named models that are not loaded yet, except the default."""
    named = [choice] if isinstance(choice, str | PathLike) else choice
    if not isinstance(named, Sequence):
        return []
    return [
        model
        for model in named
        if isinstance(model, str | PathLike) and model != "default" and _loaded(model) is None
    ]


def _loaded(model: str | PathLike[str]) -> Reranker | None:
    from crossgate._reranking import shared_state

    reranker = (shared_state.loaded.get(meaning) for meaning in _meanings(model))
    return next((reranker for reranker in reranker if reranker is not None), None)


def _meanings(model: str | PathLike[str]) -> list[tuple[str, str]]:
    """Return the readings of a name or folder, by precedence: pairs of kind and name or path."""
    path = check_path("the model", model)
    spec = model_files.find(model) if isinstance(model, str) else None
    if spec is not None:
        return [("model", spec.name)]
    try:
        folder = os.path.realpath(path)  # independent of the working folder
    except ValueError:  # an invalid path; reading the folder reports it
        folder = path
    if not isinstance(model, str):
        return [("folder", folder)]
    # A separate kind, so that a model loaded from a `Path` does not hide a plug-in of that name.
    return [("plug-in", model), ("named folder", folder)]
