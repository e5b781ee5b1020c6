"""Packages that are not installed with crossgate, imported when something first needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from crossgate._support.errors import ModelError


def package(name: str, what: str, *, extra: str | None = None) -> Any:
    """Return a package that may not be there.

    Args:
        name: The module.
        what: Names what needs it, such as `this search`.
        extra: The extra that brings it; None for a package that no extra brings.

    Raises:
        ModelError: `dependency_missing` if it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        install = f"'.[{extra}]' from a clone" if extra else name
        raise ModelError(
            "dependency_missing",
            f"{what} needs the package {name!r}, which is not installed: pip install {install}",
        ) from error
