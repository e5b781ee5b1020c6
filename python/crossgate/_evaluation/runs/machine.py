"""The machine and the versions that a figure was measured with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("crossgate", "onnxruntime", "tokenizers", "numpy")


def describe_machine() -> dict[str, str | int]:
    """Return processor, number of cores and system."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def describe_versions(*others: str) -> dict[str, str]:
    """Return the versions of Python and of the packages that a figure depends on."""
    versions = {"python": platform.python_version()}
    for name in dict.fromkeys((*_PACKAGES, *others)):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    return versions


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine() or "unknown"
