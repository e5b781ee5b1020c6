"""What of an agent's prompt a person wrote: commands and what the agent itself puts in are none."""

from __future__ import annotations

import re

# `/deploy staging`, and not `/usr/bin/env: no such file`; `$name` is how Codex calls a skill.
_COMMAND = re.compile(r"\s*(?:/[\w:.-]+|\$[\w:-]+|![^\s!])(?:\s|\Z)|\s*!")
# What agents put into the prompt in place of a person.
_MACHINE = re.compile(
    r"\s*<(?:task-notification|system-reminder|command-(?:name|message|args)|local-command|"
    r"bash-(?:input|stdout|stderr)|user-prompt-submit-hook)\b"
)


def is_command(text: str) -> bool:
    """Return whether a prompt calls a command by its name, so that nothing is left to choose."""
    return _COMMAND.match(text) is not None


def is_from_machine(text: str) -> bool:
    """Return whether the agent wrote a prompt in place of a person."""
    return _MACHINE.match(text) is not None
