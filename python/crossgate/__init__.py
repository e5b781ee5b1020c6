"""Decides which skill, tool or text chunk fits a query, offline, on a laptop CPU.

from crossgate import Document, Index, Router

index = Index.build([Document(id="pdf", text="Merge, split and fill PDF files")])
result = Router(index).route("join these two PDFs")
result.ids, result.reason
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the 8 ms of typing
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
    from crossgate._profile import read_policy, read_profile, write_profile
    from crossgate._rerank import arerank, rerank, rerank_many
    from crossgate._reranking.contract import PairScore, Reranker
    from crossgate._reranking.cross_encoder import CrossEncoder
    from crossgate._router import Router
    from crossgate._threads import set_threads
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

# A name is imported when it is first used: a decision pays for no model that it does not need, and
# the command line is there to answer a Ctrl-C before anything that takes time has begun.
_HOMES = {
    "_core": ["Policy", "Profile", "Scored", "__version__"],
    "_embedding": ["Embedder", "OnnxEmbedder", "PrecomputedVectors"],
    "_errors": [
        *("CalibrationError", "CrossgateError", "IndexFileError", "InputError", "ModelError"),
        *("PluginError", "ProfileError", "RerankerError", "SourceError"),
    ],
    "_index": ["Found", "Index"],
    "_profile": ["read_policy", "read_profile", "write_profile"],
    "_rerank": ["arerank", "rerank", "rerank_many"],
    "_reranking.contract": ["PairScore", "Reranker"],
    "_reranking.cross_encoder": ["CrossEncoder"],
    "_router": ["Router"],
    "_threads": ["set_threads"],
    "_types": [
        *("Candidate", "Degradation", "Document", "Hit", "Passage", "ResultWarning"),
        *("RouteResult", "Verdict"),
    ],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'crossgate' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"crossgate.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
