"""Queries with the candidates of another retriever: read, reranked, and fitted a gate to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import FunctionReranker, build, documents, refused
from crossgate import Index, Profile, ProfileError, Router, SourceError, read_profile, rerank
from crossgate._cli import run
from crossgate._evaluation.collecting import RETRIEVER
from crossgate._reranking.contract import PairScore
from crossgate.evaluation import (
    is_candidates,
    is_labels,
    measure_candidates,
    read_dataset,
    read_run,
)

SKILLS = Path(__file__).parent.parent / "eval" / "skills"

ROW: dict[str, Any] = {
    "query": "merge two pdf files",
    "relevant": ["pdf"],
    "candidates": [
        {"id": "pdf", "title": "PDF", "text": "merge and split pdf files", "cosine": 0.8},
        {"_id": "csv", "content": "repair tables", "cosine": 0.1, "page": 3},
    ],
}


def overlap() -> FunctionReranker:
    """Return a reranker whose logit is the number of words that query and passage share."""

    def score(query: str, texts: Any) -> list[PairScore]:
        words = set(query.split())
        return [PairScore(float(len(words & set(one.lower().split())))) for one in texts]

    return FunctionReranker(score)


def written(path: Path, *rows: object) -> Path:
    """Write JSON lines."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_run_records_the_scores_of_rerank(tmp_path: Path) -> None:
    nothing = {**ROW, "query": "bake bread", "relevant": [], "kind": "off topic"}
    path = written(tmp_path / "found.jsonl", ROW, nothing)
    assert is_candidates(path)
    output = tmp_path / "runs" / "found.run.jsonl"
    assert measure_candidates(path, output, reranker=overlap(), embedder="mine@1") == ()
    stored = read_run(output)
    header = stored.header
    assert (header.dataset, header.embedder, header.reranker) == ("found", "mine@1", "function@1")
    assert (header.documents, header.modes, header.profile.pool) == (2, ("always",), 2)
    first, second = stored.queries
    assert (first.text, first.relevant, second.relevant) == (ROW["query"], {"pdf": 1}, {})
    assert second.kind == "off topic"
    seen = rerank(ROW["query"], ROW["candidates"], reranker=overlap(), profile=Profile(pool=2))
    assert [one.to_dict() for one in first.scored] == seen.trace["stage1"]
    assert [one.cosine for one in first.scored] == [0.8, 0.1]
    assert {id: pair.score for id, pair in first.pairs.items()} == {"pdf": 3.0, "csv": 0.0}


def test_relevant_documents_missing_from_the_candidates_count_as_missed(tmp_path: Path) -> None:
    path = written(tmp_path / "found.jsonl", {**ROW, "relevant": ["elsewhere"]})
    measure_candidates(path, tmp_path / "run.jsonl", reranker=overlap())
    (query,) = read_run(tmp_path / "run.jsonl").queries
    assert (query.relevant, len(query.scored)) == ({"elsewhere": 1}, 2)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("{", "JSON"),
        ([], "must be a JSON object"),
        ({"query": "q", "candidates": ROW["candidates"]}, "must be a JSON object with query"),
        ({**ROW, "query": 7}, "the query is not text"),
        ({**ROW, "query": ""}, "query"),
        ({**ROW, "candidates": []}, "at least one"),
        ({**ROW, "candidates": [{"id": "a", "text": "b"}]}, "candidate 'a' has no cosine"),
        ({**ROW, "candidates": [{"id": "a", "cosine": 0.5}]}, "candidate 0 has no text"),
        ({**ROW, "candidates": [{"text": "a", "cosine": 1.5}]}, "between -1 and 1"),
        ({**ROW, "candidates": [ROW["candidates"][0]] * 2}, "the id 'pdf' occurs twice"),
        ({**ROW, "candidates": [{"id": "a", "text": " ", "cosine": 0.5}]}, "neither title nor"),
        ({**ROW, "relevant": {"pdf": 1}}, "relevant must be a list of ids"),
        ({**ROW, "relevant": [1]}, "relevant must be a list of ids"),
        ({**ROW, "kind": 1}, "the kind is not text"),
    ],
)
def test_a_bad_row_is_named_and_left_out(tmp_path: Path, row: object, what: str) -> None:
    path = written(tmp_path / "found.jsonl", ROW, row)
    (problem,) = measure_candidates(path, tmp_path / "run.jsonl", reranker=overlap())
    assert "found.jsonl:2" in str(problem)
    assert what in str(problem)
    assert len(read_run(tmp_path / "run.jsonl").queries) == 1
    with pytest.raises(SourceError, match=r"found\.jsonl:2") as raised:
        measure_candidates(path, tmp_path / "run.jsonl", reranker=overlap(), strict=True)
    assert raised.value.code == "malformed_row"
    alone = written(tmp_path / "alone.jsonl", row)
    refused("empty_split", measure_candidates, alone, tmp_path / "none.jsonl", reranker=overlap())


def test_other_files_are_not_candidate_files(tmp_path: Path) -> None:
    labels = {"query": "q", "relevant": []}
    assert not is_candidates(written(tmp_path / "labels.jsonl", labels))
    assert is_labels(tmp_path / "labels.jsonl")
    assert not is_candidates(written(tmp_path / "ids.jsonl", {**labels, "candidates": ["a"]}))
    assert not is_candidates(written(tmp_path / "no.json", ROW))
    for content in ("", "\0", "[]", "{"):
        (tmp_path / "odd.jsonl").write_text(content)
        assert not is_candidates(tmp_path / "odd.jsonl")
    assert not is_candidates(tmp_path / "absent.jsonl")
    assert not is_candidates(tmp_path)


def test_a_gate_is_fitted_to_cosines_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a user: a file, one command, and rerank has a working gate."""
    pytest.importorskip("scipy", reason="scipy is not installed")
    monkeypatch.chdir(tmp_path)
    dataset = read_dataset(SKILLS, split="test")
    texts = {one.id: one.content for one in dataset.documents}
    index = Index.build([{"id": id, "text": text} for id, text in texts.items()])
    asked = dataset.queries[::4]
    vectors = index.load_embedder().embed([one.text for one in asked])
    rows: list[dict[str, Any]] = []
    for query, vector in zip(asked, vectors, strict=True):
        found = index.search(query.text, vector, per_channel=4).scored
        candidates = [
            {"id": one.id, "text": texts[one.id], "cosine": one.cosine}
            for one in sorted(found, key=lambda one: -(one.cosine or 0))[:4]
        ]
        rows.append({"query": query.text, "relevant": [*query.relevant], "candidates": candidates})
    path = written(tmp_path / "found.jsonl", *rows)
    command = ["calibrate", str(path), "--reranker", "crossgate-router-minilm-l12"]
    # So few labels can only promise so much.
    promise = ["--max-false-positive-rate", "0.3", "--max-recall-loss", "0.1"]
    code = run([*command, *promise, "-o", "mine.json"])
    output = capsys.readouterr()
    assert code == 0, output.err
    assert "the candidates are those of another retriever" in output.out
    profile = read_profile("mine.json")
    assert profile.embedder == RETRIEVER
    assert profile.answer.threshold is not None
    results = [
        rerank(
            row["query"],
            row["candidates"],
            profile=profile,
            reranker="crossgate-router-minilm-l12",
        )
        for row in rows[:80]
    ]
    assert any(result.trace["stage2"] == [] and result.ids for result in results), "a clear winner"
    assert any(not result.ids for result in results), "nothing fits"
    with pytest.raises(ProfileError, match="retriever"):
        Router(build(), profile=profile)
    assert run([*command, "--background", "-o", "other.json"]) == 2
    assert "--background needs documents" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--split", "--from-transcripts"])
def test_options_for_libraries_are_refused(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "found.jsonl", ROW)
    assert run(["eval", str(path), option, "x"]) == 2
    assert f"{option} needs documents" in capsys.readouterr().err


def test_documents_of_the_library_are_enough(tmp_path: Path) -> None:
    """Candidates without an id get their places, as in rerank."""
    row = {
        "query": "merge pdf",
        "relevant": ["0"],
        "candidates": [{"text": one.text, "cosine": 0.5} for one in documents()[:3]],
    }
    path = written(tmp_path / "found.jsonl", row)
    measure_candidates(path, tmp_path / "run.jsonl", reranker=overlap())
    (query,) = read_run(tmp_path / "run.jsonl").queries
    assert {one.id for one in query.scored} == {"0", "1", "2"}
