"""Descriptions that no prompt could find."""

from __future__ import annotations

from collections.abc import Container, Iterator

from crossgate._lint.findings import Evidence, Finding, Severity, cut
from crossgate._lint.library import Library
from crossgate._types import Document

SHORT = 4
"""Different terms of a description, the words of its title left out, below which it is short."""

ASKED = 4
"""Sentences that a document must have before they are said never to find it."""

HEADS = 2
"""Sentences of its head among these."""

FOUND = 1 / 3
"""Share of its own sentences that brings a document among the first three, more or less; one that
has no more, and that no sentence of its head finds first, cannot be found."""

_PLACES = 3
_EXAMPLES = 2


def unfindable(library: Library, known: Container[str] = ()) -> Iterator[Finding]:
    """Yield the documents whose descriptions say too little, or never what sets them apart.

    Args:
        library: The library.
        known: Documents of which it is known already who wins their sentences.
    """
    for document in library.documents.values():
        yield from _of_one(library, document, document.id in known)


def _of_one(library: Library, document: Document, known: bool) -> Iterator[Finding]:
    terms = library.words.terms(document.text)
    if not document.text.strip() and not document.body:
        return  # a heading alone, which its source keeps for its subheadings
    told = terms - library.words.terms(document.title)
    if len(told) < SHORT:
        message = f"the description of {document.id} says {len(told)} words beyond its name"
        yield _finding(library, document, message, 1 - len(told) / SHORT, severity="warning")
    elif all(map(library.words.is_common, terms)):
        message = f"every word of the description of {document.id} is common in this library"
        yield _finding(library, document, message, 1.0, severity="warning")
    elif not known:
        yield from _never_first(library, document)


def _never_first(library: Library, document: Document) -> Iterator[Finding]:
    answers = library.by_owner[document.id]
    places = [one.place for one in answers]
    heads = [one.place for one in answers if one.sentence.field == "text"]
    if len(answers) < ASKED or len(heads) < HEADS or min(heads) == 1:
        return
    near = sum(place <= _PLACES for place in places)
    if near / len(places) > FOUND:
        return
    message = (
        f"no sentence of the description of {document.id} finds it first, and only {near} of "
        f"its {len(places)} sentences find it among the first {_PLACES}"
    )
    evidence = [
        library.places.evidence(document, one.sentence, f"finds {one.others[0][0]} first")
        for one in sorted(answers, key=lambda one: (one.sentence.field != "text", -one.place))
    ]
    yield _finding(
        library,
        document,
        message,
        1 - near / len(places),
        severity="warning",
        evidence=tuple(evidence[:_EXAMPLES]),
    )


def _finding(
    library: Library,
    document: Document,
    message: str,
    hurt: float,
    *,
    severity: Severity,
    evidence: tuple[Evidence, ...] = (),
) -> Finding:
    places = library.places
    said = places.at(document, "text", 0, f'"{cut(document.text)}"')
    return Finding(
        code="unfindable",
        severity=severity,
        id=document.id,
        others=(),
        file=places.file(document.id),
        line=places.line(document, "text", 0),
        message=message,
        evidence=evidence or (said,),
        advice=(
            "Name in the description the files, tools and tasks that a prompt for it would speak "
            "of, and that no other document names."
        ),
        hurt=hurt,
    )
