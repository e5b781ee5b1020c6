"""Reading hits of any kind: crossgate's own, and those of other retrievers.

A hit is any object with an `id`. Its text, date and vector are looked up on the hit itself, on its
`document`, and in its `metadata`, so that dataclasses, named tuples and pydantic models of other
libraries pass through a step and keep their type.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Protocol, TypeVar

from crossgate._support.errors import InputError
from crossgate._support.wording import type_of
from crossgate._values.results import Candidate, Document

TIMESTAMPS = ("timestamp", "date")
"""Keys of the metadata that may hold a document's date, in order of preference."""

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
                made: H = (
                    hit._replace(**changes)  # type: ignore[attr-defined]
                    if method == "_replace"
                    else hit.model_copy(update=changes)  # type: ignore[attr-defined]
                )
                return made
        made = copy.copy(hit)
        made.score = score  # type: ignore[attr-defined]
    except (AttributeError, TypeError) as error:
        raise InputError(
            "malformed_candidate",
            f"no score can be set on hit {hit.id!r}, {type_of(hit)}: {error}",
        ) from error
    return made


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
