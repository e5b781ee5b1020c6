"""Charts of a report as inline SVG, legible at any width and in both colour schemes.

All lengths are in units of the view box, which the page scales to the available width. Colours come
from the page's CSS classes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from crossgate._evaluation.economics import (
    AbstentionPoint,
    CoveragePoint,
    CurvePoint,
    Histogram,
    Latency,
    ReliabilityBin,
)
from crossgate._evaluation.metrics import PLACES
from crossgate._evaluation.statistics import Interval
from crossgate._support.wording import counted

_WIDTH, _HEIGHT = 360, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 16, 26, 40

_LEAST_SHOWN = 0.2

Scale = Callable[[float], float]


def curve_chart(*curves: Sequence[CurvePoint]) -> str:
    """Return recall@1 against skip rate, with the shipped point of each curve marked."""
    known = [
        [
            (point.skip_rate, point.recall, point.shipped)
            for point in points
            if point.recall is not None
        ]
        for points in curves
    ]
    return _curves(known, "queries that skip stage 2", "recall@1", "recall@1 against skip rate")


def abstention_chart(points: Sequence[AbstentionPoint]) -> str:
    """Return precision@1 against the false-positive rate, with the shipped point marked."""
    known = [(point.false_positive_rate, point.precision, point.shipped) for point in points]
    return _curves(
        [known],
        "no-match queries that get a pick",
        "precision@1",
        "precision@1 against false-positive rate",
    )


def coverage_chart(points: Sequence[CoveragePoint]) -> str:
    """Return coverage against the mean length of shortlists, with the shipped point marked."""
    across_label, up_label = "mean length of the shortlist", "coverage"
    sizes = _ticks(1.0, max(point.size for point in points))
    ticks = _ticks(*shares_shown([point.coverage for point in points]))
    across, up = _scales((sizes[0], sizes[-1]), (ticks[0], ticks[-1]))
    line = " ".join(f"{across(point.size):.1f},{up(point.coverage):.1f}" for point in points)
    parts = [
        *_axes(sizes, ticks, across, up, _short, _three),
        f'<polyline class="line" points="{line}"/>',
    ]
    for point in points:
        kind, radius = ("mark", 5) if point.shipped else ("spot", 4)
        parts.append(
            f'<circle class="{kind}" cx="{across(point.size):.1f}" cy="{up(point.coverage):.1f}" '
            f'r="{radius}"><title>promised {point.promised:.0%}: coverage {point.coverage:.3f}, '
            f"mean length {point.size:.2f}</title></circle>"
        )
    return _svg(parts, across_label, up_label, "coverage against the length of shortlists")


def standalone(chart: str) -> str:
    """Return a chart as a standalone file, with the colours of the page."""
    opening, rest = chart.split(">", 1)
    return f'{opening} xmlns="http://www.w3.org/2000/svg"><style>{_STYLE}</style>{rest}\n'


_STYLE = """
text { fill: #1d2530; font: 11px system-ui, sans-serif; } .tick { fill: #5c6875; font-size: 10px; }
.grid { stroke: #d9dee4; } .line { fill: none; stroke: #1f6fb2; stroke-width: 2; }
.mark { fill: #c2571a; } .spot { fill: transparent; }
@media (prefers-color-scheme: dark) { text { fill: #e4e9ee; } .tick { fill: #9aa7b4; }
  .grid { stroke: #323a43; } .line { stroke: #6db3f2; } .mark { fill: #f0955a; } }
"""


def _curves(
    curves: Sequence[Sequence[tuple[float, float, bool]]], x_label: str, y_label: str, title: str
) -> str:
    """Return lines of a metric against a share, with the shipped point of each marked."""
    ticks = _ticks(*shares_shown([value for points in curves for _, value, _ in points]))
    across, up = _scales((0.0, 1.0), (ticks[0], ticks[-1]))
    parts = list(_axes((0.0, 0.25, 0.5, 0.75, 1.0), ticks, across, up, _percent, _three))
    for position, points in enumerate(curves):
        line = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y, shipped in points if not shipped)
        colour = f" of-{position}" if len(curves) > 1 else ""
        parts.append(f'<polyline class="line{colour}" points="{line}"/>')
        parts += (_point(point, across, up, x_label, y_label, f"mark{colour}") for point in points)
    return _svg(parts, x_label, y_label, title)


def _point(
    point: tuple[float, float, bool],
    across: Scale,
    up: Scale,
    x_label: str,
    y_label: str,
    mark: str,
) -> str:
    x, y, shipped = point
    circle = (
        f'<circle class="{mark if shipped else "spot"}" cx="{across(x):.1f}" '
        f'cy="{up(y):.1f}" r="{5 if shipped else 4}"><title>{html.escape(x_label)}: {x:.1%}, '
        f"{html.escape(y_label)}: {y:.3f}</title></circle>"
    )
    if not shipped or mark != "mark":
        return circle
    # In the corner: beside the point it would often cover the line.
    return circle + (
        f'<text class="label" text-anchor="end" x="{_WIDTH - _RIGHT}" y="10">'
        f'<tspan class="mark">\u25cf</tspan> shipped: {x:.1%}, {y:.3f}</text>'
    )


def interval_chart(interval: Interval, most: float, *, worse: bool) -> str:
    """Return a difference and its interval on a scale from -`most` to +`most`."""

    def across(value: float) -> float:
        return 60 + 54 * max(-1.0, min(1.0, value / most))

    name = "line worse" if worse else "line"
    dot = "mark worse" if worse else "dot"
    label = f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
    return (
        f'<svg class="interval" viewBox="0 0 120 16" role="img" aria-label="{label}">'
        '<line class="grid" x1="60" x2="60" y1="0" y2="16"/>'
        f'<polyline class="{name}" points="{across(interval.low):.1f},8 '
        f'{across(interval.high):.1f},8"/>'
        f'<circle class="{dot}" cx="{across(interval.value):.1f}" cy="8" r="4">'
        f"<title>{label}</title></circle></svg>"
    )


def reliability_chart(bins: Sequence[ReliabilityBin]) -> str:
    """Return the observed share against the stated probability; larger dots have more queries."""
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    across, up = _scales((0.0, 1.0), (0.0, 1.0))
    most = max(tenth.count for tenth in bins)
    line = " ".join(f"{across(tenth.stated):.1f},{up(tenth.observed):.1f}" for tenth in bins)
    parts = [
        *_axes(ticks, ticks, across, up, _percent, _percent),
        f'<line class="ideal" x1="{across(0):.1f}" y1="{up(0):.1f}" '
        f'x2="{across(1):.1f}" y2="{up(1):.1f}"/>',
        f'<polyline class="line" points="{line}"/>',
    ]
    for tenth in bins:
        radius = 2 + 7 * math.sqrt(tenth.count / most)
        parts.append(
            f'<circle class="dot" cx="{across(tenth.stated):.1f}" cy="{up(tenth.observed):.1f}" '
            f'r="{radius:.1f}"><title>{counted(tenth.count, "query")}, stated {tenth.stated:.1%}, '
            f"observed {tenth.observed:.1%}</title></circle>"
        )
    return _svg(parts, "stated probability", "share that fits", "reliability")


def histogram_chart(histogram: Histogram) -> str:
    """Return both distributions of a score, each as shares of its own queries."""
    groups = [("match", histogram.match), ("no-match", histogram.no_match)]
    shares = [
        (name, [count / sum(counts) for count in counts]) for name, counts in groups if sum(counts)
    ]
    ticks = _ticks(0.0, max(max(heights) for _, heights in shares))
    edges = _ticks(histogram.low, histogram.high)
    across, up = _scales((edges[0], edges[-1]), (0.0, ticks[-1]))
    width = (histogram.high - histogram.low) / len(histogram.match)
    parts = [*_axes(edges, ticks, across, up, _short, _percent)]
    for name, heights in shares:
        for bin, height in enumerate(heights):
            left = across(histogram.low + bin * width)
            right = across(histogram.low + (bin + 1) * width)
            start = histogram.low + bin * width
            parts.append(
                f'<rect class="{name}" x="{left:.1f}" y="{up(height):.1f}" '
                f'width="{right - left:.1f}" height="{up(0) - up(height):.1f}"><title>'
                f"{height:.1%} of the queries {_GROUPS[name]} are between {_short(start)} and "
                f"{_short(start + width)}</title></rect>"
            )
    title = f"{histogram.name} of queries with and without a match"
    return _svg(parts, f"{_SCORES[histogram.name]}", "share of queries", title)


_GROUPS = {"match": "with a match", "no-match": "without one"}

_SCORES = {
    "cosine": "best cosine",
    "bm25": "best BM25 score",
    "rerank_score": "rerank score of the first document",
    "any_fits": "probability that any document fits",
    "confidence": "confidence of the answer",
}


def latency_chart(latencies: Sequence[Latency]) -> str:
    """Return the share of queries that are answered within a time, one line per path."""
    known = [latency for latency in latencies if latency.spread]
    times = [
        max(time, 1e-3) for latency in known for time in (latency.spread[0], latency.spread[-1])
    ]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high = max(high, low + 1)
    scale, up = _scales((low, high), (0.0, 1.0))

    def across(milliseconds: float) -> float:
        return scale(math.log10(max(milliseconds, 1e-3)))

    x_ticks = [10.0**power for power in range(low, high + 1)]
    parts = list(_axes(x_ticks, (0.0, 0.25, 0.5, 0.75, 1.0), across, up, _duration, _percent))
    for position, latency in enumerate(known):
        name = path_name(latency.path)
        steps = len(latency.spread) - 1
        points = [(across(time), up(step / steps)) for step, time in enumerate(latency.spread)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line of-{position % _COLOURS}" points="{line}"/>')
        parts += [
            f'<circle class="spot" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{html.escape(name)}: '
            f"{step / steps:.0%} within {time:.1f} ms</title></circle>"
            for step, (time, (x, y)) in enumerate(zip(latency.spread, points, strict=True))
        ]
    return _svg(parts, "time for a query", "queries answered", "latency by path")


_COLOURS = 5
"""For how many lines of a chart the page has colours."""


def path_name(path: str) -> str:
    """Return the name of a query's path in a report."""
    return f"gated, {path}" if path in ("skipped", "reranked") else path


def flow_chart(matched: int, lost: Mapping[str, int]) -> str:
    """Return where queries with a match end up, as bands as wide as their number.

    Args:
        matched: Number of queries with a match.
        lost: How many of them lost the right answer, by the keys of `PLACES`.
    """
    missing = {place: lost[place] for place in PLACES if lost.get(place)}
    unfound = missing.pop("retrieval", 0)
    # Each number is written beside its band, so each band has room for a line of text.
    ends = [("match", "right first pick", matched - unfound - sum(missing.values()))]
    ends += [("no-match", PLACES[place], count) for place, count in missing.items()]
    if unfound:
        ends.append(("no-match", PLACES["retrieval"], unfound))
    ends = [end for end in ends if end[2]]
    room = 300.0 - _GAP * (len(ends) - 1)
    unit = room / matched
    reached = matched - unfound
    parts = [
        _band("match", 10, 70, (20.0, reached * unit), (20.0, reached * unit), ""),
        f'<text class="label" x="10" y="14">{counted(matched, "query")} with a match</text>',
    ]
    left, right = 20.0, 20.0
    for name, label, count in ends:
        height = count * unit
        start, x = left, 70
        if label == PLACES["retrieval"]:
            start, x = 20.0 + reached * unit, 10
        share = f"{label}: {count} of {matched}, {count / matched:.1%}"
        parts.append(_band(name, x, 190, (start, height), (right, height), share))
        parts.append(
            f'<text class="label" x="198" y="{right + height / 2 + 4:.1f}">{html.escape(label)}: '
            f"{count} ({count / matched:.0%})</text>"
        )
        left, right = left + height, right + max(height, _LINE) + _GAP
    return (
        f'<svg viewBox="0 0 400 {right + 8:.0f}" role="img" '
        f'aria-label="where right answers get lost">{"".join(parts)}</svg>'
    )


_GAP, _LINE = 6.0, 12.0


def _band(
    name: str,
    start: float,
    end: float,
    left: tuple[float, float],
    right: tuple[float, float],
    title: str,
) -> str:
    (y1, h1), (y2, h2), middle = left, right, (start + end) / 2
    shape = (
        f"M{start:.1f},{y1:.1f} C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {end:.1f},{y2:.1f} "
        f"V{y2 + h2:.1f} "
        f"C{middle:.1f},{y2 + h2:.1f} {middle:.1f},{y1 + h1:.1f} {start:.1f},{y1 + h1:.1f} Z"
    )
    return f'<path class="{name}" d="{shape}"><title>{html.escape(title)}</title></path>'


def _scales(across: tuple[float, float], up: tuple[float, float]) -> tuple[Scale, Scale]:
    def scale(ends: tuple[float, float], start: float, length: float) -> Scale:
        low, high = ends
        return lambda value: start + length * (value - low) / (high - low)

    return (
        scale(across, _LEFT, _WIDTH - _LEFT - _RIGHT),
        scale(up, _HEIGHT - _BOTTOM, -(_HEIGHT - _TOP - _BOTTOM)),
    )


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


def _axes(
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    across: Scale,
    up: Scale,
    x_format: Callable[[float], str],
    y_format: Callable[[float], str],
) -> Iterator[str]:
    for tick in y_ticks:
        yield (
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" '
            f'y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
            f'<text class="tick" text-anchor="end" x="{_LEFT - 5}" y="{up(tick) + 4:.1f}">'
            f"{y_format(tick)}</text>"
        )
    for tick in x_ticks:
        yield (
            f'<text class="tick" text-anchor="middle" x="{across(tick):.1f}" '
            f'y="{_HEIGHT - _BOTTOM + 15}">{x_format(tick)}</text>'
        )


def _svg(parts: Sequence[str], x_label: str, y_label: str, title: str) -> str:
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    labels = (
        f'<text class="label" text-anchor="middle" x="{middle}" y="{_HEIGHT - 6}">'
        f"{html.escape(x_label)}</text>"
        f'<text class="label" x="4" y="10">{html.escape(y_label)}</text>'
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f"{''.join(parts)}{labels}</svg>"
    )


def _percent(value: float) -> str:
    return f"{100 * value:.3g}%"


def _three(value: float) -> str:
    return f"{value:.3f}"


def _duration(milliseconds: float) -> str:
    if milliseconds < 1000:
        return f"{milliseconds:g} ms"
    return f"{milliseconds / 1000:g} s"


def _short(value: float) -> str:
    return f"{value:.3g}"
