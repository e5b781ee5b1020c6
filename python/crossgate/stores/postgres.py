"""crossgate on top of PostgreSQL: its text search for words, pgvector for meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crossgate.stores import _store_rows as common

if TYPE_CHECKING:
    import psycopg

    from crossgate._values.results import RouteResult

_DISTANCE = "{embedding} OPERATOR({schema}.<=>) %(vector)s::{schema}.vector"

# pgvector need not be in a schema of the search path, so its names are qualified.
_SCHEMA_OF_PGVECTOR = """
SELECT nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace
WHERE extname = 'vector'
"""

# One statement, so that every row has its cosine, whichever channel finds it. `plainto_tsquery`
# reads any query as plain words, but requires all of them in a document; for candidates, one of
# them is enough. `to_jsonb` leaves out the long vectors.
_STATEMENT = """
WITH words AS (
    SELECT replace(plainto_tsquery({configuration}, %(query)s)::text, '&', '|')::tsquery AS asked
),
found AS (
    (SELECT {id} FROM {table} WHERE %(vector)s::text IS NOT NULL AND {embedding} IS NOT NULL
        ORDER BY {distance} LIMIT %(most)s)
    UNION
    (SELECT {id} FROM {table}, words WHERE to_tsvector({configuration}, {text}) @@ asked
        ORDER BY ts_rank(to_tsvector({configuration}, {text}), asked) DESC LIMIT %(most)s)
)
SELECT to_jsonb(d) - %(embedding)s, 1 - ({distance})
FROM {table} AS d JOIN found USING ({id})
"""


def search(
    connection: psycopg.Connection[Any],
    query: str,
    *,
    vector: Sequence[float] | None = None,
    table: str | Sequence[str] = "documents",
    embedding: str = "embedding",
    id: str = "id",
    text: str = "text",
    title: str | None = None,
    configuration: str = "english",
    candidates: int = common.CANDIDATES,
    limit: int | None = None,
    **options: Any,
) -> RouteResult:
    """Search by words and by vector, and select the fitting rows with `crossgate.rerank`.

    Every candidate has its cosine, whichever channel found it. If a document has no vector, the
    cosines of all candidates are left out and BM25 decides. An index on `embedding` with
    `vector_cosine_ops`, and one on `to_tsvector('english', text)`, make it fast.

    Args:
        connection: An open connection; nothing is committed.
        query: The query.
        vector: Its embedding by the model that made the vectors; None to search by words alone.
        table: Table with id, text and embedding, or schema and table; its other columns become
            metadata, as JSON values.
        embedding: Column of the vectors.
        id: Column of the id, a unique key of the table.
        text: Column of the text.
        title: Column of the title, or None.
        configuration: Text search configuration, such as `german`, or `simple` for no stemmer.
        candidates: How many documents each of the two channels finds, at least 1.
        limit: Maximum number to select; None for all that pass.
        options: Further arguments of `crossgate.rerank`, such as `profile`.

    Raises:
        InputError: As `crossgate.rerank`.
        ModelError: `dependency_missing` without psycopg.
        Exception: Any error of the connection, such as for a missing table.
    """
    common.check_search(query, vector, candidates, limit)
    psycopg = common.package("psycopg", "postgres")
    sql = psycopg.sql
    # Tuples, whatever rows the connection makes.
    cursor = connection.cursor(row_factory=psycopg.rows.tuple_row)
    schema = cursor.execute(_SCHEMA_OF_PGVECTOR).fetchone()
    distance = sql.SQL(_DISTANCE).format(
        embedding=sql.Identifier(embedding), schema=sql.Identifier(*(schema or ("public",)))
    )
    statement = sql.SQL(_STATEMENT).format(
        table=sql.Identifier(*([table] if isinstance(table, str) else table)),
        embedding=sql.Identifier(embedding),
        id=sql.Identifier(id),
        text=sql.Identifier(text),
        distance=distance,
        # A constant, so that an index on the expression can be used.
        configuration=sql.SQL("{}::regconfig").format(sql.Literal(configuration)),
    )
    parameters = {
        "query": query.replace("\0", " "),
        "vector": None if vector is None else str(common.numbers(vector)),
        "most": candidates,
        "embedding": embedding,
    }
    rows = [
        common.Row(id=common.taken(values, id), values=values, cosine=cosine)
        for values, cosine in cursor.execute(statement, parameters).fetchall()
    ]
    return common.rerank_rows(query, rows, text=text, title=title, limit=limit, options=options)
