"""Tiers of stage 2 beside the local cross-encoder, and what decides which of them is asked.

from crossgate import Router
from crossgate.rerankers import SemanticBM25, VoyageReranker

router = Router(index, reranker=[VoyageReranker.from_environment(), "default", SemanticBM25()])
result = router.route("join these two PDFs", budget_ms=400)
result.selected[0].provider, result.degraded
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossgate._reranking.background import shut_down
    from crossgate._reranking.breaker import CircuitBreaker, Permit, State, Transition
    from crossgate._reranking.budget import Deadline, Pace
    from crossgate._reranking.cohere import CohereReranker
    from crossgate._reranking.jina import JinaReranker
    from crossgate._reranking.lexical import SemanticBM25
    from crossgate._reranking.llm import LLMReranker
    from crossgate._reranking.remote import RemoteReranker, Transport, TransportError
    from crossgate._reranking.voyage import VoyageReranker

__all__ = [
    "CircuitBreaker",
    "CohereReranker",
    "Deadline",
    "JinaReranker",
    "LLMReranker",
    "Pace",
    "Permit",
    "RemoteReranker",
    "SemanticBM25",
    "State",
    "Transition",
    "Transport",
    "TransportError",
    "VoyageReranker",
    "shut_down",
]

# Imported on first use: the cascade needs the budget alone, and no decision pays for the rest.
_LATER = {
    "CircuitBreaker": "breaker",
    "CohereReranker": "cohere",
    "Deadline": "budget",
    "JinaReranker": "jina",
    "LLMReranker": "llm",
    "Pace": "budget",
    "Permit": "breaker",
    "RemoteReranker": "remote",
    "SemanticBM25": "lexical",
    "State": "breaker",
    "Transition": "breaker",
    "Transport": "remote",
    "TransportError": "remote",
    "VoyageReranker": "voyage",
    "shut_down": "background",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'crossgate.rerankers' has no attribute {name!r}")
    return getattr(import_module(f"crossgate._reranking.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return __all__
