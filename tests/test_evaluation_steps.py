"""`eval --steps`: the effect of each step, with stand-ins and from the command line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from beir_folder import write_beir
from conftest import FunctionReranker, LengthReranker, WordEmbedder, refused
from crossgate import PairScore
from crossgate._cli import run
from crossgate._evaluation.data.datasets import read_dataset
from crossgate._evaluation.report.steps import StepsReport, measure_steps, text_steps
from crossgate._pipelines.recipes import AGREEMENT

MEMORY = Path(__file__).parents[1] / "eval" / "memory"
STEPS = ["duplicates", "decay", "cross-encoder", "gate", "diversity"]


def names(report: StepsReport) -> tuple[list[str], list[str]]:
    """Return the names of the rows."""
    return [row.name for row in report.added], [row.name for row in report.left_out]


@pytest.fixture(scope="module")
def report() -> StepsReport:
    """The memory corpus, with words for vectors and length for a cross-encoder."""
    return measure_steps(
        read_dataset(MEMORY), reranker=LengthReranker(), embedder=WordEmbedder(), seed=1
    )


def test_each_step_is_added_and_left_out_once(report: StepsReport) -> None:
    added, left_out = names(report)
    assert added == ["words alone", "meaning alone", "fused", *(f"+ {step}" for step in STEPS)]
    assert left_out == [f"without {step}" for step in STEPS]
    assert report.now is not None
    assert report.now.isoformat() == "2031-03-14T17:00:00+00:00"


def test_rows_are_consistent(report: StepsReport) -> None:
    rows = {row.name: row for row in (*report.added, *report.left_out)}
    # The whole without its last step equals the row before that step.
    without, before = rows["without diversity"], rows["+ gate"]
    assert (without.recall_1, without.ndcg_10) == (before.recall_1, before.ndcg_10)
    assert rows["words alone"].change is None
    for earlier, later in zip(report.added, report.added[1:], strict=False):
        assert earlier.recall_1 is not None
        assert later.recall_1 is not None
        assert later.change is not None
        assert math.isclose(
            later.change.value, later.recall_1.value - earlier.recall_1.value, abs_tol=1e-12
        )
    whole = report.added[-1].recall_1
    for row in report.left_out:
        assert row.recall_1 is not None
        assert whole is not None
        assert row.change is not None
        assert math.isclose(row.change.value, row.recall_1.value - whole.value, abs_tol=1e-12)
    assert rows["fused"].skipped is None
    assert rows["+ cross-encoder"].skipped == 0
    assert rows["without gate"].skipped == 0
    assert 0 < (rows["+ gate"].skipped or 0) < 1
    assert all(row.milliseconds > 0 for row in rows.values())
    assert rows["fused"].no_match_picks is not None
    assert rows["fused"].no_match_picks.count == 6


def test_no_pair_is_scored_twice() -> None:
    reranker = LengthReranker()
    dataset = read_dataset(MEMORY, limit=5)
    measure_steps(dataset, reranker=reranker, embedder=WordEmbedder())
    pairs = [(query, text) for query, texts in reranker.calls for text in texts]
    assert len(pairs) == len(set(pairs)) > 5


def test_undated_documents_skip_decay_and_missing_vectors_skip_cosine(tmp_path: Path) -> None:
    dataset = read_dataset(write_beir(tmp_path / "set"))
    seen: list[tuple[int, int]] = []
    report = measure_steps(
        dataset,
        reranker=LengthReranker(),
        embedder=None,
        progress=lambda done, total: seen.append((done, total)),
    )
    added, left_out = names(report)
    rest = [step for step in STEPS if step != "decay"]
    assert added == ["words alone", *(f"+ {step}" for step in rest)]
    assert left_out == [f"without {step}" for step in rest]
    assert report.now is None
    assert "no document has a time" in text_steps(report)
    assert seen[-1] == (len(dataset.queries), len(dataset.queries))


def test_query_chooses_from_its_own_candidates(tmp_path: Path) -> None:
    candidates = [{"query": "q1", "candidates": ["translator", "csv-cleaner"]}]
    dataset = read_dataset(write_beir(tmp_path / "set", candidates=candidates))
    dataset = replace(dataset, queries=dataset.queries[:1])
    reranker = LengthReranker()
    measure_steps(dataset, reranker=reranker, embedder=WordEmbedder())
    read = {text for query, texts in reranker.calls if query != "warm up" for text in texts}
    assert len(read) == 2


def test_perfect_cross_encoder_raises_recall() -> None:
    dataset = read_dataset(MEMORY)
    contents = {document.id: document.content for document in dataset.documents}
    right = {query.text: {contents[id] for id in query.relevant} for query in dataset.queries}
    reranker = FunctionReranker(
        lambda query, texts: [
            PairScore(9.0 if text in right.get(query, ()) else -9.0) for text in texts
        ]
    )
    profile = AGREEMENT.replace(combine={"mode": "replace"})
    report = measure_steps(
        dataset, reranker=reranker, embedder=WordEmbedder(), profile=profile, seed=0
    )
    rows = {row.name: row for row in (*report.added, *report.left_out)}
    change = rows["+ cross-encoder"].change
    assert change is not None
    assert change.value > 0.1
    assert rows["without cross-encoder"].change is not None
    assert rows["without cross-encoder"].change.value < -0.1


def test_rows_without_the_gate_skip_no_query() -> None:
    profile = AGREEMENT.replace(
        any_fits={"stage1": {"intercept": -5.0}}, answer={"rerank_threshold": 0.5}
    )
    report = measure_steps(
        read_dataset(MEMORY, limit=4),
        reranker=LengthReranker(),
        embedder=WordEmbedder(),
        profile=profile,
    )
    rows = {row.name: row for row in (*report.added, *report.left_out)}
    skipped = [rows[name].skipped for name in ("+ cross-encoder", "+ gate", "without gate")]
    assert skipped == [0, 1, 0]


def test_profile_for_other_models_is_refused() -> None:
    profile = AGREEMENT.replace(reranker="other@1")
    options = {"reranker": LengthReranker(), "embedder": WordEmbedder(), "profile": profile}
    refused("profile_mismatch", measure_steps, read_dataset(MEMORY), **options)


def test_command_prints_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", str(MEMORY), "--steps", "--limit", "4"]
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert all(f"+ {step}" in shown and f"without {step}" in shown for step in STEPS)
    assert run([*arguments, "--json", "--embedder", "none"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["schema"] == "crossgate-steps/1"
    (report,) = values["reports"]
    assert (report["dataset"], report["queries"], report["embedder"]) == ("memory", 4, "")
    assert [row["name"] for row in report["added"]][:2] == ["words alone", "+ duplicates"]
    assert set(report["added"][0]["recall_5"]) == {"value", "low", "high", "count"}


def test_stored_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.run.jsonl"
    path.write_text('{"schema": "crossgate-run/3"}\n', encoding="utf-8")
    assert run(["eval", str(path), "--steps"]) == 2
    assert "error[unsuitable_run]" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--html", "--runs"])
def test_unsupported_output_options_are_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", str(MEMORY), "--steps", option, str(tmp_path / "x")]) == 2
    assert "error[out_of_range]" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
