"""`crossgate used`: note in a log what was used of a decision."""

from __future__ import annotations

import argparse

from crossgate._cli import DONE
from crossgate._cli.decision import LOG_VARIABLE, log_path
from crossgate._cli.output import json_option, show, show_json
from crossgate._errors import InputError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.set_defaults(run=run)
    json_option(parser)
    parser.add_argument("decision", metavar="DECISION", help="the decision_id of route --json")
    parser.add_argument("ids", metavar="ID", nargs="*", help="what was used")
    parser.add_argument("--log", metavar="FILE", help="the log (default: CROSSGATE_LOG)")


def run(options: argparse.Namespace) -> int:
    """Append the note."""
    from crossgate._telemetry.log import JsonLinesLog

    path = log_path(options)
    if path is None:
        raise InputError("out_of_range", f"no log: name one with --log FILE or {LOG_VARIABLE}")
    JsonLinesLog(path).used(options.decision, options.ids)
    if options.json:
        show_json({"log": path, "decision": options.decision, "used": options.ids})
    else:
        show(f"{path}: {len(options.ids)} used of {options.decision}")
    return DONE
