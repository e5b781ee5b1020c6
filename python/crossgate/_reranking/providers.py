"""Hosted providers with their addresses, limits and formats, and the table of all stage-2 tiers.

The library, the command line, `crossgate doctor` and docs/rerankers.md read this module. To add a
provider whose interface is a JSON request with a query and documents, add it to `PROVIDERS`, and
its class to `remote`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The largest request that a provider accepts.

    Attributes:
        query_tokens: Maximum tokens of the query.
        document_tokens: Tokens that a document is cut to.
        request_tokens: Maximum tokens of a request, with the query counted once per document;
            None for no limit.
    """

    query_tokens: int
    document_tokens: int
    request_tokens: int | None = None

    def batch(self, query_tokens: int) -> int | None:
        """Return the maximum number of documents of a request, or None for no limit."""
        if self.request_tokens is None:
            return None
        return max(1, self.request_tokens // (query_tokens + self.document_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A hosted reranker with a JSON interface.

    Attributes:
        name: Provider name of hits, and value of `crossgate eval --reranker`.
        title: Name of the company.
        variables: Environment variables of the API key, in order of precedence.
        url: Default base address.
        path: Path of the rerank endpoint below the base address.
        model: Default model.
        limits: The largest request.
        fields: Fields of the request, besides `model`, `query` and `documents`.
        results: Field of the response with a list of `index` and `relevance_score`.
        key_urls: Default base addresses of API keys with a prefix.
    """

    name: str
    title: str
    variables: tuple[str, ...]
    url: str
    path: str
    model: str
    limits: RequestLimits
    fields: Mapping[str, object]
    results: str = "results"
    key_urls: Mapping[str, str] = field(default_factory=dict)

    def url_for(self, key: str) -> str:
        """Return the default base address for an API key."""
        addresses = (url for prefix, url in self.key_urls.items() if key.startswith(prefix))
        return next(addresses, self.url)


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        # https://docs.voyageai.com/reference/reranker-api. A query may have 8,000 tokens, query and
        # document 32,000 and a request 600,000. Documents are cut further, so that 80 of them and a
        # query fit into one request. Keys with the prefix "al-" belong to MongoDB Atlas.
        Provider(
            name="voyage",
            title="Voyage",
            variables=("VOYAGE_API_KEY",),
            url="https://api.voyageai.com/v1",
            path="/rerank",
            model="rerank-2.5",
            limits=RequestLimits(query_tokens=8_000, document_tokens=4_096, request_tokens=600_000),
            fields={"truncation": True},
            results="data",
            key_urls={"al-": "https://ai.mongodb.com/v1"},
        ),
        # https://docs.cohere.com/reference/rerank. The provider cuts documents to 4,096 tokens.
        Provider(
            name="cohere",
            title="Cohere",
            variables=("COHERE_API_KEY", "CO_API_KEY"),
            url="https://api.cohere.com",
            path="/v2/rerank",
            model="rerank-v4.0-pro",
            limits=RequestLimits(query_tokens=2_048, document_tokens=4_096),
            fields={"max_tokens_per_doc": 4_096},
        ),
        # https://api.jina.ai/redoc
        Provider(
            name="jina",
            title="Jina",
            variables=("JINA_API_KEY",),
            url="https://api.jina.ai",
            path="/v1/rerank",
            model="jina-reranker-v2-base-multilingual",
            limits=RequestLimits(query_tokens=512, document_tokens=1_024),
            fields={"return_documents": False},
        ),
    )
}
"""The hosted providers by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A kind of reranker, as `crossgate doctor` and docs/rerankers.md list it.

    Attributes:
        name: Name of the class or argument.
        method: How it scores documents.
        cost: Time of a pool of 20 documents, and price.
        sends: Destination of query and documents.
        package: Distribution that it needs besides the installed ones; empty for none.
        extra: Extra that installs the package; empty for none.
        variables: Environment variables of the API key, in order of precedence.
    """

    name: str
    method: str
    cost: str
    sends: str
    package: str = ""
    extra: str = ""
    variables: tuple[str, ...] = ()


TIERS: tuple[Tier, ...] = (
    Tier(
        name="CrossEncoder",
        method="local cross-encoder",
        cost="0.2 to 1 s",
        sends="nowhere",
    ),
    *(
        Tier(
            name=f"{provider.title}Reranker",
            method=f"hosted, `{provider.model}`",
            cost="0.2 to 1 s, paid",
            sends=f"{provider.title}",
            package="httpx2",
            extra="remote",
            variables=provider.variables,
        )
        for provider in PROVIDERS.values()
    ),
    Tier(
        name="DecisionReranker",
        method="decision model, one choice",
        cost="0.1 to 0.5 s, paid or local",
        sends="TypeSafe or your server",
        package="httpx2",
        extra="remote",
        variables=("TYPESAFE_API_KEY",),
    ),
    Tier(
        name="LLMReranker",
        method="language model, windows of 20",
        cost="seconds per window, paid or local",
        sends="OpenAI or your server",
        package="httpx2",
        extra="remote",
        variables=("OPENAI_API_KEY",),
    ),
    Tier(
        name="SemanticBM25",
        method="cosine and BM25, no model",
        cost="below 1 ms",
        sends="nowhere",
    ),
)
"""All kinds of rerankers, best first for most uses."""
