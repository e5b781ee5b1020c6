"""What all checks look at: the documents, their words, their sentences and who answers them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from crossgate._lint.answers import Answer
from crossgate._lint.places import Places
from crossgate._lint.words import Words
from crossgate._types import Document

_RELEVANT = 0.5
"""Share of the usual best score below which an answer is noise: nothing fits the sentence."""


@dataclass(frozen=True)
class Library:
    """A library with what stage 1 makes of it.

    Attributes:
        documents: By id, in the order of the ids.
        words: Their words.
        answers: To each of their sentences.
        places: Where they stand.
    """

    documents: dict[str, Document]
    words: Words
    answers: list[Answer]
    places: Places = field(repr=False)

    @cached_property
    def by_owner(self) -> dict[str, list[Answer]]:
        """The answers to each document's sentences; nothing for one that has none."""
        owned: dict[str, list[Answer]] = {id: [] for id in self.documents}
        for one in self.answers:
            owned[one.sentence.id].append(one)
        return owned

    @cached_property
    def floor(self) -> float:
        """The score from which on a document can be said to fit a sentence.

        Relative to this library and its model, since no number holds for every embedder.
        """
        best = [
            max(one.own, one.others[0][1] if one.others else 0.0)
            for one in self.answers
            if one.sentence.field == "text"
        ]
        return _RELEVANT * median(best) if best else 0.0
