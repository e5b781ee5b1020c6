"""`crossgate feedback`: record in a log whether a decision was right, or what was used after it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossgate._cli import DONE
from crossgate._cli.decision_output import LOG_VARIABLE, log_path
from crossgate._cli.output import show_result
from crossgate._cli.teach import lines_of_lesson
from crossgate._support.errors import InputError, SourceError

if TYPE_CHECKING:
    from crossgate._telemetry.log import LoggedDecision


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "judgement",
        choices=["right", "wrong", "used"],
        help="whether the decision was right; or `used`, to record without a judgement which "
        "documents were used after it",
    )
    parser.add_argument(
        "ids",
        metavar="ID",
        nargs="*",
        help="id of a document that fits the query (default: the selected documents if right, none "
        "if wrong), or that was used (default: none)",
    )
    parser.add_argument(
        "--decision",
        metavar="ID",
        help="the decision_id of route --json (default: the last decision of the log)",
    )
    parser.add_argument(
        "--skill",
        metavar="NAME",
        help="also teach the index that this skill fits the query: for a log with --log-text, or a "
        "prompt of a transcript of Claude Code",
    )
    parser.add_argument(
        "-i", "--index", metavar="FILE", help="index to teach (default: those of the hooks here)"
    )
    parser.add_argument("--log", metavar="FILE", help=f"the log (default: {LOG_VARIABLE})")


def run(options: argparse.Namespace) -> int:
    """Record the documents that fit a query, or that were used, for `calibrate --from-log`."""
    from crossgate._telemetry.log import JsonLinesLog, LoggedDecision, read_log

    path = log_path(options)
    log = JsonLinesLog(path)
    decision: LoggedDecision | None = None
    for line in read_log(path):
        if isinstance(line, LoggedDecision) and options.decision in (None, line.decision):
            decision = line
    if decision is None:
        log.check()
        which = f" {options.decision!r}" if options.decision else ""
        raise SourceError(
            "no_decisions",
            f"{path} holds no decision{which}: log one with `crossgate route --log {path}`",
        )
    lessons: list[dict[str, Any]] = []
    if options.skill is not None:
        lessons = _teach(options, decision)
        options.ids = list(dict.fromkeys((*options.ids, lessons[0]["skill"])))
    fits = options.ids or (decision.selected if options.judgement == "right" else ())
    judged = options.judgement != "used"
    log.used(decision.decision, fits, judged=judged)
    learned = {"learned": lessons[0], "lessons": lessons} if lessons else {}
    listed = ", ".join(fits) or "no document"
    query = f" for {decision.query!r}" if decision.query else ""
    show_result(
        options.json,
        {"log": path, "decision": decision.decision, "used": list(fits), **learned},
        [
            f"{path}: recorded that {listed} {'fits' if judged else 'was used'}{query}",
            *(line for lesson in lessons for line in lines_of_lesson(lesson)),
        ],
    )
    return DONE


def _teach(options: argparse.Namespace, decision: LoggedDecision) -> list[dict[str, Any]]:
    """Teach indexes that a skill fits the query of a decision."""
    from crossgate._agents.learning.lessons import (
        hook_indexes,
        index_file,
        logged_prompt,
        teach_all,
    )

    targets = [index_file(Path(options.index))] if options.index else hook_indexes()
    prompt = decision.query or logged_prompt(str(decision.trace.get("query_sha256", "")))
    if not prompt:
        raise InputError(
            "no_text",
            "the log holds no texts, and no transcript of Claude Code has the prompt: use "
            f"`crossgate teach PROMPT --skill {options.skill}`",
        )
    return teach_all(targets, prompt, options.skill, fits=True)
