"""What the README shows is run, and prints what the README says."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n", 1)[0])
def test_python(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})


def test_the_outage_goes_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (block for block in BLOCKS if "TransportError" in block)
    exec(compile(block, "README.md", "exec"), {})
    shown = README.split(block)[1].split("Three failures")[0].removeprefix("```")
    lines = [line.strip() for line in shown.splitlines() if line]
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == lines


def test_a_recipe_is_short() -> None:
    recipes = [block for block in BLOCKS if "crossgate._pipelines.recipes" in block]
    assert len(recipes) == 2
    assert all(len(block.splitlines()) <= 15 for block in recipes)


def test_demo() -> None:
    crossgate = Path(sysconfig.get_path("scripts")) / "crossgate"
    shown = subprocess.run([crossgate, "demo"], capture_output=True, text=True, check=True)
    for line in shown.stdout.split("Now with your own")[0].splitlines():
        # Times differ from run to run.
        pattern = r"\(\d+ ms\)".join(map(re.escape, re.split(r"\(\d+ ms\)", line)))
        assert re.search(f"^ *{pattern}$", README, re.MULTILINE), line
