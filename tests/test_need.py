"""The probability that a query needs a document: the head, and its effect on decisions."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from conftest import LIBRARY, refused
from crossgate import Document, Index, OnnxEmbedder, Router, rerank
from crossgate.models import locate

REQUESTS = ("merge these two PDF files", "now turn that into a slide deck", "translate to german")
CONVERSATION = ("go on", "what did you change?", "no, I meant the other file", "looks good, thanks")


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return OnnxEmbedder()


@pytest.fixture(scope="module")
def index(embedder: OnnxEmbedder) -> Index:
    documents = [Document(id=id, text=text) for id, text in LIBRARY.items()]
    return Index.build(documents, embedder=embedder)


def need_of(embedder: OnnxEmbedder, text: str) -> float:
    found = embedder.need(embedder.embed([text])[0])
    assert found is not None
    return found


def test_need_is_a_logistic_regression_on_the_unit_vector(embedder: OnnxEmbedder) -> None:
    path = locate("crossgate-embedder-minilm-l6", "embedder").need
    assert path is not None
    head = json.loads(path.read_text())["request"]
    for text, vector in zip(REQUESTS, embedder.embed(REQUESTS), strict=True):
        unit = np.asarray(vector, dtype=np.float64) / np.linalg.norm(vector)
        odds = head["intercept"] + unit @ np.asarray(head["weights"])
        assert need_of(embedder, text) == pytest.approx(1 / (1 + math.exp(-odds)), abs=1e-6)


def test_need_is_high_for_requests_and_low_for_small_talk(embedder: OnnxEmbedder) -> None:
    least = min(need_of(embedder, request) for request in REQUESTS)
    assert least > 0.8
    assert max(need_of(embedder, prompt) for prompt in CONVERSATION) < least - 0.2


def test_small_talk_selects_nothing(index: Index) -> None:
    router = Router(index)
    for prompt in CONVERSATION:
        assert router.route(prompt).verdict == "nothing_relevant", prompt
    assert router.route(REQUESTS[0]).selected[0].id == "pdf-toolkit"


def test_given_vector_gives_the_same_decision(index: Index, embedder: OnnxEmbedder) -> None:
    router = Router(index, reranker=None)
    for query in (*REQUESTS, *CONVERSATION):
        own, given_one = (
            router.route(query),
            router.route(query, vector=embedder.embed([query])[0]),
        )
        assert own.trace == given_one.trace


def test_rerank_ignores_need() -> None:
    """The caller retrieved candidates, so the query needs a document."""
    result = rerank("go on", ["The show goes on.", "Keep going."], reranker=None)
    assert result.trace["request"]["needs_document"] is None


def test_index_of_another_model_has_no_need() -> None:
    from crossgate import PrecomputedVectors

    index = Index.build(
        [Document(id="a", text="merge files", vector=[1.0, 0.0])],
        embedder=PrecomputedVectors("given", 2),
    )
    result = Router(index, reranker=None).route("go on", vector=[1.0, 0.2])
    assert result.trace["request"]["needs_document"] is None
    assert not [note for note in result.degraded if note.code == "embedder_failed"]


def test_model_from_a_folder_has_no_need(tmp_path: Path) -> None:
    local = locate("crossgate-embedder-minilm-l6", "embedder")
    for path in (local.model, local.tokenizer):
        shutil.copy(path, tmp_path / path.name)
    embedder = OnnxEmbedder(tmp_path)
    assert embedder.need(embedder.embed(["go on"])[0]) is None


def test_invalid_vector_is_refused(embedder: OnnxEmbedder) -> None:
    for vector, code in (
        ([1.0, 2.0], "wrong_dimension"),
        ([0.0] * 384, "zero_vector"),
        ([math.nan] * 384, "not_finite"),
    ):
        refused(code, embedder.need, vector)
