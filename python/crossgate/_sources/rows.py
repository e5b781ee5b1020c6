"""JSON rows: documents of a corpus, and candidates of another retriever."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, cast

from crossgate._sources.common import Unusable, is_unicode, place_of
from crossgate._support.checks import safe_repr
from crossgate._support.errors import InputError
from crossgate._values.inputs import (
    HINT_FIELDS,
    ID_FIELDS,
    TEXT_FIELDS,
    TITLE_FIELDS,
    taken_texts,
)
from crossgate._values.results import Candidate, Document

# Retrievers with 32-bit floats report the cosine of a text with itself as 1.0000001.
_COSINE_SLACK = 1e-5


def read_candidates(lines: Iterable[str], *, name: str) -> tuple[Candidate, ...]:
    """Read the candidates of another retriever: one JSON value per line, or one JSON array.

    A candidate is a string, or an object with the fields that `rerank` accepts. Without an id, its
    position is its id, from 0. Blank lines are skipped; an empty text is not an error.

    Args:
        lines: The lines of the file.
        name: Name of the file for messages.

    Raises:
        InputError: `malformed_candidate` or `duplicate_id`, naming the line. Malformed candidates
            are never skipped, since a silently lost candidate is worse than an error.
    """
    places: dict[str, str] = {}
    candidates: list[Candidate] = []
    for place, _, value in _values(lines, name):
        try:
            candidate = candidate_from(value, str(len(candidates)))
        except Unusable as error:
            raise InputError("malformed_candidate", f"{place}: {error}") from None
        if candidate.id in places:
            message = f"{place}: the id {candidate.id!r} is already at {places[candidate.id]}"
            raise InputError("duplicate_id", message)
        places[candidate.id] = place
        candidates.append(candidate)
    return tuple(candidates)


def candidate_from(value: object, unnamed: str) -> Candidate:
    """Turn one JSON value into a candidate; `unnamed` is its id if it has none."""
    row = {"text": value} if isinstance(value, str) else value
    scores: dict[str, float | None] = {"cosine": None, "score": None}
    hints: dict[str, Any] = {}
    if isinstance(row, dict):
        hints = {name: taken_texts(row, name) for name in HINT_FIELDS}
        scores = {key: _number(key, row.pop(key, None)) for key in scores}
    cosine = scores["cosine"]
    if cosine is not None:
        if abs(cosine) > 1 + _COSINE_SLACK:
            raise Unusable(f"the cosine must be between -1 and 1, not {cosine}")
        scores["cosine"] = min(1.0, max(-1.0, cosine))
    document = document_from(row, unnamed, empty=True)
    return Candidate(
        id=document.id,
        text=document.text,
        title=document.title,
        body=document.body,
        metadata=document.metadata,
        vector=document.vector,
        cosine=scores["cosine"],
        score=scores["score"],
        **hints,
    )


def document_from(row: object, unnamed: str, *, empty: bool = False) -> Document:
    """Turn one JSON object into a document.

    Args:
        row: The JSON value.
        unnamed: The id of a row without one.
        empty: Whether the text may be empty; the row must then have a field for it.
    """
    if not isinstance(row, dict):
        raise Unusable(f"must be a JSON object, not {_json_type(row)}")
    has_field = any(key in row for key in (*TEXT_FIELDS, *TITLE_FIELDS, "body"))
    identity = _take(row, *ID_FIELDS) or unnamed
    text = _take(row, *TEXT_FIELDS)
    title = _take(row, *TITLE_FIELDS)
    body = _take(row, "body")
    vector = _vector(row.pop("vector", None))
    metadata = row.pop("metadata", None)
    if metadata is not None and not isinstance(metadata, dict):
        raise Unusable(f"the metadata must be an object, not {_json_type(metadata)}")
    row |= metadata or {}
    if not f"{title}{text}".strip() and not (empty and has_field):
        raise Unusable("has neither text nor title")
    try:
        written = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        reason = "the metadata has a number that is too large, or is nested too deeply"
        raise Unusable(reason) from None
    if not is_unicode(identity + text + title + body + written):
        raise Unusable("has a lone surrogate, half of an escaped character")
    return Document(id=identity, text=text, title=title, body=body, metadata=row, vector=vector)


def _take(row: dict[str, Any], *keys: str) -> str:
    """Remove the first of `keys` that is not empty and return its value, or an empty string."""
    for key in keys:
        value = row.pop(key, None)
        if value is None or value == "":
            continue
        if key.endswith("id") and isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            raise Unusable(f"the {key} must be a string, not {_json_type(value)}")
        return value
    return ""


def _number(key: str, value: object) -> float | None:
    """Return an optional number as a finite float."""
    numbers = None if value is None else _finite([value])
    if numbers is None and value is not None:
        raise Unusable(f"the {key} is {safe_repr(value)}: it must be a finite number")
    return numbers[0] if numbers else None


def _vector(value: object) -> tuple[float, ...] | None:
    """Return an optional vector as finite floats."""
    numbers = _finite(value) if isinstance(value, list) else None
    if value is not None and not numbers:
        raise Unusable("the vector must be a list of finite numbers")
    return numbers


def _finite(values: list[Any]) -> tuple[float, ...] | None:
    """Return numbers as floats, or None if one is not a finite number."""
    if not {type(value) for value in values} <= {int, float}:
        return None
    try:
        numbers = tuple(map(float, values))
    except OverflowError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def _values(lines: Iterable[str], name: str) -> Iterator[tuple[str, int, object]]:
    """Yield label, number and value of each line, or of each item of a JSON array."""
    rows = [line.strip("\ufeff \t\r\n") for line in lines]
    if next(filter(None, rows), "").startswith("["):
        try:
            items = parse_json("\n".join(rows))
        except Unusable as error:
            place = place_of(name, error.line)
            raise InputError("malformed_candidate", f"{place}: {error}") from None
        for number, item in enumerate(cast("list[object]", items), 1):
            yield f"{name}: item {number}", number, item
        return
    for number, row in enumerate(rows, 1):
        place = f"{name}:{number}"
        if row:
            try:
                yield place, number, parse_json(row)
            except Unusable as error:
                raise InputError("malformed_candidate", f"{place}: {error}") from None


def parse_json(text: str) -> object:
    """Parse JSON, without the `NaN` and `Infinity` that Python adds to it."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise Unusable(f"not JSON: {error.msg} at column {error.colno}", error.lineno) from None
    except ValueError:
        raise Unusable("a number with too many digits") from None
    except RecursionError:
        raise Unusable("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise Unusable(f"{name} is not a JSON number")


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
