"""Embedders of stage 1, which turn texts into vectors."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from os import PathLike
from typing import Any, Protocol, runtime_checkable

import crossgate._core as _core
from crossgate._runtime.model_files import (
    EMBEDDER,
    MULTILINGUAL,
    LoadedFiles,
    LocalModel,
    MappedFile,
    is_multilingual,
    locate,
)
from crossgate._runtime.threads import loading, run_all
from crossgate._support.errors import ModelError, raise_panic
from crossgate._support.limits import LANGUAGE_CHARS
from crossgate._values.results import Vector

# Share of the words with letters beyond ASCII from which a text is not English; 24 of our 14,700
# prompts have as many, and half of these are not English.
_FOREIGN = 0.1


@runtime_checkable
class Embedder(Protocol):
    """Anything that turns texts into vectors.

    Attributes:
        identity: Name and version of the model. An index stores it and refuses any other.
        dimension: Length of the vectors.
    """

    @property
    def identity(self) -> str:
        """Name and version of the model."""

    @property
    def dimension(self) -> int:
        """Length of the vectors."""

    def embed(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> Sequence[Vector]:
        """Return one vector of finite numbers per text; the scale does not matter.

        Args:
            texts: The texts; an embedder may cut a long text at its end.
            progress: Called with the number of texts done so far.
        """


class OnnxEmbedder:
    """A sentence-embedding model that runs on this machine; it is loaded when it is first used.

    A text that is longer than the model's maximum length is cut at its end. The bundled model
    runs in crossgate's own core, where a text has the same vector to the bit on every processor;
    any other runs in onnxruntime. With the extra `multilingual`, a text that is clearly in another
    language than English gets a vector of the same space from the model of the extra.

    Args:
        model: Name of a model (`multilingual` is the bundled one, and the extra must be installed),
            or a folder with `model.onnx` and `tokenizer.json`. A graph that
            returns one vector per token is mean-pooled.

    Raises:
        ModelError: If the model is unknown, missing or altered; see `crossgate.models.locate`.
    """

    def __init__(self, model: str | PathLike[str] = EMBEDDER) -> None:
        if model == MULTILINGUAL:
            locate(model, "embedder")
            model = EMBEDDER
        self._bundled = model == EMBEDDER
        self._local = locate(model, "embedder")
        self._run: Callable[[str], Sequence[float]] | None = None
        self._dimension = self._local.dimension

    @property
    def identity(self) -> str:
        """Name of the model with the hash of its weights."""
        return self._local.identity

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        if self._dimension is None:
            self._dimension = len(self.embed(["dimension"])[0])
        return self._dimension

    def embed(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[Sequence[float]]:
        """Return one float32 vector per text.

        Raises:
            ModelError: `dependency_missing`, `model_unsupported` or `model_failed`.
        """
        try:
            return run_all(self._loaded(), texts, progress)
        except BaseException as error:
            raise_panic(error, f"the embedder {self._local.name}")
            raise

    def need(self, vector: Vector) -> float | None:
        """Return the probability that a query asks for anything that a document could serve.

        A linear head over the query's vector estimates this; models/train_need.py fits it.

        Args:
            vector: The query's vector by this model.

        Returns:
            A probability in [0, 1]; None for a model that has no such head.

        Raises:
            InputError: `wrong_dimension`, `zero_vector` or `not_finite` for another vector.
        """
        if self._heads is None:
            return None
        head = self._heads["request"]
        return _core.needs_document(vector, head["intercept"], head["weights"])

    def asks(self, vector: Vector) -> float | None:
        """Return the probability that a query asks to read, and not to act.

        models/fit_questions.py fits the head.

        Args:
            vector: The query's vector by this model.

        Returns:
            As `need`.

        Raises:
            InputError: As `need`.
        """
        head = None if self._heads is None else self._heads.get("question")
        return head and _core.needs_document(vector, head["intercept"], head["weights"])

    def need_in_session(self, vector: Vector, form: Sequence[float]) -> float | None:
        """Return the probability that a prompt of a session with an agent needs any document.

        Most prompts of a session do not ("go on", "what did you change?"). The head of sessions
        reads the form of the prompt, too; models/train_session.py fits it.

        Args:
            vector: The vector of the request by this model.
            form: The four numbers of `_core.form`.

        Returns:
            As `need`.

        Raises:
            InputError: As `need`.
        """
        if self._heads is None:
            return None
        head = self._heads["session"]
        return _core.needs_document_in_session(
            vector, form, head["intercept"], head["weights"], head["form"]
        )

    def usefulness(self, vector: Vector, form: Sequence[float]) -> tuple[float, list[float]] | None:
        """Return how much a prompt of a session asks for what a document does.

        Most sessions ask for some skills whatever the prompt, and a failure asks for others than a
        plan. models/train_session.py fits the model.

        Args:
            vector: The vector of the request by this model.
            form: The four numbers of `_core.form`.

        Returns:
            Intercept and weights of a linear model over a document's vector; None for a model
            without such a head.

        Raises:
            InputError: As `need`.
        """
        if self._heads is None:
            return None
        head = self._heads["session"]["usefulness"]
        return head["intercept"], _core.usefulness_weights(vector, form, self._usefulness_model)

    @cached_property
    def _usefulness_model(self) -> bytes:
        assert self._heads is not None
        return b64decode(self._heads["session"]["usefulness"]["model"])

    @cached_property
    def _heads(self) -> dict[str, Any] | None:
        if self._local.need is None:
            return None
        heads: dict[str, Any] = json.loads(self._local.need.read_text(encoding="utf-8"))
        return heads

    def _loaded(self) -> Callable[[str], Sequence[float]]:
        if self._run is not None:
            return self._run
        with loading():
            if self._run is None:
                local = self._local
                if self._bundled:
                    files, mapped = LoadedFiles(local), MappedFile(local.model)
                    core = _core.Embedder(local.model, local.tokenizer, local.max_length)

                    def embed(text: str) -> Sequence[float]:
                        files.check()
                        mapped.check()
                        return core.embed(text)

                    self._run = _by_language(embed) if is_multilingual() else embed
                else:
                    self._run = _by_onnxruntime(local)
            return self._run


def is_english(text: str) -> bool:
    """Return whether a text seems to be English rather than in another language.

    Short texts have few function words, so letters beyond ASCII count as well.
    """
    start = text[:LANGUAGE_CHARS]
    if _core.language(start) not in (None, "English"):
        return False
    words = start.split()
    foreign = sum(any(c.isalpha() and not c.isascii() for c in word) for word in words)
    return not foreign or foreign < _FOREIGN * len(words)


def _by_language(english: Callable[[str], Sequence[float]]) -> Callable[[str], Sequence[float]]:
    """Return what embeds other languages with the model of the extra, loaded when it is needed."""

    @cache
    def others() -> Callable[[str], Sequence[float]]:
        return _by_onnxruntime(locate(MULTILINGUAL, "embedder"))

    def embed(text: str) -> Sequence[float]:
        if is_english(text):
            return english(text)
        with loading():
            run = others()
        return run(text)

    return embed


def _by_onnxruntime(local: LocalModel) -> Callable[[str], Sequence[float]]:
    from crossgate._runtime.onnx import OnnxModel

    model = OnnxModel(local)
    import numpy

    def embed(text: str) -> Sequence[float]:
        tokenizer = model.tokenizer
        pieces = tokenizer.pieces(text, local.max_length - tokenizer.single.size)
        result = model.run(tokenizer.single.around(pieces))
        shape = result.shape
        if len(shape) not in (2, 3) or shape[0] != 1 or 0 in shape:
            raise ModelError(
                "model_unsupported",
                f"model {local.name!r} returns numbers of shape {list(shape)} for a text: an "
                "embedder returns one vector per text or per token",
            )
        output = numpy.array(result.values, numpy.float32).reshape(-1, shape[-1])
        vector: Sequence[float] = output.mean(axis=0) if len(shape) == 3 else output[0]
        return vector

    return embed


class PrecomputedVectors:
    """Describes an embedder that runs elsewhere: callers pass vectors with documents and queries.

    Args:
        identity: Name and version of the model that makes the vectors.
        dimension: Length of the vectors.
    """

    def __init__(self, identity: str, dimension: int) -> None:
        self.identity = identity
        self.dimension = dimension

    def embed(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> Sequence[Sequence[float]]:
        """Raise, since this class has no model.

        Raises:
            ModelError: `model_missing`, always.
        """
        raise ModelError(
            "model_missing",
            f"vectors of {self.identity!r} are computed elsewhere: pass a vector with each text",
        )
