"""Runs ONNX models, one input at a time, each for so long and no longer."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from crossgate._support.errors import ModelError

if TYPE_CHECKING:
    import numpy
    import onnxruntime
    from tokenizers import Encoding

    from crossgate._runtime.models.cache import LocalModel

_INPUTS = {"input_ids", "attention_mask", "token_type_ids", "position_ids"}

# WordPiece reads words of at most 100 letters as one piece, most are far shorter; what lies beyond
# this many characters per piece cannot reach the model, and tokenising it would cost seconds.
_CHARACTERS_PER_PIECE = 64

# A graph can hold a loop without an end. The largest model of the registry takes a twentieth of
# this on one slow processor, the bundled ones a thousandth: no run that would ever end comes near.
SECONDS, SECONDS_PER_TOKEN = 30.0, 0.5

# How often the watcher of late runs looks; it ends when it finds nothing to watch.
PERIOD = 1.0

_lock = threading.Lock()
_watcher: threading.Thread | None = None
_running: dict[int, tuple[float, onnxruntime.RunOptions]] = {}


class OnnxModel:
    """A model and its tokenizer, ready to run; safe to share between threads.

    Each input runs alone and without padding, on one thread. So the result of an input cannot
    depend on its neighbours (dynamic quantisation takes its scale from the whole tensor), memory
    is bounded by one input, and throughput comes from running several inputs at once.

    Args:
        local: Where the files lie, already verified.

    Raises:
        ModelError: `dependency_missing` without onnxruntime or tokenizers, `model_unsupported` if
            the files are no ONNX model with a matching tokenizer.
    """

    def __init__(self, local: LocalModel) -> None:
        # From 1.29 on onnxruntime would report to its makers, over the network, that it is used;
        # only this variable stops it before it starts.
        if not os.environ.get("ORT_DISABLE_TELEMETRY"):
            os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        handled = sys.exception()
        try:
            # Before onnxruntime does: its compiled part, which imports numpy as well, prints
            # whatever is raised meanwhile, Ctrl-C too, and raises an ImportError in its place.
            import numpy  # noqa: F401
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            if _comes_of_ctrl_c(error, handled):
                raise KeyboardInterrupt from error
            raise _dependency_missing(local.name, error) from error
        self.local = local
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # The arena keeps the memory of the largest input for as long as the session lives.
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                str(local.model), options, providers=["CPUExecutionProvider"]
            )
            self._tokenizer = Tokenizer.from_file(str(local.tokenizer))
        except Exception as error:  # both libraries raise bare exceptions
            raise ModelError(
                "model_unsupported", f"model {local.name!r} cannot be loaded: {_first_line(error)}"
            ) from error
        self._inputs = {node.name for node in self._session.get_inputs()}
        if "input_ids" not in self._inputs or not self._inputs <= _INPUTS:
            raise ModelError(
                "model_unsupported",
                f"model {local.name!r} takes the inputs {', '.join(sorted(self._inputs))}: "
                "crossgate feeds input_ids, attention_mask, token_type_ids and position_ids",
            )
        self._output = self._session.get_outputs()[0].name
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._plain = self._tokenizer
        self._suffix: Encoding | None = None
        if local.template is not None:
            self._suffix = self._tokenizer.encode(local.template.suffix, add_special_tokens=False)
            self._plain = Tokenizer.from_str(self._tokenizer.to_str())
            self._plain.encode_special_tokens = True

    def clips(self, text: str) -> bool:
        """Return whether a text is so long that only its start is read at all."""
        return len(text) > self.local.max_length * _CHARACTERS_PER_PIECE

    def pieces(self, text: str) -> Encoding:
        """Return the word pieces of a text, or of its start, without special ones."""
        start = text[: self.local.max_length * _CHARACTERS_PER_PIECE]
        return self._plain.encode(start, add_special_tokens=False)

    def query(self, text: str) -> Encoding:
        """Return the word pieces of a pair's first part: the query, and what a template adds.

        The beginning of the query is enough for a model that says how much it reads.
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
        # The space belongs to the document: these tokenizers read it as the start of a word.
        return self.pieces(text if self.local.template is None else " " + text)

    def room(self, first: Encoding | None = None) -> int:
        """Return how many word pieces fit into an input, beside the fixed ones and `first`."""
        if self._suffix is not None:
            fixed = len(self._suffix.ids)
        else:
            fixed = self._tokenizer.num_special_tokens_to_add(first is not None)
        return self.local.max_length - fixed - (0 if first is None else len(first.ids))

    def join(self, first: Encoding, second: Encoding | None = None) -> Encoding:
        """Return a whole input: one text or a pair of them, with the fixed pieces around."""
        if self._suffix is not None and second is not None:
            return _merged(first, second, self._suffix)
        return self._tokenizer.post_process(first, second)

    def run(self, encoding: Encoding) -> numpy.ndarray[Any, numpy.dtype[numpy.float32]]:
        """Run the model on one input and return its first output, of shape (1, ...).

        Raises:
            ModelError: `model_failed` if the runtime refuses the input, or does not come to an
                end with it.
        """
        import numpy

        columns = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
            "position_ids": range(len(encoding.ids)),
        }
        feed = {name: numpy.array([columns[name]], dtype=numpy.int64) for name in self._inputs}
        seconds = SECONDS + SECONDS_PER_TOKEN * len(encoding.ids)
        with _limited(seconds) as options:
            try:
                output = self._session.run([self._output], feed, options)[0]
            except Exception as error:  # onnxruntime raises classes of its own for each status
                why = _first_line(error)
                if options.terminate:
                    why = (
                        f"it was stopped after {seconds:.0f} s with {len(encoding.ids)} tokens and "
                        "may never end; use another model"
                    )
                message = f"model {self.local.name!r} failed: {why}"
                raise ModelError("model_failed", message) from error
        return numpy.asarray(output, dtype=numpy.float32)


def _comes_of_ctrl_c(error: BaseException | None, handled: BaseException | None) -> bool:
    """Return whether Ctrl-C came before an error, but after what the caller is handling anyway."""
    while error is not None and error is not handled:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _dependency_missing(name: str, error: ImportError) -> ModelError:
    """Return the error for a package that is not installed, or cannot be imported."""
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
def _limited(seconds: float) -> Iterator[onnxruntime.RunOptions]:
    """Yield what a run must be given, to be ended by onnxruntime once this time is over.

    It ends between two nodes of the graph, those within a loop included; a single node is not
    interrupted.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = 4  # what ends is said by who runs it
    _running[id(options)] = time.monotonic() + seconds, options
    try:
        _watch()
        yield options
    finally:
        _running.pop(id(options), None)


def _watch() -> None:
    """See to it that the watcher runs: one thread for all models, not one for each run."""
    global _watcher
    with _lock:  # also where it is there: it may have decided just now to end
        if _watcher is None:
            started = threading.Thread(target=_stop_late_ones, name="crossgate-limit", daemon=True)
            with suppress(RuntimeError):  # no more threads: better unwatched than not at all
                started.start()
                _watcher = started


def _stop_late_ones() -> None:
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
                options.terminate = True


def _after_fork() -> None:
    global _lock, _watcher
    _lock, _watcher = threading.Lock(), None
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
