"""`LLMReranker`: a language model behind an OpenAI-compatible endpoint; needs the extra `llm`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

from crossgate._reranking import listwise
from crossgate._reranking.http import problem_of_connection, problem_of_status
from crossgate._reranking.remote import (
    ApiKey,
    RemoteReranker,
    TransportError,
    require_key,
    switched_off,
)
from crossgate._reranking.shared_state import background
from crossgate._support.checks import check_count, check_kind, check_text
from crossgate._support.extras import package

VARIABLES = ("OPENAI_API_KEY",)

_DEFAULT_URL = "https://api.openai.com/v1"
# An answer is twenty numbers, after the reasoning text of some models.
_MOST_BYTES = 4 << 20


class LLMReranker(RemoteReranker):
    """Ranks documents with a language model, one window at a time.

    The logits are computed from ranks alone (`listwise.ordinal_logits`): they order the documents
    of one call and express no relevance, so a profile cannot have thresholds for them. There is one
    request per window, one after another: nine for 100 documents, of seconds each. If an answer
    names no passage, the call fails.

    Documents are untrusted text. They are quoted so that a document cannot end its quotation, but a
    model may still follow instructions in them.

    Args:
        model: Name of the model at the endpoint.
        base_url: Address of the interface, up to `/v1`; by default `OPENAI_BASE_URL`, or OpenAI.
        api_key: The API key. Without `base_url`, the default is `OPENAI_API_KEY`; a key from the
            environment is never sent to an address given in code.
        window: Documents per request, at least 2.
        step: Positions by which the window moves, from 1 to `window - 1`.
        document_characters: Characters that a document is cut to, at least 1.
        parameters: Sent with each request; by default `{"temperature": 0}`, which some models
            reject.
        options: As for `RemoteReranker`; by default a timeout of 30 s and two attempts.

    Raises:
        RerankerError: `no_key` if neither `base_url` nor a key is given or set in the environment.
        InputError: `out_of_range` for a number outside of its limits.
    """

    ms_per_pair = 150.0
    absolute_floor_ms = 500.0

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        window: int = listwise.WINDOW,
        step: int = listwise.STEP,
        document_characters: int = 2_000,
        parameters: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        listwise.ranking_windows(1, size=window, step=step)
        check_count("document_characters", document_characters)
        check_text("the model", model)
        if parameters is not None:
            check_kind("parameters", parameters, Mapping, "a mapping of names to JSON values")
        if base_url is not None:
            check_text("base_url", base_url)
        if base_url is None:
            key = require_key("the language model", api_key, VARIABLES)
            base_url = os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL
        else:
            key = ApiKey(api_key, ())
        self._document_characters = document_characters
        sent = {"temperature": 0} if parameters is None else dict(parameters)
        super().__init__(
            LLMTransport(model, base_url, key, sent, window=window, step=step),
            name="llm",
            identity=f"llm/{model}",
            endpoint=base_url,
            **{"timeout": 30.0, "attempts": 2, **options},
        )

    @classmethod
    def from_environment(cls, model: str, **options: Any) -> Self | None:
        """Return a reranker, or None without a key in the environment or if CROSSGATE_REMOTE=0."""
        return None if switched_off() or not ApiKey(None, VARIABLES) else cls(model, **options)

    def _split(self, documents: int, most: int | None) -> list[list[int]]:
        # Ranks of two batches are not comparable.
        return [list(range(documents))]

    async def _cut(
        self, query: str, documents: Sequence[str], until: float
    ) -> tuple[list[str], list[bool], int | None]:
        most = self._document_characters
        return (
            [document[:most] for document in documents],
            [len(document) > most for document in documents],
            None,
        )


class LLMTransport:
    """Requests the order of each window in turn, through `openai.AsyncOpenAI`.

    The library's own retries are off, since `RemoteReranker` retries within the time left.

    Args:
        model: Name of the model.
        base_url: Address of the interface.
        key: The API key; empty for an endpoint without keys.
        parameters: Sent with each request.
        window: Documents per request.
        step: Positions by which the window moves.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        key: ApiKey,
        parameters: Mapping[str, object],
        *,
        window: int,
        step: int,
    ) -> None:
        self._model = model
        self._base_url = base_url
        self._key = key
        self._parameters = dict(parameters)
        self._window = window
        self._step = step

    def prepare(self) -> None:
        """Import the library, which takes almost a second.

        Raises:
            ModelError: `dependency_missing` without openai.
        """
        library()

    async def __call__(
        self, query: str, documents: Sequence[str], *, timeout: float
    ) -> Sequence[tuple[int, float]]:
        """Return position and ordinal logit of each document.

        Raises:
            TransportError: If a request fails or an answer names no passage.
            ModelError: `dependency_missing` without openai.
        """
        order = list(range(len(documents)))
        for places in listwise.ranking_windows(len(order), size=self._window, step=self._step):
            read = order[places.start : places.stop]
            answer = await self._ask(query, [documents[position] for position in read], timeout)
            try:
                better = listwise.permutation(answer, len(read))
            except ValueError:
                raise TransportError("the answer names no passage") from None
            order[places.start : places.stop] = [read[position] for position in better]
        return list(enumerate(listwise.ordinal_logits(order)))

    async def _ask(self, query: str, passages: Sequence[str], timeout: float) -> str:
        openai = library()
        client = openai.AsyncOpenAI(
            api_key=self._key.reveal() or "none",
            base_url=self._base_url,
            max_retries=0,
            timeout=timeout,
            http_client=background().client(LLMTransport, _client),
        )
        body = bytearray()
        try:
            # Read in pieces, so that an endless answer does not fill the memory.
            async with client.chat.completions.with_streaming_response.create(
                model=self._model,
                messages=listwise.messages(query, passages),
                **self._parameters,
            ) as answer:
                async for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        break
        except Exception as error:  # the library also raises errors of its own dependencies
            # Raised below, since chaining would keep the request, with the key in it.
            problem = _problem(error)
        else:
            if len(body) <= _MOST_BYTES:
                return content_of(bytes(body))
            problem = TransportError(f"the answer exceeds {_MOST_BYTES:,} bytes")
        raise problem


def content_of(body: bytes) -> str:
    """Return the text of a chat completion.

    Raises:
        TransportError: If the body is not a chat completion.
    """
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        content = None
    if not isinstance(content, str):
        raise TransportError("the answer lacks choices with a message")
    return content


def library() -> Any:
    """Return the package openai.

    Raises:
        ModelError: `dependency_missing` if it is not installed.
    """
    return package("openai", "a language model as reranker", extra="llm")


def _client() -> tuple[Any, Any]:
    # A redirect would send query and passages to an address that the user did not configure.
    client = library().DefaultAsyncHttpxClient(follow_redirects=False)
    return client, client.aclose


def _problem(error: Exception) -> TransportError:
    openai = library()
    # If a body breaks off, openai 2 raises an error of httpx, and openai 3 one of httpx2.
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, openai.APIStatusError):
        return problem_of_status(error.status_code, error.response.headers)
    if isinstance(error, openai.APITimeoutError | TimeoutError) or "TimeoutException" in kinds:
        return TransportError("no answer in time")
    if isinstance(error, openai.APIConnectionError | OSError) or "TransportError" in kinds:
        return problem_of_connection(error)
    return TransportError(f"the request failed ({type(error).__name__})")
