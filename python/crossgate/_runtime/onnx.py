"""`OnnxModel`: a checked graph with its tokenizer, whose runs have a time limit."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from crossgate._runtime import onnx_library
from crossgate._runtime.model_files import LoadedFiles, MappedFile
from crossgate._runtime.onnx_library import OnnxError, RunOptions, Tensor
from crossgate._runtime.threads import run_on_thread
from crossgate._runtime.tokenizer import Input, Tokenizer
from crossgate._support.errors import ModelError
from crossgate._support.wording import counted

if TYPE_CHECKING:
    from crossgate._runtime.model_files import LocalModel

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


def check_external_data(name: str, graph: Path) -> list[str]:
    """Check that a graph's weights are in files of its own folder, and return their names.

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
    names = sorted(locations)
    for location in names:
        if not _is_beside(location, graph):
            raise ModelError(
                "model_unsupported",
                f"the graph of model {name!r} has weights in {location!r}: they must be in a file "
                f"of the folder {graph.parent}, without a link to another folder",
            )
    return names


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


_INPUTS = {"input_ids", "attention_mask", "token_type_ids", "position_ids"}

# Time limit of a run, since a graph can contain an endless loop. The largest model of the registry
# needs a twentieth of it on a slow processor, the bundled models a thousandth.
SECONDS, SECONDS_PER_TOKEN = 30.0, 0.5

# Seconds between two checks of the watcher thread, which ends when no run is in progress.
PERIOD = 1.0

_lock = threading.Lock()
_watcher: threading.Thread | None = None
_running: dict[int, tuple[float, RunOptions]] = {}


class OnnxModel:
    """A model and its tokenizer; safe to share between threads.

    Inputs run without padding, on one thread, and alone unless the model scales each token on its
    own. The result of an input therefore does not depend on other inputs (dynamic quantisation
    scales the whole tensor), and memory is bounded. Throughput comes from running several inputs in
    parallel.

    Args:
        local: The verified files.

    Attributes:
        tokenizer: Its tokenizer.

    Raises:
        ModelError: `dependency_missing` without a package that the model needs,
            `model_unsupported` if the files are not an ONNX model with a matching tokenizer,
            `model_altered` if a file was changed since the model was found.
    """

    def __init__(self, local: LocalModel) -> None:
        self.local = local
        self._files = LoadedFiles(local)
        try:
            # Both release the interpreter's lock while they load.
            tokenizer = run_on_thread(lambda: Tokenizer(local), "load")
            # The weights of a bundled model have the hash of the package, and are mapped: reading
            # their 35 MB takes 40 ms of processor time, and 23 MB more of memory.
            self._mapped = MappedFile(local.weights) if local.bundled and local.weights else None
            weights = () if self._mapped else check_external_data(local.name, local.model)
            self._session = onnx_library.Session(local.model, weights)
            self.tokenizer = tokenizer.result()
        except ImportError as error:
            raise _dependency_missing(local.name, error) from error
        except ModelError:
            raise
        except Exception as error:  # the package `tokenizers` raises bare exceptions
            raise ModelError(
                "model_unsupported", f"model {local.name!r} cannot be loaded: {_first_line(error)}"
            ) from error
        self._inputs = {name.decode(errors="replace") for name in self._session.inputs}
        if "input_ids" not in self._inputs or not self._inputs <= _INPUTS:
            raise ModelError(
                "model_unsupported",
                f"model {local.name!r} takes the inputs {', '.join(sorted(self._inputs))}: "
                "crossgate feeds input_ids, attention_mask, token_type_ids and position_ids",
            )

    def run(self, *inputs: Input) -> Tensor:
        """Run the model on inputs of equal length and return the first output, of shape (N, ...).

        Raises:
            ModelError: `model_failed` if the runtime rejects the input, or exceeds the time limit;
                `model_altered` if a mapped file was changed.
        """
        self._files.check()
        if self._mapped:
            self._mapped.check()
        tokens = sum(len(read.ids) for read in inputs)
        columns: dict[str, Sequence[Sequence[int]]] = {
            "input_ids": [read.ids for read in inputs],
            "attention_mask": [[1] * len(read.ids) for read in inputs],
            "token_type_ids": [read.segments for read in inputs],
            "position_ids": [range(len(read.ids)) for read in inputs],
        }
        seconds = SECONDS + SECONDS_PER_TOKEN * tokens
        with _limited(self._session.run_options(), seconds) as options:
            try:
                return self._session.run({name: columns[name] for name in self._inputs}, options)
            except OnnxError as error:
                why = _first_line(error)
                if options.terminated:
                    why = (
                        f"it was stopped after {seconds:.0f} s with {counted(tokens, 'token')} and "
                        "may never end: use another model"
                    )
                message = f"model {self.local.name!r} failed: {why}"
                raise ModelError("model_failed", message) from error


def _dependency_missing(name: str, error: ImportError) -> ModelError:
    """Return the error for a package that is missing or cannot be imported."""
    if isinstance(error, ModuleNotFoundError):
        message = (
            f"model {name!r} needs the package {error.name!r}, which is not installed: "
            f"pip install {error.name}"
        )
    else:
        message = (
            f"model {name!r} needs onnxruntime and tokenizers, and one of them cannot be "
            f"imported: {_first_line(error)}"
        )
    return ModelError("dependency_missing", message)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]


@contextmanager
def _limited(options: RunOptions, seconds: float) -> Iterator[RunOptions]:
    """Stop the run with these options after this time.

    The run stops between two nodes of the graph, including nodes within a loop; a single node is
    not interrupted.
    """
    _running[id(options)] = time.monotonic() + seconds, options
    try:
        _watch()
        yield options
    finally:
        _running.pop(id(options), None)


def _watch() -> None:
    """Start the watcher thread, which all models share, unless it is running."""
    global _watcher
    with _lock:  # taken even if the watcher exists, since it may be about to end
        if _watcher is None:
            started = threading.Thread(target=_stop_late_runs, name="crossgate-limit", daemon=True)
            with suppress(RuntimeError):  # out of threads: run without a time limit
                started.start()
                _watcher = started


def _stop_late_runs() -> None:
    global _watcher
    while True:
        time.sleep(PERIOD)
        with _lock:
            if not _running:
                _watcher = None
                return
        now = time.monotonic()
        for until, options in list(_running.values()):
            if now >= until:
                options.terminate()


def _after_fork() -> None:
    global _lock, _watcher
    _lock, _watcher = threading.Lock(), None
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
