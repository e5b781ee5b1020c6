"""`Context`: the project and the conversation of a query."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import crossgate._core as _core
from crossgate._support.checks import check_kind, check_text, safe_repr
from crossgate._support.errors import InputError
from crossgate._support.wording import counted

if TYPE_CHECKING:
    from crossgate._values.results import Vector

_LEAST_WEIGHT = 0.05
"""Requests with a smaller weight do not count."""

_GOES_ON = 0.5
"""From this weight of the newest request on, a prompt continues it."""

MOST_TECHNOLOGIES = 128
MOST_REQUESTS = 64
REQUEST_CHARACTERS = 4_000
"""Characters of an earlier request that are read, from its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The project and the conversation that a query comes from.

    Attributes:
        technologies: Technologies of the project, such as `dotnet` or `react`. A document whose
            description names one of them is preferred to one that names only others. In a session,
            a document whose title names only others counts for less, unless the query names one,
            too. Names that crossgate does not know have no effect.
        history: Earlier requests of the user in the conversation, oldest first, such as a list of
            texts; it is kept as a tuple. They count for a
            prompt in English that does not stand alone, such as "now in German", the newest
            most. Thanks, greetings and remarks such as "it works now" do not count, and no earlier
            request counts for them.

    Raises:
        InputError: `out_of_range` for more than 128 technologies or 64 requests, or for a value
            that is not a collection of texts; `invalid_text` for a text that is not Unicode.
    """

    technologies: Sequence[str] = ()
    history: Sequence[str] = ()

    def __post_init__(self) -> None:
        technologies = _texts("technologies", self.technologies, MOST_TECHNOLOGIES)
        history = _texts("history", self.history, MOST_REQUESTS)
        object.__setattr__(self, "technologies", technologies)
        object.__setattr__(self, "history", tuple(text[:REQUEST_CHARACTERS] for text in history))

    @classmethod
    def of_folder(cls, path: str | os.PathLike[str], *, history: Sequence[str] = ()) -> Context:
        """Return the context of a project's folder.

        The technologies are those of the file names in the folder and in the root of its
        repository, and those of manifests, such as `package.json`, in these two and in the folders
        in them. At most 2,000 names of a folder and 64 KiB of a manifest are read; nothing is run.

        Args:
            path: A folder of the project.
            history: Earlier requests of the conversation, oldest first.

        Raises:
            SourceError: `source_missing` or `source_unreadable` if the folder cannot be listed.
        """
        from crossgate._sources.projects import technologies_of

        return cls(technologies=technologies_of(path), history=history)


def check_context(context: object) -> None:
    """Check that a value is a context.

    Raises:
        InputError: `out_of_range`.
    """
    check_kind("context", context, Context, "a Context, or None")


def _texts(name: str, given: object, most: int) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError("out_of_range", f"{name} is {safe_repr(given)}: pass a list of texts")
    texts = tuple(given)
    if len(texts) > most:
        raise InputError(
            "out_of_range", f"{name} has {counted(len(texts), 'text')}: pass at most {most}"
        )
    for text in texts:
        check_text(f"a text of {name}", text)
    return texts


class Conversation(NamedTuple):
    """The earlier requests that count for a query.

    Attributes:
        history: Their texts, oldest first, with their weights; the query has weight 1.
        goes_on: Whether the query is a request that continues an earlier one.
        weights: The weight of each request of the context; 0 for a request that does not count.
    """

    history: tuple[tuple[str, float], ...] = ()
    goes_on: bool = False
    weights: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        query: str,
        context: Context,
        scored: Sequence[_core.Scored],
        compared: int,
        profile: _core.Profile,
    ) -> Conversation:
        """Weigh the earlier requests by their age, and by how well the query stands alone.

        Thanks, greetings and remarks such as "it works now" do not count, and no earlier request
        counts for them.

        Args:
            query: The query.
            context: Its context.
            scored: The candidates for the query alone.
            compared: Number of documents that the query was compared with.
            profile: The profile whose confidence says how well the best candidate fits.
        """
        counts = [not _core.is_courtesy(text) for text in context.history]
        if not any(counts):
            return cls()
        standing = _core.standing(list(scored), compared, profile) or 0.0
        found = iter(_core.history_weights(query, sum(counts), standing))
        weights = [next(found) if count else 0.0 for count in counts]
        weights = [weight if weight >= _LEAST_WEIGHT else 0.0 for weight in weights]
        pairs = zip(context.history, weights, strict=True)
        history = tuple((text, weight) for text, weight in pairs if weight)
        return cls(history, max(weights) >= _GOES_ON, tuple(weights))

    def read_with(self, query: str) -> str:
        """Return the text that stage 2 reads: the query, after the request that it continues."""
        if not self.goes_on or not self.history:
            return query
        return f"{self.history[-1][0]}\n{query}"


def sum_of_directions(
    query: Vector, earlier: Sequence[Vector], weights: Sequence[float]
) -> list[float]:
    """Return the sum of the directions of a query and of weighted earlier requests."""
    sums = _direction(query)
    for vector, weight in zip(earlier, weights, strict=True):
        sums = [sum + weight * number for sum, number in zip(sums, _direction(vector), strict=True)]
    return sums


def _direction(vector: Vector) -> list[float]:
    length = math.hypot(*vector) or 1.0
    return [number / length for number in vector]


def trace_of(context: Context, conversation: Conversation) -> dict[str, Any]:
    """Return the context for the trace, which has hashes of earlier requests and no texts."""
    weights = conversation.weights or (0.0,) * len(context.history)
    return {
        "technologies": list(context.technologies),
        "history": [
            {"sha256": _core.sha256_of(text.encode()), "weight": weight}
            for text, weight in zip(context.history, weights, strict=True)
        ],
    }
