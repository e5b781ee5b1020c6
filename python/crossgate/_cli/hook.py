"""`crossgate hook`: install, try or remove the prompt hook of an agent.

The hook itself (`crossgate hook claude` and so on) does not use this module, but
`crossgate._agents.hook.main`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from crossgate._agents.hook.agents import AGENTS, Agent, HookPrompt
from crossgate._agents.hook.options import (
    BadHookOptions,
    HookOptions,
    add_options,
    describe,
    options_of,
)
from crossgate._cli import DONE, FAILURE, NOTHING_RELEVANT
from crossgate._cli.output import say, show, show_json, show_result, subcommand
from crossgate._support.errors import InputError, SourceError
from crossgate._support.progress import is_terminal, progress
from crossgate._support.wording import counted
from crossgate._values.results import REASONS


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, agent in AGENTS.items():
        commands.add_parser(name, help=f"the command that {agent.name} calls on each prompt")
    text = "index the agent's skills, try the hook, and add it to the settings"
    made = subcommand(commands, "install", text, _install)
    _settings_options(made)
    made.add_argument(
        "--subagents",
        action="store_true",
        help="also add skills to the tasks that the agent gives to subagents",
    )
    add_options(made)
    text = "remove the hook from the agent's settings; the index stays"
    _settings_options(subcommand(commands, "uninstall", text, _uninstall))
    text = (
        "show the context that a prompt would get with the options in the settings, and why; exits "
        "with 1 without a context"
    )
    tried = subcommand(commands, "try", text, _try)
    _agent_option(tried)
    tried.add_argument("prompt", metavar="PROMPT", help="the prompt")
    parser.epilog = describe("an agent")


def _settings_options(parser: argparse.ArgumentParser) -> None:
    _agent_option(parser)
    parser.add_argument(
        "--project", action="store_true", help="use the settings of this project instead of yours"
    )


def _agent_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agent", choices=list(AGENTS), default="claude", help="which agent (default: claude)"
    )


def _check_folders(agent: Agent, *, working: bool = True) -> None:
    """Check that the home folder and the working folder exist.

    Raises:
        InputError: `malformed_setting` if there is no home folder.
        SourceError: `source_missing` if a working folder is needed and there is none.
    """
    try:
        _ = Path.home(), agent.folder
    except RuntimeError as error:
        message = "there is no home folder: set HOME to the folder of your settings"
        raise InputError("malformed_setting", message) from error
    try:
        if working:
            os.getcwd()
    except OSError as error:
        message = f"the working folder cannot be used: {error.strerror}. Change to another"
        raise SourceError("source_missing", message) from error


def _install(options: argparse.Namespace) -> int:
    from crossgate._agents.hook.install import install
    from crossgate._agents.learning.what_if import without_effect

    agent, wanted = AGENTS[options.agent], options_of(options)
    _check_folders(agent)
    with progress("embedding") as report:
        installed = install(
            agent,
            wanted,
            project=options.project,
            subagents=options.subagents,
            progress=report,
        )
    for skipped in installed.left_out:
        say(f"skipped {skipped}")
    for note in filter(None, (*installed.notes, without_effect(wanted, agent))):
        say(note)
    values = {
        "agent": agent.name,
        "settings": str(installed.settings),
        "changed": installed.changed,
        "command": installed.command,
        "index": str(installed.index),
        "documents": installed.documents,
        "sources": list(installed.sources),
        "skipped": len(installed.left_out),
        "trial": {"context_chars": installed.trial, "ms": installed.trial_ms},
    }
    if options.json:
        show_json(values)
        return DONE
    context = counted(installed.trial, "character") if installed.trial else "no context"
    which = "" if agent.name == "claude" else f" --agent {agent.name}"
    which += " --project" if options.project else ""
    state = "now calls it" if installed.changed else "already called it"
    lines = [
        f"{counted(installed.documents, 'skill')} of {', '.join(installed.sources)}",
        f"trial: it added {context}, {installed.trial_ms:.0f} ms",
        *_of_the_past(agent, wanted),
        f"{installed.settings} {state}: {installed.command}",
        "",
        f"New sessions of {agent.name} use it. `crossgate hook try PROMPT` shows the context of a "
        "prompt, `crossgate doctor` checks the hook, and "
        f"`crossgate hook uninstall{which}` removes it.",
    ]
    show("\n".join(lines))
    return DONE


def _of_the_past(agent: Agent, options: HookOptions) -> list[str]:
    """Return a line on what the hook would have shown for earlier prompts, if there are any."""
    from crossgate._agents.hook.skill_library import library_of
    from crossgate._agents.learning.what_if import replay
    from crossgate._sources.transcripts import Turn, read_turns, transcripts_below

    if agent.name != "claude":
        return []
    newest: list[Path] = []
    with suppress(SourceError, OSError):
        paths = transcripts_below(agent.folder / "projects")
        newest = sorted(paths, key=os.path.getmtime)[-_TRANSCRIPTS:]
    turns: list[Turn] = []
    for path in newest:
        with suppress(OSError):
            turns += read_turns(path)
    if not turns:
        return []
    library = library_of(agent, os.getcwd(), options.skills)
    past = replay(turns, agent, options, library, seconds=_PAST_SECONDS)
    return [
        f"of your last {counted(past.prompts, 'prompt')}, {past.shown} would have got a skill, "
        f"{past.followed} of them one that the agent opened; `crossgate usage --what-if` tries "
        "other options"
    ]


_PAST_SECONDS = 5.0
"""Time for replaying earlier prompts at an installation."""
_TRANSCRIPTS = 20
"""Newest transcripts that are read for it."""


def _uninstall(options: argparse.Namespace) -> int:
    from crossgate._agents.hook.install import calls_of, uninstall
    from crossgate._agents.learning.parking import unpark_all

    agent = AGENTS[options.agent]
    _check_folders(agent, working=options.project)
    path, removed = uninstall(agent, project=options.project)
    calls = calls_of(agent)
    for other in calls:
        where = "without --project" if options.project else "with --project, in its folder"
        say(f"{other} still calls it: run this again {where}")
    moved, problems = ([], []) if calls or not _may_unpark(agent) else unpark_all(agent)
    for problem in problems:
        say(problem)
    unparked = [str(folder) for folder in moved]
    values = {"agent": options.agent, "settings": str(path), "removed": removed}
    state = "the hook was removed" if removed else "there is no crossgate hook in it"
    lines = [f"{path}: {state}"]
    lines += [f"moved the parked skill back to {folder}" for folder in unparked]
    show_result(options.json, {**values, "unparked": unparked}, lines)
    return DONE


def _may_unpark(agent: Agent) -> bool:
    """Return whether to move parked skills back, which no hook suggests any more; ask a person."""
    from crossgate._agents.hook.skill_library import PARKED, own_folders

    parked = [folder for folder in own_folders(agent) if folder.endswith(PARKED)]
    if not any(map(os.path.isdir, parked)) or not is_terminal(sys.stdin):
        return True
    say(f"without the hook, {agent.name} does not read its parked skills: move them back? [Y/n]")
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


_SKIPPED = {
    "empty_prompt": "the prompt is empty",
    "command": "the prompt is a slash command",
    "not_a_person": "the prompt was written by the agent, not by a person",
}


def _try(options: argparse.Namespace) -> int:
    from crossgate._agents.hook.answer import answer
    from crossgate._agents.hook.install import (
        calls_of,
        index_if_stale,
        options_in,
        switched_off,
    )
    from crossgate._agents.hook.skill_library import library_of

    agent = AGENTS[options.agent]
    _check_folders(agent)
    calls = calls_of(agent)
    try:
        chosen = options_in(next(iter(calls.values()), []), agent)
    except BadHookOptions as error:
        raise InputError("out_of_range", f"{next(iter(calls))}: {error}") from error
    prompt = HookPrompt.of(options.prompt, session="", folder=os.getcwd())
    with progress("embedding") as report:
        problem = index_if_stale(agent, chosen, prompt.folder, report)
    library = library_of(agent, prompt.folder, chosen.skills)
    answered = answer(agent, prompt, chosen, library, started=time.monotonic(), log=False)
    if problem and answered.reason == "not_indexed":
        answered = replace(answered, outcome="failed", detail=problem)
    values = {
        "agent": agent.name,
        "settings": [str(path) for path in calls],
        "outcome": answered.outcome,
        "reason": answered.reason,
        "detail": answered.detail,
        "ids": list(answered.ids),
        "nearest": answered.nearest,
        "form": answered.form,
        "confidence": answered.confidence,
        "min_confidence": chosen.min_confidence,
        "context": answered.context,
    }
    why = (
        answered.detail
        or _SKIPPED.get(answered.reason)
        or REASONS.get(answered.reason, answered.reason)
    )
    if answered.nearest and answered.confidence is not None:
        why = (
            f"{answered.nearest} ranks first, with a confidence of {answered.confidence:.2f}; "
            f"{chosen.min_confidence:g} is needed"
        )
        why += f"; {answered.detail}" if answered.detail else ""
    lines = [answered.context, f"\n{why}"]
    if not answered.context:
        lines = [f"the prompt gets no context: {why}"]
    lines += [f"{switch}, so {agent.name} does not run the hook" for switch in switched_off(agent)]
    if not calls:
        lines.append(f"no settings of {agent.name} call the hook: `crossgate hook install`")
    show_result(options.json, values, lines)
    if answered.outcome == "failed":
        return FAILURE
    return DONE if answered.context else NOTHING_RELEVANT
