"""Measuring and storing runs, and deciding again from stored runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beir_folder import QUERIES, write_beir
from conftest import FunctionReranker, WordEmbedder, refused
from crossgate import Index, PairScore, Passage, Policy, Profile, Router
from crossgate._core import Anytime, Blend, Combine, RunnerUpRule, Winner
from crossgate._evaluation.label_files import read_dataset
from crossgate._evaluation.stored_runs import (
    MODES,
    Mode,
    decide,
    is_run,
    policy_of,
    profile_of,
    read_run,
    reblended,
    write_run,
)
from crossgate._reranking.contract import Deadline, Enough, Scores
from small_runs import POLICY, PROFILE, SharedWords, measured


def test_run_stores_the_decisions_of_the_router(tmp_path: Path) -> None:
    dataset = read_dataset(write_beir(tmp_path / "set"))
    unknown = replace(dataset.queries[0], id="unknown", text="use the red-wagon skill", relevant={})
    dataset = replace(dataset, queries=(*dataset.queries, unknown))
    run = measured(tmp_path, dataset)
    assert (run.header.dataset, run.header.split, run.header.documents) == ("set", "test", 6)
    assert run.header.labels == dataset.fingerprint
    assert (run.header.embedder, run.header.reranker) == ("words@1", "shared@1")
    assert (run.header.profile, run.header.policy) == (PROFILE, POLICY)
    assert run.header.modes == MODES
    assert run.header.versions["crossgate"]
    index = Index.build(dataset.documents, embedder=WordEmbedder())
    assert run.header.corpus == index.fingerprint
    reasons = set()
    for stored, query in zip(run.queries, dataset.queries, strict=True):
        assert (stored.id, stored.relevant, stored.wrong) == (query.id, query.relevant, query.wrong)
        for mode in MODES:
            router = Router(
                index,
                reranker=None if mode == "never" else SharedWords(),
                profile=profile_of(mode, PROFILE),
                policy=policy_of(mode, POLICY),
            )
            wanted = router.route(query.text, limit=None)
            again = decide(stored, PROFILE, mode, policy=POLICY)
            assert (again.ids, again.verdict, again.reason) == (
                wanted.ids,
                wanted.verdict,
                wanted.reason,
            ), mode
            assert [hit.score for hit in again.hits] == [hit.score for hit in wanted.hits]
            if mode == "gated":
                assert stored.decision == {
                    "verdict": wanted.verdict,
                    "reason": wanted.reason,
                    "selected": wanted.ids,
                }
                reasons.add(wanted.reason)
    # The queries of the dataset take every path.
    paths = {"confident_winner", "lexical_winner", "improbable", "reranked", "unknown_name"}
    assert paths <= reasons


def test_run_stores_source_types(tmp_path: Path) -> None:
    plain = read_dataset(write_beir(tmp_path / "set"))
    documents = tuple(
        replace(document, metadata={"kind": f"of {document.id}"} if place else {})
        for place, document in enumerate(plain.documents)
    )
    dataset = replace(plain, documents=documents)
    profile = Profile()
    policy = Policy(cliff_core=1, floors={"default": -1.0}, source_type="kind")
    run = measured(tmp_path, dataset, profile=profile, policy=policy)
    router = Router(
        Index.build(documents, embedder=WordEmbedder()),
        reranker=SharedWords(),
        profile=profile,
        policy=policy,
    )
    reasons = set()
    for stored in run.queries:
        found = {candidate.id for candidate in stored.scored} - {documents[0].id}
        assert stored.sources == {id: f"of {id}" for id in found}
        wanted = router.route(stored.text, limit=None).trace["gate"]["cliff"]
        again = decide(stored, profile, "gated", policy=policy)
        assert again.trace["gate"]["cliff"] == wanted
        reasons.add(wanted["skip_reason"])
    assert "source_diversity_loss" in reasons


def test_every_candidate_has_a_logit_and_is_scored_once(tmp_path: Path) -> None:
    reranker = SharedWords()
    run = measured(tmp_path, reranker=reranker)
    for query in run.queries:
        assert set(query.pairs) == {candidate.id for candidate in query.scored}
    pairs = [(query, text) for query, texts in reranker.calls for text in texts]
    warm_up = [("warm up", "warm up")]
    assert len(pairs) == len(set(pairs)) == len(warm_up) + sum(len(q.pairs) for q in run.queries)


def test_modes_are_timed_separately(tmp_path: Path) -> None:
    for query in measured(tmp_path).queries:
        assert set(query.milliseconds) == set(MODES)
        assert "stage2" in query.milliseconds["always"]
        assert query.milliseconds["never"]["total"] > 0
        assert query.decision is not None
        shared = query.milliseconds["gated"] == query.milliseconds["always"]
        assert shared == (query.decision["verdict"] == "ambiguous")


class StopsEarly(SharedWords):
    """Reads two passages if it may stop reading after them."""

    def score_until(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline, enough: Enough
    ) -> Scores:
        """Score the first two passages, and the others unless these are enough."""
        first = [score for score in self.score(query, passages[:2], deadline=deadline) if score]
        if len(passages) > 2 and enough(first):
            return Scores([*first, *[None] * (len(passages) - 2)], stopped=True)
        return Scores([*first, *self.score(query, passages[2:], deadline=deadline)])


def test_mode_always_reads_the_whole_pool_where_the_gated_mode_stops(tmp_path: Path) -> None:
    stops = Anytime(intercept=-200.0, cosine=0.0, bm25=0.0, deviation=1.0, shared=0.0, stop=1.0)
    profile = PROFILE.replace(anytime=stops, runner_up=RunnerUpRule(stage2=0.0))
    run = measured(tmp_path, reranker=StopsEarly(), profile=profile)
    stopped = 0
    for query in run.queries:
        always = decide(query, profile, "always", policy=POLICY).trace
        assert len(always["stage2"]) == len(always["gate"]["pool"])
        gated = decide(query, profile, "gated", policy=POLICY).trace
        if 0 < len(gated["stage2"]) < len(gated["gate"]["pool"]):
            stopped += 1
            assert query.milliseconds["gated"] != query.milliseconds["always"]
    assert stopped


@pytest.mark.parametrize("mode", MODES)
def test_single_mode_runs_only_its_own_steps(tmp_path: Path, mode: Mode) -> None:
    reranker = SharedWords()
    run = measured(tmp_path, reranker=reranker, modes=[mode])
    assert run.header.modes == (mode,)
    assert all(set(query.milliseconds) == {mode} for query in run.queries)
    assert bool(reranker.calls) == (mode != "never")
    for query in run.queries:
        assert bool(query.pairs) == (mode == "always" or "ambiguous" in str(query.decision))


def test_query_chooses_only_from_its_candidate_list(tmp_path: Path) -> None:
    candidates = [{"query": "q1", "candidates": ["translator", "csv-cleaner"]}]
    dataset = read_dataset(write_beir(tmp_path / "set", candidates=candidates))
    run = measured(tmp_path, dataset)
    assert {candidate.id for candidate in run.queries[0].scored} == {
        "translator",
        "csv-cleaner",
    }
    assert len(run.queries[1].scored) > 2


def test_dataset_can_be_measured_without_vectors(tmp_path: Path) -> None:
    run = measured(tmp_path, embedder=None, profile=Profile())
    assert run.header.embedder == ""
    assert all(candidate.cosine is None for query in run.queries for candidate in query.scored)
    always = [decide(query, Profile(), "always") for query in run.queries if query.scored]
    # Without vectors, a document that shares no term with the query is not read.
    assert {result.reason for result in always} == {"reranked", "no_overlap"}
    for result in always:
        assert bool(result.trace["stage2"]) == (result.reason == "reranked")


def test_degradations_are_stored(tmp_path: Path) -> None:
    def fail(query: str, documents: Sequence[str]) -> list[PairScore]:
        if query != "warm up":
            raise RuntimeError("out of order")
        return [PairScore(0.0)]

    run = measured(tmp_path, reranker=FunctionReranker(fail))
    assert all(query.degraded == ("reranker_failed",) for query in run.queries)
    assert all(query.pairs == {} for query in run.queries)


def test_unknown_mode_is_refused(tmp_path: Path) -> None:
    for modes in (["sometimes"], []):
        refused("out_of_range", measured, tmp_path, modes=modes)


def test_run_reads_back_as_written(tmp_path: Path) -> None:
    run = measured(tmp_path)
    write_run(tmp_path / "again.jsonl", run.header, run.queries)
    path = tmp_path / "set.run.jsonl"
    assert (tmp_path / "again.jsonl").read_text() == path.read_text()
    assert is_run(path)
    assert not is_run(tmp_path / "set" / "corpus.jsonl")
    assert not is_run(tmp_path)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_interrupted_run_keeps_the_earlier_file(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    run = measured(tmp_path)
    path = tmp_path / "set.run.jsonl"
    before = path.read_text()

    def queries() -> Any:
        yield run.queries[0]
        raise interruption

    with pytest.raises(interruption):
        write_run(path, run.header, queries())
    assert path.read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "set.run.jsonl"]


def test_two_datasets_of_one_name_get_two_files(tmp_path: Path) -> None:
    from crossgate import _cli as cli

    first = write_beir(tmp_path / "a" / "set")
    second = write_beir(tmp_path / "b" / "set", queries=QUERIES[:3], negatives={})
    runs = tmp_path / "runs"
    asked = ["--modes", "never", "--embedder", "none", "--runs", str(runs)]
    for _ in range(2):  # the same command writes the same files
        assert cli.run(["eval", str(first), str(second), *asked]) == 0
        written = {path.name: read_run(path) for path in runs.iterdir()}
        assert set(written) == {"set-test.run.jsonl", "set-test-2.run.jsonl"}
        assert len(written["set-test.run.jsonl"].queries) > 3
        assert len(written["set-test-2.run.jsonl"].queries) == 3


def test_unwritable_folder_is_refused(tmp_path: Path) -> None:
    run = measured(tmp_path)
    refused(
        "unwritable", write_run, tmp_path / "set.run.jsonl" / "x.jsonl", run.header, run.queries
    )


def test_damaged_run_is_refused_with_its_line(tmp_path: Path) -> None:
    measured(tmp_path)
    path = tmp_path / "set.run.jsonl"
    lines = path.read_text().splitlines()
    values = json.loads(lines[2])
    below = json.loads(lines[2])
    below["stage1"][0]["bm25"] = -32.0
    del values["stage1"]
    bad_signals = [
        "none",
        *({"documents": count} for count in ("9", 0, -5, 3.5, True, 10**30, [1])),
        *({"needs_document": need} for need in ("1", -0.1, 1.1, math.nan, False)),
    ]
    damaged = [
        *(
            (3, [*lines[:2], json.dumps(json.loads(lines[2]) | {"signals": bad})])
            for bad in bad_signals
        ),
        (3, [*lines[:2], json.dumps(json.loads(lines[2]) | {"held_back": ["rain"]})]),
        (3, [*lines[:2], json.dumps(values)]),
        (3, [*lines[:2], lines[2][:50]]),
        (3, [*lines[:2], lines[2].replace('"stage1": [{', '"stage1": [1, {')]),
        (3, [*lines[:2], json.dumps(below)]),
        (1, lines[1:]),
        (1, [lines[0].replace("crossgate-profile/6", "other"), *lines[1:]]),
        (None, lines[:1]),
    ]
    for line, rows in damaged:
        path.write_text("\n".join(rows))
        said = refused("malformed_run", read_run, path)
        assert line is None or said.startswith(f"{path}:{line}: ")


def test_stored_run_is_decided_like_a_router_with_the_profile(tmp_path: Path) -> None:
    dataset = read_dataset(write_beir(tmp_path / "set"))
    wide = PROFILE.replace(per_channel=6)
    run = measured(tmp_path, dataset, profile=wide)
    other = wide.replace(
        blend=Blend(cosine_weight=0.2, bm25_weight=0.8, pivot=3.0),
        answer={},
        winner=Winner(agreed=0.01, disagreed=0.01),
        combine=Combine.Rrf(k=60.0),
    )
    index = Index.build(dataset.documents, embedder=WordEmbedder())
    router = Router(index, reranker=SharedWords(), profile=other)
    for stored in run.queries:
        wanted = router.route(stored.text, limit=None)
        again = decide(reblended(stored, other), other, "gated")
        assert (again.reason, again.ids) == (wanted.reason, wanted.ids)
        blends = [hit.blend for hit in wanted.hits]
        assert [hit.blend for hit in again.hits] == pytest.approx(blends)


def test_run_of_another_version_is_refused_with_its_version(tmp_path: Path) -> None:
    measured(tmp_path)
    path = tmp_path / "set.run.jsonl"
    path.write_text(path.read_text().replace("crossgate-run/3", "crossgate-run/1"))
    assert is_run(path)
    said = refused("malformed_run", read_run, path)
    assert "'crossgate-run/1', not 'crossgate-run/3': measure again" in said
