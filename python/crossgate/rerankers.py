"""Stage 2: what a reranker is, those that come along, and the bounds that each of them runs in.

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
    from crossgate._reranking.admission import Admitted
    from crossgate._reranking.cohere import CohereReranker
    from crossgate._reranking.contract import (
        AsyncReranker,
        Deadline,
        PairScore,
        Reranker,
        Scores,
        passages_of,
    )
    from crossgate._reranking.cross_encoder import CrossEncoder
    from crossgate._reranking.health import CircuitBreaker, Pace, State
    from crossgate._reranking.jina import JinaReranker
    from crossgate._reranking.lexical import SemanticBM25
    from crossgate._reranking.llm import LLMReranker
    from crossgate._reranking.process import shut_down
    from crossgate._reranking.remote import RemoteReranker, Transport, TransportError
    from crossgate._reranking.voyage import VoyageReranker
    from crossgate._types import Passage

__all__ = [
    "Admitted",
    "AsyncReranker",
    "CircuitBreaker",
    "CohereReranker",
    "CrossEncoder",
    "Deadline",
    "JinaReranker",
    "LLMReranker",
    "Pace",
    "PairScore",
    "Passage",
    "RemoteReranker",
    "Reranker",
    "Scores",
    "SemanticBM25",
    "State",
    "Transport",
    "TransportError",
    "VoyageReranker",
    "passages_of",
    "shut_down",
]

# Imported on first use: who asks one reranker does not pay for the others.
_LATER = {
    "Admitted": "_reranking.admission",
    "AsyncReranker": "_reranking.contract",
    "CircuitBreaker": "_reranking.health",
    "CohereReranker": "_reranking.cohere",
    "CrossEncoder": "_reranking.cross_encoder",
    "Deadline": "_reranking.contract",
    "JinaReranker": "_reranking.jina",
    "LLMReranker": "_reranking.llm",
    "Pace": "_reranking.health",
    "PairScore": "_reranking.contract",
    "Passage": "_types",
    "RemoteReranker": "_reranking.remote",
    "Reranker": "_reranking.contract",
    "Scores": "_reranking.contract",
    "SemanticBM25": "_reranking.lexical",
    "State": "_reranking.health",
    "Transport": "_reranking.remote",
    "TransportError": "_reranking.remote",
    "VoyageReranker": "_reranking.voyage",
    "passages_of": "_reranking.contract",
    "shut_down": "_reranking.process",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'crossgate.rerankers' has no attribute {name!r}")
    return getattr(import_module(f"crossgate.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return __all__
