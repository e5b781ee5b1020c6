"""Cohere's rerankers, over their REST interface: https://docs.cohere.com/reference/rerank."""

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

VARIABLES = ("COHERE_API_KEY", "CO_API_KEY")

# What the provider itself cuts a document to unless told otherwise.
_LIMITS = RequestLimits(query_tokens=2_048, document_tokens=4_096)


class CohereReranker(RemoteReranker):
    """Cohere's rerankers.

    Args:
        model: `rerank-v4.0-pro`, or the quicker `rerank-v4.0-fast`.
        api_key: The key; by default from `COHERE_API_KEY` or `CO_API_KEY`.
        base_url: Where the interface is.
        options: As for `RemoteReranker`.

    Raises:
        RerankerError: `no_key` if there is no key.
    """

    def __init__(
        self,
        model: str = "rerank-v4.0-pro",
        *,
        api_key: str | None = None,
        base_url: str = "https://api.cohere.com",
        **options: Any,
    ) -> None:
        check_text("the model", model)
        check_text("base_url", base_url)
        key = require_key("Cohere", api_key, VARIABLES)
        body = {"model": model, "max_tokens_per_doc": _LIMITS.document_tokens}
        super().__init__(
            HttpTransport(f"{base_url.rstrip('/')}/v2/rerank", key, body),
            name="cohere",
            identity=f"cohere/{model}",
            endpoint=base_url,
            **{"limits": _LIMITS, **options},
        )

    @classmethod
    def from_environment(cls, model: str = "rerank-v4.0-pro", **options: Any) -> Self | None:
        """Return one, or None without a key in the environment or with CROSSGATE_REMOTE=0."""
        return None if switched_off() or not ApiKey(None, VARIABLES) else cls(model, **options)
