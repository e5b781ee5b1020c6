"""Writes float32 weights of a model from the int8 graph that `build.py` wrote.

    python graph_weights.py FOLDER CONFIG OUTPUT

They are the weights that the graph computes with, so they are rounded. With them, training can
continue from a shipped model whose float weights were not kept.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import onnx
from build import GELU_SHIFT
from hashes import list_weights
from numpy.typing import NDArray
from onnx import numpy_helper
from safetensors.numpy import save_file

Array = NDArray[np.float32]


def weights_of(graph: onnx.GraphProto) -> dict[str, Array]:
    """Returns the weights of a graph, by the names that transformers gives them."""
    constants = {constant.name: numpy_helper.to_array(constant) for constant in graph.initializer}
    found: dict[str, Array] = {}

    def norm(source: str, name: str) -> None:
        found[f"{name}.weight"] = constants[f"{source}.gamma"]
        found[f"{name}.bias"] = constants[f"{source}.beta"]

    def matrix(source: str) -> Array:
        stored = constants[f"{source}.weight"].T
        # Builds up to commit f7acbe6 have unsigned bytes.
        levels = stored.astype(np.float32) - (128 if stored.dtype == np.uint8 else 0)
        return np.asarray(levels * constants[f"{source}.scales"][:, np.newaxis], np.float32)

    words = constants["words"].astype(np.float32) * constants["word_scales"]
    found["embeddings.word_embeddings.weight"] = words
    found["embeddings.position_embeddings.weight"] = constants["positions"][0]
    found["embeddings.token_type_embeddings.weight"] = constants["types"]
    norm("embedded", "embeddings.LayerNorm")
    layers = sum(name.endswith(".narrowed.weight") for name in constants)
    for layer in range(layers):
        source, name = f"layer_{layer}.", f"encoder.layer.{layer}."
        weights = np.split(matrix(f"{source}query_key_value"), 3)
        biases = np.split(constants[f"{source}attention.bias"], 3)
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            found[f"{name}attention.self.{part}.weight"] = weight
            found[f"{name}attention.self.{part}.bias"] = bias
        for written, read in (
            ("attention.output", "mixed"),
            ("intermediate", "widened"),
            ("output", "narrowed"),
        ):
            found[f"{name}{written}.dense.weight"] = matrix(f"{source}{read}")
            found[f"{name}{written}.dense.bias"] = constants[f"{source}{read}.bias"]
        # This bias of the graph includes the shift of the GELU's result.
        shift = GELU_SHIFT * found[f"{name}output.dense.weight"].sum(axis=1)
        found[f"{name}output.dense.bias"] = found[f"{name}output.dense.bias"] + shift
        norm(f"{source}after_attention", f"{name}attention.output.LayerNorm")
        norm(f"{source}output", f"{name}output.LayerNorm")
    if "classifier.weight" in constants:
        found = {f"bert.{name}": values for name, values in found.items()}
        for part in ("weight", "bias"):
            found[f"bert.pooler.dense.{part}"] = constants[f"pooler.{part}"]
            found[f"classifier.{part}"] = constants[f"classifier.{part}"]
    return {name: np.ascontiguousarray(values, np.float32) for name, values in found.items()}


def main() -> None:
    """Reads the arguments and writes the folder of weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the built model")
    parser.add_argument("config", type=Path, help="config.json of the weights behind it")
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    graph = onnx.load(options.folder / "model.onnx").graph
    save_file(weights_of(graph), options.output / "model.safetensors")
    shutil.copy(options.config, options.output / "config.json")
    shutil.copy(options.folder / "tokenizer.json", options.output)
    list_weights(options.output)


if __name__ == "__main__":
    main()
