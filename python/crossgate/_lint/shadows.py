"""Shadows: pairs of documents of which one wins sentences of the other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from crossgate._lint.findings import Finding
from crossgate._lint.inputs import LintedLibrary
from crossgate._lint.names import DocumentNames
from crossgate._lint.self_retrieval import SentenceResult
from crossgate._support.wording import share_of
from crossgate._values.results import Document

WEIGHTS = {"description": 3.0, "trigger": 2.0, "heading": 1.0, "line": 1.0}
"""Weight of a sentence by kind: prompts resemble descriptions and triggers more than headings."""

NEAR = 0.7
"""The winner must have this share of the score of the whole document, with the sentence in it.

Leaving a sentence out lowers the score of a document more than other wording of a prompt does, so a
winner with a much lower score than the whole document is not counted."""

LEVEL = 0.95
"""With this share or more, a sentence counts as lost entirely."""

SHADOWED = 0.25
"""A document is shadowed if another one wins this share of its sentences, by weight."""

LOST = 0.6
"""With this share or more, the finding is an error."""

PRIOR = 3.0
"""Weight of a notional won sentence, so that a single loss counts little."""

AHEAD = 2
"""Number of documents ahead of a sentence's own that count as winners."""

_EXAMPLES = 2
_RETIRED = re.compile(
    r"\W*(?:deprecated|obsolete|superseded)\b|"
    r".*\bthis (?:skill|tool) (?:is|has been) (?:deprecated|obsolete|superseded|replaced)\b",
    re.IGNORECASE | re.DOTALL,
)


def shadows(library: LintedLibrary) -> Iterator[Finding]:
    """Yield the pairs that shadow each other, each under the document that loses more."""
    lost = _lost(library)
    shares = {pair: _share(library, *pair, answers) for pair, answers in lost.items()}
    names = DocumentNames(library.documents.values())
    for (loser, winner), share in shares.items():
        back = shares.get((winner, loser), 0.0)
        if (share, winner) < (back, loser):
            continue
        hurt = (share + back) / 2
        if share >= SHADOWED and _proven(lost[loser, winner], lost.get((winner, loser), [])):
            advice = _advice(library.documents[loser], library.documents[winner], names)
            yield _finding(library, loser, winner, lost, hurt, share, advice)


def _lost(library: LintedLibrary) -> dict[tuple[str, str], list[SentenceResult]]:
    """Return the sentences that a document (first) loses to another one (second)."""
    lost: dict[tuple[str, str], list[SentenceResult]] = defaultdict(list)
    for answer in library.answers:
        for other in answer.ahead[:AHEAD]:
            score = dict(answer.others)[other]
            if score >= max(library.floor, NEAR * answer.repeated):
                lost[answer.sentence.id, other].append(answer)
    return lost


def _share(library: LintedLibrary, loser: str, winner: str, lost: list[SentenceResult]) -> float:
    """Return the share of a document's sentences that it loses, by weight."""
    total = sum(WEIGHTS[answer.sentence.kind] for answer in library.by_owner[loser])
    taken = sum(WEIGHTS[answer.sentence.kind] * _degree(answer, winner) for answer in lost)
    return taken / (total + PRIOR)


def _degree(answer: SentenceResult, winner: str) -> float:
    """Return how far a sentence is lost: 1 if the whole document would not have won it either."""
    if answer.repeated <= 0:
        return 1.0
    near = dict(answer.others)[winner] / answer.repeated
    return min(1.0, max(0.0, near - NEAR / 2) / (LEVEL - NEAR / 2))


def _proven(taken: list[SentenceResult], given: list[SentenceResult]) -> bool:
    """Return whether more than one sentence shows it, including one of the head."""
    heads = any(answer.sentence.field == "text" for answer in taken)
    return heads and len(taken) + len(given) > 1


def _finding(
    library: LintedLibrary,
    loser: str,
    winner: str,
    lost: dict[tuple[str, str], list[SentenceResult]],
    hurt: float,
    share: float,
    advice: str,
) -> Finding:
    document = library.documents[loser]
    taken, given = lost[loser, winner], lost.get((winner, loser), [])
    message = (
        f"{winner} wins {share_of(len(taken), len(library.by_owner[loser]), 'sentence')} of "
        f"{loser}, and loses {len(given)} of its own {len(library.by_owner[winner])} to it"
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


def _outcome(answer: SentenceResult, winner: str) -> str:
    """Return a note: the winner, and whether it beats the whole document or only the rest."""
    owner = answer.sentence.id
    return f"finds {winner} before {owner if _misled(answer, winner) else f'the rest of {owner}'}"


def _misled(answer: SentenceResult, winner: str) -> bool:
    """Return whether the winner beats the whole document, with the sentence in it."""
    return dict(answer.others)[winner] > answer.repeated


def _advice(loser: Document, winner: Document, names: DocumentNames) -> str:
    """Return the suggested change, without parts that the documents already have."""
    retired = [document.id for document in (loser, winner) if _RETIRED.match(document.text)]
    if retired:
        return f"Remove {' and '.join(retired)}: the description says that it is deprecated."
    apart = "Merge the two, or start each with a sentence on what only that one does"
    if loser.id in (id for _, id in names.named(winner.text, winner.id)):
        return f"{apart}: {winner.id} names {loser.id}, but describes it in {loser.id}'s own words."
    return f"{apart}, and say in {winner.id} when to use {loser.id} instead."


def _clearest(answers: list[SentenceResult], winner: str) -> list[SentenceResult]:
    """Sort results: first losses of the whole document, then of the head, then by margin."""
    return sorted(
        answers,
        key=lambda answer: (
            not _misled(answer, winner),
            answer.sentence.field != "text",
            answer.own - dict(answer.others)[winner],
            answer.sentence.start,
        ),
    )
