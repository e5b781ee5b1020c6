"""The sets of questions with and without an answer: counts, twins, splits, and single signals."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossgate import Index
from crossgate._evaluation.statistics import area_interval
from crossgate.evaluation import Dataset, read_dataset

EVAL = Path(__file__).parents[1] / "eval"
KINDS = {
    "plain",
    "spelling",
    "date",
    "number",
    "table",
    "code",
    "negation",
    "missing_word",
    "near_topic",
}


def rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EVAL / path).read_text(encoding="utf-8").splitlines()]


def table(path: str) -> list[tuple[str, ...]]:
    lines = (EVAL / path).read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines[1:]]


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.lower()))


CHUNKS = rows("chunks/corpus.jsonl")
CORPUS = {row["_id"]: row for row in rows("answers/corpus.jsonl")}
QUERIES = {row["_id"]: row for row in rows("answers/queries.jsonl")}
MISSPELT = [row for row in QUERIES.values() if "correct" in row["metadata"]]
UNANSWERABLE = [row for row in QUERIES.values() if row["metadata"].get("no_match")]
ANSWERABLE = [row for row in QUERIES.values() if row not in MISSPELT and row not in UNANSWERABLE]


def judged(split: str) -> list[tuple[str, str]]:
    """Return the judged pairs of question and document of a split, right and wrong ones."""
    pairs = [*table(f"answers/qrels/{split}.tsv"), *table(f"answers/negatives/{split}.tsv")]
    return [(pair[0], pair[1]) for pair in pairs]


def test_questions_have_the_stated_counts() -> None:
    kinds = Counter(row["metadata"]["kind"] for row in ANSWERABLE + UNANSWERABLE)
    assert len(ANSWERABLE) == 300
    assert len(UNANSWERABLE) == 200
    assert len(MISSPELT) == 100
    assert set(kinds) == KINDS
    assert kinds["missing_word"] == kinds["near_topic"] == 100
    assert kinds["date"] + kinds["number"] + kinds["table"] >= 50
    assert kinds["negation"] >= 30


@pytest.mark.parametrize("split", ["fit", "test"])
def test_unanswerable_question_has_an_answerable_twin_in_its_split(split: str) -> None:
    relevant = {(query, document) for query, document, _ in table(f"answers/qrels/{split}.tsv")}
    answered = {query for query, _ in relevant}
    near = table(f"answers/negatives/{split}.tsv")
    asked = [row for row in UNANSWERABLE if row["metadata"]["split"] == split]
    assert len(asked) == 100
    assert {query for query, _ in near} == {row["_id"] for row in asked}
    assert all(row["metadata"]["twin"] in answered for row in asked)
    # The near passage answers the twin.
    assert all(
        (QUERIES[query]["metadata"]["twin"], document) in relevant for query, document in near
    )


def test_missing_word_is_in_the_question_and_in_no_document() -> None:
    known = set().union(*(words(f"{row['title']} {row['text']}") for row in CORPUS.values()))
    for row in UNANSWERABLE:
        metadata = row["metadata"]
        assert ("missing" in metadata) == (metadata["kind"] == "missing_word")
        if missing := metadata.get("missing"):
            assert missing in words(row["text"]), row
            assert not {missing, f"{missing}s", missing.removesuffix("s")} & known, row


def test_fit_and_test_share_neither_documents_nor_questions() -> None:
    fit, test = judged("fit"), judged("test")
    documents = [
        {CORPUS[document]["metadata"]["document"] for _, document in pairs} for pairs in (fit, test)
    ]
    assert not documents[0] & documents[1]
    assert not {query for query, _ in fit} & {query for query, _ in test}


@pytest.mark.parametrize(
    ("split", "answerable", "unanswerable"),
    [("fit", 150, 100), ("test", 150, 100), ("misspelt", 100, 0), ("corrected", 100, 0)],
)
def test_split_is_read_without_problems(split: str, answerable: int, unanswerable: int) -> None:
    dataset = read_dataset(EVAL / "answers", split=split)
    assert sum(bool(query.relevant) for query in dataset.queries) == answerable
    assert sum(not query.relevant for query in dataset.queries) == unanswerable
    assert all(query.kind in KINDS for query in dataset.queries)
    assert dataset.problems == ()
    assert dataset.notes == ()


def test_unanswerable_question_of_chunks_has_a_twin() -> None:
    answered = {query for query, _, _ in table("chunks/qrels/test.tsv")}
    asked = [row for row in rows("chunks/queries.jsonl") if row["metadata"].get("no_match")]
    twins = [row["metadata"]["twin"] for row in asked]
    assert len(asked) == len(set(twins)) == 110
    assert set(twins) <= answered
    assert not answered & {row["_id"] for row in asked}


def covered(dataset: Dataset) -> dict[str, float]:
    spec = importlib.util.spec_from_file_location("signals", EVAL / "trivial_signals.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shares: dict[str, float] = module.covered(dataset)
    return shares


@pytest.mark.parametrize(
    ("name", "split"), [("chunks", "test"), ("answers", "fit"), ("answers", "test")]
)
def test_words_alone_do_not_separate_answerable_from_unanswerable_questions(
    name: str, split: str
) -> None:
    dataset = read_dataset(EVAL / name, split=split)
    index = Index.build(dataset.documents, embedder=None)
    answerable = np.array([bool(query.relevant) for query in dataset.queries])
    found = [index.search(query.text, embed=False).scored for query in dataset.queries]
    shares = covered(dataset)
    for values in (
        [max((candidate.bm25 for candidate in scored), default=0.0) for scored in found],
        [shares[query.id] for query in dataset.queries],
    ):
        area = area_interval(np.array(values), answerable, seed=0)
        assert area
        assert 0.40 <= area.value <= 0.75
