"""What a caller may name as stage 2, made into functions that load it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from crossgate._core import Profile, fits
from crossgate._errors import InputError
from crossgate._model_files import cache
from crossgate._profile import check_models
from crossgate._types import Degradation

if TYPE_CHECKING:
    from crossgate._reranking.contract import Reranker

    One = Reranker | str | PathLike[str]
    Choice = One | Sequence[One | None] | None


def listed(choice: Choice) -> list[One]:
    """Return the rerankers of a choice, the preferred one first; None in it is left out."""
    if choice is None:
        return []
    if isinstance(choice, str | PathLike):
        return [choice]
    if hasattr(choice, "score"):
        choice = [choice]  # type: ignore[list-item]
    found = choice if isinstance(choice, Iterable) else [choice]
    rerankers = [one for one in found if one is not None]
    for one in rerankers:
        if not isinstance(one, str | PathLike):
            check_reranker(one)
    return rerankers


def check_reranker(one: object) -> None:
    """Refuse what is not a reranker, before a query finds out.

    Raises:
        InputError: `out_of_range`, naming what it lacks.
    """
    lacks = [
        attribute
        for attribute, kind in (("name", str), ("identity", str), ("score", Callable))
        if not _has(one, attribute, kind)
    ]
    if lacks:
        raise InputError(
            "out_of_range",
            f"the reranker is a {type(one).__name__} without {' and '.join(lacks)}: pass a name or "
            "folder of a model, None, or what has name and identity (texts) and score (a method)",
        )


def _has(one: object, attribute: str, kind: Any) -> bool:
    try:
        return isinstance(getattr(one, attribute), kind)
    except AttributeError:
        return False
    except Exception:  # a property that fails is one that is there; a query will say so
        return True


def loaders(rerankers: Sequence[One], default: str) -> list[Callable[[], Reranker]]:
    """Return functions that load the rerankers; `default` is the model of that name."""
    return [partial(_load, one, default) for one in rerankers]


def identities(rerankers: Sequence[One], default: str) -> list[str | None]:
    """Return who the rerankers are. Of the default only the manifest is read, not its file."""
    return [
        cache.identity(default) if one == "default" else _load(one, default).identity
        for one in rerankers
    ]


def check_fitted(profile: Profile, embedder: str | None, rerankers: Sequence[str | None]) -> None:
    """Refuse a profile that was fitted for none of the rerankers; one is enough.

    Raises:
        ProfileError: `profile_mismatch`.
    """
    fitted = (identity for identity in rerankers if fits(profile, identity))
    check_models(profile, embedder=embedder, reranker=next(fitted, next(iter(rerankers), None)))


def no_profile(embedder: str, rerankers: Sequence[str | None]) -> Degradation:
    """Return the note that the gate is off, since nobody fitted thresholds for these models."""
    reranker = next(iter(rerankers), None)
    return Degradation(
        code="no_profile",
        detail=f"no thresholds are fitted for {embedder or 'scores without an embedder'} and "
        f"{reranker or 'no reranker'}: the gate is off",
    )


def _load(one: One, default: str) -> Reranker:
    if not isinstance(one, str | PathLike):
        return one
    from crossgate._reranking.loading import load

    return load(default if one == "default" else one)
