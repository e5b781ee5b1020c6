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
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504, 529})

# Room for 100,000 scores of 60 bytes each.
MOST_BYTES = 8 << 20
# Longer than the usual pause between two prompts of a person.
_KEEP_ALIVE_SECONDS = 90.0


class HttpTransport:
    """Posts a query and documents, and reads a list of `index` and `relevance_score`.

    Args:
        url: Address of the endpoint.
        key: Sent as a bearer token.
        options: Further fields of the request, such as the model.
        results: Field of the response with the list.
    """

    def __init__(
        self, url: str, key: ApiKey, options: Mapping[str, object], *, results: str = "results"
    ) -> None:
        self._url = url
        self._key = key
        self._options = dict(options)
        self._results = results

    def prepare(self) -> None:
        """Import the client library and load the system's certificates.

        Raises:
            ModelError: `dependency_missing` without httpx2.
        """
        prepare_client()

    async def __call__(
        self, query: str, documents: Sequence[str], *, timeout: float
    ) -> Sequence[tuple[int, float]]:
        """Return position and score of each result.

        Raises:
            TransportError: If the response is not 200 with well-formed JSON.
        """
        request = {**self._options, "query": query, "documents": list(documents)}
        return results_of(await post(self._url, self._key, request, timeout), self._results)


def prepare_client() -> None:
    """Import the client library and load the system's certificates.

    Raises:
        ModelError: `dependency_missing` without httpx2.
    """
    package("httpx2", "a remote reranker", extra="remote")
    _trusted()


async def post(url: str, key: ApiKey, request: object, timeout: float) -> bytes:
    """Post a JSON request with a bearer token, and return the body of the response.

    All requests share one client, so that connections stay open between calls.

    Args:
        url: Address of the endpoint.
        key: The API key; without one, no token is sent.
        request: The JSON values.
        timeout: Seconds until the request is abandoned.

    Raises:
        TransportError: If the response is not 200 with a JSON content type and a bounded body.
    """
    import httpx2

    client = background().client(post, _client)
    chunks: list[bytes] = []
    problem: TransportError | None
    try:
        async with client.stream(
            "POST",
            url,
            json=request,
            headers={"Authorization": f"Bearer {key.reveal()}"} if key else {},
            timeout=timeout,
        ) as response:
            problem = _problem_with(response)
            if problem is None:
                size = 0
                async for chunk in response.aiter_bytes():
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > MOST_BYTES:
                        problem = TransportError(f"the answer exceeds {MOST_BYTES:,} bytes")
                        break
    except httpx2.TimeoutException:
        problem = TransportError("no answer in time")
    except httpx2.HTTPError as error:
        # Raised below, since chaining would keep the request, with the key in its headers.
        problem = problem_of_connection(error)
    if problem is not None:
        raise problem
    return b"".join(chunks)


@cache
def _trusted() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


def _client() -> tuple[httpx2.AsyncClient, Any]:
    import httpx2

    limits = httpx2.Limits(max_connections=None, keepalive_expiry=_KEEP_ALIVE_SECONDS)
    client = httpx2.AsyncClient(limits=limits, verify=_trusted())
    return client, client.aclose


def _problem_with(response: httpx2.Response) -> TransportError | None:
    if response.status_code != 200:
        return problem_of_status(response.status_code, response.headers)
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
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


def json_of(body: bytes) -> Any:
    """Parse the body of a response.

    Raises:
        TransportError: Retryable, since a body that is not JSON is usually a cut-off answer.
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if values is None:
        raise TransportError("the answer is not JSON, or is cut off", retryable=True)
    return values


def results_of(body: bytes, results: str) -> list[tuple[int, float]]:
    """Return position and score of each result of a response.

    Raises:
        TransportError: If the body has another shape.
    """
    values = json_of(body)
    try:
        return [(result["index"], result["relevance_score"]) for result in values[results]]
    except (TypeError, KeyError):
        pass
    raise TransportError(f"the answer lacks {results} with index and relevance_score")
