"""Random texts of real or made-up words, with the word frequencies of English."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

WORDS = 50_000
"""Number of made-up words."""

_SYLLABLES = [a + b for a in "bcdfghklmnprstvw" for b in "aeiou"]


def _word(rank: int) -> str:
    """Return the word of a rank; each rank has its own word, and frequent words are short."""
    parts = [_SYLLABLES[rank % len(_SYLLABLES)]]
    while rank := rank // len(_SYLLABLES):
        parts.append(_SYLLABLES[rank % len(_SYLLABLES)])
    return "".join(parts)


class Texts:
    """Draws texts by Mandelbrot's law: the word of rank r has a share of 1 / (r + 2.7).

    Mandelbrot, "An informational theory of the statistical structure of language" (1953).

    Args:
        words: The words, the most frequent first; None for made-up words.
        seed: The same seed draws the same texts.
    """

    def __init__(self, words: Sequence[str] | None = None, *, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311, a sample and no secret
        self._words = words or [_word(rank) for rank in range(WORDS)]
        self._shares = list(accumulate(1 / (rank + 2.7) for rank in range(len(self._words))))

    def text(self, words: int) -> str:
        """Return a text with this number of words."""
        return " ".join(self._random.choices(self._words, cum_weights=self._shares, k=words))
