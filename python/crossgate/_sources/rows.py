"""JSON rows: documents of a corpus, and candidates of another retriever."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, cast

from crossgate._sources.common import Unusable, is_unicode, place_of
from crossgate._support.errors import InputError
from crossgate._values.inputs import ID_FIELDS, TEXT_FIELDS, TITLE_FIELDS, candidate
from crossgate._values.results import Candidate, Document


def read_candidates(lines: Iterable[str], *, name: str) -> tuple[Candidate, ...]:
    """Read the candidates of another retriever: one JSON value per line, or one JSON array.

    A candidate is a string, or an object with the fields that `rerank` accepts. Without an id, its
    position is its id, from 0. Blank lines are skipped; an empty text is not an error.

    Args:
        lines: The lines of the file.
        name: Name of the file for messages.

    Raises:
        InputError: `malformed_candidate`, naming the line. Malformed candidates are never skipped,
            since a silently lost candidate is worse than an error.
    """
    candidates: list[Candidate] = []
    for place, value in _values(lines, name):
        candidates.append(candidate(len(candidates), value, place))
        try:
            _check_json(value)
        except Unusable as error:
            raise InputError("malformed_candidate", f"{place}: {error}") from None
    return tuple(candidates)


def document_from(row: object, unnamed: str) -> Document:
    """Turn one JSON object into a document; `unnamed` is the id of a row without one."""
    if not isinstance(row, dict):
        raise Unusable(f"must be a JSON object, not {_json_type(row)}")
    identity = _take(row, *ID_FIELDS) or unnamed
    text = _take(row, *TEXT_FIELDS)
    title = _take(row, *TITLE_FIELDS)
    body = _take(row, "body")
    vector = _vector(row.pop("vector", None))
    metadata = row.pop("metadata", None)
    if metadata is not None and not isinstance(metadata, dict):
        raise Unusable(f"the metadata must be an object, not {_json_type(metadata)}")
    row |= metadata or {}
    if not f"{title}{text}".strip():
        raise Unusable("has neither text nor title")
    _check_json([identity, text, title, body, row])
    return Document(id=identity, text=text, title=title, body=body, metadata=row, vector=vector)


def _check_json(value: object) -> None:
    """Check that a value can be written as JSON again."""
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise Unusable("a number that is too large, or nested too deeply") from None
    if not is_unicode(written):
        raise Unusable("has a lone surrogate, half of an escaped character")


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


def _values(lines: Iterable[str], name: str) -> Iterator[tuple[str, object]]:
    """Yield label and value of each line, or of each item of a JSON array."""
    rows = [line.strip("\ufeff \t\r\n") for line in lines]
    if next(filter(None, rows), "").startswith("["):
        try:
            items = parse_json("\n".join(rows))
        except Unusable as error:
            place = place_of(name, error.line)
            raise InputError("malformed_candidate", f"{place}: {error}") from None
        for number, item in enumerate(cast("list[object]", items), 1):
            yield f"{name}: item {number}", item
        return
    for number, row in enumerate(rows, 1):
        place = f"{name}:{number}"
        if row:
            try:
                yield place, parse_json(row)
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
