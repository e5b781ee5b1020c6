"""Replays the prompts of transcripts as the prompt hook would answer them with other options."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from crossgate._agents.hook.agents import Agent, HookPrompt
from crossgate._agents.hook.answer import answer, fitted, index_of
from crossgate._agents.hook.options import MIN_CONFIDENCE, HookOptions
from crossgate._agents.hook.skill_library import SkillLibrary, library_of
from crossgate._agents.learning.adoption import same_skill
from crossgate._retrieval.document_index import Index
from crossgate._sources.transcripts import Turn
from crossgate._support.errors import CrossgateError
from crossgate._values.profile_files import read_profile

if TYPE_CHECKING:
    from crossgate._core import Profile

MOST_PROMPTS = 100
"""The newest prompts are replayed, at most this many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What the hook would have done.

    Attributes:
        prompts: Number of prompts that were replayed.
        shown: Prompts for which the agent would have got a context.
        followed: Those of which the agent opened a skill that the context has.
        needless: The others of them.
        missed: Prompts without that context for which the agent opened a skill.
    """

    prompts: int
    shown: int
    followed: int
    needless: int
    missed: int


def without_effect(options: HookOptions, agent: Agent) -> str:
    """Return a sentence if the profile asks for more confidence than the options; else empty."""
    with suppress(CrossgateError, OSError):
        library = library_of(agent, os.getcwd(), options.skills)
        index = Index.open(index_of(options, library))
        profile: Profile = fitted(index, options).get("profile", read_profile("default"))
        # The default of the option is not a wish.
        if options.min_confidence < min(profile.answer.confidence or 0.0, MIN_CONFIDENCE):
            return (
                f"--min-confidence {options.min_confidence:g} has no effect: the profile "
                f"{profile.name!r} asks for {profile.answer.confidence:g}"
            )
    return ""


def replay(
    turns: Sequence[Turn],
    agent: Agent,
    options: HookOptions,
    library: SkillLibrary,
    *,
    seconds: float = 60.0,
) -> Replayed:
    """Answer the newest prompts of transcripts, each without its project and its history.

    Args:
        turns: The prompts.
        agent: The agent.
        options: The options of the hook.
        library: The agent's skills; nothing is written to its folder.
        seconds: Prompts that are left after this time are not replayed.
    """
    newest = sorted(turns, key=lambda turn: turn.time)[-MOST_PROMPTS:]
    until, prompts, shown, followed, missed = time.monotonic() + seconds, 0, 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="crossgate-") as folder:
        # Which skills a session has seen is kept beside the index.
        for file in (library.index, library.lessons):
            if os.path.exists(file):
                os.symlink(file, Path(folder) / file.name)
        apart = replace(library, folder=Path(folder))
        for turn in newest:
            now = time.monotonic()
            if now > until:
                break
            prompt = HookPrompt.of(turn.text, session=os.fsdecode(turn.path), folder="")
            answered = answer(agent, prompt, options, apart, started=now, log=False)
            names = answered.names if answered.outcome in ("injected", "shadow") else ()
            opened = any(same_skill(name, other) for name in names for other in turn.opened)
            prompts += 1
            shown += bool(names)
            followed += opened
            missed += bool(turn.opened) and not opened
    return Replayed(
        prompts=prompts, shown=shown, followed=followed, needless=shown - followed, missed=missed
    )
