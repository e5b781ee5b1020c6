"""Pairs of documents of which one wins what the other says of itself."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from crossgate._lint.answers import Answer
from crossgate._lint.findings import Finding
from crossgate._lint.library import Library
from crossgate._lint.names import Names
from crossgate._types import Document

WEIGHTS = {"description": 3.0, "trigger": 2.0, "heading": 1.0, "line": 1.0}
"""What a sentence counts: prompts resemble descriptions and triggers more than headings."""

NEAR = 0.7
"""Share of a document's score with its sentence in it that the winner must have without it.

Leaving a sentence out takes more from a document than a prompt in other words would; a winner that
comes nowhere near the whole document has won for that reason alone."""

LEVEL = 0.95
"""The share from which on a sentence counts as lost entirely."""

SHADOWED = 0.25
"""Share of a document's sentences, by weight, that another one may win."""

LOST = 0.6
"""Share from which on a document is hardly ever the first."""

PRIOR = 3.0
"""Weight of a sentence that every document is taken to win, so that one alone proves little."""

AHEAD = 2
"""Places behind the winner that still count as winning: copies share the first places."""

_EXAMPLES = 2
_RETIRED = re.compile(
    r"\W*(?:deprecated|obsolete|superseded)\b|"
    r".*\bthis (?:skill|tool) (?:is|has been) (?:deprecated|obsolete|superseded|replaced)\b",
    re.IGNORECASE | re.DOTALL,
)


def shadows(library: Library) -> Iterator[Finding]:
    """Yield the pairs that shadow each other, each pair once, with the one that loses more."""
    lost = _lost(library)
    shares = {pair: _share(library, *pair, answers) for pair, answers in lost.items()}
    names = Names(library.documents.values())
    for (loser, winner), share in shares.items():
        back = shares.get((winner, loser), 0.0)
        if (share, winner) < (back, loser):
            continue
        hurt = (share + back) / 2
        if share >= SHADOWED and _proven(lost[loser, winner], lost.get((winner, loser), [])):
            advice = _advice(library.documents[loser], library.documents[winner], names)
            yield _finding(library, loser, winner, lost, hurt, share, advice)


def _lost(library: Library) -> dict[tuple[str, str], list[Answer]]:
    """Return the sentences that a document (first) loses to another one (second)."""
    lost: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for answer in library.answers:
        for other in answer.ahead[:AHEAD]:
            score = dict(answer.others)[other]
            if score >= max(library.floor, NEAR * answer.repeated):
                lost[answer.sentence.id, other].append(answer)
    return lost


def _share(library: Library, loser: str, winner: str, lost: list[Answer]) -> float:
    """Return how much of what a document says of itself it loses, by the sentences' weight."""
    total = sum(WEIGHTS[one.sentence.kind] for one in library.by_owner[loser])
    taken = sum(WEIGHTS[one.sentence.kind] * _degree(one, winner) for one in lost)
    return taken / (total + PRIOR)


def _degree(answer: Answer, winner: str) -> float:
    """Return how far a sentence is lost: 1 where repeating it would not have helped."""
    if answer.repeated <= 0:
        return 1.0
    near = dict(answer.others)[winner] / answer.repeated
    return min(1.0, max(0.0, near - NEAR / 2) / (LEVEL - NEAR / 2))


def _proven(taken: list[Answer], given: list[Answer]) -> bool:
    """Return whether more than one sentence speaks for it, and the head among them."""
    heads = any(one.sentence.field == "text" for one in taken)
    return heads and len(taken) + len(given) > 1


def _finding(
    library: Library,
    loser: str,
    winner: str,
    lost: dict[tuple[str, str], list[Answer]],
    hurt: float,
    share: float,
    advice: str,
) -> Finding:
    document = library.documents[loser]
    taken, given = lost[loser, winner], lost.get((winner, loser), [])
    message = (
        f"{winner} wins {len(taken)} of {len(library.by_owner[loser])} sentences of {loser}, "
        f"and loses {len(given)} of its own {len(library.by_owner[winner])} to it"
    )
    evidence = [
        library.places.evidence(
            library.documents[one.sentence.id], one.sentence, _outcome(one, other)
        )
        for one, other in [
            *((one, winner) for one in _clearest(taken, winner)[:_EXAMPLES]),
            *((one, loser) for one in _clearest(given, loser)[: _EXAMPLES - 1]),
        ]
    ]
    return Finding(
        code="shadowed",
        severity="error" if share >= LOST else "warning",
        id=loser,
        others=(winner,),
        file=library.places.file(loser),
        line=library.places.line(document, "text", 0),
        message=message,
        evidence=tuple(evidence),
        advice=advice,
        hurt=hurt,
    )


def _outcome(answer: Answer, winner: str) -> str:
    """Return what a sentence finds; most of a document says less than all of it."""
    owner = answer.sentence.id
    return f"finds {winner} before {owner if _misled(answer, winner) else f'the rest of {owner}'}"


def _misled(answer: Answer, winner: str) -> bool:
    """Return whether the winner is ahead of the whole document, the sentence in it."""
    return dict(answer.others)[winner] > answer.repeated


def _advice(loser: Document, winner: Document, names: Names) -> str:
    """Return what to change, without what the two do already."""
    retired = [one.id for one in (loser, winner) if _RETIRED.match(one.text)]
    if retired:
        return f"Remove {' and '.join(retired)}: the description says that it is out of use."
    apart = "Merge the two, or say in the first sentence of each what only it does"
    if loser.id in (id for _, id in names.named(winner.text, winner.id)):
        return f"{apart}: {winner.id} names {loser.id}, but in words that are {loser.id}'s own."
    return f"{apart}, and in {winner.id} when {loser.id} is the one to use."


def _clearest(answers: list[Answer], winner: str) -> list[Answer]:
    """Return the answers, what misleads a whole document first, then its head, then by lead."""
    return sorted(
        answers,
        key=lambda one: (
            not _misled(one, winner),
            one.sentence.field != "text",
            one.own - dict(one.others)[winner],
            one.sentence.start,
        ),
    )
