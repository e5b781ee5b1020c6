"""Technologies of a project, whatever its folder holds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from crossgate._sources import projects
from crossgate._sources.projects import MANIFEST_BYTES, MOST_MANIFESTS, technologies_of


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_manifests_in_the_folders_of_a_project_are_read(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path / "web/package.json", json.dumps({"dependencies": {"react": "1"}}))
    write(tmp_path / "backend/pyproject.toml", '[project]\ndependencies = ["fastapi"]')
    write(tmp_path / "backend/src/go.mod", "module x")
    write(tmp_path / "node_modules/package.json", json.dumps({"dependencies": {"vue": "1"}}))
    write(tmp_path / ".venv/requirements.txt", "torch")
    expected = ("fastapi", "javascript", "node", "python", "react")
    assert technologies_of(tmp_path) == expected
    assert technologies_of(tmp_path / "backend" / "src") == (*expected[:1], "go", *expected[1:])


def test_the_bytes_of_manifests_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thousand spellings of a name took seconds, after which the prompt had no answer."""
    spellings = map("".join, itertools.product("pP", "yY", "p", "rR", "oO", "jJ", "eE", "cC", "tT"))
    for number, spelling in enumerate(spellings):
        write(tmp_path / f"{spelling}.toml", "x " * MANIFEST_BYTES)
        write(tmp_path / f"part{number:03}/pyproject.toml", "y " * MANIFEST_BYTES)
    texts: list[str] = []
    actual = projects._manifest

    def manifest(path: Path) -> str:
        texts.append(actual(path))
        return texts[-1]

    monkeypatch.setattr(projects, "_manifest", manifest)
    assert technologies_of(tmp_path) == ("python",)
    assert texts[0].startswith("x")
    assert sum(text.startswith("x") for text in texts) == 1
    assert 1 < len(texts) <= MOST_MANIFESTS


def test_no_manifest_is_read_after_the_time_is_over(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[project]\ndependencies = ["django"]')
    write(tmp_path / "web/package.json", "{}")
    assert technologies_of(tmp_path, seconds=0) == ("python",)
    assert "django" in technologies_of(tmp_path, seconds=60)
