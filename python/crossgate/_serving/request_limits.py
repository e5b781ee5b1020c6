"""Limits and the API key, checked before a request is parsed."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossgate._serving.wire_formats import refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        if not self._has_known_host(scope):
            message = (
                "the Host header does not name this server: use localhost or 127.0.0.1, "
                "or start the server with a key"
            )
            await _refuse(send, scope, 403, "unknown_host", message)
            return
        if not self._has_key(scope):
            message = "the key is missing or wrong: send it as Authorization: Bearer KEY"
            await _refuse(send, scope, 401, "unauthorized", message)
            return
        if (encoding := _encoding(scope)) != "identity":
            message = f"Content-Encoding is {encoding!r}: send the body without compression"
            await _refuse(send, scope, 415, "unsupported_encoding", message)
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

    def _has_known_host(self, scope: Scope) -> bool:
        """Return whether the Host header names the server; browsers always send the header."""
        host = dict(scope["headers"]).get(b"host")
        if self._hosts is None or host is None:
            return True
        return re.sub(r":\d*$", "", host.decode("latin-1")).lower() in self._hosts

    def _has_key(self, scope: Scope) -> bool:
        if self._key is None or scope["path"] in OPEN:
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, key = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(
            key.strip(), self._key.encode("utf-8")
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


def _encoding(scope: Scope) -> str:
    given = dict(scope["headers"]).get(b"content-encoding", b"")
    return str(given.decode("latin-1").strip().lower()) or "identity"


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
