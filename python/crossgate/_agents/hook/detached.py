"""Work in detached processes that outlive the hook: new indexes, and scores of stage 2.

A profile is fitted to the scores of both stages (docs/log.md), but the hook seldom runs stage 2,
because the gate skips it or the budget is too short.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from crossgate._agents.hook.agents import AGENTS, Agent
from crossgate._agents.hook.session_state import note
from crossgate._agents.hook.skill_library import SkillLibrary, build, is_stale, plugin_folders
from crossgate._support.errors import CrossgateError, first_line
from crossgate._support.files import file_lock

_PIPE_BYTES = 16_384
"""Size of the smallest pipe buffer of the supported systems: such a write never blocks."""

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
        "rebuild", [agent.name, str(library.folder), *options, "--", *library.sources]
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


def score_later(
    agent: str, folder: Path, prompt: str, *, decision: str, log: str, index: Path, profile: str
) -> None:
    """Start a process that adds the scores of a prompt to the log; long prompts are left out.

    Args:
        agent: Name of the agent.
        folder: The folder of hooks.
        prompt: The text of the prompt.
        decision: Id of the decision.
        log: The log of decisions.
        index: The index of the decision.
        profile: Path of the hook's profile, or the name of a bundled one; empty for the one beside
            the index, or `default`.
    """
    data = prompt.encode("utf-8", "replace")
    if len(data) <= _PIPE_BYTES:
        paths = [os.path.abspath(log), str(index), profile]
        spawn_detached("score", [agent, str(folder), decision, *paths], data)


def spawn_detached(task: str, arguments: list[str], data: bytes = b"") -> bool:
    """Start a detached process of this module, and return whether it was started.

    Args:
        task: `rebuild` or `score`.
        arguments: Its arguments; other users of the machine can see them.
        data: The input on stdin, which other users cannot see; at most `_PIPE_BYTES`.
    """
    separation: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS
        separation = {"creationflags": flags}
    with suppress(OSError, ValueError):
        child = subprocess.Popen(  # noqa: S603, our own module
            # The working folder is not trusted: without -P, Python would import modules from it.
            [sys.executable, "-P", "-m", __name__, task, *arguments],
            stdin=subprocess.PIPE if data else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            **separation,
        )
        child.returncode = 0  # this process never waits for the child
        if child.stdin is not None:
            with child.stdin:
                child.stdin.write(data)
        return True
    return False


def _rebuild(arguments: list[str]) -> None:
    """Build an index unless another process is building; failures are written to the log."""
    name, folder, *rest = arguments
    again = "--again" in rest[: rest.index("--")]
    library = SkillLibrary(
        sources=tuple(rest[rest.index("--") + 1 :]),
        folder=Path(folder),
        namespaces=plugin_folders(AGENTS[name]),
    )
    with file_lock(library.folder / "refresh.lock") as free:
        if not free or not (again or is_stale(library)):
            return
        values: dict[str, Any] = {"agent": name, "outcome": "indexed", "reason": "changed"}
        try:
            count, left_out = build(AGENTS[name], library)
            values["documents"] = count
            if left_out:
                values["detail"] = f"{len(left_out)} left out, the first: {left_out[0]}"
        except (CrossgateError, OSError) as error:
            code = error.code if isinstance(error, CrossgateError) else "index_unwritable"
            values |= {"outcome": "failed", "reason": code, "detail": first_line(error)}
        note(library.folder, values)
        _forget_oldest(library.folder)


def _score(arguments: list[str]) -> None:
    """Score one prompt unless another process is scoring; failures are written to the log."""
    agent, folder, decision, log, index, profile = arguments
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    with suppress(AttributeError, OSError):
        os.nice(10)
    with file_lock(Path(folder) / "scoring.lock") as free:
        if free:
            try:
                _add_scores(prompt, decision, log, index, profile)
            except CrossgateError as error:
                values = {"reason": error.code, "detail": first_line(error)}
                note(Path(folder), {"agent": agent, "outcome": "unscored", **values})


def _add_scores(prompt: str, decision: str, log: str, index: str, profile: str) -> None:
    from crossgate._decision.router import Router
    from crossgate._retrieval.document_index import Index
    from crossgate._telemetry.log import JsonLinesLog

    opened = Index.open(index)
    fitted = Router(opened, profile=os.path.expanduser(profile) if profile else None).profile
    # Without the gate and the early stop, so that stage 2 reads the whole pool.
    answer = fitted.answer.replace(rerank_threshold=None)
    ungated = fitted.replace(winner={}, answer=answer, anytime=None)
    result = Router(opened, profile=ungated).route(prompt)
    if result.trace["reranker"]:
        JsonLinesLog(log).scored(decision, result)


def _forget_oldest(folder: Path) -> None:
    indexes = sorted(folder.glob("*.cgx"), key=lambda path: path.stat().st_mtime_ns)
    for path in indexes[:-_KEEP]:
        for file in (path, path.with_suffix(".json"), path.with_suffix(".checked")):
            with suppress(OSError):
                file.unlink()


if __name__ == "__main__":
    {"rebuild": _rebuild, "score": _score}[sys.argv[1]](sys.argv[2:])
