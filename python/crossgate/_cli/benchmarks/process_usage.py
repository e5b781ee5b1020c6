"""Measures the processor time and the memory of whole processes; not on Windows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

# A process inherits the peak memory of its parent, so a small process starts the measured command.
_STARTER = """
import os, sys
null = os.open(os.devnull, os.O_RDWR)
streams = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=streams)
used = os.wait4(child, 0)[2]
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has used.

    Attributes:
        processor: Processor time of all threads, in ms.
        peak: Peak memory in MiB.
    """

    processor: float
    peak: float


def usage_of(command: Sequence[str]) -> Usage:
    """Run a command without input and output, and return its processor time and memory.

    Args:
        command: Path of the program, and its arguments.
    """
    starter = [sys.executable, "-P", "-S", "-c", _STARTER, *command]
    done = subprocess.run(starter, capture_output=True, check=True)  # noqa: S603, the caller's
    seconds, peak = done.stdout.split()
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return Usage(processor=1e3 * float(seconds), peak=int(peak) / unit)
