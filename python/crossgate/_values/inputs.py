"""The inputs of a decision: candidates of another retriever, and prompts with pasted material."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any

import crossgate._core as _core
from crossgate._support.checks import MAX_QUERY_CHARACTERS, check_text, collected, safe_repr, scalar
from crossgate._support.errors import InputError
from crossgate._support.wording import type_of
from crossgate._values.results import Candidate, Document

# Retrievers with 32-bit floats report the cosine of a text with itself as 1.0000001.
_MOST_COSINE = 1 + 1e-5
_MOST_FLOAT = sys.float_info.max

# Accepted field names, in order of precedence; the first that is not empty counts.
ID_FIELDS = ("_id", "id")
TITLE_FIELDS = ("title", "name")
HINT_FIELDS = ("triggers", "examples", "counterexamples")
TEXT_FIELDS = ("text", "description", "content", "page_content")


def candidate(position: int, given: object, what: str = "") -> Candidate:
    """Convert a caller's value to a candidate.

    Args:
        position: Position from 0, used as the id of a candidate without one.
        given: A text, a `Candidate`, a `Document`, or a mapping with the fields of a `Candidate`,
            under the names above.
        what: Name of the value in errors; by default `candidate` and the position.

    Raises:
        InputError: `malformed_candidate`, naming the position and the field.
    """
    what = what or f"candidate {position}"
    if isinstance(given, str):
        return Candidate(id=str(position), text=given)
    if isinstance(given, Candidate):
        cosine, score = _numbers(what, given.cosine, given.score)
        return replace(given, cosine=cosine, score=score)
    if isinstance(given, Document):
        return Candidate(**{field.name: getattr(given, field.name) for field in fields(given)})
    if not isinstance(given, Mapping):
        raise InputError(
            "malformed_candidate",
            f"{what} must be a string, a mapping or a Document, not {type_of(given)}",
        )
    row = dict(given)
    ids = [id for id in (row.pop(field, None) for field in ID_FIELDS) if id is not None]
    if not any(field in given for field in (*TEXT_FIELDS, *TITLE_FIELDS, "body")):
        there = ", ".join(map(str, given)) or "none"
        raise InputError(
            "malformed_candidate",
            f"{what} has no text: it is read from {', '.join(TEXT_FIELDS)}; its fields are {there}",
        )
    title, text, body = (
        _text(what, row, fields) for fields in (TITLE_FIELDS, TEXT_FIELDS, ("body",))
    )
    metadata = row.pop("metadata", None) or {}
    if not isinstance(metadata, Mapping):
        raise InputError(
            "malformed_candidate",
            f"the metadata of {what} must be a mapping, not {type_of(metadata)}",
        )
    vector = row.pop("vector", None)
    triggers, examples, counterexamples = (taken_texts(row, name) for name in HINT_FIELDS)
    cosine, score = _numbers(what, row.pop("cosine", None), row.pop("score", None))
    return Candidate(
        id=str(ids[0] if ids else position),
        title=title,
        text=text,
        body=body,
        metadata={**row, **metadata},
        vector=vector,
        triggers=triggers,
        examples=examples,
        counterexamples=counterexamples,
        cosine=cosine,
        score=score,
    )


def taken_texts(row: dict[str, Any], name: str) -> tuple[str, ...]:
    """Remove and return a list of texts; a field of another type stays, as metadata."""
    value = row.get(name)
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        return ()
    del row[name]
    return tuple(value)


def _text(what: str, row: dict[str, Any], names: Iterable[str]) -> str:
    """Remove and return the first field that is not empty, or an empty text."""
    for name in names:
        value = row.pop(name, None)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise InputError(
                "malformed_candidate",
                f"the {name} of {what} must be a string, not {type_of(value)}",
            )
        return value
    return ""


def _numbers(what: str, cosine: Any, score: Any) -> tuple[float | None, float | None]:
    """Return cosine and score as floats."""
    limits = f"the cosine of {what}", "a number between -1 and 1"
    checked = _number(*limits, cosine, _MOST_COSINE)
    if checked is not None:
        checked = min(1.0, max(-1.0, checked))
    return checked, _number(f"the score of {what}", "a finite number", score, _MOST_FLOAT)


def _number(name: str, limits: str, value: Any, most: float) -> float | None:
    if value is None:
        return None
    given = scalar(value)
    number = isinstance(given, Real) and not isinstance(given, bool)
    # The comparison rejects NaN, and integers and fractions that no float can represent.
    if not (number and -most <= given <= most):
        raise InputError(
            "malformed_candidate", f"{name} is {safe_repr(value)}: it must be {limits}"
        )
    return float(given)


def check_kept_scores(candidates: Iterable[Candidate]) -> None:
    """Check that every candidate has a score that can serve as the blend.

    Raises:
        InputError: `malformed_candidate` for a score that is missing or outside of [0, 1].
    """
    for given in candidates:
        if given.score is None or not 0 <= given.score <= 1:
            raise InputError(
                "malformed_candidate",
                f"the score of candidate {given.id!r} is {given.score}: with keep_scores each must "
                "be between 0 and 1",
            )


Material = str | Iterable[str]

GIVEN = "given"
"""The kind of material that the caller passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt in its parts.

    The request decides which documents fit. For a request that names nothing ("fix
    this"), the whole prompt is searched, and the request alone decides whether any document is
    needed. A remark ("thanks, that works now") is searched alone.

    Attributes:
        text: The prompt as the caller passed it.
        request: The prompt without pasted material.
        searched: The text that both stages read.
        spans: Start and end of the parts of the request in `text`, in characters.
        material: Kind, start and end of each piece of material, in characters; start and end are
            None for material that the caller passed.
    """

    text: str
    request: str
    searched: str
    spans: tuple[tuple[int, int], ...]
    material: tuple[tuple[str, int | None, int | None], ...] = field(default=())

    def to_trace(self) -> dict[str, Any]:
        """Return places and kinds as JSON values, without any text."""
        return {
            "request": [list(span) for span in self.spans],
            "material": [
                {"kind": kind, "start": start, "end": end} for kind, start, end in self.material
            ],
            "searched": "request" if self.searched == self.request and self.spans else "prompt",
        }


def unsplit(text: str) -> Prompt:
    """Return a prompt in which pasted material is not recognised."""
    return Prompt(text=text, request=text, searched=text, spans=((0, len(text)),))


def read_prompt(text: str, material: Material | None = None) -> Prompt:
    """Split a prompt, unless the caller passes the material.

    Args:
        text: The prompt, already checked.
        material: Pasted texts that belong to the prompt; None to recognise them in the prompt.

    Raises:
        InputError: `invalid_text` or `out_of_range` for material that is not text.
    """
    if material is None:
        split = _core.split(text)
        empty = not any(letter.isalnum() for letter in split.request)
        stands_alone = split.names_something or _core.is_courtesy(split.request)
        return Prompt(
            text=text,
            request=text if empty else split.request,
            searched=split.request if stands_alone else text,
            spans=tuple((span.start, span.end) for span in split.spans),
            material=tuple(
                (piece.kind, piece.span.start, piece.span.end) for piece in split.material
            ),
        )
    given = [material] if isinstance(material, str) else collected("material", material)
    for piece in given:
        check_text("a text in material", piece)
    stands_alone = _core.names_something(text) or _core.is_courtesy(text)
    searched = text if stands_alone else "\n\n".join([text, *given])[:MAX_QUERY_CHARACTERS]
    return Prompt(
        text=text,
        request=text,
        searched=searched,
        spans=((0, len(text)),),
        material=tuple((GIVEN, None, None) for _ in given),
    )
