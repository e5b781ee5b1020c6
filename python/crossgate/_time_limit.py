"""Stops a run of a model that goes on beyond all reason: a graph can hold a loop without an end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime

# The largest model of the registry takes a twentieth of it on one slow processor, the bundled ones
# a thousandth: no run that would ever end comes near.
SECONDS, SECONDS_PER_TOKEN = 30.0, 0.5

# How often the watcher looks; it ends when it finds nothing to watch.
PERIOD = 1.0

_lock = threading.Lock()
_watcher: threading.Thread | None = None
_running: dict[int, tuple[float, onnxruntime.RunOptions]] = {}


def seconds_for(tokens: int) -> float:
    """Return how long a model may take for one input."""
    return SECONDS + SECONDS_PER_TOKEN * tokens


@contextmanager
def limited(seconds: float) -> Iterator[onnxruntime.RunOptions]:
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
