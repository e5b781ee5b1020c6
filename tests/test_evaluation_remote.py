"""Hosted rerankers in `eval`: the real clients against a server with the providers' interfaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from beir_folder import write_beir
from conftest import WordEmbedder, refused
from crossgate import Index
from crossgate import _cli as cli
from crossgate._evaluation.stored_runs import decide, write_run
from crossgate._reranking.http import SWITCH
from crossgate.evaluation import (
    MODES,
    Run,
    measure,
    read_dataset,
    read_run,
    summarize,
    text_report,
)
from crossgate.rerankers import CohereReranker, JinaReranker, RemoteReranker, VoyageReranker
from providers_server import KEY, ProvidersServer, relevance
from small_runs import measured as measured_locally

CLASSES: dict[str, type[RemoteReranker]] = {
    "voyage": VoyageReranker,
    "cohere": CohereReranker,
    "jina": JinaReranker,
}


def hosted(provider: str, server: ProvidersServer, key: str = KEY) -> RemoteReranker:
    """Return a provider's reranker that asks the server once per call."""
    options: dict[str, Any] = {
        "base_url": server.voyage if provider == "voyage" else server.url,
        "api_key": key,
        "attempts": 1,
    }
    return CLASSES[provider](**options)


def measured(folder: Path, reranker: RemoteReranker, embedder: WordEmbedder) -> Run:
    """Measure a small dataset with a hosted reranker."""
    path = folder / "set.run.jsonl"
    dataset = read_dataset(write_beir(folder / "set"))
    measure(dataset, path, embedder=embedder, reranker=reranker)
    return read_run(path)


@pytest.mark.parametrize("provider", CLASSES)
def test_hosted_reranker_scores_every_candidate(
    tmp_path: Path, server: ProvidersServer, provider: str
) -> None:
    reranker = hosted(provider, server)
    run = measured(tmp_path, reranker, WordEmbedder())
    index = Index.build(read_dataset(tmp_path / "set").documents, embedder=None)
    assert (run.header.modes, run.header.reranker) == (MODES, reranker.identity)
    assert any(query.scored for query in run.queries)
    for query in run.queries:
        assert {id: pair.score for id, pair in query.pairs.items()} == pytest.approx(
            {scored.id: relevance(index[scored.id].content) for scored in query.scored}
        )
        assert query.degraded == ()


def test_failed_calls_are_counted_and_keep_the_order_of_stage_1(
    tmp_path: Path, server: ProvidersServer
) -> None:
    # The call before all work, that of the warm-up, and those of two modes for the first query.
    server.plan.extend([None, None, "500", "500"])
    run = measured(tmp_path, hosted("jina", server), WordEmbedder())
    failed, *others = [query for query in run.queries if query.scored]
    assert "api_error" in failed.degraded
    assert failed.pairs == {}
    assert all(query.pairs and "api_error" not in query.degraded for query in others)
    never, always = (decide(failed, run.header.profile, mode) for mode in ("never", "always"))
    assert (always.ids, always.stage) == (never.ids, 1)
    assert "degraded: api_error, 1 query" in text_report(summarize(run))


def test_hosted_reranker_that_does_not_answer_is_an_error_before_any_work(
    tmp_path: Path, server: ProvidersServer
) -> None:
    embedder = WordEmbedder()
    wrong = hosted("cohere", server, key="wrong")
    assert "401" in refused("api_error", measured, tmp_path, wrong, embedder)
    assert embedder.texts == []
    assert not (tmp_path / "set.run.jsonl").exists()


def test_runs_of_earlier_releases_are_read(tmp_path: Path) -> None:
    run, path = measured_locally(tmp_path), tmp_path / "old.run.jsonl"
    write_run(path, run.header, run.queries)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0] |= {"remote": "cohere/x", "modes": [*MODES, "remote"]}
    rows[1:] = [{**row, "remote": [], "reweighed": [], "repeated": None} for row in rows[1:]]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read_run(path) == run


def test_command_without_a_key_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VOYAGE_API_KEY", "COHERE_API_KEY", "CO_API_KEY", "JINA_API_KEY", SWITCH):
        monkeypatch.delenv(name, raising=False)
    folder, runs = write_beir(tmp_path / "set"), tmp_path / "runs"
    for provider in CLASSES:
        assert cli.run(["eval", str(folder), "--reranker", provider, "--runs", str(runs)]) == 2
        assert "no_key" in capsys.readouterr().err
    monkeypatch.setenv(SWITCH, "0")
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    assert cli.run(["eval", str(folder), "--reranker", "cohere", "--runs", str(runs)]) == 2
    said = capsys.readouterr().err
    assert "out_of_range" in said
    assert KEY not in said
    assert not runs.exists()
