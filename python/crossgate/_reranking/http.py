"""JSON over HTTP for remote rerankers: one shared client, bounded answers, no redirects."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from crossgate._reranking.remote import ApiKey, TransportError
from crossgate._reranking.shared_state import background
from crossgate._support.extras import package

if TYPE_CHECKING:
    import ssl

    import httpx2

# Timeout, too early, too many requests, and statuses of servers that restart.
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})

# Room for 100,000 scores of 60 bytes each.
MOST_BYTES = 8 << 20
# Longer than the usual pause between two prompts of a person.
_KEEP_ALIVE_SECONDS = 90.0


class HttpTransport:
    """Posts one rerank request and reads `results`, each with `index` and `relevance_score`.

    All of them share one client, so that connections stay open between calls.

    Args:
        url: Where to post to.
        key: Sent as a bearer token.
        options: What to send beside query and documents, such as the model.
    """

    def __init__(self, url: str, key: ApiKey, options: Mapping[str, object]) -> None:
        self._url = url
        self._key = key
        self._options = dict(options)

    def prepare(self) -> None:
        """Import the client library and load the system's certificates.

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
                            problem = TransportError(f"the answer exceeds {MOST_BYTES:,} bytes")
                            break
                    body = b"".join(chunks)
        except httpx2.TimeoutException:
            problem = TransportError("no answer in time")
        except httpx2.HTTPError as error:
            # The original error would keep the request, with the key in its headers.
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
        return TransportError("the content type of the answer is not JSON")
    return None


def problem_of_status(status: int, headers: Mapping[str, str]) -> TransportError:
    """Return the error for an HTTP status, in fixed words that quote nothing from the server."""
    meaning = {
        400: "the request was rejected",
        401: "the API key was rejected",
        403: "the API key lacks the permission",
        404: "the address or the model does not exist",
        422: "the request was rejected",
        429: "too many requests, or the quota is used up",
    }.get(status, "server error" if status >= 500 else "unexpected status")
    if 300 <= status < 400:
        meaning = "redirects are not followed: prompts go only to the configured address"
    return TransportError(
        f"HTTP {status}, {meaning}",
        retryable=status in RETRYABLE,
        retry_after=seconds_of(headers.get("Retry-After", "")),
    )


def problem_of_connection(error: BaseException) -> TransportError:
    """Return the error for a broken connection; only a bad certificate is not worth a retry."""
    cause: BaseException | None = error
    while cause is not None:
        if "certificate" in str(cause).lower():
            return TransportError("the certificate is not trusted; nothing was sent")
        cause = cause.__cause__ or cause.__context__
    return TransportError("the connection failed or was interrupted", retryable=True)


def seconds_of(retry_after: str) -> float:
    """Parse a Retry-After header, a number or a date, into seconds; 0 if it is malformed."""
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
        TransportError: If the body has another shape; retryable if it is not JSON, which is
            usually a cut-off answer.
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if values is None:
        raise TransportError("the answer is not JSON, or is cut off", retryable=True)
    try:
        return [(result["index"], result["relevance_score"]) for result in values["results"]]
    except (TypeError, KeyError):
        pass
    raise TransportError("the answer lacks results with index and relevance_score")
