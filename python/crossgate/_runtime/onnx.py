"""`OnnxModel`: a graph with its tokenizer, whose runs have a time limit."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from crossgate._runtime import onnx_library
from crossgate._runtime.external_data import check_external_data
from crossgate._runtime.onnx_library import OnnxError, RunOptions, Tensor
from crossgate._runtime.threads import run_on_thread
from crossgate._runtime.tokenizer import Input, Tokenizer
from crossgate._support.errors import ModelError
from crossgate._support.wording import counted

if TYPE_CHECKING:
    from crossgate._runtime.model_files import LocalModel

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
            `model_unsupported` if the files are not an ONNX model with a matching tokenizer.
    """

    def __init__(self, local: LocalModel) -> None:
        self.local = local
        try:
            # Both release the interpreter's lock while they load.
            tokenizer = run_on_thread(lambda: Tokenizer(local), "load")
            if not local.bundled:  # the files of a bundled model have the hashes of the package
                check_external_data(local.name, local.model)
            self._session = onnx_library.Session(local.model)
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
            ModelError: `model_failed` if the runtime rejects the input, or exceeds the time limit.
        """
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
