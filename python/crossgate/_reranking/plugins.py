"""Rerankers of other packages, found by name through entry points.

A package declares one in its `pyproject.toml`, as a callable without arguments, such as a class:

    [project.entry-points."crossgate.rerankers"]
    acme = "acme.reranking:AcmeReranker"

`acme` can then be used wherever crossgate takes the name of a reranker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossgate._reranking.contract import Reranker
from crossgate._support.errors import PluginError, first_line
from crossgate._support.wording import type_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "crossgate.rerankers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A reranker of an installed package, which may still fail to load.

    Attributes:
        name: Name of the entry point.
        package: Name and version of the package.
        value: Location of the callable, as `module:attribute`.
    """

    name: str
    package: str
    value: str


def available() -> tuple[Plugin, ...]:
    """Return the plug-ins of all installed packages, sorted by name, without importing them."""
    plugins = {_described(point) for point in _declared()}
    return tuple(sorted(plugins, key=lambda plugin: (plugin.name, plugin.package, plugin.value)))


def load(name: str) -> Reranker | None:
    """Create the reranker of a plug-in, or return None if no package declares the name.

    Raises:
        PluginError: `plugin_ambiguous` if two packages declare the name, `plugin_failed` if it
            cannot be imported or created, or is not a reranker.
    """
    points = {_described(point): point for point in _declared() if point.name == name}
    if not points:
        return None
    if len(points) > 1:
        packages = " and ".join(sorted(plugin.package for plugin in points))
        raise PluginError(
            "plugin_ambiguous", f"plug-in {name!r} is declared by {packages}: uninstall one of them"
        )
    [(plugin, point)] = points.items()
    try:
        reranker = point.load()()
        if isinstance(reranker, Reranker):
            return reranker
        cause = f"it returns {type_of(reranker)}, which lacks name, identity or score"
    except (Exception, SystemExit) as error:  # code of the plug-in can raise anything
        line = first_line(error)
        name = type(error).__name__
        cause = name if line == name else f"{name}: {line}"
        raise _failed(plugin, cause) from error
    raise _failed(plugin, cause)


def _declared() -> Iterable[EntryPoint]:
    # The import takes 20 ms, and only names that are not in the manifest need it.
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _described(point: EntryPoint) -> Plugin:
    made_by = point.dist
    package = "an unknown package" if made_by is None else f"{made_by.name} {made_by.version}"
    return Plugin(name=point.name, package=package, value=point.value)


def _failed(plugin: Plugin, cause: str) -> PluginError:
    return PluginError(
        "plugin_failed",
        f"plug-in {plugin.name!r} of {plugin.package} ({plugin.value}) cannot be used: {cause}",
    )
