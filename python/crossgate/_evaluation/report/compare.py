"""What changed between two reports, paired by query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from crossgate._checks import check_path
from crossgate._errors import SourceError
from crossgate._evaluation.measures import statistics
from crossgate._evaluation.measures.quality import METRICS
from crossgate._evaluation.measures.statistics import Interval
from crossgate._evaluation.report.summary import SCHEMA
from crossgate._files import read_source
from crossgate._limits import EVALUATION_BYTES

REPORTS_SCHEMA = "crossgate-evals/1"
"""Schema of a file of several reports, as `crossgate eval --json` prints it."""

_DIRECTION = {metric.name: metric.higher_is_better for metric in METRICS}


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
        fell: Whether it got worse beyond noise: the interval of the difference excludes zero on
            the bad side.
    """

    dataset: str
    mode: str
    metric: str
    before: float
    after: float
    difference: Interval
    fell: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What changed between two reports.

    Attributes:
        changes: Every metric that both reports have.
        notes: What only one of them has.
    """

    changes: tuple[Change, ...]
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
            f"{path} is no report: make one with `crossgate eval --json DATASET > {path.name}`"
        )
        raise SourceError("malformed_report", message)
    try:
        reports = {_name(report): report for report in values["reports"]}
        for report in reports.values():
            _check(report)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
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
        seed: Of the resampling.

    Raises:
        SourceError: `not_comparable` if they share no dataset, or if the documents or labels of a
            shared one differ.
    """
    shared = [name for name in before if name in after]
    if not shared:
        message = f"{', '.join(before)} against {', '.join(after)}: no dataset stands in both"
        raise SourceError("not_comparable", message)
    notes = [
        f"{name} is only in the {which} report"
        for which, mine, other in (("first", before, after), ("second", after, before))
        for name in mine
        if name not in other
    ]
    changes: list[Change] = []
    for name in shared:
        changes += _changes(name, before[name], after[name], seed, notes)
    return Comparison(changes=tuple(changes), notes=tuple(notes))


def _changes(
    name: str, before: dict[str, Any], after: dict[str, Any], seed: int, notes: list[str]
) -> list[Change]:
    for what, key in (("documents", "corpus"), ("queries or labels", "labels")):
        if before["header"][key] != after["header"][key]:
            raise SourceError(
                "not_comparable", f"the {what} of {name} differ: run both on the same"
            )
    for role in ("embedder", "reranker", "remote"):
        old, new = before["header"].get(role), after["header"].get(role)
        if old != new:
            notes.append(f"{name}: the {role} was {old}, now {new}")
    if before["profile"] != after["profile"]:
        notes.append(f"{name}: the profiles differ")
    places = {id: place for place, id in enumerate(after["ids"])}
    order = [places[id] for id in before["ids"]]
    changes = []
    for mode, metrics in before["per_query"].items():
        if mode not in after["per_query"]:
            notes.append(f"{name}: the mode {mode} is only in the first report")
            continue
        later = after["per_query"][mode]
        shared = [metric for metric in metrics if metric in _DIRECTION and metric in later]
        old = np.array([metrics[metric] for metric in shared], dtype=np.float64)
        new = np.array([[later[metric][place] for place in order] for metric in shared], np.float64)
        differences = statistics.means((new - old).T, seed=seed) if shared else []
        for place, (metric, difference) in enumerate(zip(shared, differences, strict=True)):
            if difference is None:
                continue
            worse = difference.high < 0 if _DIRECTION[metric] else difference.low > 0
            changes.append(
                Change(
                    dataset=name,
                    mode=mode,
                    metric=metric,
                    before=float(np.nanmean(old[place])),
                    after=float(np.nanmean(new[place])),
                    difference=difference,
                    fell=worse,
                )
            )
    return changes


def _name(report: Mapping[str, Any]) -> str:
    return f"{report['header']['dataset']} {report['header']['split']}"


def _check(report: Mapping[str, Any]) -> None:
    """Touch all that a comparison reads, so that damage is found in the file that has it."""
    header = report["header"]
    if report.get("schema") != SCHEMA:
        raise ValueError(f'no "schema": "{SCHEMA}" in it')
    for key in ("corpus", "labels", "embedder", "reranker"):
        header[key]
    report["profile"]
    for metrics in report["per_query"].values():
        for values in metrics.values():
            if len(values) != len(report["ids"]):
                raise ValueError(f"{len(values)} values for {len(report['ids'])} queries")
            np.array(values, dtype=np.float64)
