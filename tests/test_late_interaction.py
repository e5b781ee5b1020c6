"""Late interaction: MaxSim against numpy, over real graphs, given matrices, and bad ones."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from conftest import refused
from crossgate import Profile, Reranker, _core, rerank
from crossgate._core import Combine
from crossgate._reranking.late_interaction import (
    LateInteraction,
    OnnxTokenEncoder,
    PrecomputedTokens,
    TokenEncoder,
)
from crossgate._storage import storage
from crossgate.rerankers import passages_of

pytest.importorskip("onnx", reason="onnx, which writes the graphs, is not installed")

from test_runtime import (
    BLUE,
    CLS,
    FOX,
    HEN,
    POOLED,
    RED,
    SEP,
    TABLE,
    Nodes,
    write_model,
)

Array = np.ndarray[Any, np.dtype[np.float32]]

# What a ColBERT graph is like: one row per word piece.
COLBERT: Nodes = [("Gather", ["table", "input_ids"], "output", {"axis": 0})]


# An array is a sequence of sequences in all but its type.
vectors: Any = _core.TokenVectors


def max_sim(query: Array, document: Array) -> float:
    """Return the definition, in float64."""
    units = [
        one.astype(np.float64) / np.linalg.norm(one.astype(np.float64), axis=1, keepdims=True)
        for one in (query, document)
    ]
    return float((units[0] @ units[1].T).max(axis=1).sum())


def matrices(least: int = 1) -> st.SearchStrategy[Array]:
    """Return matrices of 24 columns without a row of zeros."""

    def make(values: tuple[int, int]) -> Array:
        rows, seed = values
        return np.random.default_rng(seed).normal(size=(rows, 24)).astype(np.float32)

    return st.tuples(st.integers(least, 9), st.integers(0, 2**32 - 1)).map(make)


@given(matrices(), st.lists(matrices(), max_size=4))
def test_equals_its_definition(query: Array, documents: list[Array]) -> None:
    asked = vectors(query)
    kept = [vectors(one) for one in documents]
    expected = [max_sim(query, one) for one in documents]
    assert _core.max_similarities(asked, kept) == pytest.approx(expected, abs=1e-5 * len(query))
    small = _core.max_similarities(asked.to_int8(), [one.to_int8() for one in kept])
    assert small == pytest.approx(expected, abs=0.03 * len(query))


@given(matrices())
def test_a_matrix_may_come_in_many_forms(matrix: Array) -> None:
    query = vectors(matrix)
    double = matrix.astype(np.float64)
    forms = [matrix, double, matrix.tolist(), list(matrix), np.asfortranarray(matrix)]
    for form in forms:
        made = vectors(form)
        assert (len(made), made.dimension, made.nbytes) == (len(matrix), 24, matrix.nbytes)
        assert _core.max_similarities(query, [made]) == _core.max_similarities(query, [query])


def test_eight_bits_take_a_quarter() -> None:
    made = vectors(np.ones((10, 128), np.float32))
    assert made.nbytes == 10 * 128 * 4
    assert made.to_int8().nbytes == 10 * (128 + 4)
    assert made.to_int8().is_int8
    assert not made.is_int8


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("wrong_dimension", []),
        ("wrong_dimension", [[]]),
        ("wrong_dimension", np.zeros((0, 4), np.float32)),
        ("wrong_dimension", np.zeros((3, 0), np.float32)),
        ("wrong_dimension", [[1.0, 0.0], [1.0]]),
        ("not_finite", [[1.0, 0.0], [math.nan, 1.0]]),
        ("not_finite", np.array([[1.0, np.inf]], np.float32)),
        ("zero_vector", [[1.0, 0.0], [0.0, 0.0]]),
    ],
)
def test_matrices_that_have_no_direction(code: str, rows: Any) -> None:
    message = refused(code, vectors, rows, owner="document 7")
    assert "document 7" in message


def test_what_is_no_matrix_is_refused() -> None:
    refused("not_finite", vectors, [[1e300, 1.0]])
    with pytest.raises((TypeError, ValueError)):
        vectors([["a"]])
    with pytest.raises((TypeError, ValueError)):
        vectors(np.ones(3, np.float32))


def test_matrices_of_different_width_are_refused_by_name() -> None:
    tokens = PrecomputedTokens("x@1", {"q": [[1.0, 0.0]]}, {"d": [[1.0, 0.0, 0.0]]})
    message = refused("wrong_dimension", LateInteraction(tokens).score, "q", passages_of(["d"]))
    assert "3 numbers" in message
    assert "the query 2" in message


PRECOMPUTED = PrecomputedTokens(
    "colbert@1",
    {"which fox": [[1.0, 0.0], [0.0, 1.0]]},
    {
        "both": [[0.0, 2.0], [3.0, 0.0], [1.0, 1.0]],
        "one": [[5.0, 0.0]],
        "none": [[-1.0, -1.0]],
    },
)


@pytest.mark.parametrize("int8", [False, True])
def test_given_matrices_are_ranked_in_the_cascade(int8: bool) -> None:
    reranker = LateInteraction(PRECOMPUTED, int8=int8)
    assert isinstance(reranker, Reranker)
    assert isinstance(PRECOMPUTED, TokenEncoder)
    result = rerank(
        "which fox",
        ["none", "one", "both"],
        reranker=reranker,
        profile=Profile(combine=Combine.Replace()),
    )
    assert result.degraded == ()
    assert [hit.document.text for hit in result.selected] == ["both", "one", "none"]
    logits = [hit.rerank_score for hit in result.selected]
    assert logits == pytest.approx([2.0, 1.0, -math.sqrt(2)], abs=1e-2 if int8 else 1e-6)
    assert result.selected[0].provider == "colbert"
    assert result.trace["reranker"] == ("colbert@1+int8" if int8 else "colbert@1")


def test_a_text_without_a_matrix_degrades_and_names_it() -> None:
    result = rerank("which fox", ["both", "strange"], reranker=LateInteraction(PRECOMPUTED))
    (_, degraded) = result.degraded  # the first says that there is no profile
    assert degraded.code == "reranker_failed"
    assert "'strange'" in degraded.detail


def test_documents_are_encoded_once_and_memory_is_told() -> None:
    class Counting(PrecomputedTokens):
        asked: Sequence[str] = ()

        def encode_documents(self, texts: Sequence[str]) -> list[Any]:
            self.asked = [*self.asked, *texts]
            return super().encode_documents(texts)

    encoder = Counting("colbert@1", PRECOMPUTED._queries, PRECOMPUTED._documents)
    reranker = LateInteraction(encoder)
    reranker.prepare(["both", "one", "both"])
    assert reranker.nbytes == (3 + 1) * 2 * 4
    reranker.score("which fox", passages_of(["one", "none"]))
    assert encoder.asked == ["both", "one", "none"]


def test_too_few_matrices_are_refused() -> None:
    class Short(PrecomputedTokens):
        def encode_documents(self, texts: Sequence[str]) -> list[Any]:
            return super().encode_documents(texts)[1:]

    encoder = Short("colbert@1", PRECOMPUTED._queries, PRECOMPUTED._documents)
    refused("model_failed", LateInteraction(encoder).prepare, ["both", "one"])


def test_a_real_graph_gives_a_vector_per_token(tmp_path: Path) -> None:
    encoder = OnnxTokenEncoder(write_model(tmp_path / "colbert", COLBERT))
    assert encoder.encode_query("red fox") == pytest.approx(TABLE[[CLS, RED, FOX, SEP]])
    first, second = encoder.encode_documents(["blue hen", "fox"])
    assert first == pytest.approx(TABLE[[CLS, BLUE, HEN, SEP]])
    assert second == pytest.approx(TABLE[[CLS, FOX, SEP]])
    reranker = LateInteraction(encoder)
    assert reranker.name == "colbert"
    assert reranker.identity.startswith("colbert@sha256:")
    (score,) = reranker.score("red fox", passages_of(["blue hen"]))
    expected = max_sim(TABLE[[CLS, RED, FOX, SEP]], TABLE[[CLS, BLUE, HEN, SEP]])
    assert score.score == pytest.approx(expected, abs=1e-5)


def test_markers_and_masks_go_where_colbert_wants_them(tmp_path: Path) -> None:
    table = np.arange(36, dtype=np.float32).reshape(12, 3) + 1
    folder = write_model(tmp_path / "colbert", COLBERT, table=table)
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_special_tokens(["[Q]", "[D]", "[MASK]"])
    tokenizer.save(path)
    encoder = OnnxTokenEncoder(folder, query_marker="[Q]", document_marker="[D]", query_length=6)
    assert encoder.encode_query("fox") == pytest.approx(table[[CLS, 9, FOX, SEP, 11, 11]])
    (document,) = encoder.encode_documents(["fox"])
    assert document == pytest.approx(table[[CLS, 10, FOX, SEP]])


def test_masks_get_no_attention(tmp_path: Path) -> None:
    # Its rows are the attention mask, so that the graph shows what it was fed.
    nodes: Nodes = [("Gather", ["table", "attention_mask"], "output", {"axis": 0})]
    folder = write_model(tmp_path / "colbert", nodes)
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.save(path)
    encoder = OnnxTokenEncoder(folder, query_length=5)
    assert encoder.encode_query("fox") == pytest.approx(TABLE[[1, 1, 1, 0, 0]])


def test_a_long_text_leaves_room_for_the_marker(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "colbert", COLBERT, length=8)
    encoder = OnnxTokenEncoder(folder, document_marker="red")
    (document,) = encoder.encode_documents(["fox " * 20])
    assert document == pytest.approx(TABLE[[CLS, RED, *[FOX] * 5, SEP]])


def test_models_that_do_not_fit(tmp_path: Path) -> None:
    refused("unknown_model", OnnxTokenEncoder, tmp_path / "nowhere")
    pooled = OnnxTokenEncoder(write_model(tmp_path / "pooled", POOLED))
    assert "per token" in refused("model_unsupported", pooled.encode_query, "fox")
    strange = OnnxTokenEncoder(write_model(tmp_path / "plain", COLBERT), query_marker="[Q]")
    assert "'[Q]'" in refused("model_unsupported", strange.encode_query, "fox")


def test_storage_is_counted() -> None:
    from crossgate import Document

    documents = [Document(id="a", title="Fox", text="runs, fast"), Document(id="b", text="naïve")]
    assert storage(documents, 384) == {
        "texts": len("Fox: runs, fast") + len("naïve".encode()),
        "vectors": 2 * 384 * 4,
        "words": 4,
        "token_vectors_float32": 4 * 128 * 4,
        "token_vectors_int8": 4 * (128 + 4),
    }


def test_the_import_of_the_package_does_not_bring_it_along() -> None:
    import subprocess

    code = "import crossgate, sys; print('crossgate._reranking.late_interaction' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
