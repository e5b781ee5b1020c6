"""Hits of any kind, crossgate's own and those of other retrievers, and their decay with age.

A hit is any object with an `id`. Its text, date and vector are looked up on the hit itself, on its
`document`, and in its `metadata`, so that dataclasses, named tuples and pydantic models of other
libraries pass through a step and keep their type.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Protocol, TypeVar

from crossgate._support.checks import check_hits, check_number
from crossgate._support.errors import InputError
from crossgate._support.wording import type_of
from crossgate._values.results import Candidate, Document

TIMESTAMPS = ("timestamp", "date")
"""Keys of the metadata that may hold a document's date, in order of preference."""

HALF_LIFE_DAYS = 30.0
FLOOR = 0.3

_SECONDS_PER_DAY = 86_400
_OVERRIDE = "half_life_days"
_TEXTS = ("text", "content", "body", "passage", "chunk")


class AnyHit(Protocol):
    """What every step needs of a hit.

    Attributes:
        id: Unique within one list; the same id in two lists is the same document.
    """

    @property
    def id(self) -> str:
        """The document's id."""


H = TypeVar("H", bound=AnyHit)


def text_of(hit: object) -> str:
    """Return the text that scorers read, or an empty string if the hit has none."""
    document = getattr(hit, "document", hit)
    if isinstance(document, Document):
        return document.content
    own = {name: getattr(hit, name, None) for name in _TEXTS}
    values = (fields.get(name) for fields in (own, metadata_of(hit)) for name in _TEXTS)
    return next((value for value in values if isinstance(value, str) and value.strip()), "")


def body_of(hit: object) -> str:
    """Return the body of a document, or an empty string if the hit is none or has none."""
    document = getattr(hit, "document", hit)
    return document.body if isinstance(document, Document) else ""


def metadata_of(hit: object) -> Mapping[str, Any]:
    """Return the metadata, or an empty mapping if the hit has none."""
    metadata = getattr(getattr(hit, "document", hit), "metadata", None)
    return metadata if isinstance(metadata, Mapping) else {}


def vector_of(hit: object) -> Sequence[float] | None:
    """Return the embedding, or None if the hit has none."""
    vector: Sequence[float] | None = getattr(getattr(hit, "document", hit), "vector", None)
    return vector


def score_of(hit: AnyHit) -> float:
    """Return the score.

    Raises:
        InputError: `malformed_candidate` if the hit has no score, or it is not a number.
    """
    score = getattr(hit, "score", None)
    try:
        if score is not None and not isinstance(score, bool | str):
            return float(score)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(
        "malformed_candidate", f"the score of hit {hit.id!r} is {score!r}: it must be a number"
    )


def with_score(hit: H, score: float) -> H:
    """Return a copy of a hit with another score.

    Raises:
        InputError: `malformed_candidate` if the hit cannot be copied with a `score`.
    """
    try:
        if dataclasses.is_dataclass(hit):
            return dataclasses.replace(hit, score=score)
        for method in ("_replace", "model_copy"):  # named tuples, pydantic
            if hasattr(hit, method):
                changes = {"score": score}
                copied: H = (
                    hit._replace(**changes)  # type: ignore[attr-defined]
                    if method == "_replace"
                    else hit.model_copy(update=changes)  # type: ignore[attr-defined]
                )
                return copied
        copied = copy.copy(hit)
        copied.score = score  # type: ignore[attr-defined]
    except (AttributeError, TypeError) as error:
        raise InputError(
            "malformed_candidate",
            f"no score can be set on hit {hit.id!r}, {type_of(hit)}: {error}",
        ) from error
    return copied


def time_of(hit: AnyHit) -> datetime | None:
    """Return the date of a document, or None if its metadata has none.

    The value under `timestamp`, else under `date`, is an ISO 8601 string, a `datetime`, a `date`
    (midnight), or seconds since 1970. Without a time zone it is UTC.

    Raises:
        InputError: `malformed_candidate` if the value is none of these.
    """
    metadata = metadata_of(hit)
    value = next((metadata[name] for name in TIMESTAMPS if metadata.get(name) is not None), None)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            value = datetime.fromtimestamp(value, UTC)
        if isinstance(value, datetime):
            return as_utc(value)
    except (ValueError, OverflowError, OSError):
        pass
    raise InputError(
        "malformed_candidate",
        f"the timestamp of hit {hit.id!r} is {value!r}: it must be ISO 8601, a datetime or seconds "
        "since 1970",
    )


def readable_time_of(hit: AnyHit) -> datetime | None:
    """Return what `time_of` returns, or None where it would raise."""
    try:
        return time_of(hit)
    except InputError:
        return None


def as_utc(time: datetime) -> datetime:
    """Return a time in UTC; without a time zone it is taken to be UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def merged(first: H, other: H) -> H:
    """Return one hit for two with the same id: the first, or the newer if their texts differ.

    Stores may lag behind each other. If the texts differ and both hits have a readable date, the
    newer hit is returned, else the first. If the texts are the same, a candidate takes over a
    missing cosine or vector from the other.
    """
    if text_of(first) != text_of(other):
        earlier, later = readable_time_of(first), readable_time_of(other)
        return other if earlier is not None and later is not None and later > earlier else first
    if isinstance(first, Candidate) and isinstance(other, Candidate):
        return dataclasses.replace(
            first,
            cosine=other.cosine if first.cosine is None else first.cosine,
            vector=other.vector if first.vector is None else first.vector,
        )
    return first


def decay(
    hits: Sequence[H],
    *,
    now: datetime,
    half_life_days: float = HALF_LIFE_DAYS,
    floor: float = FLOOR,
) -> list[H]:
    """Multiply each score by max(floor, 2 ** (-age / half-life)) and sort again, best first.

    Run this before a cross-encoder, not after it. A cross-encoder does not see dates, so the hits
    that it reads must already be chosen by age. And logits cannot be decayed: multiplied by 0.3, a
    logit of -4 gets better. Negative scores are therefore refused.

    A document's metadata may have its own `half_life_days`: a number, or None for a document that
    never ages. Its date is read from `timestamp` or `date`, see `time_of`. A document without a
    date does not age. Neither does one with a date in the future, since a wrong clock is the likely
    cause.

    Args:
        hits: Hits with a score of at least 0.
        now: The current time, from which ages are computed; without a time zone it is UTC.
        half_life_days: Days after which a score has halved, above 0.
        floor: The smallest factor, in [0, 1], however old the document is.

    Returns:
        Copies of the hits with the new `score`; ties go to the smaller id.

    Raises:
        InputError: `out_of_range` for a half-life (also in metadata), floor or score outside its
            limits; `malformed_candidate` for a date that cannot be read or a score that is not a
            number.
    """
    check_number("half_life_days", half_life_days, 0, above=True)
    check_hits("hits", hits)
    check_number("the floor", floor, 0, 1)
    if not isinstance(now, datetime):
        raise InputError("out_of_range", f"now is {now!r}: it must be a datetime")
    now = as_utc(now)
    aged = []
    for hit in hits:
        score = score_of(hit)
        if not (score >= 0 and math.isfinite(score)):
            raise InputError(
                "out_of_range",
                f"the score of hit {hit.id!r} is {score}: decay needs scores of at least 0; run "
                "it on fused scores, before a cross-encoder",
            )
        aged.append(with_score(hit, score * _factor(hit, now, half_life_days, floor)))
    return sorted(aged, key=lambda hit: (-score_of(hit), hit.id))


def _factor(hit: H, now: datetime, half_life_days: float, floor: float) -> float:
    written = time_of(hit)
    own = metadata_of(hit).get(_OVERRIDE, half_life_days)
    if own is None or written is None:
        return 1.0
    check_number(f"half_life_days of hit {hit.id!r}", own, 0, above=True)
    days = max(0.0, (now - written).total_seconds() / _SECONDS_PER_DAY)
    return max(floor, math.exp2(-days / own))
