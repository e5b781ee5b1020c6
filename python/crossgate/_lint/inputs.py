"""The input of all checks: documents, terms, and stage-1 results of the sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from crossgate._lint.locations import Places
from crossgate._lint.rarity import LibraryTerms
from crossgate._lint.self_retrieval import SentenceResult
from crossgate._values.results import Document

_RELEVANT = 0.5
"""A score below this share of the usual best score counts as noise."""


@dataclass(frozen=True)
class LintedLibrary:
    """A library with the stage-1 results of its sentences.

    Attributes:
        documents: The documents by id, in the order of the ids.
        words: The terms of the documents.
        answers: Stage-1 results of the sentences.
        places: Files and lines of the documents.
    """

    documents: dict[str, Document]
    words: LibraryTerms
    answers: list[SentenceResult]
    places: Places = field(repr=False)

    @cached_property
    def by_owner(self) -> dict[str, list[SentenceResult]]:
        """The answers to each document's sentences; an empty list for a document without any."""
        owned: dict[str, list[SentenceResult]] = {id: [] for id in self.documents}
        for answer in self.answers:
            owned[answer.sentence.id].append(answer)
        return owned

    @cached_property
    def floor(self) -> float:
        """The smallest score at which a document counts as fitting a sentence.

        It is relative to this library, since scores differ between embedders.
        """
        best = [
            max(answer.own, answer.others[0][1] if answer.others else 0.0)
            for answer in self.answers
            if answer.sentence.field == "text"
        ]
        return _RELEVANT * median(best) if best else 0.0
