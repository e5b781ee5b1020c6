"""The models' runtime on real graphs, small enough to work out their answers by hand."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from commands import python
from conftest import LIBRARY, documents, refused
from crossgate import (
    CrossEncoder,
    CrossgateError,
    Index,
    InputError,
    ModelError,
    OnnxEmbedder,
    Profile,
    Router,
    rerank,
    set_threads,
)
from crossgate._reranking import cross_encoder, shared_state
from crossgate._runtime import model_files as registry
from crossgate._runtime import onnx as runtime
from crossgate._runtime import threads
from crossgate._runtime.model_files import ROUTING_RERANKER, LocalModel, locate, spec
from crossgate._runtime.onnx import check_external_data
from crossgate.rerankers import Deadline, Scores, passages_of

graphs = pytest.importorskip("onnx", reason="onnx, which writes the graphs, is not installed")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "fox", "blue", "hen", "##s"]
RED, FOX, BLUE, HEN, PLURAL = range(4, 9)
CLS, SEP = 2, 3


@pytest.fixture(autouse=True)
def own_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every test a thread count of its own."""
    with monkeypatch.context() as patch:
        patch.setattr(threads, "_threads", 0)
        patch.setattr(threads, "_workers", None)
        patch.setattr(shared_state, "loaded", {})
        patch.delenv("CROSSGATE_THREADS", raising=False)
        yield


def write_tokenizer(path: Path) -> None:
    """Write a BERT tokenizer of nine word pieces."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    tokenizer.save(str(path))


Nodes = Sequence[tuple[str, list[str], str, dict[str, Any]]]

# A logit that shows what went in: the number of word pieces, and 1,000 for each of the document.
COUNTED: Nodes = [
    ("Cast", ["attention_mask"], "ones", {"to": 1}),
    ("ReduceSum", ["ones", "columns"], "pieces", {"keepdims": 1}),
    ("Cast", ["token_type_ids"], "types", {"to": 1}),
    ("ReduceSum", ["types", "columns"], "second", {"keepdims": 1}),
    ("Mul", ["second", "thousand"], "thousands", {}),
    ("Add", ["pieces", "thousands"], "output", {}),
]
# The sum of the ids, from the ids alone.
SUMMED: Nodes = [
    ("Cast", ["input_ids"], "ids", {"to": 1}),
    ("ReduceSum", ["ids", "columns"], "output", {"keepdims": 1}),
]
TWO_LOGITS: Nodes = [
    *SUMMED[:1],
    ("ReduceSum", ["ids", "columns"], "one", {"keepdims": 1}),
    ("Concat", ["one", "one"], "output", {"axis": 1}),
]
# One row of the table per word piece.
EMBEDDED: Nodes = [("Gather", ["table", "input_ids"], "output", {"axis": 0})]
POOLED: Nodes = [
    ("Gather", ["table", "input_ids"], "rows", {"axis": 0}),
    ("ReduceSum", ["rows", "columns"], "output", {"keepdims": 0}),
]
EXPANDED: Nodes = [
    ("Cast", ["input_ids"], "numbers", {"to": 1}),
    ("ReduceSum", ["numbers"], "sum", {"keepdims": 0}),
    ("Expand", ["sum", "table"], "output", {}),
]
TABLE = np.array([[number, number * number, 1.0] for number in range(len(WORDS))], np.float32)


def write_model(
    folder: Path,
    nodes: Nodes,
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
    *,
    length: int | None = None,
    table: np.ndarray[Any, Any] = TABLE,
    output: str = "FLOAT",
) -> Path:
    """Write a model's folder: a graph of these nodes, the tokenizer, and the maximum length."""
    folder.mkdir(parents=True, exist_ok=True)
    helper, kind = graphs.helper, graphs.TensorProto
    constants = {
        "columns": np.array([1], np.int64),
        "thousand": np.array([[1000.0]], np.float32),
        "table": table,
    }
    used = {name for _, names, _, _ in nodes for name in names}
    graph = helper.make_graph(
        [helper.make_node(op, names, [out], **options) for op, names, out, options in nodes],
        "graph",
        [helper.make_tensor_value_info(name, kind.INT64, [1, "length"]) for name in inputs],
        [helper.make_tensor_value_info("output", getattr(kind, output), None)],
        [
            graphs.numpy_helper.from_array(value, name)
            for name, value in constants.items()
            if name in used
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graphs.save(model, folder / "model.onnx")
    write_tokenizer(folder / "tokenizer.json")
    if length is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
    return folder


# Cross-encoders.


def test_graph_gets_the_inputs_that_it_declares(tmp_path: Path) -> None:
    encoder = CrossEncoder(write_model(tmp_path / "counted", COUNTED))
    scores = encoder.score("red fox", passages_of(["blue", "blue hens", ""])).complete()
    # [CLS] red fox [SEP] blue hen ##s [SEP]: the last four are of the second kind.
    assert [score.score for score in scores] == [2_006.0, 4_008.0, 1_005.0]
    assert not any(score.truncated for score in scores)
    assert all(type(score.score) is float for score in scores)
    assert (encoder.name, encoder.identity.split(":")[0]) == ("counted", "counted@sha256")


@pytest.mark.parametrize("output", ["FLOAT", "FLOAT16", "DOUBLE", "INT32", "INT64"])
def test_logits_of_any_type_of_number_are_read(tmp_path: Path, output: str) -> None:
    number = getattr(graphs.TensorProto, output)
    nodes: Nodes = [
        ("ReduceSum", ["input_ids", "columns"], "sum", {"keepdims": 1}),
        ("Cast", ["sum"], "output", {"to": number}),
    ]
    encoder = CrossEncoder(write_model(tmp_path / "cast", nodes, ["input_ids"], output=output))
    (score,) = encoder.score("red", passages_of(["fox"])).complete()
    assert score.score == CLS + RED + SEP + FOX + SEP


@pytest.mark.parametrize("output", ["BOOL", "STRING"])
def test_output_without_numbers_is_refused(tmp_path: Path, output: str) -> None:
    nodes: Nodes = [("Cast", ["input_ids"], "output", {"to": getattr(graphs.TensorProto, output)})]
    encoder = CrossEncoder(write_model(tmp_path / "cast", nodes, ["input_ids"], output=output))
    message = refused("model_failed", lambda: encoder.score("red", passages_of(["fox"])))
    assert "not numbers" in message


def test_passages_are_read_until_the_scores_are_enough(tmp_path: Path) -> None:
    encoder = CrossEncoder(write_model(tmp_path / "counted", COUNTED))
    texts = ["blue", "blue hens", "", "red"]

    def scores(texts: Sequence[str], most: int, budget_ms: float | None = None) -> Scores:
        passages, deadline = passages_of(texts), Deadline(budget_ms)
        return encoder.score_until(
            "red fox", passages, deadline=deadline, enough=lambda scored: len(scored) >= most
        )

    stopped = scores(texts, 2)
    assert [pair and pair.score for pair in stopped] == [2_006.0, 4_008.0, None, None]
    assert (stopped.stopped, stopped.missing) == (True, None)
    assert stopped.complete() == list(stopped[:2])
    whole = scores(texts, 5)
    assert [pair.score for pair in whole.complete()] == [2_006.0, 4_008.0, 1_005.0, 2_006.0]
    assert not whole.stopped
    late = scores(texts * 100, 500, budget_ms=0)
    assert late.missing is not None
    assert (late.missing.code, late.stopped, len(late)) == ("budget", False, 400)


@pytest.mark.parametrize(
    ("nodes", "inputs", "named"),
    [
        (TWO_LOGITS, ["input_ids"], "2"),
        (EMBEDDED, ["input_ids"], "18"),
        (SUMMED, ["input_ids", "pixel_values"], "pixel_values"),
        ([("Cast", ["attention_mask"], "output", {"to": 1})], ["attention_mask"], "input_ids"),
    ],
    ids=["two logits", "an embedder", "an unknown input", "no input_ids"],
)
def test_a_graph_of_another_shape(
    tmp_path: Path, nodes: Nodes, inputs: list[str], named: str
) -> None:
    folder = write_model(tmp_path / "odd", nodes, inputs)
    encoder = CrossEncoder(folder)
    message = refused("model_unsupported", lambda: encoder.score("red fox", passages_of(["hen"])))
    assert "'odd'" in message
    assert named in message
    result = rerank("red fox", ["red hen"], reranker=encoder)
    assert [one.code for one in result.degraded] == ["no_profile", "reranker_unavailable"]


@pytest.mark.parametrize("broken", ["model.onnx", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"garbage\n" * 99, b"{}"])
def test_a_file_that_is_garbage(tmp_path: Path, broken: str, content: bytes) -> None:
    folder = write_model(tmp_path / "garbage", COUNTED)
    (folder / broken).write_bytes(content)
    encoder = CrossEncoder(folder)
    message = refused("model_unsupported", lambda: encoder.score("red", passages_of(["fox"])))
    assert "'garbage'" in message
    # It stays refused, and is not half loaded.
    refused("model_unsupported", lambda: encoder.score("red", passages_of(["fox"])))


def with_weights_in(folder: Path, location: str) -> Path:
    """Write a model whose weights are in a file, here named in the graph of a branch."""
    write_model(folder, SUMMED, ["input_ids"])
    model = graphs.load(folder / "model.onnx")
    tensor = graphs.numpy_helper.from_array(np.zeros((64, 64), np.float32), "weights")
    tensor.ClearField("raw_data")
    tensor.data_location = graphs.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    branch = graphs.helper.make_graph([], "branch", [], [], [tensor])
    node = graphs.helper.make_node("If", ["condition"], ["unused"], then_branch=branch)
    model.graph.node.append(node)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


@pytest.mark.parametrize(
    "location",
    ["*/_ORT_MEM_ADDR_/*", "../weights", "../../etc/passwd", "/etc/passwd", "a/b", "C:b", ".", ""],
)
def test_weights_outside_of_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    folder = with_weights_in(tmp_path / "attack", location)
    (tmp_path / "weights").write_bytes(bytes(64 * 64 * 4))
    message = refused("model_unsupported", lambda: OnnxEmbedder(folder).embed(["red"]))
    assert f"weights in {location!r}" in message
    result = rerank("red", ["red fox"], reranker=folder)
    assert [one.code for one in result.degraded] == ["no_profile", "reranker_unavailable"]


def test_weights_behind_a_link_are_refused_unless_the_graph_is_there_too(tmp_path: Path) -> None:
    folder = with_weights_in(tmp_path / "attack", "weights")
    (tmp_path / "weights").write_bytes(bytes(64 * 64 * 4))
    (folder / "weights").symlink_to(tmp_path / "weights")
    with pytest.raises(ModelError, match="without a link"):
        check_external_data("attack", folder / "model.onnx")
    (folder / "model.onnx").rename(tmp_path / "graph")  # as in the hub's own cache
    (folder / "model.onnx").symlink_to(tmp_path / "graph")
    check_external_data("attack", folder / "model.onnx")


@pytest.mark.parametrize("content", [b"\x3a\x7f", b"\x3b\x3c", b"\xff" * 40, b"\x3a", b"\x0d\x01"])
def test_broken_graph_is_refused_before_onnxruntime_reads_it(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ModelError, match="is not an ONNX graph"):
        check_external_data("broken", tmp_path / "model.onnx")


def test_weights_that_are_changed_in_place_end_no_process(tmp_path: Path) -> None:
    """A signal ends a process that reads a mapped file behind its new end."""
    bundled = spec(ROUTING_RERANKER)
    folder = tmp_path / "own"
    folder.mkdir()
    graph = graphs.load(registry.folder(bundled.name) / "graph.onnx", load_external_data=False)
    for tensor in graph.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "model.onnx_data"
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    shutil.copy(registry.folder(bundled.name) / "tokenizer.json", folder)
    shutil.copy(registry.folder(bundled.name) / "model.onnx", folder / "model.onnx_data")
    shutil.copytree(registry.BUNDLED, tmp_path / "bundled")
    script = """
        import os, sys
        from pathlib import Path
        from crossgate import CrossEncoder, rerank
        from crossgate._runtime import model_files
        folder = Path(sys.argv[1])
        model_files.BUNDLED = folder / "bundled"
        for model in (str(folder / "own"), model_files.ROUTING_RERANKER):
            encoder = CrossEncoder(model)
            before = rerank("red fox", ["a fox", "a hen"], reranker=encoder)
            for part in ("own/model.onnx_data", f"bundled/{model}/model.onnx"):
                if (folder / part).exists():
                    os.truncate(folder / part, 100)
            after = rerank("red fox", ["a fox", "a hen"], reranker=encoder)
            print([hit.rerank_score for hit in before.hits] == [h.rerank_score for h in after.hits])
            print([note.code for note in after.degraded])
    """
    same, _, kept, degraded = python(script, tmp_path).splitlines()
    assert (same, kept) == ("True", "False")
    assert "reranker_unavailable" in degraded


def test_a_changed_file_is_noticed_once_an_hour_and_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_model(tmp_path / "own", SUMMED, ["input_ids"])
    loaded, unloaded = CrossEncoder(folder), CrossEncoder(folder)
    before = rerank("red fox", ["a fox", "red"], reranker=loaded)
    write_model(folder, COUNTED)
    assert refused("model_altered", lambda: unloaded.score("red", passages_of(["fox"])))
    result = rerank("red fox", ["a fox", "red"], reranker=unloaded)
    assert "reranker_unavailable" in [one.code for one in result.degraded]

    def again() -> None:
        assert rerank("red fox", ["a fox", "red"], reranker=loaded).hits == before.hits

    again()
    assert not caplog.messages
    now = time.monotonic()
    monkeypatch.setattr(registry, "monotonic", lambda: now + 3601)
    again()
    assert f"model_altered: {folder / 'model.onnx'} was changed" in caplog.messages[0]
    again()
    assert len(caplog.messages) == 2  # and the tokenizer


def test_a_panic_of_a_tokenizer_degrades_the_result(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "panic", SUMMED, ["input_ids"])
    settings = json.loads((folder / "tokenizer.json").read_text())
    pattern = {"Regex": r"(a|aa)+\d"}  # beyond the limit of retries in a long word
    settings["pre_tokenizer"] = {
        "type": "Split",
        "pattern": pattern,
        "behavior": "Isolated",
        "invert": False,
    }
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    result = rerank("red fox", ["a" * 90, "red"], reranker=folder)
    assert [one.code for one in result.degraded] == ["no_profile", "reranker_failed"]
    assert "tokenizer of model 'panic' panicked" in result.degraded[1].detail
    refused("model_failed", lambda: OnnxEmbedder(folder).embed(["a" * 90]))


@pytest.mark.parametrize("missing", ["model.onnx", "tokenizer.json"])
def test_a_file_that_is_missing(tmp_path: Path, missing: str) -> None:
    folder = write_model(tmp_path / "half", COUNTED)
    (folder / missing).unlink()
    message = refused("model_incomplete", lambda: CrossEncoder(folder))
    assert missing in message
    assert str(folder) in message
    refused("model_incomplete", lambda: rerank("red", ["fox"], reranker=folder))


def test_a_runtime_that_refuses_the_input(tmp_path: Path) -> None:
    # The table has rows for the special pieces only.
    nodes: Nodes = [*POOLED[:1], ("ReduceSum", ["rows"], "output", {"keepdims": 1})]
    folder = write_model(tmp_path / "short", nodes, ["input_ids"], table=TABLE[:4])
    encoder = CrossEncoder(folder)
    refused("model_failed", lambda: encoder.score("red", passages_of(["fox"])))
    result = rerank("red", ["red fox"], reranker=encoder)
    assert [one.code for one in result.degraded] == ["no_profile", "reranker_failed"]
    assert result.ids == ["0"]


def test_logit_that_is_not_finite(tmp_path: Path) -> None:
    nodes: Nodes = [
        *SUMMED[:1],
        ("ReduceSum", ["ids", "columns"], "sum", {"keepdims": 1}),
        ("Sub", ["sum", "sum"], "zero", {}),
        ("Div", ["zero", "zero"], "output", {}),
    ]
    folder = write_model(tmp_path / "nan", nodes, ["input_ids"])
    result = rerank("red", ["red fox", "hen"], reranker=folder)
    assert [one.code for one in result.degraded] == ["no_profile", "reranker_failed"]
    assert result.stage == 1


# Truncation.


def test_only_the_document_is_cut(tmp_path: Path) -> None:
    encoder = CrossEncoder(write_model(tmp_path / "counted", COUNTED, length=40))
    query, document = "red " * 10, "fox " * 27
    (fits,) = encoder.score(query, passages_of([document])).complete()
    assert (fits.score, fits.truncated) == (28_040.0, False)
    (cut,) = encoder.score(query, passages_of([document + "fox"])).complete()
    assert (cut.score, cut.truncated) == (28_040.0, True)
    (more,) = encoder.score(query + "red", passages_of([document + "fox"])).complete()
    assert (more.score, more.truncated) == (27_040.0, True)


def test_the_cut_is_between_word_pieces(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "sum", SUMMED, ["input_ids"], length=40)
    # The last piece that fits is the stem of `hens`, and its plural is not.
    (score,) = CrossEncoder(folder).score("red", passages_of(["fox " * 35 + "hens"])).complete()
    assert score.truncated
    assert score.score == CLS + RED + SEP + 35 * FOX + HEN + SEP


@pytest.mark.parametrize(
    "document",
    [
        "fox " * 250_000,
        "x" * 1_000_000,
        " " * 1_000_000 + "fox",
        "🦀" * 250_000,
        "\0" * 1_000_000,
    ],
    ids=["words", "one word", "blanks", "emoji", "NUL"],
)
def test_a_megabyte(tmp_path: Path, document: str) -> None:
    encoder = CrossEncoder(write_model(tmp_path / "counted", COUNTED))
    short, long = encoder.score("red", passages_of(["fox", document])).complete()
    assert not short.truncated
    assert long.truncated
    assert long.score <= 1_000 * 512 + 512
    embedder = OnnxEmbedder(write_model(tmp_path / "rows", EMBEDDED, ["input_ids"]))
    (vector,) = embedder.embed([document])
    assert np.isfinite(vector).all()


def test_query_of_more_than_half_the_input_is_cut_to_its_ends(tmp_path: Path) -> None:
    encoder = CrossEncoder(write_model(tmp_path / "summed", SUMMED, ["input_ids"], length=40))
    # Twenty pieces of the query and three special ones leave 17 for the passage.
    assert not encoder.cuts("red " * 20)
    for middle in (1, 99, 250_000):
        query = f"{'red ' * 10}{'blue ' * middle}{'fox ' * 10}"
        assert encoder.cuts(query)
        (score,) = encoder.score(query, passages_of(["fox " * 99])).complete()
        assert score.score == CLS + 10 * RED + 10 * FOX + SEP + 17 * FOX + SEP
        assert score.truncated
    result = rerank("red " * 99, ["fox", "red"], reranker=encoder)
    assert [note.code for note in result.degraded] == ["no_profile"]
    assert [warning.code for warning in result.warnings] == ["query_cut"]
    assert result.stage == 2


@pytest.mark.parametrize("rest", ["", "hen", "hen " * 99, "hen " * 250_000])
def test_only_the_beginning_of_the_query_is_read(
    rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_model(tmp_path / "ids", SUMMED, ["input_ids"], length=40)
    local = replace(locate(folder, "cross-encoder"), query_length=3)
    monkeypatch.setattr(cross_encoder, "locate", lambda *_: local)
    encoder = CrossEncoder(folder)
    (score,) = encoder.score(f"red fox blue {rest}", passages_of(["fox " * 99])).complete()
    # Three pieces of the query and three special ones leave 34 for the passage.
    assert score.score == CLS + RED + FOX + BLUE + SEP + 34 * FOX + SEP
    assert score.truncated


def test_a_model_without_room_for_a_pair(tmp_path: Path) -> None:
    encoder = CrossEncoder(write_model(tmp_path / "counted", COUNTED, length=8))
    message = refused("model_unsupported", encoder.score, "red", ["fox"])
    assert "reads at most 8 word pieces, too few for a query and a passage" in message


def test_a_graph_that_loops_for_ever_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    helper, kind = graphs.helper, graphs.TensorProto
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_on"], ["go_on_again"]),
            helper.make_node("Add", ["sum", "sum"], ["output"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", kind.INT64, []),
            helper.make_tensor_value_info("go_on", kind.BOOL, []),
            helper.make_tensor_value_info("sum", kind.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on_again", kind.BOOL, []),
            helper.make_tensor_value_info("output", kind.FLOAT, None),
        ],
    )
    endless: Nodes = [
        *SUMMED[:1],
        ("ReduceSum", ["ids", "columns"], "one", {"keepdims": 1}),
        ("Loop", ["", "", "one"], "output", {"body": body}),
    ]
    folder = write_model(tmp_path / "endless", endless, ["input_ids"])
    monkeypatch.setattr(runtime, "SECONDS", 0.0)
    monkeypatch.setattr(runtime, "SECONDS_PER_TOKEN", 0.0)
    monkeypatch.setattr(runtime, "PERIOD", 0.01)
    message = refused("model_failed", CrossEncoder(folder).score, "red", passages_of(["fox"]))
    assert "it was stopped after 0 s with 5 tokens and may never end" in message
    result = rerank("red", ["fox", "red fox"], reranker=str(folder))
    assert [one.code for one in result.degraded] == ["no_profile", "reranker_failed"]
    assert result.ids
    assert capfd.readouterr().err == ""


def test_query_of_blanks_and_then_too_many_words_is_cut(tmp_path: Path) -> None:
    # The beginning has no word pieces, so only the end is read.
    encoder = CrossEncoder(write_model(tmp_path / "counted", COUNTED, length=40))
    result = rerank(" " * 3_000 + "red " * 500, ["red fox"], reranker=encoder)
    assert [note.code for note in result.degraded] == ["no_profile"]
    assert [warning.code for warning in result.warnings] == ["query_cut"]
    assert result.ids == ["0"]


# Embedders.


def test_one_vector_per_piece_is_averaged(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(write_model(tmp_path / "rows", EMBEDDED, ["input_ids"]))
    (vector,) = embedder.embed(["red hens"])
    expected = TABLE[[CLS, RED, HEN, PLURAL, SEP]].mean(axis=0)
    assert np.asarray(vector).tolist() == pytest.approx(expected.tolist())
    assert embedder.dimension == 3


def test_one_vector_per_text_is_taken_as_it_is(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(write_model(tmp_path / "sum", POOLED, ["input_ids"]))
    (vector,) = embedder.embed(["red hens"])
    expected = TABLE[[CLS, RED, HEN, PLURAL, SEP]].sum(axis=0)
    assert np.asarray(vector).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("shape", "code", "named"),
    [
        *((shape, "model_unsupported", "shape") for shape in ([], [0], [1, 0], [3, 0, 2], [2, 3])),
        ([1, 2, 3, 4], "model_unsupported", "shape [1, 2, 3, 4]"),
        ([2**26 + 1], "model_failed", "268,435,460 bytes"),
    ],
)
def test_output_that_is_no_vector_is_refused(
    tmp_path: Path, shape: list[int], code: str, named: str
) -> None:
    table = np.array(shape, np.int64)
    folder = write_model(tmp_path / "odd", EXPANDED, ["input_ids"], table=table)
    assert named in refused(code, OnnxEmbedder(folder).embed, ["red hens"])


def test_it_makes_and_searches_an_index(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "rows", EMBEDDED, ["input_ids"])
    index = Index.build(documents({"a": "red fox", "b": "blue hen"}), embedder=str(folder))
    assert index.dimension == 3
    assert index.embedder.startswith("rows@sha256:")
    result = Router(index, reranker=None, profile=Profile()).route("blue hen")
    assert (result.ids[0], result.degraded) == ("b", ())
    assert result.hits[0].cosine == pytest.approx(1.0, abs=1e-6)


# Threads and processes.


def at_once(expected: int) -> int:
    """Return how many inputs are run at once, which blocks where fewer are than expected."""
    together = threading.Barrier(expected)
    lock = threading.Lock()
    running: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        with lock:
            running.append(number)
            most.append(len(running))
        together.wait(30)
        with lock:
            running.remove(number)

    threads.run_all(work, range(4 * expected))
    return max(most)


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_threads_can_be_set(count: int) -> None:
    set_threads(count)
    assert at_once(count) == count


def test_the_number_of_threads_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSGATE_THREADS", "3")
    assert at_once(3) == 3
    set_threads(2)
    assert at_once(2) == 2


@pytest.mark.parametrize("setting", ["0", "-1", "two", "1.5", " 2", "²"])
def test_invalid_environment_variable(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("CROSSGATE_THREADS", setting)
    assert repr(setting) in refused("out_of_range", threads.run_all, str, range(2))
    monkeypatch.setenv("CROSSGATE_THREADS", "")
    assert threads.run_all(str, range(2)) == ["0", "1"]


def test_threads_follow_the_quota_of_a_control_group(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Path("/sys/fs/cgroup/cpu/crossgate-test")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("this user cannot create a control group for CPU time")
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("70000")
        script = (
            f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
            "from crossgate._runtime.threads import number_of_threads\n"
            "print(number_of_threads())"
        )
        monkeypatch.delenv("CROSSGATE_THREADS", raising=False)
        assert python(script) == "1\n"
    finally:
        group.rmdir()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_threads_follow_the_affinity_of_the_process() -> None:
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from crossgate._runtime.threads import number_of_threads\n"
        "print(number_of_threads())"
    )
    assert python(script) == "1\n"


def test_results_keep_their_order() -> None:
    set_threads(4)
    assert threads.run_all(lambda number: number * 2, range(50)) == list(range(0, 100, 2))
    assert threads.run_all(str, []) == []


def test_after_an_error_the_rest_is_left() -> None:
    set_threads(1)
    begun: list[int] = []
    release = threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ValueError("the first")
        release.wait(30)

    with pytest.raises(ValueError, match="the first"):
        threads.run_all(work, range(100))
    release.set()
    assert threads.run_all(str, range(2)) == ["0", "1"]
    assert len(begun) <= 2


def test_many_threads_share_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    load = runtime.OnnxModel.__init__

    def counted(model: runtime.OnnxModel, local: LocalModel) -> None:
        loaded.append(local.name)
        load(model, local)

    monkeypatch.setattr(runtime.OnnxModel, "__init__", counted)
    encoder = CrossEncoder(write_model(tmp_path / "counted", COUNTED))
    assert loaded == []
    start = threading.Barrier(16)
    found: list[object] = []

    def work() -> None:
        start.wait()
        try:
            for _ in range(5):
                scores = encoder.score("red", passages_of(["fox", "hens"])).complete()
                found.append([one.score for one in scores])
        except BaseException as error:
            found.append(error)

    workers = [threading.Thread(target=work) for _ in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [[2_005.0, 3_006.0]] * 80
    assert loaded == ["counted"]


# The whole process.


def test_memory_does_not_grow_with_the_candidates() -> None:
    def peak(count: int) -> int:
        script = f"""
            import resource, sys
            from crossgate import CrossEncoder
            from crossgate.rerankers import Deadline, Scores, passages_of
            text = "the quick brown fox jumps over the lazy dog " * 9
            encoder = CrossEncoder()
            encoder.score("which animal jumps", passages_of([text] * 4))
            encoder.score("which animal jumps", passages_of([text] * {count}))
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        """
        return int(python(script, CROSSGATE_THREADS="2"))

    unit = 1 if sys.platform == "darwin" else 1_024
    # One batch of these would take 100 times 85 word pieces times 1,536 numbers: 52 MB.
    growth = (peak(100) - peak(1)) * unit
    assert growth < 20_000_000


@pytest.mark.skipif(os.name != "posix", reason="this system has other signals")
def test_after_ctrl_c_the_rest_is_left() -> None:
    # In a process of its own: threads that wait for each other for ever would keep this one.
    python("""
        import random, signal, sys, threading, time
        from crossgate import set_threads
        from crossgate._runtime import threads
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.setswitchinterval(1e-6)
        main = threading.get_ident()
        set_threads(4)
        # Wherever the signal finds the caller, which is another place each time.
        for _ in range(60):
            begun, release = [], threading.Event()

            def work(number):
                begun.append(number)
                if number == 0:
                    time.sleep(random.random() / 200)
                    signal.pthread_kill(main, signal.SIGINT)
                release.wait(30)

            try:
                threads.run_all(work, range(2_000))
            except KeyboardInterrupt:
                release.set()
            else:
                raise AssertionError("it was not interrupted")
            # The threads are free for others at once.
            assert threads.run_all(str, range(4)) == ["0", "1", "2", "3"]
            assert len(begun) <= 8, len(begun)
    """)


def test_ctrl_c_that_a_lock_hides_is_still_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hiding(ThreadPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Any:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:
                raise RuntimeError("release unlocked lock")  # noqa: B904 - as threading does

    retired: list[object] = []
    with Hiding(1) as executor:
        monkeypatch.setattr(threads, "_executor", lambda: executor)
        monkeypatch.setattr(threads, "_retire", retired.append)
        with pytest.raises(KeyboardInterrupt):
            threads.run_all(str, range(4))
        assert retired == [executor]


def test_nothing_is_written_and_no_request_is_sent(tmp_path: Path) -> None:
    # onnxruntime keeps events in the home folder and sends them to its makers unless told not
    # to before it is imported.
    python(
        """
        from crossgate import CrossEncoder
        from crossgate.rerankers import Deadline, Scores, passages_of
        CrossEncoder().score("red", passages_of(["fox"]))
        """,
        HOME=str(tmp_path),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        ORT_DISABLE_TELEMETRY="",
    )
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("missing", ["onnxruntime", "tokenizers"])
@pytest.mark.parametrize("bundled", [True, False])
def test_without_a_package_the_words_decide(tmp_path: Path, missing: str, bundled: bool) -> None:
    # The bundled embedder needs neither package, and the bundled reranker onnxruntime alone. The
    # same files, named as a folder, need both.
    folder = locate("crossgate-embedder-minilm-l6", "embedder").model.parent
    embedder = "OnnxEmbedder()" if bundled else f"OnnxEmbedder({str(folder)!r})"
    output = python(f"""
        import json, sys
        sys.modules[{missing!r}] = None  # as if it were not installed
        from crossgate import Document, Index, OnnxEmbedder, PrecomputedVectors, Profile, Router
        texts = {LIBRARY!r}
        documents = [
            Document(id=id, text=text, vector=[1.0] * 384) for id, text in texts.items()
        ]
        embedder, path = {embedder}, {str(tmp_path / "a.cgx")!r}
        made_elsewhere = PrecomputedVectors(embedder.identity, 384)
        Index.build(documents, embedder=made_elsewhere).save(path)
        router = Router(Index.open(path, embedder=embedder), profile=Profile())
        result = router.route("merge two pdf files")
        print(json.dumps([result.ids[0], [[x.code, x.detail] for x in result.degraded]]))
    """)
    best, degraded = json.loads(output)
    assert best == "pdf-toolkit"
    expected = [] if bundled else ["embedder_unavailable"]
    if missing == "onnxruntime":
        expected.append("reranker_unavailable")
    assert [code for code, _ in degraded] == expected
    assert all(f"pip install {missing}" in detail for _, detail in degraded)


LIBRARY_NAME = {"win32": "onnxruntime.dll", "darwin": "libonnxruntime.1.dylib"}.get(
    sys.platform, "libonnxruntime.so.1"
)


@pytest.mark.parametrize("content", [None, b"", b"garbage" * 99], ids=["none", "empty", "garbage"])
def test_a_package_that_is_broken_is_not_called_missing(
    tmp_path: Path, content: bytes | None
) -> None:
    broken = tmp_path / "onnxruntime" / "capi" / LIBRARY_NAME
    broken.parent.mkdir(parents=True)
    (tmp_path / "onnxruntime" / "__init__.py").touch()
    if content is not None:
        broken.write_bytes(content)
    output = python(
        """
        from crossgate import CrossEncoder, ModelError
        from crossgate.rerankers import Deadline, Scores, passages_of
        try:
            CrossEncoder().score("red", passages_of(["fox"]))
        except ModelError as error:
            print(error.code)
            print(error)
        """,
        PYTHONPATH=str(tmp_path),
    )
    code, message = output.splitlines()
    assert code == "dependency_missing"
    assert "onnxruntime" in message
    assert str(broken if content is not None else broken.parent) in message
    assert "None" not in message


def test_without_the_models_the_words_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.build(documents())
    path = tmp_path / "skills.cgx"
    index.save(path)
    manifest = (registry.BUNDLED / "manifest.json").read_bytes()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "manifest.json").write_bytes(manifest)
    monkeypatch.setattr(registry, "BUNDLED", tmp_path / "empty")
    result = Router(Index.open(path), profile=Profile()).route("merge two pdf files")
    assert result.ids[0] == "pdf-toolkit"
    assert [one.code for one in result.degraded] == ["embedder_unavailable", "reranker_unavailable"]
    with pytest.raises(CrossgateError) as caught:
        Router(Index.open(path), profile=Profile()).warm_up()
    assert caught.value.code == "model_incomplete"
    assert not isinstance(caught.value, InputError)
