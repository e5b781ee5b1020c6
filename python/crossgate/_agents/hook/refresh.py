"""Builds the index of an agent's skills, in the foreground or in a background process."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from crossgate._agents.hook.detached import spawn_detached
from crossgate._agents.hook.formats import Agent
from crossgate._agents.hook.session_state import note
from crossgate._agents.hook.skill_library import (
    MOST_ENTRIES,
    SCHEMA,
    SkillLibrary,
    is_stale,
    watched,
)
from crossgate._support.errors import CrossgateError, first_line
from crossgate._support.files import atomic_write, file_lock

_CHECK_SECONDS = 60.0
"""Time between two searches for changes in a library that is too large to search in a prompt."""

_KEEP = 40
"""Maximum number of indexes; the oldest are deleted first."""


def refresh_if_stale(agent: Agent, library: SkillLibrary, *, again: bool = False) -> bool:
    """Start a process that rebuilds the index, if a skill has changed since the last build.

    Args:
        agent: The agent, for the log.
        library: The agent's skills.
        again: Whether to rebuild the index even if nothing has changed.

    Returns:
        Whether a process was started.
    """
    if not library.sources:
        return False
    if not again:
        stale = is_stale(library, quick=True)
        if stale is False or (stale is None and not _is_due(library)):
            return False
    options = ["--again"] if again else []
    return spawn_detached(
        "crossgate._agents.hook.refresh",
        [agent.name, str(library.folder), *options, "--", *library.sources],
    )


def _is_due(library: SkillLibrary) -> bool:
    """Return whether a search in the background is due, and record that one begins."""
    path = library.manifest.with_suffix(".checked")
    with suppress(OSError):
        if 0 <= time.time() - path.stat().st_mtime < _CHECK_SECONDS:
            return False
    with suppress(OSError):
        path.touch()
    return True


def build(library: SkillLibrary, progress: Any = None) -> tuple[int, list[str]]:
    """Build the index of a library, and write a manifest of the files.

    Unchanged texts keep their vectors.

    Returns:
        The number of skills, and a line for each skill that was left out.

    Raises:
        CrossgateError: If there is no usable skill, or the index cannot be built or written.
        OSError: If the manifest cannot be written.
    """
    from crossgate._retrieval.document_index import Index
    from crossgate._sources.examples import examples_beside, examples_lock, teach_examples
    from crossgate._sources.reading import read_sources

    library.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = watched(library)  # before reading, so that later changes are noticed
    made: dict[str, Any] = {"schema": SCHEMA, "sources": list(library.sources), "documents": 0}
    try:
        loaded = read_sources(library.sources, kind="skills")
        earlier = None
        with suppress(CrossgateError):
            opened = Index.open(library.index)
            opened.load()  # raises for a damaged index
            earlier = opened
        index = Index.build(loaded.documents, reuse=earlier, progress=progress)
        with examples_lock(library.lessons):
            # Earlier versions kept the lessons beside each index.
            for examples in (examples_beside(library.index), library.lessons):
                with suppress(CrossgateError):  # a broken file must not disable the hook
                    teach_examples(index, examples)
            index.save(library.index)
        made["documents"] = len(index)
    finally:
        # A failed build is repeated only after a change.
        with atomic_write(library.manifest) as stream:
            json.dump({**made, "seen": before}, stream)
    left_out = [
        str(problem)
        for problem in loaded.problems
        if "a link out of the folder" not in problem.reason
    ]
    if len(before) >= MOST_ENTRIES:
        left_out.append(
            f"the folders have more than {MOST_ENTRIES:,} files: changes beyond are noticed only "
            "by `crossgate hook install`"
        )
    return len(index), left_out


def main(arguments: list[str]) -> int:
    """Build an index unless another process is building; failures are written to the log."""
    name, folder, *rest = arguments
    again = "--again" in rest[: rest.index("--")]
    library = SkillLibrary(sources=tuple(rest[rest.index("--") + 1 :]), folder=Path(folder))
    with file_lock(library.folder / "refresh.lock") as free:
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
        for file in (path, path.with_suffix(".json"), path.with_suffix(".checked")):
            with suppress(OSError):
                file.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
