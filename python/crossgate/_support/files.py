"""Atomic writes and bounded reads of regular files."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from crossgate._support.wording import counted

if TYPE_CHECKING:
    from io import BufferedReader

# O_NONBLOCK: opening a pipe must not wait. O_CLOEXEC: child processes must not inherit the file.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))

_PART = 1024 * 1024

EXAMPLES = "examples.jsonl"
"""Name of the file of examples in the folder of a skill."""

POLICY = os.path.join("agents", "openai.yaml")
"""Path of Codex's settings in the folder of a skill."""

LEFTOVER_SECONDS = 3600.0
"""Age in seconds from which an unfinished file counts as a leftover."""

_LOCK_PAUSE = 0.02

# Name of the temporary file of the core while it saves an index.
_OF_INDEX = re.compile(r"\.crossgate-[A-Za-z0-9]{6}")


@contextmanager
def atomic_write(path: Path) -> Iterator[TextIO]:
    """Open a text file, in UTF-8, that replaces `path` when the block succeeds.

    If the block raises, also on Ctrl-C, an existing file is kept. A symbolic link is kept, and its
    target is replaced by a file with the same permissions.

    Raises:
        OSError: If the file cannot be written, or as `check_target` does.
    """
    target = check_target(path)
    remove_leftovers(target)
    unfinished = _unfinished(target)
    try:
        with open(unfinished, "w", encoding="utf-8", opener=_open_no_link) as stream:
            # Set before writing, since settings may contain a key that only the owner may read.
            with suppress(OSError):
                unfinished.chmod(stat.S_IMODE(target.stat().st_mode))
            yield stream
            # A full disk may be reported only now, before the earlier file is replaced.
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(target)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _open_no_link(path: str, flags: int) -> int:
    # Another user's folder may contain links with the names of temporary files.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


@contextmanager
def file_lock(path: Path, *, seconds: float = 0.0) -> Iterator[bool]:
    """Take a lock file, and yield whether it was free; the lock ends with the process.

    The file is removed afterwards, so that no lock stays beside a user's files.

    Args:
        path: The lock file; its folder is created.
        seconds: Time to wait until it is free.

    Raises:
        OSError: If the file cannot be created.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    while (handle := _locked(path)) is None and time.monotonic() < deadline:
        time.sleep(_LOCK_PAUSE)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            with suppress(OSError):  # Windows does not remove an open file
                path.unlink()
            os.close(handle)


def _locked(path: Path) -> int | None:
    """Return the descriptor of a lock file that is locked now; None if another process has it."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    handle = os.open(path, flags, 0o600)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The process that had the lock before may have removed the file in the meantime.
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
    except OSError:
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file atomically, with its permissions and times.

    An existing target is replaced. A symbolic link is not followed, since another user may have
    created it.

    Raises:
        OSError: If the source cannot be read or the copy cannot be written.
    """
    import shutil  # here, since every prompt of a hook imports this module

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
    """Remove the unfinished files that killed writers left beside a file, if possible.

    A file counts as a leftover if it was not written to for an hour and the process in its name, if
    any, has ended. Files of active writers are never removed.
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
    if os.name != "posix":  # on Windows, os.kill ends the process, so only the age counts
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def is_free_for_index(path: Path) -> bool:
    """Return whether nothing has a path, or an index; a link is neither, wherever it leads."""
    try:
        return not path.is_symlink() and _is_index(str(path))
    except OSError as error:
        return isinstance(error, FileNotFoundError)


def _is_index(path: str) -> bool:
    """Return whether a file is empty or begins like an index."""
    with open_source(path) as stream:
        return stream.read(4) in (b"", b"\x89CGX")


def check_target(path: Path) -> Path:
    """Return the file to write for `path`, with symbolic links resolved.

    Raises:
        OSError: If the path exists and is not a regular file. Replacing a device or a pipe would
            remove it, and writing to it could wait forever.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "the name contains a NUL character")
    # Path.resolve raises another error for a loop of links before Python 3.13.
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if target.is_symlink():  # a loop of links
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    check_source(target)
    return target


def try_writing(path: Path) -> None:
    """Check that a file can be written, before expensive work.

    Raises:
        OSError: If it cannot.
    """
    # Permissions alone do not reveal a read-only mount or a name that is too long.
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
        limit: Maximum size in bytes.

    Raises:
        OSError: If it cannot be read, is not a regular file, or is longer than `limit`.
    """
    try:
        handle = os.open(path, os.O_RDONLY | _FLAGS)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"the name is invalid: {error}") from error
    try:
        status = os.fstat(handle)
        _check_regular(status.st_mode)
        if limit is not None and status.st_size > limit:
            raise _too_large(limit)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def lines_of(stream: BufferedReader, most: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of each line; None for a line that is longer than `most` bytes."""
    number = 0
    while raw := stream.readline(most + 1):
        number += 1
        is_short = len(raw) <= most
        yield number, raw if is_short else None
        while not is_short and raw and not raw.endswith(b"\n"):
            raw = stream.readline(most)


def read_source(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    Raises:
        OSError: As `open_source` does.
    """
    with open_source(path, limit) as stream:
        # `read` allocates the requested size, so the limit is not requested at once.
        data = stream.read(os.fstat(stream.fileno()).st_size + 1)
        while len(data) <= limit and (more := stream.read(min(_PART, limit + 1 - len(data)))):
            data += more
    if len(data) > limit:  # the file grew, or is in /proc, where sizes are 0
        raise _too_large(limit)
    return data


def check_source(path: str | os.PathLike[str]) -> None:
    """Check that a path is a regular file or missing, for callers that open it themselves.

    Raises:
        OSError: If it is not a regular file. The caller handles missing and unreadable files.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # ValueError for a name with a NUL
        return
    _check_regular(mode)


def cannot_write(what: object, error: OSError) -> str:
    """Return the message for a file that cannot be written, with a remedy."""
    remedy = "choose a file in an existing, writable folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "free space, or choose a file on another disk"
    return f"cannot write {what}: {error.strerror or error}: {remedy}"


def _check_regular(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    kind = "a named pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
    raise OSError(errno.EINVAL, f"it is {kind}, not a regular file")


def _too_large(limit: int) -> OSError:
    return OSError(errno.EFBIG, f"it exceeds the limit of {counted(limit, 'byte')}")


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.unfinished")
