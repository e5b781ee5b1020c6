"""`crossgate hook`: set up, try, or take away what tells an agent which skill fits its prompt.

What an agent calls on each prompt (`crossgate hook claude` and so on) does not come by here: see
`crossgate._hook.process`.
"""

from __future__ import annotations

import argparse
import os
import time

from crossgate._cli import DONE, FAILURE, NOTHING_RELEVANT
from crossgate._cli.output import json_option, progress, say, show, show_json
from crossgate._errors import InputError
from crossgate._hook.agents import AGENTS, PROMPT_CHARS, Prompt
from crossgate._hook.options import BadOptions, add_options, describe, options_of, parse
from crossgate._words import REASONS


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, agent in AGENTS.items():
        commands.add_parser(name, help=f"what {agent.name} calls on each prompt")
    made = commands.add_parser(
        "install",
        help="index the agent's skills, try the hook, and enter it into the settings",
        description="Index the agent's skills, try the hook, and enter it into the settings.",
    )
    made.set_defaults(run=_install)
    _common(made)
    add_options(made)
    removed = commands.add_parser(
        "uninstall",
        help="take the hook out of the settings",
        description="Take the hook out of the agent's settings; the index stays.",
    )
    removed.set_defaults(run=_uninstall)
    _common(removed)
    tried = commands.add_parser(
        "try",
        help="say what a prompt would get, and why",
        description="Say what a prompt would get, and why, with the options that the agent's "
        "settings hold. Nothing is remembered or logged. Exits with 1 where nothing is told.",
    )
    tried.set_defaults(run=_try)
    json_option(tried)
    _agent_option(tried)
    tried.add_argument("prompt", metavar="PROMPT", help="what a person would write")
    parser.epilog = describe("an agent")


def _common(parser: argparse.ArgumentParser) -> None:
    json_option(parser)
    _agent_option(parser)
    parser.add_argument(
        "--project", action="store_true", help="for the project in this folder, not for you alone"
    )


def _agent_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agent", choices=list(AGENTS), default="claude", help="which agent (default: claude)"
    )


def _install(options: argparse.Namespace) -> int:
    from crossgate._hook.install import install

    agent = AGENTS[options.agent]
    with progress("embedding") as report:
        found = install(agent, options_of(options), project=options.project, progress=report)
    for one in found.left_out:
        say(f"skipped {one}")
    for note in found.notes:
        say(note)
    if options.json:
        show_json(
            {
                "agent": agent.name,
                "settings": str(found.settings),
                "changed": found.changed,
                "command": found.command,
                "index": str(found.index),
                "documents": found.documents,
                "sources": list(found.sources),
                "skipped": len(found.left_out),
                "trial": {"context_chars": found.trial, "ms": found.trial_ms},
            }
        )
        return DONE
    told = f"it told {found.trial} characters" if found.trial else "it had nothing to tell"
    which = "" if agent.name == "claude" else f" --agent {agent.name}"
    which += " --project" if options.project else ""
    state = "calls it now" if found.changed else "called it already"
    show(
        "\n".join(
            [
                f"{found.documents} skills of {', '.join(found.sources)}",
                f"tried once: {told}, {found.trial_ms:.0f} ms",
                f"{found.settings} {state}: {found.command}",
                "",
                f"New sessions of {agent.name} use it. `crossgate hook try` says what a prompt "
                "would get, `crossgate doctor` how it goes, and "
                f"`crossgate hook uninstall{which}` takes it away.",
            ]
        )
    )
    return DONE


def _uninstall(options: argparse.Namespace) -> int:
    from crossgate._hook.install import uninstall

    path, removed = uninstall(AGENTS[options.agent], project=options.project)
    if options.json:
        show_json({"agent": options.agent, "settings": str(path), "removed": removed})
    else:
        show(f"{path}: {'the hook is gone' if removed else 'there is no hook of crossgate in it'}")
    return DONE


_SKIPPED = {
    "empty_prompt": "the prompt is empty",
    "command": "the prompt calls a command",
    "not_a_person": "the agent itself writes such a prompt",
}


def _try(options: argparse.Namespace) -> int:
    from crossgate._hook.answering import answer
    from crossgate._hook.install import calls_of
    from crossgate._hook.library import library_of

    agent = AGENTS[options.agent]
    calls = calls_of(agent)
    command = next(iter(calls.values()), [])
    # What stands before the name of the agent is how crossgate is called.
    given = command[command.index(agent.name) + 1 :] if agent.name in command else []
    try:
        chosen = parse(agent.name, given)
    except BadOptions as error:
        raise InputError("out_of_range", f"{next(iter(calls))}: {error}") from error
    text = options.prompt
    prompt = Prompt(text=text[:PROMPT_CHARS], length=len(text), session="", folder=os.getcwd())
    library = library_of(agent, prompt.folder, chosen.skills)
    found = answer(agent, prompt, chosen, library, started=time.monotonic(), log=False)
    if options.json:
        show_json(
            {
                "agent": agent.name,
                "settings": [str(one) for one in calls],
                "outcome": found.outcome,
                "reason": found.reason,
                "detail": found.detail,
                "ids": list(found.ids),
                "nearest": found.nearest,
                "confidence": found.confidence,
                "min_confidence": chosen.min_confidence,
                "context": found.context,
            }
        )
    else:
        lines = [found.context] if found.context else []
        why = found.detail or _SKIPPED.get(found.reason) or REASONS.get(found.reason, found.reason)
        if found.nearest and found.confidence is not None:
            why = (
                f"{found.nearest} comes first, with a confidence of {found.confidence:.2f}; "
                f"{chosen.min_confidence:g} is needed"
            )
            why += f"; {found.detail}" if found.detail else ""
        lines.append(f"\n{why}" if found.context else f"nothing is told: {why}")
        if not calls:
            lines.append(f"no settings of {agent.name} call the hook: `crossgate hook install`")
        show("\n".join(lines))
    if found.outcome == "failed":
        return FAILURE
    return DONE if found.context else NOTHING_RELEVANT
