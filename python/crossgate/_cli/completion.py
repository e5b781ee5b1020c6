"""`crossgate completion`: prints a shell script that completes commands, options and files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from crossgate._cli import DONE, parser_of

_FILES = {"DATASET", "FILE", "FOLDER", "LOG", "PROFILE", "SOURCE"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", choices=["bash", "zsh", "tcsh"])


def run(options: argparse.Namespace) -> int:
    """Print the script, which is static: completion does not start this program."""
    from crossgate._support.extras import package

    shtab = package("shtab", "crossgate completion", extra="completion")
    parser = parser_of(None)
    for action in _actions(parser):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=options.shell))
    return DONE


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
