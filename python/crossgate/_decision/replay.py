"""Replaying a logged decision, and saying where it differs."""

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
        field: The place in the line, such as `trace.decision.places[0][1]`.
        recorded: What the log holds there.
        recomputed: What follows from the rest of the trace.
    """

    field: str
    recorded: Any
    recomputed: Any


def check_decision(logged: LoggedDecision) -> Difference | MalformedLine | None:
    """Decide again from a logged trace, and return the first difference, or None.

    What was selected is compared as well; steps after the reranker, which a trace names under
    `steps`, may have selected otherwise than the cascade.

    Returns:
        A `MalformedLine` for a trace that nothing can be decided from.
    """
    check_kind("the decision", logged, LoggedDecision, "a LoggedDecision of read_log")
    trace = logged.trace
    try:
        recomputed = replay(trace)
        steps = trace.get("steps", [])
        selected = steps[-1]["selected"] if steps else recomputed["decision"]["selected"]
    except _UNREPLAYABLE as error:
        what = f"no {error} in it" if isinstance(error, KeyError) else str(error)
        reason = " ".join(f"the trace cannot be replayed: {what}".split())
        return MalformedLine(line=logged.line, reason=reason[:300])
    for key, value in recomputed.items():
        difference = _difference(f"trace.{key}", trace.get(key), value)
        if difference is not None:
            return difference
    return _difference("selected", list(logged.selected), selected)


# What a trace that comes from anywhere makes the cascade raise.
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
