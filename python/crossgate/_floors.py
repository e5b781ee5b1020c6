"""Floors and the score cliff: which candidates of stage 1 are good enough for stage 2 to read.

Two cuts by cosine come before stage 2. The *floor* of the request's section drops what lies below
it, whatever decides in the end; a low grade of the retrieval relaxes it. The *tighten* raises the
floor for one query, to the last score above a cliff, so that stage 2 is not paid for a tail that
it would put last anyway. It is computed for each query anew and never cached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossgate import _core
from crossgate._checks import is_text
from crossgate._types import Degradation, Document

if TYPE_CHECKING:
    from crossgate._profile import Floors, Profile

GRADES = frozenset("ABCDF")
"""The grades of a retrieval, from `A`, the best; lower-case letters count as well."""
LOW_GRADES = frozenset("CDF")

BELOW_FLOOR = "below_section_floor"
BELOW_CLIFF = "below_cliff"

APPLY_BAND = (0.02, 0.40)
"""The share of pools that a well-set `pool.core` tightens: below it the cliff detector is inert,
above it the pools are too wide to begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tightening:
    """What became of the cliff.

    Attributes:
        cut: Ids of the candidates that the cut took from the pool.
        effective_floor: The floor in force, a cosine; None without any.
        cliff_position: How many of all candidates stand above the cliff; None without one.
        skip_reason: Why nothing was cut, or None where the pool was tightened.
        reranker_available: Whether stage 2 took calls when the cut was applied.
        sources: Source types by id, of the candidates that have one.
    """

    cut: frozenset[str]
    effective_floor: float | None
    cliff_position: int | None
    skip_reason: str | None
    reranker_available: bool
    sources: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome, and what it was made of beside the scores, as JSON values."""
        return {
            "applied": self.skip_reason is None,
            "effective_floor": self.effective_floor,
            "cliff_position": self.cliff_position,
            "dropped_count": len(self.cut),
            "skip_reason": self.skip_reason,
            "reranker_available": self.reranker_available,
            "sources": dict(self.sources),
        }


def floor_of(floors: Floors, section: str | None, grade: str | None) -> float | None:
    """Return the least cosine of a candidate, or None where floors are off.

    Args:
        floors: The profile's floors.
        section: The request's section; one that has no floor of its own gets the default.
        grade: The retrieval's grade; one of C, D and F relaxes the floor.
    """
    floor = floors.default if section is None else floors.sections.get(section, floors.default)
    if floor is not None and letter(grade) in LOW_GRADES:
        return floor - floors.relax
    return floor


def pool_size(profile: Profile, grade: str | None) -> int:
    """Return how many candidates stage 2 reads at most; a low grade widens the pool."""
    wider = profile.floors.widen if letter(grade) in LOW_GRADES else 0
    return profile.pool.rerank_top_k + wider


def letter(grade: str | None) -> str | None:
    """Return a grade as its capital letter, `?` for one that is unknown, None for none."""
    if grade is None:
        return None
    return grade.upper() if grade.upper() in GRADES else "?"


def clears(one: _core.Scored, floor: float | None) -> bool:
    """Return whether a candidate clears the floor; one without a cosine cannot be measured."""
    return floor is None or one.cosine is None or one.cosine >= floor


def judged(scored: Sequence[_core.Scored], floor: float | None) -> Sequence[_core.Scored]:
    """Return the candidates that the gate judges by.

    Those are all, even those below the floor, as long as the first one clears it: how far a winner
    is ahead of what the floor drops still tells how clear it is, and the gate's thresholds were
    fitted so. Where the floor drops the first one, they are those that clear it.

    Args:
        scored: All candidates, best blend first.
        floor: The floor.
    """
    if scored and clears(scored[0], floor):
        return scored
    return [one for one in scored if clears(one, floor)]


def notes(
    scored: Sequence[_core.Scored], profile: Profile, section: str | None, grade: str | None
) -> tuple[Degradation, ...]:
    """Return what of the request had no effect, although the profile's floors are on."""
    floors, found = profile.floors, []
    if section is not None and floors.sections and section not in floors.sections:
        instead = "none holds" if floors.default is None else f"the default {floors.default} holds"
        found.append(
            Degradation(
                code="unknown_section",
                detail=f"profile {profile.name[:40]!r} has no floor for the section "
                f"{section[:40]!r}: {instead}",
            )
        )
    if letter(grade) == "?":
        found.append(
            Degradation(
                code="unknown_grade",
                detail=f"grade {str(grade)[:40]!r} is none of A, B, C, D and F: it relaxes no "
                "floor, and the pool is not tightened",
            )
        )
    floor = floor_of(floors, section, grade)
    if floor is not None and any(one.cosine is None for one in scored):
        found.append(
            Degradation(
                code="floor_unmeasured",
                detail=f"candidates without a cosine pass the floor {floor:g} unmeasured: give "
                "the query's vector and theirs, or their cosines",
            )
        )
    return tuple(found)


def sources_of(documents: Mapping[str, Document], key: str) -> dict[str, str]:
    """Return the source types of documents by id; one that is no text counts as none."""
    found = {id: one.metadata.get(key) for id, one in documents.items()}
    return {id: kind for id, kind in found.items() if isinstance(kind, str) and is_text(kind)}


def tighten(
    scored: Sequence[_core.Scored],
    sources: Mapping[str, str],
    profile: Profile,
    *,
    section: str | None,
    grade: str | None,
    available: Callable[[], bool],
) -> Tightening | None:
    """Look for a cliff past the core, and say which candidates below it stage 2 need not read.

    Args:
        scored: All candidates, best blend first, those below the floor among them.
        sources: Source types by id.
        profile: The core, the floors and the size of the pool.
        section: The request's section.
        grade: The retrieval's grade.
        available: Whether stage 2 takes calls at this moment. Asked before the cliff is looked for,
            and again before the cut is applied: another thread's failure may lie between.

    Returns:
        The outcome, or None where `pool.core` is None.
    """
    core = profile.pool.core
    if core is None:
        return None
    floor = floor_of(profile.floors, section, grade)
    cosines = [one.cosine for one in scored if one.cosine is not None]
    if len(cosines) < len(scored):
        return Tightening(
            cut=frozenset(),
            effective_floor=floor,
            cliff_position=None,
            skip_reason="no_cosine",
            reranker_available=available(),
            sources=sources,
        )

    def look(is_available: bool) -> _core.Tightened:
        return _core.tighten(
            cosines,
            [sources.get(one.id) for one in scored],
            # A profile may hold larger numbers than the core takes, and they mean no more.
            core=min(core, len(scored)),
            pool=min(pool_size(profile, grade), len(scored)),
            static_floor=floor,
            grade=letter(grade),
            reranker_available=is_available,
        )

    is_available = available()
    outcome = look(is_available)
    if outcome.skip_reason is None:
        is_available = available()
        outcome = outcome if is_available else look(is_available)
    return Tightening(
        cut=frozenset(scored[place].id for place in outcome.cut),
        effective_floor=outcome.effective_floor,
        cliff_position=outcome.cliff_position,
        skip_reason=outcome.skip_reason,
        reranker_available=is_available,
        sources=sources,
    )
