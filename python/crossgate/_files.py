"""Writing a file whole or not at all, and finding out early that it cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Open a text file that appears when the block has ended well.

    Whatever interrupts the block, Ctrl-C included, leaves no file and keeps an earlier one.

    Raises:
        OSError: If the file cannot be written.
    """
    unfinished = _unfinished(path)
    try:
        with unfinished.open("w", encoding="utf-8") as stream:
            yield stream
        unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def try_writing(path: Path) -> None:
    """Make sure that a file can be written, before the work on what goes into it begins.

    Raises:
        OSError: If it cannot.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    # Trying is sure: permissions do not tell of a disk that is mounted read-only, or of a name that
    # is too long.
    unfinished = _unfinished(path)
    try:
        unfinished.touch()
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.unfinished")
