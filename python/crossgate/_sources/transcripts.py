"""Reads transcripts of Claude Code: the prompts, and the skills that were opened after each.

The agent keeps one file of JSON lines for each conversation below `~/.claude/projects`. A skill is
opened by a call of the tool `Skill` with its name, or of any tool with the path of its SKILL.md.
The format is not documented. This reader was checked against public transcripts of versions 2.0 and
2.1 (2025 and 2026); lines of another shape are skipped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossgate._support.checks import check_path
from crossgate._support.errors import SourceError
from crossgate._support.files import open_source
from crossgate._support.limits import EVALUATION_BYTES, ROW_BYTES
from crossgate._values.agent_prompts import is_command, words_of

TAIL_BYTES = 512 * 1024
"""Bytes at the end of a transcript in which the last prompts are looked for."""

SKILL_FILE = re.compile(r"([^/\\\s\"'`]+)[/\\]+SKILL\.md\b")
"""Matches the path of a SKILL.md in a text; the first group is the folder's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A prompt of the user, and the skills that were opened before the next prompt.

    Attributes:
        path: The transcript.
        line: Number of the prompt's line in it, from 1.
        text: The prompt.
        opened: Names of the skills in the order of their first use; a name may have the prefix of
            its plug-in, as in `plugin:name`.
        time: Time of the prompt in ISO 8601, as the agent wrote it; may be empty.
    """

    path: Path
    line: int
    text: str
    opened: tuple[str, ...]
    time: str = ""


def transcripts_below(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the transcripts below a folder, or the named file.

    A symbolic link that leads out of the folder is not followed.

    Raises:
        SourceError: `source_missing`, or `no_transcripts` for a folder without transcripts.
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
    """Yield the prompts of the user in a transcript, in order.

    Commands such as `/compact` and prompts between agents are left out. Lines that are damaged or
    longer than 16 MiB are skipped, and a file is read up to a limit.

    Raises:
        OSError: If the file cannot be read.
    """
    text, line, time, opened = "", 0, "", dict[str, None]()
    for number, values in _lines(path):
        prompt = _prompt(values)
        if prompt is None:
            opened.update(dict.fromkeys(_opened(values)))
            continue
        if text:
            yield Turn(path=path, line=line, text=text, opened=tuple(opened), time=time)
        # Skills that are opened after a command belong to the command.
        text = "" if is_command(prompt) else prompt
        stamp = values.get("timestamp")
        line, time, opened = number, stamp if isinstance(stamp, str) else "", {}
    if text:
        yield Turn(path=path, line=line, text=text, opened=tuple(opened), time=time)


def last_requests(path: Path, *, most: int = 8, tail: int = TAIL_BYTES) -> list[str]:
    """Return the last prompts of the user in a transcript, oldest first.

    Commands, and prompts that an agent wrote, are left out.

    Args:
        path: The transcript.
        most: Maximum number of prompts.
        tail: Bytes that are read, from the end of the file.

    Raises:
        OSError: If the file cannot be read.
    """
    with open_source(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - tail))
        lines = stream.read(tail).split(b"\n")
    if size > tail:
        del lines[0]  # cut
    found: list[str] = []
    for raw in reversed(lines):
        values = _values(raw)
        prompt = None if values is None else _prompt(values)
        if prompt is not None and not is_command(prompt):
            found.append(prompt)
            if len(found) == most:
                break
    return found[::-1]


def _values(raw: bytes) -> dict[str, Any] | None:
    """Return the values of a line of the conversation; None for other lines."""
    # Most lines are results of tools: skipping them saves nine tenths of the time.
    if b'"user"' not in raw and b'"tool_use"' not in raw:
        return None
    try:
        values = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    is_main = isinstance(values, dict) and values.get("isSidechain") is not True
    return values if is_main else None


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
            values = _values(raw)
            if values is not None:
                yield number, values


def _prompt(values: dict[str, Any]) -> str | None:
    """Return the user's text in a line; None for other lines."""
    if values.get("type") != "user" or values.get("isMeta") or values.get("isCompactSummary"):
        return None
    text = "\n".join(
        words
        for block in _blocks(values)
        if block.get("type") == "text"
        and isinstance(block.get("text"), str)
        # An editor may put the open file into a block of its own before the prompt.
        and (words := words_of(block["text"]))
    )
    return text if text.strip() else None


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
            # Not the content of written files, which may quote any path.
            named = (given.get(key) for key in ("file_path", "path", "command"))
            for value in named:
                if isinstance(value, str):
                    yield from SKILL_FILE.findall(value)


def _blocks(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    message = values.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))
