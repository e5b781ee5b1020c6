"""The mode `remote`: the real clients against a server with the providers' interfaces."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beir_folder import write_beir
from commands import Run as Done
from conftest import WordEmbedder, refused
from crossgate import Index, Policy, Profile, Router, RouteResult
from crossgate import _cli as cli
from crossgate._cli.labelled import dump
from crossgate._core import AnyFits, Combine, RunnerUpRule, Stage1AnyFits
from crossgate._evaluation.compare import REPORTS_SCHEMA, compare
from crossgate._evaluation.stored_runs import decide, profile_of, write_run
from crossgate._reranking.contract import LEAST_PAIRS
from crossgate._reranking.http import SWITCH
from crossgate.evaluation import (
    ALL_MODES,
    MODES,
    Run,
    StoredQuery,
    html_report,
    measure,
    read_dataset,
    read_reports,
    read_run,
    summarize,
    text_report,
)
from crossgate.rerankers import (
    CircuitBreaker,
    CohereReranker,
    GuardedReranker,
    JinaReranker,
    LatencyEstimate,
    RemoteReranker,
    Reranker,
    VoyageReranker,
)
from providers_server import KEY, ProvidersServer, relevance
from small_runs import SharedWords

FITTED = Profile(
    name="fitted",
    embedder=WordEmbedder.identity,
    reranker=SharedWords.identity,
    winner={"agreed": 0.0},
)


def tier(provider: str, server: ProvidersServer, **options: Any) -> GuardedReranker:
    kinds: Any = {"voyage": VoyageReranker, "cohere": CohereReranker, "jina": JinaReranker}
    url = server.voyage if provider == "voyage" else server.url
    values = {"api_key": KEY, "base_url": url, "attempts": 1, **options}
    made: RemoteReranker = kinds[provider](**values)
    return GuardedReranker(made, breaker=CircuitBreaker(), latency=LatencyEstimate(ms_per_pair=1.0))


def measured(folder: Path, remote: Reranker | None, **options: Any) -> Run:
    path = folder / "set.run.jsonl"
    values: dict[str, Any] = {
        "profile": FITTED,
        "embedder": WordEmbedder(),
        "reranker": SharedWords(),
        "modes": ALL_MODES,
        **options,
    }
    measure(read_dataset(write_beir(folder / "set")), path, remote=remote, **values)
    return read_run(path)


@pytest.mark.parametrize("provider", ["voyage", "cohere", "jina"])
def test_remote_mode_scores_every_pool_and_stores_the_scores_separately(
    tmp_path: Path, server: ProvidersServer, provider: str
) -> None:
    remote = tier(provider, server)
    run = measured(tmp_path, remote)
    dataset = read_dataset(tmp_path / "set")
    documents = {document.id: document.content for document in dataset.documents}
    candidates = {query.id: query.candidates for query in dataset.queries}
    index = Index.build(dataset.documents, embedder=WordEmbedder())
    reranks_all = profile_of("remote", FITTED)
    router = Router(index, reranker=[remote, SharedWords()], profile=reranks_all)
    assert run.header.modes == ALL_MODES
    assert (run.header.remote, run.header.reranker) == (remote.identity, "shared@1")
    asked = [query for query in run.queries if query.scored]
    assert asked
    # One request per query that has candidates, and one before all work.
    assert len(server.requests) == len(asked) + 1
    for query in asked:
        assert {id: pair.score for id, pair in query.remote_pairs.items()} == pytest.approx(
            {candidate.id: relevance(documents[candidate.id]) for candidate in query.scored}
        )
        assert {pair.score for pair in query.pairs.values()} != {
            pair.score for pair in query.remote_pairs.values()
        }
        assert query.milliseconds["remote"]["total"] > 0
        assert query.degraded == ()
        # Deciding again without a provider gives the decisions of a router with the tier.
        result = decide(query, FITTED, "remote", remote=remote.identity)
        routed = router.route(query.text, limit=None, allow=candidates[query.id])
        assert [(hit.id, hit.score, hit.dropped) for hit in result.hits] == [
            (hit.id, hit.score, hit.dropped) for hit in routed.hits
        ]
        assert (result.stage, routed.stage) == (2, 2)
        assert [note.code for note in result.degraded] == ["reranker_not_fitted"]


def test_report_has_a_column_for_the_mode_remote(tmp_path: Path, server: ProvidersServer) -> None:
    run = measured(tmp_path, tier("cohere", server))
    report = summarize(run, modes=ALL_MODES)
    assert report.modes == ALL_MODES
    text = text_report(report)
    assert max(map(len, text.split("\n"))) <= 100
    assert "remote cohere/rerank-v4.0-pro, for which the profile was not fitted" in " ".join(
        text.split()
    )
    (head,) = [line for line in text.split("\n") if line.startswith("95 % interval")]
    assert head.split()[-4:] == list(ALL_MODES)
    values = json.loads(dump(report.to_dict()))
    assert values["header"]["remote"] == "cohere/rerank-v4.0-pro"
    assert "remote" in values["quality"]
    assert "remote" in {latency["path"] for latency in values["economics"]["latencies"]}
    page = html_report([report])
    assert ">remote</abbr></th>" in page
    assert "cohere/rerank-v4.0-pro" in page
    # Without the mode, the report does not mention it.
    assert summarize(run).modes == MODES
    assert "remote" not in text_report(summarize(run)).split("\n\n")[2]
    # The counts follow from the stored scores.
    decisions = [decide(query, FITTED, "remote", remote=run.header.remote) for query in run.queries]
    right = [
        bool(result.ids) and result.ids[0] in query.relevant
        for query, result in zip(run.queries, decisions, strict=True)
        if query.relevant
    ]
    found = report.quality["remote"]["recall@1"]
    assert found is not None
    assert found.value == pytest.approx(sum(right) / len(right))


def test_failed_calls_are_counted_and_keep_the_order_of_stage_1(
    tmp_path: Path, server: ProvidersServer
) -> None:
    server.plan.extend([None, "500"])  # the call before all work, and the first query
    run = measured(tmp_path, tier("jina", server))
    failed, *others = [query for query in run.queries if query.scored]
    assert failed.degraded == ("api_error",)
    assert failed.remote_pairs == {}
    assert failed.pairs
    assert all(query.remote_pairs and not query.degraded for query in others)
    never, remote = (decide(failed, FITTED, mode, remote="jina/x") for mode in ("never", "remote"))
    assert (remote.ids, remote.stage) == (never.ids, 1)
    report = summarize(run, modes=ALL_MODES)
    assert report.degraded["api_error"] == 1
    assert "degraded: api_error, 1 query" in text_report(report)


def test_partial_scores_are_used(tmp_path: Path, server: ProvidersServer) -> None:
    run = measured(tmp_path, tier("cohere", server))
    query = max(run.queries, key=lambda query: len(query.remote_pairs))
    assert len(query.remote_pairs) > LEAST_PAIRS
    for count, stage in ((LEAST_PAIRS, 2), (LEAST_PAIRS - 1, 1), (0, 1)):
        kept = dict(list(query.remote_pairs.items())[:count])
        result = decide(
            replace(query, remote_pairs=kept), FITTED, "remote", remote=run.header.remote
        )
        codes = [note.code for note in result.degraded]
        assert codes == ["partial_scores", *["reranker_not_fitted"] * (stage == 2)]
        assert result.stage == stage
        assert [hit.id for hit in result.hits if hit.dropped != "not_reranked"] == (
            [hit.id for hit in result.hits if hit.id in kept]
            if stage == 2
            else [candidate.id for candidate in query.scored]
        )


def test_only_a_profile_fitted_for_the_tier_applies_its_minimum(
    tmp_path: Path, server: ProvidersServer
) -> None:
    identity = "cohere/rerank-v4.0-pro"
    profile = FITTED.replace(
        reranker=identity, combine=Combine.Replace(), runner_up=RunnerUpRule(stage2=0.0)
    )
    policy = Policy(rerank_min=2.0)
    run = measured(tmp_path, tier("cohere", server), profile=FITTED, policy=policy)
    sure = profile.replace(
        any_fits=AnyFits(stage1=Stage1AnyFits(intercept=-9.0)),
        answer={"threshold": 0.5},
    )

    def decided(query: StoredQuery, profile: Profile, **options: Any) -> RouteResult:
        return decide(query, profile, "remote", remote=identity, **options)

    for query in run.queries:
        held = decided(query, profile, policy=policy)
        assert (held.ids, held.degraded) == ([], ())  # no score reaches the minimum
        assert len(decided(query, profile).ids) == 1
        best_first = decided(query, sure, policy=policy, hold_back=False).ids
        scores = [query.remote_pairs[id].score for id in best_first]
        assert scores == sorted(scores, reverse=True)
        assert len(best_first) == len(query.scored)
        # A minimum for another reranker's scores is not applied.
        other = decided(query, profile.replace(reranker="shared@1"), policy=policy)
        assert len(other.ids) == len(query.scored)
        assert [note.code for note in other.degraded] == ["reranker_not_fitted"]


def test_other_profile_keeps_the_mode_only_with_the_same_pools(
    tmp_path: Path, server: ProvidersServer
) -> None:
    run = measured(tmp_path, tier("cohere", server))
    same = FITTED.replace(name="same pools", winner={})
    assert summarize(run, profile=same, modes=ALL_MODES).modes == ALL_MODES
    other = summarize(run, profile=FITTED.replace(pool=2), modes=ALL_MODES)
    assert other.modes == MODES
    assert any("remote is left out" in note for note in other.notes)
    refused("out_of_range", summarize, run, profile=other.profile, modes=["remote"])


def test_mode_remote_can_run_alone(tmp_path: Path, server: ProvidersServer) -> None:
    run = measured(tmp_path, tier("cohere", server), modes=["remote"])
    assert (run.header.modes, run.header.reranker) == (("remote",), None)
    report = summarize(run, modes=["remote"])
    assert "was not run" in text_report(report)
    assert html_report([report]).endswith("</html>\n")


def test_runs_without_the_mode_can_be_read(tmp_path: Path, server: ProvidersServer) -> None:
    run = measured(tmp_path, None, modes=MODES)
    path = tmp_path / "old.run.jsonl"
    write_run(path, run.header, run.queries)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        del row["remote"]
    path.write_text("\n".join(map(json.dumps, rows)))
    old = read_run(path)
    assert old.header == run.header
    assert text_report(summarize(old)) == text_report(summarize(run))
    assert server.requests == []


def test_compare_notes_a_different_remote_reranker(tmp_path: Path, server: ProvidersServer) -> None:
    reports = []
    for provider in ("cohere", "jina"):
        folder = tmp_path / provider
        folder.mkdir()
        report = summarize(measured(folder, tier(provider, server)), modes=ALL_MODES)
        path = folder / "report.json"
        path.write_text(dump({"schema": REPORTS_SCHEMA, "reports": [report.to_dict()]}))
        reports.append(read_reports(path))
    found = compare(*reports)
    assert "remote" in {change.mode for change in found.changes}
    assert any("the remote was cohere/" in note and "jina/" in note for note in found.notes)


def test_conflicting_arguments_are_refused_before_any_work(
    tmp_path: Path, server: ProvidersServer
) -> None:
    embedder = WordEmbedder()
    for remote, modes in ((None, ALL_MODES), (tier("cohere", server), MODES)):
        refused("out_of_range", measured, tmp_path, remote, modes=modes, embedder=embedder)
    wrong = tier("cohere", server, api_key="wrong")
    said = refused("api_error", measured, tmp_path, wrong, embedder=embedder)
    assert "401" in said
    assert embedder.texts == []
    assert not (tmp_path / "set.run.jsonl").exists()


# The command line.


def here(*arguments: str | Path, capsys: pytest.CaptureFixture[str]) -> Done:
    """Run `crossgate eval` in this process."""
    code = cli.run(["eval", *map(str, arguments)])
    return Done(code, *capsys.readouterr())


def test_command_without_a_key_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VOYAGE_API_KEY", "COHERE_API_KEY", "CO_API_KEY", "JINA_API_KEY", SWITCH):
        monkeypatch.delenv(name, raising=False)
    folder, asked = write_beir(tmp_path / "set"), ("--modes", "never,gated,always,remote")
    runs = tmp_path / "runs"
    for provider in ("voyage", "cohere", "jina"):
        done = here(folder, *asked, "--remote", provider, "--runs", runs, capsys=capsys)
        assert (done.code, done.out, done.error) == (2, "", "no_key")
    for arguments in ((*asked,), ("--remote", "cohere")):
        done = here(folder, *arguments, "--runs", runs, capsys=capsys)
        assert (done.code, done.out, done.error) == (2, "", "out_of_range")
    monkeypatch.setenv(SWITCH, "0")
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    done = here(folder, *asked, "--remote", "cohere", "--runs", runs, capsys=capsys)
    assert (done.code, done.error) == (2, "out_of_range")
    assert KEY not in done.err
    assert not runs.exists()


def test_stored_run_is_shown_without_a_key(
    tmp_path: Path, server: ProvidersServer, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(tmp_path, tier("cohere", server))
    path, page = tmp_path / "set.run.jsonl", tmp_path / "page.html"
    done = here(path, "--modes", "always,remote", "--html", page, capsys=capsys)
    assert done.code == 0, done.err
    assert "remote cohere/rerank-v4.0-pro" in " ".join(done.out.split())
    assert ">remote</abbr></th>" in page.read_text()
    assert len(here(path, capsys=capsys).out) > 0
