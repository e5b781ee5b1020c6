"""A report as text, at most 100 columns wide: answer, misses, advice, then all figures."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

from crossgate._evaluation.sections import (
    LABELS,
    Chart,
    Section,
    Table,
    advice,
    gate_sentence,
    headline,
    misses,
    sections,
    subject,
)
from crossgate._evaluation.summary import Report
from crossgate._support.sanitize import columns, fit

WIDTH = 100

_LABEL = 20  # at least this much of a name is shown
_BRACKET = re.compile(r"\[(\S+), (\S+)\]")

_MISSES = 10  # shown in a terminal; a page shows all
_QUERY, _PICK = 44, 22


def text_report(report: Report) -> str:
    """Return the report for a terminal."""
    parts = [
        _wrapped([headline(report)]),
        list(_misses(report)),
        list(_advice(report)),
        _wrapped([gate_sentence(report), *subject(report)]),
        *(list(section_lines(section)) for section in sections(report)),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _misses(report: Report) -> Iterator[str]:
    """Yield the queries with a wrong answer, with their picks and the fitting documents."""
    wrong = misses(report)
    if not wrong:
        return
    yield f"{'':<14}{'query':<{_QUERY}} {'picked':<{_PICK}} fits"
    for query in wrong[:_MISSES]:
        text = _cell(" ".join(query.text.split()), _QUERY)
        picked = _cell(", ".join(query.picked) or "-", _PICK)
        fitting = fit(", ".join(query.fits) or "-", WIDTH - 16 - _QUERY - _PICK)
        yield f"{LABELS[query.outcome]:<14}{text} {picked} {fitting}".rstrip()
    if len(wrong) > _MISSES:
        yield f"and {len(wrong) - _MISSES} more: --html FILE lists all"


def _cell(text: str, width: int) -> str:
    text = fit(text, width)
    return text + " " * (width - columns(text))


def _advice(report: Report) -> Iterator[str]:
    suggestions = _wrapped([f"- {line}" for line in advice(report)])
    if suggestions:
        yield "what to try"
        yield from suggestions


def section_lines(section: Section) -> Iterator[str]:
    """Yield the lines of a section, its title first."""
    yield section.title
    for part in section.parts:
        if isinstance(part, str):
            yield from _wrapped([part])
        elif isinstance(part, Table):
            yield from table_lines(part)
        elif isinstance(part, Chart) and part.table is not None:
            yield from table_lines(part.table)


def table_lines(table: Table) -> Iterator[str]:
    """Yield the lines of a table; if it is too wide, intervals lose digits and names are cut."""
    indent = "  " if table.head[0] else ""
    names = [table.head[0], *(f"{indent}{row.name}" for row in table.rows)]
    longest = max(map(columns, names))
    room = WIDTH - min(longest, _LABEL)
    lines = [table.head[1:], *(row.cells for row in table.rows)]
    gap = 2 if _width(lines, 2) <= room else 1
    if _width(lines, gap) > room:
        lines, gap = [tuple(map(_narrow, line)) for line in lines], 2
    widths = [gap + max(map(len, column)) for column in zip(*lines, strict=True)]
    label = min(longest, WIDTH - sum(widths))
    for position, (name, cells) in enumerate(zip(names, lines, strict=True)):
        shown = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        yield f"{_cell(name, label)}{shown}".rstrip()
        if position and (same := table.rows[position - 1].same):
            yield from _wrapped([f"    the same: {', '.join(same)}"])


def _width(lines: Sequence[Sequence[str]], gap: int) -> int:
    """Return the width of the columns after the first, with blanks before each."""
    return sum(gap + max(map(len, column)) for column in zip(*lines, strict=True))


def _narrow(cell: str) -> str:
    return _BRACKET.sub(_narrow_bracket, cell)


def _narrow_bracket(bracket: re.Match[str]) -> str:
    low, high = bracket[1], bracket[2]
    if low.startswith(("+", "-")):  # points
        return f"[{float(low):+.0f},{float(high):+.0f}]"
    return f"[{float(low):.2f},{float(high):.2f}]".replace("0.", ".")


def _wrapped(lines: Sequence[str]) -> list[str]:
    fill: Callable[[str], list[str]] = textwrap.TextWrapper(
        width=WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ).wrap
    return [part for line in lines for part in fill(line)]
