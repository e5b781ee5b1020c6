"""Shared by the adapters: checks, candidates from rows, and the call of `rerank`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A document as an engine returns it.

    Attributes:
        id: The id, of any type.
        values: The other values by column.
        cosine: Cosine with the query, as computed by the engine; None if it is unknown.
        vector: The document's vector; None if the engine computes the cosine or there is none.
    """

    id: object
    values: dict[str, Any]
    cosine: float | None = None
    vector: Sequence[float] | None = None


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
    query: str,
    rows: Iterable[Row],
    *,
    text: str,
    title: str | None,
    limit: int | None,
    options: Mapping[str, Any],
) -> RouteResult:
    """Pass the rows of an engine to `rerank`.

    A row of an id that another channel has found already is left out. A row without text has an
    empty text, which `rerank` reports as `empty`.

    Args:
        query: The query.
        rows: The rows.
        text: Column of the text.
        title: Column of the title, or None.
        limit: Maximum number to select; None for all that pass.
        options: Further arguments of `crossgate.rerank`.

    Raises:
        InputError: `malformed_candidate` if no row has the column of the text or the title, or if a
            text is not text.
    """
    by_id: dict[str, Row] = {}
    for row in rows:
        by_id.setdefault(str(row.id), row)
    for column in (text, title):
        if column and by_id and not any(column in row.values for row in by_id.values()):
            raise _no_column(column, {name for row in by_id.values() for name in row.values})
    documents = [_candidate(id, row, text, title) for id, row in by_id.items()]
    return rerank(query, documents, limit=limit, **options)


def numbers(vector: Sequence[float]) -> list[float]:
    """Return a vector of any numbers as a list of floats."""
    return [float(number) for number in vector]


def taken(values: dict[str, Any], column: str) -> Any:
    """Remove a column from the values of a row, and return its value.

    Raises:
        InputError: `malformed_candidate` if there is no such column.
    """
    if column not in values:
        raise _no_column(column, values)
    return values.pop(column)


def package(name: str, extra: str) -> Any:
    """Return a package that an extra installs.

    Raises:
        ModelError: `dependency_missing` if it is not installed.
    """
    return installed(name, "this search", extra=extra)


def nothing_to_search_with() -> InputError:
    """Return the error for a search by neither words nor a vector."""
    return InputError("out_of_range", "neither words nor a vector: there is nothing to search with")


def _no_column(column: str, columns: Iterable[str]) -> InputError:
    return InputError(
        "malformed_candidate",
        f"the engine's rows have no {column!r}; their columns: {', '.join(sorted(columns))}",
    )


def _candidate(id: str, row: Row, text: str, title: str | None) -> Candidate:
    values = dict(row.values)
    content = values.pop(text, None)
    if content is not None and not isinstance(content, str):
        raise InputError(
            "malformed_candidate", f"the {text} of {id!r} is {content!r}: it must be text"
        )
    heading = values.pop(title, None) if title else None
    cosine, vector = row.cosine, row.vector
    if cosine is not None:
        # A vector of zeros has no direction; with 32-bit floats a cosine may exceed 1.
        cosine = min(1.0, max(-1.0, cosine)) if math.isfinite(cosine) else None
    return Candidate(
        id=id,
        text=content or "",
        title=str(heading or ""),
        metadata={name: _as_json(value) for name, value in values.items()},
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
