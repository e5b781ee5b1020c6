"""The HTTP of a connection, with limits on what arrives before the application is called."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from crossgate._serving.request_limits import Limits

_HEAD_BYTES = 64 * 1024


class _Requests(h11.Connection):
    """Refuses request heads that h11 accepts.

    h11 limits the size of incomplete heads only, not of one that arrives in a single read. It
    ignores Content-Length beside Transfer-Encoding, where another parser on the way may not, so
    that the two would see different requests (RFC 9112, 6.1).
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, _HEAD_BYTES)

    def next_event(self) -> Any:
        """Return the next event.

        Raises:
            RemoteProtocolError: The head is refused.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            size = len(event.target) + sum(len(name) + len(value) for name, value in event.headers)
            if size > _HEAD_BYTES:
                raise h11.RemoteProtocolError("the headers are too long")
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("Content-Length beside Transfer-Encoding")
        return event


class Connection(H11Protocol):
    """Closes a connection on which the headers of a request do not arrive in time.

    uvicorn calls the application once a request's headers are complete, so `Guard` cannot limit
    them. h11 limits their size; httptools, which uvicorn would prefer, does not.
    """

    seconds = Limits.read_seconds
    _patience: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = _Requests()

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
