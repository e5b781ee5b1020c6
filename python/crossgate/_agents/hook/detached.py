"""Work for the next prompt, in a process that no prompt waits for."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any

PIPE_BYTES = 16_384
"""What fits into a pipe on every system, so that writing it never waits for the reader."""


def spawn_detached(module: str, arguments: list[str], data: bytes = b"") -> bool:
    """Start a module in a process of its own, and return whether that worked.

    Args:
        module: Its name.
        arguments: Its arguments, which other users of the machine can see.
        data: What it reads on stdin, which they cannot see; at most `PIPE_BYTES`.
    """
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS
        apart = {"creationflags": flags}
    with suppress(OSError, ValueError):
        child = subprocess.Popen(  # noqa: S603, our own module
            # An agent works in folders of strangers: without -P their modules would be run.
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE if data else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            **apart,
        )
        child.returncode = 0  # nobody will ask, and this process does not wait for its end
        if child.stdin is not None:
            with child.stdin:
                child.stdin.write(data)
        return True
    return False
