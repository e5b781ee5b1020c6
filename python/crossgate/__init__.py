"""Decides which skill, tool or text chunk fits a query, offline, on a laptop CPU.

from crossgate import Document, Index, Router

index = Index.build([Document(id="pdf", text="Merge, split and fill PDF files")])
result = Router(index).route("join these two PDFs")
result.ids, result.reason
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from crossgate._core import Policy, Profile, Scored, __version__
from crossgate._errors import (
    CalibrationError,
    CrossgateError,
    IndexFileError,
    InputError,
    ModelError,
    PluginError,
    ProfileError,
    RerankerError,
    SourceError,
)
from crossgate._index import Found, Index
from crossgate._profile import read_policy, read_profile, write_profile
from crossgate._rerank import arerank, rerank, rerank_many
from crossgate._router import Router
from crossgate._types import (
    Candidate,
    Degradation,
    Document,
    Hit,
    Passage,
    ResultWarning,
    RouteResult,
    Verdict,
)

if TYPE_CHECKING:
    from crossgate._embedding import Embedder, OnnxEmbedder, PrecomputedVectors
    from crossgate._reranking.contract import PairScore, Reranker
    from crossgate._reranking.cross_encoder import CrossEncoder
    from crossgate._threads import set_threads

__all__ = [
    "CalibrationError",
    "Candidate",
    "CrossEncoder",
    "CrossgateError",
    "Degradation",
    "Document",
    "Embedder",
    "Found",
    "Hit",
    "Index",
    "IndexFileError",
    "InputError",
    "ModelError",
    "OnnxEmbedder",
    "PairScore",
    "Passage",
    "PluginError",
    "Policy",
    "PrecomputedVectors",
    "Profile",
    "ProfileError",
    "Reranker",
    "RerankerError",
    "ResultWarning",
    "RouteResult",
    "Router",
    "Scored",
    "SourceError",
    "Verdict",
    "__version__",
    "arerank",
    "read_policy",
    "read_profile",
    "rerank",
    "rerank_many",
    "set_threads",
    "write_profile",
]

# What runs models is imported on first use: a decision that needs none must not pay for them.
_LATER = {
    "CrossEncoder": "crossgate._reranking.cross_encoder",
    "Embedder": "crossgate._embedding",
    "OnnxEmbedder": "crossgate._embedding",
    "PairScore": "crossgate._reranking.contract",
    "PrecomputedVectors": "crossgate._embedding",
    "Reranker": "crossgate._reranking.contract",
    "set_threads": "crossgate._threads",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'crossgate' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return __all__
