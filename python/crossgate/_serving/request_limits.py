"""What a request must fulfil before the application is called: limits, key, host and origin."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from crossgate._serving.wire_formats import refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEAD_BYTES = 64 * 1024

OPEN = {"/", "/health", "/metrics", "/docs", "/openapi.json"}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of the server.

    Attributes:
        body: Maximum bytes of a request.
        documents: Maximum number of candidates of a request.
        concurrency: Number of decisions made at once.
        waiting: Maximum number of requests that wait; the next one is refused.
        read_seconds: Maximum seconds for the headers of a request, and again for its body.
    """

    body: int = 10_000_000
    documents: int = 1_000
    concurrency: int = 2
    waiting: int = 64
    read_seconds: float = 10.0


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


class Guard:
    """Passes on a request that has the key and has arrived completely, within time and size limits.

    A slow client holds a connection but no worker: its request is read here, on the event loop.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        key: str | None,
        hosts: frozenset[str] | None = None,
    ) -> None:
        self._app = app
        self._limits = limits
        self._key = key
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if problem := self._problem_with_headers(scope):
            await _refuse(send, scope, *problem)
            return
        try:
            async with asyncio.timeout(self._limits.read_seconds):
                body = await self._read(receive)
        except TimeoutError:
            message = f"the request did not arrive within {self._limits.read_seconds:g} seconds"
            await _refuse(send, scope, 408, "too_slow", message)
            return
        if body is None:
            return  # the client has disconnected
        if len(body) > self._limits.body:
            message = f"the request is larger than {self._limits.body:,} bytes: send less"
            await _refuse(send, scope, 413, "too_large", message)
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        left = asyncio.ensure_future(_left(receive))
        started = False

        async def again() -> Message:
            if whole:
                return whole.pop()
            await asyncio.shield(left)
            return {"type": "http.disconnect"}

        async def answer(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        answering = asyncio.ensure_future(self._app(scope, again, answer))
        try:
            await asyncio.wait({answering, left}, return_when=asyncio.FIRST_COMPLETED)
            if not started and not answering.done():
                answering.cancel()  # the client disconnected while the request was queued
            await asyncio.wait({answering})
        finally:
            left.cancel()
            answering.cancel()
        if not answering.cancelled():
            answering.result()

    def _problem_with_headers(self, scope: Scope) -> tuple[int, str, str] | None:
        """Return status, code and message of a refusal, or None."""
        headers = {name: value.decode("latin-1").strip() for name, value in scope["headers"]}
        host, origin = headers.get(b"host"), headers.get(b"origin")
        hosts = self._hosts
        if hosts is not None and host is not None and _hostname(host) not in hosts:
            message = (
                "the Host header does not name this server: use localhost or 127.0.0.1, "
                "or start the server with a key"
            )
            return 403, "unknown_host", message
        if self._key is None and origin and origin.partition("://")[2] != host:
            message = (
                f"the Origin {origin!r} is not this server: web pages of other addresses are "
                "refused unless the server has a key"
            )
            return 403, "foreign_origin", message
        if not self._has_key(scope["path"], headers.get(b"authorization", "")):
            message = "the key is missing or wrong: send it as Authorization: Bearer KEY"
            return 401, "unauthorized", message
        encoding = headers.get(b"content-encoding", "").lower() or "identity"
        if encoding != "identity":
            message = f"Content-Encoding is {encoding!r}: send the body without compression"
            return 415, "unsupported_encoding", message
        # A web page may send any other type, or none, without asking the server first.
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        posts = scope["method"] == "POST" and scope["path"] not in OPEN
        if posts and kind != "application/json":
            message = f"Content-Type is {kind!r}: send JSON as application/json"
            return 415, "unsupported_type", message
        return None

    def _has_key(self, path: str, authorization: str) -> bool:
        if self._key is None or path in OPEN:
            return True
        scheme, _, key = authorization.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            key.strip().encode("latin-1"), self._key.encode("utf-8", "surrogateescape")
        )

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the body, or the start of a too large one; None if the client disconnected."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._limits.body or not message.get("more_body", False):
                return bytes(body)


def _hostname(host: str) -> str:
    return re.sub(r":\d*$", "", host).lower()


async def _left(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(send: Send, scope: Scope, status: int, code: str, message: str) -> None:
    body = json.dumps(refusal(scope["path"], code, message)).encode("utf-8")
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode("ascii")),
        (b"connection", b"close"),  # unread bytes must not be parsed as the next request
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
