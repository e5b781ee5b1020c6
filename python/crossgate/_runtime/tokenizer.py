"""`Tokenizer`: from texts to word pieces, and from word pieces to the input of a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from crossgate._core import WordPieces
from crossgate._support.errors import raise_panic

if TYPE_CHECKING:
    from pathlib import Path

    import tokenizers

    from crossgate._runtime.model_files import LocalModel

# A word piece has far fewer characters on average. Text beyond this many characters per piece
# cannot reach the model, and tokenising it would cost seconds.
_CHARACTERS_PER_PIECE = 64

_Encode = Callable[[str, int], list[int]]


class Input(NamedTuple):
    """The tokens that a model reads at once.

    Attributes:
        ids: The id of each token in the vocabulary.
        segments: For each token, the number of its text as the model counts them ("token type").
    """

    ids: list[int]
    segments: list[int]


class Frame(NamedTuple):
    """What a model reads besides the texts.

    Attributes:
        special: The tokens before, between and after the texts.
        segments: The segment of each text.
    """

    special: tuple[Input, ...]
    segments: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of special tokens."""
        return sum(len(part.ids) for part in self.special)

    def around(self, *texts: Sequence[int]) -> Input:
        """Return the input for texts, given as the ids of their word pieces."""
        first, *rest = self.special
        ids, segments = list(first.ids), list(first.segments)
        for text, segment, special in zip(texts, self.segments, rest, strict=True):
            ids += [*text, *special.ids]
            segments += [*[segment] * len(text), *special.segments]
        return Input(ids, segments)


class Tokenizer:
    """The tokenizer of a model; safe to share between threads.

    Bundled models use the tokenizer of the core. Other models use the package `tokenizers`, which
    takes 17 MiB of memory.

    Args:
        local: The verified files.

    Attributes:
        single: What surrounds a text.
        pair: What surrounds a query and a document.

    Raises:
        ImportError: The model needs the package, and it cannot be imported.
        Exception: The file is not a tokenizer. The package raises no class of its own.
    """

    def __init__(self, local: LocalModel) -> None:
        self._local = local
        self._prefix: list[int] = []
        if local.bundled:
            self._encode, self.single, self.pair = _of_core(local.tokenizer)
            return
        try:
            self._load(local)
        except BaseException as error:
            raise_panic(error, f"the tokenizer of model {local.name!r}")
            raise

    def _load(self, local: LocalModel) -> None:
        """Load the tokenizer of a model that is not bundled."""
        tokenizer = _of_package(local.tokenizer)
        if local.template is None:
            self._encode = _encoder(tokenizer)
            self.single, self.pair = _frame(tokenizer, 1), _frame(tokenizer, 2)
        else:
            # Special tokens count in the template, and are plain text in queries and documents.
            special = _encoder(tokenizer)
            plain = _of_package(local.tokenizer)
            plain.encode_special_tokens = True
            self._encode = _encoder(plain)
            self._prefix = special(local.template.prefix, sys.maxsize)
            self.single, self.pair = _templates(special(local.template.suffix, sys.maxsize))

    def clips(self, text: str) -> bool:
        """Return whether a text is too long to be tokenised whole."""
        return len(text) > self._local.max_length * _CHARACTERS_PER_PIECE

    def pieces(self, text: str, most: int = sys.maxsize) -> list[int]:
        """Return the first `most` word pieces of a text, or of its start if it is too long."""
        return self._pieces_of(text[: self._local.max_length * _CHARACTERS_PER_PIECE], most)

    def ends(self, text: str, most: int) -> list[int]:
        """Return the first and the last word pieces of a text, `most` of them in all.

        The text must have more pieces than that.
        """
        size = most * _CHARACTERS_PER_PIECE
        last = self._pieces_of(text[-size:], sys.maxsize)
        unread = max(len(last) - most // 2, 0)
        return self._pieces_of(text[:size], most - most // 2) + last[unread:]

    def _pieces_of(self, text: str, most: int) -> list[int]:
        # A regular expression of a tokenizer can exceed the limits of its engine.
        try:
            return self._encode(text, most)
        except BaseException as error:
            raise_panic(error, f"the tokenizer of model {self._local.name!r}")
            raise

    def query(self, text: str) -> list[int]:
        """Return the word pieces of a pair's first part: the query with the template's prefix.

        If the model has a `query_length`, only the beginning of the query is read.
        """
        template = self._local.template
        if template is not None:
            return self._prefix + self.pieces(template.body.replace("{query}", text))
        return self.pieces(text, self._local.query_length or sys.maxsize)

    def document(self, text: str, most: int) -> list[int]:
        """Return the first `most` word pieces of a pair's second part."""
        # The tokenizers of models with templates read the space as the start of a word.
        return self.pieces(text if self._local.template is None else " " + text, most)


def _of_core(path: Path) -> tuple[_Encode, Frame, Frame]:
    pieces = WordPieces(path)
    start, end = Input([pieces.first], [0]), Input([pieces.last], [0])
    second = Input([pieces.last], [1])
    return pieces.ids, Frame((start, end), (0,)), Frame((start, end, second), (0, 1))


def _of_package(path: Path) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer as PackageTokenizer

    tokenizer = PackageTokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _encoder(tokenizer: tokenizers.Tokenizer) -> _Encode:
    def encode(text: str, most: int) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids[:most]

    return encode


def _frame(tokenizer: tokenizers.Tokenizer, texts: int) -> Frame:
    """Return what a tokenizer adds to this many texts, as it shows with texts of one letter."""
    letter = tokenizer.encode("a", add_special_tokens=False)
    if not letter.ids:
        raise ValueError("its tokenizer has no word piece for the letter a")
    whole = tokenizer.post_process(letter, letter if texts == 2 else None)
    special = [Input([], []) for _ in range(texts + 1)]
    segments = [0] * texts
    read = 0
    for id, segment, is_added in zip(
        whole.ids, whole.type_ids, whole.special_tokens_mask, strict=True
    ):
        if is_added:
            part = special[read // len(letter.ids)]
            part.ids.append(id)
            part.segments.append(segment)
        else:
            segments[read // len(letter.ids)] = segment
            read += 1
    return Frame(tuple(special), tuple(segments))


def _templates(suffix: list[int]) -> tuple[Frame, Frame]:
    """Return what follows one text or a pair in a template, whose prefix is part of the query."""
    nothing, end = Input([], []), Input(suffix, [0] * len(suffix))
    return Frame((nothing, end), (0,)), Frame((nothing, nothing, end), (0, 0))
