"""Labelled queries and datasets, and reading the lines of a file with a log of unusable rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from crossgate._decision.context import Context
from crossgate._sources.common import Unusable, decoded
from crossgate._sources.reading import Problem
from crossgate._sources.rows import parse_json
from crossgate._support.errors import InputError, SourceError
from crossgate._support.files import read_source
from crossgate._support.limits import EVALUATION_BYTES
from crossgate._support.wording import counted, share_of
from crossgate._values.results import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledQuery:
    """One query with its labels.

    Attributes:
        id: Unique within a dataset.
        text: The query.
        relevant: Grade of each document that fits, at least 1; empty if nothing fits.
        wrong: Documents that are known not to fit, however close they look.
        candidates: The list that the query chooses from, or None for the whole corpus.
        kind: The kind of query, as the dataset names it; empty if it does not.
        mentions_name: Whether the query names the document that fits, or None if unknown.
        context: The project and the conversation that the query comes from; None if unknown.
    """

    id: str
    text: str
    relevant: Mapping[str, int] = field(default_factory=dict)
    wrong: frozenset[str] = frozenset()
    candidates: tuple[str, ...] | None = None
    kind: str = ""
    mentions_name: bool | None = None
    context: Context | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Documents and labelled queries of one split.

    Attributes:
        name: Name of the folder or file.
        split: Name of the split; `all` if there are none.
        documents: The library.
        queries: In the order of the file.
        problems: Rows that were skipped, and why.
        notes: Remarks on the labels for a reader of the figures.
    """

    name: str
    split: str
    documents: tuple[Document, ...]
    queries: tuple[LabelledQuery, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Hash of the queries and their labels, whatever their order."""
        rows = sorted(
            json.dumps(
                [
                    query.id,
                    query.text,
                    sorted(query.relevant.items()),
                    sorted(query.wrong),
                    None if query.candidates is None else sorted(query.candidates),
                    *([] if query.context is None else [asdict(query.context)]),
                ]
            )
            for query in self.queries
        )
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def sample(dataset: Dataset, limit: int, *, seed: int) -> Dataset:
    """Return a dataset with at most `limit` of its queries, chosen by the seed, in their order.

    Raises:
        InputError: `out_of_range` if the limit is below 1.
    """
    if limit < 1:
        raise InputError("out_of_range", f"the limit is {limit}: it must be at least 1")
    count = len(dataset.queries)
    if limit >= count:
        return dataset
    positions = np.random.default_rng(seed).choice(count, size=limit, replace=False)
    return replace(
        dataset,
        queries=tuple(dataset.queries[position] for position in sorted(positions.tolist())),
        notes=(
            *dataset.notes,
            f"a sample of {share_of(limit, count, 'query')}, chosen by the seed",
        ),
    )


class ProblemLog:
    """Collects rows that cannot be used; if strict, raises at the first.

    Args:
        strict: Whether a malformed row is fatal.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self.problems: list[Problem] = []

    def add(self, path: Path | str, line: int | None, reason: str) -> None:
        """Count a row.

        Raises:
            SourceError: `malformed_row`, if the log is strict.
        """
        self.extend([Problem(path=str(path), line=line, reason=reason)])

    def extend(self, problems: Iterable[Problem]) -> None:
        """Count rows that another reader skipped.

        Raises:
            SourceError: `malformed_row`, if the log is strict.
        """
        for problem in problems:
            if self._strict:
                raise SourceError("malformed_row", str(problem))
            self.problems.append(problem)

    @contextmanager
    def row(self, path: Path | str, line: int | None) -> Iterator[None]:
        """Count a row if it cannot be used, which the block says by `Unusable` or an error.

        Raises:
            SourceError: `malformed_row`, if the log is strict.
        """
        try:
            yield
        except (Unusable, InputError) as error:
            self.add(path, line, str(error))

    def hint(self) -> str:
        """Return a remark for an error that a skipped row may have caused, or an empty text."""
        if not self.problems:
            return ""
        return f" (skipped {counted(len(self.problems), 'row')}, the first: {self.problems[0]})"


def read_lines(path: Path) -> list[tuple[int, str]]:
    """Return the non-blank lines of a file, with their numbers from 1.

    Raises:
        SourceError: `source_missing` if there is no such file, `source_unreadable` if it cannot be
            read or is not UTF-8.
    """
    try:
        text = decoded(read_source(path, EVALUATION_BYTES))
    except FileNotFoundError as error:
        raise SourceError("source_missing", f"no such file: {path}") from error
    except OSError as error:
        raise SourceError("source_unreadable", f"cannot read {path}: {error.strerror}") from error
    except Unusable as error:
        raise SourceError("source_unreadable", f"{path}:{error.line}: {error}") from error
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def json_objects(path: Path, log: ProblemLog) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines with their line numbers; log the other lines.

    Raises:
        SourceError: As `read_lines`, or `malformed_row` if the log is strict.
    """
    for line, text in read_lines(path):
        try:
            values = parse_json(text)
            if not isinstance(values, dict):
                raise Unusable("must be a JSON object")
        except Unusable as error:
            log.add(path, line, str(error))
            continue
        yield line, values
