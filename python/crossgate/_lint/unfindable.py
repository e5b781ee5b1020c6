"""Finds documents whose descriptions no prompt would match."""

from __future__ import annotations

from collections.abc import Container, Iterator

from crossgate._lint.findings import Evidence, Finding, Severity, cut
from crossgate._lint.inputs import LintedLibrary
from crossgate._support.wording import counted
from crossgate._values.results import Document

SHORT = 4
"""A description with fewer different terms, beyond those of the title, is short."""

ASKED = 4
"""Minimum number of sentences of a document for this check."""

HEADS = 2
"""Minimum number of these sentences in the head."""

FOUND = 1 / 3
"""A document is unfindable if at most this share of its sentences rank it among the first three,
about the rate of chance, and no sentence of its head ranks it first."""

_RANKS = 3
_EXAMPLES = 2


def unfindable(library: LintedLibrary, known: Container[str] = ()) -> Iterator[Finding]:
    """Yield documents whose descriptions are too short or do not differ from the others.

    Args:
        library: The library.
        known: Ids of documents that are already reported as shadowed.
    """
    for document in library.documents.values():
        yield from _check(library, document, document.id in known)


def _check(library: LintedLibrary, document: Document, known: bool) -> Iterator[Finding]:
    terms = library.words.terms(document.text)
    if not document.text.strip() and not document.body:
        return  # a heading that the reader keeps for its subheadings
    beyond = terms - library.words.terms(document.title)
    if len(beyond) < SHORT:
        message = (
            f"the description of {document.id} has {counted(len(beyond), 'word')} beyond its name"
        )
        yield _finding(library, document, message, 1 - len(beyond) / SHORT, severity="warning")
    elif all(map(library.words.is_common, terms)):
        message = f"every word of the description of {document.id} is common in this library"
        yield _finding(library, document, message, 1.0, severity="warning")
    elif not known:
        yield from _never_first(library, document)


def _never_first(library: LintedLibrary, document: Document) -> Iterator[Finding]:
    answers = library.by_owner[document.id]
    ranks = [answer.rank for answer in answers]
    heads = [answer.rank for answer in answers if answer.sentence.field == "text"]
    if len(answers) < ASKED or len(heads) < HEADS or min(heads) == 1:
        return
    near = sum(rank <= _RANKS for rank in ranks)
    if near / len(ranks) > FOUND:
        return
    message = (
        f"no sentence of the description of {document.id} finds it first, and it is found for only "
        f"{near} of its {counted(len(ranks), 'sentence')} among the first {_RANKS}"
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
    library: LintedLibrary,
    document: Document,
    message: str,
    hurt: float,
    *,
    severity: Severity,
    evidence: tuple[Evidence, ...] = (),
) -> Finding:
    places = library.places
    quoted = places.at(document, "text", 0, f'"{cut(document.text)}"')
    return Finding(
        code="unfindable",
        severity=severity,
        id=document.id,
        others=(),
        file=places.file(document.id),
        line=places.line(document, "text", 0),
        message=message,
        evidence=evidence or (quoted,),
        advice=(
            "Name in the description the files, tools and tasks that a prompt for it would "
            "mention, and that no other document names."
        ),
        hurt=hurt,
    )
