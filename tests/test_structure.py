"""Dependencies between the modules of the package, and the modules with state of the process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import crossgate

ROOT = Path(__file__).parents[1]
PACKAGE = Path(crossgate.__file__).parent

LAYERS = (
    ("_cli",),
    ("_agents",),
    ("_serving", "stores", "integrations"),
    ("_calibration",),
    ("_evaluation",),
    ("_lint", "_pipelines"),
    ("_decision",),
    ("_reranking",),
    ("_telemetry",),
    ("_sources",),
    ("_retrieval",),
    ("_runtime",),
    ("_values",),
    ("_support",),
    ("_core",),
)
"""The subpackages from the top; each imports only subpackages of a lower layer."""

MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def is_for_types(node: ast.AST) -> bool:
    """Return whether a node is an `if TYPE_CHECKING:`, whose imports never run."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, except imports for type checkers."""
    if not is_for_types(node):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from nodes(child)


def imported(name: str, path: Path) -> Iterator[str]:
    """Yield the modules that a module imports when it is loaded or later."""
    for node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
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


def paragraph_of_design(start: str) -> str:
    """Return the paragraph of docs/design.md with this start."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    (paragraph,) = re.findall(rf"^\*\*{start}.*?(?=\n\n)", page, re.DOTALL | re.MULTILINE)
    return str(paragraph)


def names_in(paragraph: str) -> set[str]:
    """Return the modules that a paragraph names, such as `_values/results`."""
    return {name for name in re.findall(r"`(_[\w/]+)`", paragraph) if "/" in name}


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    # Raises CycleError, which names the modules.
    order = list(TopologicalSorter(IMPORTS).static_order())
    assert len(order) == len(MODULES) > 100


def test_package_imports_only_packages_of_a_lower_layer() -> None:
    layer_of = {package: number for number, layer in enumerate(LAYERS) for package in layer}

    def package_of(name: str) -> str:
        return name.split(".")[1]

    private = {name for name in MODULES if name.count(".") and package_of(name) in layer_of}
    upwards = {
        f"{name} imports {target}"
        for name in private
        for target in IMPORTS[name]
        if "." in target
        and package_of(target) in layer_of
        and package_of(target) != package_of(name)
        and layer_of[package_of(target)] <= layer_of[package_of(name)]
    }
    assert upwards == set()
    public = {name for name in MODULES.keys() - private if name.count(".")}
    assert all(MODULES[name].parent == PACKAGE for name in public)


def test_private_modules_do_not_import_the_package_itself() -> None:
    """The package imports them, so such an import would close a cycle."""
    importers = {name for name, targets in IMPORTS.items() if "crossgate" in targets}
    assert importers == set()


def test_design_lists_the_modules_with_process_state() -> None:
    """Every module that rebinds a global or registers a fork handler is on the list."""
    listed = names_in(paragraph_of_design("The state of a process"))
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
