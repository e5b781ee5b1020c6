"""What each agent sends to its prompt hook, what it takes back, and where it keeps its files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMPT_CHARS = 65_536
"""How much of a prompt is read, in characters; the rest is cut off."""

TRIAL = "crossgate_trial"
"""This key marks a call as a trial: its answer is neither counted nor kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent's interface.

    Attributes:
        name: Its name for `crossgate hook`.
        event: The event that calls its hook; empty if a plug-in calls it.
        home: Its own folder below the home folder.
        home_variable: Environment variable that names another folder instead of `home`.
        project_variable: Environment variable that names the project's folder.
        user_skills: Folders of skills below the home folder.
        own_skills: Folders of skills below its own folder.
        project_skills: Folders of skills below a project.
        settings: The file with its hooks, or its plug-in, below its own folder.
        project_settings: The same below a project.
        seconds: The unit of a hook's time limit, in seconds.
    """

    name: str
    event: str
    home: str
    home_variable: str = ""
    project_variable: str = ""
    user_skills: tuple[str, ...] = ()
    own_skills: tuple[str, ...] = ("skills",)
    project_skills: tuple[str, ...]
    settings: str
    project_settings: str
    seconds: float = 1.0

    @property
    def folder(self) -> Path:
        """The agent's own folder on this machine; it need not exist."""
        named = os.environ.get(self.home_variable) if self.home_variable else None
        return Path(named).expanduser() if named else Path.home() / self.home


AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude",
            event="UserPromptSubmit",
            home=".claude",
            home_variable="CLAUDE_CONFIG_DIR",
            project_variable="CLAUDE_PROJECT_DIR",
            project_skills=(".claude/skills",),
            settings="settings.json",
            project_settings=".claude/settings.json",
        ),
        Agent(
            name="codex",
            event="UserPromptSubmit",
            home=".codex",
            home_variable="CODEX_HOME",
            user_skills=(".agents/skills",),
            project_skills=(".agents/skills", ".codex/skills"),
            settings="hooks.json",
            project_settings=".codex/hooks.json",
        ),
        Agent(
            name="gemini",
            event="BeforeAgent",
            home=".gemini",
            project_variable="GEMINI_PROJECT_DIR",
            user_skills=(".agents/skills",),
            project_skills=(".gemini/skills", ".agents/skills"),
            settings="settings.json",
            project_settings=".gemini/settings.json",
            seconds=0.001,
        ),
        Agent(
            name="opencode",
            event="",
            home=".config/opencode",
            home_variable="OPENCODE_CONFIG_DIR",
            user_skills=(".claude/skills", ".agents/skills"),
            own_skills=("skills", "skill"),
            project_skills=(
                ".opencode/skills",
                ".opencode/skill",
                ".claude/skills",
                ".agents/skills",
            ),
            settings="plugins/crossgate.js",
            project_settings=".opencode/plugins/crossgate.js",
        ),
    )
}


class Unreadable(Exception):
    """Input on stdin that is not a call of the hook; the message says why, on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt as the agent passed it on.

    Attributes:
        text: What the person wrote, at most `PROMPT_CHARS` of it.
        length: How long it was, in characters.
        session: The agent's name for the conversation; empty if it gave none.
        folder: Where the agent works; empty if it did not say.
        trial: Whether it is the trial of `crossgate hook install`.
    """

    text: str
    length: int
    session: str
    folder: str
    trial: bool = False


def read_prompt(agent: Agent, data: bytes) -> Prompt:
    """Read what an agent passes to its hook.

    Raises:
        Unreadable: If it is not a JSON object with a prompt, or belongs to another event.
    """
    try:
        values = json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"stdin is not JSON: {type(error).__name__}") from error
    if not isinstance(values, dict):
        raise Unreadable(f"stdin is a JSON {type(values).__name__}, not an object")
    event = values.get("hook_event_name", agent.event)
    if agent.event and event != agent.event:
        raise Unreadable(f"the event is {_short(event)}, but this hook is for {agent.event}")
    if not isinstance(values.get("prompt"), str):
        raise Unreadable('there is no text under "prompt"')
    text = _unicode(values["prompt"])
    folder = _text(values, "cwd")
    return Prompt(
        text=text[:PROMPT_CHARS],
        length=len(text),
        session=_text(values, "session_id"),
        folder="" if "\0" in folder else folder,  # no system has a folder with such a name
        trial=values.get(TRIAL) is True,
    )


def looks_like_a_call(text: str) -> bool:
    """Return whether a text is what an agent passes to a hook, not a person's query."""
    start = text.lstrip("\ufeff \t\r\n")
    if not start.startswith("{"):
        return False
    try:
        values = json.loads(start)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and "hook_event_name" in values


def reply(agent: Agent, context: str) -> bytes:
    """Return what to print so that the agent adds a context to the prompt."""
    values: dict[str, Any] = {"context": context}
    if agent.event:
        values = {
            "hookSpecificOutput": {"hookEventName": agent.event, "additionalContext": context}
        }
    # In ASCII, so that no pipe or terminal on the way can spoil it.
    return json.dumps(values).encode("ascii") + b"\n"


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return _unicode(value) if isinstance(value, str) else ""


def _unicode(text: str) -> str:
    """Return a text without lone surrogates, which only JSON can hold."""
    return text.encode("utf-8", "replace").decode()


def _short(value: object) -> str:
    return repr(value)[:60]
