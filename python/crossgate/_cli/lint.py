"""`crossgate lint`: find problems that hurt routing in a library."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from crossgate._cli import DONE
from crossgate._cli.input import document_arguments, documents_of, index_of
from crossgate._cli.output import (
    WIDTH,
    paint,
    plain,
    say,
    say_left_out,
    say_skipped,
    show_result,
)
from crossgate._sources.common import printable
from crossgate._support.arguments import whole
from crossgate._support.errors import InputError, SourceError
from crossgate._support.progress import progress
from crossgate._support.sanitize import fit
from crossgate._support.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossgate._lint.library import Finding

FOUND = 1
"""Exit code if a finding is at least as severe as `--fail-on`."""

HOSTILE = 4
"""Exit code if the audit grades a text as hostile."""

SCHEMA = "crossgate-lint/1"
AUDIT_SCHEMA = "crossgate-audit/1"

_NEVER = "never"
_COLOURS = {"error": "31", "warning": "33", "info": "1"}
_INDENT = " " * 4


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from crossgate._lint.library import SEVERITIES

    document_arguments(parser)
    parser.add_argument(
        "--fail-on",
        choices=(*SEVERITIES, _NEVER),
        default="warning",
        help="exit with 1 for findings of at least this severity (default: warning)",
    )
    parser.add_argument(
        "--labels",
        metavar="FILE",
        action="append",
        default=[],
        help="labelled prompts, as `crossgate eval` reads them: measure which documents take "
        "prompts of others; may be repeated",
    )
    parser.add_argument(
        "--audit",
        action="store_true",
        help="only grade the texts: clean, suspect or hostile; exit with 1 or 4 for the last two",
    )
    parser.add_argument("--limit", type=whole(1), metavar="N", help="at most N (default: all)")


def run(options: argparse.Namespace) -> int:
    """Check a library and print the findings, the worst first."""
    from crossgate._lint.checking import lint
    from crossgate._lint.library import SEVERITIES

    if options.audit:
        return _audit(options)
    loaded = documents_of(options)
    index = index_of(loaded, options)
    with progress("asking") as asked:
        report = lint(
            index,
            loaded.documents,
            places=loaded.places,
            problems=loaded.problems,
            prompts=_prompts(options),
            progress=asked,
        )
    counts = {
        level: sum(finding.severity == level for finding in report.findings) for level in SEVERITIES
    }
    values = {
        "schema": SCHEMA,
        "documents": report.documents,
        "sentences": report.sentences,
        "left_out": [asdict(problem) for problem in loaded.left_out],
        "counts": counts,
    }
    if not options.json:
        say_left_out(loaded.left_out)
    size = f"{counted(report.documents, 'document')}, {counted(report.sentences, 'sentence')}"
    found = ", ".join(f"{count} {level}" for level, count in counts.items() if count)
    summary = f"{size} of them asked: {found or 'nothing found'}"
    _show(options, values, report.findings, summary)
    if options.fail_on == _NEVER:
        return DONE
    if any(finding.code == "hostile_text" for finding in report.findings):
        return HOSTILE
    failing = SEVERITIES[: SEVERITIES.index(options.fail_on) + 1]
    return FOUND if any(finding.severity in failing for finding in report.findings) else DONE


def _prompts(options: argparse.Namespace) -> dict[str, Sequence[str]]:
    """Return the labelled prompts that the arguments name, with the ids that fit each."""
    if not options.labels:
        return {}
    from crossgate._evaluation.label_files import read_labels

    if len(options.source) != 1:
        raise InputError("out_of_range", "--labels needs a single library")
    dataset = read_labels(options.source[0], options.labels)
    say_skipped(dataset.problems, "the labels")
    return {query.text: list(query.relevant) for query in dataset.queries}


def _audit(options: argparse.Namespace) -> int:
    """Grade every document and every other SKILL.md, and print the grades with their reasons."""
    from crossgate._lint.audit import GRADES
    from crossgate._lint.checking import audited
    from crossgate._sources.reading import skill_files

    files = skill_files(options.source)
    try:
        loaded = documents_of(options)
        documents, places = loaded.documents, loaded.places
    except SourceError as error:
        if error.code != "no_documents" or not files:
            raise
        documents, places = (), {}
    read = {os.path.realpath(place.path) for place in places.values()}
    unread = [path for path in files if os.path.realpath(path) not in read]
    results = audited(documents, places, unread)
    ungraded = [path for path in map(printable, unread) if path not in results]
    for path in ungraded:
        say(f"not graded, since it cannot be read: {path}")
    counts = {grade: sum(each == grade for each, _ in results.values()) for grade in GRADES}
    findings = [finding for _, listed in results.values() for finding in listed]
    findings.sort(key=lambda finding: (finding.severity != "error", finding.id))
    values = {
        "schema": AUDIT_SCHEMA,
        "documents": len(results),
        "counts": counts,
        "grades": {id: grade for id, (grade, _) in results.items()},
    }
    graded = ", ".join(f"{count} {grade}" for grade, count in counts.items())
    _show(options, values, findings, f"{counted(len(results), 'document')}: {graded}")
    if options.fail_on == _NEVER:
        return DONE
    return HOSTILE if counts["hostile"] else FOUND if counts["suspect"] or ungraded else DONE


def _show(
    options: argparse.Namespace,
    values: dict[str, Any],
    findings: Sequence[Finding],
    summary: str,
) -> None:
    """Print findings up to the limit, with other values as JSON, or with a summary as text."""
    shown = findings[: options.limit]
    lines = [line for finding in shown for line in (*_lines(finding), "")]
    if len(shown) < len(findings):
        lines += [f"and {len(findings) - len(shown)} more: leave out --limit to see them", ""]
    listed = [finding.to_dict() for finding in shown]
    show_result(options.json, {**values, "findings": listed}, [*lines, summary])


def _lines(finding: Finding) -> list[str]:
    painted = paint(finding.severity, _COLOURS[finding.severity])
    where = _place(finding.file, finding.line) or plain(finding.id)
    lines = [f"{painted}[{finding.code}] {where}", _indented(finding.message)]
    for evidence in finding.evidence:
        there = _place(evidence.file if evidence.file != finding.file else None, evidence.line)
        lines.append(_indented(f"  {there}: {evidence.text}" if there else f"  {evidence.text}"))
    return [*lines, f"{_INDENT}-> {plain(finding.advice)}"]


def _place(file: str | None, line: int | None) -> str:
    """Return `file:line`, or only the known part."""
    if file is None:
        return "" if line is None else f"line {line}"
    return plain(file if line is None else f"{file}:{line}")


def _indented(text: str) -> str:
    lead = " " * (len(text) - len(text.lstrip()))
    return f"{_INDENT}{lead}{fit(plain(text), 2 * WIDTH)}"
