"""Keeps an index file open, and reopens it after it was replaced."""

from __future__ import annotations

import os
import threading
from typing import Any

from crossgate._decision.router import Router
from crossgate._retrieval.document_index import Index


class IndexHandle:
    """The router over the current version of an index file; threads may share it.

    Args:
        path: The index file. It need not exist yet.
        options: Further arguments of the router.
    """

    def __init__(self, path: str, **options: Any) -> None:
        self._path = path
        self._options = options
        self._lock = threading.Lock()
        self._router: Router | None = None
        self._stamp: tuple[int, int, int] | None = None

    def router(self) -> Router:
        """Return the router.

        Raises:
            IndexFileError: As `Index.open`. The previous version is not used instead, since its
                skills may have been removed.
            ProfileError: If the profile does not belong to the index.
        """
        with self._lock:
            stamp = self._stamp_of_file()
            if self._router is None or stamp is None or stamp != self._stamp:
                # Before reading, so that a file that is replaced meanwhile is read again.
                self._router = Router(Index.open(self._path), **self._options)
                self._stamp = stamp
            return self._router

    def _stamp_of_file(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size
