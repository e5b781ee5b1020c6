"""Labelled datasets in BEIR's layout: a folder of a corpus, queries and judgements.

    corpus.jsonl           _id, title, text
    queries.jsonl          _id, text, metadata
    qrels/SPLIT.tsv        query-id, corpus-id, score, with a header line
    negatives/SPLIT.tsv    query-id, corpus-id, with a header line: picks known to be wrong
    candidates.jsonl       query (an id), candidates (ids): the documents that a query chooses from

The last two are optional. A query without a row in qrels is a no-match query if it is in negatives,
or if its metadata has `no_match`; then its metadata may name a `split`, and otherwise it belongs to
every split. `kind` and `mentions_name` in the metadata are read too, and the lists `technologies`
and `history` of a row or its metadata: the project and the conversation that the query comes from.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossgate._decision.context import Context
from crossgate._evaluation.data.labels import Dataset, LabelledQuery, ProblemLog, read_lines
from crossgate._sources.common import Unusable
from crossgate._sources.reading import read_sources
from crossgate._sources.rows import parse_json
from crossgate._support.checks import check_query
from crossgate._support.errors import InputError, SourceError
from crossgate._support.wording import counted

_QUERY_COLUMN = ("query-id", "query_id", "queryid", "qid")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    text: str
    metadata: Mapping[str, Any]
    context: Context | None


@dataclass(frozen=True, slots=True)
class _Judgements:
    """The tables of a split: per query, documents and their grades."""

    relevant: dict[str, dict[str, int]] = field(default_factory=dict)
    wrong: dict[str, set[str]] = field(default_factory=dict)


def read_beir(folder: Path, split: str | None, log: ProblemLog) -> Dataset:
    """Read a split of a BEIR folder.

    Args:
        folder: The folder.
        split: Name of the split; None for `test`, else `dev`, else the only one.
        log: Gets the rows that were skipped.

    Raises:
        SourceError: `source_missing`, `source_unreadable`, `unknown_split`, `unknown_document`,
            `unknown_query`, or `malformed_row` if the log is strict.
    """
    split = choose_split(str(folder), _splits(folder), split)
    loaded = read_sources([folder], kind="beir")
    log.extend(loaded.problems)
    documents = {document.id for document in loaded.documents}
    queries, skipped = _read_queries(folder / "queries.jsonl", log)
    judgements = _read_judgements(folder, split, queries, skipped, documents, log)
    candidates = _read_candidates(folder / "candidates.jsonl", queries, documents, log)
    labelled = tuple(
        LabelledQuery(
            id=id,
            text=query.text,
            relevant=judgements.relevant.get(id, {}),
            wrong=frozenset(judgements.wrong.get(id, ())),
            candidates=candidates.get(id),
            kind=str(query.metadata.get("kind") or ""),
            mentions_name=query.metadata.get("mentions_name"),
            context=query.context,
        )
        for id, query in queries.items()
        if id in judgements.relevant or id in judgements.wrong or _fits_nothing(query, split)
    )
    return Dataset(
        name=folder.resolve().name,
        split=split,
        documents=loaded.documents,
        queries=labelled,
        problems=tuple(log.problems),
        notes=tuple(_notes(folder, split, queries, {query.id for query in labelled})),
    )


def choose_split(source: str, splits: set[str], wanted: str | None) -> str:
    """Return the split to read: the wanted one, or `test`, or else `dev`, or else the only one.

    Raises:
        SourceError: `unknown_split`, with the names of the splits.
    """
    if wanted is None:
        usual = [name for name in ("test", "dev") if name in splits]
        if usual or len(splits) == 1:
            return next(iter(usual or splits))
    elif wanted in splits:
        return wanted
    there = f"has the splits {', '.join(sorted(splits))}" if splits else "has no labels"
    what = "choose one with --split" if wanted is None else f"no split {wanted!r}"
    raise SourceError("unknown_split", f"{source} {there}: {what}")


def _splits(folder: Path) -> set[str]:
    return {path.stem for kind in ("qrels", "negatives") for path in (folder / kind).glob("*.tsv")}


def _fits_nothing(query: _Query, split: str) -> bool:
    return bool(query.metadata.get("no_match")) and query.metadata.get("split", split) == split


def _read_queries(path: Path, log: ProblemLog) -> tuple[dict[str, _Query], set[str]]:
    """Return the queries by id, and the ids of rows that had to be skipped."""
    queries: dict[str, _Query] = {}
    skipped: set[str] = set()
    for line, text in read_lines(path):
        id = ""
        try:
            row = parse_json(text)
            if not isinstance(row, dict):
                raise Unusable("must be a JSON object")
            id = str(row.get("_id", row.get("id", "")))
            queries[id] = _query(id, row, queries)
        except (Unusable, InputError) as error:
            log.add(path, line, str(error))
            skipped.add(id)
    return queries, skipped - set(queries)


def _query(id: str, row: Mapping[str, Any], known: Mapping[str, _Query]) -> _Query:
    if not id:
        raise Unusable("has no _id")
    if id in known:
        raise Unusable(f"the _id {id!r} occurs twice: the first row counts")
    metadata = row.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise Unusable("the metadata must be an object")
    if not isinstance(metadata.get("mentions_name"), bool | None):
        raise Unusable("mentions_name must be true or false")
    text = row.get("text")
    if not isinstance(text, str):
        raise Unusable("has no text")
    check_query(text)
    return _Query(text=text, metadata=metadata, context=_context({**metadata, **row}))


def _context(row: Mapping[str, Any]) -> Context | None:
    given = {
        name: row[name] for name in ("technologies", "history") if isinstance(row.get(name), list)
    }
    return Context(**given) if given else None


def _read_judgements(
    folder: Path,
    split: str,
    queries: Mapping[str, _Query],
    skipped: set[str],
    documents: set[str],
    log: ProblemLog,
) -> _Judgements:
    judgements = _Judgements()
    known_queries = {*queries, *skipped}
    for kind, columns in (("qrels", 3), ("negatives", 2)):
        path = folder / kind / f"{split}.tsv"
        for line, cells, grade in _rows(path, columns, log):
            query, document = _id(cells[0], known_queries), _id(cells[1], documents)
            if query in skipped:
                continue
            known = {"query": (query, queries), "document": (document, documents)}
            for what, (id, ids) in known.items():
                if id not in ids:
                    message = f"{path}:{line}: no {what} has the id {id!r}{log.hint()}"
                    raise SourceError(f"unknown_{what}", message)
            if kind == "negatives":
                judgements.wrong.setdefault(query, set()).add(document)
            elif grade > 0:
                judgements.relevant.setdefault(query, {})[document] = grade
                if queries[query].metadata.get("no_match"):
                    log.add(path, line, f"query {query!r} is marked no_match: the row counts")
    return judgements


def _id(cell: str, known: Container[str]) -> str:
    """Return the id in a cell, which blanks may surround unless they belong to it."""
    return cell if cell in known else cell.strip()


def _rows(path: Path, columns: int, log: ProblemLog) -> Iterator[tuple[int, list[str], int]]:
    """Yield line, cells and grade of each row of a table."""
    if not os.path.exists(path):
        return
    for position, (line, text) in enumerate(read_lines(path)):
        cells = text.split("\t")
        if position == 0:
            if cells[0].strip().lower() in _QUERY_COLUMN:
                continue
            log.add(path, line, "no header line: read as a row")
        grade = cells[2] if columns == 3 and len(cells) == 3 else "1"
        try:
            if len(cells) < columns or (columns == 3 and len(cells) > 3):
                raise Unusable(f"has {counted(len(cells), 'column')} between tabs, not {columns}")
            yield line, cells, int(grade)
        except ValueError:
            log.add(path, line, f"the score {grade!r} is not a whole number")
        except Unusable as error:
            log.add(path, line, str(error))


def _read_candidates(
    path: Path, queries: Mapping[str, _Query], documents: set[str], log: ProblemLog
) -> dict[str, tuple[str, ...]]:
    lists: dict[str, tuple[str, ...]] = {}
    for line, text in read_lines(path) if os.path.exists(path) else ():
        try:
            row = parse_json(text)
            ids = row.get("candidates") if isinstance(row, dict) else None
            if not isinstance(row, dict) or not isinstance(ids, list) or not ids:
                raise Unusable("needs a query and a list of candidates")
            if row.get("query") not in queries:
                raise Unusable("its query is not the id of a query")
        except Unusable as error:
            log.add(path, line, str(error))
            continue
        unknown = [id for id in ids if id not in documents]
        if unknown:
            message = f"{path}:{line}: no document has the id {unknown[0]!r}{log.hint()}"
            raise SourceError("unknown_document", message)
        lists[row["query"]] = tuple(ids)
    return lists


def _notes(
    folder: Path, split: str, queries: Mapping[str, _Query], kept: set[str]
) -> Iterator[str]:
    labelled = {
        name: {
            line.split("\t")[0].strip()
            for kind in ("qrels", "negatives")
            if os.path.exists(path := folder / kind / f"{name}.tsv")
            for _, line in read_lines(path)
        }
        for name in _splits(folder)
    }
    anywhere = set[str]().union(*labelled.values())
    left_out = [
        id
        for id, query in queries.items()
        if id not in kept
        and not query.metadata.get("no_match")
        and (id in labelled[split] or id not in anywhere)
    ]
    if left_out:
        yield (
            f"left out {counted(len(left_out), 'query')} with neither a row in negatives or one in "
            "qrels with a score above 0, nor metadata.no_match"
        )
    shared = [
        id
        for id, query in queries.items()
        if query.metadata.get("no_match") and "split" not in query.metadata and id not in anywhere
    ]
    if shared and len(labelled) > 1:
        yield f"{counted(len(shared), 'no-match query')} without a split: in every split"
