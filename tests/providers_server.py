"""A test server with the interfaces of hosted rerankers and decision models, and with faults.

Run it as a program to have it in another process: it prints its address and ends with its stdin.

    python tests/providers_server.py --faults 0.3
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import ssl
import struct
import sys
import threading
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from types import TracebackType
from typing import Any, Self

KEY = "right-key-8f3a"

# Each fault affects one request. The part after a colon is the value of Retry-After.
FAULTS = (
    "429",
    "429:0.05",
    "429:3600",
    "429:soon",
    "500",
    "503",
    "slow_headers",
    "slow_body",
    "reset",
    "html",
    "truncated",
    "missing",
    "duplicate",
    "out_of_range",
    "negative",
    "nan",
    "fewer",
    "text_score",
    "no_results",
    "list",
    "empty",
    "endless",
    "bomb",
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request to the server.

    Attributes:
        path: Path of the request.
        authorization: The Authorization header.
        body: The JSON values.
        connection: Number of the connection, from 1.
        fault: The fault of the response, or None.
    """

    path: str
    authorization: str
    body: dict[str, Any]
    connection: int
    fault: str | None


def relevance(document: str) -> float:
    """Return the server's score for a document, in [0, 1), independent of the query."""
    return (zlib.crc32(document.encode()) % 9_973) / 9_973


class ProvidersServer:
    """All providers on a free port of this machine; use it as a context manager.

    Args:
        tls: Serve https with this context.
        rate: Share of requests with a random fault.

    Attributes:
        plan: Faults of the next requests, in order; None for a correct response.
        requests: Every request so far.
        most_at_once: The largest number of concurrent requests.
        delay: Seconds before each answer.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, rate: float = 0.0) -> None:
        self.plan: deque[str | None] = deque()
        self.requests: list[Request] = []
        self.most_at_once = 0
        self.delay = 0.0
        self.connections = 0
        self._at_once = 0
        self._tls = tls
        self._rate = rate
        self._random = random.Random(7)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._port = 0

    @property
    def url(self) -> str:
        """Address of Cohere and Jina."""
        return f"{'https' if self._tls else 'http'}://localhost:{self._port}"

    @property
    def voyage(self) -> str:
        """Address of Voyage."""
        return f"{self.url}/voyage/v1"

    def reset(self) -> None:
        """Forget the planned faults and all requests."""
        self.plan.clear()
        self.requests.clear()
        self.delay = 0.0
        self.most_at_once = 0

    def __enter__(self) -> Self:
        """Start to listen."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the port and every connection."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "localhost", 0, ssl=self._tls, limit=1 << 24
        )
        self._port = self._server.sockets[0].getsockname()[1]
        for other in self._server.sockets[1:]:  # IPv4 and IPv6 have different ports
            other.close()

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection = self.connections
        try:
            while await self._answer(reader, writer, connection):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the server is closed
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> bool:
        """Answer one request, and return whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ", 2)[1]
        lines = [line.partition(":") for line in head.splitlines()[1:]]
        headers = {name.lower(): value.strip() for name, _, value in lines}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
        fault = self._fault()
        authorization = headers.get("authorization", "")
        self.requests.append(
            Request(
                path=path,
                authorization=authorization,
                body=body,
                connection=connection,
                fault=fault,
            )
        )
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(self.delay)
            if authorization != f"Bearer {KEY}":
                # The worst case for secrets: the response quotes the key.
                return await _reply(writer, 401, {"detail": f"bad key {authorization}"})
            if path == "/v1/systemone":
                values: object = _decision(body, fault or "")
            elif refused := _refused(body):
                return await _reply(writer, 422, {"detail": refused})
            else:
                values = _results(path, body["documents"], fault or "")
            return await self._respond(writer, values, fault or "")
        finally:
            self._at_once -= 1

    def _fault(self) -> str | None:
        if self.plan:
            return self.plan.popleft()
        return self._random.choice(FAULTS) if self._random.random() < self._rate else None

    async def _respond(self, writer: asyncio.StreamWriter, values: object, fault: str) -> bool:
        if fault[:3].isdecimal():
            retry_after = fault.partition(":")[2]
            return await _reply(writer, int(fault[:3]), {"detail": "spoiled"}, retry_after)
        if fault == "slow_headers":
            await asyncio.sleep(3_600)
        if fault == "html":
            return await _send(writer, 200, b"<html>Please sign in</html>", kind="text/html")
        if fault == "empty":
            return await _send(writer, 200, b"")
        content = json.dumps(values).encode()
        if fault == "bomb":
            bomb = gzip.compress(b" " * (1 << 26), compresslevel=1)
            return await _send(writer, 200, bomb, encoding="gzip")
        if fault == "truncated":
            return await _send(writer, 200, content[: len(content) // 2])
        if fault in ("slow_body", "reset", "endless"):
            size = len(content) if fault != "endless" else 1 << 40
            writer.write(_head(200, size, "application/json") + content[: len(content) // 2])
            await writer.drain()
            while fault == "endless":
                writer.write(b" " * (1 << 18))
                await writer.drain()
            if fault == "slow_body":
                await asyncio.sleep(3_600)
            # Reset the connection, as a crash does.
            socket = writer.get_extra_info("socket")
            socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        return await _send(writer, 200, content)


DECISION_FAULTS = (
    "other_option",
    "no_none",
    "missing",
    "sum",
    "nan",
    "above_one",
    "text_score",
    "no_results",
    "list",
    "refusal",
)
"""Faults of decision models, besides those of `FAULTS` that affect the response itself."""

NONE = 0.2
"""Probability of "none" in the answers of the server."""


def _decision(body: dict[str, Any], fault: str) -> object:
    """Answer a choice question: "none" gets `NONE`, documents share the rest by relevance."""
    (question,) = body["questions"].values()
    options: dict[str, str] = question["criteria"]
    assert question["type"] == "choice"
    weights = {label: relevance(text) for label, text in options.items() if label != "none"}
    share = (1 - NONE) / sum(weights.values())
    probabilities: dict[str, Any] = {label: weight * share for label, weight in weights.items()}
    probabilities["none"] = NONE
    first = next(iter(probabilities))
    if fault == "other_option":
        probabilities["option 999"] = 0.0
    elif fault == "no_none":
        del probabilities["none"]
    elif fault == "missing":
        del probabilities[first]
    elif fault == "sum":
        probabilities = {label: value / 2 for label, value in probabilities.items()}
    elif fault == "nan":
        probabilities[first] = float("nan")
    elif fault == "above_one":
        probabilities[first] = 1.5
    elif fault == "text_score":
        probabilities[first] = "0.5"
    if fault == "list":
        return [probabilities]
    if fault == "no_results":
        return {"detail": "all is well"}
    answer = {"type": "choice", "choice": first, "probabilities": probabilities, "confidence": 0.5}
    answers = {} if fault == "refusal" else dict.fromkeys(body["questions"], answer)
    return {"model": "jev-1.13.0", "answers": answers, "usage": {"input_tokens": 1}}


def _refused(body: dict[str, Any]) -> str:
    documents = body.get("documents")
    if not (isinstance(body.get("model"), str) and isinstance(body.get("query"), str)):
        return "model and query must be texts"
    if not isinstance(documents, list) or not 1 <= len(documents) <= 1_000:
        return "documents must be 1 to 1,000 texts"
    if not all(isinstance(document, str) and document for document in documents):
        return "a document must be a text that is not empty"
    return ""


def _results(path: str, documents: Sequence[str], fault: str) -> object:
    results: list[Any] = [
        {"index": index, "relevance_score": relevance(document)}
        for index, document in enumerate(documents)
    ]
    results.sort(key=lambda row: -row["relevance_score"])
    if fault == "missing":
        del results[0]["relevance_score"]
    elif fault == "duplicate":
        results[-1]["index"] = results[0]["index"] if len(results) > 1 else 7
    elif fault == "out_of_range":
        results[0]["index"] = len(documents)
    elif fault == "negative":
        results[0]["index"] = -1
    elif fault == "nan":
        results[0]["relevance_score"] = float("nan")
    elif fault == "fewer":
        results = results[1:]
    elif fault == "text_score":
        results[0]["relevance_score"] = "0.5"
    if fault == "list":
        return results
    if fault == "no_results":
        return {"detail": "all is well"}
    if path == "/voyage/v1/rerank":
        usage = {"total_tokens": sum(map(len, documents))}
        return {"object": "list", "data": results, "model": "rerank-2.5", "usage": usage}
    if path == "/v2/rerank":
        return {"id": "1", "results": results, "meta": {"api_version": {"version": "2"}}}
    assert path == "/v1/rerank", path
    return {"model": "jina", "results": results, "usage": {"total_tokens": 1}}


async def _reply(
    writer: asyncio.StreamWriter, status: int, values: object, retry_after: str = ""
) -> bool:
    return await _send(writer, status, json.dumps(values).encode(), retry_after=retry_after)


async def _send(
    writer: asyncio.StreamWriter,
    status: int,
    content: bytes,
    *,
    kind: str = "application/json",
    retry_after: str = "",
    encoding: str = "identity",
) -> bool:
    writer.write(_head(status, len(content), kind, retry_after, encoding) + content)
    await writer.drain()
    return True


def _head(
    status: int, size: int, kind: str, retry_after: str = "", encoding: str = "identity"
) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {kind}", f"Content-Length: {size}"]
    lines.append(f"Content-Encoding: {encoding}")
    if retry_after:
        lines.append(f"Retry-After: {retry_after}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def main() -> None:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=float, default=0.0, help="share of requests with a fault")
    with ProvidersServer(rate=parser.parse_args().faults) as server:
        print(server.url, flush=True)  # noqa: T201
        sys.stdin.read()


if __name__ == "__main__":
    main()
