"""`crossgate bench`: the sections measure real work, and the command prints their figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from crossgate import Router
from crossgate._cli.measurements import (
    _CLEAR,
    _UNCLEAR,
    SECTIONS,
    Figure,
    Texts,
    _library,
    search,
    table,
    timed,
    unit_vectors,
    vector_index,
)

SMALL = ["--repetitions", "1", "--sizes", "40,60"]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-c", "from crossgate._cli import main; main()", "bench"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def test_cases_are_timed_in_turns() -> None:
    turns: list[str] = []
    cases: dict[str, Callable[[], object]] = {
        "one": lambda: turns.append("one"),
        "two": lambda: turns.append("two"),
    }
    figures = list(timed(cases, 3))
    assert turns == ["one", "two"] * 4  # the first turn is not timed
    assert [(figure.case, len(figure.values), figure.unit) for figure in figures] == [
        ("one", 3, "ms"),
        ("two", 3, "ms"),
    ]
    (rate,) = timed({"one": lambda: None}, 2, each=1_000)
    assert rate.unit == "per second"
    assert min(rate.values) > 1_000  # an empty function is fast


def test_table_shows_median_and_quartiles() -> None:
    figures = [
        Figure(case="a", unit="ms", values=(5.0, 1.0, 2.0, 3.0, 4.0)),
        Figure(case="b", unit="MB", values=(1234.5,)),
    ]
    assert table(figures).splitlines()[2:] == [
        "| a | 3 | 2 to 4 | ms |",
        "| b | 1,234 | 1,234 to 1,234 | MB |",
    ]


def test_texts_are_reproducible_and_follow_mandelbrots_law() -> None:
    words = Texts(seed=3).text(20_000).split()
    assert words == Texts(seed=3).text(20_000).split()
    assert words != Texts(seed=4).text(20_000).split()
    ranked = sorted(map(words.count, set(words)), reverse=True)
    # 1 / 2.7 to 1 / 12.7, and a long tail.
    assert 3.5 < ranked[0] / ranked[10] < 6
    assert sum(count == 1 for count in ranked) > 1_000
    assert set(Texts(["a", "b"]).text(50).split()) == {"a", "b"}


def test_search_finds_the_nearest_vectors() -> None:
    vectors = unit_vectors(300)
    core = vector_index(vectors)
    for query in unit_vectors(20, seed=1):
        nearest = (-(vectors @ query)).argsort()[:10]
        assert [int(hit.id) for hit in search(core, "", query)[0]][:10] == list(nearest)


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
    if name in ("bm25", "cosine", "growth"):
        assert len({figure["case"].partition(":")[0] for figure in figures}) == 2


def test_output_is_a_markdown_table_with_the_machine() -> None:
    done = bench("cosine", *SMALL)
    assert "| 40 vectors | " in done.stdout
    assert "cores, " in done.stdout.splitlines()[-1]


def test_invalid_arguments_are_refused() -> None:
    for arguments in (["everything"], ["--sizes", "5"], ["--sizes", "x"], ["--repetitions", "0"]):
        done = bench(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert arguments[-1] in done.stderr


def test_unclear_prompt_is_reranked() -> None:
    """The sections use a prompt that the gate sends to the cross-encoder."""
    router = Router(_library(200))
    assert not router.route(_CLEAR).trace["stage2"]
    assert router.route(_UNCLEAR).trace["stage2"]
