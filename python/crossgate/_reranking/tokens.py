"""Token counts and limits of remote requests, by the bundled vocabulary."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from crossgate._runtime.model_files import ROUTING_RERANKER, locate

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# Upper bound of characters per token on average. Text beyond the bound is not tokenised, since
# tokenising a book to keep one page would cost seconds.
_CHARACTERS_PER_TOKEN = 16
_UNKNOWN = "[UNK]"


def cut(text: str, most: int) -> tuple[str, bool]:
    """Return a text of at most `most` tokens, and whether its end was cut off.

    Tokens are counted with the bundled WordPiece vocabulary of 30,522 pieces. Providers have larger
    vocabularies and need fewer tokens for the same text, so the count is an upper bound. An unknown
    word counts as its number of UTF-8 bytes, the most tokens that any tokenizer makes of it.

    Args:
        text: The text.
        most: Maximum number of tokens; at least 1.
    """
    if len(text.encode()) <= most:
        return text, False
    start = text[: most * _CHARACTERS_PER_TOKEN]
    left = most
    for begin, end, tokens in _costs(start):
        if tokens > left:
            rest = start[begin:end].encode()[:left].decode(errors="ignore")
            return start[:begin] + rest, True
        left -= tokens
    return start, len(start) < len(text)


def count(text: str, most: int) -> int:
    """Return the number of tokens of a text, counted as in `cut`, or any number above `most`."""
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
