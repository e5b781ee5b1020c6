"""Bodies on topics that the description does not mention."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from math import log

from crossgate._lint.findings import Finding
from crossgate._lint.inputs import LintedLibrary
from crossgate._retrieval.passages import BODY_CHARS, fenced
from crossgate._support.wording import counted, noun_for
from crossgate._values.results import Document

LINES = 4
"""Minimum number of lines of the body that a term is on."""

RARE = 0.02
"""A distinctive term is in at most this share of the documents, or in one."""

TERMS = 3
"""A body with at least this many such terms that the head lacks is reported."""

HEADINGS = 2
"""Minimum number of these terms in headings, as evidence of a section on the topic."""

_NAMED = 5
_LINES_NAMED = 3
# Prompts rarely contain code, URLs or paths.
_ASIDE = re.compile(r"`[^`\n]*`|\S*[/\\<>{}=|]\S*|\S*\w[._]\w\S*")
_WORD = re.compile(r"[^\W\d_][\w'-]{3,}")


def bodies(library: LintedLibrary) -> Iterator[Finding]:
    """Yield documents whose body has topics that the head never mentions."""
    for document in library.documents.values():
        unannounced = _unannounced(library, document)
        titled = sum(
            any(_is_heading(document.body, start) for start in starts)
            for starts in unannounced.values()
        )
        if len(unannounced) >= TERMS and titled >= HEADINGS:
            yield _finding(library, document, unannounced)


def _unannounced(library: LintedLibrary, document: Document) -> dict[str, list[int]]:
    """Return the words that the head lacks, by descending weight, with their offsets."""
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
            # A word that is analysed into several terms is a name; its parts count on their own.
            if len(terms) == 1 and terms[0] not in head:
                surfaces.setdefault(terms[0], word[0].lower())
                at = starts[terms[0]]
                if not at or at[-1] < start:
                    at.append(start + word.start())
    weights = {
        term: len(at) * log(1 + words.count / words.in_documents[term])
        for term, at in starts.items()
        # 0 if the analysis splits the word differently within the text.
        if len(at) >= LINES and 0 < words.in_documents[term] <= limit
    }
    order = sorted(weights, key=lambda term: (-weights[term], term))
    return {surfaces[term]: starts[term] for term in order}


def _is_heading(body: str, at: int) -> bool:
    """Return whether the character at an offset is in a heading."""
    return body[body.rfind("\n", 0, at) + 1 : at].lstrip(" ").startswith("#")


def _prose(body: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside code blocks, each with its offset."""
    start = 0
    for fence, line in fenced(body):
        if not fence:
            yield start, line
        start += len(line)


def _finding(
    library: LintedLibrary, document: Document, unannounced: dict[str, list[int]]
) -> Finding:
    places = library.places
    unread = [word for word, starts in unannounced.items() if starts[0] >= BODY_CHARS]
    named = dict(list(unannounced.items())[:_NAMED])
    evidence = []
    for word, starts in named.items():
        lines = [places.line(document, "body", start) for start in starts[:_LINES_NAMED]]
        text = f"{word}: {counted(len(starts), 'line')}"
        if None not in lines:
            more = ", ..." if len(starts) > _LINES_NAMED else ""
            text += f" ({', '.join(map(str, lines))}{more})"
        evidence.append(places.at(document, "body", starts[0], text))
    message = (
        f"the description of {document.id} does not mention {', '.join(named)}, "
        "which its body is about"
    )
    if unread:
        message += (
            f"; {len(unread)} of these {noun_for(len(unread), 'comes', 'come')} only after "
            f"character {BODY_CHARS:,}, " + ("which no search reads")
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
            "Say in the description what these parts are for, or move them to a separate document."
        ),
        hurt=min(1.0, sum(map(len, unannounced.values())) / 100),
    )
