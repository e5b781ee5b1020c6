"""Adds the cross-encoder's scores to a logged decision for which the prompt did not wait for them.

A profile is fitted to the scores of both stages (docs/log.md). The hook seldom asks stage 2: the
gate skips it, or there is no time. So it is asked afterwards, one prompt at a time.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from crossgate._agents.hook.detached import PIPE_BYTES, spawn_detached
from crossgate._agents.hook.memory import note
from crossgate._agents.hook.refresh import only_one
from crossgate._support.errors import CrossgateError, first_line


def score_later(
    agent: str, folder: Path, prompt: str, *, decision: str, log: str, index: Path, profile: str
) -> None:
    """Start a process that adds the scores of a prompt to the log; very long prompts get none.

    Args:
        agent: Name of the agent.
        folder: The folder of hooks.
        prompt: What the person wrote.
        decision: Id of the decision.
        log: The log with the decision.
        index: The index that made it.
        profile: The hook's profile; empty for the bundled one.
    """
    data = prompt.encode("utf-8", "replace")
    if len(data) <= PIPE_BYTES:
        given = [agent, str(folder), decision, os.path.abspath(log), str(index), profile]
        spawn_detached("crossgate._agents.hook.late_scores", given, data)


def main(arguments: list[str]) -> int:
    """Ask the cross-encoder unless another process does; what goes wrong is in the hooks' log."""
    agent, folder, decision, log, index, profile = arguments
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    with suppress(AttributeError, OSError):
        os.nice(10)
    with only_one(Path(folder) / "scoring.lock") as free:
        if free:
            try:
                _score(prompt, decision, log, index, profile)
            except CrossgateError as error:
                values = {"reason": error.code, "detail": first_line(error)}
                note(Path(folder), {"agent": agent, "outcome": "unscored", **values})
    return 0


def _score(prompt: str, decision: str, log: str, index: str, profile: str) -> None:
    from crossgate._decision.router import Router
    from crossgate._evaluation.runs.modes import profile_of
    from crossgate._retrieval.index import Index
    from crossgate._telemetry.log import JsonLinesLog

    opened = Index.open(index)
    fitted = Router(opened, profile=Path(profile).expanduser() if profile else None).profile
    result = Router(opened, profile=profile_of("always", fitted)).route(prompt)
    if result.trace["reranker"]:
        JsonLinesLog(log).scored(decision, result)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
