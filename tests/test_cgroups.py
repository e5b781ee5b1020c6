"""The CPU quota of a control group, from folders as Linux shows them, and from a real group."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crossgate._runtime import threads
from crossgate._runtime.cgroups import cpu_quota

V2 = "31 23 0:28 {top} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
V1 = "32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"


def fake(root: Path, group: str, mounts: str, files: dict[str, str]) -> Path:
    """Write the files of the kernel below a folder."""
    files = {"proc/self/cgroup": group, "proc/self/mountinfo": mounts, **files}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("200000 100000\n", 2.0),
        ("150000 100000\n", 1.5),
        ("5000 100000\n", 0.05),
        ("max 100000\n", None),
        ("max\n", None),
        ("", None),
        ("0 100000\n", None),
        ("100000 0\n", None),
        ("-1 100000\n", None),
        ("many 100000\n", None),
        ("1 2 3\n", None),
        (f"{10**400} 1\n", None),
    ],
)
def test_quota_of_version_2(text: str, quota: float | None, tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/pod/cpu.max": text}
    assert cpu_quota(fake(tmp_path, "0::/pod\n", V2.format(top="/"), files)) == quota


@pytest.mark.parametrize(
    ("microseconds", "period", "quota"),
    [("200000", "100000", 2.0), ("-1", "100000", None), ("25000", "50000", 0.5), ("", "", None)],
)
def test_quota_of_version_1(
    microseconds: str, period: str, quota: float | None, tmp_path: Path
) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct/docker/abc"
    files = {f"{folder}/cpu.cfs_quota_us": microseconds, f"{folder}/cpu.cfs_period_us": period}
    group = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n"
    assert cpu_quota(fake(tmp_path, group, V1.format(top="/"), files)) == quota


def test_smallest_quota_of_the_parents_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/kubepods/cpu.max": "800000 100000",
        "sys/fs/cgroup/kubepods/pod7/cpu.max": "300000 100000",
        "sys/fs/cgroup/kubepods/pod7/main/cpu.max": "max 100000",
    }
    group = "0::/kubepods/pod7/main\n"
    assert cpu_quota(fake(tmp_path, group, V2.format(top="/"), files)) == 3.0


@pytest.mark.parametrize("group", ["0::/\n", "0::/../../pod\n"])
def test_group_of_a_container_is_the_root_of_its_mount(group: str, tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "250000 100000"}
    assert cpu_quota(fake(tmp_path, group, V2.format(top="/"), files)) == 2.5


def test_mount_of_a_subtree(tmp_path: Path) -> None:
    # Docker with version 1: the group is a host's path, and the mount shows that group.
    files = {
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    group = "3:cpu,cpuacct:/docker/abc\n"
    assert cpu_quota(fake(tmp_path, group, V1.format(top="/docker/abc"), files)) == 4.0


def test_mount_point_with_a_space(tmp_path: Path) -> None:
    mounts = "31 23 0:28 / /sys/my\\040cgroup rw - cgroup2 cgroup2 rw\n"
    files = {"sys/my cgroup/cpu.max": "100000 100000"}
    assert cpu_quota(fake(tmp_path, "0::/\n", mounts, files)) == 1.0


@pytest.mark.parametrize(
    ("group", "mounts"),
    [("", ""), ("0::/pod", ""), ("nonsense\n:::\n\0", "a - b\n- - -\n31 - cgroup2"), ("0::/", V2)],
)
def test_unreadable_groups_give_no_quota(group: str, mounts: str, tmp_path: Path) -> None:
    assert cpu_quota(fake(tmp_path, group, mounts, {})) is None
    assert cpu_quota(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("quota", "processors"), [(None, 8), (0.2, 1), (1.5, 2), (2.0, 2), (64.0, 8)]
)
def test_threads_follow_quota_and_affinity(
    quota: float | None, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    monkeypatch.setattr(threads, "_threads", 0)
    monkeypatch.delenv("CROSSGATE_THREADS", raising=False)
    assert threads.number_of_threads() == processors
    monkeypatch.setenv("CROSSGATE_THREADS", "5")
    assert threads.number_of_threads() == 5


def test_real_group() -> None:
    group = Path("/sys/fs/cgroup/cpu/crossgate-test")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("this user cannot create a control group for CPU time")
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("70000")
        script = (
            f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
            "from crossgate._runtime.cgroups import cpu_quota\n"
            "from crossgate._runtime.threads import number_of_threads\n"
            "print(cpu_quota(), number_of_threads())"
        )
        environment = {k: v for k, v in os.environ.items() if k != "CROSSGATE_THREADS"}
        run = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env=environment,
        )
        quota, number = run.stdout.split()
        assert math.isclose(float(quota), 0.7)
        assert number == "1"
    finally:
        group.rmdir()
