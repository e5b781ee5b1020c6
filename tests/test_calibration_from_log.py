"""Fitting on a log of real decisions: labels, decisions that are left out, and notes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Run as Done
from commands import checked
from conftest import FunctionReranker, WordEmbedder, build, refused, without_date
from crossgate import Index, PairScore, Profile, Router, RouteResult
from crossgate import _cli as cli
from crossgate._core import Winner
from crossgate._telemetry.log import JsonLinesLog
from crossgate._values.profile_files import check_models, read_profile
from crossgate.calibration import LoggedRun, Objective, calibrate, run_from_log

WORDS = [a + b for a in ("ka", "lo", "mi", "nu", "pe", "ri", "so") for b in ("bar", "dim", "fen")]
SKILLS = {
    f"skill-{n:02}": " ".join(np.random.default_rng(n).choice(WORDS, size=6, replace=False))
    for n in range(60)
}
ASKS = Profile(
    name="asks",
    embedder=WordEmbedder.identity,
    reranker="overlap@1",
    pool=8,
)
"""A profile without a winner rule, so that its gate never skips."""


class OverlapReranker(FunctionReranker):
    """Scores by the number of words in common with the query, with some noise."""

    name = "overlap"
    identity = "overlap@1"

    def __init__(self) -> None:
        super().__init__(
            lambda query, documents: [
                PairScore(
                    3.0 * len(set(query.split()) & set(document.replace(":", " ").split()))
                    - 8.0
                    + float(np.random.default_rng(len(query + document)).normal(0, 0.5))
                )
                for document in documents
            ]
        )


@pytest.fixture(scope="module")
def skills() -> Index:
    return build(SKILLS)


def prompt_of(seed: int) -> tuple[str, str | None]:
    """Return a prompt and the skill that fits it; every fourth prompt has no match."""
    random = np.random.default_rng(seed + 1000)
    id = f"skill-{seed % 60:02}"
    if seed % 4 == 3:
        return " ".join(map(str, random.choice(WORDS, size=5, replace=False))), None
    kept = random.choice(SKILLS[id].split(), size=5, replace=False)
    return " ".join([*map(str, kept), str(random.choice(WORDS)), f"word{seed}"]), id


def log_use(
    skills: Index,
    path: Path,
    seeds: Sequence[int],
    *,
    profile: Profile = ASKS,
    text: bool = False,
    **options: Any,
) -> list[RouteResult]:
    """Route a prompt per seed, and record the skill that fits it as used."""
    log = JsonLinesLog(path, text=text)
    values: dict[str, Any] = {"reranker": OverlapReranker(), **options}
    router = Router(skills, profile=profile, telemetry=log, **values)
    results = []
    for seed in seeds:
        prompt, wanted = prompt_of(seed)
        result = router.route(prompt, limit=3)
        assert result.decision_id is not None
        log.used(result.decision_id, [] if wanted is None else [wanted])
        results.append(result)
    return results


@pytest.fixture(scope="module")
def logged(skills: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "decisions.jsonl"
    results = log_use(skills, path, range(480))
    assert not any(result.degraded for result in results)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


def notes_with(found: LoggedRun, *parts: str) -> str:
    """Return the single note that contains all the parts."""
    (note,) = [note for note in found.run.header.notes if all(part in note for part in parts)]
    return note


def test_used_documents_become_labels(skills: Index, path: Path) -> None:
    results = log_use(skills, path, range(8))
    found = run_from_log(path)
    assert found.problems == ()
    assert len(found.run.queries) == 8
    for seed, result, query in zip(range(8), results, found.run.queries, strict=True):
        prompt, wanted = prompt_of(seed)
        assert query.relevant == ({} if wanted is None else {wanted: 1})
        assert query.text == query.id == sha256(prompt.encode()).hexdigest()
        read = {pair["id"]: pair["score"] for pair in result.trace["stage2"]}
        assert len(read) == 8
        assert {id: pair.score for id, pair in query.pairs.items()} == read
        assert [candidate.to_dict() for candidate in query.scored] == [
            row for row in result.trace["stage1"] if row["id"] in read
        ]
    header = found.run.header
    assert (header.dataset, header.corpus, header.modes) == (path.name, "", ("always",))
    assert (header.embedder, header.reranker) == ("words@1", "overlap@1")
    assert header.profile == ASKS


def test_fit_on_use_succeeds_and_notes_the_limits_of_its_labels(logged: Path) -> None:
    found = calibrate([run_from_log(logged).run], Objective(keep_recall=0.9, max_recall_loss=0.05))
    profile = found.profile
    assert (profile.embedder, profile.reranker) == ("words@1", "overlap@1")
    assert profile.corpora == []
    assert profile.answer.threshold is not None
    assert (found.report.matched, found.report.no_match) == (360, 120)
    assert found.report.separation is not None
    assert found.report.separation.low > 0.5
    assert profile.fitted["notes"] == list(found.notes)
    said = " ".join(found.notes)
    for part in (
        "they favour the order at that time; and a document that was used need not fit",
        "decisions with a record of use: 480 of 480 (100%); nothing was used for 120 of them",
        "a log does not list the indexed documents",
    ):
        assert part in said
    # A router with this profile refuses other models, as with any fitted profile.
    models = {"embedder": "words@2", "reranker": "overlap@1"}
    refused("profile_mismatch", check_models, profile, **models)


def test_shuffled_uses_are_refused(logged: Path) -> None:
    run = run_from_log(logged).run
    order = np.random.default_rng(0).permutation(len(run.queries))
    shuffled = tuple(
        replace(query, relevant=run.queries[other].relevant)
        for query, other in zip(run.queries, order, strict=True)
    )
    refused("no_gate", calibrate, [replace(run, queries=shuffled)], Objective())


def test_selected_and_other_uses_are_counted(skills: Index, path: Path) -> None:
    log = JsonLinesLog(path)
    router = Router(skills, reranker=OverlapReranker(), profile=ASKS, telemetry=log)
    for seed in range(6):
        result = router.route(prompt_of(seed)[0], limit=1)
        assert result.decision_id is not None
        candidates = [id for id in (hit.id for hit in result.hits) if id not in result.ids]
        used = [result.ids[:1], candidates[:1], ["nowhere"], [*result.ids, "gone"], [], None][seed]
        if used is not None:
            log.used(result.decision_id, used)
    log.used("0" * 32, ["skill-00"])
    found = run_from_log(path)
    assert notes_with(
        found, "decisions with a record of use: 5 of 6 (83%); nothing was used for 1 of them"
    )
    assert notes_with(
        found,
        "of the documents used, 2 of 5 (40%) were selected, "
        "1 of 5 (20%) were other candidates, and 2 of 5 (40%) were not found",
    )
    assert notes_with(found, "left out 1 decision without a record of use")
    assert notes_with(found, "1 record of use for decisions that are not in the log")
    assert [len(query.relevant) for query in found.run.queries] == [1, 1, 1, 2, 0]


def test_repeated_query_counts_once_with_all_its_uses(skills: Index, path: Path) -> None:
    log = JsonLinesLog(path)
    first = log_use(skills, path, [0, 1])[0]
    again = log_use(skills, path, [0], text=True)[0]
    assert again.decision_id is not None
    assert first.decision_id is not None
    log.used(again.decision_id, ["skill-07"])
    log.used(first.decision_id, [])
    found = run_from_log(path)
    assert [dict(query.relevant) for query in found.run.queries] == [
        {"skill-00": 1, "skill-07": 1},
        {"skill-01": 1},
    ]
    assert notes_with(found, "1 decision with the query of a later one")


def test_last_judgement_counts_for_a_decision_and_its_query(skills: Index, path: Path) -> None:
    log = JsonLinesLog(path)
    results = log_use(skills, path, [0, 1, 1, 2, 2])
    once, first, _, third, fourth = (str(result.decision_id) for result in results)
    for ids in (["skill-05"], ["skill-06"], []):
        log.used(once, ids, judged=True)
    log.used(once, ["skill-07"])
    # Asked twice, and judged once or twice.
    log.used(first, ["skill-08"], judged=True)
    log.used(third, ["skill-08"], judged=True)
    log.used(fourth, ["skill-09"], judged=True)
    assert [dict(query.relevant) for query in run_from_log(path).run.queries] == [
        {},
        {"skill-08": 1},
        {"skill-09": 1},
    ]
    assert notes_with(run_from_log(path), "nothing was used for 1 of them")


def test_unsuitable_decisions_are_left_out_and_counted(skills: Index, path: Path) -> None:
    log_use(skills, path, range(10))
    # Another reranker, another embedder, and profiles without models or with other settings.
    other = OverlapReranker()
    other.identity = "overlap@2"
    log_use(skills, path, [10], profile=ASKS.replace(reranker="overlap@2"), reranker=other)
    stranger = WordEmbedder()
    stranger.identity = "words@2"
    named = ASKS.replace(embedder="words@2")
    log_use(build(SKILLS, embedder=stranger), path, [11], profile=named)
    log_use(skills, path, [12], profile=ASKS.replace(embedder=None))
    log_use(skills, path, [13], profile=ASKS.replace(per_channel=20))
    # Skipped, degraded, and without a record of use.
    skips = ASKS.replace(winner=Winner(agreed=0.0, disagreed=0.0))
    assert log_use(skills, path, [14], profile=skips)[0].stage == 1

    def broken(query: str, documents: Sequence[str]) -> Any:
        raise ValueError("broken")

    failing = FunctionReranker(broken)
    failing.identity = "overlap@1"
    assert log_use(skills, path, [15], reranker=failing)[0].degraded
    Router(skills, reranker=OverlapReranker(), profile=ASKS, telemetry=JsonLinesLog(path)).route(
        prompt_of(16)[0]
    )
    # Another profile of the same models is accepted.
    log_use(skills, path, [17], profile=ASKS.replace(name="later"))
    found = run_from_log(path)
    assert len(found.run.queries) == 11
    assert found.run.header.profile.name == "later"
    assert notes_with(found, "left out 4 decisions of other models")
    assert notes_with(found, "left out 1 decision without logits, since stage 2 was not asked")
    assert notes_with(found, "left out 1 degraded decision")
    assert notes_with(found, "left out 1 decision without a record of use")
    assert notes_with(found, "made with several profiles")


def test_later_scores_count_as_scores_of_the_decision(
    skills: Index, path: Path, tmp_path: Path
) -> None:
    at_once, log = tmp_path / "at-once.jsonl", JsonLinesLog(path)
    for seed, asked_for in enumerate(log_use(skills, at_once, range(6))):
        # The gate skips the reranker, or there is no time for it.
        profile = ASKS.replace(winner={"agreed": 0.0, "disagreed": 0.0}) if seed % 2 else ASKS
        router = Router(skills, reranker=OverlapReranker(), profile=profile, telemetry=log)
        prompt, wanted = prompt_of(seed)
        skipped = router.route(prompt, limit=3, budget_ms=None if seed % 2 else 0)
        assert skipped.decision_id is not None
        assert skipped.trace["stage2"] == []
        log.used(skipped.decision_id, [] if wanted is None else [wanted])
        log.scored(skipped.decision_id, asked_for)
    found, whole = run_from_log(path), run_from_log(at_once)
    assert [query.pairs for query in found.run.queries] == [
        query.pairs for query in whole.run.queries
    ]
    assert [query.scored for query in found.run.queries] == [
        query.scored for query in whole.run.queries
    ]
    assert found.run.header.reranker == whole.run.header.reranker
    # Scores of other candidates are ignored, and earlier scores are kept.
    other = Router(build({"other": "text", "another": "text"}), reranker=OverlapReranker())
    router = Router(skills, reranker=OverlapReranker(), profile=ASKS, telemetry=log)
    skipped = router.route(prompt_of(7)[0], budget_ms=0)
    log.used(skipped.decision_id or "", [])
    log.scored(skipped.decision_id or "", other.route("text"))
    assert notes_with(run_from_log(path), "left out 1 degraded decision")
    assert len(run_from_log(path).run.queries) == 6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda trace: trace.pop("stage2"), "missing field `stage2`"),
        (lambda trace: trace.update(stage1=5), "trace cannot be used"),
        (lambda trace: trace["stage1"][0].pop("bm25"), "missing field `bm25`"),
        (lambda trace: trace["stage1"].append(trace["stage1"][0]), "twice"),
        (
            lambda trace: trace["stage2"].append({"id": "x", "score": 1.0, "truncated": False}),
            "is not in stage1",
        ),
        (lambda trace: trace["stage2"][0].update(score="high"), "score"),
        (lambda trace: trace["stage2"][0].update(score=1e999), "stage2[0].score"),
        (lambda trace: trace["stage1"][0].update(bm25=-32.0), "from 0 to 1e100"),
        (lambda trace: trace["stage2"][0].update(id=["a"]), "trace cannot be used"),
        (lambda trace: trace["profile"].update(pool=0), "pool is 0"),
        (lambda trace: trace["policy"].update(cliff_core=0), "cliff_core is 0"),
        (lambda trace: trace.update(profile=None), "trace cannot be used"),
        (lambda trace: trace.update(query_sha256=5), "must be text"),
        (lambda trace: trace.pop("query_sha256"), "'query_sha256' is missing"),
        (lambda trace: trace.update(reranker=[]), "expected a string"),
    ],
)
def test_unusable_trace_is_left_out_and_counted(
    skills: Index, path: Path, change: Any, said: str
) -> None:
    log_use(skills, path, range(2))
    lines = path.read_text().splitlines()
    values = json.loads(lines[0])
    change(values["trace"])
    path.write_text("\n".join([json.dumps(values).replace("Infinity", "1e999"), *lines[1:]]))
    found = run_from_log(path)
    assert len(found.run.queries) == 1
    (problem,) = found.problems
    assert str(problem).startswith(f"{path}:1: ")
    assert said in problem.reason
    assert notes_with(found, "left out 1 malformed line of the log")
    assert said in refused("malformed_row", run_from_log, path, strict=True)


def test_log_without_labels_is_refused(skills: Index, path: Path, tmp_path: Path) -> None:
    refused("source_missing", run_from_log, path)
    path.touch()
    assert "crossgate feedback used" in refused("no_labels", run_from_log, path)
    router = Router(skills, reranker=OverlapReranker(), profile=ASKS, telemetry=JsonLinesLog(path))
    router.route(prompt_of(0)[0])
    assert "left out 1 decision without a record of use" in refused("no_labels", run_from_log, path)
    only_words = tmp_path / "words.jsonl"
    words = build(SKILLS, embedder=None)
    log_use(words, only_words, [0], profile=ASKS.replace(embedder=None))
    assert "does not name its models" in refused("no_labels", run_from_log, only_words)
    other = tmp_path / "other"
    other.write_text("no log\n")
    assert f"{other}:1: not JSON" in refused("no_labels", run_from_log, other)


# The command line.


def here(*arguments: str | Path, capsys: pytest.CaptureFixture[str]) -> Done:
    """Run `crossgate calibrate` in this process."""
    code = cli.run(["calibrate", *map(str, arguments)])
    return Done(code, *capsys.readouterr())


def test_command_fits_a_log(
    logged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn, output = tmp_path / "decisions.jsonl", tmp_path / "mine.profile.json"
    torn.write_text(logged.read_text() + '{"schema": "crossg\n')
    wanted = ("--keep-recall", "0.9", "--max-recall-loss", "0.05")
    done = here("--from-log", torn, "-o", output, *wanted, capsys=capsys)
    assert done.code == 0, done.err
    assert done.err.startswith(f"crossgate: skipped {torn}:961: not JSON")
    lines = done.out.splitlines()
    # A path is not cut.
    assert max(len(line) for line in lines if not line.startswith(str(output))) <= 100
    assert "a document that was used need not fit" in " ".join(done.out.split())
    profile = read_profile(output)
    by_library = calibrate(
        [run_from_log(torn).run],
        Objective(keep_recall=0.9, max_recall_loss=0.05),
        name="mine",
        command=profile.fitted["command"],
    )
    assert without_date(profile) == without_date(by_library.profile)
    assert profile.fitted["data"][0]["dataset"] == "decisions.jsonl"
    values: Mapping[str, Any] = checked(
        here("--from-log", logged, "-o", output, *wanted, "--json", capsys=capsys), "calibration"
    )
    assert any("(100%); nothing was used for" in note for note in values["notes"])
