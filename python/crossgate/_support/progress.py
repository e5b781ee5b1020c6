"""Shows the progress of long work on stderr: a bar on a terminal, otherwise a line each minute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TextIO, TypeVar

Item = TypeVar("Item")

_BAR_WIDTH = 100
_LINE_SECONDS = 60.0
"""Time between two lines of progress."""


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with the number of items done so far and the total.

    Args:
        what: The work, such as "embedding".
    """
    if not is_terminal(sys.stderr):
        yield _lines(what)
        return
    from shutil import get_terminal_size

    from tqdm import tqdm

    # A terminal that does not tell its size, such as that of a recorder, would stay empty.
    width = min(get_terminal_size().columns, _BAR_WIDTH)
    with tqdm(desc=what, unit=" items", ncols=width, nrows=24, delay=0.5, leave=False) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def in_progress(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield the items, and show how many of them are done."""
    with progress(what) as report:
        for done, item in enumerate(items, start=1):
            yield item
            report(done, len(items))


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal."""
    return stream is not None and stream.isatty()


def _lines(what: str) -> Callable[[int, int], None]:
    due = monotonic() + _LINE_SECONDS

    def report(done: int, total: int) -> None:
        nonlocal due
        if monotonic() >= due:
            due = monotonic() + _LINE_SECONDS
            print(f"crossgate: {what}: {done:,} of {total:,}", file=sys.stderr, flush=True)  # noqa: T201

    return report
