"""The scripts in models/ train, average and build tiny models that crossgate can run."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossgate import CrossEncoder
from crossgate._retrieval.embedding import OnnxEmbedder
from crossgate.rerankers import passages_of

HERE = Path(__file__).parent
MODELS = HERE.parent / "models"
PROBE = (
    "from importlib.util import find_spec;"
    "raise SystemExit(not all(map(find_spec, ('bm25s', 'onnx', 'torch', 'transformers'))))"
)

SUBJECTS = ("soup", "boat", "lamp", "rose", "train", "cheese", "violin", "spider")
WORDS = (*SUBJECTS, "how", "do", "i", "use", "a", "the", "about", "for", "is", "this", "it", ":")
WIDTH = 64

Run = Callable[..., str]
Host = Callable[..., tuple[int, str, str]]
Facts = Callable[..., Any]


@pytest.fixture(scope="module")
def python() -> str:
    """A Python with the packages of models/requirements.txt."""
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork, and the models are trained on one that can")
    named = HERE.parent / ".venv/training/bin/python"
    for found in (str(named), sys.executable):
        if Path(found).exists():
            probe = subprocess.run([found, "-c", PROBE], capture_output=True, check=False)
            if probe.returncode == 0:
                return found
    pytest.skip("no Python with models/requirements.txt: run `make training`")


@pytest.fixture(scope="module")
def start(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT with random weights, and a tokenizer of a few words."""
    folder = tmp_path_factory.mktemp("start") / "tiny"
    ended, _, errors = host(HERE / "tiny_bert.py", folder, *WORDS)
    assert ended == 0, errors
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of models/ with few prompts, next to public sets with a few rows each."""
    root = tmp_path_factory.mktemp("project")
    (root / "models").mkdir()
    for script in MODELS.glob("*.py"):
        (root / "models" / script.name).symlink_to(script)
    documents = [
        {"_id": subject, "title": subject, "text": f"this is about the {subject}"}
        for subject in SUBJECTS
    ]
    queries = [
        {
            "_id": f"q{n}",
            "text": f"how do i use a {subject} for {n}",
            "metadata": {"split": "train"},
        }
        for n, subject in enumerate(SUBJECTS)
    ]
    qrels = [f"q{n}\t{subject}\t1" for n, subject in enumerate(SUBJECTS)]
    for name in (
        *("skill-triggers", "skill-examples-weak", "skills", "metatool", "bfcl", "seal-tools"),
        *("acebench", "toolalpaca", "clinc150", "nlupp", "scifact", "cosqa", "medquad"),
        *("markdown-sections-weak", "hwu64"),
    ):
        folder = root / "data" / name
        (folder / "qrels").mkdir(parents=True)
        (folder / "negatives").mkdir()
        rows = [
            document
            | {"_id": f"{name} {document['_id']}", "metadata": {"repo": name, "licence": "MIT"}}
            for document in documents
        ]
        _write(folder / "corpus.jsonl", rows)
        _write(folder / "queries.jsonl", queries)
        _write(folder / "candidates.jsonl", [])
        for split in ("train", "dev", "test"):
            chosen = (
                [line.replace("\t", f"\t{name} ", 1) for line in qrels] if split == "train" else []
            )
            text = "\n".join(["query-id\tcorpus-id\tscore", *chosen]) + "\n"
            (folder / f"qrels/{split}.tsv").write_text(text)
            (folder / f"negatives/{split}.tsv").write_text("query-id\tcorpus-id\n")
    bodies = [
        {"_id": f"skill-triggers {subject}", "body": f"the {subject} " * 20} for subject in SUBJECTS
    ]
    _write(root / "data/skill-bodies/bodies.jsonl", bodies)
    for name in ("skills", "chunks", "memory"):
        _write(root / "eval" / name / "corpus.jsonl", [])
        _write(root / "eval" / name / "queries.jsonl", [])
    _hold_out(root / "data/skill-triggers", root / "data/skills")
    _describe_packages(root / "data/debian/Translation-en")
    prompts = root / "models/prompts"
    for name in ("skills", "tasks", "topic_swap", "jargon", "more", "requests"):
        written = [
            {"doc": f"skills {subject}", "kind": "short", "text": f"{name} {subject}"}
            for subject in SUBJECTS
        ]
        near = {"near": "skills soup", "kind": "near_miss", "text": f"{name} it"}
        _write(prompts / f"{name}.jsonl", [*written, near])
    asked = [
        {"doc": f"markdown-sections-weak {subject}", "text": f"{subject} how"}
        for subject in SUBJECTS
    ]
    _write(prompts / "sections.jsonl", asked)
    intents = [
        {"set": "clinc150", "doc": f"clinc150 {subject}", "text": f"{subject} for {n}"}
        for subject in SUBJECTS
        for n in ("it", "this")
    ]
    _write(prompts / "intents.jsonl", intents)
    _write(
        prompts / "intents_near.jsonl",
        [{"set": "clinc150", "near": "clinc150 soup", "text": "is it"}],
    )
    files = sorted(path for path in (root / "data").rglob("*") if path.is_file())
    _list_hashes(root, {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
    return root


@pytest.fixture(scope="module")
def groups(project: Path) -> Path:
    """Groups that crossgate's stage 1 found for the prompts of the project."""
    path, embedder = project / "groups.jsonl", str(MODELS / "bundled/crossgate-embedder-minilm-l6")
    arguments = ["../data", embedder, embedder, str(path), "--groups", "400"]
    done = subprocess.run(
        [sys.executable, "mine_groups.py", *arguments],
        cwd=project / "models",
        env=os.environ | {"PYTHONPATH": str(project / "models")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def host(python: str, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Runs a script with an input, and returns its exit code and both outputs."""
    folder = tmp_path_factory.mktemp("output")
    files = [folder / name for name in ("in", "out", "err")]
    with subprocess.Popen(
        [python, str(HERE / "training_host.py")],
        cwd=project / "models",
        env=os.environ | {"PYTHONPATH": str(project / "models")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def host(script: Path, *arguments: object, given: str = "") -> tuple[int, str, str]:
            assert process.stdin is not None
            assert process.stdout is not None
            for file in files:
                file.write_text("")
            files[0].write_text(given)
            line = [str(script), [str(argument) for argument in arguments], *map(str, files)]
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            code = int(process.stdout.readline())
            return code, files[1].read_text(), files[2].read_text()

        yield host
        process.stdin.close()


@pytest.fixture(scope="module")
def run(host: Host, project: Path) -> Run:
    """Run a script of the project's models/ and return its output."""

    def run(script: str, *arguments: object, code: int = 0) -> str:
        ended, output, errors = host(project / "models" / script, *arguments)
        assert ended == code, errors
        return output + errors

    return run


@pytest.fixture(scope="module")
def facts(host: Host) -> Facts:
    """Run a script of tests/ on models/, with a value as JSON on its standard input."""

    def facts(script: str, *arguments: object, given: Any = None) -> Any:
        ended, output, errors = host(HERE / script, *arguments, given=json.dumps(given))
        assert ended == 0, errors
        return json.loads(output)

    return facts


@pytest.mark.timeout(600)
def test_models_are_trained_averaged_and_built(
    run: Run, start: Path, project: Path, groups: Path
) -> None:
    data, made = project / "data", project / "made"
    few = ("--steps", 60, "--rate", 3e-3)
    run("train_embedder.py", start, start, data, made / "tuned", *few, "--workers", 2)
    run("average.py", made / "mean", start, made / "tuned", "--shares", 1, 9)
    embedder = made / "mean"
    many = _first(groups, 1000, made / "many.jsonl")
    longer = ("--rate", 1e-3, "--warm-up", 10, "--workers", 2)
    shown = run("train_cross_encoder.py", embedder, many, made / "pairs", *longer)
    losses = [float(found) for found in re.findall(r"loss (\S+)", shown)]
    assert losses[-1] < losses[0] - 0.05
    some = _first(groups, 20, made / "some.jsonl")
    taught = ("--layers", 2, "--teacher", made / "pairs", "--workers", 1)
    run("train_cross_encoder.py", made / "pairs", some, made / "fast", *taught)
    run("build.py", "embedder", embedder, made / "embedder")
    run("build.py", "cross-encoder", made / "pairs", made / "cross-encoder")

    documents = [f"{subject}: this is about the {subject}" for subject in SUBJECTS]
    vectors = np.array(OnnxEmbedder(made / "embedder").embed([*SUBJECTS, *documents]))
    queries, found = np.split(vectors, 2)
    assert vectors.shape == (2 * len(SUBJECTS), WIDTH)
    right = np.argmax(queries @ found.T, 1) == np.arange(len(SUBJECTS))
    assert right.mean() >= 0.75

    # The weights read from the graph equal the trained weights up to rounding.
    run("graph_weights.py", made / "embedder", embedder / "config.json", made / "taken out")
    for name in ("mean", "taken out"):
        run("build.py", "embedder", "--float32", made / name, made / f"exact {name}")
    exact, taken = (
        np.array(OnnxEmbedder(made / f"exact {name}").embed(documents))
        for name in ("mean", "taken out")
    )
    assert (exact * taken).sum(axis=1).min() > 0.999
    assert not np.array_equal(exact, taken)

    run("build.py", "cross-encoder", made / "fast", made / "fast cross-encoder")
    full, fast = (made / name / "model.onnx" for name in ("cross-encoder", "fast cross-encoder"))
    assert fast.stat().st_size < full.stat().st_size
    [pair] = CrossEncoder(fast.parent).score("boat", passages_of(documents[:1])).complete()
    assert np.isfinite(pair.score)


@pytest.mark.timeout(600)
def test_graph_computes_the_trained_model(
    run: Run, facts: Facts, start: Path, project: Path, groups: Path
) -> None:
    made = project / "graph"
    few = ("--rate", 1e-2, "--warm-up", 1, "--workers", 1)
    some = _first(groups, 50, made / "some.jsonl")
    run("train_cross_encoder.py", start, some, made / "weights", *few)
    run("build.py", "cross-encoder", "--float32", made / "weights", made / "exact")
    run("build.py", "cross-encoder", made / "weights", made / "rounded")
    # Building from these weights gives the same graph.
    run("graph_weights.py", made / "rounded", made / "weights" / "config.json", made / "taken out")
    run("build.py", "cross-encoder", made / "taken out", made / "again")
    query, documents = "how do i use a boat", ["boat", "a lamp is for this", "the rose " * 20]
    pairs = [[query, document] for document in documents]
    passages = passages_of(documents)
    trained = facts("training_logits.py", made / "weights", given=pairs)["logits"]
    exact, rounded, again = (
        [pair.score for pair in CrossEncoder(made / name).score(query, passages).complete()]
        for name in ("exact", "rounded", "again")
    )
    assert exact == pytest.approx(trained, abs=1e-4)
    assert rounded == pytest.approx(trained, abs=1)
    assert again == pytest.approx(rounded, abs=0.01)
    assert max(trained) - min(trained) > 0.01

    begun = facts("training_logits.py", start, given=pairs)
    assert begun["kept_of_three_layers"] == [0, 2]

    # Of four candidates with a logit of 2 three fit, of eight with -2 one: the line through both.
    judged = [(2, 1)] * 3 + [(2, 0)] + [(-2, 1)] + [(-2, 0)] * 7
    stored = [
        {"stage2": [["a", logit, False]], "relevant": {"a": 1} if fits else {}}
        for logit, fits in judged
    ]
    named = {"stage2": [["a", 9, False]], "relevant": {}, "mentions_name": True}
    _write(project / "run.jsonl", [{"schema": "crossgate-run/1"}, *stored, named])
    run("set_boundary.py", made / "weights", made / "bounded", project / "run.jsonl")
    bounded = facts("training_logits.py", made / "bounded", given=pairs)["logits"]
    apart = [stored[0], stored[0] | {"stage2": [["a", -2, False]], "relevant": {}}]
    _write(project / "apart.jsonl", [{"schema": "crossgate-run/1"}, *apart])
    boundary = ("set_boundary.py", made / "weights", made / "no", project / "apart.jsonl")
    assert "a logit separates" in run(*boundary, code=1)
    scale, shift = (np.log(3) + np.log(7)) / 4, (np.log(3) - np.log(7)) / 2
    assert bounded == pytest.approx([scale * logit + shift for logit in trained], abs=1e-4)

    former = project / "former"
    cut = (
        "import sys, pathlib, shutil; from safetensors.torch import load_file, save_file;start, "
        "output = map(pathlib.Path, sys.argv[1:]); shutil.copytree(start, output);weights = "
        "load_file(start / 'model.safetensors');weights['classifier.weight'] = "
        "weights['classifier.weight'][:, 1:].contiguous();save_file(weights, output / "
        "'model.safetensors');(output / 'weights.sha256').unlink()"
    )
    (project / "models/cut.py").write_text(cut)
    run("cut.py", made / "weights", former)
    failed = run("build.py", "cross-encoder", former, project / "refused", code=1)
    assert f"expected shape (1, {WIDTH}), found (1, {WIDTH - 1})" in failed
    assert not (project / "refused").exists()


def test_incomplete_weights_are_refused(run: Run, start: Path, project: Path, groups: Path) -> None:
    lost = "encoder.layer.1.output.dense.weight"
    cut = (
        "import sys, pathlib, shutil; from safetensors.torch import load_file, save_file;"
        "start, output = map(pathlib.Path, sys.argv[1:]); shutil.copytree(start, output);"
        "weights = load_file(start / 'model.safetensors');"
        f"del weights['{lost}']; save_file(weights, output / 'model.safetensors')"
    )
    partial = project / "partial"
    (project / "models/cut.py").write_text(cut)
    run("cut.py", start, partial)
    data, made = project / "data", project / "no"
    for name, *arguments in (
        (lost, "train_embedder.py", partial, start, data, made, "--steps", 1),
        (f"bert.{lost}", "train_cross_encoder.py", partial, groups, made),
        (f"bert.{lost}", "train_cross_encoder.py", start, groups, made, "--teacher", partial),
    ):
        failed = run(*arguments, "--workers", 1, code=1)
        assert f"{partial / 'model.safetensors'}: lacks {name}\n" in failed
    assert not (project / "no").exists()


def test_losses_equal_their_definitions(facts: Facts) -> None:
    random = np.random.default_rng(3)
    logits, stage1 = random.normal(size=(3, 4)), random.normal(size=(3, 4))
    matched = [True, False, True]
    queries, documents = random.normal(size=(3, 5)), random.normal(size=(4, 5))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    fits = [[True, False, False, True], [False] * 4, [False, True, False, False]]
    given = {
        "logits": logits.tolist(),
        "stage1": stage1.tolist(),
        "matched": matched,
        "queries": queries.tolist(),
        "documents": documents.tolist(),
        "fits": fits,
    }
    found = facts("training_facts.py", given=given)

    for loss, row, known, match in zip(found["groups"], logits, stage1, matched, strict=True):
        # The right document against the group and "nothing fits", whose logit is 0.
        picked = np.log(np.exp([*row, 0]).sum()) - (row[0] if match else 0)
        right = np.array([match, False, False, False])
        single = np.log1p(np.exp(np.where(right, -row, row)))
        # The cascade's task: the right document by stage 1 and the logit together, if one fits.
        both = row + known
        fused = (np.log(np.exp(both).sum()) - both[0]) * match
        assert loss == pytest.approx(fused + 0.5 * picked + 0.25 * single.mean(), abs=1e-5)

    # Any right document, or "nothing fits" at a cosine of 0.3, among all, at a temperature of 0.05.
    batch = []
    for row, wanted in zip(queries @ documents.T, fits, strict=True):
        shares = np.exp(np.array([*row, 0.3]) / 0.05)
        batch.append(-np.log(shares[[*wanted, not any(wanted)]].sum() / shares.sum()))
    assert found["batch"] == pytest.approx(np.mean(batch), abs=1e-4)


def test_likely_answers_are_not_mined_as_wrong(facts: Facts, start: Path) -> None:
    found = facts("training_miner.py", start)

    # Neither a copy of the right document nor documents whose cosine is 0.08 higher.
    matched = found["matched"]
    assert matched["wrong"] == ["far", "near", "ruled out"]
    assert sorted(matched["batch"]) == ["far", "near", "right", "ruled out"]
    assert all(row == ["right"] for row in matched["fits"])

    # If only one document was judged, the near documents may fit.
    judged = found["judged"]
    assert judged["wrong"] == []
    assert judged["batch"] == ["ruled out"]
    assert not any(judged["fits"])

    # If no document of the pool fits, all near documents are wrong.
    outside = found["outside"]
    # The first by cosine, and the first by words.
    assert outside["nearest"] == ["nearer", "right"]
    assert outside["wrong"] == ["copy", "far", "near", "nearer", "right", "ruled out"]

    # Stored vectors are not reused for other texts.
    assert found["vectors"] == 2


def test_the_same_seed_trains_the_same_weights(run: Run, start: Path, project: Path) -> None:
    folders = [project / "once", project / "twice"]
    for folder in folders:
        run(
            "train_embedder.py",
            start,
            start,
            project / "data",
            folder,
            "--steps",
            2,
            "--workers",
            1,
        )
    once, twice = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert once == twice


def test_killed_training_resumes_from_its_checkpoint(
    run: Run, python: str, start: Path, project: Path, groups: Path
) -> None:
    many = _first(groups, 900, project / "many.jsonl")
    options = ("--workers", 1)
    run("train_cross_encoder.py", start, many, project / "whole", *options)
    made = project / "parts"
    with subprocess.Popen(
        [python, "train_cross_encoder.py", *map(str, (start, many, made, *options))],
        cwd=project / "models",
        env=os.environ | {"PYTHONPATH": str(project / "models")},
        stdout=subprocess.PIPE,
        text=True,
    ) as training:
        assert training.stdout is not None
        # The only checkpoint before the last is that of step 50.
        while "step 60/90" not in training.stdout.readline():
            assert training.poll() is None
        training.kill()
    shown = run("train_cross_encoder.py", start, many, made, *options)
    assert re.findall(r"step (\d+)/90", shown) == ["60", "70", "80", "90"]
    whole, parts = (folder / "model.safetensors" for folder in (project / "whole", made))
    assert whole.read_bytes() == parts.read_bytes()

    other = _first(groups, 890, project / "other.jsonl")
    refused = run("train_cross_encoder.py", start, other, made, *options, code=1)
    assert f"{made / 'checkpoint.pt'}: belongs to a run on other inputs" in refused


def test_groups_are_the_candidates_of_stage_1(groups: Path) -> None:
    rows = [json.loads(line) for line in groups.read_text().splitlines()]
    assert len(rows) > 50
    for row in rows:
        assert len(row["documents"]) == len(row["stage1"]) <= 8
        subjects = set(SUBJECTS) & set(row["query"].split())
        if row["matched"] and subjects:
            (subject,) = subjects
            assert subject in row["documents"][0]
            assert all(subject not in text for text in row["documents"][1:])
    assert {row["matched"] for row in rows} == {True, False}
    # Stage 2 reads the head of a skill and a passage of its body, as in the cascade.
    assert any("the boat the boat" in text for row in rows for text in row["documents"])


def test_changed_file_stops_the_training(run: Run, start: Path, project: Path) -> None:
    listing = project / "models/data.sha256"
    right = listing.read_text()
    _list_hashes(project, {project / "data/skills/corpus.jsonl": "0" * 64})
    failed = run("train_embedder.py", start, start, project / "data", project / "no", code=1)
    listing.write_text(right)
    assert f"{project / 'data/skills/corpus.jsonl'}: expected sha256 {'0' * 64}" in failed
    assert not (project / "no").exists()

    few = ("--steps", 1, "--workers", 1)
    shown = run("train_embedder.py", start, start, project / "data", project / "sealed", *few)
    assert f"{start}: not checked" in shown
    altered = project / "sealed/config.json"
    altered.write_text(altered.read_text() + "\n")
    for script, *arguments in (
        ("train_embedder.py", start, altered.parent, project / "data", project / "no"),
        ("train_cross_encoder.py", altered.parent, project / "groups.jsonl", project / "no"),
        ("average.py", project / "no", start, altered.parent),
        ("build.py", "embedder", altered.parent, project / "no"),
    ):
        assert f"{altered}: expected sha256" in run(script, *arguments, code=1)
        assert not (project / "no").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_workers_end_if_their_parent_is_killed(python: str, start: Path, project: Path) -> None:
    models, log = project / "models", project / "killed.log"
    paths = map(str, (start, start, project / "data", project / "killed"))
    deadline = time.monotonic() + 90
    # Not a pipe, since a broken pipe would end the workers.
    with log.open("w") as output:
        training = subprocess.Popen(
            [python, "train_embedder.py", *paths, "--steps", "100000"],
            cwd=models,
            env=os.environ | {"PYTHONPATH": str(models)},
            stdout=output,
            # As in a background job of a shell, which ignores Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
    while "step" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    listed = Path(f"/proc/{training.pid}/task/{training.pid}/children").read_text()
    workers = listed.split()
    assert len(workers) >= 2
    training.kill()
    training.wait()
    deadline = time.monotonic() + 20
    while any(map(_runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = [worker for worker in workers if _runs(worker)]
    for worker in left:
        os.kill(int(worker), signal.SIGKILL)
    assert not left


def test_held_out_data_is_not_trained_on(project: Path) -> None:
    data = _read(project)
    ids = set(data.pools["skills"])
    assert {"skills soup", "skill-triggers soup", "free"} <= ids
    assert not ids & {"held", "same repository", "near copy", "no licence"}
    queries = {example.query: example for example in data.examples}
    assert "please fold all of my paper boats" not in queries
    assert queries["never this one"].positives == ()
    assert queries["never this one"].negatives == ("skill-triggers soup",)
    assert queries["skills it"].negatives == ("skills soup",)
    assert data.removed["skills of a hold-out or near one"] == 3
    assert data.removed["skill-triggers: prompts near a hold-out's"] == 1


def test_halves_share_no_repository(project: Path) -> None:
    data = _read(project)
    example = type(data.examples[0])
    data.repositories |= {"skill-triggers soup": "a", "skill-triggers boat": "a"}

    def half(query: str, *positives: str, pool: str = "skills", ruled_out: str = "") -> int:
        return int(data.half(example("any", pool, query, positives, (ruled_out,))))

    queries = [f"how do i use a {subject}" for subject in SUBJECTS]
    soup = {half(query, "skill-triggers soup") for query in queries}
    assert soup == {half(query, "skill-triggers boat") for query in queries}
    assert soup == {half(query, ruled_out="skill-triggers boat") for query in queries}
    assert {half("it", subject, pool="bfcl") for subject in SUBJECTS} == {0, 1}
    assert {half(query, "clinc150 boat", pool="clinc150") for query in queries} == {0, 1}


def test_summary_line_is_the_query_for_a_package(project: Path) -> None:
    data = _read(project)
    assert set(data.pools["debian"]) == {*SUBJECTS, "twin", "other-twin"}
    assert "\n" not in data.pools["debian"]["soup"]
    assert " . " not in data.pools["debian"]["soup"]
    assert "soup: this is about the soup" in data.pools["debian"]["soup"]
    asked = {
        example.query: example.positives for example in data.examples if example.source == "debian"
    }
    assert asked["how do i use the soup"] == ("soup",)
    # Two packages with the same summary are both right answers.
    assert set(asked["this is a twin"]) == {"twin", "other-twin"}


def _first(groups: Path, count: int, path: Path) -> Path:
    """Write a number of groups of a file to another, and start again at its end."""
    lines = groups.read_text().splitlines(keepends=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines[place % len(lines)] for place in range(count)))
    return path


def _runs(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _read(project: Path) -> Any:
    sys.path.insert(0, str(MODELS))
    try:
        corpora = importlib.import_module("corpora")
    finally:
        sys.path.remove(str(MODELS))
    return corpora.read_training_data(project / "data", project / "models/prompts")


def _describe_packages(path: Path) -> None:
    """Write Debian's descriptions of a program per subject, and of packages to be left out."""

    def block(name: str, short: str, long: str) -> str:
        return f"Package: {name}\nDescription-md5: 0\nDescription-en: {short}\n{long}\n"

    blocks = []
    for subject in SUBJECTS:
        long = f" this is about the {subject}\n .\n for a {subject}" + f" for the {subject}" * 20
        blocks += [
            block(subject, f"how do i use the {subject}", long),
            block(f"lib{subject}", f"how do i use the {subject}", f" lib{subject}" + long),
            block(f"{subject}-data", f"how do i use the {subject}", f" {subject}-data" + long),
            block(f"{subject}2", f"how do i use the other {subject}", long),
            block(f"small-{subject}", f"how do i use the small {subject}", " it is small"),
            block(f"brief-{subject}", f"brief {subject}", " brief" + long),
        ]
    long = " it does what its twin does" * 20
    blocks += [
        block("twin", "This is a twin", long),
        block("other-twin", "this is a twin", " another:" + long),
        block("moved", "this is a transitional package", " moved:" + long),
    ]
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(blocks))


def _hold_out(triggers: Path, skills: Path) -> None:
    """Add a held-out skill with its prompt, and rows that must be left out, or kept, with it."""
    text = "fold paper boats out of old news and let them sail on a pond"

    def add(path: Path, id: str, text: str, repo: str = "free", licence: str = "MIT") -> None:
        row = {"_id": id, "text": text, "metadata": {"repo": repo, "licence": licence}}
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    add(triggers / "corpus.jsonl", "held", text, "held")
    add(skills / "corpus.jsonl", "same repository", "clean the harbour", "held")
    add(skills / "corpus.jsonl", "near copy", f"{text} today")
    add(skills / "corpus.jsonl", "no licence", "count the gulls", licence="none found")
    add(skills / "corpus.jsonl", "free", "count the gulls")
    add(triggers / "queries.jsonl", "dev", "fold all of my paper boats")
    add(triggers / "queries.jsonl", "near", "please fold all of my paper boats")
    add(triggers / "queries.jsonl", "never", "never this one")
    for path, line in (
        ("qrels/dev.tsv", "dev\theld\t1"),
        ("qrels/train.tsv", "near\tskill-triggers soup\t1"),
        ("negatives/train.tsv", "never\tskill-triggers soup"),
    ):
        with (triggers / path).open("a") as file:
            file.write(line + "\n")


def _list_hashes(project: Path, hashes: dict[Path, str]) -> None:
    data = project / "data"
    lines = [f"{digest}  {path.relative_to(data)}\n" for path, digest in hashes.items()]
    (project / "models/data.sha256").write_text("".join(lines))


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
