"""`crossgate used`: record in a log which documents were used after a decision."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from crossgate._cli import DONE
from crossgate._cli.decision_output import LOG_VARIABLE, log_path
from crossgate._cli.output import json_option, show, show_json
from crossgate._support.errors import InputError
from crossgate._support.wording import counted


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.set_defaults(run=run)
    parser.usage = "crossgate used [OPTION...] DECISION [ID...] | --from-transcripts FOLDER"
    json_option(parser)
    parser.add_argument(
        "decision", metavar="DECISION", nargs="?", help="the decision_id of route --json"
    )
    parser.add_argument("ids", metavar="ID", nargs="*", help="id of a used document")
    parser.add_argument(
        "--from-transcripts",
        metavar="FOLDER",
        help="read the used skills of every decision from Claude Code's transcripts, such as those "
        "in ~/.claude/projects",
    )
    parser.add_argument("--log", metavar="FILE", help=f"the log (default: {LOG_VARIABLE})")


def run(options: argparse.Namespace) -> int:
    """Append one record, or one for each decision in the transcripts."""
    from crossgate._telemetry.log import JsonLinesLog

    path = log_path(options)
    if (options.decision is None) == (options.from_transcripts is None):
        message = "name a decision and its used ids, or a folder with --from-transcripts"
        raise InputError("out_of_range", message)
    if options.from_transcripts is not None:
        return _from_transcripts(path, options)
    JsonLinesLog(path).used(options.decision, options.ids)
    if options.json:
        show_json({"log": path, "decision": options.decision, "used": options.ids})
    else:
        show(f"{path}: recorded {len(options.ids)} used for {options.decision}")
    return DONE


def _from_transcripts(path: str, options: argparse.Namespace) -> int:
    from crossgate._telemetry.transcript_uses import record_opened

    noted = record_opened(path, options.from_transcripts)
    if options.json:
        show_json({"log": path, **asdict(noted)})
    else:
        rest = noted.decisions - noted.known - noted.opened - noted.unopened
        show(
            f"{path}: {counted(noted.decisions, 'decision')}: a skill was opened for "
            f"{noted.opened}, none for {noted.unopened}; {noted.known} were already recorded, "
            f"{rest} are in no transcript"
        )
    return DONE
