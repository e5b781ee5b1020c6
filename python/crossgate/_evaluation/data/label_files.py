"""Files of labels for a library, in several formats: queries with the documents that fit.

    {"query": "join these two scans", "relevant": ["pdf"]}      a line of JSON, or a row of CSV
    {"query": "what is the weather", "relevant": []}            nothing fits
    {"query": "merge pdfs", "should_trigger": true}             of one skill, as skill authors write

The query is read from `query`, `prompt` or `input`. The documents that fit are read from
`relevant`, `expected`, `expected_skill` or `expected_skills`: an id, a list of ids, an object of
ids and grades, or nothing (null, "" or "none"). `should_trigger` tells whether one skill fits: the
skill that the row or the file names (`skill`, `skill_name`), or else that of the nearest SKILL.md
above the file, or else the only document. `wrong`, `kind`, `split` and `mentions_name` are
optional. A JSON file holds a list of such rows, or an object with such a list. In CSV the first
line names the columns, and ids are separated by `;` or `|`. A query that occurs in several rows
counts once, with all its labels. `id` is optional, too: else it is the file's name and the line.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from crossgate._evaluation.data.labels import Dataset, LabelledQuery, ProblemLog, read_lines
from crossgate._evaluation.data.transcript_labels import UNOPENED, transcript_queries
from crossgate._sources.common import Unusable
from crossgate._sources.reading import read_sources
from crossgate._sources.rows import parse_json
from crossgate._support.checks import check_path, check_query, collected
from crossgate._support.errors import InputError, SourceError
from crossgate._support.wording import counted
from crossgate._values.results import Document

BACKGROUND = "background"
"""The kind of the shipped everyday prompts, which nothing should fit."""

_QUERY = ("query", "prompt", "input")
_FITS = ("relevant", "expected", "expected_skill", "expected_skills")
_TRIGGER = "should_trigger"
_SKILL = ("skill", "skill_name")
_NOTHING = {"", "none", "null"}
_YES, _NO = {"true", "yes", "1"}, {"false", "no", "0"}


@dataclass(frozen=True, slots=True)
class _LabelRow:
    """One row of a file, with the skill that the file names for all its rows."""

    path: Path
    line: int | None
    values: Mapping[str, Any]
    skill: str


def is_labels(path: str | PathLike[str]) -> bool:
    """Return whether a file holds labelled queries and no documents."""
    path = Path(check_path("the labels", path))
    suffix = path.suffix.lower()
    if not os.path.isfile(path) or suffix not in (".csv", ".tsv", ".json", ".jsonl", ".ndjson"):
        return False
    if suffix in (".csv", ".tsv"):
        return True
    labelled = False
    try:
        for row in _rows(path, ProblemLog(strict=False)):
            if not (_has(row.values, _QUERY) and _is_labelled(row.values)):
                return False
            labelled = True
    except SourceError:
        return False  # the reader of datasets reports the error
    return labelled


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
        for row in _rows(path, log):
            try:
                splits.add(_text(row.values, "split"))
                if split is not None and _text(row.values, "split") not in ("", split):
                    continue
                query = _query(row, ids)
            except (Unusable, InputError) as error:
                log.add(path, row.line, str(error))
                continue
            if _TRIGGER in row.values:
                triggers.add(query.text)
            known = queries.get(query.text)
            queries[query.text] = query if known is None else _joined(known, query)
    if transcripts is not None:
        folder_of = Path(check_path("transcripts", transcripts))
        heard = transcript_queries(folder_of, ids.find, log)
        # A person's labels take precedence over those of a transcript.
        queries = {query.text: query for query in heard} | queries
    if split is not None and split not in splits:
        there = ", ".join(sorted(splits - {""})) or "none"
        raise SourceError("unknown_split", f"no label names the split {split!r}; splits: {there}")
    if not queries and (labels or transcripts or not background):
        names = ", ".join(map(str, [*labels, *([transcripts] if transcripts else [])])) or "no file"
        raise SourceError("empty_split", f"no labelled query in {names}{log.hint()}")
    notes = list(_notes(queries, triggers))
    if transcripts is not None:
        unopened = sum(query.kind == UNOPENED for query in queries.values())
        notes.append(
            f"{counted(unopened, 'prompt')} for which the agent opened no skill: no-match queries "
            "here, though a skill may fit: the false-positive rate is an upper bound"
        )
    if background:
        added = [query for query in background_queries() if query.text not in queries]
        queries |= {query.text: query for query in added}
        notes.append(
            f"{counted(len(added), 'everyday prompt')} added that nothing should fit: a promise "
            "about no-match queries holds for prompts like these, not for near misses"
        )
    return Dataset(
        name=folder.resolve().name.removesuffix(".jsonl"),
        split=split or _split(labels, transcripts),
        documents=loaded.documents,
        queries=tuple(_with_own_ids(queries.values())),
        problems=tuple(log.problems),
        notes=tuple(notes),
    )


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


def _split(labels: Sequence[str | PathLike[str]], transcripts: str | PathLike[str] | None) -> str:
    """Return the name of the dataset."""
    if labels:
        return Path(labels[0]).stem
    return BACKGROUND if transcripts is None else "transcripts"


def background_queries() -> Iterator[LabelledQuery]:
    """Yield the shipped everyday prompts, which nothing fits."""
    text = files("crossgate._evaluation.data").joinpath("background.txt").read_text("utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        yield LabelledQuery(id=f"{BACKGROUND}:{number}", text=line, kind=BACKGROUND)


def with_background(dataset: Dataset) -> Dataset:
    """Return a dataset with the shipped everyday prompts added to its queries."""
    known = {query.text for query in dataset.queries}
    added = tuple(query for query in background_queries() if query.text not in known)
    note = f"{counted(len(added), 'everyday prompt')} added that nothing should fit"
    queries = tuple(_with_own_ids((*dataset.queries, *added)))
    return replace(dataset, queries=queries, notes=(*dataset.notes, note))


class _Ids:
    """Looks up the ids of a library by the names that authors of labels use."""

    def __init__(self, documents: Sequence[Document]) -> None:
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


def _rows(path: Path, log: ProblemLog) -> Iterator[_LabelRow]:
    """Yield the rows of a file of labels."""
    if path.suffix.lower() in (".csv", ".tsv"):
        yield from _table_rows(path)
    elif path.suffix.lower() == ".json":
        yield from _json_rows(path, log)
    else:
        for line, text in read_lines(path):
            try:
                values = parse_json(text)
                if not isinstance(values, dict):
                    raise Unusable("must be a JSON object")
            except Unusable as error:
                log.add(path, line, str(error))
                continue
            yield _LabelRow(path, line, values, "")


def _table_rows(path: Path) -> Iterator[_LabelRow]:
    try:
        yield from _cells(path)
    except csv.Error as error:  # with strict, a quote that is never closed is an error
        raise SourceError("malformed_row", f"{path}: {error}: is a quote left open?") from error


def _cells(path: Path) -> Iterator[_LabelRow]:
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
    if not set(columns) & set(_QUERY) or not set(columns) & {*_FITS, _TRIGGER, "wrong"}:
        message = (
            f"{path}:1: the first line must name the columns, such as query,relevant; it is "
            f"{head[:80]!r}"
        )
        raise SourceError("malformed_row", message)
    for number, row in enumerate(reader):
        values: dict[str, Any] = {key: value or "" for key, value in row.items()}
        for key in (*_FITS, "wrong"):
            if key in values:
                cell = str(values[key]).replace("|", ";")
                values[key] = [id.strip() for id in cell.split(";") if id.strip()]
        # A cell may hold line breaks; then the line number is only approximate.
        yield _LabelRow(path, lines[min(number + 1, len(lines) - 1)][0], values, "")


def _json_rows(path: Path, log: ProblemLog) -> Iterator[_LabelRow]:
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
            yield _LabelRow(path, number, row, skill)
        else:
            log.add(path, number, "must be a JSON object")


def _query(row: _LabelRow, ids: _Ids) -> LabelledQuery:
    values = row.values
    text = next((values[key] for key in _QUERY if values.get(key)), None)
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
        skill = _skill(row, ids)
        if _flag(values[_TRIGGER]):
            relevant.setdefault(skill, 1)
        else:
            wrong.add(skill)
    return LabelledQuery(
        id=_text(values, "id") or f"{row.path.stem}:{row.line}",
        text=text,
        relevant=relevant,
        wrong=frozenset(wrong - set(relevant)),
        kind=_text(values, "kind"),
        mentions_name=mentions_name,
    )


def _joined(first: LabelledQuery, second: LabelledQuery) -> LabelledQuery:
    relevant = {**second.relevant, **first.relevant}
    wrong = (first.wrong | second.wrong) - set(relevant)
    return replace(first, relevant=relevant, wrong=wrong, kind=first.kind or second.kind)


def _skill(row: _LabelRow, ids: _Ids) -> str:
    """Return the skill that `should_trigger` is about."""
    named = next((row.values[key] for key in _SKILL if row.values.get(key)), row.skill)
    if isinstance(named, str) and named:
        return ids.find(named)
    for folder in row.path.resolve().parents:
        if os.path.isfile(folder / "SKILL.md"):
            return ids.find(read_sources([folder / "SKILL.md"]).documents[0].id)
    if ids.only is not None:
        return ids.only
    raise Unusable(
        f"{_TRIGGER} of which skill? Add skill to the row, skill_name to the file, or put the "
        "file below the skill's folder"
    )


def _grades(key: str, value: object) -> dict[str, int]:
    match value:
        case None:
            return {}
        case str():
            return {} if value.strip().lower() in _NOTHING else {value: 1}
        case list() if all(isinstance(id, str) for id in value):
            return {id: 1 for id in value if id.strip().lower() not in _NOTHING}
        case dict() if all(type(grade) is int and grade >= 0 for grade in value.values()):
            return {id: grade for id, grade in value.items() if grade > 0}
        case _:
            raise Unusable(
                f"{key} must be an id, a list of ids, or an object of ids and grades of 0 or more"
            )


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


def _notes(queries: Mapping[str, LabelledQuery], triggers: set[str]) -> Iterator[str]:
    unfitting = sum(not queries[text].relevant for text in triggers)
    if unfitting:
        yield (
            f"{counted(unfitting, 'query')} with only one skill that must not trigger: counted as "
            "no match, though another skill may fit"
        )
