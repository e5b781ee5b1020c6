"""Voyage's rerankers, through their own client library: the extra `voyage`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Self

from crossgate._reranking.http import MOST_BYTES, problem_of_connection, problem_of_status
from crossgate._reranking.remote import (
    ApiKey,
    RemoteReranker,
    RequestLimits,
    TransportError,
    require_key,
    switched_off,
)
from crossgate._reranking.shared_state import background
from crossgate._support.checks import check_text
from crossgate._support.extras import package

VARIABLES = ("VOYAGE_API_KEY",)

# The provider takes 8,000 tokens of query, 32,000 of query and document, and 600,000 of a request.
# Documents are cut far below that, so that 80 of them and a query fit into one request.
_LIMITS = RequestLimits(query_tokens=8_000, document_tokens=4_096, request_tokens=600_000)

_KEEP_ALIVE_SECONDS = 90.0


class VoyageReranker(RemoteReranker):
    """Voyage's rerankers.

    Args:
        model: `rerank-2.5`, or the cheaper `rerank-2.5-lite`.
        api_key: The key; by default from `VOYAGE_API_KEY`.
        base_url: Where the interface is; by default where the key belongs.
        options: As for `RemoteReranker`.

    Raises:
        RerankerError: `no_key` if there is no key.
    """

    def __init__(
        self,
        model: str = "rerank-2.5",
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        **options: Any,
    ) -> None:
        check_text("the model", model)
        key = require_key("Voyage", api_key, VARIABLES)
        super().__init__(
            VoyageTransport(model, key, base_url),
            name="voyage",
            identity=f"voyage/{model}",
            endpoint=base_url or "https://api.voyageai.com/v1",
            **{"limits": _LIMITS, **options},
        )

    @classmethod
    def from_environment(cls, model: str = "rerank-2.5", **options: Any) -> Self | None:
        """Return one, or None without a key in the environment or with CROSSGATE_REMOTE=0."""
        return None if switched_off() or not ApiKey(None, VARIABLES) else cls(model, **options)


class VoyageTransport:
    """Asks Voyage through `voyageai.AsyncClient`, over connections that stay open between calls.

    The library's own retries are off: `RemoteReranker` knows how much time is left, it does not.

    Args:
        model: Name of the model.
        key: The API key.
        base_url: Where the interface is, or None for the library's choice.
    """

    def __init__(self, model: str, key: ApiKey, base_url: str | None) -> None:
        self._model = model
        self._key = key
        self._base_url = base_url
        _redaction.cover(key)

    def prepare(self) -> None:
        """Import the library, which takes most of a second.

        Raises:
            ModelError: `dependency_missing` without voyageai.
        """
        _library()

    async def __call__(
        self, query: str, documents: Sequence[str], *, timeout: float
    ) -> Sequence[tuple[int, float]]:
        """Return position and score of each result.

        Raises:
            TransportError: For everything but a well-formed answer.
        """
        voyageai = _library()
        session = background().client(VoyageTransport, _session)
        # The library looks for a shared session here, and makes one per request without.
        voyageai.aiosession.set(session)
        client = voyageai.AsyncClient(
            api_key=self._key.reveal(), max_retries=0, timeout=timeout, base_url=self._base_url
        )
        try:
            answer = await client.rerank(query, list(documents), self._model, truncation=True)
            return [(result.index, result.relevance_score) for result in answer.results]
        except Exception as error:  # the library lets through what its own libraries raise
            # Raised below instead of here: the error keeps request and answer.
            problem = _problem(error)
        raise problem


class _Redaction(logging.Filter):
    """Blots the keys out where the library logs what a server said, which may be the key."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[ApiKey] = []

    def cover(self, key: ApiKey) -> None:
        """Blot out this key from now on."""
        if all(covered.reveal() != key.reveal() for covered in self._keys):
            self._keys.append(key)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let the record through without any key."""
        text = record.getMessage()
        for key in self._keys:
            if key.reveal() in text:
                text = text.replace(key.reveal(), "[key]")
                record.msg, record.args = text, ()
        return True


_redaction = _Redaction()
logging.getLogger("voyage").addFilter(_redaction)


def _library() -> Any:
    return package("voyageai", "the Voyage reranker", extra="voyage")


def _session() -> tuple[Any, Any]:
    import aiohttp

    class BoundedResponse(aiohttp.ClientResponse):
        """Reads no more than a list of scores can be long; the library reads all there is."""

        async def read(self) -> bytes:
            if self._body is None:
                body = bytearray()
                async for chunk in self.content.iter_any():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        self.close()
                        raise TransportError(f"the answer exceeds {MOST_BYTES:,} bytes")
                self._body = bytes(body)
            return self._body

    async def refuse(
        session: aiohttp.ClientSession,
        context: object,
        params: aiohttp.TraceRequestRedirectParams,
    ) -> None:
        # The library follows redirects, and would send query and documents to whoever is named.
        raise problem_of_status(params.response.status, {})

    redirects = aiohttp.TraceConfig()
    redirects.on_request_redirect.append(refuse)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS)
    session = aiohttp.ClientSession(
        connector=connector,
        response_class=BoundedResponse,
        trust_env=True,
        trace_configs=[redirects],
    )
    return session, session.close


def _problem(error: Exception) -> TransportError:
    import aiohttp
    import voyageai.error

    if isinstance(error, TransportError):
        return TransportError(str(error))
    if isinstance(error, voyageai.error.Timeout | TimeoutError):
        return TransportError("no answer in time")
    if isinstance(error, voyageai.error.APIConnectionError | aiohttp.ClientError | OSError):
        return problem_of_connection(error)
    if isinstance(error, voyageai.error.VoyageError):
        status, headers = error.http_status, error.headers
        if isinstance(status, int) and status != 200:
            return problem_of_status(status, headers if isinstance(headers, Mapping) else {})
        # JSON that breaks off may be whole the next time.
        return TransportError("its answer is not JSON, or is cut off", retryable=True)
    return TransportError("its answer lacks results with index and relevance_score")
