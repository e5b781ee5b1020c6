"""Moves skills out of the folder that an agent always loads, and back.

A parked skill is in the folder `skills-parked` beside `skills`: the agent does not list it, and the
prompt hook suggests it with its path.
"""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from crossgate._agents.hook.refresh import try_lock
from crossgate._agents.hook.skill_library import PARKED, hook_folder
from crossgate._support.errors import InputError, SourceError

_GIT_SECONDS = 10


def target_of(folder: Path, *, back: bool = False) -> Path:
    """Return the folder to which a skill is moved.

    Raises:
        InputError: `not_parkable` for a skill that is in the wrong folder, or whose target exists.
    """
    skills = folder.parent
    if back:
        if not skills.name.endswith(PARKED):
            raise InputError("not_parkable", f"{folder} is not parked")
        target = skills.with_name(skills.name.removesuffix(PARKED)) / folder.name
    else:
        target = skills.with_name(skills.name + PARKED) / folder.name
    if os.path.lexists(target):
        raise InputError(
            "not_parkable", f"{target} exists already: rename or remove one of the two"
        )
    return target


def refuse_tracked(folder: Path) -> None:
    """Raise for a folder with files that git tracks, which a move would delete from a repository.

    Raises:
        InputError: `not_parkable`.
    """
    if not any(os.path.lexists(parent / ".git") for parent in folder.parents):
        return
    command = ["git", "-C", str(folder.parent), "ls-files", "--", folder.name]
    # GIT_DIR, as in a git hook, would name another repository.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603, no shell and no option from the name
            command,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
            env={**kept, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unknown(folder, str(error)) from error
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode != 0 and "not a git repository" not in said:
        raise _unknown(folder, (said.strip().splitlines() or ["git failed"])[0])
    if done.stdout.strip():
        raise InputError(
            "not_parkable",
            f"git tracks {folder}: a move would delete it from the repository. Pass --tracked to "
            "move it anyway",
        )


def _unknown(folder: Path, why: str) -> InputError:
    message = f"cannot ask git whether it tracks {folder}: {why}; pass --tracked to move it anyway"
    return InputError("not_parkable", message)


def move_skill(folder: Path, target: Path) -> None:
    """Move the folder of a skill; on any failure, the skill is complete in one of the two places.

    Raises:
        SourceError: `unwritable` if it cannot be moved.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with try_lock(hook_folder() / "parking.lock") as free:
            if not free:
                raise OSError(errno.EAGAIN, "another process is moving skills: try again")
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, f"{target} exists already")
            _rename_or_copy(folder, target)
    except OSError as error:
        why = error.strerror or str(error)
        raise SourceError("unwritable", f"cannot move {folder} to {target}: {why}") from error


def _rename_or_copy(folder: Path, target: Path) -> None:
    try:
        os.rename(folder, target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    # Another disk: the copy is compared before the original is deleted.
    copy = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    try:
        shutil.copytree(folder, copy, symlinks=True)
        if list(_differences(folder, copy)):
            raise OSError(errno.EIO, "the copy on the other disk differs")
        os.rename(copy, target)
    except OSError:
        with suppress(OSError):
            shutil.rmtree(copy)
        raise
    shutil.rmtree(folder)


def _differences(first: Path, second: Path) -> Iterator[str]:
    """Yield the names of files that are not equal in two folders."""
    found = filecmp.dircmp(first, second, ignore=[])
    yield from (*found.left_only, *found.right_only, *found.funny_files)
    _, mismatched, failed = filecmp.cmpfiles(first, second, found.common_files, shallow=False)
    yield from (*mismatched, *failed)
    for name in found.common_dirs:
        yield from _differences(first / name, second / name)
