"""Reading and writing files: whole or not at all, bounded, and nothing but regular files."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from io import BufferedReader

# Opening must not wait for the other end of a pipe, and a child must not inherit the file.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))

_PART = 1024 * 1024

LEFTOVER_SECONDS = 3600.0
"""For so long a file aside that nobody writes to is left alone."""

# What the core calls a file aside while it saves an index.
_OF_INDEX = re.compile(r"\.crossgate-[A-Za-z0-9]{6}")


@contextmanager
def atomic_write(path: Path) -> Iterator[TextIO]:
    """Open a text file, in UTF-8, that appears when the block has ended well.

    Whatever interrupts the block, Ctrl-C included, leaves no file and keeps an earlier one. A
    symbolic link stays, and what it points to is replaced by a file with the same permissions.

    Raises:
        OSError: If the file cannot be written, or as `check_target` does.
    """
    target = check_target(path)
    remove_leftovers(target)
    unfinished = _unfinished(target)
    try:
        with open(unfinished, "w", encoding="utf-8", opener=_open_no_link) as stream:
            # Before anything is in it: settings with a key are for their owner alone.
            with suppress(OSError):
                unfinished.chmod(stat.S_IMODE(target.stat().st_mode))
            yield stream
            # A disk may tell only now that it is full: before the earlier file is gone.
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(target)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _open_no_link(path: str, flags: int) -> int:
    # A stranger's folder may hold links with all the names that a file aside can have.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file with its permissions and times, whole or not at all.

    What has the name of the copy is replaced: a symbolic link is not followed, since where a
    stranger has put one, it may lead anywhere.

    Raises:
        OSError: If the source cannot be read, or the copy not be written.
    """
    import shutil  # not above: every prompt of a hook imports this module

    unfinished = _unfinished(target)
    try:
        with suppress(FileNotFoundError):
            unfinished.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
        with open_source(source) as whole, os.fdopen(os.open(unfinished, flags, 0o600), "wb") as to:
            shutil.copyfileobj(whole, to)
        shutil.copystat(source, unfinished)
        unfinished.replace(target)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def remove_leftovers(target: Path) -> None:
    """Remove what writers that were killed left beside a file; what cannot be removed stays.

    A leftover counts as one when nobody has written to it for an hour and, where its name tells
    who began it, that process is gone: never what another writer is at.
    """
    before = time.time() - LEFTOVER_SECONDS
    of_target = re.compile(rf"\.{re.escape(target.name)}\.([0-9]+)\.unfinished")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            begun = of_target.fullmatch(entry.name)
            if not begun and not _OF_INDEX.fullmatch(entry.name):
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode) or status.st_mtime > before:
                    continue
                if not _is_running(int(begun[1])) if begun else _is_index(entry.path):
                    os.unlink(entry.path)


def _is_running(process: int) -> bool:
    if os.name != "posix":  # where asking is ending; the hour has to do
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _is_index(path: str) -> bool:
    """Return whether a file is the beginning of an index, or nothing yet."""
    with open_source(path) as stream:
        return stream.read(4) in (b"", b"\x89CGX")


def check_target(path: Path) -> Path:
    """Return the file to write for `path`: what it links to, if it is a symbolic link.

    Raises:
        OSError: If something is there that is not a regular file. Replacing a device or a pipe
            would remove it from the machine, and writing to it could wait forever.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name cannot be one: it holds a NUL")
    # Not Path.resolve, which refuses a loop of links with another error before Python 3.13.
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if target.is_symlink():  # one of a loop of links, which would be replaced
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    check_source(target)
    return target


def try_writing(path: Path) -> None:
    """Make sure that a file can be written, before the work on what goes into it begins.

    Raises:
        OSError: If it cannot.
    """
    # Trying is sure: permissions do not tell of a disk that is mounted read-only, or of a name that
    # is too long.
    unfinished = _unfinished(check_target(path))
    try:
        unfinished.touch()
    finally:
        with suppress(OSError):
            unfinished.unlink()


def open_source(path: str | os.PathLike[str], limit: int | None = None) -> BufferedReader:
    """Open a regular file for reading.

    Args:
        path: The file; links are followed.
        limit: Most bytes that it may have.

    Raises:
        OSError: If it cannot be read, is not a regular file, or is longer than `limit`.
    """
    try:
        handle = os.open(path, os.O_RDONLY | _FLAGS)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"its name cannot be one: {error}") from error
    try:
        status = os.fstat(handle)
        _check_regular(status.st_mode)
        if limit is not None and status.st_size > limit:
            raise _too_large(limit)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_source(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return what a regular file of at most `limit` bytes holds.

    Raises:
        OSError: As `open_source` does.
    """
    with open_source(path, limit) as stream:
        # Room is made for as much as is asked for, so not for the limit at once.
        data = stream.read(os.fstat(stream.fileno()).st_size + 1)
        while len(data) <= limit and (more := stream.read(min(_PART, limit + 1 - len(data)))):
            data += more
    if len(data) > limit:  # it grew, or lies in /proc, where the length of a file says nothing
        raise _too_large(limit)
    return data


def check_source(path: str | os.PathLike[str]) -> None:
    """Refuse what is there and is not a regular file, for a reader that opens it itself.

    Raises:
        OSError: If it is not a regular file. What is missing or out of reach is left to the
            reader.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # ValueError for a name with a NUL
        return
    _check_regular(mode)


def cannot_write(what: object, error: OSError) -> str:
    """Return what to say of a file that could not be written, with a way out."""
    remedy = "choose a file in a folder that is there and can be written"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "make room, or choose a file on another disk"
    return f"cannot write {what}: {error.strerror or error}: {remedy}"


def _check_regular(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    kind = "a named pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
    raise OSError(errno.EINVAL, f"it is {kind}, not a regular file")


def _too_large(limit: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {limit:,} bytes, the most that is read")


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.unfinished")
