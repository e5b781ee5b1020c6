"""Rerank scores of a query that are computed when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tqdm import tqdm

from crossgate._evaluation.runs.stored_runs import StoredQuery
from crossgate._reranking.contract import PairScore
from crossgate._support.errors import ModelError


class UnreadPairs(Mapping[str, PairScore]):
    """The rerank scores of a query's candidates by id, some of which are still to be read.

    It contains every candidate; the score of an unread one is computed on first access.

    Args:
        pairs: The scores that are known.
        unread: Ids of the other candidates.
        score: Returns the scores of candidates.
    """

    def __init__(
        self,
        pairs: Mapping[str, PairScore],
        unread: Collection[str],
        score: Callable[[Sequence[str]], Mapping[str, PairScore]],
    ) -> None:
        self._pairs, self._unread, self._score = dict(pairs), set(unread), score

    def read(self, ids: Sequence[str]) -> None:
        """Read those of some candidates that are unread, together, which takes less time.

        Raises:
            ModelError: `model_failed` if the reranker fails, or leaves a candidate without a score.
        """
        missing = [id for id in ids if id in self._unread]
        if not missing:
            return
        found = self._score(missing)
        if unscored := [id for id in missing if id not in found]:
            raise ModelError("model_failed", f"the reranker gave {unscored[0]!r} no score")
        self._pairs |= found
        self._unread.difference_update(missing)

    def __getitem__(self, id: str) -> PairScore:
        self.read([id])
        return self._pairs[id]

    def __contains__(self, id: object) -> bool:
        return id in self._pairs or id in self._unread

    def __iter__(self) -> Iterator[str]:
        yield from (*self._pairs, *self._unread)

    def __len__(self) -> int:
        return len(self._pairs) + len(self._unread)


def read_ahead(queries: Sequence[StoredQuery], candidates: int | None = None) -> None:
    """Read the first candidates of queries, or all, where that was left for later.

    Args:
        queries: Queries of a run.
        candidates: How many, in the order of `scored`; None for all.

    Raises:
        ModelError: As `UnreadPairs.read` does.
    """
    left = [query for query in queries if isinstance(query.pairs, UnreadPairs)]
    for query in tqdm(left, desc="reading", unit="", delay=0.5, leave=False, disable=None):
        if isinstance(query.pairs, UnreadPairs):
            query.pairs.read([scores.id for scores in query.scored[:candidates]])
