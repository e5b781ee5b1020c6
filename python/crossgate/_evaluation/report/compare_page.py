"""Two reports side by side as a page: the changes, both curves, and the queries that moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from crossgate._evaluation.measures.economics import CurvePoint
from crossgate._evaluation.measures.quality import METRICS
from crossgate._evaluation.report.charts import curve_chart, interval_chart
from crossgate._evaluation.report.compare import Change, Comparison, Moved
from crossgate._evaluation.report.page import explained, figure, legend, page, table
from crossgate._support.wording import counted, share_of


def html_comparison(
    comparison: Comparison,
    before: Mapping[str, dict[str, Any]],
    after: Mapping[str, dict[str, Any]],
) -> str:
    """Return one HTML page with the whole comparison; all names are escaped.

    Args:
        comparison: The result of `compare` for both.
        before: Reports by dataset and split, as `read_reports` returns them.
        after: The same, later.
    """
    names = list(dict.fromkeys(change.dataset for change in comparison.changes))
    parts = (part for name in names for part in _dataset(name, comparison, before, after))
    return page(f"crossgate eval compare: {', '.join(names)}", (*_head(comparison), *parts))


def _head(comparison: Comparison) -> Iterator[str]:
    fallen = sum(change.fell for change in comparison.changes)
    total = len(comparison.changes)
    kind = "headline warning" if fallen else "headline"
    verdict = (
        f"{share_of(fallen, total, 'metric')} fell beyond noise."
        if fallen
        else f"None of {counted(total, 'metric')} fell beyond noise."
    )
    yield f'<h1>Before and after</h1><p class="{kind}">{verdict}</p>'
    yield from (f'<p class="soft">{escape(note)}</p>' for note in comparison.notes)


def _dataset(
    name: str,
    comparison: Comparison,
    before: Mapping[str, dict[str, Any]],
    after: Mapping[str, dict[str, Any]],
) -> Iterator[str]:
    changes = [change for change in comparison.changes if change.dataset == name]
    yield f"<h2>{escape(name)}</h2>"
    curves = [
        [CurvePoint(**point) for point in report[name].get("curve") or ()]
        for report in (before, after)
    ]
    if all(any(point.recall is not None for point in points) for points in curves):
        key = legend([("of-0", "before"), ("of-1", "after")])
        chart = figure(
            curve_chart(*curves),
            "recall@1 as the gate's leads vary; the dots are the profiles themselves. "
            f"Further right is cheaper, further up is better. {key}",
        )
        yield f'<div class="charts">{chart}</div>'
    # The skip rate changes far more than quality does: on its scale, quality would not be visible.
    ends = [
        abs(end)
        for change in changes
        if change.metric != "skipped"
        for end in (change.difference.low, change.difference.high)
    ]
    most = max(ends, default=0.0) or 1.0
    for mode in dict.fromkeys(change.mode for change in changes):
        mine = [change for change in changes if change.mode == mode]
        moved = [change for change in mine if change.before != change.after or change.fell]
        yield f"<h3>{explained(mode)}</h3>"
        yield _changes(moved, most) if moved else ""
        if len(moved) < len(mine):
            same = len(mine) - len(moved)
            what = "1 metric is" if same == 1 else f"{same} metrics are"
            yield f'<p class="soft">{what} the same in both.</p>'
        for moves in comparison.moved:
            if (moves.dataset, moves.mode) == (name, mode):
                yield from _queries(moves)


def _changes(changes: Sequence[Change], most: float) -> str:
    rows = []
    for change in sorted(changes, key=lambda change: not change.fell):
        difference = change.difference
        interval = f"<small>[{difference.low:+.3f}, {difference.high:+.3f}]</small>"
        note = "<small>fell beyond noise</small>" if change.fell else ""
        rows.append(
            [
                f"{explained(change.metric.replace('_', ' '), _MEANINGS[change.metric])}{note}",
                f"{change.before:.3f}",
                f"{change.after:.3f}",
                f"{difference.value:+.3f}{interval}",
                interval_chart(difference, most, worse=change.fell),
            ]
        )
    return table(["", "before", "after", "difference", ""], rows)


_MEANINGS = {metric.name: metric.meaning for metric in METRICS}


def _queries(moved: Moved) -> Iterator[str]:
    for ids, what in (
        (moved.lost, "lost a right first pick"),
        (moved.gained, "gained a right first pick"),
    ):
        if ids:
            shown = ", ".join(f"<code>{escape(id)}</code>" for id in ids)
            count = f"{len(ids)} {'query' if len(ids) == 1 else 'queries'}"
            yield f"<details><summary>{count} {what}</summary><p>{shown}</p></details>"
