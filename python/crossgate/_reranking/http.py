"""JSON over HTTP for remote rerankers: keys, connections, bounded answers and their errors."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from crossgate._reranking import shared_state
from crossgate._support.errors import InputError, RerankerError
from crossgate._support.extras import package
from crossgate._support.wording import type_of

if TYPE_CHECKING:
    import ssl

    import httpx2

Exchange = Generator[object, Any, Sequence[tuple[int, float]]]
"""Yields JSON requests, takes the JSON of each answer, and returns position and score of each
document."""

SWITCH = "CROSSGATE_REMOTE"
"""If "0", "false", "no" or "off", `from_environment` of every remote reranker returns None."""

CONCURRENCY = 8
"""Number of requests that an address gets at once, unless an option says otherwise."""

# Timeout, too early, too many requests, and statuses of servers that restart.
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504, 529})

# Room for 100,000 scores of 60 bytes each.
MOST_BYTES = 8 << 20
# Longer than the usual pause between two prompts of a person.
_KEEP_ALIVE_SECONDS = 90.0
# Share of the time that a request may wait for a free connection; the rest is for its answer.
_WAITING = 0.5


class TransportError(Exception):
    """A request that did not return scores.

    The message reaches users and logs. Never quote a server or a library in it: their text may
    contain the key.

    Attributes:
        retryable: Whether the same request may succeed a moment later.
        retry_after: Seconds to wait, as requested by the endpoint, or 0.
    """

    def __init__(self, message: str, *, retryable: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after


class NoConnection(TransportError):
    """A request that was not sent, because all connections were in use."""


class ApiKey:
    """An API key that does not appear in `repr`, `vars`, pickles or errors.

    Args:
        value: The key, or None to read it from the environment.
        variables: Environment variables to read, in order of precedence.
    """

    __slots__ = ("_reveal", "_variables")

    def __init__(self, value: str | None, variables: tuple[str, ...]) -> None:
        if value is not None and not isinstance(value, str):
            # The message leaves the value out, which may be a secret.
            raise InputError("out_of_range", f"the key must be a string, not {type_of(value)}")
        key = value or next(
            (os.environ[variable] for variable in variables if os.environ.get(variable)), ""
        )
        key = key.strip()
        self._reveal: Callable[[], str] = lambda: key
        self._variables = variables

    def reveal(self) -> str:
        """Return the key, or an empty string."""
        return self._reveal()

    @property
    def is_sendable(self) -> bool:
        """Whether a header can contain the key; HTTP libraries log keys that cannot be sent."""
        key = self._reveal()
        return key.isascii() and key.isprintable() and " " not in key

    def __bool__(self) -> bool:
        return bool(self._reveal())

    def __repr__(self) -> str:
        return f"<ApiKey {'hidden' if self else 'missing'}>"

    def __reduce__(self) -> tuple[type[ApiKey], tuple[None, tuple[str, ...]]]:
        """Pickle only the variable names: another process reads its own environment."""
        return ApiKey, (None, self._variables)


def require_key(provider: str, value: str | None, variables: tuple[str, ...]) -> ApiKey:
    """Return a provider's API key.

    Raises:
        RerankerError: `no_key` if the key is missing, or contains characters no header can hold.
    """
    key = ApiKey(value, variables)
    if not key:
        raise RerankerError(
            "no_key",
            f"no API key for {provider}: set {variables[0]}, pass api_key, or use "
            "from_environment, which returns None without a key",
        )
    if not key.is_sendable:
        raise RerankerError(
            "no_key",
            f"the API key for {provider} contains characters that no header can hold: copy it "
            "again, without line breaks",
        )
    return key


def switched_off() -> bool:
    """Return whether the environment switches remote rerankers off."""
    return os.environ.get(SWITCH, "").strip().lower() in ("0", "false", "no", "off")


class HttpTransport:
    """Base of the transports that post JSON with a bearer token, from threads or event loops.

    Args:
        url: Address of the endpoint.
        key: The API key; empty to send no token.
        concurrency: Maximum number of requests at once, over all users of the address in threads,
            and again in each event loop. The first user of the address sets it.
    """

    def __init__(self, url: str, key: ApiKey, concurrency: int) -> None:
        self._url = url
        self._key = key
        self._concurrency = concurrency

    def exchange(self, query: str, documents: Sequence[str]) -> Exchange:
        """Describe the requests that score documents, and read the answers.

        Raises:
            TransportError: If an answer does not have the shape of the interface.
        """
        raise NotImplementedError

    def prepare(self) -> None:
        """Import the client library and load the system's certificates.

        Raises:
            ModelError: `dependency_missing` without httpx2.
        """
        package("httpx2", "a remote reranker", extra="remote")
        _certificates()

    def __call__(
        self, query: str, documents: Sequence[str], *, timeout: float
    ) -> Sequence[tuple[int, float]]:
        """Return position and score of each document.

        Raises:
            TransportError: If an answer is not 200 with JSON of the right shape, in time.
        """
        until = time.monotonic() + timeout
        exchange = self.exchange(query, documents)
        ended, value = _advanced(exchange, None)
        while not ended:
            ended, value = _advanced(exchange, self._post(value, until))
        scores: Sequence[tuple[int, float]] = value
        return scores

    async def acall(
        self, query: str, documents: Sequence[str], *, timeout: float
    ) -> Sequence[tuple[int, float]]:
        """Like a call, on an event loop; cancellation closes the connection.

        Raises:
            TransportError: As a call does.
        """
        until = time.monotonic() + timeout
        exchange = self.exchange(query, documents)
        ended, value = _advanced(exchange, None)
        while not ended:
            ended, value = _advanced(exchange, await self._apost(value, until))
        scores: Sequence[tuple[int, float]] = value
        return scores

    def _post(self, request: object, until: float) -> Any:
        body = bytearray()
        seconds = max(0.0, until - time.monotonic())
        try:
            client = _client(self._url, self._concurrency)
            with client.stream("POST", self._url, **self._options(request, seconds)) as response:
                problem = _problem_with(response)
                for chunk in () if problem else response.iter_bytes():
                    body += chunk
                    if len(body) > MOST_BYTES or time.monotonic() > until:
                        break
        except Exception as error:
            # Raised below, since chaining would keep the request, with the key in its headers.
            problem = _problem_of(error, seconds)
        if problem is None and time.monotonic() > until:
            problem = no_answer(seconds)
        return _values_of(body, problem)

    async def _apost(self, request: object, until: float) -> Any:
        body = bytearray()
        seconds = max(0.0, until - time.monotonic())
        try:
            client = await _async_client(self._url, self._concurrency)
            options = self._options(request, seconds)
            async with client.stream("POST", self._url, **options) as response:
                problem = _problem_with(response)
                if problem is None:
                    async for chunk in response.aiter_bytes():
                        body += chunk
                        if len(body) > MOST_BYTES:
                            break
        except Exception as error:
            problem = _problem_of(error, seconds)
        return _values_of(body, problem)

    def _options(self, request: object, seconds: float) -> dict[str, Any]:
        import httpx2

        return {
            "json": request,
            "headers": {"Authorization": f"Bearer {self._key.reveal()}"} if self._key else {},
            "timeout": httpx2.Timeout(seconds, pool=seconds * _WAITING),
        }


def _advanced(exchange: Exchange, answer: object) -> tuple[bool, Any]:
    """Return whether an exchange has ended, and its scores or else its next request."""
    try:
        return False, exchange.send(answer)
    except StopIteration as end:
        return True, end.value


@cache
def _certificates() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


def _client_options(concurrency: int) -> dict[str, Any]:
    import httpx2

    limits = httpx2.Limits(max_connections=concurrency, keepalive_expiry=_KEEP_ALIVE_SECONDS)
    return {"limits": limits, "verify": _certificates()}


def _client(url: str, concurrency: int) -> httpx2.Client:
    """Return the client of an address that all threads share."""
    import httpx2

    def make() -> httpx2.Client:
        return httpx2.Client(**_client_options(concurrency))

    client: httpx2.Client = shared_state.client(url, make)
    return client


_Held = tuple["httpx2.AsyncClient", AsyncGenerator[None]]
_of_loops: dict[asyncio.AbstractEventLoop, dict[str, _Held]] = {}


async def _async_client(url: str, concurrency: int) -> httpx2.AsyncClient:
    """Return the client of an address in the running event loop."""
    import httpx2

    for loop in list(_of_loops):
        if loop.is_closed():
            _of_loops.pop(loop, None)
    clients = _of_loops.setdefault(asyncio.get_running_loop(), {})
    if url not in clients:
        client = httpx2.AsyncClient(**_client_options(concurrency))
        closing = _closed_at_end(client)
        clients[url] = client, closing
        await anext(closing)
    return clients[url][0]


async def _closed_at_end(client: httpx2.AsyncClient) -> AsyncGenerator[None]:
    # An event loop ends its asynchronous generators before it is closed: here it closes the
    # connections, which would otherwise outlive it.
    try:
        yield
    finally:
        await client.aclose()


def _problem_with(response: httpx2.Response) -> TransportError | None:
    if response.status_code != 200:
        return problem_of_status(response.status_code, response.headers)
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        return TransportError("the content type of the answer is not JSON")
    return None


def no_answer(seconds: float) -> TransportError:
    """Return the error of a request that was not answered in time."""
    return TransportError(f"no answer within {seconds * 1000:.0f} ms")


def _problem_of(error: Exception, seconds: float) -> TransportError:
    import httpx2

    match error:
        case httpx2.PoolTimeout():
            return NoConnection("no connection was free in time")
        case httpx2.TimeoutException():
            return no_answer(seconds)
        case httpx2.DecodingError():
            return TransportError("the answer cannot be decompressed")
        case httpx2.HTTPError():
            return problem_of_connection(error)
    return TransportError(f"the request failed ({type(error).__name__})")


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


def _values_of(body: bytearray, problem: TransportError | None) -> Any:
    """Return the JSON values of an answer, or raise its problem."""
    if problem is not None:
        raise problem
    if len(body) > MOST_BYTES:
        raise TransportError(f"the answer exceeds {MOST_BYTES:,} bytes")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if values is None:
        raise TransportError("the answer is not JSON, or is cut off", retryable=True)
    return values
