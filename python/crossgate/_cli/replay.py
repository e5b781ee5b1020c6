"""`crossgate replay`: make the decisions of a log again, and compare."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from crossgate._cli import BAD_INPUT, DONE
from crossgate._cli.render import plain
from crossgate._replay import Difference, check_decision
from crossgate._telemetry.log import LoggedDecision, LoggedUse, MalformedLine, read_log

DIFFERS = 1
"""Exit code of a log that holds a decision which comes out otherwise now."""

_PROBLEMS_SHOWN = 5


def replay(path: str, progress: Callable[[int, int], None] | None) -> tuple[int, dict[str, Any]]:
    """Make the decisions of a log again, up to the first that differs.

    Malformed lines are named on stderr and passed over.

    Returns:
        The exit code and the outcome.

    Raises:
        SourceError: `source_missing` or `source_unreadable`.
    """
    decisions = uses = malformed = 0
    difference: dict[str, Any] | None = None
    for entry in read_log(path, progress=progress):
        checked = check_decision(entry) if isinstance(entry, LoggedDecision) else entry
        if isinstance(checked, LoggedUse):
            uses += 1
        elif isinstance(checked, MalformedLine):
            malformed += 1
            if malformed <= _PROBLEMS_SHOWN:
                message = plain(f"{path}:{checked.line}: {checked.reason}")
                print(f"crossgate: malformed {message}", file=sys.stderr)
        else:
            decisions += 1
            if isinstance(checked, Difference):
                difference = {"line": entry.line, **asdict(checked)}
                break
    if malformed > _PROBLEMS_SHOWN:
        more = malformed - _PROBLEMS_SHOWN
        print(f"crossgate: and {more} more malformed lines of {plain(path)}", file=sys.stderr)
    outcome = {
        "log": path,
        "decisions": decisions,
        "uses": uses,
        "malformed": malformed,
        "difference": difference,
    }
    return DIFFERS if difference else BAD_INPUT if malformed else DONE, outcome
