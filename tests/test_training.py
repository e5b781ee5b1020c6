"""The data that models/ trains on: no row of a hold-out, and the candidates of stage 1."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
