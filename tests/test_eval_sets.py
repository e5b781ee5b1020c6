"""The hand-written evaluation sets: they are read without problems, and prove what they claim."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crossgate.evaluation import LabelledQuery, read_dataset

EVAL = Path(__file__).parents[1] / "eval"

SETS = {
    "material": {"skill": 120, "trap": 80},
    "triggers": {"trigger": 95, "shared": 10, "mention_only": 15},
    "exclusions": {"excluded": 40, "allowed": 40},
    "projects": {"same_request": 121, "neutral": 20, "named": 10, "no_sibling": 9},
    "followups": {"continuation": 57, "stand_alone": 35, "chitchat": 28},
    "sessions": {"c": 56, "e": 152, "b": 47, "f": 29, "t": 104, "q": 93, "o": 49, "p": 22},
    "versions": {"pair": 34, "target": 8, "feature": 6, "no_pair": 8, "other_number": 4},
    "spelling": {"request": 95, "chat": 5},
    "languages": {"request": 52, "chat": 8},
    "taught": {"misroute": 60, "phrasing": 120, "ordinary": 180},
}
"""The number of prompts of each kind."""
NO_MATCH = {"trap", "chitchat", "chat", "no_pair", "other_number", "no_sibling"}
EITHER = {"mention_only", "excluded", "phrasing", "ordinary", *SETS["sessions"]}
"""Kinds of which some prompts have a match."""


def rows(name: str) -> dict[str, dict[str, Any]]:
    """Return the rows of the queries of a set by id."""
    lines = (EVAL / name / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["_id"]: row for row in map(json.loads, lines)}


def queries(name: str) -> tuple[LabelledQuery, ...]:
    """Return the labelled queries of a set."""
    return read_dataset(EVAL / name).queries


@pytest.mark.parametrize("name", SETS)
def test_set_is_read_whole_and_has_the_stated_prompts(name: str) -> None:
    dataset = read_dataset(EVAL / name)
    assert (dataset.problems, dataset.notes) == ((), ())
    assert Counter(query.kind for query in dataset.queries) == SETS[name]
    assert len(rows(name)) == len(dataset.queries)
    assert len({document.text for document in dataset.documents}) == len(dataset.documents)
    for query in dataset.queries:
        assert not query.wrong & query.relevant.keys(), query.id
        if query.kind not in EITHER:
            assert bool(query.relevant) == (query.kind not in NO_MATCH), query.id


def test_material_surrounds_the_request() -> None:
    kinds: set[str] = set()
    for row in rows("material").values():
        before, request, after = row["text"].partition(row["request"])
        assert request, row["_id"]
        sides = {"before": (True, False), "after": (False, True), "around": (True, True)}
        assert (bool(before), bool(after)) == sides[row["position"]], row["_id"]
        kinds |= set(row["material_kind"].split("+"))
    assert len(kinds) == 16


def test_trigger_is_in_a_right_description_and_in_the_prompt() -> None:
    dataset, of = read_dataset(EVAL / "triggers"), rows("triggers")
    texts = {document.id: document.text.lower() for document in dataset.documents}
    for query in dataset.queries:
        if query.kind == "trigger":
            trigger = of[query.id]["trigger"].lower()
            assert trigger in query.text.lower(), query.id
            assert all(trigger in texts[id] for id in query.relevant)


def test_excluded_document_is_a_wrong_pick() -> None:
    of = rows("exclusions")
    for query in queries("exclusions"):
        excluded = {of[query.id]["excluded"]} if query.kind == "excluded" else set()
        assert query.wrong == excluded, query.id


def test_same_request_needs_another_skill_in_another_project() -> None:
    skills: dict[str, list[set[str]]] = {}
    for query in queries("projects"):
        if query.kind == "same_request":
            skills.setdefault(query.text, []).append(set(query.relevant))
    for request, picks in skills.items():
        assert len(picks) >= 2, request
        assert sum(map(len, picks)) == len(set[str]().union(*picks)), request


def test_need_of_a_prompt_is_the_best_grade_of_its_documents() -> None:
    of = rows("sessions")
    for query in queries("sessions"):
        labels, best = of[query.id]["metadata"], max(query.relevant.values(), default=0)
        assert labels["need"] == ("none", "may", "must")[best], query.id
        assert labels["may"] == [id for id, grade in query.relevant.items() if grade == 1], query.id


def test_misspelt_prompt_differs_from_the_correct_one_in_one_or_two_words() -> None:
    for row in rows("spelling").values():
        pairs = list(zip(row["text"].split(), row["correct"].split(), strict=True))
        assert 1 <= sum(wrong != right for wrong, right in pairs) <= 2, row["_id"]


def test_languages_are_many_and_exclude_english() -> None:
    languages = {row["language"] for row in rows("languages").values()}
    assert len(languages) >= 12
    assert "en" not in languages


def test_misroute_names_its_skill_and_an_example_in_other_words() -> None:
    of = rows("taught")
    taught = [of[query.id] for query in queries("taught") if query.kind == "misroute"]
    labels = {query.id: set(query.relevant) for query in queries("taught")}
    assert all(labels[row["_id"]] == {row["skill"]} for row in taught)
    examples = {row["example"] for row in taught}
    assert len(examples) == 60
    assert not examples & {row["text"] for row in of.values()}
    assert {row["phrasing_of"] for row in of.values() if "phrasing_of" in row} <= examples
