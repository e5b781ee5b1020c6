"""Sanitises untrusted text before a model or a terminal shows it."""

from __future__ import annotations

import re
import unicodedata

# Some scripts need these two to join or separate letters.
_JOINERS = "\u200c\u200d"
_VARIATIONS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn"}
_BREAKS = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# The opening bracket of a tag, in the forms that a model reads as `<`.
_OPENING = re.compile(r"[<\uff1c\ufe64](?=\s*[\w/!?|])")
_FENCES = re.compile(r"`{3,}|~{3,}")


def sanitize_quotation(text: str) -> str:
    """Return a sanitised text without code fences: rows of backticks or tildes are cut to two."""
    return _FENCES.sub(lambda found: found[0][:2], sanitize(text))


def sanitize(text: str) -> str:
    """Return a text without invisible characters and without tags.

    Removed are control characters except line breaks and tabs, bidirectional controls, zero-width,
    tag and private-use characters, and variation selectors after plain letters. The `<` of a
    possible tag becomes a single angle quotation mark.
    """
    lines = _BREAKS.sub("\n", text)
    shown = "".join(
        letter if letter in "\n\t" or not _is_hidden(letter, lines, at) else ""
        for at, letter in enumerate(lines)
    )
    return _OPENING.sub("\u2039", shown).strip("\n")


def sanitize_line(text: str) -> str:
    """Return a sanitised text on one line."""
    return " ".join(sanitize_quotation(text).split())


def _is_hidden(letter: str, text: str, at: int) -> bool:
    if letter < "\x7f":
        return letter < " "
    if letter in _JOINERS or _VARIATIONS.match(letter):
        before = text[at - 1] if at else ""
        # Kept once after a letter or picture that it can modify; a row could encode a message.
        return before < "\u00a0" or before in _JOINERS or bool(_VARIATIONS.match(before))
    return unicodedata.category(letter) in _HIDDEN
