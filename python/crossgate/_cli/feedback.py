"""`crossgate feedback`: record in a log whether a decision was right, or what was used after it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from crossgate._cli import DONE
from crossgate._cli.decision_output import LOG_VARIABLE, log_path
from crossgate._cli.output import show_result
from crossgate._support.errors import SourceError

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
    fits = options.ids or (decision.selected if options.judgement == "right" else ())
    judged = options.judgement != "used"
    log.used(decision.decision, fits, judged=judged)
    listed = ", ".join(fits) or "no document"
    query = f" for {decision.query!r}" if decision.query else ""
    show_result(
        options.json,
        {"log": path, "decision": decision.decision, "used": list(fits)},
        [f"{path}: recorded that {listed} {'fits' if judged else 'was used'}{query}"],
    )
    return DONE
