"""Headings of text files, and their chunks of a bounded size, each with the headings above it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from crossgate._retrieval.passages import fenced, pieces, surroundings

_LONGEST = 120
"""Maximum length of a heading; it is in the title of every chunk below it."""
_FEWEST = 2
"""Minimum number of headings of a kind in text without a markup."""

_OVERLINE = re.compile(r"([^\w\s])\1{2,}\s*$")
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
    over = _OVERLINE.match(lines[index])
    at = index + 1 if over else index
    if at + 1 >= len(lines):
        return None
    title, under = lines[at].rstrip(), _OVERLINE.match(lines[at + 1])
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


MAX_CHARS = 1_500
"""Longest chunk in characters: about 350 tokens of English, which a reranker reads whole."""

# Longer lines are not headings, since a heading is in the title of every chunk below it.
_HEADING_CHARS = 200

ASCIIDOC = (".adoc", ".asciidoc")

_LINE = re.compile(r".*\n|.+")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
# A line that can be underlined: not a list item, quote, table row, indented code or rule.
_PARAGRAPH = re.compile(r" {0,3}(?!(?:[-*+]|\d{1,9}[.)])[ \t]|[>|])(?=\S)(?=.*\w)")
_DIRECTIVE = re.compile(
    r"[ \t]*(?::{3,}.*|\.\. [\w:-]+::.*|\{%.*%\}|\{\{.*\}\}|<!--.*-->|\[toc\])[ \t]*$", re.I
)
# The indented lines below a directive.
_OPTIONS = re.compile(r"(?m)^(?=:::|\.\. [\w:-]+::).*(?:\n(?:[ \t]+.*|[ \t]*$))*")
_LINK = re.compile(r"!?\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\]|:[ \t]*\S+)|<?https?://[^\s>]+>?")
_LETTER = re.compile(r"[^\W\d_]")
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)*")
# Front matter has a key in its first line of content; a rule at the top of a file has not.
_FRONT_MATTER = re.compile(
    r"---[ \t]*\n(?:[ \t]*(?:#[^\n]*)?\n)*[\w-]+[ \t]*:.*?\n---[ \t]*(?:\n|\Z)", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and the text up to the next one; all heads and bodies joined are the source.

    Attributes:
        level: 1 to 6, or 0 for the text before the first heading.
        heading: Text of the heading, without its marks.
        head: The heading as written in the source, with its line ends.
        body: The text below it.
        line: 1-based line on which the section starts.
    """

    level: int
    heading: str
    head: str
    body: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a file that becomes one document.

    Attributes:
        title: The headings above the chunk, `File title > Heading > Subheading`.
        heading: The innermost of these headings, or an empty string outside any.
        text: The piece of text, without leading blank lines and trailing white space; empty for a
            heading alone.
        line: 1-based line on which it starts, with its heading.
        end_line: 1-based line on which it ends.
    """

    title: str
    heading: str
    text: str
    line: int
    end_line: int


def is_stub(text: str) -> bool:
    """Return whether a chunk has nothing to read: no text, or only directives and links.

    Directives are those of mkdocstrings (`::: module`), Sphinx (`.. toctree::`) and templates
    (`{% include %}`), with their indented options. Links are lines that hold only links, images or
    addresses, such as a table of contents.
    """
    return all(
        _DIRECTIVE.match(line) or not _LETTER.search(_LINK.sub("", line))
        for line in _OPTIONS.sub("", text).splitlines()
    )


def chunk_markdown(text: str, *, name: str, max_chars: int = MAX_CHARS) -> list[Chunk]:
    """Split Markdown at its headings, and longer sections further, as `pieces` does.

    The file's title is its first heading of level 1. Front matter is left out. A heading with
    nothing below it is a chunk without text, unless the next heading is one of its subheadings.
    If a table is split, its header is repeated.

    Args:
        text: The file, with line feeds as line ends.
        name: The title of a file that has no heading of level 1.
        max_chars: Longest text of a chunk in characters, without the header of its table.
    """
    front_matter = _FRONT_MATTER.match(text)
    start = front_matter.end() if front_matter else 0
    parts = sections(text[start:], first_line=1 + text.count("\n", 0, start))
    titles = (part.heading for part in parts if part.level == 1 and part.heading)
    return _chunked(parts, next(titles, name), max_chars)


def chunk_plain(
    text: str, *, name: str, suffix: str = ".txt", max_chars: int = MAX_CHARS
) -> list[Chunk]:
    """Split text at its headings, and longer sections between paragraphs.

    Args:
        text: The file, with line feeds as line ends.
        name: The title of a file that has no heading of level 1, or several of them.
        suffix: The suffix of the file, in lower case: reStructuredText and AsciiDoc have headings
            of their own; any other text may have numbered or underlined ones, or those of a manual
            page.
        max_chars: Longest text of a chunk in characters.
    """
    headings_of = headings_of_rst if suffix == ".rst" else headings_of_text
    lines = _LINE.findall(text)
    parts = _cut(lines, (headings_of_asciidoc if suffix in ASCIIDOC else headings_of)(lines), 1)
    tops = [part.heading for part in parts if part.level == 1]
    return _chunked(parts, tops[0] if len(tops) == 1 else name, max_chars, fences=False)


def _chunked(
    parts: list[Section], file_title: str, max_chars: int, *, fences: bool = True
) -> list[Chunk]:
    """Return the chunks of all sections, with the headings above each in its title."""
    path: list[tuple[int, str]] = []
    chunks: list[Chunk] = []
    for section, follower in zip(parts, [*parts[1:], None], strict=False):
        if section.level:
            path = [step for step in path if step[0] < section.level]
            path.append((section.level, section.heading))
        steps = [heading for _, heading in path if heading]
        title = " > ".join([file_title, *(steps[1:] if steps[:1] == [file_title] else steps)])
        below = _chunks(section, title, max_chars, fences=fences)
        # Only a subheading with text passes this heading on.
        passed_on = follower and follower.heading and follower.level > section.level
        if not below and section.heading and not passed_on:
            line = section.line
            heading = section.heading
            below = [Chunk(title=title, heading=heading, text="", line=line, end_line=line)]
        chunks += below
    return chunks


def sections(text: str, *, first_line: int = 1) -> list[Section]:
    """Split Markdown before each ATX (`## Heading`) and setext (underlined) heading.

    In 1,832 real files, of 24,120 headings 12 differed from those of markdown-it-py, which took
    twelve times as long.

    A `#` inside a fenced code block is not a heading; a fence that is never closed runs to the
    end of the file, as in CommonMark. A setext heading must be a single line after a blank one.
    """
    lines = list(fenced(text))
    headings: list[Heading] = []
    index = body = 0
    while index < len(lines):
        alone = index == body or not lines[index - 1][1].strip()
        level, height, heading = _heading(lines[index : index + 2], alone=alone)
        if level:
            headings.append(Heading(index, height, level, heading))
            body = index + height
        index += height
    return _cut([line for _, line in lines], headings, first_line)


def _cut(lines: list[str], headings: list[Heading], first_line: int) -> list[Section]:
    """Return the lines as sections, each but the first of which starts with a heading."""
    starts = [Heading(0, 0, 0, ""), *headings]
    ends = [heading.start for heading in headings] + [len(lines)]
    return [
        Section(
            level=level,
            heading=heading,
            head="".join(lines[start : start + height]),
            body="".join(lines[start + height : end]),
            line=first_line + start,
        )
        for (start, height, level, heading), end in zip(starts, ends, strict=True)
        if level or end
    ]


def _heading(lines: list[tuple[int, str]], *, alone: bool) -> tuple[int, int, str]:
    """Return level, number of lines and text of the heading on top of `lines`, or level 0."""
    fence, line = lines[0]
    if fence or len(line) > _HEADING_CHARS:
        return 0, 1, ""
    if found := _ATX.match(line):
        return len(found[1]), 1, found[2] or ""
    if alone and len(lines) == 2 and _PARAGRAPH.match(line):
        underline = _UNDERLINE.match(lines[1][1])
        if underline:
            return 1 if underline[1][0] == "=" else 2, 2, line.strip()
    return 0, 1, ""


def _chunks(section: Section, title: str, max_chars: int, *, fences: bool = True) -> list[Chunk]:
    """Return the pieces of one section as chunks; the first one starts at the heading."""
    chunks: list[Chunk] = []
    line = section.line + section.head.count("\n")
    cut = pieces(section.body, max_chars, fences=fences)
    for piece, header in zip(cut, _table_headers(section.body, cut, fences=fences), strict=True):
        if piece.strip():
            blank = _BLANK_LINES.match(piece)
            start = blank.end() if blank else 0
            first = line + piece.count("\n", 0, start)
            text = piece[start:].rstrip()
            last = first + text.count("\n")
            if section.head and not chunks:
                first = section.line
            heading = section.heading
            text = f"{header}\n{text}" if header else text
            chunks.append(Chunk(title=title, heading=heading, text=text, line=first, end_line=last))
        line += piece.count("\n")
    return chunks


def _table_headers(body: str, cut: list[str], *, fences: bool) -> list[str]:
    """Return the header of the table that each piece begins in; empty if there is none."""
    if not fences or len(cut) < 2:
        return [""] * len(cut)
    ends = list(accumulate(map(len, cut)))
    # A section has no heading in its body.
    return surroundings(body, list(zip([0, *ends], ends, strict=False)))
