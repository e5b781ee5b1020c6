"""crossgate on top of LanceDB: a search function, and a reranker for LanceDB's own queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from crossgate._decision.rerank_candidates import rerank
from crossgate._support.errors import InputError
from crossgate.stores import _store_rows as common

if TYPE_CHECKING:
    import pyarrow
    from lancedb.rerankers import Reranker, RRFReranker
    from lancedb.table import Table

    from crossgate._values.results import RouteResult
else:
    rerankers = common.package("lancedb.rerankers", "lancedb")
    Reranker, RRFReranker = rerankers.Reranker, rerankers.RRFReranker

_SCORE = "_relevance_score"
_INTERNAL = {"_distance", "_score", "_rowid", _SCORE}


def search(
    table: Table,
    query: str,
    *,
    vector: Sequence[float] | None = None,
    embedding: str = "vector",
    id: str = "id",
    text: str = "text",
    title: str | None = None,
    words: bool = True,
    where: str | None = None,
    candidates: int = common.CANDIDATES,
    limit: int | None = None,
    **options: Any,
) -> RouteResult:
    """Search by vector and by words, and select the fitting rows with `crossgate.rerank`.

    Args:
        table: A table of an open database.
        query: The query.
        vector: Its embedding by the model that made the vectors; None to search by words alone.
        embedding: Column of the vectors.
        id: Column of the id.
        text: Column of the text; the other columns become metadata.
        title: Column of the title, or None.
        words: Whether to search by words too, which needs a full-text index on `text`.
        where: LanceDB's filter. It is SQL: never put untrusted text into it.
        candidates: How many rows each of the two channels finds, at least 1.
        limit: Maximum number to select; None for all that pass.
        options: Further arguments of `crossgate.rerank`, such as `profile`.

    Raises:
        InputError: As `crossgate.rerank`; `out_of_range` if neither words nor a vector are given.
        Exception: Any error of LanceDB, such as for a missing column.
    """
    common.check_search(query, vector, candidates, limit)
    builders: list[Any] = []
    if vector is not None:
        builders.append(table.search(common.numbers(vector), vector_column_name=embedding))
    if words:
        # Not a bare string, which would search every full-text index of the table.
        match = common.package("lancedb.query", "lancedb").MatchQuery(query, text)
        builders.append(table.search(match, query_type="fts"))
    if not builders:
        raise common.nothing_to_search_with()
    rows = []
    for builder in builders:
        filtered = builder.where(where) if where else builder
        for row in filtered.limit(candidates).to_list():
            values = {name: value for name, value in row.items() if name not in _INTERNAL}
            own = values.pop(embedding, None)
            rows.append(common.Row(id=common.taken(values, id), values=values, vector=own))
    options = {"vector": vector, **options}
    return common.rerank_rows(query, rows, text=text, title=title, limit=limit, options=options)


class CrossgateReranker(Reranker):  # type: ignore[misc, unused-ignore]
    """A reranker for LanceDB's own queries: `table.search(...).rerank(CrossgateReranker())`.

    The order that LanceDB found is stage 1, two lists fused by reciprocal rank. What crossgate does
    not select is not in the table that comes back, which may be empty: that is an answer.

    Args:
        column: Column of the text.
        return_score: `relevance`, or `all` to keep LanceDB's own scores.
        limit: Maximum number of rows to select; None for all that pass.
        on_result: Called with every decision, for its verdict, reason and trace. The ids in it are
            places in the table that LanceDB found, from 0.
        options: Further arguments of `crossgate.rerank`, such as `profile`.
    """

    def __init__(
        self,
        column: str = "text",
        *,
        return_score: str = "relevance",
        limit: int | None = None,
        on_result: Callable[[RouteResult], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(return_score)
        self.column = column
        self.limit = limit
        self.on_result = on_result
        self.options = options

    def rerank_hybrid(
        self, query: str, vector_results: pyarrow.Table, fts_results: pyarrow.Table
    ) -> pyarrow.Table:
        """Return the selected rows of both lists, best first."""
        merged = self._merge_and_keep_scores(vector_results, fts_results)
        fused = RRFReranker(return_score="relevance").rerank_hybrid(
            query, vector_results, fts_results
        )
        ranks = {row: rank for rank, row in enumerate(fused["_rowid"].to_pylist())}
        rows = merged["_rowid"].to_pylist()
        order = sorted(range(len(merged)), key=lambda position: ranks[rows[position]])
        return self._reranked(query, merged.take(order))

    def rerank_vector(self, query: str, vector_results: pyarrow.Table) -> pyarrow.Table:
        """Return the selected rows, best first."""
        return self._reranked(query, vector_results)

    def rerank_fts(self, query: str, fts_results: pyarrow.Table) -> pyarrow.Table:
        """Return the selected rows, best first."""
        return self._reranked(query, fts_results)

    def _reranked(self, query: str, table: pyarrow.Table) -> pyarrow.Table:
        pyarrow = common.package("pyarrow", "lancedb")
        if self.column not in table.column_names:
            raise InputError(
                "malformed_candidate",
                f"the rows have no {self.column!r}, only {', '.join(table.column_names)}",
            )
        rows = [
            {"id": str(position), "text": text, "score": -float(position)}
            for position, text in enumerate(table[self.column].to_pylist())
        ]
        result = rerank(query, rows, limit=self.limit, **self.options)
        if self.on_result is not None:
            self.on_result(result)
        scores = pyarrow.array([hit.score for hit in result.selected], pyarrow.float32())
        selection = table.take(pyarrow.array([int(id) for id in result.ids], pyarrow.int64()))
        return self._keep_relevance_score(selection.append_column(_SCORE, scores))
