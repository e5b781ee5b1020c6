"""The technologies of a project, from the names and the dependencies of its files."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from crossgate._support.errors import SourceError
from crossgate._support.files import open_source

MOST_ENTRIES = 2_000
"""Entries of a folder that are listed."""

MANIFEST_BYTES = 64 * 1024
"""Bytes of a manifest that are read; a longer manifest of JSON has no dependencies."""

MOST_MANIFESTS = 8
"""Manifests of full length that are read; of shorter ones, up to four times as many."""

MOST_PARTS = 16
"""Folders in a folder that are listed."""

MOST_PARENTS = 8
"""Parents of a folder that are searched for the root of its repository."""

_DATA = json.loads(Path(__file__).with_name("technologies.json").read_text(encoding="utf-8"))

SUFFIXES: Mapping[str, str] = _DATA["suffixes"]
"""Technologies by the suffix of a file or folder, in lower case."""

NAMES: Mapping[str, Sequence[str]] = _DATA["names"]
"""Technologies by the name of a file, in lower case."""

DEPENDENCIES: Mapping[str, str] = _DATA["dependencies"]
"""Technologies by the name of a dependency."""

_MANIFESTS = frozenset(_DATA["manifests"])

_OTHER_FOLDERS = frozenset(_DATA["other_folders"])
"""Folders with the code of others, with tests, or with generated files."""

_LEAST_BYTES = MANIFEST_BYTES // 4
"""Bytes that a shorter manifest counts for."""

_DEPENDENCY_FIELDS = ("dependencies", "devDependencies", "peerDependencies", "require")
_WORD = re.compile(r"[\w@][\w./-]*")


def technologies_of(
    folder: str | os.PathLike[str], *, seconds: float | None = None
) -> tuple[str, ...]:
    """Return the technologies of the project that a folder belongs to, sorted by name.

    The folder and the root of its repository are listed, and the folders in them, such as `web` and
    `backend`. Manifests are read in this order, up to limits. Nothing is run, and files that cannot
    be read are ignored.

    Args:
        folder: A folder of the project.
        seconds: Time after which no further folder is listed and no further manifest read; None
            for no limit.

    Raises:
        SourceError: `source_missing` or `source_unreadable` if the folder cannot be listed.
    """
    end = math.inf if seconds is None else monotonic() + seconds
    path = Path(folder)
    folders = {path: _entries(path)}
    root = _root(path)
    if root != path:
        with suppress(SourceError):
            folders[root] = _entries(root)
    technologies: set[str] = set()
    for entries in folders.values():
        suffixes = {os.path.splitext(entry.name)[1].lower() for entry in entries}
        technologies.update(SUFFIXES[suffix] for suffix in suffixes & SUFFIXES.keys())
    if any((outer / ".github" / "workflows").is_dir() for outer in folders):
        technologies.add("github-actions")
    inner = [
        Path(entry.path) for entries in folders.values() for entry in filter(_is_part, entries)
    ]
    for part in inner[:MOST_PARTS]:
        if monotonic() < end:
            with suppress(SourceError):
                folders.setdefault(part, _entries(part))
    left = MANIFEST_BYTES * MOST_MANIFESTS
    for outer, entries in folders.items():
        # Of several spellings of a name, one is read.
        names = {entry.name.lower(): entry.name for entry in entries}
        for name in names.keys() & NAMES.keys():
            technologies.update(NAMES[name])
        for name in sorted(names.keys() & _MANIFESTS):
            if left > 0 and monotonic() < end:
                text = _manifest(outer / names[name])
                left -= max(len(text), _LEAST_BYTES)
                technologies.update(_dependencies(name, text))
    return tuple(sorted(technologies))


def _is_part(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder that may hold a part of the project."""
    try:
        is_folder = entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
    return is_folder and entry.name[0] != "." and entry.name.lower() not in _OTHER_FOLDERS


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted by name."""
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, MOST_ENTRIES), key=lambda entry: entry.name)
    except FileNotFoundError as error:
        raise SourceError("source_missing", f"no such folder: {folder}") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SourceError(
            "source_unreadable", f"the folder {folder} cannot be listed: {reason}"
        ) from error


def _root(folder: Path) -> Path:
    """Return the nearest folder with `.git`, or the folder itself."""
    above = Path(os.path.abspath(folder))
    for candidate in (above, *islice(above.parents, MOST_PARENTS)):
        if os.path.exists(candidate / ".git"):
            return folder if candidate == above else candidate
    return folder


def _manifest(path: Path) -> str:
    """Return the start of a manifest; empty if it cannot be read."""
    try:
        with open_source(path) as stream:
            return stream.read(MANIFEST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _dependencies(name: str, text: str) -> set[str]:
    """Return the technologies of the dependencies in the text of a manifest."""
    names = _names_in_json(text) if name.endswith(".json") else _WORD.findall(text.lower())
    return {DEPENDENCIES[name] for name in names if name in DEPENDENCIES}


def _names_in_json(text: str) -> list[str]:
    try:
        values: Any = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(values, dict):
        return []
    lists = [values.get(field) for field in _DEPENDENCY_FIELDS]
    return [name for names in lists if isinstance(names, dict) for name in names]
