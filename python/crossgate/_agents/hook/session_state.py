"""The state of the hook on disk: skills mentioned per session, and a log of outcomes.

Several hooks may write at the same time. Each entry is one write to a file opened for appending,
and damaged lines are skipped on reading. Both files are bounded and hold no text of a prompt.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import crossgate._core as _core

LOG_BYTES = 1_048_576
"""Maximum size of the log before it is rotated; one earlier log is kept."""

SESSION_BYTES = 65_536
SESSIONS = 200
"""Maximum number of sessions; the oldest are deleted first."""

AGAIN_AFTER = 20
"""A skill may be mentioned again after this many prompts of a session, since agents shorten long
conversations."""

_DETAIL_CHARS = 300

BACKGROUND_OUTCOMES = ("indexed", "unscored")
"""Outcomes of work in the background."""


def note(folder: Path, values: dict[str, Any]) -> None:
    """Append a line to the log; failures are ignored."""
    with suppress(OSError, ValueError):
        path = folder / "log.jsonl"
        line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **values}
        if isinstance(line.get("detail"), str):
            line["detail"] = line["detail"][:_DETAIL_CHARS]
        _append(path, json.dumps(line))
        if os.stat(path).st_size > LOG_BYTES:
            _rotate(path, folder / "log.1.jsonl")


def _rotate(path: Path, earlier: Path) -> None:
    from crossgate._support.files import file_lock

    with file_lock(path.with_suffix(".lock")) as free:
        # Another process may have rotated the log since.
        if free and os.stat(path).st_size > LOG_BYTES:
            os.replace(path, earlier)


def read_hook_log(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of the log, oldest first; malformed lines are skipped."""
    for name in ("log.1.jsonl", "log.jsonl"):
        for line in _tail(folder / name, 2 * LOG_BYTES):
            with suppress(ValueError, RecursionError):
                values = json.loads(line)
                if isinstance(values, dict) and isinstance(values.get("outcome"), str):
                    yield values


class Session:
    """The skills that were mentioned in one conversation.

    Args:
        folder: The folder of hooks.
        agent: Name of the agent.
        session: Id of the conversation; nothing is stored for an empty id.
    """

    def __init__(self, folder: Path, agent: str, session: str) -> None:
        name = _core.sha256_of(f"{agent}\0{session}".encode())[:32]
        self._path = folder / "sessions" / f"{name}.jsonl" if session else None
        self._turns = [] if self._path is None else list(_turns(self._path))

    def has_seen(self, id: str) -> bool:
        """Return whether a skill was mentioned recently.

        A mention is no longer recent after a mention of another skill, or `AGAIN_AFTER` prompts.
        """
        for ids in reversed(self._turns[-AGAIN_AFTER:]):
            if ids:
                return id in ids
        return False

    def add(self, ids: Sequence[str]) -> None:
        """Record a prompt and the skills mentioned for it; failures are ignored."""
        if self._path is None:
            return
        with suppress(OSError, ValueError):
            if not os.path.exists(self._path):
                _forget_oldest(self._path.parent)
            elif self._path.stat().st_size > SESSION_BYTES:
                self._path.unlink()
            _append(self._path, json.dumps(list(ids)))


def _turns(path: Path) -> Iterator[list[str]]:
    for line in _tail(path, 2 * SESSION_BYTES):
        with suppress(ValueError, RecursionError):
            values = json.loads(line)
            if isinstance(values, list):
                yield [id for id in values if isinstance(id, str)]


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # O_NONBLOCK: the path may be a pipe, which would block the agent.
    more = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | more, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        os.write(handle, line.encode("ascii", "backslashreplace") + b"\n")
    finally:
        os.close(handle)


def _tail(path: Path, limit: int) -> list[str]:
    """Return the last lines of a file; an empty list if it cannot be read."""
    from crossgate._support.files import open_source

    try:
        with open_source(path) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - limit))
            return stream.read(limit).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _forget_oldest(folder: Path) -> None:
    with suppress(OSError), os.scandir(folder) as entries:
        sessions = sorted((entry.stat().st_mtime_ns, entry.path) for entry in entries)
        for _, path in sessions[: max(0, len(sessions) - SESSIONS + 1)]:
            with suppress(OSError):
                os.unlink(path)
