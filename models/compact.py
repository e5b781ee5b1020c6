"""Writes weights in half the bytes, to carry them to or from another machine, and reads them back.

    python compact.py pack FOLDER FILE [--layers] [--bytes]
    python compact.py unpack FILE FOLDER [--start FOLDER]

Word embeddings become bytes with one scale for each word, as in the built graphs, and all other
weights numbers of 16 bits, or with `--bytes` all matrices bytes. `--layers` leaves the embeddings
out, which no training changes; `--start` names the folder that has them.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
from hashes import list_weights
from safetensors.numpy import load_file, save_file

WORDS = "word_embeddings.weight"
MATRIX = 2
EMBEDDINGS = "embeddings."


def pack(folder: Path, file: Path, layers: bool, as_bytes: bool) -> None:
    """Writes the weights of a folder, with its other files."""
    arrays: dict[str, np.ndarray] = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if not np.issubdtype(weight.dtype, np.floating) or (layers and EMBEDDINGS in name):
            continue
        if name.endswith(WORDS) or (as_bytes and weight.ndim == MATRIX):
            scales = np.abs(weight).max(1, keepdims=True).clip(1e-12) / 127
            arrays[f"bytes {name}"] = np.rint(weight / scales).astype(np.int8)
            arrays[f"scales {name}"] = scales.astype(np.float32)
        else:
            arrays[name] = weight.astype(np.float16)
    for other in ("config.json", "tokenizer.json"):
        arrays[f"file {other}"] = np.frombuffer((folder / other).read_bytes(), np.uint8)
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # no name is `allow_pickle`


def unpack(file: Path, folder: Path, start: Path | None) -> None:
    """Writes a folder of weights in float32, with the hashes of its files."""
    folder.mkdir(parents=True, exist_ok=True)
    weights: dict[str, np.ndarray] = {}
    with np.load(file) as arrays:
        for name in arrays.files:
            kind, _, rest = name.partition(" ")
            if kind == "file":
                (folder / rest).write_bytes(arrays[name].tobytes())
            elif kind == "bytes":
                weights[rest] = arrays[name] * arrays[f"scales {rest}"]
            elif kind != "scales":
                weights[name] = arrays[name].astype(np.float32)
    if start is not None:
        for name, weight in load_file(start / "model.safetensors").items():
            if EMBEDDINGS in name:
                weights[name] = weight
        for other in ("config.json", "tokenizer.json"):
            shutil.copy(start / other, folder / other)
    save_file(weights, folder / "model.safetensors")
    list_weights(folder)


def main() -> None:
    """Reads the arguments and packs or unpacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("folder", type=Path)
    packing.add_argument("file", type=Path)
    packing.add_argument("--layers", action="store_true", help="leave the embeddings out")
    packing.add_argument("--bytes", action="store_true", help="write all matrices as bytes")
    unpacking = commands.add_parser("unpack")
    unpacking.add_argument("file", type=Path)
    unpacking.add_argument("folder", type=Path)
    unpacking.add_argument("--start", type=Path, help="folder that has the embeddings")
    options = parser.parse_args()
    if options.command == "pack":
        pack(options.folder, options.file, options.layers, options.bytes)
    else:
        unpack(options.file, options.folder, options.start)


if __name__ == "__main__":
    main()
