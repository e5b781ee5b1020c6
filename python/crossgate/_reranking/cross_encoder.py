"""Stage-2 rerankers: a query and documents in, one logit per pair out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Protocol, runtime_checkable

from crossgate._errors import InputError, ModelError, TierError
from crossgate._model_files import models
from crossgate._model_files.models import ROUTING_RERANKER
from crossgate._onnx import OnnxModel, run_all, run_until
from crossgate._reranking.budget import Pace
from crossgate._types import Degradation

# Without room for at least this much of the document a pair says nothing about it.
_LEAST_DOCUMENT_PIECES = 16
# One score alone orders nothing.
LEAST_PAIRS = 2
# Milliseconds per pair of a local model, before its own pace is known.
LOCAL_MS_PER_PAIR = 10.0


@dataclass(frozen=True, slots=True)
class PairScore:
    """What a reranker says about one pair of query and document.

    Attributes:
        logit: Raw score, higher is better, without bounds; of a remote tier its own score, usually
            in [0, 1]. Comparable within one query and one model only.
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


@dataclass(frozen=True, slots=True)
class Scores:
    """What a reranker could say within its time.

    Attributes:
        pairs: One score per document, in the order of the documents; None for one without.
        missing: Why some have none; None where all have one.
    """

    pairs: Sequence[PairScore | None]
    missing: Degradation | None = None


@runtime_checkable
class TimedReranker(Reranker, Protocol):
    """A reranker that can stop in time."""

    def score_within(self, query: str, documents: Sequence[str], seconds: float | None) -> Scores:
        """Score as many documents as fit into so many seconds, the first ones first.

        Raises:
            TierError: `budget` if too few do.
        """


@runtime_checkable
class AsyncReranker(TimedReranker, Protocol):
    """A reranker that waits for something other than this processor."""

    async def ascore_within(
        self, query: str, documents: Sequence[str], seconds: float | None
    ) -> Scores:
        """Do what `score_within` does; cancelling it leaves nothing behind."""


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
        self.pace = Pace(ms_per_pair=LOCAL_MS_PER_PAIR)
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
        return run_all(self._scorer(query), documents)

    def score_within(self, query: str, documents: Sequence[str], seconds: float | None) -> Scores:
        """Return one logit per document, or, where time runs out, one for each of the first ones.

        What is scored is always a prefix: which documents have a logit depends on how far the time
        went, never on which thread was faster. Loading the model counts, and cannot be cut short.

        Args:
            query: What is wanted.
            documents: What to read, the most promising first.
            seconds: When to stop, counted from now; None for never.

        Raises:
            InputError: `query_too_long` if the query leaves no room for the document.
            ModelError: `dependency_missing`, `model_unsupported` or `model_failed`.
            TierError: `budget` if there is no time for two pairs, or for the one that there is.
        """
        least = min(LEAST_PAIRS, len(documents))
        until = None if seconds is None else time.monotonic() + seconds
        check_pace(self.name, self.pace, least, seconds)
        scorer = self._scorer(query)
        start = time.monotonic()
        scored = run_until(scorer, documents, until)
        self.pace.observe(len(scored), (time.monotonic() - start) * 1000)
        if len(scored) == len(documents):
            return Scores(scored)
        message = f"{self.name} had time for {len(scored)} of {len(documents)} documents"
        if len(scored) < least:
            raise TierError("budget", f"{message}: raise budget_ms, or call warm_up first")
        rest = [None] * (len(documents) - len(scored))
        return Scores([*scored, *rest], Degradation(code="budget", detail=message))

    def _scorer(self, query: str) -> Callable[[str], PairScore]:
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

        return one

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


def check_pace(name: str, pace: Pace, pairs: int, seconds: float | None) -> None:
    """Refuse a call for which there is too little time.

    Raises:
        TierError: `budget`, with what the call needs and what there is.
    """
    needed = pace.floor_ms(pairs)
    if seconds is not None and needed > seconds * 1000:
        pace.forget()
        raise TierError(
            "budget",
            f"{name} needs {needed:.0f} ms for {pairs} documents, and {seconds * 1000:.0f} ms are "
            "left for it",
        )


def _plugin(model: str | PathLike[str]) -> Reranker | None:
    if not isinstance(model, str) or models.is_known(model):
        return None
    from crossgate._reranking import plugins

    return plugins.load(model)
