"""`release/wheels.py` refuses a tag unless all files contain its version."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "release" / "wheels.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def faults(wheels: ModuleType) -> Callable[[Path, str], list[str]]:
    found: Callable[[Path, str], list[str]] = wheels.faults
    return found


def repository(folder: Path, *, cargo: str, cited: str, changes: str) -> Path:
    (folder / "Cargo.toml").write_text(f'[workspace.package]\nversion = "{cargo}"\n')
    (folder / "CITATION.cff").write_text(f"cff-version: 1.2.0\nversion: {cited}\n")
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n{changes}")
    return folder


READY = "## Unreleased\n\n## 0.2.0 - 2026-11-23\n\n### Added\n\n- A thing.\n"


def test_consistent_version_has_no_faults(
    tmp_path: Path, faults: Callable[[Path, str], list[str]]
) -> None:
    root = repository(tmp_path, cargo="0.2.0", cited="0.2.0", changes=READY)
    assert faults(root, "v0.2.0") == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cargo": "0.1.0"}, "Cargo.toml has version 0.1.0"),
        ({"cited": "0.1.0"}, "CITATION.cff has version 0.1.0"),
        ({"changes": READY.replace(" - 2026-11-23", "")}, "no heading '## 0.2.0"),
        (
            {"changes": READY.replace("Unreleased\n", "Unreleased\n\n- Another change.\n")},
            "Unreleased",
        ),
    ],
)
def test_inconsistent_version_is_a_fault(
    tmp_path: Path,
    faults: Callable[[Path, str], list[str]],
    changed: dict[str, str],
    message: str,
) -> None:
    given = {"cargo": "0.2.0", "cited": "0.2.0", "changes": READY, **changed}
    (fault,) = faults(repository(tmp_path, **given), "v0.2.0")
    assert message in fault


def test_repository_files_name_the_same_version(faults: Callable[[Path, str], list[str]]) -> None:
    from crossgate import __version__

    named = faults(ROOT, f"v{__version__}")
    assert not [
        fault for fault in named if "Cargo" in fault or "CITATION" in fault or "the tag of" in fault
    ]


def test_extension_with_paths_of_this_machine_is_found(tmp_path: Path, wheels: ModuleType) -> None:
    for content, found in [
        (b"panic in rust/core/src/gate.rs", []),
        (f"panic in {ROOT}/rust/core/src/gate.rs".encode(), [str(ROOT)]),
        (f"panic in {wheels.CARGO_HOME}/registry/src/x.rs".encode(), [str(wheels.CARGO_HOME)]),
    ]:
        wheel = tmp_path / "crossgate-0.2.0-cp311-abi3-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("crossgate/_core.abi3.so", content)
            archive.writestr("crossgate/__init__.py", str(ROOT))
        assert wheels.machine_paths(wheel) == found


def test_the_workflow_tries_the_wheel_that_it_built() -> None:
    """An index could hold a wheel of the same name, which pip may prefer to one of a folder."""
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    (line,) = (line for line in workflow.splitlines() if "crossgate demo" in line)
    assert "pip install dist/release/*.whl &&" in line
    assert "--find-links" not in workflow
