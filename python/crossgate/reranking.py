"""Stage-2 rerankers: a query and documents in, one logit per pair out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Protocol, runtime_checkable

from crossgate import models
from crossgate.errors import InputError, ModelError
from crossgate.models import ROUTING_RERANKER
from crossgate.onnx import OnnxModel, run_all

# Without room for at least this much of the document a pair says nothing about it.
_LEAST_DOCUMENT_PIECES = 16


@dataclass(frozen=True, slots=True)
class PairScore:
    """What a reranker says about one pair of query and document.

    Attributes:
        logit: Raw score, higher is better, without bounds. Comparable within one query and one
            model only.
        truncated: Whether the end of the document did not fit.
    """

    logit: float
    truncated: bool = False


@runtime_checkable
class Reranker(Protocol):
    """Anything that reads query and document together.

    Attributes:
        name: What the hits that it scored are stamped with.
        identity: Name and version of the model; a profile names the one it was fitted for.
    """

    @property
    def name(self) -> str:
        """What the hits that it scored are stamped with."""

    @property
    def identity(self) -> str:
        """Name and version of the model."""

    def score(self, query: str, documents: Sequence[str]) -> Sequence[PairScore]:
        """Return one score per document, in the order of the documents.

        Whatever it raises, the cascade goes on with the order of stage 1.
        """


class CrossEncoder:
    """A cross-encoder that runs on this machine; it is loaded when it is first used.

    Only the document is ever cut, at a word piece, and its score says so.

    Args:
        model: Name of a model, or a folder with `model.onnx` and `tokenizer.json`. The graph must
            return one number per pair.

    Raises:
        ModelError: If the model is unknown, missing or altered; see `crossgate.models.locate`.
    """

    def __init__(self, model: str | PathLike[str] = ROUTING_RERANKER) -> None:
        self._local = models.locate(model, "cross-encoder")
        self._lock = threading.Lock()
        self._model: OnnxModel | None = None

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._local.name

    @property
    def identity(self) -> str:
        """Name of the model with the hash of its weights."""
        return self._local.identity

    def score(self, query: str, documents: Sequence[str]) -> list[PairScore]:
        """Return one logit per document.

        Raises:
            InputError: `query_too_long` if the query leaves no room for the document.
            ModelError: `dependency_missing`, `model_unsupported` or `model_failed`.
        """
        model = self._loaded()
        asked = model.query(query)
        room = model.room(asked)
        if room < _LEAST_DOCUMENT_PIECES or model.clips(query):
            most = len(asked.ids) + room - _LEAST_DOCUMENT_PIECES
            raise InputError(
                "query_too_long",
                f"the query has {len(query):,} characters and {len(asked.ids)} word pieces, "
                f"{self.name} reads at most {most} pieces: pass the part that says what is wanted",
            )

        def one(document: str) -> PairScore:
            pieces = model.document(document)
            truncated = len(pieces.ids) > room or model.clips(document)
            pieces.truncate(room)
            output = model.run(model.join(asked, pieces))
            if output.size != 1:
                raise ModelError(
                    "model_unsupported",
                    f"model {self.name!r} returns {output.size} numbers per pair: a cross-encoder "
                    "returns one",
                )
            return PairScore(float(output.reshape(-1)[0]), truncated)

        return run_all(one, documents)

    def _loaded(self) -> OnnxModel:
        with self._lock:
            if self._model is None:
                self._model = OnnxModel(self._local)
            return self._model


_cache: dict[str, Reranker] = {}
_cache_lock = threading.Lock()


def load(model: str | PathLike[str]) -> Reranker:
    """Return the process's one reranker of a name or folder.

    A name is looked for among the models of the manifest, then among the plug-ins, and is the
    path of a folder only if neither knows it.

    Raises:
        ModelError: As `CrossEncoder` does, or `PluginError` for a plug-in that cannot be used.
    """
    with _cache_lock:
        key = str(model)
        if key not in _cache:
            _cache[key] = _plugin(model) or CrossEncoder(model)
        return _cache[key]


def _plugin(model: str | PathLike[str]) -> Reranker | None:
    if not isinstance(model, str) or models.is_known(model):
        return None
    from crossgate import plugins

    return plugins.load(model)
