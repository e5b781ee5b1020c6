"""Packages that are not installed with crossgate, imported when something first needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from crossgate._errors import ModelError


def package(name: str, install: str, what: str) -> Any:
    """Return a package that may not be there.

    Args:
        name: The module.
        install: The command that brings it.
        what: Names what needs it, such as `this search`.

    Raises:
        ModelError: `dependency_missing` if it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ModelError(
            "dependency_missing",
            f"{what} needs the package {name!r}, which is not installed: {install}",
        ) from error
