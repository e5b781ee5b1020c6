"""Headings of reStructuredText, of AsciiDoc, and of text without a markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_LONGEST = 120
"""Maximum length of a heading; it is in the title of every chunk below it."""
_FEWEST = 2
"""Minimum number of headings of a kind in text without a markup."""

_UNDERLINE = re.compile(r"([^\w\s])\1{2,}\s*$")
_UNDERLINES = "=-~^+"
"""Underlines of AsciiDoc by level."""
_SLACK = 2
"""Maximum difference of the lengths of a heading and its underline in AsciiDoc."""
_COLUMNS = re.compile(r"\S(?: {2,}|\t)\S")
_DELIMITER = re.compile(r"([-.+/*_=])\1{3,}$|`{3,}|\|===$")
_ASCIIDOC = re.compile(r"(={1,6})[ \t]+(\S.*?)(?:[ \t]+=+)?[ \t]*$")
# Not an item of a list, which ends as a sentence does or begins with a small letter, and not a line
# of a table of contents, which ends with a page.
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,5})\.?[ \t]+((?![a-z])\S.*[^\s.,;:])\s*$")
_CONTENTS = re.compile(r"\.{3}|(?:\. ){3}| {2,}\d+\s*$")
_CAPITALS = re.compile(r"[A-Z][A-Z0-9 ,/&()-]+$")


class Heading(NamedTuple):
    """A heading: the index of its first line, its number of lines, its level, and its text."""

    start: int
    height: int
    level: int
    text: str


def headings_of_rst(lines: Sequence[str]) -> list[Heading]:
    """Return the underlined headings of reStructuredText.

    The level of a style of underline is the place at which the style first occurs.
    """
    headings: list[Heading] = []
    styles: list[tuple[str, bool]] = []
    index = 0
    while index < len(lines):
        underlined = _underlined(lines, index)
        if underlined:
            height, style, text = underlined
            if style not in styles:
                styles.append(style)
            headings.append(Heading(index, height, styles.index(style) + 1, text))
            index += height
        else:
            index += 1
    return headings


def _underlined(lines: Sequence[str], index: int) -> tuple[int, tuple[str, bool], str] | None:
    """Return height, style and text of a heading that starts at a line; None if there is none."""
    if index and lines[index - 1].strip():
        return None
    over = _UNDERLINE.match(lines[index])
    at = index + 1 if over else index
    if at + 1 >= len(lines):
        return None
    title, under = lines[at].rstrip(), _UNDERLINE.match(lines[at + 1])
    text = title.strip()
    is_title = bool(re.search(r"\w", text)) and len(text) <= _LONGEST and not _COLUMNS.search(text)
    if not is_title or not under or (title[0].isspace() and not over):
        return None
    if len(under[0].rstrip()) < min(len(text), 4) or (over and over[0].strip() != under[0].strip()):
        return None
    return at + 2 - index, (under[1], bool(over)), text


def headings_of_asciidoc(lines: Sequence[str]) -> list[Heading]:
    """Return the headings of AsciiDoc outside of delimited blocks: `== Heading`, or underlined."""
    headings: list[Heading] = []
    block = ""
    index = 0
    while index < len(lines):
        text = lines[index].rstrip()
        underlined = None if block else _underlined(lines, index)
        # Two delimiters look like lines over and under a heading.
        level = _UNDERLINES.find(underlined[1][0]) + 1 if underlined and underlined[0] == 2 else 0
        if block:
            block = "" if text == block else block
        elif underlined and level and abs(len(lines[index + 1].rstrip()) - len(text)) <= _SLACK:
            headings.append(Heading(index, 2, level, underlined[2]))
            index += 1
        elif delimiter := _DELIMITER.match(text):
            block = delimiter[0]
        elif len(text) <= _LONGEST and (match := _ASCIIDOC.match(text)):
            headings.append(Heading(index, 1, len(match[1]), match[2]))
        index += 1
    return headings


def headings_of_text(lines: Sequence[str]) -> list[Heading]:
    """Return the headings of text without a markup: underlined, numbered, or of a manual page."""
    kinds = (headings_of_rst(lines), _numbered(lines), list(_capitals(lines)))
    by_line: dict[int, Heading] = {}
    for headings in kinds:
        if len(headings) >= _FEWEST:
            by_line = {heading.start: heading for heading in headings} | by_line
    return [by_line[index] for index in sorted(by_line)]


def _numbered(lines: Sequence[str]) -> list[Heading]:
    """Return headings such as `4.2. Limits`, which is below `4. Design` if that came before it.

    They stand alone and their numbers rise. If all have one number, they may be the items of a
    list, which are headings only if each has text below it.
    """
    headings: list[Heading] = []
    open_numbers: list[tuple[int, ...]] = []
    last: tuple[int, ...] = ()
    for index, line in enumerate(lines):
        if len(line) > _LONGEST or not _stands_alone(lines, index):
            continue
        match = _NUMBERED.match(line)
        if not match or _CONTENTS.search(line):
            continue
        number = tuple(map(int, match[1].split(".")))
        if number <= last:
            continue
        last = number
        open_numbers = [outer for outer in open_numbers if outer == number[: len(outer)]]
        headings.append(Heading(index, 1, len(open_numbers) + 1, line.strip()))
        open_numbers.append(number)
    ends = [*(heading.start for heading in headings), len(lines)][1:]
    is_list = all(heading.level == 1 for heading in headings) and not all(
        any(map(str.strip, lines[heading.start + 1 : end]))
        for heading, end in zip(headings, ends, strict=False)
    )
    return [] if is_list else headings


def _stands_alone(lines: Sequence[str], index: int) -> bool:
    """Return whether the lines before and after a line are blank."""
    before = lines[index - 1] if index else ""
    after = lines[index + 1] if index + 1 < len(lines) else ""
    return not before.strip() and not after.strip()


def _capitals(lines: Sequence[str]) -> Iterator[Heading]:
    """Yield lines in capitals above indented text, as in a manual page."""
    for index, line in enumerate(lines[:-1]):
        is_first = not index or not lines[index - 1].strip()
        if is_first and len(line) <= _LONGEST and _CAPITALS.match(line.rstrip()):
            below = next((text for text in lines[index + 1 : index + 3] if text.strip()), "")
            if below[:2].isspace():
                yield Heading(index, 1, 1, line.strip())
