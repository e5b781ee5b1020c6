"""Hints of documents: triggers and examples, in the form that the core stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from crossgate._support.checks import check_text, safe_repr
from crossgate._support.errors import InputError
from crossgate._values.results import Document, Vector

if TYPE_CHECKING:
    import crossgate._core as _core

_HINTS = ("triggers", "examples", "counterexamples")

HintTexts = tuple[list[str], list[str]]
HintVectors = tuple[list[Vector], list[Vector]]
NO_VECTORS: HintVectors = ([], [])


def check_hints(document: Document, owner: str) -> None:
    """Check that the hints of a document are collections of texts.

    Raises:
        InputError: `malformed_candidate` for another type, `invalid_text` for a text that is none.
    """
    for name in _HINTS:
        hints = getattr(document, name)
        if isinstance(hints, str) or not isinstance(hints, tuple | list):
            raise InputError(
                "malformed_candidate",
                f"the {name} of {owner} are {safe_repr(hints)}: pass a tuple of texts",
            )
        for hint in hints:
            check_text(f"one of the {name} of {owner}", hint)
    if not isinstance(document.is_description, bool | None):
        raise InputError(
            "malformed_candidate",
            f"is_description of {owner} is {safe_repr(document.is_description)}: pass True, False "
            "or None",
        )


def hint_row(document: Document, vectors: HintVectors) -> _core._HintRow:
    """Return the hints of a document for the core."""
    texts = [list(getattr(document, name)) for name in _HINTS]
    return document.is_read_as_description(), texts, list(vectors)


def hint_texts(document: Document) -> HintTexts:
    """Return the texts that are embedded: examples and counterexamples."""
    return list(document.examples), list(document.counterexamples)


def embedded_hints(
    documents: Iterable[Document], embed: Callable[[Sequence[str]], Sequence[Vector]]
) -> dict[str, HintVectors]:
    """Return the vectors of the hints of each document that has any, by id."""
    texts = {document.id: hint_texts(document) for document in documents}
    texts = {id: lists for id, lists in texts.items() if any(lists)}
    flat = [text for lists in texts.values() for text in _flat(lists)]
    if not flat:
        return {}
    vectors = iter(embed(flat))
    return {
        id: (list(islice(vectors, len(lists[0]))), list(islice(vectors, len(lists[1]))))
        for id, lists in texts.items()
    }


def _flat(lists: HintTexts) -> Iterator[str]:
    for texts in lists:
        yield from texts


def without_known(
    documents: Iterable[Document], known: Mapping[str, HintVectors]
) -> list[Document]:
    """Return the documents whose hints have no vectors yet."""
    return [document for document in documents if document.id not in known]
