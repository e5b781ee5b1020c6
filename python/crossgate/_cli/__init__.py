"""The command line: results on stdout, everything else on stderr.

Each command is a module of this package with a function `run`, and `arguments` if it has any; only
the module of the requested command is imported. Exit codes: 0 something was selected or done, 1
nothing is relevant (for `eval compare`: a metric fell; for `calibrate`: no gate meets the
objective; for `replay`: a decision differs; for `lint`: something was found), 2 usage or bad input,
3 failure, 4 a hostile text (`lint`), 130 interrupted.
"""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the import of typing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import NoReturn

DONE, NOTHING_RELEVANT, BAD_INPUT, FAILURE, INTERRUPTED = 0, 1, 2, 3, 130

COMMANDS = {
    "demo": "route five prompts through a small skill library",
    "index": "index a folder of skills, tools, a BEIR folder, JSON lines or texts",
    "lint": "find problems in a library of skills that hurt routing",
    "route": "pick the documents of an index that fit a query, or none",
    "rerank": "reorder candidates that another retriever found",
    "serve": "serve reranking over HTTP, in the formats of other rerankers",
    "mcp": "serve an agent over MCP, or act as a proxy for its MCP servers",
    "replay": "replay the decisions of a log, and stop at the first that differs",
    "teach": "add a prompt that should, or should not, select a skill",
    "feedback": "record in a log whether a decision was right, or what was used after it",
    "eval": "measure whether the gate pays for itself on labelled data",
    "calibrate": "move the profile as far as labelled queries support",
    "hook": "suggest a skill to an agent on each prompt; `hook install` sets it up",
    "skills": "list an agent's skills with their cost, and park rarely used ones",
    "usage": "show how often an agent used the skills that the hook suggested",
    "models": "list, pull and verify models",
    "bench": "measure what crossgate costs on this machine",
    "doctor": "check packages, models, rerankers and hooks of this installation",
}

_MODULES = {"eval": "evaluate"}

_OBJECTS_PER_COLLECTION = 50_000  # Python's default is 700 to 2,000

# Codes of errors that are not caused by the input.
_FAILURES = {
    "index_unwritable",
    "model_failed",
    "profile_unwritable",
    "pull_failed",
    "pull_unwritable",
    "unwritable",
}

# All other arguments of `hook` come from an agent, for which exit code 2 means "erase the prompt".
_HOOK_COMMANDS = [["install"], ["uninstall"], ["try"], ["-h"], ["--help"]]

# Codes for valid data on which no gate meets the objective.
_REFUSALS = {"no_gate", "promise_broken"}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    # Imports create about 20,000 objects and no garbage. Collections meanwhile, and one more at the
    # end, would take an eighth of the time of a route.
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["hook"] and given[1:2] not in _HOOK_COMMANDS:
        _answer_prompt(given[1] if given[1:] else "", given[2:])
    # Slow imports happen inside `run`, which handles an interrupt.
    code = run(given, streams=True)
    _leave_quietly()
    gc.freeze()
    sys.exit(code)


def _answer_prompt(agent: str, arguments: list[str]) -> NoReturn:
    """Run the prompt hook; it exits with 0 even if its modules cannot be imported."""
    import os

    try:
        from crossgate._agents.hook.main import main as answer_prompt
    except BaseException:  # such as too few descriptors to open a file
        os._exit(0)
    answer_prompt(agent, arguments)


def run(arguments: Sequence[str], *, streams: bool = False) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: The arguments, without the name of the program.
        streams: Whether to repair the standard streams at the start and flush them at the end.
    """
    try:
        from crossgate._cli import output

        if streams:
            output.open_streams()
        code = _run(arguments)
        return output.close_streams(code, FAILURE) if streams else code
    except KeyboardInterrupt:
        print("crossgate: interrupted, no partial output remains", file=sys.stderr or sys.stdout)
        return INTERRUPTED


def _leave_quietly() -> None:
    """Let a late interrupt end the program without a traceback."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(arguments: Sequence[str]) -> int:
    from crossgate._cli.output import say
    from crossgate._support.errors import CrossgateError

    try:
        asked = next((argument for argument in arguments if not argument.startswith("-")), "")
        parser = parser_of(asked, alone=asked in arguments[:1])
        options = _parsed(parser, arguments, asked)
        options.arguments = list(arguments)
        code: int = options.run(options)
        return code
    except SystemExit as leaving:  # argparse has printed help, version or an error
        return leaving.code if isinstance(leaving.code, int) else DONE
    except CrossgateError as error:
        say(f"error[{error.code}]: {error}")
        if error.code in _REFUSALS:
            return NOTHING_RELEVANT
        return FAILURE if error.code in _FAILURES else BAD_INPUT
    except BrokenPipeError:  # readers such as `head` close the pipe early
        return DONE
    except MemoryError:
        say("error[out_of_memory]: not enough memory: use fewer or shorter documents")
        return FAILURE
    except Exception as error:  # Python's exit code 1 would mean "nothing relevant"
        import errno
        import traceback

        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            say(f"error[cannot_print]: {error.strerror}")
            return FAILURE
        traceback.print_exc()
        say("this is a bug, please report it with the lines above")
        return FAILURE


def _parsed(
    parser: argparse.ArgumentParser, arguments: Sequence[str], asked: str
) -> argparse.Namespace:
    """Parse arguments; errors name the similar command, or the quotes that a prompt lacks."""
    if asked and asked not in COMMANDS:
        from crossgate._support.wording import did_you_mean

        guess = did_you_mean(asked, COMMANDS) or ": `crossgate --help` lists them"
        parser.error(f"no command is named {asked!r}{guess}")
    options, rest = parser.parse_known_args(arguments)
    if not rest:
        return options
    words = [word for word in rest if not word.startswith("-")]
    if words and words == rest and isinstance(getattr(options, "query", None), str):
        prompt = " ".join([options.query, *words])
        parser.error(f'several words as the prompt: put it in quotes, such as "{prompt}"')
    parser.error(f"unrecognized arguments: {' '.join(rest)}")


def parser_of(asked: str, *, alone: bool = False) -> argparse.ArgumentParser:
    """Return the parser; only the requested command has its arguments.

    `alone` leaves out the other commands, which only the general help lists. They would cost each
    process about 6 ms.
    """
    import argparse
    from importlib import import_module

    from crossgate._cli.output import json_option
    from crossgate._core import __version__
    from crossgate._support.sanitize import remove_invisible

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            super().error(remove_invisible(message))  # it repeats arguments, such as file names

    parser = Parser(
        prog="crossgate",
        description="Decides which skill, tool or text chunk fits a query, offline.",
        epilog="Exit codes: 0 selected or done, 1 nothing relevant, 2 bad input, 3 failure.",
    )
    parser.add_argument("--version", action="version", version=f"crossgate {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        if alone and asked in COMMANDS and name != asked:
            continue
        description = f"{text[0].upper()}{text[1:]}."
        made = commands.add_parser(name, help=text, description=description)
        if asked == name:
            module = import_module(f"crossgate._cli.{_MODULES.get(name, name)}")
            if hasattr(module, "run"):  # not a family of commands
                made.set_defaults(run=module.run)
                if name != "mcp":
                    json_option(made)
            if hasattr(module, "arguments"):
                module.arguments(made)
    return parser
