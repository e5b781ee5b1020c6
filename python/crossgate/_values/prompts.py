"""Prompts in their parts: the request, and the material that was pasted with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import crossgate._core as _core
from crossgate._support.checks import MAX_QUERY_CHARACTERS, check_text, collected

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
