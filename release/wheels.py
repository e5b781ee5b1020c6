"""Builds the wheels of a release on one machine, and checks each of them.

    python release/wheels.py                       # all targets of Linux
    python release/wheels.py --target TARGET ...   # some, such as aarch64-apple-darwin
    python release/wheels.py --check v0.2.0        # only: is this version ready for its tag?

Needs `pip install --group release` and, for each target, `rustup target add TARGET`. zig links for
the oldest systems that are promised, so no container is needed. One wheel per target serves Python
3.11 and later: abi3audit checks that it keeps to the stable interface, auditwheel that it needs
nothing that an old system lacks (for musl maturin checks that itself, since auditwheel looks for
the musl of the machine that it runs on). Where a target is this machine's, its wheel is installed
into a new environment and routes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

LINUX = {
    "x86_64-unknown-linux-gnu": "manylinux2014",
    "aarch64-unknown-linux-gnu": "manylinux2014",
    "x86_64-unknown-linux-musl": "musllinux_1_2",
    "aarch64-unknown-linux-musl": "musllinux_1_2",
}
"""Targets, and the oldest systems that their wheels are for."""

CARGO_HOME = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))

REMAP = [f"--remap-path-prefix={folder}=" for folder in (CARGO_HOME / "registry" / "src", ROOT)]
"""Flags that remove the paths of this machine from the panic messages of the extension."""

SMOKE = """
from crossgate import Index, Router
router = Router(Index.build(["Merge and split PDF files", "Clean up messy CSV files"]))
assert router.route("merge these two pdf files").ids[:1] == ["1"]
"""


def run(*command: str | Path) -> str:
    """Run a command, print it, and return its output."""
    print("$", *command, flush=True)
    env = {**os.environ, "RUSTFLAGS": " ".join([os.environ.get("RUSTFLAGS", ""), *REMAP]).strip()}
    done = subprocess.run(  # noqa: S603
        list(map(str, command)), cwd=ROOT, env=env, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\n{command[0]} exits with {done.returncode}")
    return done.stdout + done.stderr


def tool(name: str) -> Path:
    """Return the path of a command of this Python environment."""
    return Path(sysconfig.get_path("scripts")) / name


def faults(root: Path, tag: str) -> list[str]:
    """Return the reasons why a tag cannot be released.

    Args:
        root: The repository.
        tag: Such as `v0.2.0`.
    """
    version = tag.removeprefix("v")
    found = []
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        found.append(f"{tag} is not the tag of a version: it must look like v0.2.0")
    workspace = tomllib.loads((root / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]
    if (there := workspace["package"]["version"]) != version:
        found.append(f"Cargo.toml has version {there}, the tag {version}")
    cited = re.search(
        r"^version: (.+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
    )
    if cited is None or cited[1] != version:
        found.append(f"CITATION.cff has version {cited and cited[1]}, the tag {version}")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", changes, flags=re.MULTILINE)[1:]
    heading = re.compile(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d\n")
    if not any(heading.match(section) for section in sections):
        found.append(f"CHANGELOG.md has no heading '## {version} - YYYY-MM-DD'")
    if any(section.startswith("Unreleased") and "- " in section for section in sections):
        found.append("CHANGELOG.md has changes under Unreleased: move them under the version")
    return found


def build(target: str, out: Path) -> Path:
    """Build the wheel of a target, and check it."""
    before = set(out.glob("*.whl"))
    platform = ["--compatibility", LINUX[target]] if target in LINUX else []
    command: list[str | Path] = [
        tool("maturin"),
        "build",
        "--release",
        "--locked",
        "--zig",
        "--target",
        target,
    ]
    run(*command, "--interpreter", "python3.11", "--out", out, *platform)
    made = set(out.glob("*.whl")) - before
    (wheel,) = made or {max(before, key=lambda path: path.stat().st_mtime)}
    if found := machine_paths(wheel):
        raise SystemExit(f"{wheel.name} contains paths of this machine: {', '.join(found)}")
    print(run(tool("abi3audit"), "--strict", "--summary", wheel).strip())
    if target.endswith("linux-gnu"):
        print(run(tool("auditwheel"), "show", wheel).strip())
    return wheel


def machine_paths(wheel: Path) -> list[str]:
    """Return the folders of this machine whose paths the extension of a wheel contains."""
    with zipfile.ZipFile(wheel) as archive:
        files = [archive.read(name) for name in archive.namelist() if "/_core." in name]
    folders = [str(folder) for folder in (CARGO_HOME, ROOT)]
    return [folder for folder in folders if any(folder.encode() in content for content in files)]


def smoke(wheel: Path) -> None:
    """Install a wheel into a new environment, and route."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder)
        run(f"{folder}/bin/pip", "install", "--quiet", wheel)
        run(f"{folder}/bin/python", "-c", SMOKE)


def main() -> None:
    """Build, or check a version."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", nargs="+", default=list(LINUX))
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "release")
    parser.add_argument("--check", metavar="TAG")
    options = parser.parse_args()
    if options.check:
        found = faults(ROOT, options.check)
        print(*found or [f"{options.check} is ready"], sep="\n")
        raise SystemExit(1 if found else 0)
    options.out.mkdir(parents=True, exist_ok=True)
    native = re.search(r"^host: (\S+)$", run("rustc", "-vV"), re.MULTILINE)
    for target in options.target:
        wheel = build(target, options.out)
        if native and native[1] == target:
            smoke(wheel)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
