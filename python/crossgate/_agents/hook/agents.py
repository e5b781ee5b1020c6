"""The agents: input and output formats of their prompt hooks, and the paths of their files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import crossgate._core as _core
from crossgate._support.checks import without_surrogates
from crossgate._support.wording import type_of
from crossgate._values.agent_prompts import words_of

PROMPT_CHARS = 65_536
"""Maximum length of a prompt in characters; the rest is cut off."""

TASK_EVENT = "PreToolUse"
"""The event that calls the hook before a tool of an agent starts a subagent."""

TRIAL = "crossgate_trial"
"""Key of a call that `crossgate hook install` makes as a trial; trials are not logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The interface of one agent.

    Attributes:
        name: The name of the agent in `crossgate hook NAME`.
        event: The event that calls the hook; empty if a plug-in calls the hook.
        home: The folder of the agent, below the home folder.
        home_variable: Environment variable that names another folder instead of `home`.
        project_variable: Environment variable that names the project's folder.
        skills: Folders of skills below the agent's folder, the home folder or a project. Of two
            skills with one name, the agent loads that of the first folder.
        lists_namesakes: Whether the agent lists both of two skills with one name.
        settings: The file with the hooks, or the plug-in, below the folder of the agent.
        project_settings: The same file below a project.
        seconds: The unit of a hook's time limit, in seconds.
        skill_tool: Name of the agent's tool that loads a skill by its name; may be empty.
        switches: Keys of settings that disable all hooks, each with the disabling value.
        settings_files: Further files of a project that may hold these switches.
        config: A further TOML file in the folder of the agent that may hold them.
        managed: Settings of an administrator, on any system, that may hold them.
        managed_switches: Further switches that count in these settings only.
        disabled_lists: Keys of lists that disable single hooks by their command.
        task_tools: Names of the tool that starts a subagent, if a hook may change its task.
        task_field: The argument of that tool that holds the task.
    """

    name: str
    event: str
    home: str
    home_variable: str = ""
    project_variable: str = ""
    skills: tuple[tuple[Literal["agent", "home", "project"], str], ...]
    lists_namesakes: bool = False
    settings: str
    project_settings: str
    seconds: float = 1.0
    skill_tool: str = ""
    switches: tuple[tuple[tuple[str, ...], bool], ...] = ()
    settings_files: tuple[str, ...] = ()
    config: str = ""
    managed: tuple[str, ...] = ()
    managed_switches: tuple[tuple[tuple[str, ...], bool], ...] = ()
    disabled_lists: tuple[tuple[str, ...], ...] = ()
    task_tools: tuple[str, ...] = ()
    task_field: str = "prompt"

    @property
    def events(self) -> tuple[str, ...]:
        """The events that can call the hook."""
        return (self.event, TASK_EVENT) if self.task_tools else (self.event,)

    @property
    def folder(self) -> Path:
        """The folder of the agent on this machine; it need not exist."""
        named = os.environ.get(self.home_variable) if self.home_variable else None
        return Path(named).expanduser() if named else Path.home() / self.home

    def skills_below(self, base: Literal["agent", "home", "project"]) -> tuple[str, ...]:
        """Return the folders of skills below one of the three."""
        return tuple(name for below, name in self.skills if below == base)


AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude",
            event="UserPromptSubmit",
            home=".claude",
            home_variable="CLAUDE_CONFIG_DIR",
            project_variable="CLAUDE_PROJECT_DIR",
            skills=(("agent", "skills"), ("project", ".claude/skills")),
            settings="settings.json",
            project_settings=".claude/settings.json",
            skill_tool="Skill",
            switches=((("disableAllHooks",), True),),
            settings_files=(".claude/settings.local.json",),
            managed=(
                "/etc/claude-code/managed-settings.json",
                "/Library/Application Support/ClaudeCode/managed-settings.json",
                "C:/Program Files/ClaudeCode/managed-settings.json",
            ),
            managed_switches=((("allowManagedHooksOnly",), True),),
            task_tools=("Agent", "Task"),
        ),
        Agent(
            name="codex",
            event="UserPromptSubmit",
            home=".codex",
            home_variable="CODEX_HOME",
            skills=(
                ("project", ".agents/skills"),
                ("project", ".codex/skills"),
                ("agent", "skills"),
                ("home", ".agents/skills"),
            ),
            lists_namesakes=True,
            settings="hooks.json",
            project_settings=".codex/hooks.json",
            switches=((("features", "hooks"), False), (("features", "codex_hooks"), False)),
            settings_files=(".codex/config.toml",),
            config="config.toml",
            task_tools=("spawn_agent",),
            task_field="message",
        ),
        Agent(
            name="gemini",
            event="BeforeAgent",
            home=".gemini",
            project_variable="GEMINI_PROJECT_DIR",
            skills=(
                ("project", ".agents/skills"),
                ("project", ".gemini/skills"),
                ("home", ".agents/skills"),
                ("agent", "skills"),
            ),
            settings="settings.json",
            project_settings=".gemini/settings.json",
            skill_tool="activate_skill",
            switches=(
                (("hooksConfig", "enabled"), False),
                (("hooks", "enabled"), False),
                (("tools", "enableHooks"), False),
            ),
            disabled_lists=(("hooksConfig", "disabled"), ("hooks", "disabled")),
            seconds=0.001,
        ),
        Agent(
            name="opencode",
            event="",
            home=".config/opencode",
            home_variable="OPENCODE_CONFIG_DIR",
            skills=(
                ("project", ".opencode/skills"),
                ("project", ".opencode/skill"),
                ("agent", "skills"),
                ("agent", "skill"),
                ("project", ".agents/skills"),
                ("project", ".claude/skills"),
                ("home", ".agents/skills"),
                ("home", ".claude/skills"),
            ),
            settings="plugins/crossgate.js",
            project_settings=".opencode/plugins/crossgate.js",
            skill_tool="skill",
        ),
    )
}


class UnreadableCall(Exception):
    """Raised for input on stdin that is not a call of the hook; the message has one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookPrompt:
    """One prompt, as the agent passed it to the hook.

    Attributes:
        text: The words of the person, cut to `PROMPT_CHARS`; empty if the agent wrote the prompt.
        length: Length of the whole prompt, in characters.
        session: Id of the conversation; may be empty.
        folder: Working folder of the agent; may be empty.
        trial: Whether it is the trial of `crossgate hook install`.
        transcript: File of the conversation so far; may be empty.
        task: Arguments of the tool whose task this is; None for a prompt of the person.
    """

    text: str
    length: int
    session: str
    folder: str
    trial: bool = False
    transcript: str = ""
    task: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, text: str, *, is_person: bool = True, **more: Any) -> HookPrompt:
        """Return a prompt without what agent and editor added to the words of the person.

        Args:
            text: The prompt.
            is_person: Whether a person may have written it.
            more: Further attributes.
        """
        words = words_of(text) if is_person else ""
        return cls(text=words[:PROMPT_CHARS], length=len(text), **more)

    @property
    def digest(self) -> str:
        """SHA-256 of the text, by which a log entry is matched to a transcript."""
        return prompt_digest(self.text)


def prompt_digest(text: str) -> str:
    """Return the SHA-256 of a prompt without the white space around it, as the hook logs it."""
    return _core.sha256_of(text.strip()[:PROMPT_CHARS].encode("utf-8", "replace"))


def read_hook_prompt(agent: Agent, data: bytes) -> HookPrompt:
    """Parse the input of a hook.

    Raises:
        UnreadableCall: If the input is not a JSON object with a prompt for this event.
    """
    try:
        # Editors and shells on Windows may write UTF-16, or more than one byte order mark.
        text = data.decode(json.detect_encoding(data), "replace").lstrip("\ufeff")
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableCall(f"stdin is not JSON: {type(error).__name__}") from error
    if not isinstance(values, dict):
        raise UnreadableCall(f"stdin must be a JSON object, not {type_of(values)}")
    event = values.get("hook_event_name", agent.event)
    task = None
    if event == TASK_EVENT and agent.task_tools:
        task = values.get("tool_input")
        if values.get("tool_name") not in agent.task_tools or not isinstance(task, dict):
            named = _short(values.get("tool_name"))
            raise UnreadableCall(f"the tool {named} is not {' or '.join(agent.task_tools)}")
        try:
            json.dumps(task, allow_nan=False)
        except (ValueError, RecursionError) as error:  # the answer repeats all arguments
            message = f"the arguments of the tool cannot be repeated: {type(error).__name__}"
            raise UnreadableCall(message) from error
        # A subagent knows nothing of the conversation, and of the skills that were mentioned in it.
        alone = {"session_id": "", "transcript_path": ""}
        values = {**values, **alone, "prompt": task.get(agent.task_field)}
    elif agent.event and event != agent.event:
        raise UnreadableCall(f"the event is {_short(event)}, but this hook is for {agent.event}")
    if not isinstance(values.get("prompt"), str):
        raise UnreadableCall('there is no text under "prompt"')
    prompt = without_surrogates(values["prompt"])
    folder, transcript = _text(values, "cwd"), _text(values, "transcript_path")
    return HookPrompt.of(
        prompt,
        # Claude Code 2.1.282 marks notifications and messages between agents so.
        is_person=values.get("source") != "system",
        session=_text(values, "session_id"),
        folder="" if "\0" in folder else folder,  # not a valid path on any system
        trial=values.get(TRIAL) is True,
        transcript="" if "\0" in transcript else transcript,
        task=task,
    )


def reply(agent: Agent, context: str, task: Mapping[str, Any] | None = None) -> bytes:
    """Return the output that makes the agent add a context to the prompt, or to a task."""
    values: dict[str, Any] = {"context": context}
    if task is not None:
        changed = {**task, agent.task_field: f"{task[agent.task_field]}\n\n{context}"}
        # Agents ignore a changed task without this decision; rules that deny the tool still hold.
        allowed = {"permissionDecision": "allow", "updatedInput": changed}
        values = {"hookSpecificOutput": {"hookEventName": TASK_EVENT, **allowed}}
    elif agent.event:
        values = {
            "hookSpecificOutput": {"hookEventName": agent.event, "additionalContext": context}
        }
    # ASCII survives every encoding of pipes and terminals.
    return json.dumps(values).encode("ascii") + b"\n"


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return without_surrogates(value) if isinstance(value, str) else ""


def _short(value: object) -> str:
    return repr(value)[:60]
