"""Prompts about another version than the one that a description names."""

from __future__ import annotations

import pytest

from crossgate import Document, Index, Router, RouteResult

SKILLS = {
    "django-4-to-5": "Upgrades Django 4.2 projects to Django 5: async views, form rendering, "
    "deprecated settings.",
    "swift-migration": "Migrates Swift 5 code to Swift 6: strict concurrency, sendable types.",
    "tailwind-v4": "Upgrades Tailwind CSS from v3 to v4: config in CSS, renamed utilities.",
    "openapi-writer": "Writes OpenAPI definitions from the routes of a service.",
    "invoice-desk": "Writes invoices and reminders.",
}
PROMPTS = [
    ("upgrade the project from Django 4.2 to Django 5", "django-4-to-5"),
    ("migrate our code from Swift 5 to Swift 6", "swift-migration"),
    ("upgrade tailwind v3 to v4", "tailwind-v4"),
]
OTHERS = [
    ("upgrade the project from Django 5 to Django 6", "django-4-to-5"),
    ("upgrade the project from django 2.2 to django 3.2", "django-4-to-5"),
    ("migrate our code from swift4 to swift5.1", "swift-migration"),
    ("upgrade tailwind v1 to v2", "tailwind-v4"),
]


def other_version(result: RouteResult, id: str) -> float:
    """Return the evidence about a document in the trace, which leaves out zeros."""
    (row,) = (row for row in result.trace["stage1"] if row["id"] == id)
    value: float = row.get("evidence", {}).get("other_version", 0.0)
    return value


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.build([Document(id=id, title=id, text=text) for id, text in SKILLS.items()])


@pytest.mark.parametrize(("prompt", "skill"), PROMPTS)
def test_a_skill_is_picked_for_the_version_that_it_names(
    index: Index, prompt: str, skill: str
) -> None:
    result = Router(index).route(prompt)
    assert result.ids == [skill]
    assert other_version(result, skill) == 0.0


@pytest.mark.parametrize(("prompt", "skill"), OTHERS)
def test_a_skill_is_not_picked_for_another_version(index: Index, prompt: str, skill: str) -> None:
    result = Router(index).route(prompt)
    assert result.ids == []
    assert other_version(result, skill) == 1.0


def test_the_explanation_names_the_version_as_the_reason(index: Index) -> None:
    explanation = Router(index).explain("upgrade tailwind v1 to v2", "tailwind-v4")
    assert explanation.step == "other_version"
    assert "other versions of the same thing; without that, it would be selected" in (
        explanation.text
    )
    assert "name the version in its description" in explanation.remedy


def test_a_skill_without_versions_is_picked_for_any_version(index: Index) -> None:
    assert Router(index).route("write an OpenAPI 3.1 definition").ids == ["openapi-writer"]


def test_a_passage_may_answer_a_question_about_another_version() -> None:
    passage = "Support. The server runs on Postgres 14 and Postgres 15; nothing newer is tested."
    index = Index.build([Document(id="chunk-7", text=passage)])
    result = Router(index).route("does it run on Postgres 16")
    assert other_version(result, "chunk-7") == 0.0
