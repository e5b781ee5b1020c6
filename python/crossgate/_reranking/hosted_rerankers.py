"""Rerankers of hosted providers, each defined by its entry in `providers`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from crossgate._reranking.http import HttpTransport
from crossgate._reranking.providers import PROVIDERS, Provider
from crossgate._reranking.remote import ApiKey, RemoteReranker, require_key, switched_off
from crossgate._support.checks import check_text


class HostedReranker(RemoteReranker):
    """A reranker of a provider in `PROVIDERS`.

    Args:
        model: Name of the model; None for the provider's default.
        api_key: The API key; by default from the environment.
        base_url: Address of the interface; by default the provider's.
        options: As for `RemoteReranker`.

    Raises:
        RerankerError: `no_key` without an API key.
    """

    provider: ClassVar[Provider]

    def __init__(
        self,
        model: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        **options: Any,
    ) -> None:
        provider = self.provider
        model = provider.model if model is None else model
        check_text("the model", model)
        key = require_key(provider.title, api_key, provider.variables)
        url = provider.url_for(key.reveal()) if base_url is None else base_url
        check_text("base_url", url)
        transport = HttpTransport(
            url.rstrip("/") + provider.path,
            key,
            {"model": model, **provider.fields},
            results=provider.results,
        )
        super().__init__(
            transport,
            name=provider.name,
            identity=f"{provider.name}/{model}",
            endpoint=url,
            **{"limits": provider.limits, **options},
        )

    @classmethod
    def from_environment(cls, model: str | None = None, **options: Any) -> Self | None:
        """Return a reranker, or None without a key in the environment or if CROSSGATE_REMOTE=0."""
        if switched_off() or not ApiKey(None, cls.provider.variables):
            return None
        return cls(model, **options)


class VoyageReranker(HostedReranker):
    """Voyage's rerankers: `rerank-2.5`, or the cheaper `rerank-2.5-lite`.

    The key is read from `VOYAGE_API_KEY`. Further arguments: `base_url`, and those of
    `RemoteReranker`.
    """

    provider = PROVIDERS["voyage"]


class CohereReranker(HostedReranker):
    """Cohere's rerankers: `rerank-v4.0-pro`, or the faster `rerank-v4.0-fast`.

    The key is read from `COHERE_API_KEY` or `CO_API_KEY`. Further arguments: `base_url`,
    and those of `RemoteReranker`.
    """

    provider = PROVIDERS["cohere"]


class JinaReranker(HostedReranker):
    """Jina's rerankers.

    The default model scores each pair independently. `jina-reranker-v3` reads the documents of a
    request together, so scores of two batches are not comparable: pass at most 80 documents.

    The key is read from `JINA_API_KEY`. Further arguments: `base_url`, and those of
    `RemoteReranker`.
    """

    provider = PROVIDERS["jina"]


HOSTED: dict[str, type[HostedReranker]] = {
    kind.provider.name: kind for kind in (VoyageReranker, CohereReranker, JinaReranker)
}
"""Classes of hosted rerankers by the provider's name."""
