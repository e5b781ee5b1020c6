"""`eval/what_most_build.py`: the lines that it prints, without and with another embedder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from beir_folder import QUERIES, write_beir
from crossgate._runtime.models.manifest import BUNDLED, EMBEDDER

SCRIPT = Path(__file__).parents[1] / "eval" / "what_most_build.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("what_most_build", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
) -> dict[str, str]:
    """Run the script, and return the figures of each line by the name before them."""
    monkeypatch.setattr(sys, "argv", ["what_most_build", *arguments])
    script.main()
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.endswith(": 3 with a match, 2 without")
    rows = [line.partition(" first ") for line in lines]
    return {name.strip(): figures for name, _, figures in rows}


def test_lines_are_those_of_words_meaning_their_fusion_and_stage_1(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queries = [*QUERIES, {"_id": "q3", "text": "my photos are too large"}]
    queries = [query for query in queries if query["text"] != "my pictures are too big"]
    folder = write_beir(tmp_path / "set", queries=queries)
    rows = printed(script, monkeypatch, capsys, str(folder))
    assert list(rows) == [
        "BM25 (bm25s, with bodies)",
        "cosine of the bundled embedder",
        "RRF of both",
        "crossgate, stage 1",
    ]
    # The document that fits the photos has no word of their prompt.
    assert rows["BM25 (bm25s, with bodies)"].startswith("0.667 ")
    assert rows["crossgate, stage 1"].startswith("1.000  first five 1.000 ")


def test_embedder_in_a_folder_adds_its_cosine_and_its_fusion(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = str(write_beir(tmp_path / "set"))
    model = str(BUNDLED / EMBEDDER)  # as a folder, so that onnxruntime runs it, not the core
    rows = printed(script, monkeypatch, capsys, folder, "--embedder", model)
    assert rows[f"cosine of {EMBEDDER}"] == rows["cosine of the bundled embedder"]
    assert rows[f"RRF of BM25 and {EMBEDDER}"] == rows["RRF of both"]
    assert list(rows)[-1] == "crossgate, stage 1"
