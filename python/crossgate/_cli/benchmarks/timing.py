"""Times contenders side by side, and shows the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

OURS = "crossgate"

Run = Callable[[], object]
"""A function to time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The time or memory of one contender in one case.

    Attributes:
        case: The task, such as `1,000 documents`.
        contender: The library or function that does it.
        unit: `ms` or `MiB`, of which less is better, or a rate such as `pairs/s`.
        values: One measurement per repetition.
    """

    case: str
    contender: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the measurements."""
        return median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and the upper quartile of the measurements."""
        if len(self.values) < 2:
            return self.values[0], self.values[0]
        low, _, high = quantiles(self.values, n=4, method="inclusive")
        return low, high

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as JSON values."""
        low, high = self.quartiles
        return {
            "case": self.case,
            "contender": self.contender,
            "unit": self.unit,
            "median": self.median,
            "quartiles": [low, high],
            "repetitions": len(self.values),
        }


def side_by_side(
    case: str, contenders: Mapping[str, Run], repetitions: int, *, each: float | None = None
) -> Iterator[Figure]:
    """Time contenders in turns, so that other work on the machine slows all of them.

    Each runs once untimed before, to load and cache its data.

    Args:
        case: The task.
        contenders: The functions to time, by name.
        repetitions: How often each is timed, at least 1.
        each: How many units one run does; if given, the figure is a rate per second.
    """
    values: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    for _ in range(repetitions):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            seconds = time.perf_counter() - start
            values[name].append(each / seconds if each else seconds * 1e3)
    for name, found in values.items():
        unit = "per second" if each else "ms"
        yield Figure(case=case, contender=name, unit=unit, values=tuple(found))


def table(figures: list[Figure]) -> str:
    """Return a table in Markdown: one row per case, the contenders side by side.

    Each other contender is followed by a ratio: how many times as fast crossgate is.
    """
    names = list(dict.fromkeys(figure.contender for figure in figures))
    compared = [name for name in names if name != OURS and OURS in names]
    cells = {(figure.case, figure.contender): figure for figure in figures}
    head = [f"| {figures[0].unit} |"]
    head += [f" {name} |" + (" ratio |" if name in compared else "") for name in names]
    rows = ["".join(head), "| --- |" + " --- |" * (len(names) + len(compared))]
    for case in dict.fromkeys(figure.case for figure in figures):
        ours = cells.get((case, OURS))
        row = f"| {case} |"
        for name in names:
            other = cells.get((case, name))
            row += f" {_shown(other)} |"
            if name in compared:
                row += f" {_ratio(ours, other)} |"
        rows.append(row)
    return "\n".join(rows)


def _shown(figure: Figure | None) -> str:
    if figure is None:
        return ""
    low, high = figure.quartiles
    return f"{_number(figure.median)} ({_number(low)} to {_number(high)})"


def _ratio(ours: Figure | None, other: Figure | None) -> str:
    if ours is None or other is None:
        return ""
    less_is_better = ours.unit in ("ms", "MiB")
    ratio = other.median / ours.median if less_is_better else ours.median / other.median
    return f"{ratio:.2g}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
