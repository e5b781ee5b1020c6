"""Makes the index of an agent's skills, if need be in a process that nobody waits for."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from crossgate._agents.hook.detached import spawn_detached
from crossgate._agents.hook.formats import Agent
from crossgate._agents.hook.memory import note
from crossgate._agents.hook.skill_library import SCHEMA, Library, is_stale, seen
from crossgate._support.errors import CrossgateError, first_line
from crossgate._support.files import atomic_write

_KEEP = 40
"""How many indexes are kept; those of projects that nobody opens any more are removed."""


def refresh_if_stale(agent: Agent, library: Library, *, again: bool = False) -> bool:
    """Start a process that makes the index again, if a skill has changed since the last one.

    Args:
        agent: The agent, for the log.
        library: Its skills.
        again: Whether to make it again even if nothing has changed.

    Returns:
        Whether a process was started.
    """
    if not library.sources or not (again or is_stale(library)):
        return False
    options = ["--again"] if again else []
    return spawn_detached(
        "crossgate._agents.hook.refresh",
        [agent.name, str(library.folder), *options, "--", *library.sources],
    )


def build(library: Library, progress: Any = None) -> tuple[int, list[str]]:
    """Make the index of a library, and record what it was made of.

    Texts that have not changed keep their vectors.

    Returns:
        How many skills it holds, and what was left out, and why.

    Raises:
        CrossgateError: If there is no usable skill, or the index cannot be made or written.
        OSError: If the manifest cannot be written.
    """
    from crossgate._retrieval.index import Index
    from crossgate._sources import read_sources

    library.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = seen(library.sources)  # what changes from here on makes it stale again
    made: dict[str, Any] = {"schema": SCHEMA, "sources": list(library.sources), "documents": 0}
    try:
        loaded = read_sources(library.sources, kind="skills")
        earlier = None
        with suppress(CrossgateError):
            opened = Index.open(library.index)
            opened.load()  # a damaged one is not used
            earlier = opened
        index = Index.build(loaded.documents, reuse=earlier, progress=progress)
        index.save(library.index)
        made["documents"] = len(index)
    finally:
        # A build that failed is not tried again until something has changed.
        with atomic_write(library.manifest) as stream:
            json.dump({**made, "seen": before}, stream)
    left_out = [
        str(problem)
        for problem in loaded.problems
        if "a link out of the folder" not in problem.reason
    ]
    return len(index), left_out


@contextmanager
def only_one(path: Path) -> Iterator[bool]:
    """Hold a lock that ends with the process, and yield whether it was free."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def main(arguments: list[str]) -> int:
    """Make an index unless another process is making it; what goes wrong is in the log."""
    name, folder, *rest = arguments
    again = "--again" in rest[: rest.index("--")]
    library = Library(sources=tuple(rest[rest.index("--") + 1 :]), folder=Path(folder))
    with only_one(library.folder / "refresh.lock") as free:
        if not free or not (again or is_stale(library)):
            return 0
        values: dict[str, Any] = {"agent": name, "outcome": "indexed", "reason": "changed"}
        try:
            count, left_out = build(library)
            values["documents"] = count
            if left_out:
                values["detail"] = f"{len(left_out)} left out, the first: {left_out[0]}"
        except (CrossgateError, OSError) as error:
            code = error.code if isinstance(error, CrossgateError) else "index_unwritable"
            values |= {"outcome": "failed", "reason": code, "detail": first_line(error)}
        note(library.folder, values)
        _forget_oldest(library.folder)
    return 0


def _forget_oldest(folder: Path) -> None:
    indexes = sorted(folder.glob("*.cgx"), key=lambda path: path.stat().st_mtime_ns)
    for path in indexes[:-_KEEP]:
        for file in (path, path.with_suffix(".json")):
            with suppress(OSError):
                file.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
