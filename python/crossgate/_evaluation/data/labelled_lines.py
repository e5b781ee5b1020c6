"""Labelled datasets in one `.jsonl` file: a row with `query` is a query, any other a document.

    {"id": "pdf", "title": "PDF tools", "text": "Merge and split PDF files."}
    {"query": "join these two scans", "relevant": ["pdf"], "kind": "indirect"}
    {"query": "what is the weather", "relevant": []}

A query row has `relevant`: a list of ids, an object of ids and grades, or an empty list if nothing
fits; or `wrong`: ids that are known not to fit; or both. Optional are `id`, `candidates` (the ids
that it chooses from), `kind`, `mentions_name` and `split`; a row without a split belongs to every
split. Queries and documents may be in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossgate._evaluation.data.beir import choose_split
from crossgate._evaluation.data.labels import Dataset, LabelledQuery, ProblemLog, read_lines
from crossgate._sources.common import Unusable
from crossgate._sources.rows import document_from, parse_json
from crossgate._support.checks import check_query
from crossgate._support.errors import InputError, SourceError
from crossgate._values.results import Document


@dataclass(frozen=True, slots=True)
class _QueryRow:
    line: int
    split: str | None
    query: LabelledQuery


def read_labelled_lines(path: Path, split: str | None, log: ProblemLog) -> Dataset:
    """Read a split of a `.jsonl` file.

    Args:
        path: The file.
        split: Name of the split; None for `test`, else `dev`, else the only one. A file whose
            rows name no split has the one split `all`.
        log: Gets the rows that were skipped.

    Raises:
        SourceError: `source_missing`, `source_unreadable`, `unknown_split`, `unknown_document`,
            or `malformed_row` if the log is strict.
    """
    documents: dict[str, Document] = {}
    rows: dict[str, _QueryRow] = {}
    for line, text in read_lines(path):
        unnamed = f"{path.stem}:{line}"
        try:
            value = parse_json(text)
            if isinstance(value, dict) and "query" in value:
                query = _query(value, unnamed)
                _add(rows, query.id, _QueryRow(line, _text(value, "split") or None, query))
            else:
                document = document_from(value, unnamed)
                _add(documents, document.id, document)
        except (Unusable, InputError) as error:
            log.add(path, line, str(error))
    splits = {row.split for row in rows.values() if row.split is not None}
    chosen = choose_split(str(path), splits or {"all"}, split)
    kept = [row for row in rows.values() if row.split in (None, chosen)]
    for row in kept:
        for id in (*row.query.relevant, *row.query.wrong, *(row.query.candidates or ())):
            if id not in documents:
                message = f"{path}:{row.line}: no document has the id {id!r}{log.hint()}"
                raise SourceError("unknown_document", message)
    return Dataset(
        name=path.name,
        split=chosen,
        documents=tuple(documents.values()),
        queries=tuple(row.query for row in kept),
        problems=tuple(log.problems),
    )


def _add(known: dict[str, Any], id: str, value: object) -> None:
    if id in known:
        raise Unusable(f"the id {id!r} occurs twice: the first row counts")
    known[id] = value


def _query(row: Mapping[str, Any], unnamed: str) -> LabelledQuery:
    check_query(row["query"])
    if "relevant" not in row and "wrong" not in row:
        raise Unusable("a query needs relevant, wrong or both")
    mentions_name = row.get("mentions_name")
    if not isinstance(mentions_name, bool | None):
        raise Unusable("mentions_name must be true or false")
    candidates = _ids(row, "candidates") if "candidates" in row else None
    return LabelledQuery(
        id=_text(row, "id") or unnamed,
        text=row["query"],
        relevant=_grades(row.get("relevant", [])),
        wrong=frozenset(_ids(row, "wrong")),
        candidates=candidates,
        kind=_text(row, "kind"),
        mentions_name=mentions_name,
    )


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key, "")
    if not isinstance(value, str):
        raise Unusable(f"the {key} must be a string")
    return value


def _ids(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = row.get(key, [])
    if not isinstance(values, list) or not all(isinstance(id, str) for id in values):
        raise Unusable(f"{key} must be a list of ids")
    return tuple(values)


def _grades(relevant: object) -> dict[str, int]:
    if isinstance(relevant, list) and all(isinstance(id, str) for id in relevant):
        return dict.fromkeys(relevant, 1)
    if isinstance(relevant, dict) and all(
        type(grade) is int and grade >= 0 for grade in relevant.values()
    ):
        return {id: grade for id, grade in relevant.items() if grade > 0}
    raise Unusable("relevant must be a list of ids, or an object of ids and grades of 0 or more")
