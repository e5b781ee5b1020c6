"""Decides which skill, tool or text chunk fits a query, offline, on a laptop CPU.

from crossgate import Document, Index, Router

index = Index.build([Document(id="pdf", text="Merge, split and fill PDF files")])
result = Router(index).route("join these two PDFs")
result.ids, result.reason
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from crossgate._core import __version__
from crossgate.errors import (
    CalibrationError,
    CrossgateError,
    IndexFileError,
    InputError,
    ModelError,
    PluginError,
    ProfileError,
    SourceError,
    TierError,
)
from crossgate.index import Index
from crossgate.profile import Profile
from crossgate.router import Router, arerank, rerank
from crossgate.types import (
    Candidate,
    Degradation,
    Document,
    Hit,
    ResultWarning,
    RouteResult,
    Verdict,
)

if TYPE_CHECKING:
    from crossgate.embedding import Embedder, OnnxEmbedder, PrecomputedVectors
    from crossgate.onnx import set_threads
    from crossgate.reranking import CrossEncoder, PairScore, Reranker

__all__ = [
    "CalibrationError",
    "Candidate",
    "CrossEncoder",
    "CrossgateError",
    "Degradation",
    "Document",
    "Embedder",
    "Hit",
    "Index",
    "IndexFileError",
    "InputError",
    "ModelError",
    "OnnxEmbedder",
    "PairScore",
    "PluginError",
    "PrecomputedVectors",
    "Profile",
    "ProfileError",
    "Reranker",
    "ResultWarning",
    "RouteResult",
    "Router",
    "SourceError",
    "TierError",
    "Verdict",
    "__version__",
    "arerank",
    "rerank",
    "set_threads",
]

# What runs models is imported on first use: a decision that needs none must not pay for them.
_LATER = {
    "CrossEncoder": "crossgate.reranking",
    "Embedder": "crossgate.embedding",
    "OnnxEmbedder": "crossgate.embedding",
    "PairScore": "crossgate.reranking",
    "PrecomputedVectors": "crossgate.embedding",
    "Reranker": "crossgate.reranking",
    "set_threads": "crossgate.onnx",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'crossgate' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return __all__
