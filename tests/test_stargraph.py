"""Contract: stargraph's loader finds the fusers, and they satisfy its current protocol."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PROBE = "import crossgate, pydantic, importlib.util; assert importlib.util.find_spec('stargraph')"


def interpreter() -> str:
    """Return a Python that has stargraph, its protocol's one dependency, and crossgate."""
    named = os.environ.get("CROSSGATE_STARGRAPH_PYTHON") or str(
        HERE.parent / ".venv" / "stargraph" / "bin" / "python"
    )
    for python in (named, sys.executable, shutil.which("python3.13") or ""):
        if not python or not Path(python).exists():
            continue
        probe = [python, "-c", PROBE]
        if subprocess.run(probe, cwd=HERE, capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip("no Python 3.13 with stargraph, pydantic and crossgate: run `make stargraph`")


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """Results of the fusers in an interpreter with stargraph."""
    done = subprocess.run(
        [interpreter(), "-W", "error", str(HERE / "stargraph_facts.py")],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_stargraph_loads_the_fusers_by_name(facts: dict[str, Any]) -> None:
    assert facts["loaded"] == {
        "crossgate-rrf": "RRFReranker",
        "crossgate-scores": "ScoreFusion",
        "crossgate-cross-encoder": "CrossEncoderFusion",
    }


def test_fusers_satisfy_the_protocol_of_stargraph(facts: dict[str, Any]) -> None:
    assert set(facts["protocol"].values()) == {True}
    assert set(map(len, facts["parameters"].values())) == {0}


def test_rank_fusion_equals_that_of_stargraph(facts: dict[str, Any]) -> None:
    assert facts["alike"] == 300


def test_cross_encoder_reads_the_texts_of_the_hits(facts: dict[str, Any]) -> None:
    assert [id for id, _, _ in facts["cross_encoder"]] == ["c", "b"]
    assert all(metadata["text"].startswith("fox") for _, _, metadata in facts["cross_encoder"])


def test_fused_hits_keep_their_metadata(facts: dict[str, Any]) -> None:
    assert {id for id, _, _ in facts["scores"]} == {"a", "b", "c"}
    assert {id: metadata["place"] for id, _, metadata in facts["scores"]}["a"] == 1


def test_empty_lists_give_an_empty_list(facts: dict[str, Any]) -> None:
    assert set(map(len, facts["empty"].values())) == {0}
    assert facts["inputs_kept"]
