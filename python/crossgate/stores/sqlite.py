"""crossgate on top of SQLite: FTS5 for words, sqlite-vec for meaning."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crossgate._support.errors import InputError, ModelError
from crossgate.stores import _store_rows as common

if TYPE_CHECKING:
    import sqlite3

    from crossgate._values.results import RouteResult

# FTS5 is slow with a long list of words; this many are enough to find candidates.
_MOST_WORDS = 64


def search(
    connection: sqlite3.Connection,
    query: str,
    *,
    vector: Sequence[float] | None = None,
    documents: str = "documents",
    words: str | None = "documents_fts",
    vectors: str | None = "documents_vec",
    embedding: str = "embedding",
    id: str = "id",
    text: str = "text",
    title: str | None = None,
    candidates: int = common.CANDIDATES,
    limit: int | None = None,
    **options: Any,
) -> RouteResult:
    """Search by words and by vector, and select the fitting rows with `crossgate.rerank`.

    The three tables share their rowids. Every candidate has its cosine, whichever channel found it.
    If a document has no vector, the cosines of all candidates are left out and BM25 decides.

    Args:
        connection: A connection of `sqlite3`, or of a package with the same interface such as
            `pysqlite3`.
        query: The query.
        vector: Its embedding by the model that made the vectors; None to search by words alone.
        documents: Table with id and text; its other columns become metadata.
        words: FTS5 table over the text, or None to search by meaning alone.
        vectors: vec0 table of sqlite-vec, or None to search by words alone.
        embedding: Column of the vectors.
        id: Column of the id.
        text: Column of the text.
        title: Column of the title, or None.
        candidates: How many documents each of the two channels finds, at least 1.
        limit: Maximum number to select; None for all that pass.
        options: Further arguments of `crossgate.rerank`, such as `profile`.

    Raises:
        InputError: As `crossgate.rerank`; `out_of_range` if neither words nor a vector are given.
        ModelError: `dependency_missing` without sqlite-vec, or if the connection cannot load it.
        Exception: Any error of the connection, such as for a missing table.
    """
    common.check_search(query, vector, candidates, limit)
    terms = _terms(query)
    parameters: dict[str, Any] = {"most": candidates, "terms": terms}
    # Only names that `_name` has quoted become part of a statement.
    channels = []
    cosine, joined = "NULL", ""
    if vectors is not None and vector is not None:
        _load(connection)
        parameters["vector"] = struct.pack(f"<{len(vector)}f", *vector)
        table, column = _name(vectors), _name(embedding)
        nearest = f"SELECT rowid FROM {table} WHERE {column} MATCH :vector AND k = :most"  # noqa: S608
        channels.append(nearest)
        distance = f"vec_distance_cosine(v.{column}, :vector)"
        cosine = f"CASE WHEN v.{column} IS NOT NULL THEN 1 - {distance} END"
        joined = f"LEFT JOIN {table} AS v ON v.rowid = d.rowid"
    elif words is None:
        raise common.nothing_to_search_with()
    if words is not None and terms:
        table = _name(words)
        matching = f"SELECT rowid FROM {table} WHERE {table} MATCH :terms"  # noqa: S608
        channels.append(f"SELECT rowid FROM ({matching} ORDER BY rank LIMIT :most)")  # noqa: S608
    if not channels:
        return common.rerank_rows(query, [], text=text, title=title, limit=limit, options=options)
    # UNION would sort the channels, which sqlite-vec refuses; IN removes duplicates as well.
    cursor = connection.cursor()
    cursor.row_factory = None  # tuples, whatever rows the connection makes
    cursor.execute(
        f"SELECT {cosine}, d.* FROM {_name(documents)} AS d {joined} "  # noqa: S608
        f"WHERE d.rowid IN ({' UNION ALL '.join(channels)})",
        parameters,
    )
    columns = [description[0] for description in cursor.description[1:]]
    rows = []
    for similarity, *row in cursor.fetchall():
        values = dict(zip(columns, row, strict=True))
        rows.append(common.Row(id=common.taken(values, id), values=values, cosine=similarity))
    return common.rerank_rows(query, rows, text=text, title=title, limit=limit, options=options)


def _terms(query: str) -> str:
    """Return an FTS5 expression that matches any of the query's words, as plain words."""
    words = dict.fromkeys(re.findall(r"\w+", query))
    return " OR ".join(f'"{word}"' for word in list(words)[:_MOST_WORDS])


def _name(name: str) -> str:
    """Quote the name of a table or column; names cannot be parameters."""
    if not name or "\0" in name:
        raise InputError("out_of_range", f"{name!r} is not the name of a table or column")
    return '"' + name.replace('"', '""') + '"'


def _load(connection: sqlite3.Connection) -> None:
    """Load sqlite-vec into the connection, unless it is loaded."""
    try:
        connection.execute("SELECT vec_version()")
        return
    except Exception as error:  # each package has an OperationalError of its own
        if "vec_version" not in str(error):
            raise
    sqlite_vec = common.package("sqlite_vec", "sqlite")
    try:
        connection.enable_load_extension(True)
    except AttributeError as error:
        raise ModelError(
            "dependency_missing",
            "this Python's sqlite3 cannot load extensions such as sqlite-vec: connect with the "
            "package pysqlite3 instead, or pass vectors=None",
        ) from error
    try:
        sqlite_vec.load(connection)
    finally:
        connection.enable_load_extension(False)
