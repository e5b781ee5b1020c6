"""`crossgate hook`: set up, or take away, what tells an agent on each prompt which skill fits.

What an agent calls on each prompt (`crossgate hook claude` and so on) does not come by here: see
`crossgate._hook.process`.
"""

from __future__ import annotations

import argparse

from crossgate._cli import DONE
from crossgate._cli.output import json_option, progress, say, show, show_json
from crossgate._hook.agents import AGENTS
from crossgate._hook.options import add_options, describe, options_of


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
    parser.epilog = describe("an agent")


def _common(parser: argparse.ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument(
        "--agent", choices=list(AGENTS), default="claude", help="which agent (default: claude)"
    )
    parser.add_argument(
        "--project", action="store_true", help="for the project in this folder, not for you alone"
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
                f"New sessions of {agent.name} use it. `crossgate doctor` shows what it does; "
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
