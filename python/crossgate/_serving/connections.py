"""The HTTP of a connection, with limits on what arrives before the application is called."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from crossgate._serving.request_limits import Limits


class Connection(H11Protocol):
    """Closes a connection on which the headers of a request do not arrive in time.

    uvicorn calls the application once a request's headers are complete, so `Guard` cannot limit
    them. h11 limits their size, to 64 KiB; httptools, which uvicorn would prefer, does not.
    """

    seconds = Limits.read_seconds
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read on; headers that come in small pieces get no more time."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._calm()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:  # the headers are complete
            self._calm()
        elif self._patience is None:
            self._patience = self.loop.call_later(self.seconds, self.transport.close)

    def _calm(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
