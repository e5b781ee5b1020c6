"""What commands print: one way for JSON, one for people, one for everything that is not a result.

Ids, titles, texts and file names may hold anything. An escape sequence in one of them must not
reach a terminal, so everything that is printed goes through `show` or `say`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

WIDTH = 100
_SKIPPED_SHOWN = 5

# `paint` marks its colours with a secret of this process, so that an escape sequence in a file name
# stays text.
_MARK = os.urandom(8).hex()
_PAINTED = re.compile(rf"\x1b{_MARK}\[(\d+)m")


def json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, which every command takes."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def show(text: str) -> None:
    """Print a result for people, without control characters but line breaks and `paint`'s."""
    lines = (
        "".join(
            f"\x1b[{part}m" if position % 2 else _printable(part)
            for position, part in enumerate(_PAINTED.split(line))
        )
        for line in text.split("\n")
    )
    print("\n".join(lines))


def show_json(values: dict[str, Any]) -> None:
    """Print a result as JSON, in ASCII, so that no terminal or pipe can fail on it."""
    print(json.dumps({"schema": "crossgate/1", **values}, allow_nan=False, indent=2))


def say(message: str) -> None:
    """Print one line that is not a result, on stderr."""
    print(f"crossgate: {plain(message)}", file=sys.stderr)


def say_skipped(problems: Sequence[object], name: str) -> None:
    """Name the first rows or files of a source that were skipped, and count the others."""
    for problem in problems[:_SKIPPED_SHOWN]:
        say(f"skipped {problem}")
    more = len(problems) - _SKIPPED_SHOWN
    if more > 0:
        say(f"and {more:,} more of {name}")


def say_left_out(problems: Sequence[object]) -> None:
    """Count the skills that were left out on purpose, and name the first of them."""
    if problems:
        say(f"{len(problems):,} left out on purpose, such as {problems[0]}; --json lists all")


def plain(text: str) -> str:
    """Return a text on one line and without control characters."""
    return " ".join(_printable(text).split())


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def paint(text: str, code: str) -> str:
    """Return a text that `show` prints in a colour, if stdout is a terminal that wants colours."""
    coloured = is_terminal(sys.stdout) and "NO_COLOR" not in os.environ
    return f"\x1b{_MARK}[{code}m{text}\x1b{_MARK}[0m" if coloured else text


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes; some characters take two."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide


def fit(text: str, width: int) -> str:
    """Return a text that takes at most `width` columns, cut at the end if it is longer."""
    if columns(text) <= width:
        return text
    while columns(text) > width - 1:
        text = text[: min(len(text) - 1, width)]
    return f"{text.rstrip()}…"


def size(count: int) -> str:
    """Return a number of bytes for people, in powers of 1,000."""
    if count < 1_000_000:
        return f"{count / 1_000:.0f} kB"
    return f"{count / 1_000_000:.1f} MB"


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show progress on a terminal, and nothing in a pipe."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=what, unit="", delay=0.5, leave=False) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal, which a person looks at."""
    return stream is not None and stream.isatty()


def open_streams() -> None:
    """Make the standard streams safe to print to.

    A stream that is closed becomes the null device. Otherwise the next file that is opened would
    take its number, and print would write to stdout what belongs on stderr.
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
        # A pipe that takes only ASCII, or a file name in other bytes, is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")


def close_streams(code: int, failure: int) -> int:
    """Flush what is left, and return the exit code, or `failure` if it cannot be printed."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):  # a reader may leave early, as `head` does
            say(f"error[cannot_print]: {error.strerror}")
            return failure
    return code
