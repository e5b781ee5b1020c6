"""Shadows: pairs of documents of which one wins sentences of the other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from crossgate._lint.findings import Finding
from crossgate._lint.inputs import Library
from crossgate._lint.names import Names
from crossgate._lint.self_retrieval import Answer
from crossgate._values.results import Document

WEIGHTS = {"description": 3.0, "trigger": 2.0, "heading": 1.0, "line": 1.0}
"""Weight of a sentence by kind: prompts resemble descriptions and triggers more than headings."""

NEAR = 0.7
"""The winner must have this share of the score of the whole document, with the sentence in it.

Leaving a sentence out costs a document more than a differently worded prompt would; a winner with a
much lower score than the whole document has won only for that reason."""

LEVEL = 0.95
"""With this share or more, a sentence counts as lost entirely."""

SHADOWED = 0.25
"""A document is shadowed if another one wins this share of its sentences, by weight."""

LOST = 0.6
"""With this share or more, the finding is an error."""

PRIOR = 3.0
"""Weight of an imaginary sentence that every document wins; one loss alone then counts little."""

AHEAD = 2
"""How many documents ahead of a sentence's own count as winners: copies share the first ranks."""

_EXAMPLES = 2
_RETIRED = re.compile(
    r"\W*(?:deprecated|obsolete|superseded)\b|"
    r".*\bthis (?:skill|tool) (?:is|has been) (?:deprecated|obsolete|superseded|replaced)\b",
    re.IGNORECASE | re.DOTALL,
)


def shadows(library: Library) -> Iterator[Finding]:
    """Yield the pairs that shadow each other, each once, under the document that loses more."""
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
    """Return the share of a document's sentences that it loses, by weight."""
    total = sum(WEIGHTS[answer.sentence.kind] for answer in library.by_owner[loser])
    taken = sum(WEIGHTS[answer.sentence.kind] * _degree(answer, winner) for answer in lost)
    return taken / (total + PRIOR)


def _degree(answer: Answer, winner: str) -> float:
    """Return how far a sentence is lost: 1 if the whole document would not have won it either."""
    if answer.repeated <= 0:
        return 1.0
    near = dict(answer.others)[winner] / answer.repeated
    return min(1.0, max(0.0, near - NEAR / 2) / (LEVEL - NEAR / 2))


def _proven(taken: list[Answer], given: list[Answer]) -> bool:
    """Return whether more than one sentence shows it, including one of the head."""
    heads = any(answer.sentence.field == "text" for answer in taken)
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
            library.documents[answer.sentence.id], answer.sentence, _outcome(answer, other)
        )
        for answer, other in [
            *((answer, winner) for answer in _clearest(taken, winner)[:_EXAMPLES]),
            *((answer, loser) for answer in _clearest(given, loser)[: _EXAMPLES - 1]),
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
    """Return what a sentence finds, and whether that beats the whole document or only the rest."""
    owner = answer.sentence.id
    return f"finds {winner} before {owner if _misled(answer, winner) else f'the rest of {owner}'}"


def _misled(answer: Answer, winner: str) -> bool:
    """Return whether the winner beats the whole document, with the sentence in it."""
    return dict(answer.others)[winner] > answer.repeated


def _advice(loser: Document, winner: Document, names: Names) -> str:
    """Return what to change, without what the two documents do already."""
    retired = [document.id for document in (loser, winner) if _RETIRED.match(document.text)]
    if retired:
        return f"Remove {' and '.join(retired)}: the description says that it is deprecated."
    apart = "Merge the two, or start each with a sentence on what only that one does"
    if loser.id in (id for _, id in names.named(winner.text, winner.id)):
        return f"{apart}: {winner.id} names {loser.id}, but in {loser.id}'s own words."
    return f"{apart}, and say in {winner.id} when to use {loser.id} instead."


def _clearest(answers: list[Answer], winner: str) -> list[Answer]:
    """Sort answers: first losses of the whole document, then those of the head, then by lead."""
    return sorted(
        answers,
        key=lambda answer: (
            not _misled(answer, winner),
            answer.sentence.field != "text",
            answer.own - dict(answer.others)[winner],
            answer.sentence.start,
        ),
    )
