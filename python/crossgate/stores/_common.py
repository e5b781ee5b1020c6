"""What the adapters of all engines share: checks, the way into the cascade, missing packages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time
from numbers import Real
from typing import Any

from crossgate._checks import check_limit, check_query
from crossgate._errors import InputError
from crossgate._extras import package as installed
from crossgate._rerank import rerank
from crossgate._types import Candidate, RouteResult

CANDIDATES = 50
"""How many documents an engine is asked for, by meaning and by words each."""


def check(query: str, vector: Sequence[float] | None, candidates: int, limit: int | None) -> None:
    """Refuse what would fail in the engine, or be misread there, before it is asked.

    Raises:
        InputError: `empty_query`, `query_too_long`, `invalid_text`, `out_of_range`, or `not_finite`
            or `zero_vector` for a vector that has no direction.
    """
    check_query(query)
    check_limit(limit)
    if candidates < 1:
        raise InputError("out_of_range", f"candidates is {candidates}: it must be at least 1")
    if vector is None:
        return
    for place, value in enumerate(vector):
        if not (isinstance(value, Real) and math.isfinite(value)):
            raise InputError("not_finite", f"element {place} of the query's vector is {value!r}")
    if not any(vector):
        raise InputError("zero_vector", "the query's vector is empty or all zeros")


def decide(
    query: str, rows: Iterable[Candidate], *, limit: int | None, options: Mapping[str, Any]
) -> RouteResult:
    """Let the cascade decide; an id that two channels found counts once.

    Args:
        query: What was searched for.
        rows: What the engine found.
        limit: Maximum number to select; None for all that pass.
        options: Further arguments of `crossgate.rerank`.
    """
    found: dict[str, Candidate] = {}
    for row in rows:
        found.setdefault(row.id, row)
    return rerank(query, found.values(), limit=limit, **options)


def candidate(
    id: object,
    row: dict[str, Any],
    *,
    text: str,
    title: str | None,
    cosine: float | None = None,
    vector: Sequence[float] | None = None,
) -> Candidate:
    """Make a candidate of a row, or of what an engine calls so.

    Args:
        id: The id, of any type.
        row: The other values by column; what is left of them becomes metadata.
        text: Column of the text.
        title: Column of the title, or None.
        cosine: Similarity with the query, as the engine has it.
        vector: The row's vector.

    Raises:
        InputError: `malformed_candidate` if there is no such column, or no text in it.
    """
    said = taken(row, text)
    if not isinstance(said, str):
        raise InputError(
            "malformed_candidate", f"the {text} of {id!r} is {said!r}: it must be a text"
        )
    if cosine is not None:
        # A row whose vector is all zeros has no direction; 32-bit floats go beyond 1.
        cosine = min(1.0, max(-1.0, cosine)) if math.isfinite(cosine) else None
    return Candidate(
        id=str(id),
        text=said,
        title=str(taken(row, title) or "") if title else "",
        metadata={key: _as_json(value) for key, value in row.items()},
        cosine=cosine,
        vector=vector if vector is None or any(vector) else None,
    )


def _as_json(value: Any) -> Any:
    """Return a value of a column as JSON: a time as ISO 8601, what JSON cannot hold as its kind."""
    if isinstance(value, date | time):
        return value.isoformat()
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return f"<{type(value).__name__}>"
    return value


def taken(row: dict[str, Any], column: str) -> Any:
    """Remove a column from a row, and return its value.

    Raises:
        InputError: `malformed_candidate` if there is none.
    """
    if column not in row:
        there = ", ".join(sorted(row)) or "nothing"
        raise InputError("malformed_candidate", f"the engine's rows have no {column!r}: {there}")
    return row.pop(column)


def package(name: str, extra: str) -> Any:
    """Return a package that an extra brings.

    Raises:
        ModelError: `dependency_missing` if it is not installed.
    """
    return installed(name, "this search", extra=extra)
