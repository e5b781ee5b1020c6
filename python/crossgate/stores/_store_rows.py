"""Shared by the adapters: checks, candidates from rows, and the call of `rerank`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time
from numbers import Real
from typing import Any

from crossgate._decision.rerank_candidates import rerank
from crossgate._support.checks import check_limit, check_query
from crossgate._support.errors import InputError
from crossgate._support.extras import package as installed
from crossgate._values.results import Candidate, RouteResult

CANDIDATES = 50
"""How many documents an engine is asked for per channel, by meaning and by words."""


def check_search(
    query: str, vector: Sequence[float] | None, candidates: int, limit: int | None
) -> None:
    """Check the arguments before the engine is queried.

    Raises:
        InputError: `empty_query`, `query_too_long`, `invalid_text`, `out_of_range`, or `not_finite`
            or `zero_vector` for a vector without a direction.
    """
    check_query(query)
    check_limit(limit)
    if candidates < 1:
        raise InputError("out_of_range", f"candidates is {candidates}: it must be at least 1")
    if vector is None:
        return
    for position, value in enumerate(vector):
        if not (isinstance(value, Real) and math.isfinite(value)):
            raise InputError("not_finite", f"element {position} of the query's vector is {value!r}")
    if not any(vector):
        raise InputError("zero_vector", "the query's vector is empty or all zeros")


def rerank_rows(
    query: str, rows: Iterable[Candidate], *, limit: int | None, options: Mapping[str, Any]
) -> RouteResult:
    """Call `rerank` with the candidates; duplicate ids from two channels are merged.

    Args:
        query: The query.
        rows: The candidates that the engine found.
        limit: Maximum number to select; None for all that pass.
        options: Further arguments of `crossgate.rerank`.
    """
    by_id: dict[str, Candidate] = {}
    for row in rows:
        by_id.setdefault(row.id, row)
    return rerank(query, by_id.values(), limit=limit, **options)


def candidate_of(
    id: object,
    row: dict[str, Any],
    *,
    text: str,
    title: str | None,
    cosine: float | None = None,
    vector: Sequence[float] | None = None,
) -> Candidate:
    """Make a candidate from a row of an engine.

    Args:
        id: The id, of any type.
        row: The other values by column; the remaining ones become metadata.
        text: Column of the text.
        title: Column of the title, or None.
        cosine: Cosine with the query, as computed by the engine.
        vector: The row's vector.

    Raises:
        InputError: `malformed_candidate` if there is no such column, or no text in it.
    """
    content = taken(row, text)
    if not isinstance(content, str):
        raise InputError(
            "malformed_candidate", f"the {text} of {id!r} is {content!r}: it must be text"
        )
    if cosine is not None:
        # A vector of zeros has no direction; with 32-bit floats a cosine may exceed 1.
        cosine = min(1.0, max(-1.0, cosine)) if math.isfinite(cosine) else None
    return Candidate(
        id=str(id),
        text=content,
        title=str(taken(row, title) or "") if title else "",
        metadata={key: _as_json(value) for key, value in row.items()},
        cosine=cosine,
        vector=vector if vector is None or any(vector) else None,
    )


def _as_json(value: Any) -> Any:
    """Return a value as JSON: times as ISO 8601, values that JSON cannot hold as type names."""
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
        InputError: `malformed_candidate` if there is no such column.
    """
    if column not in row:
        columns = ", ".join(sorted(row)) or "none"
        message = f"the engine's rows have no {column!r}; their columns: {columns}"
        raise InputError("malformed_candidate", message)
    return row.pop(column)


def package(name: str, extra: str) -> Any:
    """Return a package that an extra installs.

    Raises:
        ModelError: `dependency_missing` if it is not installed.
    """
    return installed(name, "this search", extra=extra)
