"""The hand-written evaluation sets: counts, ids, labels and the fields of each set."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crossgate._evaluation.label_files import read_dataset

EVAL = Path(__file__).parents[1] / "eval"


@dataclass(frozen=True)
class Expected:
    """The content of a set: prompts by kind, the fields of a row, and the corpus."""

    kinds: dict[str, int]
    documents: int
    fields: dict[str, type]
    optional: dict[str, type]
    shared_corpus: bool = False


SETS = {
    "material": Expected(
        {"skill": 120, "trap": 80},
        83,
        {"request": str, "material_kind": str, "position": str},
        {},
        shared_corpus=True,
    ),
    "triggers": Expected(
        {"trigger": 95, "shared": 10, "mention_only": 15}, 48, {}, {"trigger": str}
    ),
    "exclusions": Expected({"excluded": 40, "allowed": 40}, 42, {}, {"excluded": str}),
    "projects": Expected(
        {"same_request": 121, "neutral": 20, "named": 10, "no_sibling": 9},
        77,
        {"technologies": list},
        {},
    ),
    "followups": Expected(
        {"continuation": 57, "stand_alone": 35, "chitchat": 28},
        83,
        {"history": list},
        {},
        shared_corpus=True,
    ),
    "versions": Expected(
        {"pair": 34, "target": 8, "feature": 6, "no_pair": 8, "other_number": 4}, 33, {}, {}
    ),
    "spelling": Expected({"request": 95, "chat": 5}, 83, {"correct": str}, {}, shared_corpus=True),
    "languages": Expected(
        {"request": 52, "chat": 8}, 83, {"language": str}, {}, shared_corpus=True
    ),
    "taught": Expected(
        {"misroute": 60, "phrasing": 120, "ordinary": 180},
        83,
        {},
        {"skill": str, "example": str, "wording": str, "phrasing_of": str},
        shared_corpus=True,
    ),
}
NO_MATCH = {"trap", "chitchat", "chat", "no_pair", "other_number", "no_sibling"}
ALWAYS_MATCH = {
    *("skill", "trigger", "shared", "allowed", "same_request", "neutral", "named"),
    *("continuation", "stand_alone", "pair", "target", "feature", "request", "misroute"),
}


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_table(path: Path) -> list[tuple[str, ...]]:
    if not path.exists():
        return []
    return [tuple(line.split("\t")) for line in path.read_text().splitlines()[1:]]


def queries_of(name: str) -> list[dict[str, Any]]:
    return read_rows(EVAL / name / "queries.jsonl")


def labels_of(name: str) -> dict[str, set[str]]:
    labels: dict[str, set[str]] = {}
    for query, document, _ in read_table(EVAL / name / "qrels" / "test.tsv"):
        labels.setdefault(query, set()).add(document)
    return labels


def wrong_of(name: str) -> dict[str, set[str]]:
    wrong: dict[str, set[str]] = {}
    for query, document in read_table(EVAL / name / "negatives" / "test.tsv"):
        wrong.setdefault(query, set()).add(document)
    return wrong


@pytest.mark.parametrize("name", SETS)
def test_set_is_read_without_problems(name: str) -> None:
    dataset = read_dataset(EVAL / name)
    assert dataset.problems == ()
    assert dataset.notes == ()
    assert len(dataset.queries) == sum(SETS[name].kinds.values())
    assert len(dataset.documents) == SETS[name].documents


@pytest.mark.parametrize("name", SETS)
def test_set_has_the_stated_number_of_prompts_by_kind(name: str) -> None:
    assert Counter(row["metadata"]["kind"] for row in queries_of(name)) == SETS[name].kinds


@pytest.mark.parametrize("name", SETS)
def test_ids_and_prompts_are_unique(name: str) -> None:
    rows = queries_of(name)
    assert len({row["_id"] for row in rows}) == len(rows)
    # Two projects may have the same request, and two histories the same prompt.
    context = ("technologies", "history")
    prompts = {json.dumps([row["text"].lower(), *map(row.get, context)]) for row in rows}
    assert len(prompts) == len(rows)
    documents = read_rows(EVAL / name / "corpus.jsonl")
    assert len({document["_id"] for document in documents}) == len(documents)
    assert len({document["text"] for document in documents}) == len(documents)


@pytest.mark.parametrize("name", SETS)
def test_labels_name_queries_and_documents_of_the_set(name: str) -> None:
    queries = {row["_id"] for row in queries_of(name)}
    documents = {row["_id"] for row in read_rows(EVAL / name / "corpus.jsonl")}
    for table in (labels_of(name), wrong_of(name)):
        assert table.keys() <= queries
        assert set[str]().union(*table.values()) <= documents
    for query, wrong in wrong_of(name).items():
        assert not wrong & labels_of(name).get(query, set()), query


@pytest.mark.parametrize("name", SETS)
def test_a_prompt_has_a_label_or_is_marked_no_match(name: str) -> None:
    labels = labels_of(name)
    for row in queries_of(name):
        assert (row["_id"] in labels) is not row["metadata"].get("no_match", False), row["_id"]
        if row["metadata"]["kind"] in NO_MATCH:
            assert row["_id"] not in labels
        if row["metadata"]["kind"] in ALWAYS_MATCH:
            assert row["_id"] in labels


@pytest.mark.parametrize("name", SETS)
def test_rows_have_the_fields_of_the_set(name: str) -> None:
    expected = SETS[name]
    known = {"_id", "text", "metadata", *expected.fields, *expected.optional}
    for row in queries_of(name):
        assert row.keys() <= known
        for field, type_ in expected.fields.items():
            assert isinstance(row[field], type_), (row["_id"], field)
            assert row[field], (row["_id"], field)
        for field, type_ in expected.optional.items():
            assert isinstance(row.get(field), type_ | None), (row["_id"], field)


@pytest.mark.parametrize("name", [name for name, set in SETS.items() if set.shared_corpus])
def test_shared_corpus_equals_that_of_skills(name: str) -> None:
    skills = (EVAL / "skills" / "corpus.jsonl").read_bytes()
    assert (EVAL / name / "corpus.jsonl").read_bytes() == skills


def test_material_surrounds_the_request() -> None:
    kinds: set[str] = set()
    for row in queries_of("material"):
        before, request, after = row["text"].partition(row["request"])
        assert request, row["_id"]
        sides = {"before": (True, False), "after": (False, True), "around": (True, True)}
        assert (bool(before), bool(after)) == sides[row["position"]], row["_id"]
        kinds |= set(row["material_kind"].split("+"))
    assert len(kinds) == 16


def test_trigger_is_in_a_right_description_and_in_the_prompt() -> None:
    texts = {row["_id"]: row["text"].lower() for row in read_rows(EVAL / "triggers/corpus.jsonl")}
    labels = labels_of("triggers")
    for row in queries_of("triggers"):
        if row["metadata"]["kind"] == "trigger":
            assert row["trigger"].lower() in row["text"].lower(), row["_id"]
            assert all(row["trigger"].lower() in texts[id] for id in labels[row["_id"]])


def test_excluded_document_is_a_wrong_pick() -> None:
    wrong = wrong_of("exclusions")
    for row in queries_of("exclusions"):
        excluded = {row["excluded"]} if row["metadata"]["kind"] == "excluded" else set()
        assert wrong.get(row["_id"], set()) == excluded, row["_id"]


def test_same_request_needs_another_skill_in_another_project() -> None:
    labels = labels_of("projects")
    skills: dict[str, list[set[str]]] = {}
    for row in queries_of("projects"):
        if row["metadata"]["kind"] == "same_request":
            skills.setdefault(row["text"], []).append(labels[row["_id"]])
    for request, picks in skills.items():
        assert len(picks) >= 2, request
        assert sum(map(len, picks)) == len(set[str]().union(*picks)), request


def test_misspelt_prompt_differs_from_the_correct_one_in_one_or_two_words() -> None:
    for row in queries_of("spelling"):
        pairs = list(zip(row["text"].split(), row["correct"].split(), strict=True))
        assert 1 <= sum(wrong != right for wrong, right in pairs) <= 2, row["_id"]


def test_languages_are_many_and_exclude_english() -> None:
    languages = {row["language"] for row in queries_of("languages")}
    assert len(languages) >= 12
    assert "en" not in languages


def test_misroute_names_its_skill_and_an_example_in_other_words() -> None:
    rows = queries_of("taught")
    labels = labels_of("taught")
    examples = set()
    for row in rows:
        if row["metadata"]["kind"] == "misroute":
            assert labels[row["_id"]] == {row["skill"]}
            assert row["wording"] in {"near", "far"}
            assert row["example"] != row["text"]
            examples.add(row["example"])
    prompts = {row["text"] for row in rows}
    assert len(examples) == 60
    assert not examples & prompts
    assert {row["phrasing_of"] for row in rows if "phrasing_of" in row} <= examples
