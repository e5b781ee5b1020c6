"""Rerankers that other packages bring along, found by name through their entry points.

A package offers one in its `pyproject.toml`, as a callable without arguments, such as a class:

    [project.entry-points."crossgate.rerankers"]
    acme = "acme.reranking:AcmeReranker"

From then on `acme` is a name wherever crossgate takes the name of a reranker.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from crossgate._reranking.contract import Reranker
from crossgate._support.errors import PluginError, first_line

GROUP = "crossgate.rerankers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A reranker that an installed package offers; it need not load.

    Attributes:
        name: What the entry point is called.
        package: Name and version of the package that offers it.
        value: Where it lies, as `module:attribute`.
    """

    name: str
    package: str
    value: str


def available() -> tuple[Plugin, ...]:
    """Return the plug-ins of all installed packages by name, without importing any."""
    plugins = {_described(point) for point in entry_points(group=GROUP)}
    return tuple(sorted(plugins, key=lambda plugin: (plugin.name, plugin.package, plugin.value)))


def load(name: str) -> Reranker | None:
    """Make the reranker of a plug-in, or return None if no package offers one of this name.

    Raises:
        PluginError: `plugin_ambiguous` if two packages offer the name, `plugin_failed` if it
            cannot be imported or made, or is no reranker.
    """
    points = {_described(point): point for point in entry_points(group=GROUP, name=name)}
    if not points:
        return None
    if len(points) > 1:
        packages = " and ".join(sorted(plugin.package for plugin in points))
        raise PluginError(
            "plugin_ambiguous", f"plug-in {name!r} is offered by {packages}: uninstall one of them"
        )
    [(plugin, point)] = points.items()
    try:
        made = point.load()()
        if isinstance(made, Reranker):
            return made
        cause = f"it makes a {type(made).__name__}, which lacks name, identity or score"
    except (Exception, SystemExit) as error:  # whatever the author of a plug-in got wrong
        line = first_line(error)
        name = type(error).__name__
        cause = name if line == name else f"{name}: {line}"
        raise _failed(plugin, cause) from error
    raise _failed(plugin, cause)


def _described(point: EntryPoint) -> Plugin:
    made_by = point.dist
    package = "an unknown package" if made_by is None else f"{made_by.name} {made_by.version}"
    return Plugin(name=point.name, package=package, value=point.value)


def _failed(plugin: Plugin, cause: str) -> PluginError:
    return PluginError(
        "plugin_failed",
        f"plug-in {plugin.name!r} of {plugin.package} ({plugin.value}) cannot be used: {cause}",
    )
