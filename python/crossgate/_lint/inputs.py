"""The input of all checks: the documents, their words, and the answers to their sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from crossgate._lint.locations import Places
from crossgate._lint.rarity import Words
from crossgate._lint.self_retrieval import Answer
from crossgate._values.results import Document

_RELEVANT = 0.5
"""An answer below this share of the usual best score is noise: nothing fits the sentence."""


@dataclass(frozen=True)
class Library:
    """A library with the stage-1 results of its sentences.

    Attributes:
        documents: The documents by id, in the order of the ids.
        words: Their words.
        answers: The answers to their sentences.
        places: Their files and lines.
    """

    documents: dict[str, Document]
    words: Words
    answers: list[Answer]
    places: Places = field(repr=False)

    @cached_property
    def by_owner(self) -> dict[str, list[Answer]]:
        """The answers to each document's sentences; an empty list for a document without any."""
        owned: dict[str, list[Answer]] = {id: [] for id in self.documents}
        for answer in self.answers:
            owned[answer.sentence.id].append(answer)
        return owned

    @cached_property
    def floor(self) -> float:
        """The smallest score with which a document can be said to fit a sentence.

        It is relative to this library and its model, since no number suits every embedder.
        """
        best = [
            max(answer.own, answer.others[0][1] if answer.others else 0.0)
            for answer in self.answers
            if answer.sentence.field == "text"
        ]
        return _RELEVANT * median(best) if best else 0.0
