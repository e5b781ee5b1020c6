"""The training in models/: no row of a hold-out is used, and an interrupted run can go on."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MODELS = Path(__file__).parents[1] / "models"
SUBJECTS = ("soup", "boat", "lamp", "rose", "train", "cheese", "violin", "spider")


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
    _write(root / "data/skill-bodies/bodies.jsonl", [])
    for name in ("skills", "chunks", "memory"):
        _write(root / "eval" / name / "corpus.jsonl", [])
        _write(root / "eval" / name / "queries.jsonl", [])
    _hold_out(root / "data/skill-triggers", root / "data/skills")
    (root / "data/debian").mkdir()
    (root / "data/debian/Translation-en").write_text("")
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


@pytest.mark.parametrize("script", ["train_embedder", "train_cross_encoder"])
def test_an_interrupted_training_goes_on_to_the_same_weights(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="the training needs models/requirements.txt")
    monkeypatch.syspath_prepend(MODELS)
    training = importlib.import_module("training")
    module = importlib.import_module(script)
    monkeypatch.setattr(module, "CHECKPOINT_EVERY", 4, raising=False)
    monkeypatch.setattr(module, "GROUPS_PER_STEP", 3, raising=False)
    start, data = _tiny_model(tmp_path / "start", script), tmp_path / "data"
    _tiny_data(data, script)
    step = training.Optimiser.step

    def train(output: Path, interrupted_at: int) -> Any:
        def checked(optimiser: Any, loss: Any) -> None:
            if optimiser.done == interrupted_at:
                raise KeyboardInterrupt
            step(optimiser, loss)

        monkeypatch.setattr(training.Optimiser, "step", checked)
        arguments = [script, str(start), str(data), str(output), "--steps", "10"]
        if script == "train_embedder":
            arguments += ["--workers", "0", "--half", "0"]
        monkeypatch.setattr(sys, "argv", arguments)
        module.main()
        return training.load_file(output / "model.safetensors")

    whole = train(tmp_path / "whole", interrupted_at=-1)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "parts", interrupted_at=7)
    assert not (tmp_path / "parts/model.safetensors").exists()
    resumed = train(tmp_path / "parts", interrupted_at=-1)
    for name, weight in whole.items():
        torch.testing.assert_close(resumed[name], weight, atol=1e-6, rtol=1e-5)
    moved = training.load_file(start / "model.safetensors")
    assert any(not torch.equal(moved[name], weight) for name, weight in whole.items())


def _tiny_model(folder: Path, script: str) -> Path:
    """Write weights of a BERT with one layer, and a tokenizer of the words 0 to 49."""
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(0)
    folder.mkdir()
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=1,
    )
    kind = transformers.BertForSequenceClassification
    if script == "train_embedder":
        model = transformers.BertModel(config, add_pooling_layer=False)
    else:
        model = kind(config)
    words = {"[PAD]": 0, "[UNK]": 1} | {str(n): n + 2 for n in range(50)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    importlib.import_module("training").save(model, folder, folder)
    return folder


def _tiny_data(path: Path, script: str) -> None:
    """Write 24 queries about 12 documents, as the script reads them."""
    chance = random.Random(0)

    def text() -> str:
        return " ".join(str(chance.randrange(50)) for _ in range(6))

    if script == "train_cross_encoder":
        rows = [
            {
                "source": "any",
                "query": text(),
                "documents": [text() for _ in range(3)],
                "matched": bool(n % 3),
                "stage1": [1.0, 0.5, 0.0],
            }
            for n in range(24)
        ]
        _write(path, rows)
    else:
        pieces = [[chance.randrange(2, 52) for _ in range(6)] for _ in range(48)]
        lists: dict[str, Sequence[Sequence[float]]] = {
            "head": pieces[:12],
            "body": [[], *pieces[12:23]],
            "copies": [[]] * 12,
            "pool": [[0, 12]],
            "query": pieces[24:],
            "fits": [[n % 12] if n % 5 else [] for n in range(24)],
            "wrong": [[]] * 24,
            "matched": [[n % 12, (n + 1) % 12] for n in range(24)],
            "bm25": [[0.5, 0.25]] * 24,
        }
        arrays: dict[str, Any] = {"source_names": np.array(["toolalpaca"])}
        for name, values in lists.items():
            kind = np.float16 if name == "bm25" else np.int32
            arrays[name] = np.array([value for row in values for value in row], kind)
            arrays[f"{name}_ends"] = np.cumsum([len(row) for row in values])
        for name in ("source", "pool", "half"):
            arrays[f"of_{name}"] = np.zeros(24, np.int32)
        with path.open("wb") as file:
            np.savez(file, **arrays)


def _read(project: Path) -> Any:
    sys.path.insert(0, str(MODELS))
    try:
        corpora = importlib.import_module("corpora")
    finally:
        sys.path.remove(str(MODELS))
    return corpora.read_training_data(project / "data", project / "models/prompts")


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
