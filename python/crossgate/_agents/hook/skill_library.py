"""Finds the skills of an agent, indexes them, and detects changes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import nsmallest
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import crossgate._core as _core
from crossgate._agents.hook.agents import Agent
from crossgate._support.errors import CrossgateError
from crossgate._support.files import EXAMPLES, POLICY, atomic_write, read_source

if TYPE_CHECKING:
    from crossgate._values.results import Document

SCHEMA = "crossgate-hook/1"

_SKILL = "SKILL.md"
_PLUGINS_BYTES = 4_000_000
# Maximum number of levels: upwards to find a project, downwards to find a skill.
_UP, _DOWN = 40, 6
MOST_ENTRIES = 100_000
"""Maximum number of files and folders that are watched for changes."""

MOST_LINKS = 1_000
"""Maximum number of links in a folder of skills: each prompt resolves them, 80 µs each."""

WATCH_SECONDS = 0.03
"""Time that a prompt may spend on looking for changes; a longer search runs in the background."""

_MANIFEST_BYTES = 64 * 1024 * 1024
_QUICK_BYTES = 500_000
"""A larger manifest takes too long to read behind a prompt."""


PARKED = "-parked"
"""Suffix of the folder beside a folder of skills that holds parked skills."""


def is_parked_folder(folder: str) -> bool:
    """Return whether a folder holds parked skills."""
    # A skill that is linked into the folder has a folder of its own.
    return any(name.endswith(PARKED) for name in PurePath(folder).parts[-2:])


def hook_folder() -> Path:
    """Return the folder of the hooks' indexes, sessions and log; it need not exist.

    Raises:
        ModelError: `model_missing` if there is no home folder.
    """
    from crossgate._runtime.model_files import cache_folder

    return cache_folder() / "hook"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillLibrary:
    """The skills of one agent in one working folder.

    Attributes:
        sources: Absolute paths of readable folders of skills. Of two skills with one name, the
            agent loads that of the first.
        namespaces: Names of plug-ins by their folders of skills.
        folder: The folder of index and manifest.
    """

    sources: tuple[str, ...]
    folder: Path
    namespaces: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> str:
        """Stem of the names of index and manifest, a hash of the sources.

        The first parked skill does not change it, so that the index stays in use and vectors are
        kept.
        """
        parked = {source + PARKED for source in self.sources}
        keyed = [source for source in self.sources if source not in parked]
        return _core.sha256_of("\0".join(keyed).encode("utf-8", "replace"))[:24]

    @property
    def index(self) -> Path:
        """The index file."""
        return self.folder / f"{self.key}.cgx"

    @property
    def manifest(self) -> Path:
        """The list of files from which the index was built."""
        return self.folder / f"{self.key}.json"

    @property
    def lessons(self) -> Path:
        """The examples that were taught to the hooks, in all folders."""
        return self.folder / EXAMPLES


def library_of(agent: Agent, folder: str, extra: Iterable[str] = ()) -> SkillLibrary:
    """Return the library of an agent in a working folder.

    Args:
        agent: The agent.
        folder: The working folder of the agent; empty for that of this process.
        extra: Further folders of skills.

    Raises:
        ModelError: `model_missing` if there is no home folder.
    """
    project = project_of(agent, folder)
    home = Path.home()
    own = _own_folders(agent, project, home)
    plugins = plugin_folders(agent)
    more = [*(Path(name).expanduser() for name in extra), *map(Path, plugins)]
    folders = [*own, *((path, None) for path in more)]
    folders += [(path.with_name(path.name + PARKED), within) for path, within in own]
    sources: dict[str, str] = {}
    for path, within in folders:
        with suppress(OSError):  # a relative path in a deleted working folder
            for source in _readable(os.path.abspath(path), within):
                sources.setdefault(os.path.realpath(source), source)
    return SkillLibrary(sources=tuple(sources.values()), folder=hook_folder(), namespaces=plugins)


def own_folders(agent: Agent) -> list[str]:
    """Return the folders of an agent's own skills here, parked ones included.

    Folders of a project are left out if a link leads out of it, since skills are moved in them.
    """
    folders: list[str] = []
    for path, within in _own_folders(agent, project_of(agent, ""), Path.home()):
        pair = [str(path), str(path) + PARKED]
        if within is None or all(is_within(folder, within) for folder in pair):
            folders += pair
    return folders


def is_within(path: str | Path, folder: Path) -> bool:
    """Return whether a path is below a folder, with all links resolved."""
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


def _own_folders(agent: Agent, project: Path | None, home: Path) -> list[tuple[Path, Path | None]]:
    """Return the folders of skills, each with the project that its links must not leave."""
    bases = {"agent": agent.folder, "home": home, "project": project}
    return [
        (base / name, project if below == "project" else None)
        for below, name in agent.skills
        if (base := bases[below]) is not None
    ]


def project_of(agent: Agent, folder: str) -> Path | None:
    """Return the folder of the agent's project, or None outside a project.

    It is the folder that the agent names, or else the nearest folder upwards that has skills or is
    a repository. The home folder is not a project.
    """
    named = os.environ.get(agent.project_variable) if agent.project_variable else None
    home = os.path.realpath(Path.home())
    try:
        start = os.path.abspath(named or folder or os.getcwd())
    except OSError:  # the working folder was deleted
        return None
    path = Path(start)
    for ancestor in (path, *path.parents)[:_UP]:
        if os.path.realpath(ancestor) == home:
            return None
        marks = (".git", *agent.skills_below("project"))
        if (named and ancestor == path) or any(os.path.exists(ancestor / mark) for mark in marks):
            return ancestor
    return None


def _readable(folder: str, project: Path | None) -> Iterator[str]:
    """Yield a folder of skills, then the targets of the symbolic links in it.

    Unreadable folders are left out. So are links out of a project, which is not trusted, and links
    to a parent of this folder or of the home folder, which would be scanned on each prompt.
    """
    starts = [Path(os.path.realpath(path)) for path in (folder, Path.home())]
    around = {str(path) for start in starts for path in (start, *start.parents)}
    inside = os.path.join(os.path.realpath(project), "") if project is not None else ""
    for path in (folder, *_linked(folder)):
        real = os.path.realpath(path)
        if not real.startswith(inside) or (path != folder and real in around):
            continue
        if os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK):
            yield path


def _linked(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            links = (entry.path for entry in entries if entry.is_symlink())
            return nsmallest(MOST_LINKS, links)
    except OSError:
        return []


def plugin_folders(agent: Agent) -> dict[str, str]:
    """Return the skill folders of plug-ins that are installed and not disabled, with their names.

    Claude Code has plug-ins, and opencode gets those of Claude Code.
    """
    if agent.name not in ("claude", "opencode"):
        return {}
    folder = Path.home() / ".claude" if agent.name == "opencode" else agent.folder
    plugins = _json(folder / "plugins" / "installed_plugins.json").get("plugins")
    enabled = _json(folder / "settings.json").get("enabledPlugins")
    off = {name for name, on in enabled.items() if on is False} if isinstance(enabled, dict) else ()
    folders: dict[str, str] = {}
    for name, installs in plugins.items() if isinstance(plugins, dict) else ():
        for install in installs if isinstance(installs, list) else [installs]:
            path = install.get("installPath") if isinstance(install, dict) else None
            if name not in off and isinstance(path, str) and os.path.isabs(path):
                folders[str(Path(path) / "skills")] = name.partition("@")[0]
    return folders


def _json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty dictionary if there is none."""
    try:
        values = json.loads(read_source(path, _PLUGINS_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def seen(sources: Iterable[str], *, deadline: float | None = None) -> dict[str, list[int]]:
    """Return modification time and size of each skill and of each folder of skills.

    Args:
        sources: The folders. At most `MOST_ENTRIES` files and folders are returned.
        deadline: A reading of `time.monotonic`.

    Raises:
        TimeoutError: If the deadline passes.
    """
    stamps: dict[str, list[int]] = {}
    pending = [(source, 0) for source in sources]
    while pending and len(stamps) < MOST_ENTRIES:
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError
        folder, depth = pending.pop()
        try:
            stamps[folder] = _stamp(os.stat(folder))
            with os.scandir(folder) as entries:
                below = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError:
            continue
        skill = next((entry for entry in below if entry.name == _SKILL), None)
        if skill is not None:
            for entry in below:
                if entry.name in (_SKILL, EXAMPLES):
                    is_file = os.path.isfile(entry.path)
                    stamps[entry.path] = _stamp(os.stat(entry.path)) if is_file else [0]
            policy = os.path.join(folder, POLICY)
            with suppress(OSError):
                stamps[policy] = _stamp(os.stat(policy))
            below = [entry for entry in below if entry.name == "skills"]  # as in a plug-in
        if depth < _DOWN:
            pending += [
                (entry.path, depth + 1) for entry in below if entry.is_dir(follow_symlinks=False)
            ]
    return stamps


def hidden_skills(
    agent: Agent, library: SkillLibrary, documents: Iterable[Document]
) -> dict[str, str]:
    """Return the ids of skills that the agent does not load, each with the file that it loads.

    These are skills of another folder with the same name. Plug-ins have names of their own.

    Args:
        agent: The agent.
        library: Its skills.
        documents: The documents of `library.sources`, in this order.
    """
    if agent.lists_namesakes:
        return {}
    first: dict[tuple[str, str, str], Document] = {}
    hidden: dict[str, str] = {}
    for document in documents:
        root = str(document.metadata["root"])
        key = library.namespaces.get(root, ""), document.title, folder_of(document)
        loaded = first.setdefault(key, document)
        if loaded.metadata["root"] != root:
            hidden[document.id] = file_of(loaded)
    return hidden


def file_of(document: Document) -> str:
    """Return the path of a skill's file, or an empty string if the index does not hold it."""
    root, path = document.metadata.get("root"), document.metadata.get("path")
    return str(Path(root, path)) if isinstance(root, str) and isinstance(path, str) else ""


def folder_of(document: Document) -> str:
    """Return the name of a skill's folder; empty without one."""
    return os.path.basename(os.path.dirname(file_of(document)))


def name_in_agent(document: Document, namespaces: Mapping[str, str]) -> str:
    """Return the name by which the agent knows a skill: that of its folder, after its plug-in's.

    `namespaces` has the names of plug-ins by their folders of skills.
    """
    name = folder_of(document) or document.title or document.id
    plugin = namespaces.get(str(document.metadata.get("root", "")))
    return f"{plugin}:{name}" if plugin else name


def build(agent: Agent, library: SkillLibrary, progress: Any = None) -> tuple[int, list[str]]:
    """Build the index of an agent's library, and write a manifest of the files.

    Skills that the agent does not load are left out. Unchanged texts keep their vectors.

    Returns:
        The number of skills, and a line for each skill that was left out.

    Raises:
        CrossgateError: If there is no usable skill, or the index cannot be built or written.
        OSError: If the manifest cannot be written.
    """
    from crossgate._retrieval.document_index import Index
    from crossgate._sources.examples import examples_beside, examples_lock, teach_examples
    from crossgate._sources.reading import read_sources

    library.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = watched(library)  # before reading, so that later changes are noticed
    made: dict[str, Any] = {"schema": SCHEMA, "sources": list(library.sources), "documents": 0}
    try:
        loaded = read_sources(library.sources, kind="skills")
        earlier = None
        with suppress(CrossgateError):
            opened = Index.open(library.index)
            opened.load()  # raises for a damaged index
            earlier = opened
        hidden = hidden_skills(agent, library, loaded.documents)
        documents = [document for document in loaded.documents if document.id not in hidden]
        index = Index.build(documents, reuse=earlier, progress=progress)
        with examples_lock(library.lessons):
            # Earlier versions kept the lessons beside each index.
            for examples in (examples_beside(library.index), library.lessons):
                with suppress(CrossgateError):  # a broken file must not disable the hook
                    teach_examples(index, examples)
            index.save(library.index)
        made["documents"] = len(index)
    finally:
        # A failed build is repeated only after a change.
        with atomic_write(library.manifest) as stream:
            json.dump({**made, "seen": before}, stream)
    places = {loaded.places[id].path: file for id, file in hidden.items()}
    left_out = [
        str(problem)
        for problem in loaded.problems
        if "a link out of the folder" not in problem.reason and problem.path not in places
    ]
    left_out += [
        f"{path}: left out, since {agent.name} loads {file}" for path, file in places.items()
    ]
    if len(before) >= MOST_ENTRIES:
        left_out.append(
            f"the folders have more than {MOST_ENTRIES:,} files: changes beyond are noticed only "
            "by `crossgate hook install`"
        )
    return len(index), left_out


def watched(library: SkillLibrary, *, deadline: float | None = None) -> dict[str, list[int]]:
    """Return the stamps of everything from which the index of a library is built; as `seen`."""
    stamps = seen(library.sources, deadline=deadline)
    with suppress(OSError):
        stamps[str(library.lessons)] = _stamp(os.stat(library.lessons))
    return stamps


def was_indexed(library: SkillLibrary) -> bool:
    """Return whether a build of the index was tried before, with or without success."""
    return os.path.isfile(library.manifest)


def why_unwritable(library: SkillLibrary) -> str:
    """Return why the index cannot be written, with a remedy; empty if it can."""
    folder = library.folder
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
        return ""
    return (
        f"cannot write to {folder}, so the skills cannot be indexed: set CROSSGATE_CACHE to a "
        "folder that can be written"
    )


def is_stale(library: SkillLibrary, *, quick: bool = False) -> bool | None:
    """Return whether a skill was added, changed or removed since the index was last made.

    Args:
        library: The skills.
        quick: Whether to return None if this takes longer than about `WATCH_SECONDS`.
    """
    deadline = time.monotonic() + WATCH_SECONDS if quick else None
    try:
        if quick and os.stat(library.manifest).st_size > _QUICK_BYTES:
            return None
        values = json.loads(read_source(library.manifest, _MANIFEST_BYTES))
        made_of = values["seen"] if values["schema"] == SCHEMA else None
        # The index was built and has been deleted since.
        if values["documents"] and not os.path.isfile(library.index):
            return True
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return True
    try:
        return bool(made_of != watched(library, deadline=deadline))
    except TimeoutError:
        return None


def _stamp(status: os.stat_result) -> list[int]:
    return [status.st_mtime_ns, status.st_size]
