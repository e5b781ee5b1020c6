"""Optional packages, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from crossgate._support.errors import ModelError


def package(name: str, what: str, *, extra: str | None = None, major: int | None = None) -> Any:
    """Import and return an optional package.

    Args:
        name: Name of the module.
        what: Feature that needs it, for the error, such as `this search`.
        extra: The extra that installs it, or None.
        major: The only major version that will do; None for any.

    Raises:
        ModelError: `dependency_missing` if it is not installed, or in another major version.
    """
    install = f"'crossgate[{extra}]'" if extra else name
    if major is not None and (found := _version(name)) and found.split(".")[0] != str(major):
        raise ModelError(
            "dependency_missing",
            f"{what} needs {name} {major}, but {name} {found} is installed: pip install {install}, "
            "in an environment of its own if another package needs that version",
        )
    try:
        return import_module(name)
    except ImportError as error:
        raise ModelError(
            "dependency_missing",
            f"{what} needs the package {name!r}, which is not installed: pip install {install}",
        ) from error


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None
