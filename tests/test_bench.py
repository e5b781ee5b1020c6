"""`crossgate bench`: the sections measure real work, and the command prints their figures."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from crossgate import Router
from crossgate._cli.bench import (
    _CLEAR,
    _UNCLEAR,
    SECTIONS,
    _library,
)

SMALL = ["--repetitions", "1"]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-c", "from crossgate._cli import main; main()", "bench"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_section_yields_figures(name: str) -> None:
    done = bench(name, "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert (values["schema"], list(values["sections"])) == ("crossgate-bench/2", [name])
    figures = values["sections"][name]
    assert all(figure["median"] > 0 and figure["repetitions"] > 0 for figure in figures)
    assert values["versions"]["numpy"]
    assert values["machine"]["cores"] >= 1


def test_output_is_a_markdown_table_with_the_machine() -> None:
    done = bench("routes", *SMALL)
    assert "| stage 1 alone | " in done.stdout
    assert "cores, " in done.stdout.splitlines()[-1]


def test_invalid_arguments_are_refused() -> None:
    for arguments in (["everything"], ["--repetitions", "0"]):
        done = bench(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert arguments[-1] in done.stderr


def test_unclear_prompt_is_reranked() -> None:
    """The sections use a prompt that the gate sends to the cross-encoder."""
    router = Router(_library(200))
    assert not router.route(_CLEAR).trace["stage2"]
    assert router.route(_UNCLEAR).trace["stage2"]
