"""`crossgate feedback`: record whether the last decision of a log was right."""

from __future__ import annotations

import argparse

from crossgate._cli import DONE
from crossgate._cli.decision import LOG_VARIABLE, log_path
from crossgate._cli.output import json_option, show, show_json
from crossgate._support.errors import SourceError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.set_defaults(run=run)
    json_option(parser)
    parser.add_argument(
        "judgement", choices=["right", "wrong"], help="whether the last decision was right"
    )
    parser.add_argument(
        "ids",
        metavar="ID",
        nargs="*",
        help="id of a document that fits the query (default: the selected documents if right, none "
        "if wrong)",
    )
    parser.add_argument("--log", metavar="FILE", help=f"the log (default: {LOG_VARIABLE})")


def run(options: argparse.Namespace) -> int:
    """Record the documents that fit the last query, for `calibrate --from-log`."""
    from crossgate._telemetry.log import JsonLinesLog, LoggedDecision, read_log

    path = log_path(options)
    last: LoggedDecision | None = None
    for line in read_log(path):
        if isinstance(line, LoggedDecision):
            last = line
    if last is None:
        raise SourceError(
            "no_decisions", f"{path} holds no decision: log one with `crossgate route --log {path}`"
        )
    fits = options.ids or (last.selected if options.judgement == "right" else ())
    JsonLinesLog(path).used(last.decision, fits, judged=True)
    if options.json:
        show_json({"log": path, "decision": last.decision, "used": list(fits)})
    else:
        listed = ", ".join(fits) or "no document"
        query = f" for {last.query!r}" if last.query else ""
        show(f"{path}: recorded that {listed} fits{query}")
    return DONE
