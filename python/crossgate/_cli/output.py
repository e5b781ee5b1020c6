"""Output of commands: results as text or JSON on stdout, messages on stderr.

Ids, titles, texts and file names may contain escape sequences, which must not reach a terminal.
Therefore all output goes through `show` or `say`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from crossgate._support.progress import is_terminal
from crossgate._support.sanitize import remove_invisible

if TYPE_CHECKING:
    from crossgate._sources.reading import Problem

WIDTH = 100
_SKIPPED_SHOWN = 5

# `paint` marks its colours with a random value, so that escape sequences in inputs are not colours.
_MARK = os.urandom(8).hex()
_PAINTED = re.compile(rf"\x1b{_MARK}\[(\d+)m")


def json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, which every command takes."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def subcommand(
    commands: Any, name: str, text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a command to a family of commands, such as `models`."""
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    made.set_defaults(run=run)
    json_option(made)
    return made


def show(text: str) -> None:
    """Print a result as text; control characters are removed, except line breaks and colours."""
    lines = (
        "".join(
            f"\x1b[{part}m" if position % 2 else _printable(part)
            for position, part in enumerate(_PAINTED.split(line))
        )
        for line in text.split("\n")
    )
    print("\n".join(lines))


def show_json(values: dict[str, Any]) -> None:
    """Print a result as JSON in ASCII, which every terminal and pipe accepts."""
    print(json.dumps({"schema": "crossgate/1", **values}, allow_nan=False, indent=2))


def show_result(as_json: bool, values: dict[str, Any], lines: Iterable[str]) -> None:
    """Print a result as JSON, or else as lines of text."""
    if as_json:
        show_json(values)
    else:
        show("\n".join(lines))


def say(message: str) -> None:
    """Print a one-line message on stderr."""
    print(f"crossgate: {plain(message)}", file=sys.stderr)


def say_skipped(problems: Sequence[Problem], name: str) -> None:
    """Report the first skipped or renamed rows or files of a source, and the number of others."""
    for problem in problems[:_SKIPPED_SHOWN]:
        say(f"{'renamed' if problem.renamed else 'skipped'} {problem}")
    more = len(problems) - _SKIPPED_SHOWN
    if more > 0:
        say(f"and {more:,} more of {name}")


def say_left_out(problems: Sequence[object]) -> None:
    """Count the skills that were left out on purpose, and name the first of them."""
    if problems:
        say(f"{len(problems):,} left out on purpose, such as {problems[0]}; --json lists all")


def plain(text: str) -> str:
    """Return a text on one line, without control characters."""
    return " ".join(_printable(text).split())


def _printable(text: str) -> str:
    # Unicode calls some characters printable that show nothing.
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown if shown.isascii() else remove_invisible(shown)


def paint(text: str, code: str) -> str:
    """Return a text that `show` prints in colour, if stdout is a terminal and allows colours."""
    coloured = is_terminal(sys.stdout) and "NO_COLOR" not in os.environ
    return f"\x1b{_MARK}[{code}m{text}\x1b{_MARK}[0m" if coloured else text


def size(count: int) -> str:
    """Format a number of bytes, in powers of 1,000."""
    if count < 1_000_000:
        return f"{count / 1_000:.0f} kB"
    return f"{count / 1_000_000:.1f} MB"


def open_streams() -> None:
    """Make the standard streams safe to print to.

    A closed stream is replaced by the null device. Otherwise the next opened file would take its
    number, and messages could be written to that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Do not fail for a pipe that takes only ASCII, or for undecodable file names.
        sys.stdout.reconfigure(errors="backslashreplace")


def close_streams(code: int, failure: int) -> int:
    """Flush stdout, and return `code`, or `failure` if the output cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # The rest of the buffer would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):  # readers such as `head` close the pipe early
            say(f"error[cannot_print]: {error.strerror}")
            return failure
    return code
