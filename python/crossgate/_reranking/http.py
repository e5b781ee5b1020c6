"""Sends rerank requests as JSON over HTTP, for the providers that need no library of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from crossgate._reranking.remote import Key, TransportError
from crossgate._reranking.shared_state import background
from crossgate._support.extras import package

if TYPE_CHECKING:
    import ssl

    import httpx2

# Timed out, too early, too many, and what servers say while they restart.
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})

# A score takes some 60 bytes: room for a hundred thousand of them.
MOST_BYTES = 8 << 20
# Longer than the pause between two prompts of one person.
_KEEP_ALIVE_SECONDS = 90.0


class HttpTransport:
    """Posts one rerank request and reads `results`, each with `index` and `relevance_score`.

    All of them share one client, so that connections stay open between calls.

    Args:
        url: Where to post to.
        key: Sent as a bearer token.
        options: What to send beside query and documents, such as the model.
    """

    def __init__(self, url: str, key: Key, options: Mapping[str, object]) -> None:
        self._url = url
        self._key = key
        self._options = dict(options)

    def prepare(self) -> None:
        """Import the client library and read the certificates that the system trusts.

        Raises:
            ModelError: `dependency_missing` without httpx2.
        """
        package("httpx2", "a remote reranker", extra="remote")
        _trusted()

    async def __call__(
        self, query: str, documents: Sequence[str], *, timeout: float
    ) -> Sequence[tuple[int, float]]:
        """Return position and score of each result.

        Raises:
            TransportError: For every answer but 200 with well-formed JSON.
        """
        import httpx2

        client = background().client(HttpTransport, _client)
        body = b""
        problem: TransportError | None = None
        try:
            async with client.stream(
                "POST",
                self._url,
                json={**self._options, "query": query, "documents": list(documents)},
                headers={"Authorization": f"Bearer {self._key.reveal()}"},
                timeout=timeout,
            ) as answer:
                problem = _problem_with(answer)
                if problem is None:
                    chunks: list[bytes] = []
                    size = 0
                    async for chunk in answer.aiter_bytes():
                        chunks.append(chunk)
                        size += len(chunk)
                        if size > MOST_BYTES:
                            problem = TransportError(f"an answer of more than {MOST_BYTES} bytes")
                            break
                    body = b"".join(chunks)
        except httpx2.TimeoutException:
            problem = TransportError("no answer in time")
        except httpx2.HTTPError as error:
            # The error itself keeps the request, with the key in its headers.
            problem = problem_of_connection(error)
        if problem is not None:
            raise problem
        return results_of(body)


@cache
def _trusted() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


def _client() -> tuple[httpx2.AsyncClient, Any]:
    import httpx2

    limits = httpx2.Limits(max_connections=None, keepalive_expiry=_KEEP_ALIVE_SECONDS)
    client = httpx2.AsyncClient(limits=limits, verify=_trusted())
    return client, client.aclose


def _problem_with(answer: httpx2.Response) -> TransportError | None:
    if answer.status_code != 200:
        return problem_of_status(answer.status_code, answer.headers)
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        return TransportError("it answered with something that is not JSON")
    return None


def problem_of_status(status: int, headers: Mapping[str, str]) -> TransportError:
    """Return what an HTTP status means, in words, without any of the server's own."""
    meaning = {
        400: "it did not accept the request",
        401: "it did not accept the API key",
        403: "the API key is not allowed to do this",
        404: "there is nothing at this address, or no such model",
        422: "it did not accept the request",
        429: "too many requests, or the quota is used up",
    }.get(status, "it failed" if status >= 500 else "it answered with something unexpected")
    if 300 <= status < 400:
        meaning = (
            "it redirects to another address, and prompts are only sent to the one that was given"
        )
    return TransportError(
        f"HTTP {status}, {meaning}",
        retryable=status in RETRYABLE,
        retry_after=seconds_of(headers.get("Retry-After", "")),
    )


def problem_of_connection(error: BaseException) -> TransportError:
    """Return what a broken connection means; only a bad certificate stays bad when tried again."""
    cause: BaseException | None = error
    while cause is not None:
        if "certificate" in str(cause).lower():
            return TransportError("its certificate cannot be trusted, so nothing was sent")
        cause = cause.__cause__ or cause.__context__
    return TransportError("the connection failed or was interrupted", retryable=True)


def seconds_of(retry_after: str) -> float:
    """Return the seconds of a Retry-After header, a number or a date; 0 for what is neither."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return max(0.0, seconds) if seconds < float("inf") else 0.0


def results_of(body: bytes) -> list[tuple[int, float]]:
    """Return position and score of each result of an answer.

    Raises:
        TransportError: If it is no such JSON; one that breaks off may be whole the next time.
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if values is None:
        raise TransportError("its answer is not JSON, or is cut off", retryable=True)
    try:
        return [(result["index"], result["relevance_score"]) for result in values["results"]]
    except (TypeError, KeyError):
        pass
    raise TransportError("its answer lacks results with index and relevance_score")
