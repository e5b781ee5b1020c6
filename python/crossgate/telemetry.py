"""Telemetry of decisions: events for a hook, the decision log, OpenTelemetry.

from crossgate.telemetry import JsonLinesLog

router = Router(index, telemetry=JsonLinesLog("decisions.jsonl"))
"""

from crossgate._decision.log_replay import Difference, check_decision
from crossgate._telemetry.events import Event, TelemetryHook
from crossgate._telemetry.log import (
    JsonLinesLog,
    LoggedDecision,
    LoggedScores,
    LoggedUse,
    MalformedLine,
    read_log,
)
from crossgate._telemetry.otel import OpenTelemetryHook

__all__ = [
    "Difference",
    "Event",
    "JsonLinesLog",
    "LoggedDecision",
    "LoggedScores",
    "LoggedUse",
    "MalformedLine",
    "OpenTelemetryHook",
    "TelemetryHook",
    "check_decision",
    "read_log",
]
