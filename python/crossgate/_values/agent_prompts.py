"""Recognises prompts that no person wrote as a request: commands, and messages of the agent."""

from __future__ import annotations

import json
import re

# `/deploy staging` but not `/usr/bin/env: no such file`; Codex calls a skill by `$name`.
_COMMAND = re.compile(r"\s*(?:/[\w:.-]+|\$[\w:-]+|![^\s!])(?:\s|\Z)|\s*!")
# Beginnings of messages that agents send to themselves, or to each other: notifications, summaries,
# tasks and reports.
_MACHINE = re.compile(
    r"\s*(?:"
    r"<(?:task-notification|system-reminder|ide_(?:opened_file|selection|diagnostics)|command-(?:name|message|args)|local-command|"
    r"bash-(?:input|stdout|stderr)|user-prompt-submit-hook|environment_context|user_instructions|"
    r"(?:teammate|agent|subagent|task)[-_](?:message|result|report|status|task))\b"
    r"|This session is being continued from a previous conversation"
    r"|\[Request interrupted"
    r"|Caveat: The messages below"
    r"|Base directory for this skill:"
    r"|\[(?:subagent|sub-agent|agent|teammate)(?: [\w-]+)?(?: (?:task|report|result))?\]"
    r")"
)


def is_command(text: str) -> bool:
    """Return whether a prompt calls a command by its name."""
    return _COMMAND.match(text) is not None


def is_from_machine(text: str) -> bool:
    """Return whether a prompt is a message of the agent."""
    return _MACHINE.match(text) is not None


def is_hook_input(text: str) -> bool:
    """Return whether a text is the JSON input of a hook."""
    start = text.lstrip("\ufeff \t\r\n")
    if not start.startswith("{"):
        return False
    try:
        values = json.loads(start)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and "hook_event_name" in values
