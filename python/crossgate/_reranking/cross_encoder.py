"""`CrossEncoder`: a local model that computes one logit per pair of query and passage."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from crossgate._reranking.contract import NO_DEADLINE, Deadline, Enough, PairScore, Scores
from crossgate._runtime.model_files import ROUTING_RERANKER, locate
from crossgate._runtime.onnx import OnnxModel
from crossgate._runtime.threads import loading, run_all, run_prefix, run_until
from crossgate._support.errors import InputError, ModelError
from crossgate._support.wording import counted, share_of
from crossgate._values.results import Degradation, Passage

if TYPE_CHECKING:
    from crossgate._runtime.tokenizer import Input

# Pairs of equal length that run together, and the word pieces up to which that is faster.
_PAIRS_PER_RUN = 4
_LONGEST_TOGETHER = 64

# Word pieces of the passage that a pair must have room for, to score the passage at all.
_LEAST_PASSAGE_PIECES = 16


class CrossEncoder:
    """A cross-encoder that runs on this machine, loaded on first use.

    A pair that is too long is cut at the end of the passage, and its score is marked as truncated.
    The query is read whole, unless the model was trained on the beginnings of queries.

    Args:
        model: Name of a model, or a folder with `model.onnx` and `tokenizer.json`. The graph must
            return one number per pair.

    Raises:
        ModelError: If the model is unknown, missing or altered; see `crossgate.models.locate`.
    """

    stops_in_time = True

    def __init__(self, model: str | PathLike[str] = ROUTING_RERANKER) -> None:
        self._local = locate(model, "cross-encoder")
        self._model: OnnxModel | None = None

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._local.name

    @property
    def identity(self) -> str:
        """Name of the model with the hash of its weights."""
        return self._local.identity

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline = NO_DEADLINE
    ) -> Scores:
        """Return one logit per passage, or, if time runs out, for the first passages only.

        The scored passages are always a prefix, whichever thread is faster. Loading the model
        counts as part of the time, and cannot be interrupted.

        Args:
            query: The query.
            passages: The passages, most promising first.
            deadline: When to stop.

        A query that takes more than half of the model's input is cut to its beginning and end.

        Raises:
            InputError: `query_too_long` if the query is put into a template and leaves no room for
                the passage.
            ModelError: `dependency_missing`, `model_unsupported` or `model_failed`.
        """
        if deadline.left is None and self._local.bundled:
            return Scores(self._score_together(query, _texts(passages)))
        scored = run_until(self._scorer(query), _texts(passages), _until(deadline))
        return self._scores(scored, passages)

    def _score_together(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """Score all texts, several of equal length in one run."""
        inputs = run_all(self._reader(query), texts)
        parts = together([len(pair.ids) for pair, _ in inputs])
        logits = run_all(lambda part: self._logits(*(inputs[place][0] for place in part)), parts)
        scores = {
            place: score
            for part, values in zip(parts, logits, strict=True)
            for place, score in zip(part, values, strict=True)
        }
        return [PairScore(scores[place], cut) for place, (_, cut) in enumerate(inputs)]

    def score_until(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline, enough: Enough
    ) -> Scores:
        """Like `score`, but stop after the first passages for which `enough` returns True.

        Raises:
            InputError: As `score` does.
            ModelError: As `score` does.
        """
        stopped = False

        def stop(scored: Sequence[PairScore]) -> bool:
            nonlocal stopped
            stopped = enough(scored)
            return stopped

        scored = run_prefix(self._scorer(query), _texts(passages), _until(deadline), stop)
        if stopped:
            missing = len(passages) - len(scored)
            return Scores([*scored, *[None] * missing], stopped=True)
        return self._scores(scored, passages)

    def _scores(self, scored: list[PairScore], passages: Sequence[Passage]) -> Scores:
        missing = len(passages) - len(scored)
        if not missing:
            return Scores(scored)
        why = Degradation(
            code="budget",
            detail=f"{self.name} had time for {share_of(len(scored), len(passages), 'passage')}: "
            "raise budget_ms, or call warm_up first",
        )
        return Scores([*scored, *[None] * missing], why)

    def cuts(self, query: str) -> bool:
        """Return whether the query is cut to its beginning and end.

        Raises:
            ModelError: `dependency_missing` or `model_unsupported`.
        """
        if len(query) <= self._most_query_pieces or not self._reads_whole_queries:
            return False
        tokenizer = self._loaded().tokenizer
        most = self._most_query_pieces
        return tokenizer.clips(query) or len(tokenizer.pieces(query, most + 1)) > most

    @property
    def _most_query_pieces(self) -> int:
        return self._local.max_length // 2

    @property
    def _reads_whole_queries(self) -> bool:
        return self._local.query_length is None and self._local.template is None

    def _scorer(self, query: str) -> Callable[[str], PairScore]:
        read = self._reader(query)

        def score(text: str) -> PairScore:
            pair, truncated = read(text)
            return PairScore(self._logits(pair)[0], truncated)

        return score

    def _logits(self, *inputs: Input) -> list[float]:
        """Return the logits of inputs of equal length."""
        logits = self._loaded().run(*inputs).values
        if len(logits) != len(inputs):
            raise ModelError(
                "model_unsupported",
                f"model {self.name!r} returns {counted(len(logits), 'number')} for "
                f"{counted(len(inputs), 'pair')}, not one per pair: it is not a cross-encoder",
            )
        return list(logits)

    def _reader(self, query: str) -> Callable[[str], tuple[Input, bool]]:
        """Return a function from a text to the input of its pair, and whether it was cut."""
        tokenizer = self._loaded().tokenizer
        if self.cuts(query):
            query_pieces = tokenizer.ends(query, self._most_query_pieces)
        else:
            query_pieces = tokenizer.query(query)
        room = self._local.max_length - tokenizer.pair.size - len(query_pieces)
        read_whole = self._local.query_length is None
        if room < _LEAST_PASSAGE_PIECES or (
            read_whole and self._local.template is not None and tokenizer.clips(query)
        ):
            most = len(query_pieces) + room - _LEAST_PASSAGE_PIECES
            if most < 1:
                raise ModelError(
                    "model_unsupported",
                    f"model {self.name!r} reads at most "
                    f"{counted(self._local.max_length, 'word piece')}, too "
                    "few for a query and a passage; see model_max_length in tokenizer_config.json",
                )
            raise InputError(
                "query_too_long",
                f"the query has {counted(len(query), 'character')} and "
                f"{counted(len(query_pieces), 'word piece')}, and "
                f"{self.name} reads at most {most}: pass only the part with the request",
            )

        def read(text: str) -> tuple[Input, bool]:
            pieces = tokenizer.document(text, room + 1)
            truncated = len(pieces) > room or tokenizer.clips(text)
            return tokenizer.pair.around(query_pieces, pieces[:room]), truncated

        return read

    def _loaded(self) -> OnnxModel:
        if self._model is not None:
            return self._model
        with loading():
            if self._model is None:
                self._model = OnnxModel(self._local)
            return self._model


def together(lengths: Sequence[int]) -> list[list[int]]:
    """Return the positions of inputs that run together: short ones of equal length.

    The longest runs come first, so that the threads end at about the same time.
    """
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, length in enumerate(lengths):
        places[length].append(place)
    runs = []
    for length, equal in places.items():
        step = _PAIRS_PER_RUN if length <= _LONGEST_TOGETHER else 1
        runs += [equal[first : first + step] for first in range(0, len(equal), step)]
    return sorted(runs, key=lambda run: -len(run) * lengths[run[0]])


def _texts(passages: Sequence[Passage]) -> list[str]:
    return [passage.text for passage in passages]


def _until(deadline: Deadline) -> float | None:
    left = deadline.left
    return None if left is None else time.monotonic() + left
