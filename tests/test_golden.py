"""The bundled models against their original weights in another engine.

The values are of models/golden.py, and of models/golden_passages.py for the passage reranker.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import load, numpy_helper
from tokenizers import Tokenizer as PackageTokenizer

from crossgate import CrossEncoder, OnnxEmbedder, _core, set_threads
from crossgate._reranking.cross_encoder import together
from crossgate._runtime import model_files, onnx, threads
from crossgate._runtime.model_files import EMBEDDER as BUNDLED
from crossgate._runtime.model_files import PASSAGE_RERANKER, ROUTING_RERANKER, ModelKind, locate
from crossgate._runtime.tokenizer import Tokenizer
from crossgate.rerankers import Deadline, PairScore, passages_of

ROOT = Path(__file__).parents[1]
GOLDEN = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (Path(__file__).parent / "golden").glob("*.json")
}
EMBEDDER, CROSS_ENCODER = GOLDEN["embedder"], GOLDEN["cross_encoder"]
PASSAGES = GOLDEN["passages"]
TEXTS = [case["text"] for case in EMBEDDER["cases"]]
# The vectors of the texts above and two more, in float32; another number is another model.
VECTORS = "c48285f1914c97f445ac8c0a3738eace55895c6bcb79f68df5060fcc3bcbd244"
PAIRS = [(case["query"], case["document"]) for case in CROSS_ENCODER["cases"]]


@pytest.fixture(autouse=True)
def own_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every test a thread count of its own."""
    with monkeypatch.context() as patch:
        patch.setattr(threads, "_threads", 0)
        patch.setattr(threads, "_workers", None)
        yield


def shortened(name: str, kind: ModelKind, length: int, folder: Path) -> Path:
    """Return a folder with a bundled model that reads as much as the golden values did."""
    local = locate(name, kind)
    (folder / "model.onnx").symlink_to(local.model.with_name("model.onnx"))
    (folder / "tokenizer.json").symlink_to(local.tokenizer)
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
    return folder


@pytest.fixture(scope="module", params=["core", "onnxruntime"])
def embed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Any]:
    """Return the bundled embedder, once as it is shipped and once as any other model is run."""
    length = EMBEDDER["made_with"]["maximum_tokens"]
    if request.param == "core":
        return core_embedder(length).embed
    folder = shortened(BUNDLED, "embedder", length, tmp_path_factory.mktemp("embedder"))
    embedder = OnnxEmbedder(folder)
    return lambda text: embedder.embed([text])[0]


def core_embedder(length: int) -> _core.Embedder:
    local = locate(BUNDLED, "embedder")
    return _core.Embedder(local.model, local.tokenizer, length)


@pytest.fixture(scope="module")
def embedder24() -> _core.Embedder:
    return core_embedder(24)


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    length = CROSS_ENCODER["made_with"]["maximum_tokens"]
    folder = tmp_path_factory.mktemp("cross-encoder")
    return CrossEncoder(shortened("crossgate-router-minilm-l12", "cross-encoder", length, folder))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    """Return the passage reranker."""
    length = PASSAGES["made_with"]["maximum_tokens"]
    folder = tmp_path_factory.mktemp("reader")
    return CrossEncoder(shortened(PASSAGE_RERANKER, "cross-encoder", length, folder))


@pytest.fixture(scope="module")
def vectors(embed: Callable[[str], Any]) -> Any:
    return np.array([embed(text) for text in TEXTS], np.float64)


@pytest.fixture(scope="module")
def logits(cross_encoder: CrossEncoder) -> list[float]:
    return [
        cross_encoder.score(query, passages_of([document])).complete()[0].score
        for query, document in PAIRS
    ]


def test_the_golden_values_are_of_these_models() -> None:
    assert len(TEXTS) == len(EMBEDDER["cosine_matrix"]) >= 20
    assert len(PAIRS) >= 20
    card = EMBEDDER["made_with"]["weights_sha256"]
    # The trained weights, as the embedder's card names them.
    assert card == "fa828357a0daa16a5658eb0f06b35f95dd2c7f56f7a53c19ed4f851268ec60d6"


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What every model is run on from here on."""
    read: list[Any] = []
    run = onnx.OnnxModel.run

    def spy(model: onnx.OnnxModel, given: Any) -> Any:
        read.append(given)
        return run(model, given)

    monkeypatch.setattr(onnx.OnnxModel, "run", spy)
    return read


@pytest.mark.parametrize("case", EMBEDDER["cases"], ids=lambda case: repr(case["text"])[:30])
def test_a_text_has_the_same_tokens(inputs: list[Any], tmp_path: Path, case: Any) -> None:
    length = EMBEDDER["made_with"]["maximum_tokens"]
    assert core_embedder(length).tokens(case["text"]) == case["input_ids"]
    OnnxEmbedder(shortened(BUNDLED, "embedder", length, tmp_path)).embed([case["text"]])
    (read,) = inputs
    assert read.ids == case["input_ids"]


@pytest.fixture(scope="module")
def tokenizer() -> PackageTokenizer:
    """Return the library's own tokenizer, cut to what the tests read."""
    tokenizer = PackageTokenizer.from_file(str(locate(BUNDLED, "embedder").tokenizer))
    tokenizer.no_padding()
    tokenizer.enable_truncation(24)
    return tokenizer


# Whole Unicode, and often what a tokenizer splits, joins, strips or keeps.
ODD = [*"aAzZ09 ,.-_'éß中文が한½¿€🙂", "[CLS]", "[sep]", "[MASK]", "token", "ization", "x" * 101]
ODD += ["\u0130", "\u017f", "\ufb01", "\u0301", "\u00ad", "\u200b", "\u200d", "\ufffd"]
ODD += ["\t", "\n", "\r", "\0", "\x7f", "\x85", "\u00a0", "\u2028", "\U000e0001", "\U0002f800"]


@settings(max_examples=400, deadline=None)
@given(text=st.lists(st.sampled_from(ODD) | st.characters(codec="utf-8")).map("".join))
def test_tokens_are_those_of_the_library_of_tokenizers(
    embedder24: _core.Embedder, tokenizer: PackageTokenizer, text: str
) -> None:
    assert embedder24.tokens(text) == tokenizer.encode(text).ids


def test_a_vector_is_the_same_to_the_bit_on_every_processor() -> None:
    embedder = core_embedder(512)
    texts = [*TEXTS, "", "gauge " * 600]
    found = b"".join(struct.pack("<384f", *embedder.embed(text)) for text in texts)
    assert hashlib.sha256(found).hexdigest() == VECTORS


@pytest.mark.parametrize("place", range(len(TEXTS)), ids=lambda place: repr(TEXTS[place])[:30])
def test_a_vector_starts_the_same(vectors: Any, place: int) -> None:
    expected = EMBEDDER["cases"][place]["first_numbers"]
    tolerance = EMBEDDER["tolerance"]["first_numbers"]
    assert vectors[place][: len(expected)].tolist() == pytest.approx(expected, abs=tolerance)
    assert np.linalg.norm(vectors[place]) == pytest.approx(1.0, abs=1e-5)


def test_the_cosines_of_all_pairs(vectors: Any) -> None:
    difference = np.abs(vectors @ vectors.T - np.array(EMBEDDER["cosine_matrix"]))
    assert difference.max() <= EMBEDDER["tolerance"]["cosine_matrix"]


@pytest.mark.parametrize("case", CROSS_ENCODER["cases"], ids=lambda case: repr(case["query"])[:30])
def test_a_pair_has_the_same_tokens(
    cross_encoder: CrossEncoder, inputs: list[Any], case: Any
) -> None:
    cross_encoder.score(case["query"], passages_of([case["document"]]))
    (read,) = inputs
    assert read.ids == case["input_ids"]
    assert read.segments == case["token_type_ids"]


@pytest.mark.parametrize("place", range(len(PAIRS)), ids=lambda place: repr(PAIRS[place])[:40])
def test_a_logit_is_the_same(logits: list[float], place: int) -> None:
    expected = CROSS_ENCODER["cases"][place]["logit"]
    assert logits[place] == pytest.approx(expected, abs=CROSS_ENCODER["tolerance"]["logit"])


def test_the_logits_are_the_same_on_average(logits: list[float]) -> None:
    expected = [case["logit"] for case in CROSS_ENCODER["cases"]]
    differences = [abs(one - other) for one, other in zip(logits, expected, strict=True)]
    assert sum(differences) / len(differences) <= CROSS_ENCODER["tolerance"]["mean_logit"]


@pytest.mark.parametrize("case", PASSAGES["cases"], ids=lambda case: repr(case["query"])[:30])
def test_the_passage_reranker_reads_the_same(
    reader: CrossEncoder, inputs: list[Any], case: Any
) -> None:
    (found,) = reader.score(case["query"], passages_of([case["document"]])).complete()
    (read,) = inputs
    assert read.ids == case["input_ids"]
    assert read.segments == case["token_type_ids"]
    tolerance = PASSAGES["tolerance"]
    assert found.score == pytest.approx(case["logit"], abs=tolerance["logit"])


def test_the_passage_reranker_is_the_same_on_average(reader: CrossEncoder) -> None:
    cases = PASSAGES["cases"]
    differences = [
        abs(
            reader.score(case["query"], passages_of([case["document"]])).complete()[0].score
            - case["logit"]
        )
        for case in cases
    ]
    assert sum(differences) / len(cases) <= PASSAGES["tolerance"]["mean_logit"]


def test_no_two_neighbouring_weights_of_the_passage_reranker_saturate() -> None:
    """Check the property of the graph that keeps its products exact on processors without VNNI."""
    path = locate(PASSAGE_RERANKER, "cross-encoder").model
    graph = load(path.with_name("model.onnx")).graph
    constants = {one.name: one for one in graph.initializer}
    products = [one for one in graph.node if one.op_type == "MatMulIntegerToFloat"]
    assert len(products) == 48
    for product in products:
        weights = numpy_helper.to_array(constants[product.input[1]])
        assert weights.dtype == np.int8
        inputs, outputs = weights.shape
        sums = np.abs(weights.astype(int)).reshape(inputs // 2, 2, outputs).sum(axis=1)
        assert 255 * sums.max() <= np.iinfo(np.int16).max


def test_truncation_is_flagged(cross_encoder: CrossEncoder) -> None:
    length = CROSS_ENCODER["made_with"]["maximum_tokens"]
    cut = [case for case in CROSS_ENCODER["cases"] if len(case["input_ids"]) == length]
    assert cut
    for case in CROSS_ENCODER["cases"]:
        (score,) = cross_encoder.score(case["query"], passages_of([case["document"]])).complete()
        assert score.truncated == (case in cut)


def test_the_router_reads_the_beginnings_of_query_and_document() -> None:
    router = CrossEncoder()

    def score(query: str, document: str) -> PairScore:
        return router.score(query, passages_of([document])).complete()[0]

    # Three special tokens and one of the query leave 124 of 128.
    assert not score("step", "gauge " * 124).truncated
    assert score("step", "gauge " * 125).truncated
    document = "Read the gauge after each step."
    longest = score("step " * 64, document)
    assert score("step " * 63 + "gauge " * 500, document) != longest
    assert score("step " * 64 + "gauge " * 500, document) == longest


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_score_depends_on_its_pair_alone(count: int) -> None:
    set_threads(count)
    shipped = CrossEncoder()
    query = PAIRS[0][0]
    texts = [document for _, document in PAIRS]
    alone = [shipped.score(query, passages_of([text])).complete()[0] for text in texts]
    assert shipped.score(query, passages_of(texts)).complete() == alone
    assert shipped.score(query, passages_of(texts[::-1])).complete() == alone[::-1]
    assert shipped.score(query, passages_of(texts[3:5])).complete() == alone[3:5]


@pytest.mark.parametrize("model", ["crossgate-router-minilm-l12", "crossgate-passages-minilm-l12"])
def test_pairs_of_equal_length_that_run_together_keep_their_scores(model: str) -> None:
    shipped = CrossEncoder(model)
    draw = random.Random(5)
    words = " ".join(TEXTS).split()
    texts = [
        " ".join(draw.choice(words) for _ in range(length))
        for length in (3, 8, 15, 30)
        for _ in range(12)
    ]
    alone = [shipped.score("step", passages_of([text])).complete()[0] for text in texts]
    assert shipped.score("step", passages_of(texts)).complete() == alone
    in_time = shipped.score("step", passages_of(texts), deadline=Deadline(1e9))
    assert in_time.complete() == alone


@given(lengths=st.lists(st.integers(3, 70), max_size=40))
def test_only_short_pairs_of_equal_length_run_together(lengths: list[int]) -> None:
    runs = together(lengths)
    assert sorted(place for run in runs for place in run) == list(range(len(lengths)))
    assert all(len({lengths[place] for place in run}) == 1 for run in runs)
    assert all(len(run) <= (4 if lengths[run[0]] <= 64 else 1) for run in runs)
    full = sum(len(run) == 4 for run in runs)
    assert full == sum(lengths.count(length) // 4 for length in set(lengths) if length <= 64)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_vector_depends_on_its_text_alone(count: int) -> None:
    set_threads(count)
    shipped = OnnxEmbedder()
    texts = TEXTS[:12]
    alone = np.array([shipped.embed([text])[0] for text in texts])
    assert np.array_equal(np.array(shipped.embed(texts)), alone)
    assert np.array_equal(np.array(shipped.embed(texts[::-1]))[::-1], alone)
    assert shipped.dimension == alone.shape[1] == 384


@pytest.mark.parametrize("name", [ROUTING_RERANKER, PASSAGE_RERANKER])
def test_a_graph_with_mapped_weights_gives_the_same_logits_to_the_bit(
    name: str, tmp_path: Path
) -> None:
    local = locate(name, "cross-encoder")
    assert local.model.name == "graph.onnx"
    whole = CrossEncoder(shortened(name, "cross-encoder", local.max_length, tmp_path))
    whole._local = replace(whole._local, query_length=local.query_length)
    for query, document in PAIRS:
        passages = passages_of([document])
        assert CrossEncoder(name).score(query, passages) == whole.score(query, passages)


@pytest.mark.parametrize("name", [ROUTING_RERANKER, PASSAGE_RERANKER])
def test_the_graph_with_mapped_weights_is_what_the_script_writes(name: str, tmp_path: Path) -> None:
    local = locate(name, "cross-encoder")
    (tmp_path / "model.onnx").symlink_to(local.model.with_name("model.onnx"))
    subprocess.run(
        [sys.executable, ROOT / "models" / "map_weights.py", tmp_path], check=True, timeout=120
    )
    assert (tmp_path / "graph.onnx").read_bytes() == local.model.read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="links need a privilege on this system")
def test_models_are_found_through_links_to_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in model_files.BUNDLED.rglob("*"):
        if path.is_file():
            link = tmp_path / path.relative_to(model_files.BUNDLED)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    monkeypatch.setattr(model_files, "BUNDLED", tmp_path)
    (found,) = CrossEncoder().score("merge pdfs", passages_of(["joins PDF files"])).complete()
    assert math.isfinite(found.score)


@pytest.fixture(scope="module")
def bundled() -> Tokenizer:
    return Tokenizer(locate(ROUTING_RERANKER, "cross-encoder"))


@pytest.fixture(scope="module")
def package() -> PackageTokenizer:
    return PackageTokenizer.from_file(str(locate(ROUTING_RERANKER, "cross-encoder").tokenizer))


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(
        st.lists(st.sampled_from(ODD) | st.characters(codec="utf-8")).map("".join),
        min_size=2,
        max_size=2,
    ),
    most=st.integers(0, 12),
)
def test_a_pair_is_that_of_the_library_of_tokenizers(
    bundled: Tokenizer, package: PackageTokenizer, texts: list[str], most: int
) -> None:
    parts = [package.encode(text, add_special_tokens=False) for text in texts]
    for part in parts:
        part.truncate(most)
    expected = package.post_process(parts[0], parts[1])
    found = bundled.pair.around(*(bundled.pieces(text, most) for text in texts))
    assert (found.ids, found.segments) == (expected.ids, expected.type_ids)
