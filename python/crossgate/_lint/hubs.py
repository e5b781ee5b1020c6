"""Hubs: documents that come up for queries about other documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from crossgate._lint.findings import Finding
from crossgate._lint.inputs import LintedLibrary
from crossgate._lint.self_retrieval import SentenceResult
from crossgate._support.wording import counted

USUAL = 4.0
"""A hub comes up for at least this many times the usual share of sentences."""

LEAST, MOST = 0.03, 0.5
"""Bounds of the threshold, as shares of the other documents' sentences."""

OWNERS = 3
"""A hub comes up for sentences of at least this many documents."""

SMALL = 12
"""In a library with fewer documents, only rank 1 counts."""

FITS = 0.5
"""A hub must score this share of what the sentence's own whole document scores."""

_EXAMPLES = 3


def hubs(library: LintedLibrary) -> Iterator[Finding]:
    """Yield the documents that come up for far more of the others' sentences than usual."""
    count = len(library.documents)
    ranks = 1 if count < SMALL else 3
    threshold = min(MOST, max(LEAST, USUAL * ranks / count))
    came_up: dict[str, list[SentenceResult]] = defaultdict(list)
    for answer in library.answers:
        least = max(library.floor, FITS * answer.repeated)
        ahead = [id for id, score in answer.others[:ranks] if score >= least]
        for id in ahead[: ranks - (answer.rank <= ranks)]:
            came_up[id].append(answer)
    for id, answers in came_up.items():
        asked = len(library.answers) - len(library.by_owner[id])
        owners = {answer.sentence.id for answer in answers}
        share = len(answers) / asked
        if share >= threshold and len(owners) >= OWNERS:
            yield _finding(library, id, answers, share, threshold, ranks)


def _finding(
    library: LintedLibrary,
    id: str,
    answers: list[SentenceResult],
    share: float,
    threshold: float,
    ranks: int,
) -> Finding:
    owners = sorted({answer.sentence.id for answer in answers})
    where = "first" if ranks == 1 else f"among the first {ranks}"
    # One example per owner.
    first = {answer.sentence.id: answer for answer in reversed(answers)}
    return Finding(
        code="hub",
        severity="warning",
        id=id,
        others=tuple(owners),
        file=library.places.file(id),
        line=library.places.line(library.documents[id], "text", 0),
        message=(
            f"{id} is {where} for {share:.0%} of all other sentences, from "
            f"{counted(len(owners), 'document')}; the limit is {threshold:.0%}"
        ),
        evidence=tuple(
            library.places.evidence(library.documents[owner], first[owner].sentence, f"({owner})")
            for owner in owners[:_EXAMPLES]
        ),
        advice=(
            "Remove words from the description that others share, and say what only this one is "
            "for."
        ),
        hurt=share,
    )
