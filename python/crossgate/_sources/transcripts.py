"""Transcripts of Claude Code: what a person asked, and which skills the agent opened for it.

The agent keeps one file of JSON lines for each conversation below `~/.claude/projects`. A skill was
opened where the tool `Skill` was called with its name, or any tool with the path of its SKILL.md.
The format is not documented; what is read of it was checked against public transcripts of versions
2.0 and 2.1 (2025 and 2026), and lines of any other shape are passed over.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossgate._sources.agent_prompts import is_command, is_from_machine
from crossgate._support.checks import check_path
from crossgate._support.errors import SourceError
from crossgate._support.files import open_source
from crossgate._support.limits import EVALUATION_BYTES, ROW_BYTES

SKILL_FILE = re.compile(r"([^/\\\s\"'`]+)[/\\]+SKILL\.md\b")
"""The folder of a skill's file, which is the skill's name, in whatever text names the path."""

# What the agent says in the person's name when it goes on after a break.
_CONTINUED = (
    "This session is being continued from a previous conversation",
    "[Request interrupted",
    "Caveat: The messages below",
    "Base directory for this skill:",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One prompt of a person, and what the agent opened before the next one.

    Attributes:
        path: The transcript.
        line: Number of the prompt's line in it, from 1.
        text: The prompt.
        opened: Names of the skills, in the order in which they were opened, each once; a name may
            have its plug-in before it, as in `plugin:name`.
    """

    path: Path
    line: int
    text: str
    opened: tuple[str, ...]


def transcripts_below(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the transcripts of a folder and the folders in it, or the one file that is named.

    A symbolic link that leads out of the folder is not followed.

    Raises:
        SourceError: `source_missing`, or `no_transcripts` if there is none.
    """
    root = Path(check_path("the transcripts", folder))
    if os.path.isfile(root):
        return [root]
    if not os.path.isdir(root):
        raise SourceError("source_missing", f"no such folder: {root}")
    real = os.path.realpath(root)
    found = sorted(
        path
        for path in root.rglob("*.jsonl")
        if os.path.isfile(path) and Path(os.path.realpath(path)).is_relative_to(real)
    )
    if not found:
        message = (
            f"{root} holds no transcript (*.jsonl): Claude Code has them in ~/.claude/projects"
        )
        raise SourceError("no_transcripts", message)
    return found


def read_turns(path: Path) -> Iterator[Turn]:
    """Yield the prompts of one transcript that a person wrote, in their order.

    Commands such as `/compact` are left out, and so is what agents ask each other. Lines that are
    damaged or longer than 16 MiB say nothing, and a file that is too long is read to its limit.

    Raises:
        OSError: If the file cannot be read.
    """
    text, line, opened = "", 0, dict[str, None]()
    for number, values in _lines(path):
        prompt = _prompt(values)
        if prompt is None:
            opened.update(dict.fromkeys(_opened(values)))
            continue
        if text:
            yield Turn(path=path, line=line, text=text, opened=tuple(opened))
        # What follows a command was opened for the command.
        text = "" if is_command(prompt) else prompt
        line, opened = number, {}
    if text:
        yield Turn(path=path, line=line, text=text, opened=tuple(opened))


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    left, number = EVALUATION_BYTES, 0
    with open_source(path) as stream:
        while raw := stream.readline(min(left, ROW_BYTES)):
            left -= len(raw)
            number += 1
            if len(raw) == ROW_BYTES and not raw.endswith(b"\n"):
                while left and raw and not raw.endswith(b"\n"):
                    raw = stream.readline(min(left, ROW_BYTES))
                    left -= len(raw)
                continue
            # Most lines are results of tools; reading those that matter takes a tenth of the time.
            if b'"user"' not in raw and b'"tool_use"' not in raw:
                continue
            try:
                values = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(values, dict) and values.get("isSidechain") is not True:
                yield number, values


def _prompt(values: dict[str, Any]) -> str | None:
    """Return what a person wrote in a line; None for a line of anything else."""
    if values.get("type") != "user" or values.get("isMeta") or values.get("isCompactSummary"):
        return None
    text = "\n".join(
        block["text"]
        for block in _blocks(values)
        if block.get("type") == "text" and isinstance(block.get("text"), str)
    )
    if not text.strip() or is_from_machine(text) or text.lstrip().startswith(_CONTINUED):
        return None
    return text


def _opened(values: dict[str, Any]) -> Iterator[str]:
    """Yield the skills that a line of the agent opens."""
    if values.get("type") != "assistant":
        return
    for block in _blocks(values):
        given = block.get("input")
        if block.get("type") != "tool_use" or not isinstance(given, dict):
            continue
        # Earlier versions named the skill `command`.
        name = given.get("skill", given.get("command")) if block.get("name") == "Skill" else None
        if isinstance(name, str) and name.strip():
            yield name.strip().lstrip("/")
        else:
            # Not what is written into files, which may quote any path.
            told = (given.get(key) for key in ("file_path", "path", "command"))
            for value in told:
                if isinstance(value, str):
                    yield from SKILL_FILE.findall(value)


def _blocks(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    message = values.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, list):
        yield from (one for one in content if isinstance(one, dict))
