"""`crossgate replay`: makes the decisions of a log again and compares them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from crossgate._cli import BAD_INPUT, DONE
from crossgate._cli.output import WIDTH, plain, say, show_result
from crossgate._decision.log_replay import Difference, check_decision
from crossgate._support.progress import progress
from crossgate._support.sanitize import fit
from crossgate._support.wording import counted
from crossgate._telemetry.log import (
    LoggedDecision,
    LoggedScores,
    LoggedUse,
    MalformedLine,
    read_log,
)

DIFFERS = 1
"""Exit code for a log with a decision that differs."""

_PROBLEMS_SHOWN = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("log", metavar="LOG", help="file written by --log")


def run(options: argparse.Namespace) -> int:
    """Make the decisions again, up to the first that differs."""
    with progress("replaying") as report:
        outcome = _replayed(options.log, report)
    show_result(options.json, outcome, [_text(outcome)])
    if outcome["difference"]:
        return DIFFERS
    return BAD_INPUT if outcome["malformed"] else DONE


def _replayed(path: str, report: Callable[[int, int], None] | None) -> dict[str, Any]:
    """Replay a log and return the counts; malformed lines are reported on stderr and skipped."""
    decisions = uses = malformed = 0
    difference: dict[str, Any] | None = None
    for entry in read_log(path, progress=report):
        checked = check_decision(entry) if isinstance(entry, LoggedDecision) else entry
        if isinstance(checked, LoggedScores):
            continue  # for calibration, not part of the decision
        if isinstance(checked, LoggedUse):
            uses += 1
        elif isinstance(checked, MalformedLine):
            malformed += 1
            if malformed <= _PROBLEMS_SHOWN:
                say(f"malformed {path}:{checked.line}: {checked.reason}")
        else:
            decisions += 1
            if isinstance(checked, Difference):
                difference = {"line": entry.line, **asdict(checked)}
                break
    if malformed > _PROBLEMS_SHOWN:
        say(f"and {malformed - _PROBLEMS_SHOWN} more malformed lines of {path}")
    return {
        "log": path,
        "decisions": decisions,
        "uses": uses,
        "malformed": malformed,
        "difference": difference,
    }


def _text(outcome: Mapping[str, Any]) -> str:
    """Return the summary, or the first difference."""
    count, difference = outcome["decisions"], outcome["difference"]
    if difference is None:
        skipped = (
            f", {counted(outcome['malformed'], 'malformed line')}" if outcome["malformed"] else ""
        )
        return f"{counted(count, 'decision')} made again, all equal{skipped}"
    recorded, recomputed = (
        fit(plain(json.dumps(difference[key])), WIDTH - 10) for key in ("recorded", "recomputed")
    )
    return "\n".join(
        [
            plain(f"{outcome['log']}:{difference['line']}: {difference['field']} differs"),
            f"  logged  {recorded}",
            f"  now     {recomputed}",
        ]
    )
