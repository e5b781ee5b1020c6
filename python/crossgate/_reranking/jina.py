"""Jina's rerankers, over their REST interface: https://api.jina.ai/redoc."""

from __future__ import annotations

from typing import Any, Self

from crossgate._reranking.http import HttpTransport
from crossgate._reranking.remote import (
    ApiKey,
    RemoteReranker,
    RequestLimits,
    require_key,
    switched_off,
)
from crossgate._support.checks import check_text

VARIABLES = ("JINA_API_KEY",)

_LIMITS = RequestLimits(query_tokens=512, document_tokens=1_024)


class JinaReranker(RemoteReranker):
    """Jina's rerankers.

    Args:
        model: By default one that scores each pair alone. `jina-reranker-v3` reads the documents of
            a request together, so scores of two batches cannot be compared: give it no more than
            80 documents.
        api_key: The key; by default from `JINA_API_KEY`.
        base_url: Where the interface is.
        options: As for `RemoteReranker`.

    Raises:
        RerankerError: `no_key` if there is no key.
    """

    def __init__(
        self,
        model: str = "jina-reranker-v2-base-multilingual",
        *,
        api_key: str | None = None,
        base_url: str = "https://api.jina.ai",
        **options: Any,
    ) -> None:
        check_text("the model", model)
        check_text("base_url", base_url)
        key = require_key("Jina", api_key, VARIABLES)
        body = {"model": model, "return_documents": False}
        super().__init__(
            HttpTransport(f"{base_url.rstrip('/')}/v1/rerank", key, body),
            name="jina",
            identity=f"jina/{model}",
            endpoint=base_url,
            **{"limits": _LIMITS, **options},
        )

    @classmethod
    def from_environment(
        cls, model: str = "jina-reranker-v2-base-multilingual", **options: Any
    ) -> Self | None:
        """Return one, or None without a key in the environment or with CROSSGATE_REMOTE=0."""
        return None if switched_off() or not ApiKey(None, VARIABLES) else cls(model, **options)
