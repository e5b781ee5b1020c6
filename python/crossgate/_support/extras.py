"""Optional packages, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from crossgate._support.errors import ModelError


def package(name: str, what: str, *, extra: str | None = None) -> Any:
    """Import and return an optional package.

    Args:
        name: Name of the module.
        what: Feature that needs it, for the error, such as `this search`.
        extra: The extra that installs it, or None.

    Raises:
        ModelError: `dependency_missing` if it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        install = f"'crossgate[{extra}]'" if extra else name
        raise ModelError(
            "dependency_missing",
            f"{what} needs the package {name!r}, which is not installed: pip install {install}",
        ) from error
