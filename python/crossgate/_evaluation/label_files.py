"""Reads labelled queries: files of labels for a library, datasets, and transcripts.

A row of a file of labels is a query with the documents that fit:

    {"query": "join these two scans", "relevant": ["pdf"]}      a line of JSON, or a row of CSV
    {"query": "what is the weather", "relevant": []}            nothing fits
    {"query": "merge pdfs", "should_trigger": true}             of one skill, as skill authors write

The query is read from `query`, `prompt` or `input`. The documents that fit are read from
`relevant`, `expected`, `expected_skill` or `expected_skills`: an id, a list of ids, an object of
ids and grades, or nothing (null, "" or "none"). `should_trigger` tells whether one skill fits: the
skill that the row or the file names (`skill`, `skill_name`), or else that of the nearest SKILL.md
above the file, or else the only document. `wrong` (ids that are known not to fit), `candidates`
(the ids that the query chooses from), `kind`, `split`, `mentions_name` and `id` are optional; the
default id is the file's name and the line. A JSON file holds a list of such rows, or an object with
such a list. In CSV the first line names the columns, and ids are separated by `;` or `|`. A query
that occurs in several files of labels counts once, with all its labels.

A dataset is a folder in BEIR's layout:

    corpus.jsonl           _id, title, text
    queries.jsonl          _id, text, metadata
    qrels/SPLIT.tsv        query-id, corpus-id, score, with a header line; or the four columns of
                           TREC (query, iteration, document, grade) without one
    negatives/SPLIT.tsv    query-id, corpus-id, with a header line: picks known to be wrong
    candidates.jsonl       query (an id), candidates (ids): the documents that a query chooses from

The last two are optional. A query without a row in qrels is a no-match query if it is in negatives,
or if its metadata has `no_match`; then its metadata may name a `split`, and otherwise it belongs to
every split. `kind` and `mentions_name` in the metadata are read too, and the lists `technologies`
and `history` of a row or its metadata: the project and the conversation that the query comes from.

A row that cannot be used, or that names a query or document that does not exist, is reported and
skipped.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from crossgate._decision.context import Context
from crossgate._evaluation.labels import (
    Dataset,
    LabelledQuery,
    ProblemLog,
    json_objects,
    read_lines,
    sample,
)
from crossgate._sources.common import Unusable
from crossgate._sources.reading import read_sources
from crossgate._sources.rows import parse_json
from crossgate._sources.transcripts import Turn, read_turns, transcripts_below
from crossgate._support.checks import check_path, check_query, check_text, collected
from crossgate._support.errors import SourceError
from crossgate._support.wording import counted
from crossgate._values.results import Document

BACKGROUND = "background"
"""The kind of the shipped everyday prompts, which nothing should fit."""
OPENED, UNOPENED = "skill opened", "no skill opened"
"""The kinds of the queries of transcripts."""

_QUERY_FIELDS = ("query", "prompt", "input")
_FITS = ("relevant", "expected", "expected_skill", "expected_skills")
_TRIGGER = "should_trigger"
_SKILL = ("skill", "skill_name")
_NOTHING = {"", "none", "null"}
_YES, _NO = {"true", "yes", "1"}, {"false", "no", "0"}


_QUERY_COLUMN = ("query-id", "query_id", "queryid", "qid")


def read_dataset(
    path: str | PathLike[str],
    *,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    strict: bool = False,
) -> Dataset:
    """Read a labelled dataset.

    Args:
        path: A BEIR folder, see above.
        split: Name of the split; None for `test`, else `dev`, else the only one.
        limit: Keep a sample of at most this many queries; None for all.
        seed: Seed of the sample.
        strict: Whether a malformed row is fatal. Otherwise it is skipped and counted.

    Raises:
        InputError: `out_of_range` if the limit is below 1.
        SourceError: `source_missing`, `source_unreadable`, `source_unknown`, `malformed_row`,
            `unknown_split`, `no_documents`, or `empty_split` if no query of the split is left.
    """
    path = Path(check_path("the dataset", path))
    if split is not None:
        check_text("the split", split)
    log = ProblemLog(strict=strict)
    if not os.path.exists(path):
        raise SourceError("source_missing", f"no such file or folder: {path}")
    if not os.path.isdir(path):
        raise SourceError("source_unknown", f"{path} is not a BEIR folder")
    dataset = _read_beir(path, split, log)
    if not dataset.documents:
        raise SourceError("no_documents", f"{path} holds no documents{log.hint()}")
    if not dataset.queries:
        message = f"no query of {path} is labelled in the split {dataset.split!r}{log.hint()}"
        raise SourceError("empty_split", message)
    return dataset if limit is None else sample(dataset, limit, seed=seed)


_Row = tuple[int, dict[str, Any]]
"""A row of a file with its line."""


def is_labels(path: str | PathLike[str]) -> bool:
    """Return whether a file holds labelled queries and no documents."""
    path = Path(check_path("the labels", path))
    suffix = path.suffix.lower()
    if not os.path.isfile(path) or suffix not in (".csv", ".tsv", ".json", ".jsonl", ".ndjson"):
        return False
    if suffix in (".csv", ".tsv"):
        return True
    try:
        rows = [values for _, values in _rows(path, ProblemLog(strict=False))]
    except SourceError:
        return False  # the reader of datasets reports the error
    if not all(_has(row, _QUERY_FIELDS) or _is_labelled(row) for row in rows):
        return False
    return any(_has(row, _QUERY_FIELDS) and _is_labelled(row) for row in rows)


def read_labels(
    documents: str | PathLike[str],
    labels: Sequence[str | PathLike[str]],
    *,
    transcripts: str | PathLike[str] | None = None,
    split: str | None = None,
    background: bool = False,
    strict: bool = False,
) -> Dataset:
    """Read a library, and labels from separate files.

    Args:
        documents: The library: anything that `crossgate index` reads.
        labels: Files of labels, see above; may be empty if one of the next two is set.
        transcripts: A folder of Claude Code's transcripts: the skills that an agent opened for a
            prompt fit it; a prompt for which it opened none is a no-match query.
        split: Keep the rows of this split and those without a split; None for all rows.
        background: Whether to add the shipped everyday prompts, which nothing should fit.
        strict: Whether a malformed row is fatal. Otherwise it is skipped and counted.

    Raises:
        SourceError: `source_missing`, `source_unreadable`, `source_unknown`, `no_documents`,
            `malformed_row`, `no_transcripts`, `unknown_split`, or `empty_split` if no query is
            left.
    """
    folder, log = Path(check_path("documents", documents)), ProblemLog(strict=strict)
    loaded = read_sources([folder])
    log.extend(loaded.problems)
    ids = _Ids(loaded.documents)
    queries: dict[str, LabelledQuery] = {}
    triggers: set[str] = set()
    splits: set[str] = set()
    for path in [Path(check_path("labels", file)) for file in collected("labels", labels)]:
        for line, values in _rows(path, log):
            with log.row(path, line):
                splits.add(_text(values, "split"))
                if split is not None and _text(values, "split") not in ("", split):
                    continue
                query = _query(path, line, values, ids)
                if _TRIGGER in values:
                    triggers.add(query.text)
                earlier = queries.get(query.text)
                queries[query.text] = query if earlier is None else _joined(earlier, query)
    if transcripts is not None:
        folder_of = Path(check_path("transcripts", transcripts))
        from_transcripts = _transcript_queries(folder_of, ids.find, log)
        # A person's labels take precedence over those of a transcript.
        queries = {query.text: query for query in from_transcripts} | queries
    if split is not None and split not in splits:
        there = ", ".join(sorted(splits - {""})) or "none"
        raise SourceError("unknown_split", f"no label names the split {split!r}; splits: {there}")
    if not queries and (labels or transcripts or not background):
        names = ", ".join(map(str, [*labels, *([transcripts] if transcripts else [])])) or "no file"
        raise SourceError("empty_split", f"no labelled query in {names}{log.hint()}")
    notes = []
    if unfitting := sum(not queries[text].relevant for text in triggers):
        notes.append(
            f"{counted(unfitting, 'query')} with only one skill that must not trigger: counted as "
            "no match, though another skill may fit"
        )
    if transcripts is not None:
        unopened = sum(query.kind == UNOPENED for query in queries.values())
        notes.append(
            f"{counted(unopened, 'prompt')} for which the agent opened no skill: no-match queries "
            "here, though a skill may fit: the false-positive rate is an upper bound"
        )
    named = Path(labels[0]).stem if labels else "" if transcripts is None else "transcripts"
    dataset = Dataset(
        name=folder.resolve().name.removesuffix(".jsonl"),
        split=split or named or BACKGROUND,
        documents=loaded.documents,
        queries=tuple(_with_own_ids(queries.values())),
        problems=tuple(log.problems),
        notes=tuple(notes),
    )
    if not background:
        return dataset
    holds = "a promise about no-match queries holds for prompts like these, not for near misses"
    return with_background(dataset, f": {holds}")


def _with_own_ids(queries: Iterable[LabelledQuery]) -> Iterator[LabelledQuery]:
    """Yield the queries, with `#2`, `#3`, ... after an id that is taken.

    Several skills may have an `evals/evals.json`, and reports are paired by id.
    """
    taken: set[str] = set()
    last: Counter[str] = Counter()
    for query in queries:
        id = query.id
        while id in taken:
            last[query.id] += 1
            id = f"{query.id}#{last[query.id] + 1}"
        taken.add(id)
        yield replace(query, id=id)


def background_queries() -> Iterator[LabelledQuery]:
    """Yield the shipped everyday prompts, which nothing fits."""
    text = files("crossgate._evaluation").joinpath("background.txt").read_text("utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        yield LabelledQuery(id=f"{BACKGROUND}:{number}", text=line, kind=BACKGROUND)


def with_background(dataset: Dataset, remark: str = "") -> Dataset:
    """Return a dataset with the shipped everyday prompts added, and a note that ends so."""
    known = {query.text for query in dataset.queries}
    added = tuple(query for query in background_queries() if query.text not in known)
    note = f"{counted(len(added), 'everyday prompt')} added that nothing should fit{remark}"
    queries = tuple(_with_own_ids((*dataset.queries, *added)))
    return replace(dataset, queries=queries, notes=(*dataset.notes, note))


class _Ids:
    """Looks up the ids of a library by the names that authors of labels use."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._known = {document.id for document in documents}
        folded = Counter(id.casefold() for id in self._known)
        self._folded = {id.casefold(): id for id in self._known if folded[id.casefold()] == 1}
        self._hints = 20
        self.only = next(iter(self._known)) if len(self._known) == 1 else None

    def find(self, written: str) -> str:
        """Return the id; `plugin:name` and `folder/name/SKILL.md` mean `name`."""
        bare = written.strip().removesuffix("/SKILL.md")
        for form in (written, bare, bare.rpartition(":")[2], bare.rpartition("/")[2]):
            id = form if form in self._known else self._folded.get(form.casefold())
            if id is not None:
                return id
        # Finding the nearest of thousands takes long: only the first unknown ids get a hint.
        self._hints -= 1
        near = get_close_matches(bare, sorted(self._known), n=1) if self._hints >= 0 else []
        hint = f": is it {near[0]!r}?" if near else ""
        raise Unusable(f"no document has the id {written!r}{hint}")


def _rows(path: Path, log: ProblemLog) -> Iterator[_Row]:
    """Yield the rows of a file of labels."""
    if path.suffix.lower() == ".json":
        return _json_rows(path, log)
    return _cells(path) if path.suffix.lower() in (".csv", ".tsv") else json_objects(path, log)


def _cells(path: Path) -> Iterator[_Row]:
    lines = read_lines(path)
    head = lines[0][1] if lines else ""
    delimiter = max(",\t;", key=head.count)
    reader = csv.DictReader(
        io.StringIO("\n".join(line for _, line in lines)),
        delimiter=delimiter,
        restkey="more",
        strict=True,
    )
    columns = [(name or "").strip().lower() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    if not set(columns) & set(_QUERY_FIELDS) or not set(columns) & {*_FITS, _TRIGGER, "wrong"}:
        message = (
            f"{path}:1: the first line must name the columns, such as query,relevant; it is "
            f"{head[:80]!r}"
        )
        raise SourceError("malformed_row", message)
    try:
        rows = list(reader)
    except csv.Error as error:  # with strict, a quote that is never closed is an error
        raise SourceError("malformed_row", f"{path}: {error}: is a quote left open?") from error
    for number, row in enumerate(rows):
        values: dict[str, Any] = {key: value or "" for key, value in row.items()}
        for key in (*_FITS, "wrong"):
            if key in values:
                cell = str(values[key]).replace("|", ";")
                values[key] = [id.strip() for id in cell.split(";") if id.strip()]
        # A cell may hold line breaks; then the line number is only approximate.
        yield lines[min(number + 1, len(lines) - 1)][0], values


def _json_rows(path: Path, log: ProblemLog) -> Iterator[_Row]:
    text = "\n".join(line for _, line in read_lines(path))
    try:
        values = parse_json(text)
    except Unusable as error:
        raise SourceError("malformed_row", f"{path}: {error}") from error
    skill = ""
    if isinstance(values, dict):
        skill = next((values[key] for key in _SKILL if isinstance(values.get(key), str)), "")
        lists = (value for value in values.values() if isinstance(value, list) and value)
        values = next((rows for rows in lists if all(isinstance(row, dict) for row in rows)), None)
    if not isinstance(values, list):
        raise SourceError("malformed_row", f"{path} has no list of labelled queries")
    for number, row in enumerate(values, start=1):
        if isinstance(row, dict):
            # The skill that the file names is that of each row without one.
            yield number, {**row, _SKILL[-1]: row.get(_SKILL[-1]) or skill}
        else:
            log.add(path, number, "must be a JSON object")


def _query(path: Path, line: int, values: Mapping[str, Any], ids: _Ids) -> LabelledQuery:
    text = next((values[key] for key in _QUERY_FIELDS if values.get(key)), None)
    if not isinstance(text, str):
        raise Unusable("has no query")
    check_query(text)
    if not _is_labelled(values):
        raise Unusable("has none of relevant, expected_skill, should_trigger and wrong")
    mentions_name = values.get("mentions_name")
    if not isinstance(mentions_name, bool | None):
        raise Unusable("mentions_name must be true or false")
    relevant: dict[str, int] = {}
    for key in _FITS:
        relevant |= {ids.find(id): grade for id, grade in _grades(key, values.get(key)).items()}
    wrong = {ids.find(id) for id in _grades("wrong", values.get("wrong"))}
    if values.get(_TRIGGER) not in (None, ""):
        skill = _skill(path, values, ids)
        if _flag(values[_TRIGGER]):
            relevant.setdefault(skill, 1)
        else:
            wrong.add(skill)
    return LabelledQuery(
        id=_text(values, "id") or f"{path.stem}:{line}",
        text=text,
        relevant=relevant,
        wrong=frozenset(wrong - set(relevant)),
        kind=_text(values, "kind"),
        mentions_name=mentions_name,
        candidates=_candidates(values, ids) if "candidates" in values else None,
    )


def _joined(first: LabelledQuery, second: LabelledQuery) -> LabelledQuery:
    relevant = {**second.relevant, **first.relevant}
    wrong = (first.wrong | second.wrong) - set(relevant)
    return replace(first, relevant=relevant, wrong=wrong, kind=first.kind or second.kind)


def _skill(path: Path, values: Mapping[str, Any], ids: _Ids) -> str:
    """Return the skill that `should_trigger` is about."""
    named = next((values[key] for key in _SKILL if values.get(key)), None)
    if isinstance(named, str) and named:
        return ids.find(named)
    for folder in path.resolve().parents:
        if os.path.isfile(folder / "SKILL.md"):
            return ids.find(read_sources([folder / "SKILL.md"]).documents[0].id)
    if ids.only is not None:
        return ids.only
    raise Unusable(
        f"{_TRIGGER} of which skill? Add skill to the row, skill_name to the file, or put the "
        "file below the skill's folder"
    )


def _candidates(values: Mapping[str, Any], ids: _Ids) -> tuple[str, ...]:
    listed = values["candidates"]
    if not isinstance(listed, list) or not all(isinstance(id, str) for id in listed):
        raise Unusable("candidates must be a list of ids")
    return tuple(map(ids.find, listed))


def _grades(key: str, value: object) -> dict[str, int]:
    match value:
        case None:
            return {}
        case str():
            return {} if value.strip().lower() in _NOTHING else {value: 1}
        case list() if all(isinstance(id, str) for id in value):
            return {id: 1 for id in value if id.strip().lower() not in _NOTHING}
        case dict() if all(map(_is_grade, value.values())):
            return {id: int(grade) for id, grade in value.items() if grade > 0}
        case _:
            raise Unusable(
                f"{key} must be an id, a list of ids, or an object of ids and grades of 0 or more"
            )


def _is_grade(value: object) -> bool:
    """Return whether a value is a whole number of 0 or more; 1.0 is one."""
    if type(value) is float:
        return value >= 0 and value.is_integer()
    return type(value) is int and value >= 0


def _flag(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in _YES | _NO:
        raise Unusable(f"{_TRIGGER} must be true or false, not {value!r}")
    return text in _YES


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    if value is None:
        return ""
    if isinstance(value, int) and key == "id":
        return str(value)
    if not isinstance(value, str):
        raise Unusable(f"the {key} must be a string")
    return value


def _has(values: Mapping[str, Any], keys: Sequence[str]) -> bool:
    return any(key in values for key in keys)


def _is_labelled(values: Mapping[str, Any]) -> bool:
    return _has(values, (*_FITS, _TRIGGER, "wrong"))


_BeirQuery = tuple[LabelledQuery, Mapping[str, Any]]
"""A query without its labels, and its metadata."""


def _read_beir(folder: Path, split: str | None, log: ProblemLog) -> Dataset:
    """Read a split of a BEIR folder."""
    split = _choose_split(folder, _splits(folder), split)
    loaded = read_sources([folder], kind="beir")
    log.extend(loaded.problems)
    documents = {document.id for document in loaded.documents}
    queries, skipped = _read_queries(folder / "queries.jsonl", log)
    relevant, wrong = _read_judgements(folder, split, queries, skipped, documents, log)
    candidates = _read_candidates(folder / "candidates.jsonl", queries, documents, log)
    labelled = tuple(
        replace(
            query,
            relevant=relevant.get(id, {}),
            wrong=frozenset(wrong.get(id, ())),
            candidates=candidates.get(id),
        )
        for id, (query, metadata) in queries.items()
        if id in relevant or id in wrong or _fits_nothing(metadata, split)
    )
    return Dataset(
        name=folder.resolve().name,
        split=split,
        documents=loaded.documents,
        queries=labelled,
        problems=tuple(log.problems),
        notes=tuple(_beir_notes(folder, split, queries, {query.id for query in labelled})),
    )


def _choose_split(source: Path, splits: set[str], wanted: str | None) -> str:
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


def _fits_nothing(metadata: Mapping[str, Any], split: str) -> bool:
    return bool(metadata.get("no_match")) and metadata.get("split", split) == split


def _read_queries(path: Path, log: ProblemLog) -> tuple[dict[str, _BeirQuery], set[str]]:
    """Return the queries by id, and the ids of rows that had to be skipped."""
    queries: dict[str, _BeirQuery] = {}
    skipped: set[str] = set()
    for line, row in json_objects(path, log):
        id = str(row.get("_id", row.get("id", "")))
        skipped.add(id)
        with log.row(path, line):
            queries[id] = _beir_query(id, row, queries)
    return queries, skipped - set(queries)


def _beir_query(id: str, row: Mapping[str, Any], known: Mapping[str, _BeirQuery]) -> _BeirQuery:
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
    both = {**metadata, **row}
    lists = {
        name: both[name] for name in ("technologies", "history") if isinstance(both.get(name), list)
    }
    query = LabelledQuery(
        id=id,
        text=text,
        kind=str(metadata.get("kind") or ""),
        mentions_name=metadata.get("mentions_name"),
        context=Context(**lists) if lists else None,
    )
    return query, metadata


def _read_judgements(
    folder: Path,
    split: str,
    queries: Mapping[str, _BeirQuery],
    skipped: set[str],
    documents: set[str],
    log: ProblemLog,
) -> tuple[dict[str, dict[str, int]], dict[str, set[str]]]:
    """Return the grades of the documents that fit each query, and those that are wrong."""
    relevant: dict[str, dict[str, int]] = {}
    wrong: dict[str, set[str]] = {}
    known_queries = {*queries, *skipped}
    for kind in ("qrels", "negatives"):
        path = folder / kind / f"{split}.tsv"
        for line, (query_cell, document_cell, grade) in _judgement_rows(path, kind, log):
            query, document = _id(query_cell, known_queries), _id(document_cell, documents)
            if query in skipped:
                continue
            if query not in queries or document not in documents:
                what, id = ("query", query) if query not in queries else ("document", document)
                log.add(path, line, f"no {what} has the id {id!r}")
            elif kind == "negatives":
                wrong.setdefault(query, set()).add(document)
            elif grade > 0:
                relevant.setdefault(query, {})[document] = grade
                if queries[query][1].get("no_match"):
                    log.add(path, line, f"query {query!r} is marked no_match: the row counts")
    return relevant, wrong


def _id(cell: str, known: Container[str]) -> str:
    """Return the id in a cell, which blanks may surround unless they belong to it."""
    return cell if cell in known else cell.strip()


def _judgement_rows(
    path: Path, kind: str, log: ProblemLog
) -> Iterator[tuple[int, tuple[str, str, int]]]:
    """Yield the line, and query, document and grade, of each row of a table."""
    for position, (line, text) in enumerate(read_lines(path) if os.path.exists(path) else ()):
        cells = text.split("\t")
        if kind == "qrels" and len(cells) == 1 and len(text.split()) == 4:
            cells = text.split()  # TREC separates columns by blanks
        if position == 0 and cells[0].strip().lower() in _QUERY_COLUMN:
            continue
        if kind == "qrels" and len(cells) == 4:
            cells = [cells[0], *cells[2:]]  # the second column of TREC has no meaning
        elif position == 0:
            log.add(path, line, "no header line: read as a row")
        columns = 3 if kind == "qrels" else 2
        if len(cells) < columns or (kind == "qrels" and len(cells) > columns):
            log.add(path, line, f"has {counted(len(cells), 'column')} between tabs, not {columns}")
            continue
        try:
            grade = float(cells[2]) if kind == "qrels" else 1
            if grade != int(grade):
                raise ValueError
        except (ValueError, OverflowError):
            log.add(path, line, f"the score {cells[2]!r} is not a whole number")
            continue
        yield line, (cells[0], cells[1], int(grade))


def _read_candidates(
    path: Path, queries: Mapping[str, _BeirQuery], documents: set[str], log: ProblemLog
) -> dict[str, tuple[str, ...]]:
    lists: dict[str, tuple[str, ...]] = {}
    for line, row in json_objects(path, log) if os.path.exists(path) else ():
        ids = row.get("candidates")
        unknown = [id for id in ids if id not in documents] if isinstance(ids, list) else []
        if not isinstance(ids, list) or not ids:
            log.add(path, line, "needs a query and a list of candidates")
        elif row.get("query") not in queries:
            log.add(path, line, "its query is not the id of a query")
        elif unknown:
            log.add(path, line, f"no document has the id {unknown[0]!r}")
        else:
            lists[row["query"]] = tuple(ids)
    return lists


def _beir_notes(
    folder: Path, split: str, queries: Mapping[str, _BeirQuery], kept: set[str]
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
        for id, (_, metadata) in queries.items()
        if id not in kept
        and not metadata.get("no_match")
        and (id in labelled[split] or id not in anywhere)
    ]
    if left_out:
        yield (
            f"left out {counted(len(left_out), 'query')} with neither a row in negatives or one in "
            "qrels with a score above 0, nor metadata.no_match"
        )
    shared = [
        id
        for id, (_, metadata) in queries.items()
        if metadata.get("no_match") and "split" not in metadata and id not in anywhere
    ]
    if shared and len(labelled) > 1:
        yield f"{counted(len(shared), 'no-match query')} without a split: in every split"


def _transcript_queries(
    folder: Path, find: Callable[[str], str], log: ProblemLog
) -> list[LabelledQuery]:
    """Return each prompt once, with the skills opened in at least half of its occurrences.

    A prompt such as "yes, do it" occurs in many conversations, and what follows it is chance, so
    half of them must agree. A prompt is left out if a skill was opened for it that is not in the
    library.

    The log gets the files and prompts that were left out; `find` raises `Unusable` for a name that
    no document has.
    """
    turns: dict[str, list[Turn]] = defaultdict(list)
    for path in transcripts_below(folder):
        try:
            for turn in read_turns(path):
                turns[turn.text].append(turn)
        except OSError as error:
            log.add(path, None, f"cannot be read: {error.strerror}")
    queries = []
    for text, occurrences in turns.items():
        first = occurrences[0]
        with log.row(first.path, first.line):
            check_query(text)
            counts = Counter(find(name) for turn in occurrences for name in turn.opened)
            fits = {id: 1 for id, count in counts.items() if 2 * count >= len(occurrences)}
            queries.append(
                LabelledQuery(
                    id=f"{first.path.stem}:{first.line}",
                    text=text,
                    relevant=fits,
                    kind=OPENED if fits else UNOPENED,
                )
            )
    return queries
