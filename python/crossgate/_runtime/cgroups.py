"""The CPU quota of the process's control group, as containers set it.

Version 2 has one hierarchy with `cpu.max` in each group; version 1 has a hierarchy of its own for
CPU time, with `cpu.cfs_quota_us` and `cpu.cfs_period_us`. A quota of a parent group limits its
children. See cgroups(7) and https://docs.kernel.org/admin-guide/cgroup-v2.html.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

# Larger files are not settings of the kernel.
_MOST_BYTES = 65_536


@cache
def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the processors that the process may use on average, or None without a quota.

    The result is kept for the process, since containers rarely change their quota.

    Args:
        root: Root of the file system, for tests.
    """
    quotas = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":
            quotas += _quotas(root, "cgroup2", "", group, _quota_v2)
        elif "cpu" in controllers.split(","):
            quotas += _quotas(root, "cgroup", "cpu", group, _quota_v1)
    return min(quotas, default=None)


def _quotas(
    root: Path, kind: str, option: str, group: str, read: Callable[[Path], float | None]
) -> list[float]:
    """Return the quotas of a group and its parents, in the mounted hierarchy."""
    found = []
    for mount, top in _mounts(root, kind, option):
        # In a container with its own view, the mount shows a subtree of the hierarchy.
        inside = group[len(top) :] if top != "/" and group.startswith(top) else group
        folder = root / mount.lstrip("/")
        parts = [part for part in inside.split("/") if part not in ("", ".", "..")]
        for depth in range(len(parts), -1, -1):
            quota = read(folder.joinpath(*parts[:depth]))
            if quota is not None:
                found.append(quota)
    return found


def _mounts(root: Path, kind: str, option: str) -> list[tuple[str, str]]:
    """Return mount points of a hierarchy, with the group at the root of each mount."""
    mounts = []
    for line in _read(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, described = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(described) < 3 or described[0] != kind:
            continue
        if not option or option in described[2].split(","):
            mounts.append((fields[4].replace("\\040", " "), fields[3].replace("\\040", " ")))
    return mounts


def _quota_v2(folder: Path) -> float | None:
    """Return the quota of `cpu.max`, "QUOTA PERIOD" in microseconds, or "max PERIOD"."""
    fields = _read(folder / "cpu.max").split()
    return _ratio(*fields) if len(fields) == 2 else None


def _quota_v1(folder: Path) -> float | None:
    """Return the quota of version 1, where a quota of -1 means no limit."""
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    return _ratio(quota.strip(), period.strip())


def _ratio(quota: str, period: str) -> float | None:
    try:
        processors = int(quota) / int(period)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return processors if 0 < processors < math.inf else None


def _read(path: Path) -> str:
    """Return a small text file, or an empty text if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
