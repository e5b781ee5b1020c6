"""`crossgate lint`: what hurts routing in a library."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from crossgate._cli import DONE
from crossgate._cli.render import WIDTH, fit, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossgate._lint.checking import Report
    from crossgate._lint.findings import Finding

FOUND = 1
"""Exit code of a library with a finding that is as bad as `--fail-on` or worse."""

SCHEMA = "crossgate-lint/1"

_NEVER = "never"
_COLOURS = {"error": "31", "warning": "33", "info": "36"}
_INDENT = " " * 4


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    from crossgate._lint.findings import SEVERITIES

    parser.add_argument("source", metavar="FOLDER", nargs="+", help="folder or file to read")
    parser.add_argument(
        "--fail-on",
        choices=(*SEVERITIES, _NEVER),
        default="warning",
        help="exit with 1 for a finding as bad as this (default: warning)",
    )
    parser.add_argument("--limit", type=_limit, metavar="N", help="show the worst N (default: all)")
    parser.add_argument(
        "--kind",
        choices=("auto", "skills", "beir", "jsonl", "text"),
        default="auto",
        help="what the sources are (default: look and see)",
    )
    parser.add_argument(
        "--embedder",
        metavar="MODEL",
        default="default",
        help="name or folder of a model, or none to search by words alone",
    )
    parser.add_argument(
        "--language", default="english", help="language of the stemmer, or none (default: english)"
    )


def run(options: argparse.Namespace) -> int:
    """Check a library and print what was found, the worst first."""
    from crossgate._cli import commands
    from crossgate._index import Index
    from crossgate._lint.checking import lint
    from crossgate._lint.findings import reaches
    from crossgate._sources import read_sources

    loaded = read_sources(options.source, kind=options.kind)
    with commands._progress("embedding") as progress:
        index = Index.build(
            loaded.documents,
            embedder=None if options.embedder == "none" else options.embedder,
            language=options.language,
            progress=progress,
        )
    with commands._progress("asking") as progress:
        report = lint(
            index,
            loaded.documents,
            places=loaded.places,
            problems=loaded.problems,
            progress=progress,
        )
    shown = report.findings[: options.limit]
    if options.json:
        commands._print_json(_values(report, shown))
    else:
        print(_text(report, shown, colour=commands._colour()))
    level = options.fail_on
    fails = level != _NEVER and any(reaches(one.severity, level) for one in report.findings)
    return FOUND if fails else DONE


def _limit(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} must be at least 1")
    return value


def _counts(report: Report) -> dict[str, int]:
    from crossgate._lint.findings import SEVERITIES

    return {level: sum(one.severity == level for one in report.findings) for level in SEVERITIES}


def _values(report: Report, shown: Sequence[Finding]) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "documents": report.documents,
        "sentences": report.sentences,
        "counts": _counts(report),
        "findings": [one.to_dict() for one in shown],
    }


def _text(report: Report, shown: Sequence[Finding], *, colour: bool) -> str:
    lines = [line for one in shown for line in (*_lines(one, colour), "")]
    hidden = len(report.findings) - len(shown)
    if hidden:
        lines += [f"and {hidden} more: leave out --limit to see them", ""]
    counts = ", ".join(f"{count} {level}" for level, count in _counts(report).items() if count)
    asked = f"{report.documents} documents, {report.sentences} of their sentences asked"
    return "\n".join([*lines, f"{asked}: {counts or 'nothing found'}"])


def _lines(finding: Finding, colour: bool) -> list[str]:
    severity = finding.severity
    painted = f"\x1b[{_COLOURS[severity]}m{severity}\x1b[0m" if colour else severity
    place = _place(finding.file, finding.line) or plain(finding.id)
    lines = [f"{painted}[{finding.code}] {place}", _indented(finding.message)]
    for one in finding.evidence:
        where = _place(one.file if one.file != finding.file else None, one.line)
        lines.append(_indented(f"  {where}: {one.text}" if where else f"  {one.text}"))
    return [*lines, f"{_INDENT}-> {plain(finding.advice)}"]


def _place(file: str | None, line: int | None) -> str:
    """Return `file:line`, or what of it is known."""
    if file is None:
        return "" if line is None else f"line {line}"
    return plain(file if line is None else f"{file}:{line}")


def _indented(text: str) -> str:
    lead = " " * (len(text) - len(text.lstrip()))
    return f"{_INDENT}{lead}{fit(plain(text), 2 * WIDTH)}"
