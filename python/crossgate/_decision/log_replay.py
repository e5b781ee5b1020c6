"""Replays logged decisions and finds the first difference."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from crossgate._decision.cascade import replay
from crossgate._support.checks import check_kind
from crossgate._support.errors import CrossgateError
from crossgate._telemetry.log import LoggedDecision, MalformedLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a replayed decision differs from the logged one.

    Attributes:
        field: Path of the value, such as `trace.decision.places[0][1]`.
        recorded: The value in the log.
        recomputed: The value that follows from the rest of the trace.
    """

    field: str
    recorded: Any
    recomputed: Any


def check_decision(logged: LoggedDecision) -> Difference | MalformedLine | None:
    """Decide again from a logged trace, and return the first difference, or None.

    The selection is compared as well. Later pipeline steps, under `steps` in the trace, may have
    selected other documents than the cascade.

    Returns:
        A `MalformedLine` for a trace that cannot be replayed.
    """
    check_kind("the decision", logged, LoggedDecision, "a LoggedDecision of read_log")
    trace = logged.trace
    try:
        recomputed = replay(trace)
        steps = trace.get("steps", [])
        selected = steps[-1]["selected"] if steps else recomputed["decision"]["selected"]
    except _UNREPLAYABLE as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        reason = " ".join(f"the trace cannot be replayed: {what}".split())
        return MalformedLine(line=logged.line, reason=reason[:300])
    for key, value in recomputed.items():
        difference = _difference(f"trace.{key}", trace.get(key), value)
        if difference is not None:
            return difference
    return _difference("selected", list(logged.selected), selected)


# Exceptions that a malformed trace can cause.
_UNREPLAYABLE = (
    CrossgateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def _difference(field: str, recorded: Any, recomputed: Any) -> Difference | None:
    if isinstance(recorded, dict) and isinstance(recomputed, dict):
        parts = [
            (f"{field}.{key}", recorded.get(key, _ABSENT), recomputed.get(key, _ABSENT))
            for key in {**recomputed, **recorded}
        ]
    elif isinstance(recorded, list) and isinstance(recomputed, list):
        parts = [
            (f"{field}[{position}]", *pair)
            for position, pair in enumerate(zip_longest(recorded, recomputed, fillvalue=_ABSENT))
        ]
    elif recorded == recomputed and isinstance(recorded, bool) == isinstance(recomputed, bool):
        return None
    else:
        return Difference(field=field, recorded=recorded, recomputed=recomputed)
    return next(
        (difference for part in parts if (difference := _difference(*part)) is not None), None
    )


_ABSENT = "(absent)"
