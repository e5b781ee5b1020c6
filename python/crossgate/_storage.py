"""What documents and their vectors take, and what vectors per token would take."""

from __future__ import annotations

from collections.abc import Iterable

import crossgate._core as _core
from crossgate._types import Document

TOKEN_DIMENSION = 128
"""How many numbers a token vector has in ColBERT, which most models of its kind follow."""

_FLOAT, _BYTE = 4, 1


def storage(documents: Iterable[Document], dimension: int) -> dict[str, int]:
    """Return bytes by kind, without any index structure around them.

    Late interaction keeps a vector per token. How many tokens a text has is up to a model; here a
    token is a word, of which a model makes at least one, so that the estimate is a low one.

    Args:
        documents: The documents.
        dimension: Length of the vectors, one per document; 0 if there are none.

    Returns:
        `texts` in UTF-8, bodies included, `vectors` in float32, `words` as a count, and
        `token_vectors_float32` and `token_vectors_int8` (with a scale of 4 bytes per token) for
        128 numbers per word.
    """
    contents = [f"{one.content}\n{one.body}" if one.body else one.content for one in documents]
    words = sum(len(_core.analyze(text, "none")) for text in contents)
    return {
        "texts": sum(len(text.encode()) for text in contents),
        "vectors": len(contents) * dimension * _FLOAT,
        "words": words,
        "token_vectors_float32": words * TOKEN_DIMENSION * _FLOAT,
        "token_vectors_int8": words * (TOKEN_DIMENSION * _BYTE + _FLOAT),
    }
