"""Charts of a report as inline SVG, legible at any width and in both colour schemes.

All lengths are in units of the view box, which the page scales to the available width. Colours come
from the page's CSS classes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from crossgate._evaluation.economics import (
    AbstentionPoint,
    CoveragePoint,
    ReliabilityBin,
)
from crossgate._support.wording import counted

_WIDTH, _HEIGHT = 360, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 16, 26, 40

_LEAST_SHOWN = 0.2

_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis: its label, its ticks in ascending order, and their texts."""

    label: str
    ticks: Sequence[float]
    text: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class _Dot:
    """One point, with its text on hover; the shipped point of a curve is marked."""

    x: float
    y: float
    title: str = ""
    shipped: bool = False


class _Plane:
    """A chart with two axes, to which marks are added."""

    def __init__(self, x: _Axis, y: _Axis, title: str) -> None:
        self._x, self._y, self._title = x, y, title
        self._parts: list[str] = []

    def across(self, value: float) -> float:
        """Return the horizontal position of a value."""
        low, high = self._x.ticks[0], self._x.ticks[-1]
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - low) / (high - low)

    def up(self, value: float) -> float:
        """Return the vertical position of a value."""
        low, high = self._y.ticks[0], self._y.ticks[-1]
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - low) / (high - low)

    def line(self, dots: Sequence[_Dot], kind: str = "line") -> None:
        """Add a line through points."""
        points = " ".join(f"{self.across(dot.x):.1f},{self.up(dot.y):.1f}" for dot in dots)
        self._parts.append(f'<polyline class="{kind}" points="{points}"/>')

    def dot(self, dot: _Dot, kind: str = "spot", radius: float = 4) -> None:
        """Add a point."""
        self._parts.append(
            f'<circle class="{kind}" cx="{self.across(dot.x):.1f}" cy="{self.up(dot.y):.1f}" '
            f'r="{radius:.3g}"><title>{html.escape(dot.title)}</title></circle>'
        )

    def text(self, text: str) -> None:
        """Add a text in the corner: beside a point it would often cover the line."""
        self._parts.append(
            f'<text class="label" text-anchor="end" x="{_WIDTH - _RIGHT}" y="10">'
            f'<tspan class="mark">\u25cf</tspan> {html.escape(text)}</text>'
        )

    def svg(self) -> str:
        """Return the whole chart."""
        parts = [
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{html.escape(self._title)}">'
        ]
        for tick in self._y.ticks:
            y = self.up(tick)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" '
                f'y2="{y:.1f}"/><text class="tick" text-anchor="end" x="{_LEFT - 5}" '
                f'y="{y + 4:.1f}">{self._y.text(tick)}</text>'
            )
        parts += [
            f'<text class="tick" text-anchor="middle" x="{self.across(tick):.1f}" '
            f'y="{_HEIGHT - _BOTTOM + 15}">{self._x.text(tick)}</text>'
            for tick in self._x.ticks
        ]
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        return "".join(
            (
                *parts,
                *self._parts,
                f'<text class="label" text-anchor="middle" x="{middle}" y="{_HEIGHT - 6}">'
                f"{html.escape(self._x.label)}</text>"
                f'<text class="label" x="4" y="10">{html.escape(self._y.label)}</text></svg>',
            )
        )


def abstention_chart(points: Sequence[AbstentionPoint]) -> str:
    """Return right picks against the false-positive rate, with the shipped point marked."""
    dots = [
        _Dot(point.false_positive_rate, point.right_picks, shipped=point.shipped)
        for point in points
    ]
    across = _Axis("no-match queries that get a pick", _QUARTERS, _percent)
    return _curve(dots, across, "right picks")


def coverage_chart(points: Sequence[CoveragePoint]) -> str:
    """Return coverage against the mean length of shortlists, with the shipped point marked."""
    dots = [
        _Dot(point.size, point.coverage, f"promised {point.promised:.0%}", point.shipped)
        for point in points
    ]
    sizes = _ticks(1.0, max(point.size for point in points))
    return _curve(dots, _Axis("mean length of the shortlist", sizes, _short), "coverage")


def _curve(dots: Sequence[_Dot], across: _Axis, label: str) -> str:
    """Return a line of a share, with the numbers of its shipped point."""
    ticks = _ticks(*shares_shown([dot.y for dot in dots]))
    plane = _Plane(across, _Axis(label, ticks, _three), f"{label} against {across.label}")
    plane.line([dot for dot in dots if not dot.shipped])
    for dot in dots:
        numbers = f"{across.label}: {across.text(dot.x)}, {label}: {dot.y:.3f}"
        title = f"{dot.title}, {numbers}" if dot.title else numbers
        plane.dot(replace(dot, title=title), "mark" if dot.shipped else "spot")
        if dot.shipped:
            plane.text(f"shipped: {across.text(dot.x)}, {dot.y:.3f}")
    return plane.svg()


def reliability_chart(bins: Sequence[ReliabilityBin]) -> str:
    """Return the observed share against the stated probability; larger dots have more queries."""
    plane = _Plane(
        _Axis("stated probability", _QUARTERS, _percent),
        _Axis("share that fits", _QUARTERS, _percent),
        "reliability",
    )
    plane.line([_Dot(0, 0), _Dot(1, 1)], "ideal")
    dots = [
        _Dot(
            tenth.stated,
            tenth.observed,
            f"{counted(tenth.count, 'query')}, stated {tenth.stated:.1%}, observed "
            f"{tenth.observed:.1%}",
        )
        for tenth in bins
    ]
    plane.line(dots)
    most = max(tenth.count for tenth in bins)
    for tenth, dot in zip(bins, dots, strict=True):
        plane.dot(dot, "dot", 2 + 7 * math.sqrt(tenth.count / most))
    return plane.svg()


def shares_shown(shares: Sequence[float]) -> tuple[float, float]:
    """Return the part of [0, 1] on an axis, at least 0.2: one query must not look like a cliff."""
    low, high = min(shares), max(shares)
    missing = max(0.0, _LEAST_SHOWN - (high - low))
    low = max(0.0, min(low - missing / 2, 1.0 - _LEAST_SHOWN)) if missing else low
    return low, max(high, min(1.0, low + _LEAST_SHOWN))


def _ticks(low: float, high: float) -> tuple[float, ...]:
    """Return three to seven round numbers that enclose a range."""
    span = high - low or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if span / (size * power) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(step * position for position in range(first, max(last, first + 1) + 1))


def _percent(value: float) -> str:
    return f"{100 * value:.3g}%"


def _three(value: float) -> str:
    return f"{value:.3f}"


def _short(value: float) -> str:
    return f"{value:.3g}"
