"""The modes that are compared, and deciding a stored query again in any of them.

The modes use the same profile, and with it the same blend, weights and guardrails. They differ in
the gate alone:

    never     no gate and no reranker: the order of stage 1
    gated     the profile's gate
    always    no gate: the reranker reads the pool of every query
    remote    no gate: a provider's reranker reads the pool of every query; only where asked for
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crossgate import _cascade as cascade
from crossgate._cascade import Request, Stage1
from crossgate._clock import Deadline
from crossgate._errors import SourceError
from crossgate._evaluation.runs.runs import Mode, RunHeader, StoredQuery
from crossgate._profile import Answer, Floors, Gate, Guardrails, Profile, TierSettings
from crossgate._reranking.contract import PairScore, Reranker
from crossgate._types import Document, Passage, RouteResult

_NO_GATE = Gate(require_overlap=False)


def profile_of(mode: Mode, profile: Profile, remote: str | None = None) -> Profile:
    """Return the profile that a mode runs with.

    Args:
        mode: The mode.
        profile: The profile in use.
        remote: Identity of the remote tier, for the mode of that name. Where the profile was not
            fitted for it, its order counts and its scores meet no bar.
    """
    if mode == "gated":
        return profile
    ungated = replace(profile, gate=_NO_GATE, answer=replace(profile.answer, floor=None))
    if mode != "remote" or remote is None or profile.settings_for(remote) is not None:
        return ungated
    return replace(ungated, tiers={**profile.tiers, remote: TierSettings()})


def holding_nothing_back(profile: Profile) -> Profile:
    """Return a profile that differs in never answering with nothing: no floor and no guardrail."""
    return replace(
        profile,
        gate=replace(
            profile.gate, require_overlap=False, relevance_cosine=None, relevance_bm25=None
        ),
        answer=Answer(),
        floors=Floors(),
        stage1_guardrails=Guardrails(),
        stage2_guardrails=Guardrails(),
        tiers={
            identity: replace(settings, guardrails=Guardrails())
            for identity, settings in profile.tiers.items()
        },
    )


def without_bars(profile: Profile) -> Profile:
    """Return a profile that states its confidence and answers whatever that is."""
    return replace(
        holding_nothing_back(profile), answer=replace(profile.answer, floor=None, least=None)
    )


def decide(
    query: StoredQuery, profile: Profile, mode: Mode, remote: str | None = None
) -> RouteResult:
    """Route a stored query, with the stored scores in place of the models.

    The cascade itself runs, so that there is one order of the stages. All that pass are selected.
    Where the profile blends otherwise than the run's did, its blend orders the candidates that the
    run found.

    Args:
        query: The query.
        profile: The profile to decide by.
        mode: The mode.
        remote: Identity of the remote tier, for the mode of that name. Where it did not answer,
            the order of stage 1 stands.
    """
    # Which profile a stored run may be decided by is checked before, by `check_suitable`.
    remembered: Reranker = _Remembered(query.pairs, identity=profile.reranker or "stored")
    if mode == "remote":
        remembered = _Remembered(query.remote_pairs, identity=remote or "stored")
    key = profile.floors.source_type

    def document(id: str) -> Document:
        metadata = {key: query.sources[id]} if id in query.sources else {}
        return Document(id=id, text=id, metadata=metadata)

    return cascade.run(
        Request(
            query=query.text,
            stage1=lambda: Stage1(scored=query.scored),
            document=document,
            profile=profile_of(mode, profile, remote),
            tiers=[] if mode == "never" else [lambda: remembered],
            limit=None,
        )
    )


def reblended(query: StoredQuery, profile: Profile) -> StoredQuery:
    """Return a query whose candidates are blended and ordered as a profile wants.

    Raises:
        SourceError: `unsuitable_run` if the candidates have no cosine to blend.
    """
    scored = []
    for one in query.scored:
        if one.cosine is None:
            message = f"query {query.id!r} was run without vectors: its blend cannot be changed"
            raise SourceError("unsuitable_run", message)
        scored.append(one.with_cosine(one.cosine, profile.blend))
    return replace(query, scored=tuple(sorted(scored, key=lambda one: (-one.blend, one.id))))


def keeps_pools(header: RunHeader, profile: Profile) -> bool:
    """Return whether a profile lets stage 2 read what it read in the run, wherever it is asked."""
    mine, other = header.profile, profile
    return (mine.blend, mine.pool, mine.floors) == (other.blend, other.pool, other.floors)


def check_suitable(header: RunHeader, profile: Profile) -> tuple[str, ...]:
    """Refuse a profile that a run cannot be decided by, and return what holds only roughly.

    Raises:
        ProfileError: `profile_mismatch` if it was fitted for other models.
        SourceError: `unsuitable_run` if the run lacks logits that the profile asks for.
    """
    if profile == header.profile:
        return ()
    profile.check_models(embedder=header.embedder or None, reranker=header.reranker)
    if "always" not in header.modes:
        message = "the run was made without the mode always: it lacks logits for another profile"
        raise SourceError("unsuitable_run", message)
    notes = ["decided again from a stored run: times are put together from those of its modes"]
    if (profile.blend, profile.pool.per_channel) != (
        header.profile.blend,
        header.profile.pool.per_channel,
    ):
        notes.append("the profile searches otherwise than the run: the candidates are the run's")
    if "remote" in header.modes and not keeps_pools(header, profile):
        notes.append("the mode remote is left out: the tier read the pools of the run's profile")
    return tuple(notes)


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The reranker of a stored query."""

    pairs: Mapping[str, PairScore]
    identity: str
    name: str = "stored"

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> list[PairScore | None]:
        """Return the stored scores; a remote reranker may have scored a part, or nothing."""
        return [self.pairs.get(one.id) for one in passages]
