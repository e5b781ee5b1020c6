"""Installs and removes a hook: builds the index, runs a trial, then edits the settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from crossgate._agents.hook import settings, shell
from crossgate._agents.hook.agents import AGENTS, TRIAL, Agent
from crossgate._agents.hook.options import HookOptions, anchored, as_arguments, parse
from crossgate._agents.hook.skill_library import (
    SkillLibrary,
    build,
    is_stale,
    is_within,
    library_of,
    project_of,
)
from crossgate._support.errors import CrossgateError, InputError, SourceError, first_line
from crossgate._support.files import atomic_write, cannot_write, file_lock, read_source
from crossgate._support.limits import SETTINGS_BYTES
from crossgate._telemetry.log import JsonLinesLog

_TRIAL_SECONDS = 30
_PLUGIN = Path(__file__).with_name("opencode.js")
_PLUGIN_MARK = "crossgate hook install"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The result of an installation.

    Attributes:
        settings: The settings file that calls the hook.
        changed: Whether the settings file was changed.
        command: The command of the hook.
        index: The index file.
        documents: Number of skills in the index.
        sources: The folders of skills.
        left_out: Skills that cannot be used, with the reason.
        trial: Length of the context in the trial, in characters.
        trial_ms: Duration of the trial in milliseconds.
        notes: Hints and warnings for the user.
    """

    settings: Path
    changed: bool
    command: str
    index: Path
    documents: int
    sources: tuple[str, ...]
    left_out: tuple[str, ...]
    trial: int
    trial_ms: float
    notes: tuple[str, ...]


def install(
    agent: Agent,
    options: HookOptions,
    *,
    project: bool,
    subagents: bool = False,
    progress: Any = None,
) -> Installed:
    """Index an agent's skills, run the hook once, and then add it to the settings.

    Args:
        agent: The agent.
        options: The options of the hook.
        project: Whether to use the settings of this project, not those of the user.
        subagents: Whether the hook also adds skills to the tasks of subagents.
        progress: Called with the number of skills embedded so far and the total.

    Raises:
        SourceError: `no_documents` if the agent has no skills, `unwritable` if a file cannot be
            written.
        InputError: `malformed_setting` for settings that cannot be edited without harm;
            `hook_failed` if the trial fails; `out_of_range` for `subagents` if the agent's hooks
            cannot change their tasks.
    """
    if subagents and not agent.task_tools:
        usable = " and ".join(name for name, other in AGENTS.items() if other.task_tools)
        anyway = "" if agent.event else f", and {agent.name} calls the hook for tasks anyway"
        raise InputError("out_of_range", f"--subagents is for {usable}{anyway}: leave it out")
    path = _writable_settings(agent, project=project)
    notes: list[str] = []
    if not project:  # the path of a project differs between machines
        options = anchored(options)
    words = [*program(shared=project), "hook", agent.name, *as_arguments(options)]
    if project and os.path.isabs(words[0]):
        notes.append("crossgate is not on the PATH, so the command works on this machine only")
    command = shell.join(words)
    if agent.event:  # first, since the user must repair settings that cannot be edited
        settings.check(path, agent)
    if options.log:  # the hook itself ignores a log that cannot be written
        JsonLinesLog(os.path.expanduser(options.log)).check()
    library = library_of(agent, os.getcwd() if project else str(Path.home()), options.skills)
    count, left_out = _indexed(agent, library, options, progress)
    here = library_of(agent, "", options.skills)
    if not options.index and here.sources not in (library.sources, ()):  # a project with skills
        left_out += _indexed(agent, here, options, progress)[1]
    trial, trial_ms = _try(agent, command, library, project=project)
    if agent.event:
        changed = settings.edit(
            path,
            lambda values: settings.with_hook(values, agent, command, subagents=subagents),
            ours=bool(settings.command_in(path, agent)),
        )
    else:
        changed = _write_plugin(path, words)
    notes += [f"{switch}, so {agent.name} does not run the hook" for switch in switched_off(agent)]
    for other in calls_of(agent):
        if os.path.realpath(other) != os.path.realpath(path):
            notes.append(f"{other} calls the hook, too, so skills are mentioned twice here")
    if changed and agent.name == "codex":
        notes.append("Codex asks once whether it may run a new hook: allow it under /hooks")
    return Installed(
        settings=path,
        changed=changed,
        command=command,
        index=Path(options.index) if options.index else library.index,
        documents=count,
        sources=library.sources,
        left_out=tuple(left_out),
        trial=trial,
        trial_ms=trial_ms,
        notes=tuple(notes),
    )


def uninstall(agent: Agent, *, project: bool) -> tuple[Path, bool]:
    """Remove the hook; return the settings file and whether it called the hook.

    Raises:
        SourceError: `unwritable` if the file cannot be written.
        InputError: `malformed_setting` for settings that cannot be edited without harm.
    """
    path = _writable_settings(agent, project=project)
    if agent.event:
        ours = bool(settings.command_in(path, agent))
        edited = settings.edit(path, lambda values: settings.without_hook(values, agent), ours=ours)
        return path, edited
    try:
        ours = _PLUGIN_MARK.encode() in read_source(path, SETTINGS_BYTES)
        if ours:
            path.unlink()
        return path, ours
    except FileNotFoundError:
        return path, False
    except OSError as error:
        raise SourceError("unwritable", f"cannot remove {path}: {error.strerror}") from error


def _writable_settings(agent: Agent, *, project: bool) -> Path:
    """Return the settings file, as `settings_of` does.

    Raises:
        SourceError: `unwritable` if a link of a project, which is not trusted, leads out of it.
    """
    path = settings_of(agent, project=project)
    if project and not is_within(path, project_of(agent, "") or Path.cwd()):
        target = os.path.realpath(path)
        message = f"cannot write {path}: a link leads out of the project, to {target}: remove it"
        raise SourceError("unwritable", message)
    return path


def settings_of(agent: Agent, *, project: bool) -> Path:
    """Return the settings file for an agent's hook.

    With `project`, it is in the folder of the project, or in the working folder outside a project.

    Raises:
        OSError: If there is no working folder.
        RuntimeError: If there is no home folder.
    """
    if project:
        return (project_of(agent, "") or Path.cwd()) / agent.project_settings
    return agent.folder / agent.settings


def calls_of(agent: Agent) -> dict[Path, list[str]]:
    """Return the settings files that call an agent's hook, project first, with the commands.

    A missing working or home folder counts as a folder without settings.
    """
    calls: dict[Path, list[str]] = {}
    for project in (True, False):
        # ValueError: a quotation mark is not closed.
        with suppress(OSError, RuntimeError, ValueError):
            path = settings_of(agent, project=project)
            words = (
                shell.split_command(settings.command_in(path, agent), agent.name)
                if agent.event
                else _words_of_plugin(path)
            )
            if words and not any(os.path.samefile(path, known) for known in calls):
                calls[path] = words
    return calls


def switched_off(agent: Agent) -> list[str]:
    """Return the settings here that disable the hook of an agent, each with its file."""
    found: list[str] = []
    paths: list[Path] = []
    for project in (False, True):
        with suppress(OSError, RuntimeError):
            paths.append(settings_of(agent, project=project))
    with suppress(OSError, RuntimeError):
        project_folder = project_of(agent, "") or Path.cwd()
        paths += [project_folder / name for name in agent.settings_files]
    with suppress(RuntimeError):
        paths += [agent.folder / agent.config] if agent.config else []
    managed = [Path(name) for name in agent.managed]
    for path in dict.fromkeys([*paths, *managed]):
        switch = settings.switch_in(path, agent, managed=path in managed)
        if agent.event and switch:
            found.append(f"{path} has {switch}")
    return found


def options_in(command: list[str], agent: Agent) -> HookOptions:
    """Return the options with which a command calls an agent's hook.

    Raises:
        BadHookOptions: If they cannot be read.
    """
    # The words before the name of the agent start crossgate.
    given = command[command.index(agent.name) + 1 :] if agent.name in command else []
    return parse(agent.name, [shell.expanded(word) for word in given])


def program(*, shared: bool) -> list[str]:
    """Return the words of a command that runs crossgate.

    Args:
        shared: Whether other machines use the command, where the path may differ.

    Raises:
        InputError: `temporary_environment` if every crossgate here is in an environment that will
            be deleted.
    """
    beside = Path(sys.executable).with_name("crossgate.exe" if os.name == "nt" else "crossgate")
    lasting = (
        folder
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if folder and not temporary_environment(folder)
    )
    on_path = shutil.which("crossgate", path=os.pathsep.join(lasting))
    if shared and on_path:
        return ["crossgate"]
    why = temporary_environment(str(beside.parent))
    if not why and os.path.isfile(beside):
        return [str(beside)]
    if on_path:
        return [on_path]
    if why:
        raise InputError(
            "temporary_environment",
            f"crossgate runs from {beside.parent}, {why}: the hook would stop working when it is "
            "deleted. Install crossgate first (`uv tool install` or `pipx install`, with the same "
            "package), then run `crossgate hook install`",
        )
    return [sys.executable, "-P", "-c", "from crossgate._cli import main; main()"]


_CACHES = (
    (re.compile(r"[/\\](?:archive|environments|builds)-v\d+[/\\]"), "in the cache of uv"),
    (
        re.compile(
            r"[/\\]pipx[/\\](?:pipx[/\\])?\.?cache[/\\]|[/\\]\.?caches?[/\\]pipx[/\\]", re.I
        ),
        "in the cache of pipx",
    ),
)


def temporary_environment(folder: str) -> str:
    """Return why an environment does not last, such as the cache of `uvx`; empty if it does."""
    inside = os.path.join(folder, "")
    for pattern, reason in _CACHES:
        if pattern.search(inside):
            return reason
    named = (
        ("UV_CACHE_DIR", "in the cache of uv"),
        ("PIPX_VENV_CACHEDIR", "in the cache of pipx"),
    )
    caches = [(os.environ.get(name, ""), reason) for name, reason in named]
    for cache, reason in [*caches, (tempfile.gettempdir(), "in the folder of temporary files")]:
        if cache and os.path.realpath(inside).startswith(os.path.join(os.path.realpath(cache), "")):
            return reason
    return ""


def index_if_stale(agent: Agent, options: HookOptions, folder: str, progress: Any = None) -> str:
    """Index an agent's skills in a working folder, if they have changed or are not indexed yet.

    Returns:
        Why they cannot be indexed; empty if they are.
    """
    library = library_of(agent, folder, options.skills)
    if not options.index and library.sources and is_stale(library):
        try:
            _indexed(agent, library, options, progress)
        except CrossgateError as error:
            return first_line(error)
    return ""


def _indexed(
    agent: Agent, library: SkillLibrary, options: HookOptions, progress: Any
) -> tuple[int, list[str]]:
    if options.index:
        from crossgate._retrieval.document_index import Index

        return len(Index.open(options.index)), []
    if not library.sources:
        folders = [agent.folder / name for name in agent.skills_below("agent")]
        below = " nor ".join(agent.skills_below("project"))
        raise SourceError(
            "no_documents",
            f"{agent.name} has no skills: there is neither {' nor '.join(map(str, folders))}, nor "
            f"{below} here. Name a folder with --skills FOLDER",
        )
    try:
        with file_lock(library.folder / "refresh.lock"):  # the index is replaced atomically anyway
            return build(agent, library, progress)
    except OSError as error:
        raise SourceError(
            "unwritable", f"cannot write to {library.folder}: {error.strerror or error}"
        ) from error


def _try(agent: Agent, command: str, library: SkillLibrary, *, project: bool) -> tuple[int, float]:
    """Run the hook as the agent does; return the length of the context, and the milliseconds."""
    folder = os.getcwd() if project else str(Path.home())
    prompt = _prompt(library)
    call = {"hook_event_name": agent.event, "prompt": prompt, "cwd": folder, TRIAL: True}
    if not agent.event:
        del call["hook_event_name"]
    start = perf_counter()
    try:
        done = subprocess.run(  # noqa: S602, the agent uses a shell, too
            command,
            shell=True,
            input=json.dumps(call).encode(),
            capture_output=True,
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(command, f"it took longer than {_TRIAL_SECONDS} s") from error
    taken = (perf_counter() - start) * 1000
    said = " ".join(done.stderr.decode("utf-8", "replace").split())
    if done.returncode != 0 or "crossgate: hook" in said:
        raise _failed(command, said or f"exit code {done.returncode}")
    if not done.stdout.strip():
        return 0, taken
    try:
        values = json.loads(done.stdout)
        told = (
            values["hookSpecificOutput"]["additionalContext"] if agent.event else values["context"]
        )
    except (ValueError, LookupError, TypeError) as error:
        raise _failed(command, "it did not print an answer") from error
    return len(told), taken


def _prompt(library: SkillLibrary) -> str:
    """Return a prompt that a skill fits: its own description."""
    from crossgate._retrieval.document_index import Index

    index = Index.open(library.index) if os.path.isfile(library.index) else None
    first = index.get(index.ids[0]) if index is not None and len(index) else None
    return first.text[:400] if first else "Which skill fits this?"


def _write_plugin(path: Path, words: list[str]) -> bool:
    text = _PLUGIN.read_text(encoding="utf-8")
    line = f"const COMMAND = {json.dumps(words)};"
    text = re.sub(r"^const COMMAND = .*$", lambda _: line, text, flags=re.MULTILINE)
    try:
        if os.path.exists(path) and read_source(path, SETTINGS_BYTES) == text.encode():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as stream:
            stream.write(text)
    except OSError as error:
        raise SourceError("unwritable", cannot_write(path, error)) from error
    return True


def _words_of_plugin(path: Path) -> list[str]:
    try:
        text = read_source(path, SETTINGS_BYTES).decode("utf-8", "replace")
        line = re.search(r"^const COMMAND = (\[.*\]);$", text, flags=re.MULTILINE)
        words = json.loads(line[1]) if line and _PLUGIN_MARK in text else []
    except (OSError, ValueError, RecursionError):
        return []
    return words if all(isinstance(word, str) for word in words) else []


def _failed(command: str, why: str) -> InputError:
    return InputError(
        "hook_failed",
        f"a trial of the hook failed, so no settings were changed: {why}. Try it by hand: "
        f"{command}",
    )
