"""Compares two reports, paired by query."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from crossgate._evaluation import statistics
from crossgate._evaluation.metrics import METRICS
from crossgate._evaluation.statistics import Interval
from crossgate._evaluation.summary import SCHEMA
from crossgate._support.checks import check_path
from crossgate._support.errors import SourceError
from crossgate._support.files import read_source
from crossgate._support.limits import EVALUATION_BYTES
from crossgate._support.wording import counted

REPORTS_SCHEMA = "crossgate-evals/1"
"""Schema of a file of several reports, as `crossgate eval --json` prints it."""

_DIRECTION = {metric.name: metric.higher_is_better for metric in METRICS}

_COMPARED = _DIRECTION.keys() - {"precision@1", "abstention_precision"}
"""The metrics that can be paired by query. The two precisions cannot: each counts the queries with
a pick, or without one, and another gate picks for other queries."""

# Above every metric, and far below values whose sums overflow.
_MOST = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How one metric of one mode changed.

    Attributes:
        dataset: Name and split of the dataset.
        mode: The mode.
        metric: The metric.
        before: Its mean in the first report.
        after: Its mean in the second.
        difference: After minus before, over the queries that count for it in both.
        fell: Whether it got worse beyond noise: the interval of the difference is entirely on the
            bad side of zero.
    """

    dataset: str
    mode: str
    metric: str
    before: float
    after: float
    difference: Interval
    fell: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The queries of one mode with a right first pick in only one of the reports.

    Attributes:
        dataset: Name and split of the dataset.
        mode: The mode.
        gained: Ids of the queries with a right first pick in the second report only, in the order
            of the first.
        lost: Ids of the queries with a right first pick in the first report only.
    """

    dataset: str
    mode: str
    gained: tuple[str, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The differences between two reports.

    Attributes:
        changes: Every metric that both reports have.
        moved: The queries behind recall@1, for each mode that both reports have.
        notes: Datasets and modes that are in only one of them, and other settings that differ.
    """

    changes: tuple[Change, ...]
    moved: tuple[Moved, ...]
    notes: tuple[str, ...]

    @property
    def fell(self) -> bool:
        """Whether any metric got worse beyond noise."""
        return any(change.fell for change in self.changes)


def read_reports(path: str | PathLike[str]) -> dict[str, dict[str, Any]]:
    """Read the reports that `crossgate eval --json` printed, by dataset and split.

    Raises:
        SourceError: `source_missing`, `source_unreadable` or `malformed_report`.
    """
    path = Path(check_path("the report", path))
    try:
        values = json.loads(read_source(path, EVALUATION_BYTES))
    except FileNotFoundError as error:
        raise SourceError("source_missing", f"no such file: {path}") from error
    except OSError as error:
        raise SourceError("source_unreadable", f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError("malformed_report", f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict) or values.get("schema") != REPORTS_SCHEMA:
        message = (
            f"{path} is not a report: make one with `crossgate eval --json DATASET > {path.name}`"
        )
        raise SourceError("malformed_report", message)
    try:
        reports: dict[str, dict[str, Any]] = {}
        for report in values["reports"]:
            _check(report)
            if reports.setdefault(_name(report), report) is not report:
                message = (
                    f"{path} has two reports of {_name(report)}: measure them apart, each into its "
                    "own file"
                )
                raise SourceError("malformed_report", message)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        message = f"{path} is a damaged report: {type(error).__name__} {error}"
        raise SourceError("malformed_report", message) from error
    return reports


def compare(
    before: Mapping[str, dict[str, Any]], after: Mapping[str, dict[str, Any]], *, seed: int = 0
) -> Comparison:
    """Compare the datasets that two sets of reports share.

    Args:
        before: Reports by dataset and split, as `read_reports` returns them.
        after: The same, later.
        seed: Seed of the resampling.

    Raises:
        SourceError: `not_comparable` if they share no dataset, or if the documents, labels or
            queries of a shared dataset differ, or two of its queries have one id.
    """
    shared = [name for name in before if name in after]
    if not shared:
        message = f"{', '.join(before)} against {', '.join(after)}: they share no dataset"
        raise SourceError("not_comparable", message)
    notes = [
        f"{name} is only in the {which} report"
        for which, mine, other in (("first", before, after), ("second", after, before))
        for name in mine
        if name not in other
    ]
    changes: list[Change] = []
    moved: list[Moved] = []
    for name in shared:
        _check_alike(name, before[name], after[name], notes)
        for mode in before[name]["per_query"]:
            if mode not in after[name]["per_query"]:
                notes.append(f"{name}: the mode {mode} is only in the first report")
                continue
            ids, old, new = _paired(before[name], after[name], mode)
            changes += _changes(name, mode, old, new, seed)
            moved += _moved(name, mode, ids, old, new)
    return Comparison(changes=tuple(changes), moved=tuple(moved), notes=tuple(notes))


def _check_alike(
    name: str, before: dict[str, Any], after: dict[str, Any], notes: list[str]
) -> None:
    """Refuse reports on other documents or labels, and note what else differs."""
    for what, key in (("documents", "corpus"), ("queries or labels", "labels")):
        if before["header"][key] != after["header"][key]:
            problem = f"the {what} of {name} differ: run both on the same"
            raise SourceError("not_comparable", problem)
    # Leaving out queries with `--unnamed` changes neither fingerprint.
    if Counter(before["ids"]) != Counter(after["ids"]):
        problem = (
            f"not the same queries of {name}: {len(before['ids'])} before, {len(after['ids'])} "
            "after; use --unnamed for both or for none"
        )
        raise SourceError("not_comparable", problem)
    if len(set(before["ids"])) < len(before["ids"]):
        problem = f"an id occurs twice among the queries of {name}: measure both again"
        raise SourceError("not_comparable", problem)
    for role in ("embedder", "reranker"):
        old, new = before["header"][role], after["header"][role]
        if old != new:
            notes.append(f"{name}: the {role} was {old}, now {new}")
    if before["profile"] != after["profile"]:
        notes.append(f"{name}: the profiles differ")
    # Reports of earlier versions have only the policy of the run.
    old, new = (report.get("policy", report["header"].get("policy")) for report in (before, after))
    if old != new:
        notes.append(f"{name}: the policies differ")


Values = dict[str, "np.ndarray[tuple[int], np.dtype[np.float64]]"]
"""Each metric's value for each query, NaN if the query does not count for it."""


def _paired(
    before: dict[str, Any], after: dict[str, Any], mode: str
) -> tuple[list[str], Values, Values]:
    """Return the ids of the queries and their values in both reports, in the same order."""
    positions = {id: position for position, id in enumerate(after["ids"])}
    order = [positions[id] for id in before["ids"]]
    first, second = before["per_query"][mode], after["per_query"][mode]
    shared = [metric for metric in first if metric in _COMPARED and metric in second]
    old = {metric: np.array(first[metric], np.float64) for metric in shared}
    new = {metric: np.array(second[metric], np.float64)[order] for metric in shared}
    return before["ids"], old, new


def _changes(name: str, mode: str, old: Values, new: Values, seed: int) -> Iterator[Change]:
    if not old:
        return
    differences = np.array([new[metric] - old[metric] for metric in old])
    for metric, difference in zip(old, statistics.means(differences.T, seed=seed), strict=True):
        if difference is not None:
            yield Change(
                dataset=name,
                mode=mode,
                metric=metric,
                before=float(np.nanmean(old[metric])),
                after=float(np.nanmean(new[metric])),
                difference=difference,
                fell=difference.high < 0 if _DIRECTION[metric] else difference.low > 0,
            )


def _moved(name: str, mode: str, ids: list[str], old: Values, new: Values) -> Iterator[Moved]:
    if "recall@1" in old:
        difference = new["recall@1"] - old["recall@1"]
        gained, lost = (
            tuple(ids[position] for position in np.flatnonzero(side))
            for side in (difference > 0, difference < 0)
        )
        yield Moved(dataset=name, mode=mode, gained=gained, lost=lost)


def _name(report: Mapping[str, Any]) -> str:
    return f"{report['header']['dataset']} {report['header']['split']}"


def _check(report: Mapping[str, Any]) -> None:
    """Read every value that a comparison uses, so that an error names the damaged file."""
    header = report["header"]
    if report.get("schema") != SCHEMA:
        raise ValueError(f'no "schema": "{SCHEMA}" in it')
    for key in ("corpus", "labels", "embedder", "reranker"):
        header[key]
    report["profile"]
    for metrics in report["per_query"].values():
        for values in metrics.values():
            if len(values) != len(report["ids"]):
                raise ValueError(
                    f"{counted(len(values), 'value')} for {counted(len(report['ids']), 'query')}"
                )
            _check_numbers(values)


def _check_numbers(values: Sequence[Any]) -> None:
    numbers = np.array(values, dtype=np.float64)
    if (np.abs(numbers) > _MOST).any():  # NaN is a query that does not count
        raise ValueError(f"a value beyond {_MOST:,.0f}")
