"""Runs all checks on a library and sorts the findings, the worst first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from crossgate._core import Blend
from crossgate._decision.router import DEFAULT_PROFILE
from crossgate._lint.audit import Alarm, Grade, alarms_as_findings, audit, grade_of
from crossgate._lint.library import SEVERITIES, Finding, LibraryTerms, Places
from crossgate._lint.rules import confusions, findings
from crossgate._lint.sentences import LintedLibrary, ask, own_sentences
from crossgate._retrieval.document_index import Index
from crossgate._sources.common import printable
from crossgate._sources.reading import Problem, SourceLocation
from crossgate._support.checks import check_kind
from crossgate._values.profile_files import read_profile
from crossgate._values.results import Document

_ORDER = (
    "hostile_text",
    "source_problem",
    "confusion",
    "shadowed",
    "unfindable",
    "contradicting_triggers",
    "hub",
    "long_description",
    "suspect_text",
)
"""The order of codes within one severity: those that lose more prompts come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The findings for a library.

    Attributes:
        findings: The worst first.
        documents: Number of documents.
        sentences: Number of sentences of the documents that were used as queries.
    """

    findings: tuple[Finding, ...]
    documents: int
    sentences: int


def lint(
    index: Index,
    documents: Iterable[Document] | None = None,
    *,
    places: Mapping[str, SourceLocation] | None = None,
    problems: Sequence[Problem] = (),
    prompts: Mapping[str, Sequence[str]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LintReport:
    """Find problems in a library that hurt routing.

    The same documents give the same findings, whatever their order. The index is not changed.

    Args:
        index: The library.
        documents: The documents that the index was built from, with bodies of any length; None for
            the documents as the index keeps them.
        places: File and line of each document by id, so that a finding can name its line.
        prompts: Labelled prompts, each with the ids of the documents that fit; they measure which
            documents take prompts of others.
        problems: Files that were skipped or renamed when the sources were read.
        progress: Called with the number of texts embedded so far and the total.

    Raises:
        InputError: `no_documents` for an empty index.
        ModelError: If the embedder that made the index cannot be loaded or run.
    """
    check_kind("index", index, Index, "an Index: `crossgate lint FOLDER` makes one")
    if places is not None:
        check_kind("places", places, Mapping, "a mapping of ids to a SourceLocation, or None")
        for place in places.values():
            check_kind("a place", place, SourceLocation, "a SourceLocation")
    if prompts is not None:
        check_kind("prompts", prompts, Mapping, "a mapping of prompts to lists of ids, or None")
        for prompt, ids in prompts.items():
            check_kind(f"the entry of prompt {prompt!r}", ids, Iterable, "a list of ids")
    check_kind("problems", problems, Sequence, "a list of Problem")
    for problem in problems:
        check_kind("a problem", problem, Problem, "a Problem of a reader")
    library = (index.get(id) for id in index.ids) if documents is None else documents
    ordered = sorted(filter(None, library), key=lambda document: document.id)
    with_vectors = [
        replace(document, vector=index._core.vector(document.id)) for document in ordered
    ]
    embedder = index.load_embedder() if index.dimension else None
    language = index._core.language
    private = Index.build(with_vectors, embedder=embedder, language=language)
    words = LibraryTerms(ordered, language)
    sentences = own_sentences(ordered, words)
    answers = ask(with_vectors, sentences, private, words, _blend(index), progress)
    linted = LintedLibrary(
        documents={document.id: document for document in ordered},
        words=words,
        answers=answers,
        places=Places(places or {}),
    )
    listed = [
        *map(_source_problem, problems),
        *confusions(linted, private, prompts or {}, _blend(index)),
        *findings(linted),
        *(found for document in ordered for found in _audited(document, linted.places)[1]),
    ]
    return LintReport(
        findings=tuple(sorted(listed, key=_rank)), documents=len(ordered), sentences=len(sentences)
    )


def audited(
    documents: Iterable[Document],
    places: Mapping[str, SourceLocation],
    unread: Iterable[str] = (),
) -> dict[str, tuple[Grade, list[Finding]]]:
    """Return grade and findings of the audit by id, for documents without an index.

    Args:
        documents: The documents.
        places: File and line of each document by id.
        unread: Paths of further files, which are graded as a whole; the path is the id.
    """
    files = {printable(path): SourceLocation(path) for path in unread}
    located = Places({**places, **files})
    whole = (
        Document(id=id, title=id, text=id, body=text)
        for id, place in files.items()
        if (text := located.text(place.path)) is not None
    )
    results: dict[str, tuple[Grade, list[Finding]]] = {}
    for document in (*documents, *whole):
        alarms, findings = _audited(document, located)
        results[document.id] = grade_of(alarms), findings
    return results


def _audited(document: Document, places: Places) -> tuple[list[Alarm], list[Finding]]:
    """Audit a document, and the front matter of a skill, of which the document is only a part."""
    alarms = audit(document)
    findings = list(alarms_as_findings(document, alarms, places))
    path = places.path(document.id)
    text = places.text(path) if path and os.path.basename(path) == "SKILL.md" else None
    end = text.rfind(document.body) if text and document.body else len(text or "")
    if text and end > 0:
        front = replace(document, text=document.id, body=text[:end])
        texts = {alarm.text for alarm in alarms}
        more = [alarm for alarm in audit(front) if alarm.text not in texts]
        findings += alarms_as_findings(front, more, places)
        alarms += more
    return alarms, findings


def _rank(finding: Finding) -> tuple[int, int, float, str, tuple[str, ...], str, int, str]:
    return (
        SEVERITIES.index(finding.severity),
        _ORDER.index(finding.code),
        -finding.hurt,
        finding.id,
        finding.others,
        # Findings about a document are ordered by its id, never by its file.
        "" if finding.id else finding.file or "",
        0 if finding.id else finding.line or 0,
        finding.message,
    )


def _blend(index: Index) -> Blend:
    """Return the blend that a router without its own profile would use."""
    profile = read_profile(DEFAULT_PROFILE)
    return profile.blend if profile.embedder == index.embedder else Blend()


def _source_problem(problem: Problem) -> Finding:
    return Finding(
        code="source_problem",
        severity="error",
        id="",
        others=(),
        file=problem.path,
        line=problem.line,
        message=problem.reason,
        evidence=(),
        advice="Fix, rename or remove the file: an index has it by another name, or not at all.",
        hurt=1.0,
    )
