"""State that all rerankers of the process share, and its reset in a forked child."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

from crossgate._reranking.health import CircuitBreaker, LatencyEstimate

if TYPE_CHECKING:
    from crossgate._reranking.background import Background
    from crossgate._reranking.contract import Reranker

RerankerKey = str | tuple[type, str]
"""An endpoint, or the class and identity of a reranker without an endpoint."""

loaded: dict[tuple[str, str], Reranker] = {}
"""Loaded rerankers by kind and by name or folder; guarded by `load_lock`."""
# Reentrant, since a plug-in may load another model by name in its constructor.
load_lock = threading.RLock()
breakers: dict[RerankerKey, CircuitBreaker] = {}
latencies: dict[RerankerKey, LatencyEstimate] = {}

_lock = threading.Lock()
_background: Background | None = None
_lost: list[Background] = []


def endpoints() -> dict[str, CircuitBreaker]:
    """Return the circuit breakers of endpoints, by endpoint."""
    return {key: breaker for key, breaker in list(breakers.items()) if isinstance(key, str)}


def background() -> Background:
    """Return the process's background event loop, and start it on first use."""
    global _background
    # Imports asyncio, which purely local use never needs.
    from crossgate._reranking.background import Background

    with _lock:
        if _background is None:
            _background = Background()
        return _background


def shut_down() -> None:
    """Close all remote connections and stop the background thread.

    The next remote call starts a new one. The process calls this at exit.
    """
    global _background
    with _lock:
        ended, _background = _background, None
    if ended is not None:
        ended.close()


def _after_fork() -> None:
    # Another thread of the parent may have held a lock. The background thread and its connections
    # belong to the parent: `_lost` keeps them from the garbage collector, which would close them.
    # A circuit breaker detects the new process itself.
    global _lock, load_lock, _background
    _lock, load_lock = threading.Lock(), threading.RLock()
    if _background is not None:
        _lost.append(_background)
        _background = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(shut_down)
