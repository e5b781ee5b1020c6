"""Sanitises untrusted text before a model or a terminal shows it."""

from __future__ import annotations

import re
import unicodedata

# Default_Ignorable_Code_Point of Unicode 17, a property that `unicodedata` lacks, and the Braille
# blank, which has no dots.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_INVISIBLE_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_BREAKS = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_JOINERS = "\u200c\u200d"
_EMOJI_STYLE = "\ufe0f"
# Arabic and the scripts of South and South-East Asia, in which joiners change the shape of letters.
_JOINING_SCRIPTS = range(0x0600, 0x1D00)
# The opening bracket of a tag, in the forms that a model reads as `<`.
_OPENING = re.compile(r"[<\uff1c\ufe64]")
# What may follow it: also slashes and marks that look like those of ASCII.
_TAG_START = re.compile(r"[\w/!?|\u2044\u2215\u29f8\ufe56\ufe57\uff01\uff0f\uff1f\uff5c]")
_FENCES = re.compile(r"`{3,}|~{3,}")


def sanitize(text: str) -> str:
    """Return a text without invisible characters and without tags.

    The `<` of a possible tag becomes a single angle quotation mark.
    """
    return _OPENING.sub(_without_tag, remove_invisible(text)).strip("\n")


def sanitize_quotation(text: str) -> str:
    """Return a sanitised text without code fences: rows of backticks or tildes are cut to two."""
    return _FENCES.sub(lambda found: found[0][:2], sanitize(text))


def sanitize_line(text: str) -> str:
    """Return a sanitised text on one line."""
    return " ".join(sanitize_quotation(text).split())


def remove_invisible(text: str) -> str:
    """Return a text with line feeds as line breaks and without characters that show nothing.

    Removed are control characters except line feeds and tabs, unassigned and private-use characters
    and those that Unicode calls ignorable: bidirectional controls, zero-width and tag characters,
    fillers and variation selectors. Joiners stay where they change the shape of a letter or join
    pictures, and the emoji style stays after a picture.
    """
    text = _BREAKS.sub("\n", text)
    if text.isascii():
        return _CONTROL.sub("", text)
    kept: list[str] = []
    for at, character in enumerate(text):
        before = kept[-1] if kept else ""
        if _is_visible(character, before, text[at + 1 : at + 2]):
            kept.append(character)
    return "".join(kept)


def _is_visible(character: str, before: str, after: str) -> bool:
    if character < "\x7f":
        return character >= " " or character in "\n\t"
    if character in _JOINERS:
        return _is_joinable(before) and _is_joinable(after)
    if character == _EMOJI_STYLE:
        return _is_picture(before)
    if _IGNORABLE.match(character):
        return False
    return unicodedata.category(character) not in _INVISIBLE_CATEGORIES


def _is_picture(character: str) -> bool:
    return character > "\x7f" and unicodedata.category(character) in ("So", "Sm")


def _is_joinable(character: str) -> bool:
    if not character or character == _EMOJI_STYLE:
        return bool(character)
    category = unicodedata.category(character)
    # A skin tone is a modifier symbol (Sk).
    is_letter = category[0] in "LM" and ord(character) in _JOINING_SCRIPTS
    return is_letter or _is_picture(character) or (character > "\uffff" and category == "Sk")


def _without_tag(found: re.Match[str]) -> str:
    """Return a quotation mark for a bracket before a tag, which marks and spaces may precede."""
    text, at = found.string, found.end()
    while at < len(text) and (text[at].isspace() or unicodedata.category(text[at])[0] == "M"):
        at += 1
    return "\u2039" if _TAG_START.match(text, at) else found[0]


def columns(text: str) -> int:
    """Return the width of a text in terminal columns; some characters take two."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide


def fit(text: str, width: int) -> str:
    """Return a text cut to at most `width` columns."""
    if columns(text) <= width:
        return text
    while columns(text) > width - 1:
        text = text[: min(len(text) - 1, width)]
    return f"{text.rstrip()}…"
