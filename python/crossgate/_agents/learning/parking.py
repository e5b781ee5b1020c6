"""Lists the skills of an agent with their cost, and parks some in a folder that it does not load.

A parked skill is in the folder `skills-parked` beside `skills`: the agent does not list it, and the
prompt hook suggests it with its path.
"""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from crossgate._agents.hook.agents import AGENTS, Agent
from crossgate._agents.hook.install import calls_of
from crossgate._agents.hook.skill_library import (
    PARKED,
    file_of,
    hidden_skills,
    hook_folder,
    is_parked_folder,
    library_of,
    name_in_agent,
    own_folders,
)
from crossgate._agents.learning.adoption import CHARS_PER_TOKEN, bare
from crossgate._sources.reading import read_sources
from crossgate._sources.transcripts import Turn
from crossgate._support.errors import CrossgateError, InputError, SourceError
from crossgate._support.files import file_lock
from crossgate._values.results import Document

Shown = Literal["full", "shortened", "name only", "parked", "hidden"]

_ENTRY_CHARS = 4
"""Characters of an entry in the list besides name and description."""


@dataclass(frozen=True, slots=True)
class ListBudget:
    """The budget of an agent's list of skills.

    Attributes:
        chars: Maximum length of the list in characters.
        description_chars: Maximum length of a description in characters.
        drops: Whether whole descriptions are dropped; otherwise all are shortened.
        checked: The version of the agent whose documentation says so.
    """

    chars: int
    description_chars: int
    drops: bool
    checked: str


BUDGETS = {
    "claude": ListBudget(8_000, 1_536, True, "Claude Code 2.1.129"),  # 1 % of 200,000 tokens
    "codex": ListBudget(8_000, 1_024, False, "Codex of November 2026"),
}
"""Budgets by name of the agent, without its settings; the others document none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSkill:
    """A skill in an agent's list.

    Attributes:
        name: The name by which the agent knows the skill.
        path: Its SKILL.md.
        tokens: Estimated tokens of its entry in the list; 0 if it is parked or hidden.
        uses: Number of prompts after which the agent opened it.
        last_use: Time of the last of these prompts; may be empty.
        shown: Whether the budget shows the description; `hidden` if another skill has the name.
        loaded: The SKILL.md that the agent loads by this name.
    """

    name: str
    path: Path
    tokens: int
    uses: int
    last_use: str
    shown: Shown
    loaded: Path


def list_skills(agent: Agent, folder: str, turns: Iterable[Turn]) -> list[ListedSkill]:
    """Return the skills of an agent in a working folder, the least used first.

    Args:
        agent: The agent.
        folder: The working folder; empty for that of this process.
        turns: Prompts of transcripts, for the uses.
    """
    library = library_of(agent, folder)
    try:
        documents = read_sources(library.sources, kind="skills").documents
    except SourceError:  # no usable skill
        documents = ()
    names = [name_in_agent(document, library.namespaces) for document in documents]
    known = {name.lower() for name in names}
    by_bare = {bare(name): name.lower() for name in names}
    uses: dict[str, tuple[int, str]] = {}
    for turn in turns:
        # A name that is not listed as it is may lack its plug-in.
        opened = {
            name.lower() if name.lower() in known else by_bare.get(bare(name), "")
            for name in turn.opened
        }
        for name in opened:
            count, last = uses.get(name, (0, ""))
            uses[name] = count + 1, max(last, turn.time)
    budget = BUDGETS.get(agent.name)
    hidden = hidden_skills(agent, library, documents)
    entries = [
        _entry(document, name, budget, uses, hidden.get(document.id))
        for document, name in zip(documents, names, strict=True)
    ]
    order = sorted(
        entries, key=lambda skill: (skill.uses, skill.last_use, -skill.tokens, skill.name)
    )
    return _with_budget(order, budget)


def _entry(
    document: Document,
    name: str,
    budget: ListBudget | None,
    uses: Mapping[str, tuple[int, str]],
    hidden_by: str | None,
) -> ListedSkill:
    description = document.text[: budget.description_chars if budget else None]
    shown: Shown = "hidden" if hidden_by else "full"
    if is_parked_folder(str(document.metadata["root"])):
        shown = "parked"
    chars = len(name) + len(description) + _ENTRY_CHARS
    count, last = uses.get(name.lower(), (0, "")) if shown != "hidden" else (0, "")
    path = Path(file_of(document))
    return ListedSkill(
        name=name,
        path=path,
        tokens=-(-chars // CHARS_PER_TOKEN) if shown == "full" else 0,
        uses=count,
        last_use=last,
        shown=shown,
        loaded=Path(hidden_by) if hidden_by else path,
    )


def _with_budget(skills: list[ListedSkill], budget: ListBudget | None) -> list[ListedSkill]:
    """Return the skills with the effect of a budget on each; the least used come first."""
    if budget is None:
        return skills
    excess = total_tokens(skills) - budget.chars // CHARS_PER_TOKEN
    shown: dict[str, Shown] = {}
    for skill in skills:
        if excess <= 0:
            break
        if skill.shown == "full":
            shown[str(skill.path)] = "name only" if budget.drops else "shortened"
            if budget.drops:
                excess -= skill.tokens - -(-len(skill.name) // CHARS_PER_TOKEN)
    return [replace(skill, shown=shown.get(str(skill.path), skill.shown)) for skill in skills]


def total_tokens(skills: Iterable[ListedSkill]) -> int:
    """Return the estimated tokens of a list."""
    return sum(skill.tokens for skill in skills)


LOCK_SECONDS = 10.0
"""Time to wait while another process moves skills."""

_GIT_SECONDS = 10

# A repository's settings may name programs, and any folder of a clone may be a bare repository.
_GIT_TRUSTS_NOTHING = ("-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit")


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
    command = ["git", *_GIT_TRUSTS_NOTHING, "-C", str(folder.parent), "ls-files", "--", folder.name]
    # GIT_DIR, as in a git hook, would name another repository.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603, no shell and no option from the name
            command,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
            env={**kept, "LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1"},
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
            links = dict(_links_across(_in_real_parent(folder), _in_real_parent(target)))
            os.rename(folder, target)
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno == errno.EXDEV:
            why += f": move it by hand (`{shlex.join(['mv', str(folder), str(target)])}`)"
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


def _in_real_parent(path: Path) -> Path:
    """Return a path without links above its last part: from there relative links lead on."""
    return Path(os.path.realpath(path.parent), path.name)


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
