"""Adds the cross-encoder's scores to a logged decision in the background.

A profile is fitted to the scores of both stages (docs/log.md), but the hook seldom runs stage 2,
because the gate skips it or the budget is too short.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from crossgate._agents.hook.detached import PIPE_BYTES, spawn_detached
from crossgate._agents.hook.session_state import note
from crossgate._support.errors import CrossgateError, first_line
from crossgate._support.files import file_lock


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
        profile: Path of the hook's profile; empty for the bundled profile.
    """
    data = prompt.encode("utf-8", "replace")
    if len(data) <= PIPE_BYTES:
        given = [agent, str(folder), decision, os.path.abspath(log), str(index), profile]
        spawn_detached("crossgate._agents.hook.late_scores", given, data)


def main(arguments: list[str]) -> int:
    """Score one prompt unless another process is scoring; failures are written to the log."""
    agent, folder, decision, log, index, profile = arguments
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    with suppress(AttributeError, OSError):
        os.nice(10)
    with file_lock(Path(folder) / "scoring.lock") as free:
        if free:
            try:
                _score(prompt, decision, log, index, profile)
            except CrossgateError as error:
                values = {"reason": error.code, "detail": first_line(error)}
                note(Path(folder), {"agent": agent, "outcome": "unscored", **values})
    return 0


def _score(prompt: str, decision: str, log: str, index: str, profile: str) -> None:
    from crossgate._decision.router import Router
    from crossgate._retrieval.document_index import Index
    from crossgate._telemetry.log import JsonLinesLog

    opened = Index.open(index)
    fitted = Router(opened, profile=Path(profile).expanduser() if profile else None).profile
    # Without the gate and the early stop, so that stage 2 reads the whole pool.
    answer = fitted.answer.replace(rerank_threshold=None)
    ungated = fitted.replace(winner={}, answer=answer, anytime=None)
    result = Router(opened, profile=ungated).route(prompt)
    if result.trace["reranker"]:
        JsonLinesLog(log).scored(decision, result)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
