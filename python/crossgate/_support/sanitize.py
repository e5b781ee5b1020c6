"""Text of others, made plain before a model reads it: nothing hidden, nothing shaped like a tag."""

from __future__ import annotations

import re
import unicodedata

# Letters of some scripts are joined or kept apart by these two; elsewhere they only hide things.
_JOINERS = "\u200c\u200d"
_VARIATIONS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn"}
_BREAKS = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# `<` in the forms that a model reads as one, where a tag could begin.
_OPENING = re.compile(r"[<\uff1c\ufe64](?=\s*[\w/!?|])")
_FENCES = re.compile(r"`{3,}|~{3,}")


def neutral(text: str) -> str:
    """Return a text as `sanitize` does, in which no fence can end a quotation, either.

    A row of backticks or tildes is cut to two.
    """
    return _FENCES.sub(lambda found: found[0][:2], sanitize(text))


def sanitize(text: str) -> str:
    """Return a text in which nothing is hidden, reordered or shaped like an agent's markup.

    Gone are control characters but line breaks and tabs, everything that has no shape of its own
    (bidirectional controls, zero width, tag characters, private use), and variation selectors
    behind plain letters; `<` before what could be a tag becomes a single angle quotation mark.
    """
    lines = _BREAKS.sub("\n", text)
    shown = "".join(
        one if one in "\n\t" or not _is_hidden(one, lines, at) else ""
        for at, one in enumerate(lines)
    )
    return _OPENING.sub("\u2039", shown).strip("\n")


def one_line(text: str) -> str:
    """Return a neutral text on one line."""
    return " ".join(neutral(text).split())


def _is_hidden(letter: str, text: str, at: int) -> bool:
    if letter < "\x7f":
        return letter < " "
    if letter in _JOINERS or _VARIATIONS.match(letter):
        before = text[at - 1] if at else ""
        # One behind a letter or picture that it can change; in a row they spell something.
        return before < "\u00a0" or before in _JOINERS or bool(_VARIATIONS.match(before))
    return unicodedata.category(letter) in _HIDDEN
