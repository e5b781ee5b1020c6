"""Refuses ONNX graphs whose weights are not in files beside them.

A graph names the files of its weights, so a graph from elsewhere could name any file of this
machine, or an address in memory. onnxruntime checks the names since 1.24.1; older versions crash or
read the file. Formats: onnx.proto and https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from crossgate._support.errors import ModelError

# Messages on the way from a model to the tensors in it: the number of each field with its message.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {1: "key", 2: "value"},
}
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


def check_external_data(name: str, graph: Path) -> None:
    """Check that a graph's weights are in files of its own folder.

    Args:
        name: Name of the model, for errors.
        graph: The graph's file.

    Raises:
        ModelError: `model_unsupported` if it names another file, or is not a graph.
        OSError: If it cannot be read.
    """
    try:
        with graph.open("rb") as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        with content:
            locations = set(_locations(content))
    except (ValueError, IndexError) as error:
        raise ModelError(
            "model_unsupported", f"model {name!r} cannot be loaded: {graph} is not an ONNX graph"
        ) from error
    for location in sorted(locations):
        if not _is_beside(location, graph):
            raise ModelError(
                "model_unsupported",
                f"the graph of model {name!r} has weights in {location!r}: they must be in a file "
                f"of the folder {graph.parent}, without a link to another folder",
            )


def _is_beside(location: str, graph: Path) -> bool:
    if location in ("", ".", "..") or any(letter in location for letter in "/\\:\0"):
        return False
    # In the hub's own cache, the graph and its weights are links to files of one folder.
    folders = {os.path.realpath(graph.parent), os.path.dirname(os.path.realpath(graph))}
    return os.path.dirname(os.path.realpath(graph.with_name(location))) in folders


def _locations(content: mmap.mmap) -> Iterator[str]:
    """Yield the location of each tensor's external data.

    Raises:
        ValueError: The content is not a message.
        IndexError: The content ends within a field.
    """
    parts = [("model", 0, len(content))]
    while parts:
        message, position, end = parts.pop()
        keys: list[bytes] = []
        values: list[bytes] = []
        for number, first, last in _fields(content, position, end):
            part = _FIELDS[message].get(number)
            if part == "key":
                keys.append(content[first:last])
            elif part == "value":
                values.append(content[first:last])
            elif part is not None:
                parts.append((part, first, last))
        if b"location" in keys:
            yield from (value.decode("utf-8") for value in values)


def _fields(content: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of each field of a message that consists of bytes."""
    while position < end:
        tag, position = _varint(content, position)
        kind = tag & 7
        length = 0
        if kind == _VARINT:
            _, position = _varint(content, position)
        elif kind == _BYTES:
            length, position = _varint(content, position)
            yield tag >> 3, position, position + length
        elif kind not in (_FIXED_32, _FIXED_64):
            raise ValueError(f"wire type {kind}")
        position += {_FIXED_32: 4, _FIXED_64: 8}.get(kind, length)
    if position != end:
        raise IndexError("a field that goes beyond its message")


def _varint(content: mmap.mmap, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    value = 0
    for place in range(_LONGEST_VARINT):
        byte = content[position + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, position + place + 1
    raise ValueError("a number without an end")
