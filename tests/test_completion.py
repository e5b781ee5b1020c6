"""Completion of the command line in bash, and the scripts for other shells."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crossgate._cli import run

pytest.importorskip("shtab", reason="the extra completion is not installed")


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("crossgate ro", "route"),
        ("crossgate serve --max-w", "--max-waiting"),
        ("crossgate models pu", "pull"),
        ("crossgate hook inst", "install"),
        ("crossgate serve -i skills.c", "skills.cgx"),
    ],
)
def test_bash_completes(
    typed: str,
    completed: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "skills.cgx").touch()
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(typed.split()) - 1}; _shtab_crossgate"
    done = subprocess.run(
        ["bash", "--norc"],
        input=f"{script}\n{ask}\necho ${{COMPREPLY[@]}}",
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == [completed], done.stderr


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_scripts_of_other_shells_contain_every_command(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from crossgate._cli import COMMANDS

    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)


def test_missing_extra_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    said: list[str] = []
    monkeypatch.setattr("crossgate._cli.output.say", said.append)
    assert run(["completion", "bash"]) == 2
    assert "pip install 'crossgate[completion]'" in said[0]
