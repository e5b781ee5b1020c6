"""All checks of a library, and what they found, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from crossgate._checks import check_kind
from crossgate._core import Blend
from crossgate._index import Index
from crossgate._lint.answers import ask
from crossgate._lint.bodies import bodies
from crossgate._lint.findings import SEVERITIES, Finding
from crossgate._lint.hubs import hubs
from crossgate._lint.library import Library
from crossgate._lint.places import Places
from crossgate._lint.sentences import own_sentences
from crossgate._lint.shadows import shadows
from crossgate._lint.triggers import contradictions
from crossgate._lint.unfindable import unfindable
from crossgate._lint.words import Words
from crossgate._profile import read_profile
from crossgate._router import DEFAULT_PROFILE
from crossgate._sources import Place, Problem
from crossgate._types import Document

_ORDER = (
    "source_problem",
    "shadowed",
    "unfindable",
    "contradicting_triggers",
    "hub",
    "unannounced_body",
)
"""Codes of one severity, those first that lose more prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found in a library.

    Attributes:
        findings: The worst first.
        documents: How many documents were read.
        sentences: How many of their own sentences were asked.
    """

    findings: tuple[Finding, ...]
    documents: int
    sentences: int


def lint(
    index: Index,
    documents: Iterable[Document] | None = None,
    *,
    places: Mapping[str, Place] | None = None,
    problems: Sequence[Problem] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Find what hurts routing in a library.

    The same documents give the same findings, whatever their order. The index is not changed.

    Args:
        index: The library.
        documents: What the index was made of, with bodies of any length; None for what the index
            keeps of them.
        places: Where each document stands, by id, so that a finding can name its line.
        problems: What the reader of the sources skipped or renamed.
        progress: Called with the number of texts embedded so far and the total.

    Raises:
        InputError: `no_documents` for an empty index.
        ModelError: If the embedder that made the index cannot be loaded or run.
    """
    check_kind("index", index, Index, "an Index: `crossgate lint FOLDER` makes one")
    if places is not None:
        check_kind("places", places, Mapping, "a mapping of ids to a Place, or None")
        for place in places.values():
            check_kind("a place", place, Place, "a Place")
    check_kind("problems", problems, Sequence, "a list of Problem")
    for problem in problems:
        check_kind("a problem", problem, Problem, "a Problem of a reader")
    given = [index.get(id) for id in index.ids] if documents is None else documents
    ordered = sorted((one for one in given if one is not None), key=lambda one: one.id)
    with_vectors = [replace(one, vector=index._core.vector(one.id)) for one in ordered]
    embedder = index.load_embedder() if index.dimension else None
    language = index._core.language
    private = Index.build(with_vectors, embedder=embedder, language=language)
    words = Words(ordered, language)
    sentences = own_sentences(ordered, words)
    answers = ask(with_vectors, sentences, private, words, _blend(index), progress)
    library = Library(
        documents={one.id: one for one in ordered},
        words=words,
        answers=answers,
        places=Places(places or {}),
    )
    found = sorted([*map(_source_problem, problems), *_all(library)], key=_rank)
    return Report(findings=tuple(found), documents=len(ordered), sentences=len(sentences))


def _all(library: Library) -> Iterator[Finding]:
    pairs = list(shadows(library))
    yield from pairs
    yield from unfindable(library, {one.id for one in pairs})
    for check in (contradictions, hubs, bodies):
        yield from check(library)


def _rank(finding: Finding) -> tuple[int, int, float, str, tuple[str, ...], str, int, str]:
    return (
        SEVERITIES.index(finding.severity),
        _ORDER.index(finding.code),
        -finding.hurt,
        finding.id,
        finding.others,
        # Files have no say in the order of documents, which have an id.
        "" if finding.id else finding.file or "",
        0 if finding.id else finding.line or 0,
        finding.message,
    )


def _blend(index: Index) -> Blend:
    """Return the blend that a router with no profile of its own would score by."""
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
        advice="Mend, rename or remove the file: an index has it by another name, or not at all.",
        hurt=1.0,
    )
