"""Which skills an agent has, where their index lies, and whether it is older than they are."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossgate._files import read_source
from crossgate._hook.agents import Agent
from crossgate._limits import TEXT_BYTES

SCHEMA = "crossgate-hook/1"

_SKILL = "SKILL.md"
_PLUGINS_BYTES = 4_000_000
# A project is looked for so many folders up, and below a folder of skills so many down.
_UP, _DOWN = 40, 6
_MOST_ENTRIES = 20_000


def hook_folder() -> Path:
    """Return the folder that keeps indexes, sessions and the log of hooks; it need not exist.

    Raises:
        ModelError: `model_missing` if there is no home folder.
    """
    from crossgate._model_files.cache import cache_folder

    return cache_folder() / "hook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The skills that one agent has in one place.

    Attributes:
        sources: Absolute folders of skills that are there, a project's before a person's.
        folder: Where index and manifest lie.
    """

    sources: tuple[str, ...]
    folder: Path

    @property
    def key(self) -> str:
        """Names index and manifest: the same skills have the same key."""
        return hashlib.sha256("\0".join(self.sources).encode("utf-8", "replace")).hexdigest()[:24]

    @property
    def index(self) -> Path:
        """The index file."""
        return self.folder / f"{self.key}.cgx"

    @property
    def manifest(self) -> Path:
        """What the index was made of."""
        return self.folder / f"{self.key}.json"


def library_of(agent: Agent, folder: str, extra: Iterable[str] = ()) -> Library:
    """Return the library that an agent has where it works.

    Args:
        agent: The agent.
        folder: Where it works; empty for this process's own folder.
        extra: More folders of skills.

    Raises:
        ModelError: `model_missing` if there is no home folder.
    """
    project = project_of(agent, folder)
    home = Path.home()
    places = [Path(one).expanduser() for one in extra]
    if project is not None:
        places += [project / one for one in agent.project_skills]
    places += [agent.folder / one for one in agent.own_skills]
    places += [home / one for one in agent.user_skills]
    if agent.name in ("claude", "opencode"):
        places += _plugins(home / ".claude" if agent.name == "opencode" else agent.folder)
    found: dict[str, str] = {}
    for place in places:
        path = os.path.abspath(place)
        if os.path.isdir(path):
            for one in (path, *_linked(path)):
                found.setdefault(os.path.realpath(one), one)
    return Library(sources=tuple(found.values()), folder=hook_folder())


def project_of(agent: Agent, folder: str) -> Path | None:
    """Return the folder of the project that an agent works in, or None outside of one.

    It is what the agent names, else the nearest folder upwards that has skills of its own or is a
    repository. The home folder is none.
    """
    named = os.environ.get(agent.project_variable) if agent.project_variable else None
    home = os.path.realpath(Path.home())
    start = os.path.abspath(named or folder or os.getcwd())
    path = Path(start)
    for place in (path, *path.parents)[:_UP]:
        if os.path.realpath(place) == home:
            return None
        marks = (".git", *agent.project_skills)
        if (named and place == path) or any(os.path.exists(place / one) for one in marks):
            return place
    return None


def _linked(folder: str) -> list[str]:
    """Return the folders that are linked into a folder of skills: people keep theirs elsewhere."""
    with os.scandir(folder) as entries:
        return sorted(one.path for one in entries if one.is_symlink() and os.path.isdir(one))


def _plugins(folder: Path) -> list[Path]:
    """Return the folders of skills of the plug-ins that are installed and not switched off."""
    plugins = _json(folder / "plugins" / "installed_plugins.json").get("plugins")
    enabled = _json(folder / "settings.json").get("enabledPlugins")
    off = {name for name, on in enabled.items() if on is False} if isinstance(enabled, dict) else ()
    found: list[Path] = []
    for name, places in plugins.items() if isinstance(plugins, dict) else ():
        for one in places if isinstance(places, list) else [places]:
            path = one.get("installPath") if isinstance(one, dict) else None
            if name not in off and isinstance(path, str) and os.path.isabs(path):
                found.append(Path(path) / "skills")
    return found


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a file, or an empty one."""
    try:
        values = json.loads(read_source(path, _PLUGINS_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def seen(sources: Iterable[str]) -> dict[str, list[int]]:
    """Return time of change and size of each skill, and of each folder that could hold one."""
    found: dict[str, list[int]] = {}
    pending = [(source, 0) for source in sources]
    while pending and len(found) < _MOST_ENTRIES:
        folder, depth = pending.pop()
        try:
            found[folder] = _stamp(os.stat(folder))
            with os.scandir(folder) as entries:
                below = [one for one in entries if not one.name.startswith(".")]
        except OSError:
            continue
        skill = next((one for one in below if one.name == _SKILL), None)
        if skill is not None:
            found[skill.path] = _stamp(os.stat(skill.path)) if os.path.isfile(skill.path) else [0]
        elif depth < _DOWN:
            # Within a skill nothing but its SKILL.md counts.
            pending += [(one.path, depth + 1) for one in below if one.is_dir(follow_symlinks=False)]
    return found


def is_stale(library: Library) -> bool:
    """Return whether a skill was added, changed or removed since the index was last made."""
    try:
        values = json.loads(read_source(library.manifest, TEXT_BYTES))
        made_of = values["seen"] if values["schema"] == SCHEMA else None
        # What stands on the manifest was tried; that the index is gone needs another try.
        if values["documents"] and not os.path.isfile(library.index):
            return True
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return True
    return bool(made_of != seen(library.sources))


def _stamp(status: os.stat_result) -> list[int]:
    return [status.st_mtime_ns, status.st_size]
