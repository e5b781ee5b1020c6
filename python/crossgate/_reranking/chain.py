"""The rerankers of one caller: named by preference, loaded when needed, asked until one answers."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple

from crossgate._core import Pair, Profile, fits
from crossgate._reranking.contract import Deadline, Reranker, Scores, check_reranker
from crossgate._runtime.models import cache, manifest
from crossgate._support.checks import check_path
from crossgate._support.errors import RerankerError
from crossgate._values.profile_files import check_models
from crossgate._values.results import Degradation, Passage, degradation

if TYPE_CHECKING:
    from crossgate._reranking.admission import GuardedReranker
    from crossgate._telemetry.events import Watch

    Named = Reranker | str | PathLike[str]
    Choice = Named | Sequence[Named | None] | None

Answer = Scores | Exception
"""What came of a call: the scores, or what was raised in their place."""

# How much of the time that is left a reranker may take: what follows it needs some, too. One with
# the whole of it would leave nothing to fall back into.
_SHARE = 0.8
_SHARE_OF_THE_LAST = 0.95


class Call(NamedTuple):
    """One question to one reranker, to be carried out by whoever decides.

    Attributes:
        reranker: Whom to ask.
        query: The query.
        passages: What to read, best first after stage 1.
        deadline: When the answer must be there.
    """

    reranker: GuardedReranker
    query: str
    passages: Sequence[Passage]
    deadline: Deadline

    def run(self) -> Answer:
        """Ask, and wait for the answer, or for what is raised in its place."""
        try:
            return self.reranker.score(self.query, self.passages, deadline=self.deadline)
        except Exception as error:
            return error

    async def arun(self) -> Answer:
        """Do what `run` does from an event loop."""
        try:
            return await self.reranker.ascore(self.query, self.passages, deadline=self.deadline)
        except Exception as error:
            return error


class Reply:
    """What became of stage 2.

    Attributes:
        name: Name of the reranker that answered; None if none did.
        identity: Its identity.
        pairs: Its scores, by the document's id.
        degraded: What did not go as configured.
        asked: Each reranker that had its turn: its identity, and `answered` or why it did not.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.identity: str | None = None
        self.pairs: list[Pair] = []
        self.degraded: list[Degradation] = []
        self.asked: list[tuple[str | None, str]] = []


class Chain:
    """The rerankers of one caller, the preferred one first. Exactly one answers a query.

    Args:
        choice: What the caller named as stage 2; None in a sequence is left out.
        default: The model that the name `default` stands for.

    Attributes:
        identities: Who the rerankers are. Of the default only the manifest is read, not its file.

    Raises:
        InputError: `out_of_range` for what is no reranker.
        ModelError: For a name or folder that cannot be used.
    """

    def __init__(self, choice: Choice, default: str = manifest.ROUTING_RERANKER) -> None:
        self._members = _listed(choice)
        self._default = default
        self._admitted: dict[int, GuardedReranker] = {}
        self.identities: list[str | None] = [
            cache.identity(default) if member == "default" else self._load(member).identity
            for member in self._members
        ]

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Reranker]:
        return map(self._load, self._members)

    def check_fitted(self, profile: Profile, embedder: str | None) -> None:
        """Refuse a profile that was fitted for none of the rerankers; one is enough.

        Raises:
            ProfileError: `profile_mismatch`.
        """
        known = self.identities
        fitted = (identity for identity in known if fits(profile, identity))
        check_models(profile, embedder=embedder, reranker=next(fitted, next(iter(known), None)))

    def no_profile(self, embedder: str) -> Degradation:
        """Return the note that the gate is off, since nobody fitted thresholds for these models."""
        reranker = next(iter(self.identities), None)
        return Degradation(
            code="no_profile",
            detail=f"no thresholds are fitted for {embedder or 'scores without an embedder'} and "
            f"{reranker or 'no reranker'}: the gate is off",
        )

    def is_available(self) -> bool:
        """Return whether the preferred reranker takes calls at this moment."""
        try:
            return bool(self._members) and self._within_bounds(0).available
        except Exception:  # `ask` will say what is wrong with it
            return False

    def ask(
        self,
        query: str,
        passages: Sequence[Passage],
        deadline: Deadline,
        watch: Watch | None = None,
    ) -> Generator[Call, Answer, Reply]:
        """Yield a call for each reranker in turn until one of them is answered.

        Send what came of the call: each reranker that does not answer is noted, and the next one
        has its turn.

        Args:
            query: The query.
            passages: What to read, best first; each reranker gets a copy of its own.
            deadline: When the query must be decided.
            watch: Hears of each reranker.
        """
        reply = Reply()
        last = len(self._members) - 1
        for position in range(len(self._members)):
            if deadline.left == 0:
                message = f"the {deadline.budget_ms:g} ms are used up: no further reranker is asked"
                reply.degraded.append(Degradation(code="budget", detail=message))
                if watch:
                    watch.reranker_skipped("reranker", "budget", 0.0)
                break
            start = time.perf_counter()
            name = "reranker"
            identity: str | None = None
            answer: Answer
            try:
                reranker = self._within_bounds(position)
                name, identity = reranker.name, reranker.identity
            except Exception as error:
                answer = error.with_traceback(None)  # which would keep all that stands here alive
            else:
                share = _SHARE_OF_THE_LAST if position == last else _SHARE
                answer = yield Call(reranker, query, passages, deadline.share(share))
            if isinstance(answer, Exception):  # whatever one does, the next one or stage 1 stands
                if isinstance(answer, RerankerError):
                    why = Degradation(code=answer.code, detail=str(answer))
                else:
                    why = degradation("reranker", answer)
                reply.degraded.append(why)
                reply.asked.append((identity, why.code))
                if watch:
                    taken = (time.perf_counter() - start) * 1000
                    watch.reranker_skipped(name, why.code, taken)
                continue
            reply.name, reply.identity = name, identity
            reply.pairs = [
                Pair(id=passage.id, score=pair.score, truncated=pair.truncated)
                for passage, pair in zip(passages, answer, strict=True)
                if pair is not None
            ]
            if answer.missing is not None:
                reply.degraded.append(answer.missing)
            reply.asked.append((identity, "answered"))
            if watch:
                taken = (time.perf_counter() - start) * 1000
                watch.reranker_finished(name, len(reply.pairs), taken)
            break
        return reply

    def _within_bounds(self, position: int) -> GuardedReranker:
        """Return a reranker within bounds: those that it was given, or those of its kind."""
        if position not in self._admitted:
            from crossgate._reranking.admission import GuardedReranker

            reranker = self._load(self._members[position])
            self._admitted[position] = (
                reranker if isinstance(reranker, GuardedReranker) else GuardedReranker(reranker)
            )
        return self._admitted[position]

    def _load(self, member: Named) -> Reranker:
        if not isinstance(member, str | PathLike):
            return member
        return load(self._default if member == "default" else member)


def _listed(choice: Choice) -> list[Named]:
    if choice is None:
        return []
    if isinstance(choice, str | PathLike):
        return [choice]
    if hasattr(choice, "score"):
        choice = [choice]  # type: ignore[list-item]
    given = choice if isinstance(choice, Iterable) else [choice]
    members = [member for member in given if member is not None]
    for member in members:
        if not isinstance(member, str | PathLike):
            check_reranker(member)
    return members


def load(model: str | PathLike[str]) -> Reranker:
    """Return the process's one reranker of a name or folder.

    A name is looked for among the models of the manifest, then among the plug-ins, and is the
    path of a folder only if neither knows it.

    Raises:
        ModelError: As `CrossEncoder` does, or `PluginError` for a plug-in that cannot be used.
    """
    found = _loaded(model)  # without the lock: nobody waits here for the files of another model
    if found is not None:
        return found
    from crossgate._reranking import plugins, shared_state
    from crossgate._reranking.cross_encoder import CrossEncoder

    with shared_state.load_lock:
        found = _loaded(model)  # another thread may have been faster
        if found is None:
            *names, last = _meanings(model)
            plugin = plugins.load(names[0][1]) if names else None
            found = CrossEncoder(model) if plugin is None else plugin
            shared_state.loaded[last if plugin is None else names[0]] = found
        return found


def unloaded(choice: object) -> list[str | PathLike[str]]:
    """Return the models that a choice names and that have to be loaded; the default waits."""
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

    found = (shared_state.loaded.get(meaning) for meaning in _meanings(model))
    return next((one for one in found if one is not None), None)


def _meanings(model: str | PathLike[str]) -> list[tuple[str, str]]:
    """Return what a name or folder may stand for, by precedence: each a kind, and name or path."""
    path = check_path("the model", model)
    known = manifest.find(model) if isinstance(model, str) else None
    if known is not None:
        return [("model", known.name)]
    try:
        folder = os.path.realpath(path)  # a relative path leads elsewhere from another folder
    except ValueError:  # no system call takes it; whoever reads the folder says so
        folder = path
    if not isinstance(model, str):
        return [("folder", folder)]
    # A kind of its own: what was loaded from a `Path` never stands before a plug-in of that name.
    return [("plug-in", model), ("named folder", folder)]
