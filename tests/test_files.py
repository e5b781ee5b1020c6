"""Files are written whole or not at all, and only regular files are read or written."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from crossgate import Document, Index, IndexFileError, ProfileError, SourceError
from crossgate import _cli as cli
from crossgate._cli import doctor
from crossgate._evaluation.compare import read_reports
from crossgate._sources.reading import read_sources
from crossgate._support.files import LEFTOVER_SECONDS, atomic_write, read_source, try_writing
from crossgate._values.profile_files import read_profile
from crossgate.telemetry import read_log

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def write(path: Path, text: str = "new") -> None:
    with atomic_write(path) as stream:
        stream.write(text)


def save_index(path: Path) -> None:
    Index.build([Document(id="a", text="red fox")], embedder=None).save(path)


WRITERS = [write, try_writing, save_index]


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("may not make device nodes here")
    return path


@pytest.mark.parametrize("writer", WRITERS)
def test_a_pipe_is_neither_replaced_nor_waited_for(
    tmp_path: Path, writer: Callable[[Path], None]
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises((OSError, IndexFileError), match="it is a named pipe, not a regular file"):
        writer(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_device_is_not_replaced(device: Path, writer: Callable[[Path], None]) -> None:
    link = device.with_name("link")
    link.symlink_to(device)
    for path in (device, link, Path("/dev/full")):
        with pytest.raises((OSError, IndexFileError), match="it is a device or a socket"):
            writer(path)
    assert stat.S_ISCHR(device.stat().st_mode)
    assert sorted(os.listdir(device.parent)) == ["link", "null"]


@pytest.mark.parametrize("writer", [write, save_index])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_written(
    tmp_path: Path, writer: Callable[[Path], None], there: bool
) -> None:
    target, link = tmp_path / "folder/target", tmp_path / "link"
    target.parent.mkdir()
    if there:
        target.write_text("old", encoding="utf-8")
    link.symlink_to("folder/target")
    writer(link)
    assert os.readlink(link) == "folder/target"
    assert target.read_bytes() not in (b"", b"old")
    assert os.listdir(target.parent) == ["target"]


def test_a_link_at_the_name_of_the_file_aside_is_not_followed(tmp_path: Path) -> None:
    """In a stranger's folder, there may be one for every process id."""
    other, path = tmp_path / "other", tmp_path / "target"
    other.write_text("kept", encoding="utf-8")
    (tmp_path / f".target.{os.getpid()}.unfinished").symlink_to(other)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        write(path)
    assert other.read_text(encoding="utf-8") == "kept"
    write(path)
    assert (path.read_text(encoding="utf-8"), path.is_symlink()) == ("new", False)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_loop_of_links_is_refused_and_stays(
    tmp_path: Path, writer: Callable[[Path], None]
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.symlink_to(two)
    two.symlink_to(one)
    with pytest.raises((OSError, IndexFileError)):
        writer(one)
    assert sorted(tmp_path.iterdir()) == [one, two]
    assert one.is_symlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a file system here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@AS_ROOT
def test_a_full_disk_keeps_the_earlier_file(small_disk: Path) -> None:
    path = small_disk / "report.html"
    write(path, "old")
    with pytest.raises(OSError, match="No space left"):
        write(path, "x" * 100_000)
    assert path.read_text(encoding="utf-8") == "old"
    assert os.listdir(small_disk) == ["report.html"]


KILLED_WRITERS = {
    "text": """
        from crossgate._support.files import atomic_write
        with atomic_write(path) as stream:
            stream.write("x" * 100_000)
    """,
    "index": """
        from crossgate import Document, Index
        text = " ".join(f"word{number}" for number in range(700))
        rows = [Document(id=str(number), text=f"{text} {number}") for number in range(30)]
        Index.build(rows, embedder=None).save(path)
    """,
}


@pytest.mark.skipif(os.name != "posix", reason="this system kills otherwise")
@pytest.mark.parametrize("kind", KILLED_WRITERS)
def test_leftovers_of_a_killed_writer_are_removed_by_the_next(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    # The system ends a process that writes beyond its limit, in the middle of a write.
    script = """
        import resource, signal, sys
        from pathlib import Path
        path = Path(sys.argv[1])
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    """
    text = textwrap.dedent(script) + textwrap.dedent(KILLED_WRITERS[kind])
    done = subprocess.run([sys.executable, "-c", text, str(path)], check=False)
    assert done.returncode == -signal.SIGXFSZ
    (leftover,) = tmp_path.iterdir()
    assert leftover.stat().st_size == 10_000
    for writer in (write, save_index):
        writer(path)  # too early: as far as anybody knows, it is being written
        assert leftover.exists()
    long_ago = leftover.stat().st_mtime - 2 * LEFTOVER_SECONDS
    os.utime(leftover, (long_ago, long_ago))
    (write if kind == "text" else save_index)(path)
    assert os.listdir(tmp_path) == ["file"]


def test_other_files_are_not_removed_as_leftovers(tmp_path: Path) -> None:
    """A live writer's file, those of others, and what only looks like ours."""
    path = tmp_path / "file"
    running = f".file.{os.getppid()}.unfinished"
    names = [running, ".other.999999999.unfinished", ".file.x.unfinished", ".crossgate-config"]
    for name in names:
        (tmp_path / name).write_text("text")
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".crossgate-folder").mkdir()
    (tmp_path / ".crossgate-linked").symlink_to(path)
    os.utime(tmp_path / ".crossgate-linked", (0, 0), follow_symlinks=False)
    write(path)
    save_index(path)
    assert sorted(os.listdir(tmp_path)) == sorted(
        [*names, ".crossgate-folder", ".crossgate-linked", "file"]
    )


READERS: list[tuple[Callable[[Path], object], type[Exception]]] = [
    (Index.open, IndexFileError),
    (read_profile, ProfileError),
    (read_reports, SourceError),
    (lambda path: list(read_log(path)), SourceError),
    (lambda path: read_source(path, 10), OSError),
]


@pytest.mark.parametrize(("reader", "error"), READERS)
def test_special_files_are_refused_without_waiting(
    tmp_path: Path, reader: Callable[[Path], object], error: type[Exception]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(error, match="it is a named pipe, not a regular file"):
        reader(tmp_path / "pipe")
    with pytest.raises(error, match="it is a device or a socket, not a regular file"):
        reader(Path("/dev/zero"))
    with pytest.raises(error, match=r"Is a directory|is a folder: index it with"):
        reader(tmp_path)


@pytest.mark.parametrize(("reader", "error"), READERS[1:3])
def test_a_huge_file_is_refused_before_it_is_read(
    tmp_path: Path, reader: Callable[[Path], object], error: type[Exception]
) -> None:
    path = tmp_path / "huge"
    path.touch()
    os.truncate(path, 8 << 30)
    with pytest.raises(error, match="it exceeds the limit"):
        reader(path)


def test_a_file_whose_length_says_nothing_is_bounded() -> None:
    with pytest.raises(OSError, match="it exceeds the limit of 10 bytes"):
        read_source("/proc/self/status", 10)


def test_room_is_made_for_a_file_and_not_for_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    assert len(read_source(tmp_path / "a", 1 << 50)) == 3_000_000
    assert read_source("/proc/self/status", 1 << 50).startswith(b"Name:")


LONG = "n" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", LONG),
        ("eval", "skills", LONG),
        ("eval", "skills", "--from-transcripts", LONG),
        ("calibrate", LONG, "-o", "p.json"),
        ("index", LONG, "-o", "x.cgx"),
        ("route", "-i", LONG, "q"),
        ("rerank", "q", LONG),
        ("lint", LONG),
        ("replay", LONG),
        ("models", "verify", LONG),
    ],
)
def test_a_name_that_is_too_long_names_no_file(
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "a.md").write_text("# A\n\nText.\n")
    assert cli.run(list(arguments)) in (2, 3)
    told = capsys.readouterr().err
    assert "error[" in told
    assert "bug" not in told


def test_too_little_memory_is_not_reported_as_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "run", lambda _: bytearray(1 << 62))
    assert cli.run(["doctor"]) == 3
    assert capsys.readouterr().err.startswith("crossgate: error[out_of_memory]: ")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_link_that_only_seems_to_be_there_is_left_out() -> None:
    """A process that has ended and is not yet waited for has such links."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        folder = f"/proc/{ended.pid}"
        with pytest.raises(FileNotFoundError):
            os.readlink(f"{folder}/exe")
        with suppress(SourceError):
            read_sources([folder])
