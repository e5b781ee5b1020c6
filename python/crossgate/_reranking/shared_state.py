"""All that stage 2 keeps for the whole process, and what a forked child makes of it."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

from crossgate._reranking.health import CircuitBreaker, LatencyEstimate

if TYPE_CHECKING:
    from crossgate._reranking.background import Background
    from crossgate._reranking.contract import Reranker

Key = str | tuple[type, str]
"""An endpoint, or the kind and the identity of a reranker that has none."""

loaded: dict[tuple[str, str], Reranker] = {}
"""Rerankers by kind, and name or folder, that they were loaded by; guarded by `load_lock`."""
# A plug-in may load another model by name while it is made.
load_lock = threading.RLock()
breakers: dict[Key, CircuitBreaker] = {}
paces: dict[Key, LatencyEstimate] = {}

_lock = threading.Lock()
_background: Background | None = None
_lost: list[Background] = []


def endpoints() -> dict[str, CircuitBreaker]:
    """Return the circuit breakers of endpoints, by endpoint."""
    return {key: breaker for key, breaker in list(breakers.items()) if isinstance(key, str)}


def background() -> Background:
    """Return the process's background loop, and start it if need be."""
    global _background
    # It brings asyncio along, of no use to who asks nobody outside.
    from crossgate._reranking.background import Background

    with _lock:
        if _background is None:
            _background = Background()
        return _background


def shut_down() -> None:
    """Close every remote connection and end the thread; the next remote call opens new ones.

    It happens by itself when the process ends.
    """
    global _background
    with _lock:
        ended, _background = _background, None
    if ended is not None:
        ended.close()


def _after_fork() -> None:
    # Another thread of the parent may have held a lock. The background thread is the parent's, and
    # so are the connections: they are kept from the garbage collector, which would say goodbye on
    # them. A circuit breaker sees for itself that it is in another process.
    global _lock, load_lock, _background
    _lock, load_lock = threading.Lock(), threading.RLock()
    if _background is not None:
        _lost.append(_background)
        _background = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(shut_down)
