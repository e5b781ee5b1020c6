"""Decides which skill, tool or text chunk fits a query, offline, on a laptop CPU.

from crossgate import Document, Index, Router

index = Index.build([Document(id="pdf", text="Merge, split and fill PDF files")])
result = Router(index).route("join these two PDFs")
result.ids, result.reason
"""

from __future__ import annotations

TYPE_CHECKING = (
    False  # as type checkers know it; importing `typing` would take longer than all else
)

if TYPE_CHECKING:
    from crossgate._core import Policy, Profile, Scored, __version__
    from crossgate._embedding import Embedder, OnnxEmbedder, PrecomputedVectors
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
    from crossgate._onnx import set_threads
    from crossgate._profile import read_policy, read_profile, write_profile
    from crossgate._rerank import arerank, rerank, rerank_many
    from crossgate._reranking.contract import PairScore, Reranker
    from crossgate._reranking.cross_encoder import CrossEncoder
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

# Each name is imported on first use. Models are not paid for by a decision that needs none, and the
# command line is there to answer a Ctrl-C before anything that takes time has begun.
_MODULES = {
    "CalibrationError": "crossgate._errors",
    "Candidate": "crossgate._types",
    "CrossEncoder": "crossgate._reranking.cross_encoder",
    "CrossgateError": "crossgate._errors",
    "Degradation": "crossgate._types",
    "Document": "crossgate._types",
    "Embedder": "crossgate._embedding",
    "Found": "crossgate._index",
    "Hit": "crossgate._types",
    "Index": "crossgate._index",
    "IndexFileError": "crossgate._errors",
    "InputError": "crossgate._errors",
    "ModelError": "crossgate._errors",
    "OnnxEmbedder": "crossgate._embedding",
    "PairScore": "crossgate._reranking.contract",
    "Passage": "crossgate._types",
    "PluginError": "crossgate._errors",
    "Policy": "crossgate._core",
    "PrecomputedVectors": "crossgate._embedding",
    "Profile": "crossgate._core",
    "ProfileError": "crossgate._errors",
    "Reranker": "crossgate._reranking.contract",
    "RerankerError": "crossgate._errors",
    "ResultWarning": "crossgate._types",
    "RouteResult": "crossgate._types",
    "Router": "crossgate._router",
    "Scored": "crossgate._core",
    "SourceError": "crossgate._errors",
    "Verdict": "crossgate._types",
    "__version__": "crossgate._core",
    "arerank": "crossgate._rerank",
    "read_policy": "crossgate._profile",
    "read_profile": "crossgate._profile",
    "rerank": "crossgate._rerank",
    "rerank_many": "crossgate._rerank",
    "set_threads": "crossgate._onnx",
    "write_profile": "crossgate._profile",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'crossgate' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
