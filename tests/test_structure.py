"""How the modules of the package depend on each other, and where state of the process is kept."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from types import FrameType

import pytest

import crossgate
from conftest import LIBRARY
from crossgate import Document, Index, Profile, Router, _threads

ROOT = Path(__file__).parents[1]
PACKAGE = Path(crossgate.__file__).parent

MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def imported(name: str, path: Path) -> Iterator[str]:
    """Yield the modules that a module imports, on whatever line, for types alone included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module != name:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


IMPORTS: Mapping[str, frozenset[str]] = {
    name: frozenset(imported(name, path)) & MODULES.keys() - {name}
    for name, path in MODULES.items()
}


def test_no_module_is_in_a_circle() -> None:
    # Raises CycleError, which names the modules.
    order = list(TopologicalSorter(IMPORTS).static_order())
    assert len(order) == len(MODULES) > 100


def test_no_folder_is_in_a_circle() -> None:
    def room(name: str) -> str:
        return ".".join(name.split(".")[:2])

    rooms: dict[str, set[str]] = {}
    for name, targets in IMPORTS.items():
        rooms.setdefault(room(name), set()).update(map(room, targets - {name}))
    for name, others in rooms.items():
        others.discard(name)
    assert len(list(TopologicalSorter(rooms).static_order())) > 40


def test_no_private_module_imports_the_face() -> None:
    """It stands above all of them, so an import of it from below closes a circle."""
    importers = {name for name, targets in IMPORTS.items() if "crossgate" in targets}
    assert importers == set()


def test_state_of_the_process_is_kept_where_the_design_says() -> None:
    """Every module that rebinds a global, or has to know of a fork, is on the list."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    (paragraph,) = re.findall(
        r"^\*\*What a process shares.*?(?=\n\n)", page, re.DOTALL | re.MULTILINE
    )
    listed = {name for name in re.findall(r"`(_[\w/]+)`", paragraph)}
    keeping = {
        path.relative_to(PACKAGE).with_suffix("").as_posix()
        for path in MODULES.values()
        if any(
            isinstance(node, ast.Global)
            or (isinstance(node, ast.Attribute) and node.attr == "register_at_fork")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    }
    assert keeping == listed


NAMES = {str(path): name.removeprefix("crossgate.") for name, path in MODULES.items()}


@cache
def stands_on(name: str) -> frozenset[str]:
    """Return all modules that a module imports, directly or through others."""
    direct = IMPORTS[f"crossgate.{name}"] - {"crossgate"}
    beneath = {target.removeprefix("crossgate.") for target in direct}
    return frozenset(beneath.union(*map(stands_on, beneath)))


def calling_module(frame: FrameType | None) -> str | None:
    """Return the module of ours that is under way in a frame or called it, None for neither."""
    while frame is not None and frame.f_code.co_filename not in NAMES:
        frame = frame.f_back
    return None if frame is None else NAMES[frame.f_code.co_filename]


def test_the_way_of_a_reranked_query_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module more on the way of every query, or a call back up, is a choice and no accident."""
    router = Router(
        Index.build(Document(id=id, text=text) for id, text in LIBRARY.items()),
        profile=Profile(),
    )
    router.route("merge two pdf files")  # loads the models
    monkeypatch.setattr(_threads, "_workers", None)  # new threads, which know of the profiler
    calls: set[tuple[str | None, str]] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename in NAMES:
            calls.add((calling_module(frame.f_back), NAMES[frame.f_code.co_filename]))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        result = router.route("repair a csv with duplicate rows")
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    assert result.stage == 2

    assert {called for _, called in calls} == {
        "_cascade",
        "_checks",
        "_embedding",
        "_index",
        "_onnx",
        "_reranking.admission",
        "_reranking.chain",
        "_reranking.contract",
        "_reranking.cross_encoder",
        "_reranking.health",
        "_router",
        "_threads",
        "_types",
    }
    upwards = {(caller, called) for caller, called in calls if caller in stands_on(called)}
    assert upwards == {("_cascade", "_router"), ("_threads", "_reranking.cross_encoder")}
