"""The command line: arguments in, results on stdout, everything else on stderr.

Each command is a module of this package that says what it takes (`arguments`) and what it does
(`run`); only the one that was asked for is imported. Exit codes: 0 something was selected or done,
1 nothing is relevant (for `eval compare`: a metric fell; for `calibrate`: no gate came of the data;
for `replay`: a decision differs; for `lint`: something was found), 2 usage or bad input, 3 failure,
130 interrupted.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as type checkers know it: what takes time to import is imported in `run`

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import NoReturn

DONE, NOTHING_RELEVANT, BAD_INPUT, FAILURE, INTERRUPTED = 0, 1, 2, 3, 130

COMMANDS = {
    "demo": "route four prompts through a small skill library",
    "index": "index a folder of skills, tools, a BEIR folder, JSON lines or texts",
    "lint": "find what hurts routing in a library of skills",
    "route": "pick the documents of an index that fit a query, or none",
    "rerank": "reorder candidates that another retriever found",
    "serve": "serve reranking over HTTP, in the formats of other rerankers",
    "mcp": "serve an agent over MCP, or act as a proxy for its MCP servers",
    "replay": "replay the decisions of a log, and stop at the first that differs",
    "used": "record in a log what was used of a decision, or that nothing was",
    "feedback": "record in a log whether its last decision was right",
    "eval": "measure whether the gate pays for itself on labelled data",
    "calibrate": "fit the gate and the guardrails on labelled data",
    "hook": "tell an agent on each prompt which skill fits; `hook install` sets it up",
    "models": "list, pull, verify and find models",
    "bench": "measure what crossgate costs on this machine, compared with other libraries",
    "completion": "print a completion script for bash, zsh or tcsh",
    "doctor": "show what is installed, which models are present, and what is off and why",
}

_MODULES = {"eval": "evaluate"}

# The input was fine and the machine was not.
_FAILURES = {
    "index_unwritable",
    "model_failed",
    "profile_unwritable",
    "pull_failed",
    "pull_unwritable",
    "unwritable",
}

# Everything else that `hook` is told comes from an agent, which takes exit code 2 for "erase the
# prompt".
_HOOK_COMMANDS = [["install"], ["uninstall"], ["try"], ["-h"], ["--help"]]

# The data was fine and no gate came of it.
_REFUSALS = {"no_gate", "promise_broken"}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["hook"] and given[1:2] not in _HOOK_COMMANDS:
        from crossgate._agents.hook.main import main as answer_prompt

        answer_prompt(given[1] if given[1:] else "", given[2:])
    # Whatever takes time to import is imported inside, where an interrupt has a name.
    code = run(given, streams=True)
    _leave_quietly()
    sys.exit(code)


def run(arguments: Sequence[str], *, streams: bool = False) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: What follows the name of the program.
        streams: Whether the standard streams are this program's own, to be mended at the start
            and emptied at the end.
    """
    try:
        from crossgate._cli import output

        if streams:
            output.open_streams()
        code = _run(arguments)
        return output.close_streams(code, FAILURE) if streams else code
    except KeyboardInterrupt:
        print("crossgate: interrupted, nothing was left half done", file=sys.stderr or sys.stdout)
        return INTERRUPTED


def _leave_quietly() -> None:
    """Have an interrupt that comes when all is done end the program without a traceback."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(arguments: Sequence[str]) -> int:
    from crossgate._cli.output import say
    from crossgate._support.errors import CrossgateError

    try:
        asked = next((argument for argument in arguments if not argument.startswith("-")), "")
        options = parser_of(asked).parse_args(arguments)
        options.arguments = list(arguments)
        code: int = options.run(options)
        return code
    except SystemExit as leaving:  # argparse has printed its help, its version or an error
        return leaving.code if isinstance(leaving.code, int) else DONE
    except CrossgateError as error:
        say(f"error[{error.code}]: {error}")
        if error.code in _REFUSALS:
            return NOTHING_RELEVANT
        return FAILURE if error.code in _FAILURES else BAD_INPUT
    except BrokenPipeError:  # a reader may leave early, as `head` does
        return DONE
    except MemoryError:
        say("error[out_of_memory]: not enough memory: use fewer or shorter documents")
        return FAILURE
    except Exception as error:  # exit code 1 has a meaning of its own
        import errno
        import traceback

        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            say(f"error[cannot_print]: {error.strerror}")
            return FAILURE
        traceback.print_exc()
        say("this is a bug, please report it with the lines above")
        return FAILURE


def parser_of(asked: str | None) -> argparse.ArgumentParser:
    """Return the parser, in which only the command that is asked for has its arguments.

    Args:
        asked: The command; None for all of them.
    """
    import argparse
    from importlib import import_module

    from crossgate._core import __version__

    parser = argparse.ArgumentParser(
        prog="crossgate",
        description="Decides which skill, tool or text chunk fits a query, offline.",
        epilog="Exit codes: 0 selected or done, 1 nothing relevant, 2 bad input, 3 failure.",
    )
    parser.add_argument("--version", action="version", version=f"crossgate {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        description = f"{text[0].upper()}{text[1:]}."
        made = commands.add_parser(name, help=text, description=description)
        if asked in (name, None):
            module = import_module(f"crossgate._cli.{_MODULES.get(name, name)}")
            module.arguments(made)
    return parser
