"""Documents that no prompt could find by their descriptions."""

from __future__ import annotations

from collections.abc import Container, Iterator

from crossgate._lint.findings import Evidence, Finding, Severity, cut
from crossgate._lint.inputs import Library
from crossgate._values.results import Document

SHORT = 4
"""A description with fewer different terms, beyond those of the title, is short."""

ASKED = 4
"""A document needs at least this many sentences before they can be said never to find it."""

HEADS = 2
"""How many of these must be in its head."""

FOUND = 1 / 3
"""A document cannot be found if at most this share of its sentences rank it among the first three,
about as many as by chance, and no sentence of its head ranks it first."""

_RANKS = 3
_EXAMPLES = 2


def unfindable(library: Library, known: Container[str] = ()) -> Iterator[Finding]:
    """Yield the documents whose descriptions say too little, or nothing that sets them apart.

    Args:
        library: The library.
        known: Ids of documents that are already reported as shadowed.
    """
    for document in library.documents.values():
        yield from _of_one(library, document, document.id in known)


def _of_one(library: Library, document: Document, known: bool) -> Iterator[Finding]:
    terms = library.words.terms(document.text)
    if not document.text.strip() and not document.body:
        return  # a heading alone, which its source keeps for its subheadings
    told = terms - library.words.terms(document.title)
    if len(told) < SHORT:
        message = f"the description of {document.id} has {len(told)} words beyond its name"
        yield _finding(library, document, message, 1 - len(told) / SHORT, severity="warning")
    elif all(map(library.words.is_common, terms)):
        message = f"every word of the description of {document.id} is common in this library"
        yield _finding(library, document, message, 1.0, severity="warning")
    elif not known:
        yield from _never_first(library, document)


def _never_first(library: Library, document: Document) -> Iterator[Finding]:
    answers = library.by_owner[document.id]
    ranks = [answer.rank for answer in answers]
    heads = [answer.rank for answer in answers if answer.sentence.field == "text"]
    if len(answers) < ASKED or len(heads) < HEADS or min(heads) == 1:
        return
    near = sum(rank <= _RANKS for rank in ranks)
    if near / len(ranks) > FOUND:
        return
    message = (
        f"no sentence of the description of {document.id} finds it first, and only {near} of "
        f"its {len(ranks)} sentences find it among the first {_RANKS}"
    )
    answers = sorted(answers, key=lambda answer: (answer.sentence.field != "text", -answer.rank))
    evidence = [
        library.places.evidence(document, answer.sentence, f"finds {answer.others[0][0]} first")
        for answer in answers
    ]
    yield _finding(
        library,
        document,
        message,
        1 - near / len(ranks),
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
            "Name in the description the files, tools and tasks that a prompt for it would "
            "mention, and that no other document names."
        ),
        hurt=hurt,
    )
