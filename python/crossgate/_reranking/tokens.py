"""Cuts texts to a number of tokens without the provider's tokenizer, which would be a download."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from crossgate._runtime.models.folder import locate
from crossgate._runtime.models.manifest import ROUTING_RERANKER

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# No language needs more characters per token on average; what lies beyond is not even looked at,
# since tokenising a book to keep a page of it would cost seconds.
_CHARACTERS_PER_TOKEN = 16
_UNKNOWN = "[UNK]"


def cut(text: str, most: int) -> tuple[str, bool]:
    """Return a text of at most so many tokens, and whether its end was cut off.

    Tokens are counted by the bundled WordPiece vocabulary of 30,522 pieces. The providers' larger
    vocabularies need fewer tokens for the same text, so the count errs on the safe side. A word
    that the vocabulary does not know counts as its UTF-8 bytes, of which no tokenizer makes more
    tokens than there are.

    Args:
        text: The text.
        most: The largest number of tokens; at least 1.
    """
    if len(text.encode()) <= most:
        return text, False
    start = text[: most * _CHARACTERS_PER_TOKEN]
    left = most
    for begin, end, tokens in _costs(start):
        if tokens > left:
            rest = start[begin:end].encode()[: left if tokens > 1 else 0].decode(errors="ignore")
            return start[:begin] + rest, True
        left -= tokens
    return start, len(start) < len(text)


def count(text: str, most: int) -> int:
    """Return the number of tokens of a text, counted as `cut` does, or some number above `most`."""
    size = len(text.encode())
    if size <= most // 2:
        return size
    if len(text) > most * _CHARACTERS_PER_TOKEN:
        return most + 1
    return sum(tokens for _, _, tokens in _costs(text))


def _costs(text: str) -> list[tuple[int, int, int]]:
    encoding: Encoding = _tokenizer().encode(text, add_special_tokens=False)
    return [
        (begin, end, len(text[begin:end].encode()) if token == _UNKNOWN else 1)
        for token, (begin, end) in zip(encoding.tokens, encoding.offsets, strict=True)
    ]


@cache
def _tokenizer() -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(locate(ROUTING_RERANKER, "cross-encoder").tokenizer))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
