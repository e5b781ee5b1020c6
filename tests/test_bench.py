"""`crossgate bench`: the sections measure real work, and the command prints their figures."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crossgate import InputError
from crossgate._cli.benchmarks import peers
from crossgate._cli.benchmarks.sections import SECTIONS, Settings, _search, _vectors
from crossgate._cli.benchmarks.texts import Texts
from crossgate._cli.benchmarks.timing import OURS, Figure, side_by_side, table
from crossgate._core import Index as CoreIndex

SMALL = ["--repetitions", "1", "--sizes", "40,60"]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-c", "from crossgate._cli import main; main()", "bench"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def test_contenders_are_timed_in_turns() -> None:
    turns: list[str] = []
    runs: dict[str, Callable[[], object]] = {
        "one": lambda: turns.append("one"),
        "two": lambda: turns.append("two"),
    }
    figures = list(side_by_side("case", runs, 3))
    assert turns == ["one", "two"] * 4  # the first turn is not timed
    assert [(figure.contender, len(figure.values), figure.unit) for figure in figures] == [
        ("one", 3, "ms"),
        ("two", 3, "ms"),
    ]
    (rate,) = side_by_side("case", {"one": lambda: None}, 2, each=1_000)
    assert rate.unit == "per second"
    assert min(rate.values) > 1_000  # an empty function is fast


def test_table_shows_median_quartiles_and_ratio() -> None:
    def figure(contender: str, *values: float, unit: str = "ms", case: str = "a") -> Figure:
        return Figure(case=case, contender=contender, unit=unit, values=values)

    ours = figure(OURS, 5.0, 1.0, 2.0, 3.0, 4.0)
    assert (ours.median, ours.quartiles) == (3.0, (2.0, 4.0))
    assert figure(OURS, 7.0).quartiles == (7.0, 7.0)
    assert table([ours, figure("numpy", 6.0), figure(OURS, 1234.5, case="b")]).splitlines() == [
        "| ms | crossgate | numpy | ratio |",
        "| --- | --- | --- | --- |",
        "| a | 3 (2 to 4) | 6 (6 to 6) | 2 |",
        "| b | 1,234 (1,234 to 1,234) |  |  |",
    ]
    # A larger rate is better.
    rates = [figure(OURS, 30.0, unit="per second"), figure("other", 10.0, unit="per second")]
    assert table(rates).splitlines()[-1] == "| a | 30 (30 to 30) | 10 (10 to 10) | 3 |"
    # Without crossgate there is no ratio.
    assert "ratio" not in table([figure("open, ms", 1.0), figure("save, s", 2.0)])


def test_texts_are_reproducible_and_follow_mandelbrots_law() -> None:
    words = Texts(seed=3).text(20_000).split()
    assert words == Texts(seed=3).text(20_000).split()
    assert words != Texts(seed=4).text(20_000).split()
    ranked = sorted(map(words.count, set(words)), reverse=True)
    # 1 / 2.7 to 1 / 12.7, and a long tail.
    assert 3.5 < ranked[0] / ranked[10] < 6
    assert sum(count == 1 for count in ranked) > 1_000
    assert set(Texts(["a", "b"]).text(50).split()) == {"a", "b"}


def test_peers_find_the_same_documents(tmp_path: Path) -> None:
    """A comparison is fair only if all libraries do the same work."""
    vectors = _vectors(300)
    core = CoreIndex("none", "bench", 384)
    core.upsert([(str(at), "", "", "", [], "{}", row) for at, row in enumerate(vectors)])
    nearest: Any = peers.numpy(vectors)
    for query in _vectors(20, seed=1):
        found: Any = _search(core, "", query)
        assert [int(candidate.id) for candidate in found[0]][:10] == list(nearest(query, 10))


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_section_yields_figures(name: str) -> None:
    done = bench(name, "--json", "--against", "numpy", *SMALL)
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert (values["schema"], list(values["sections"])) == ("crossgate-bench/1", [name])
    figures = values["sections"][name]
    assert all(figure["median"] > 0 and figure["repetitions"] > 0 for figure in figures)
    assert values["versions"]["numpy"]
    assert values["machine"]["cores"] >= 1
    if name in ("bm25", "cosine", "growth"):
        assert len({figure["case"] for figure in figures}) == 2
    if name == "cosine":
        assert {figure["contender"] for figure in figures} == {OURS, "numpy"}


def test_output_is_a_markdown_table_with_the_machine() -> None:
    done = bench("cosine", "--against", "numpy", *SMALL)
    assert "| ms | crossgate | numpy | ratio |" in done.stdout
    assert "| 40 vectors | " in done.stdout
    assert "cores, " in done.stdout.splitlines()[-1]


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="choose from numpy"):
        peers.chosen("nmupy")
    assert peers.chosen("") == ()
    assert peers.chosen("numpy,numpy") == ("numpy",)
    assert "numpy" in peers.chosen(None)
    for arguments in (["everything"], ["--sizes", "5"], ["--sizes", "x"], ["--repetitions", "0"]):
        done = bench(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert arguments[-1] in done.stderr


def test_unclear_prompt_is_reranked() -> None:
    """The sections use a prompt that the gate sends to the cross-encoder."""
    from crossgate import Router
    from crossgate._cli.benchmarks.sections import _CLEAR, _UNCLEAR, _library

    router = Router(_library(200))
    assert not router.route(_CLEAR).trace["stage2"]
    assert router.route(_UNCLEAR).trace["stage2"]
    assert Settings(repetitions=1, sizes=(20,), against=()).against == ()


def test_bm25s_and_crossgate_find_the_same_documents() -> None:
    """Both follow Lucene; the scores differ only because crossgate's lengths are exact."""
    pytest.importorskip("bm25s", reason="bm25s is not installed")
    texts = Texts()
    documents = [texts.text(60) for _ in range(400)]
    core = CoreIndex("none", "", 0)
    core.upsert([(str(at), "", text, "", [], "{}", None) for at, text in enumerate(documents)])
    other: Any = peers.bm25s(documents)
    for _ in range(10):
        query = texts.text(12)
        found: Any = _search(core, query, None)
        ids, _ = other(query, 10)
        same = {int(hit.id) for hit in found[0][:10]} & {int(id) for id in ids[0]}
        assert len(same) >= 8


def test_flashrank_reads_the_same_file(tmp_path: Path) -> None:
    pytest.importorskip("flashrank", reason="flashrank is not installed")
    from crossgate._reranking.contract import passages_of
    from crossgate._reranking.cross_encoder import CrossEncoder
    from crossgate._runtime.models.manifest import BUNDLED, PASSAGE_RERANKER

    passages = ["Rivers carry sand to the sea.", "The train leaves at noon."]
    score: Any = peers.flashrank(BUNDLED / PASSAGE_RERANKER, tmp_path)
    query = "when does the train leave"
    first, second = score(query, passages)
    assert first["text"] == passages[1]
    ours = CrossEncoder(PASSAGE_RERANKER).score(query, passages_of(passages)).complete()
    # FlashRank shows 1 / (1 + exp(-logit)).
    assert ours[1].score > ours[0].score
    for shown, pair in ((first, ours[1]), (second, ours[0])):
        assert float(shown["score"]) == pytest.approx(1 / (1 + math.exp(-pair.score)), abs=0.02)
