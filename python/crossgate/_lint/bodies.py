"""Bodies that the head does not announce."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from math import log

from crossgate._lint.findings import Finding
from crossgate._lint.library import Library
from crossgate._passages import BODY_CHARS, fenced
from crossgate._types import Document

LINES = 3
"""Lines of the body that a term stands on, at least."""

RARE = 0.02
"""Share of the documents that may have a term which sets one of them apart; at least one may."""

TERMS = 3
"""Such terms from which on a body is not announced."""

HEADINGS = 2
"""How many of these stand in a heading: a section is about them, they do not just come up."""

_NAMED = 5
_LINES_NAMED = 3
# Code, addresses and paths are looked up, not asked for.
_ASIDE = re.compile(r"`[^`\n]*`|\S*[/\\<>{}=|]\S*|\S*\w[._]\w\S*")
_WORD = re.compile(r"[^\W\d_][\w'-]{3,}")


def bodies(library: Library) -> Iterator[Finding]:
    """Yield the documents whose body is about what their head never mentions."""
    for document in library.documents.values():
        found = _unannounced(library, document)
        titled = sum(any(_is_heading(document.body, one) for one in at) for at in found.values())
        if len(found) >= TERMS and titled >= HEADINGS:
            yield _finding(library, document, found)


def _unannounced(library: Library, document: Document) -> dict[str, list[int]]:
    """Return the words that the head lacks, the weightiest first, with where they stand."""
    if not document.body:
        return {}
    words = library.words
    head = words.terms(document.content)
    limit = max(1.0, RARE * words.count)
    starts: dict[str, list[int]] = defaultdict(list)
    surfaces: dict[str, str] = {}
    for start, line in _prose(document.body):
        for word in _WORD.finditer(_ASIDE.sub(lambda found: " " * len(found[0]), line)):
            terms = words.all_terms(word[0])
            # A word of several terms is a name; its parts are words of their own.
            if len(terms) == 1 and terms[0] not in head:
                surfaces.setdefault(terms[0], word[0].lower())
                at = starts[terms[0]]
                if not at or at[-1] < start:
                    at.append(start + word.start())
    weights = {
        term: len(at) * log(1 + words.count / words.in_documents[term])
        for term, at in starts.items()
        # None has it where the analysis cuts the whole text otherwise than the word alone.
        if len(at) >= LINES and 0 < words.in_documents[term] <= limit
    }
    order = sorted(weights, key=lambda term: (-weights[term], term))
    return {surfaces[term]: starts[term] for term in order}


def _is_heading(body: str, at: int) -> bool:
    """Return whether a character stands in a heading."""
    return body[body.rfind("\n", 0, at) + 1 : at].lstrip(" ").startswith("#")


def _prose(body: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside of code with where they start."""
    start = 0
    for fence, line in fenced(body):
        if not fence:
            yield start, line
        start += len(line)


def _finding(library: Library, document: Document, found: dict[str, list[int]]) -> Finding:
    places = library.places
    unread = [word for word, at in found.items() if at[0] >= BODY_CHARS]
    named = dict(list(found.items())[:_NAMED])
    evidence = []
    for word, at in named.items():
        lines = [places.line(document, "body", one) for one in at[:_LINES_NAMED]]
        text = f"{word}: {len(at)} lines"
        if None not in lines:
            text += f" ({', '.join(map(str, lines))}{', ...' if len(at) > _LINES_NAMED else ''})"
        evidence.append(places.at(document, "body", at[0], text))
    message = (
        f"the description of {document.id} does not mention {', '.join(named)}, "
        "which its body is about"
    )
    if unread:
        message += f"; {len(unread)} of these stand only where no search reads, " + (
            f"behind character {BODY_CHARS:,}"
        )
    return Finding(
        code="unannounced_body",
        severity="warning" if len(unread) >= TERMS else "info",
        id=document.id,
        others=(),
        file=places.file(document.id),
        line=evidence[0].line,
        message=message,
        evidence=tuple(evidence),
        advice=(
            "Say in the description what these parts are for, or move them to a document of "
            "their own."
        ),
        hurt=min(1.0, sum(map(len, found.values())) / 100),
    )
