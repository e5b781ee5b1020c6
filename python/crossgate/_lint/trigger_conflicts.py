"""Triggers that contradict each other, in one document or between two."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from crossgate._lint.findings import Evidence, Finding, cut
from crossgate._lint.inputs import LintedLibrary
from crossgate._lint.names import DocumentNames
from crossgate._lint.sentences import split_sentences
from crossgate._values.results import Document

SAME = 0.6
"""Two clauses mean the same if they share this part of their terms (Jaccard similarity)."""

_FEWEST = 2
_USES = re.compile(
    r"\b(?:use(?:d)?(?: this(?: skill| tool)?| it)?(?: only)? (?:when(?:ever)?|for|to|if)|"
    r"trigger(?:s| phrases| keywords| words| terms)?(?: include| on| when| for)?\s*:?|"
    r"keywords\s*:|activate (?:when|for|on))",
    re.IGNORECASE,
)
EXCLUDES = re.compile(
    r"\b(?:(?:do not|don['’]t|never) (?:use|trigger|invoke|activate|load)"
    r"(?: this(?: skill| tool)?| it)?(?: for| when(?:ever)?| if| on| to)|"
    r"not (?:meant |intended )?for)\b\s*:?",
    re.IGNORECASE,
)
# LibraryTerms that narrow the exclusion, so that it no longer covers the trigger.
_NARROWED = re.compile(
    r"\b(?:unless|except|without|alone|only|just|merely|general(?:ly)?|generic|other|another|"
    r"outside|simple|beyond|already|non|not|no|from)\b",
    re.IGNORECASE,
)
_ITEM = re.compile(
    r"(?:\.|:)(?=\s|$)|[,;()\[\]\"“”\n]|\s[—–-]\s|—|\b(?:or|nor|and)\b", re.IGNORECASE
)
_CLAUSE = re.compile(r"[;\n]|(?<=[.!?])\s|\)\s*,?")
_SENDS = re.compile(
    r"\b(?:use|see|prefer|load|try|choose|instead|route|defer|switch|hand|go)\b", re.IGNORECASE
)
_CUES = (
    "use used see prefer load try choose instead route defer switch hand go skill skills tool "
    "request requests task those these them this that md for to not do when off out"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """A clause of a document with its terms."""

    field: Literal["text", "body"]
    start: int
    text: str
    terms: frozenset[str]


def contradictions(library: LintedLibrary) -> Iterator[Finding]:
    """Yield triggers that a document excludes, and pairs that send the same task to each other."""
    for document in library.documents.values():
        yield from _within(library, document)
    yield from _between(library)


def _within(library: LintedLibrary, document: Document) -> Iterator[Finding]:
    """Yield the first trigger of a document that the document itself excludes."""
    used, excluded = _uses_and_exclusions(library, document)
    for outside in excluded:
        for inside in used:
            if len(outside.terms) >= _FEWEST and _covers(outside.terms, inside.terms):
                evidence = (
                    _evidence(library, document, inside, "is a trigger"),
                    _evidence(library, document, outside, "is excluded"),
                )
                message = f'{document.id} both lists and excludes "{cut(inside.text, 60)}"'
                advice = "Remove one of the two, or say how they differ."
                yield _finding(document, (), message, evidence, advice)
                return


def _uses_and_exclusions(
    library: LintedLibrary, document: Document
) -> tuple[list[_Part], list[_Part]]:
    used: list[_Part] = []
    excluded: list[_Part] = []
    for start, end in split_sentences(document.text):
        sentence = document.text[start:end]
        without = EXCLUDES.search(sentence)
        stop = start + without.start() if without else end
        opening = _USES.search(document.text, start, stop)
        if opening:
            used += _items(library, document.text, opening.end(), stop)
        if without:
            excluded += _items(library, document.text, start + without.end(), end, narrowed=False)
    return used, excluded


def _items(
    library: LintedLibrary, text: str, start: int, end: int, *, narrowed: bool = True
) -> list[_Part]:
    """Return the items of an enumeration; without `narrowed`, only those that nothing narrows."""
    parts = []
    edges = [(match.start(), match.end()) for match in _ITEM.finditer(text, start, end)]
    for first, last in zip(
        [start, *(b for _, b in edges)], [*(a for a, _ in edges), end], strict=True
    ):
        piece = text[first:last].strip()
        terms = frozenset(library.words.terms(piece))
        if terms and (narrowed or not _NARROWED.search(piece)):
            at = text.index(piece, first)
            parts.append(_Part("text", at, piece, terms))
    return parts


def _between(library: LintedLibrary) -> Iterator[Finding]:
    """Yield the pairs that each send the same task to the other."""
    sends = _sends(library)
    for first, second in combinations(sorted(library.documents), 2):
        for mine in sends.get((first, second), ()):
            for theirs in sends.get((second, first), ()):
                shared = len(mine.terms & theirs.terms)
                if shared < _FEWEST or not _same(mine.terms, theirs.terms):
                    continue
                if not _each_names_its_target(library, first, second, mine, theirs):
                    yield _circle(library, first, second, mine, theirs)
                    break
            else:
                continue
            break


def _each_names_its_target(
    library: LintedLibrary, first: str, second: str, mine: _Part, theirs: _Part
) -> bool:
    """Return whether the clauses differ in words of the names, as two tasks of siblings do."""
    names = [library.words.terms(re.sub(r"[\W_]+", " ", id)) for id in (first, second)]
    own, other = (set(terms) for terms in names)
    return bool(
        (mine.terms - theirs.terms) & (other - own) and (theirs.terms - mine.terms) & (own - other)
    )


def _circle(library: LintedLibrary, first: str, second: str, mine: _Part, theirs: _Part) -> Finding:
    document = library.documents[first]
    evidence = (
        _evidence(library, document, mine, f"sends to {second}"),
        _evidence(library, library.documents[second], theirs, f"sends to {first}"),
    )
    message = f"{first} and {second} each send the same task to the other"
    advice = "Decide which of the two does it, and remove the sentence from that one."
    return _finding(document, (second,), message, evidence, advice)


def _sends(library: LintedLibrary) -> dict[tuple[str, str], list[_Part]]:
    """Return the clauses in which a document (first) says to use another one (second)."""
    names = DocumentNames(library.documents.values())
    cues = library.words.terms(_CUES)
    sends: dict[tuple[str, str], list[_Part]] = {}
    for document in library.documents.values():
        for field in ("text", "body"):
            value: str = getattr(document, field)
            for start, clause in _clauses(value):
                if not _SENDS.search(clause):
                    continue
                for name, target in names.named(clause, document.id):
                    terms = library.words.terms(clause.replace(name, " ")) - cues
                    part = _Part(field, start, clause, frozenset(terms))
                    sends.setdefault((document.id, target), []).append(part)
    return sends


def _clauses(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for end in [*(match.end() for match in _CLAUSE.finditer(text)), len(text)]:
        if text[start:end].strip():
            yield start, text[start:end]
        start = end


def _covers(excluded: frozenset[str], trigger: frozenset[str]) -> bool:
    """Return whether an exclusion covers a trigger of nearly the same terms."""
    return excluded <= trigger and _same(excluded, trigger)


def _same(first: frozenset[str], second: frozenset[str]) -> bool:
    return len(first & second) >= SAME * len(first | second)


def _evidence(library: LintedLibrary, document: Document, part: _Part, note: str) -> Evidence:
    return library.places.at(document, part.field, part.start, f'"{cut(part.text)}" {note}')


def _finding(
    document: Document,
    others: tuple[str, ...],
    message: str,
    evidence: tuple[Evidence, ...],
    advice: str,
) -> Finding:
    return Finding(
        code="contradicting_triggers",
        severity="warning",
        id=document.id,
        others=others,
        file=evidence[0].file,
        line=evidence[0].line,
        message=message,
        evidence=evidence,
        advice=advice,
        hurt=1.0,
    )
