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

from crossgate._agents.hook.agents import AGENTS, Agent
from crossgate._agents.hook.install import calls_of
from crossgate._agents.hook.skill_library import PARKED, hook_folder, own_folders
from crossgate._support.errors import CrossgateError, InputError, SourceError
from crossgate._support.files import file_lock

LOCK_SECONDS = 10.0
"""Time to wait while another process moves skills."""

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


def unpark_all(agent: Agent) -> tuple[list[Path], list[str]]:
    """Move all parked skills of an agent back, except those that the hook of another agent reads.

    Returns:
        The folders of the moved skills, and a line for what stays.
    """
    others = [other for other in AGENTS.values() if other != agent and calls_of(other)]
    shared = {folder: other.name for other in others for folder in own_folders(other)}
    moved: list[Path] = []
    problems: list[str] = []
    for parked in own_folders(agent):
        if not parked.endswith(PARKED) or not os.path.isdir(parked):
            continue
        if parked in shared:
            problems.append(f"{parked} stays, since the hook of {shared[parked]} suggests from it")
            continue
        for folder in sorted(path.parent for path in Path(parked).glob("*/SKILL.md")):
            try:
                target = target_of(folder, back=True)
                refuse_tracked(folder)
                move_skill(folder, target)
                moved.append(target)
            except CrossgateError as error:
                problems.append(f"{folder} stays parked: {error}")
        with suppress(OSError):  # something else is in it
            os.rmdir(parked)
    return moved, problems


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

    Relative links between the skill and other files are changed, so that they still lead to the
    same place.

    Raises:
        SourceError: `unwritable` if it cannot be moved, or a link cannot be changed afterwards.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(hook_folder() / "parking.lock", seconds=LOCK_SECONDS) as free:
            if not free:
                raise OSError(errno.EAGAIN, "another process is moving skills: try again")
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, f"{target} exists already")
            links = dict(_links_across(folder, target))
            _rename_or_copy(folder, target)
    except OSError as error:
        why = error.strerror or str(error)
        raise SourceError("unwritable", f"cannot move {folder} to {target}: {why}") from error
    for link, text in links.items():
        try:
            _replace_link(link, text)
        except OSError as error:
            raise SourceError(
                "unwritable",
                f"moved {folder} to {target}, but the link {link} cannot be changed to {text}: "
                f"{error.strerror or error}",
            ) from error


def _links_across(folder: Path, target: Path) -> Iterator[tuple[Path, str]]:
    """Yield the relative links from or into a folder that moves: their new place and new text."""
    for skills in (folder.parent, target.parent):
        for link in _links_below(skills):
            text = os.readlink(link)
            leads_to = Path(os.path.normpath(link.parent / text))
            moved_link, moved_end = (_moved(path, folder, target) for path in (link, leads_to))
            # If both move, or none, the link stays valid.
            if not os.path.isabs(text) and (moved_link == link) != (moved_end == leads_to):
                yield moved_link, os.path.relpath(moved_end, moved_link.parent)


def _links_below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink():
                yield path


def _moved(path: Path, folder: Path, target: Path) -> Path:
    """Return the path after a folder was moved to a target."""
    return target / path.relative_to(folder) if path.is_relative_to(folder) else path


def _replace_link(link: Path, text: str) -> None:
    unfinished = link.with_name(f".{link.name}.{os.getpid()}.unfinished")
    try:
        unfinished.symlink_to(text)
        unfinished.replace(link)
    finally:
        with suppress(OSError):
            unfinished.unlink()


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
