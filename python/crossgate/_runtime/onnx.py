"""ONNX models with their tokenizers; each run has a time limit."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from crossgate._runtime import onnx_library
from crossgate._runtime.onnx_library import OnnxError, RunOptions, Tensor
from crossgate._runtime.threads import run_on_thread
from crossgate._support.errors import ModelError
from crossgate._support.wording import counted

if TYPE_CHECKING:
    from tokenizers import Encoding

    from crossgate._runtime.models.local_files import LocalModel

_INPUTS = {"input_ids", "attention_mask", "token_type_ids", "position_ids"}

# A word piece has far fewer characters on average. Text beyond this many characters per piece
# cannot reach the model, and tokenising it would cost seconds.
_CHARACTERS_PER_PIECE = 64

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

    Raises:
        ModelError: `dependency_missing` without onnxruntime or tokenizers, `model_unsupported` if
            the files are not an ONNX model with a matching tokenizer.
    """

    def __init__(self, local: LocalModel) -> None:
        handled = sys.exception()
        try:
            from tokenizers import Tokenizer

            onnx_library.load()
        except ImportError as error:
            if _comes_of_ctrl_c(error, handled):
                raise KeyboardInterrupt from error
            raise _dependency_missing(local.name, error) from error
        self.local = local
        try:
            tokenizer = run_on_thread(lambda: Tokenizer.from_file(str(local.tokenizer)), "load")
            # Creating the session releases the interpreter's lock, so both load side by side.
            self._session = onnx_library.Session(local.model)
            self._tokenizer = tokenizer.result()
        except Exception as error:  # tokenizers raises bare exceptions
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
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._plain = self._tokenizer
        self._suffix: Encoding | None = None
        if local.template is not None:
            self._suffix = self._tokenizer.encode(local.template.suffix, add_special_tokens=False)
            self._plain = Tokenizer.from_str(self._tokenizer.to_str())
            self._plain.encode_special_tokens = True

    def clips(self, text: str) -> bool:
        """Return whether a text is too long to be tokenised whole."""
        return len(text) > self.local.max_length * _CHARACTERS_PER_PIECE

    def pieces(self, text: str) -> Encoding:
        """Return the word pieces of a text, or of its start, without special tokens."""
        start = text[: self.local.max_length * _CHARACTERS_PER_PIECE]
        return self._plain.encode(start, add_special_tokens=False)

    def ends(self, text: str, most: int) -> Encoding:
        """Return the first and the last word pieces of a text, `most` of them in all.

        The text must have more pieces than that.
        """
        size = most * _CHARACTERS_PER_PIECE
        first = self._plain.encode(text[:size], add_special_tokens=False)
        last = self._plain.encode(text[-size:], add_special_tokens=False)
        first.truncate(most - most // 2)
        last.truncate(most // 2, direction="left")
        return _merged(first, last)

    def query(self, text: str) -> Encoding:
        """Return the word pieces of a pair's first part: the query with the template's prefix.

        If the model has a `query_length`, only the beginning of the query is read.
        """
        template = self.local.template
        if template is None:
            pieces = self.pieces(text)
            if self.local.query_length is not None:
                pieces.truncate(self.local.query_length)
            return pieces
        prefix = self._tokenizer.encode(template.prefix, add_special_tokens=False)
        return _merged(prefix, self.pieces(template.body.replace("{query}", text)))

    def document(self, text: str) -> Encoding:
        """Return the word pieces of a pair's second part, the document."""
        # The tokenizers of models with templates read the space as the start of a word.
        return self.pieces(text if self.local.template is None else " " + text)

    def room(self, first: Encoding | None = None) -> int:
        """Return how many more word pieces fit into an input that contains `first`."""
        if self._suffix is not None:
            fixed = len(self._suffix.ids)
        else:
            fixed = self._tokenizer.num_special_tokens_to_add(first is not None)
        return self.local.max_length - fixed - (0 if first is None else len(first.ids))

    def join(self, first: Encoding, second: Encoding | None = None) -> Encoding:
        """Return a complete input of one text or a pair, with the special tokens."""
        if self._suffix is not None and second is not None:
            return _merged(first, second, self._suffix)
        return self._tokenizer.post_process(first, second)

    def run(self, *inputs: Encoding) -> Tensor:
        """Run the model on inputs of equal length and return the first output, of shape (N, ...).

        Raises:
            ModelError: `model_failed` if the runtime rejects the input, or exceeds the time limit.
        """
        tokens = sum(len(encoding.ids) for encoding in inputs)
        columns: dict[str, Sequence[Sequence[int]]] = {
            "input_ids": [encoding.ids for encoding in inputs],
            "attention_mask": [encoding.attention_mask for encoding in inputs],
            "token_type_ids": [encoding.type_ids for encoding in inputs],
            "position_ids": [range(len(encoding.ids)) for encoding in inputs],
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


def _comes_of_ctrl_c(error: BaseException | None, handled: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error, rather than the exception already being handled."""
    while error is not None and error is not handled:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


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


def _merged(*parts: Encoding) -> Encoding:
    from tokenizers import Encoding

    return Encoding.merge(list(parts), growing_offsets=True)


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
