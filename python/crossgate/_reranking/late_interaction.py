"""Late interaction: a vector per token, made once per document, and matched token by token.

    encoder = OnnxTokenEncoder("models/colbert")
    reranker = LateInteraction(encoder, int8=True)
    reranker.prepare(document.content for document in documents)  # once; costs memory, saves time
    rerank(query, documents, reranker=reranker)

It stands between embedder and cross-encoder: queries and documents are read apart, so that
documents can be read beforehand, and yet each word of the query finds its own best match.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import crossgate._core as _core
from crossgate._clock import ENDLESS, Deadline
from crossgate._errors import InputError, ModelError
from crossgate._model_files.folder import locate
from crossgate._onnx import OnnxModel
from crossgate._reranking.contract import PairScore
from crossgate._threads import run_all
from crossgate._types import Passage

if TYPE_CHECKING:
    from tokenizers import Encoding

Matrix = Sequence[Sequence[float]]
"""One row of numbers per token, all rows equally wide; a two-dimensional array will do."""


@runtime_checkable
class TokenEncoder(Protocol):
    """Anything that turns texts into one vector per token.

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

    def encode_query(self, text: str) -> Matrix:
        """Return the token vectors of a query, of shape (tokens, dimension)."""

    def encode_documents(self, texts: Sequence[str]) -> Sequence[Matrix]:
        """Return the token vectors of each document, of shape (tokens, dimension)."""


class LateInteraction:
    """A reranker by MaxSim: the sum over the query's tokens of their best cosine in the document.

    Token vectors that were made are kept in memory, by the text that they belong to. Threads may
    share it.

    Args:
        encoder: What makes the token vectors.
        int8: Whether they are kept and compared in 8 bits, a quarter of the memory.
    """

    def __init__(self, encoder: TokenEncoder, *, int8: bool = False) -> None:
        self._encoder = encoder
        self._int8 = int8
        self._kept: dict[str, _core.TokenVectors] = {}

    @property
    def name(self) -> str:
        """Name of the encoder's model."""
        return self._encoder.name

    @property
    def identity(self) -> str:
        """Identity of the encoder's model, and whether its vectors are kept in 8 bits."""
        return f"{self._encoder.identity}+int8" if self._int8 else self._encoder.identity

    @property
    def nbytes(self) -> int:
        """Memory that the kept token vectors take, in bytes, texts not counted."""
        return sum(one.nbytes for one in list(self._kept.values()))

    def prepare(self, documents: Iterable[str]) -> None:
        """Make and keep the token vectors of documents.

        Args:
            documents: The texts that `score` will read, for a document its `content`.

        Raises:
            InputError: `wrong_dimension`, `not_finite` or `zero_vector` for token vectors that
                have no direction, naming the document's place among the new ones.
            ModelError: If the encoder's model cannot be loaded or run.
        """
        new = [text for text in dict.fromkeys(documents) if text not in self._kept]
        if not new:
            return
        made = self._encoder.encode_documents(new)
        if len(made) != len(new):
            raise ModelError(
                "model_failed",
                f"the encoder {self.identity} returned {len(made)} matrices for {len(new)} texts",
            )
        for place, (text, matrix) in enumerate(zip(new, made, strict=True), start=1):
            self._kept[text] = self._vectors(matrix, f"document {place}")

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline = ENDLESS
    ) -> list[PairScore]:
        """Return one MaxSim per passage, in [-n, n] for a query of n tokens.

        Raises:
            InputError: As `prepare` does, and where query and passages differ in width.
            ModelError: If the encoder's model cannot be loaded or run.
        """
        asked = self._vectors(self._encoder.encode_query(query), "the query")
        self.prepare(one.text for one in passages)
        sums = _core.max_similarities(asked, [self._kept[one.text] for one in passages])
        return [PairScore(one) for one in sums]

    def _vectors(self, matrix: Matrix, owner: str) -> _core.TokenVectors:
        made = _core.TokenVectors(matrix, owner=owner)
        return made.to_int8() if self._int8 else made


class PrecomputedTokens:
    """Stands for a token encoder that runs elsewhere: looks matrices up by their text.

    Args:
        identity: Name and version of the model that made them.
        queries: Token vectors by query.
        documents: Token vectors by document, under the text that scorers read (`content`).
    """

    def __init__(
        self, identity: str, queries: Mapping[str, Matrix], documents: Mapping[str, Matrix]
    ) -> None:
        self.identity = identity
        self.name = identity.partition("@")[0]
        self._queries = queries
        self._documents = documents

    def encode_query(self, text: str) -> Matrix:
        """Return the matrix of a query.

        Raises:
            InputError: `malformed_candidate` if there is none.
        """
        return self._found("query", text, self._queries)

    def encode_documents(self, texts: Sequence[str]) -> list[Matrix]:
        """Return the matrix of each document.

        Raises:
            InputError: `malformed_candidate` if there is none for one of them.
        """
        return [self._found("document", text, self._documents) for text in texts]

    def _found(self, what: str, text: str, matrices: Mapping[str, Matrix]) -> Matrix:
        if text not in matrices:
            raise InputError(
                "malformed_candidate",
                f"no token vectors of {self.identity} for the {what} {text[:40]!r}: "
                "pass them along",
            )
        return matrices[text]


class OnnxTokenEncoder:
    """A ColBERT-like model that runs on this machine; it is loaded when it is first used.

    The graph must return one vector per token. The end of a text that does not fit is left out.

    Args:
        model: A folder with `model.onnx` and `tokenizer.json`.
        query_marker: Token that is put behind the first special one of a query, `[unused0]` in
            ColBERT; None for no marker.
        document_marker: The same for a document, `[unused1]` in ColBERT.
        query_length: Queries are filled up with `[MASK]` to this many tokens, 32 in ColBERT, so
            that the model can add words of its own; None to leave them as they are.

    Raises:
        ModelError: If the folder lacks a file.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        query_marker: str | None = None,
        document_marker: str | None = None,
        query_length: int | None = None,
    ) -> None:
        self._local = locate(model, "embedder")
        self._query_marker = query_marker
        self._document_marker = document_marker
        self._query_length = query_length
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

    def encode_query(self, text: str) -> Matrix:
        """Return float32 token vectors of shape (tokens, dimension).

        Raises:
            ModelError: `dependency_missing`, `model_unsupported` or `model_failed`.
        """
        return self._encode(text, self._query_marker, self._query_length)

    def encode_documents(self, texts: Sequence[str]) -> list[Matrix]:
        """Return float32 token vectors of shape (tokens, dimension) per document.

        Raises:
            ModelError: `dependency_missing`, `model_unsupported` or `model_failed`.
        """
        return run_all(lambda text: self._encode(text, self._document_marker, None), texts)

    def _encode(self, text: str, marker: str | None, length: int | None) -> Matrix:
        model = self._loaded()
        pieces = model.pieces(text)
        pieces.truncate(model.room() - (marker is not None))
        tokens = _Tokens.of(model.join(pieces))
        if marker is not None:
            tokens.insert(1, self._id(model, marker))
        for _ in range(len(tokens.ids), length or 0):
            # ColBERT gives them no attention, but takes what the model makes of them.
            tokens.insert(len(tokens.ids), self._id(model, "[MASK]"), attention=0)
        output: Any = model.run(tokens)
        if output.ndim != 3:
            raise ModelError(
                "model_unsupported",
                f"model {self.name!r} returns {output.ndim} dimensions: late interaction needs "
                "one vector per token",
            )
        matrix: Matrix = output[0]
        return matrix

    def _id(self, model: OnnxModel, token: str) -> int:
        found = model.token_id(token)
        if found is None:
            raise ModelError(
                "model_unsupported", f"the tokenizer of model {self.name!r} has no token {token!r}"
            )
        return found

    def _loaded(self) -> OnnxModel:
        with self._lock:
            if self._model is None:
                self._model = OnnxModel(self._local)
            return self._model


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The columns of an input, which an encoding does not let one change."""

    ids: list[int]
    attention_mask: list[int]
    type_ids: list[int]

    @classmethod
    def of(cls, encoding: Encoding) -> _Tokens:
        return cls(list(encoding.ids), list(encoding.attention_mask), list(encoding.type_ids))

    def insert(self, place: int, id: int, *, attention: int = 1) -> None:
        self.ids.insert(place, id)
        self.attention_mask.insert(place, attention)
        self.type_ids.insert(place, 0)
