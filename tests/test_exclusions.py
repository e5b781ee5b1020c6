"""Exclusions in a description: they are kept and shown, but neither searched nor embedded."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from crossgate import CrossEncoder, Document, Index, OnnxEmbedder, Router

DEPLOY = (
    "Deploys web applications to Fly and to plain virtual machines, with health checks and "
    "rollbacks. Do not use for Render, Heroku or Vercel."
)
CASES = [
    ("put it on render.com", "deploy"),
    ("host my blog on heroku", "deploy"),
    ("make a powerpoint about bees", "documents"),
    ("write unit tests for the parser", "load-tests"),
    ("retouch her face in this portrait", "photos"),
]
BODY = "Run the script, then look at its output, for"
SKILLS = {
    "deploy": DEPLOY,
    "documents": "Writes letters and reports as .docx files. Not for slides or PowerPoint decks.",
    "load-tests": "Measures how many requests a service bears with k6. Never writes unit tests.",
    "photos": "Resizes and renames many photos at once. Does not retouch faces or portraits.",
    "weekly-menus": "Plans meals for a week and writes the shopping list.",
}


def library(skills: Mapping[str, str] = SKILLS) -> Index:
    documents = [
        Document(id=id, title=id, text=text, body=f"{BODY} {id}.") for id, text in skills.items()
    ]
    return Index.build(documents, embedder=OnnxEmbedder())


@pytest.fixture(scope="module")
def index() -> Index:
    return library()


@pytest.mark.parametrize(("query", "excluded"), CASES)
def test_excluded_task_scores_less_than_the_same_task_included(
    index: Index, query: str, excluded: str
) -> None:
    said = re.sub(r"\b(?:Do not|Does not|Not|Never) ", "Also ", SKILLS[excluded])
    assert said != SKILLS[excluded]
    willing = library({**SKILLS, excluded: said})

    def score(index: Index) -> float:
        hits = Router(index, reranker=None).route(query).hits
        return next((hit.blend for hit in hits if hit.id == excluded), 0.0)

    assert score(index) < score(willing)


def test_document_keeps_its_text(index: Index) -> None:
    kept = index.get("deploy")
    assert kept is not None
    assert kept.text == DEPLOY
    assert "Render" not in kept.content
    assert "Render" in Document(id="a", text=DEPLOY).content


def test_both_stages_read_the_text_without_exclusions(index: Index) -> None:
    """An exclusion changes no score, not even the reranker's."""
    query, rest = "put it on render.com", DEPLOY.split(" Do not")[0]
    bare = Index.build(
        [
            Document(
                id="deploy",
                title="deploy",
                text=rest,
                body=f"{BODY} deploy.",
            )
        ],
        embedder=OnnxEmbedder(),
    )
    with_clause = Router(index, reranker=CrossEncoder()).route(query, allow=["deploy"]).hits[0]
    without = Router(bare, reranker=CrossEncoder()).route(query).hits[0]
    assert with_clause.cosine == without.cosine
    assert with_clause.rerank_score == without.rerank_score


def test_changed_head_is_embedded_again() -> None:
    """With a body, a different part of the text is embedded, so the vector changes."""
    embedder = OnnxEmbedder()
    before = Index.build([Document(id="a", text=DEPLOY)], embedder=embedder)
    after = Index.build(
        [Document(id="a", text=DEPLOY, body="x y z")], embedder=embedder, reuse=before
    )
    fresh = Index.build([Document(id="a", text=DEPLOY, body="x y z")], embedder=embedder)
    query = "put it on render.com"

    def cosine(index: Index) -> float | None:
        return Router(index, reranker=None).route(query).hits[0].cosine

    assert cosine(after) == cosine(fresh) != cosine(before)
