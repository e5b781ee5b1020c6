"""Documents that come up whatever is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from crossgate._lint.answers import Answer
from crossgate._lint.findings import Finding
from crossgate._lint.library import Library

USUAL = 4.0
"""Times the usual share from which on a document is a hub."""

LEAST, MOST = 0.03, 0.5
"""The threshold is at least and at most this share of everybody else's sentences."""

OWNERS = 3
"""Documents whose sentences a hub comes up for, at least."""

SMALL = 12
"""Documents of a library below which only the first place counts: three of a few are usual."""

FITS = 0.5
"""Share of the score of a sentence's own document, the sentence in it, that coming up takes."""

_EXAMPLES = 3


def hubs(library: Library) -> Iterator[Finding]:
    """Yield the documents that come up for far more of the others' sentences than usual."""
    count = len(library.documents)
    places = 1 if count < SMALL else 3
    threshold = min(MOST, max(LEAST, USUAL * places / count))
    came: dict[str, list[Answer]] = defaultdict(list)
    for answer in library.answers:
        least = max(library.floor, FITS * answer.repeated)
        ahead = [id for id, score in answer.others[:places] if score >= least]
        for id in ahead[: places - (answer.place <= places)]:
            came[id].append(answer)
    for id, answers in came.items():
        asked = len(library.answers) - len(library.by_owner[id])
        owners = {one.sentence.id for one in answers}
        share = len(answers) / asked
        if share >= threshold and len(owners) >= OWNERS:
            yield _finding(library, id, answers, share, threshold, places)


def _finding(
    library: Library, id: str, answers: list[Answer], share: float, threshold: float, places: int
) -> Finding:
    owners = sorted({one.sentence.id for one in answers})
    where = "first" if places == 1 else f"among the first {places}"
    # One example per owner, so that it shows how far the hub reaches.
    first = {one.sentence.id: one for one in reversed(answers)}
    return Finding(
        code="hub",
        severity="warning",
        id=id,
        others=tuple(owners),
        file=library.places.file(id),
        line=library.places.line(library.documents[id], "text", 0),
        message=(
            f"{id} is {where} for {share:.0%} of all other sentences, of {len(owners)} documents; "
            f"the limit is {threshold:.0%}"
        ),
        evidence=tuple(
            library.places.evidence(library.documents[owner], first[owner].sentence, f"({owner})")
            for owner in owners[:_EXAMPLES]
        ),
        advice=(
            "Take words out of the description that others share, and name what this one alone "
            "is for."
        ),
        hurt=share,
    )
