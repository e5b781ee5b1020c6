"""How the modules of the package depend on each other, and where state of the process is kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import crossgate

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
