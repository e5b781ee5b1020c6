"""A version is tagged only when every place that names it agrees."""

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


def test_a_version_that_is_ready(tmp_path: Path, faults: Callable[[Path, str], list[str]]) -> None:
    root = repository(tmp_path, cargo="0.2.0", cited="0.2.0", changes=READY)
    assert faults(root, "v0.2.0") == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"cargo": "0.1.0"}, "Cargo.toml says 0.1.0"),
        ({"cited": "0.1.0"}, "CITATION.cff says 0.1.0"),
        ({"changes": READY.replace(" - 2026-11-23", "")}, "no heading '## 0.2.0"),
        ({"changes": READY.replace("Unreleased\n", "Unreleased\n\n- One more.\n")}, "Unreleased"),
    ],
)
def test_what_keeps_it_back(
    tmp_path: Path,
    faults: Callable[[Path, str], list[str]],
    changed: dict[str, str],
    told: str,
) -> None:
    given = {"cargo": "0.2.0", "cited": "0.2.0", "changes": READY, **changed}
    (fault,) = faults(repository(tmp_path, **given), "v0.2.0")
    assert told in fault


def test_our_own_files_name_one_version(faults: Callable[[Path, str], list[str]]) -> None:
    from crossgate import __version__

    named = faults(ROOT, f"v{__version__}")
    assert not [one for one in named if "Cargo" in one or "CITATION" in one or "tag of" in one]


def test_an_extension_with_paths_of_this_machine_is_found(
    tmp_path: Path, wheels: ModuleType
) -> None:
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
