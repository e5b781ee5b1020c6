"""Starts background processes that outlive the hook."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any

PIPE_BYTES = 16_384
"""Size of the smallest pipe buffer of the supported systems: such a write never blocks."""


def spawn_detached(module: str, arguments: list[str], data: bytes = b"") -> bool:
    """Run a module in a detached process, and return whether it was started.

    Args:
        module: The name of the module.
        arguments: The arguments; other users of the machine can see them.
        data: The input on stdin, which other users cannot see; at most `PIPE_BYTES`.
    """
    separation: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS
        separation = {"creationflags": flags}
    with suppress(OSError, ValueError):
        child = subprocess.Popen(  # noqa: S603, our own module
            # The working folder is not trusted: without -P, Python would import modules from it.
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE if data else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            **separation,
        )
        child.returncode = 0  # this process never waits for the child
        if child.stdin is not None:
            with child.stdin:
                child.stdin.write(data)
        return True
    return False
