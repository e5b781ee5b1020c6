"""Writes `graph.onnx` beside `model.onnx`: the same graph, with large weights in the other file.

    python models/map_weights.py FOLDER

onnxruntime maps weights that are outside of the graph's file into memory. Weights inside of it are
copied twice, which takes half of the time that creating a session takes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx
from onnx import TensorProto

# Bytes from which a tensor stays in `model.onnx`. These are the products' weights and the word
# vectors; their numbers have one byte and need no alignment.
LEAST = 100_000


def map_weights(folder: Path) -> Path:
    """Writes the graph, and returns its path.

    Raises:
        ValueError: If the place of a tensor in `model.onnx` is not certain.
    """
    content = (folder / "model.onnx").read_bytes()
    model = onnx.ModelProto.FromString(content)
    for tensor in model.graph.initializer:
        weights = tensor.raw_data
        if tensor.data_type != TensorProto.INT8 or len(weights) < LEAST:
            continue
        if content.count(weights) != 1:
            raise ValueError(f"{tensor.name} is not in the file exactly once")
        place = {
            "location": "model.onnx",
            "offset": str(content.index(weights)),
            "length": str(len(weights)),
        }
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in place.items():
            tensor.external_data.add(key=key, value=value)
    path = folder / "graph.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of a cross-encoder that build.py built")
    print(map_weights(parser.parse_args().folder))
