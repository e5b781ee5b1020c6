"""The content of a report, stated once for its text and its page: sentences, tables and charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from crossgate._evaluation import charts
from crossgate._evaluation.economics import AbstentionPoint, CoveragePoint, Economics
from crossgate._evaluation.metrics import DEPTH, METRICS, PLACES, Answered
from crossgate._evaluation.statistics import Interval
from crossgate._evaluation.summary import Report
from crossgate._support.wording import counted, share_of
from crossgate._values.results import REASONS

LABELS = {
    "wrong": "wrong pick",
    "injected": "needless pick",
    "missed": "held back",
    "right": "right",
    "silent": "rightly none",
}
"""The names of the outcomes for a reader, misses first."""

_ORDER = list(LABELS)

# A threshold that leaves out needless picks may cost one right pick for each two of them.
_PICKS_PER_LOSS = 2

# A share that another row states: 1 minus the false-positive rate.
_DERIVED = {"abstention_recall"}

_CUT_RATES = (0.02, 0.40)
"""The share of pools that a well-chosen `cliff_core` cuts: with less, cliffs are hardly ever found;
with more, the pools are too large."""


_Point = TypeVar("_Point", bound=AbstentionPoint | CoveragePoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a table.

    Attributes:
        name: The name of the figure.
        cells: One text per column.
        explanation: What the figure means, for a page; may be empty.
        same: Names of other figures with the same cells.
    """

    name: str
    cells: tuple[str, ...]
    explanation: str = ""
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        head: What the rows are, and the names of the columns.
        rows: The rows.
    """

    head: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart, which a terminal shows as a table.

    Attributes:
        svg: Draws the chart.
        caption: What it shows.
        table: Its numbers; None if another table of the section has them.
    """

    svg: Callable[[], str]
    caption: str = ""
    table: Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a report under one title: sentences, tables and charts in their order."""

    title: str
    parts: tuple[str | Table | Chart, ...]


def share(interval: Interval | None, form: str = ".3f", scale: int = 1) -> str:
    """Return a share with its interval, in a format, after multiplying it."""
    if interval is None:
        return "-"
    value, low, high = (
        f"{scale * number:{form}}" for number in (interval.value, interval.low, interval.high)
    )
    return f"{value} [{low}, {high}]"


def points(interval: Interval | None) -> str:
    """Return a difference of shares with its interval, in percentage points."""
    return share(interval, "+.1f", 100)


def percentage(value: float | None) -> str:
    """Return a share as a percentage."""
    return "-" if value is None else f"{value:.1%}"


def length(interval: Interval | None) -> str:
    """Return a mean length with its interval."""
    return share(interval, ".2f")


def count(value: float | None) -> str:
    """Return a mean count as a whole number."""
    return "-" if value is None else f"{value:.0f}"


def _plain(value: float) -> str:
    return f"{value + 0.0:.1f}".replace("-0.0", "0.0")


def sections(report: Report) -> Iterator[Section]:
    """Yield the sections of a report that have content."""
    for title, parts in (
        ("Quality", _quality(report)),
        ("Savings of the gate", _gate(report)),
        ("Shortlist", _shortlists(report)),
        ("Probabilities", _probabilities(report)),
        ("Where right answers get lost", _losses(report)),
        ("Kinds of queries", _groups(report)),
        ("Noise", _noise(report.noise_floor)),
    ):
        if content := tuple(parts):
            yield Section(title=title, parts=content)


def headline(report: Report) -> str:
    """Return the answer in one sentence: how many queries were answered rightly."""
    counts = Counter(query.outcome for query in report.answers)
    parts = []
    if report.matched:
        parts.append(f"{counts['right']} of {report.matched} right")
        parts += [f"{counts['wrong']} wrong"] if counts["wrong"] else []
        parts += [f"{counts['missed']} held back"] if counts["missed"] else []
    if report.no_match:
        parts.append(f"{counts['injected']} of {report.no_match} answered though nothing fits")
    return f"{', '.join(parts)}."


def gate_sentence(report: Report) -> str:
    """Return how often the gate skipped stage 2, and the change in recall@1.

    A difference is called a gain or a loss only if its interval leaves out zero.
    """
    account = report.economics
    if account is None:
        return f"The gate was not run on these {counted(report.queries, 'query')}."
    count = counted(account.queries, "query")
    if account.reranked == 0:
        return f"WARNING: the gate never asked stage 2: it skipped all {count}."
    if account.reranked == account.queries:
        return f"WARNING: the gate never skipped: stage 2 read the pool of all {count}."
    skipped = f"The gate skipped stage 2 for {account.skip_rate:.1%} of {count}"
    difference = report.against_always.get("gated")
    if difference is None:
        return f"{skipped}."
    low, high = 100 * difference.low, 100 * difference.high
    if difference.low <= 0 <= difference.high:
        return (
            f"{skipped}, with no difference of recall@1 from always asking it beyond noise "
            f"({_plain(low)} to {_plain(high)} points)."
        )
    what = "gained" if difference.value > 0 else "lost"
    ends = sorted((abs(low), abs(high)))
    return (
        f"{skipped} and {what} {abs(100 * difference.value):.1f} points of recall@1 against "
        f"always asking it ({_plain(ends[0])} to {_plain(ends[1])})."
    )


def sorted_answers(report: Report) -> list[Answered]:
    """Return all queries: misses first, those with a pick by descending confidence."""
    return sorted(
        report.answers,
        key=lambda query: (_ORDER.index(query.outcome), -(query.confidence or 0.0), query.id),
    )


def misses(report: Report) -> list[Answered]:
    """Return the queries with a wrong answer."""
    wrong = ("wrong", "injected", "missed")
    return [query for query in sorted_answers(report) if query.outcome in wrong]


def advice(report: Report) -> Iterator[str]:
    """Yield advice on the misses, each with its command."""
    held_back, needless = (
        sum(query.outcome == outcome for query in report.answers)
        for outcome in ("missed", "injected")
    )
    if needless > held_back:
        yield from _threshold_advice(report.answers)
    elif held_back:
        yield (
            f"threshold: {counted(held_back, 'query')} with a match got no pick. `crossgate "
            "calibrate DOCUMENTS LABELS -o PROFILE` moves the probabilities as far as these labels "
            "support"
        )
    confused = Counter(
        (query.picked[0], query.fits[0]) for query in report.answers if query.outcome == "wrong"
    )
    if confused:
        (picked, fitting), times = confused.most_common(1)[0]
        others = len(confused) - 1
        rest = f", and {counted(others, 'other pair')} of documents confused" if others else ""
        yield (
            f"descriptions: {picked} was picked for {counted(times, 'prompt')} of {fitting}{rest}. "
            "`crossgate lint DOCUMENTS LABELS` shows the sentences that they share"
        )


def _threshold_advice(answers: Sequence[Answered]) -> Iterator[str]:
    """Yield the threshold that leaves out most needless picks for few right ones, if any."""
    needless, right = (
        [
            query.confidence
            for query in answers
            if query.outcome == outcome and query.confidence is not None
        ]
        for outcome in ("injected", "right")
    )

    def below(threshold: float) -> tuple[int, int]:
        left_out = sum(confidence < threshold for confidence in needless)
        return left_out, sum(confidence < threshold for confidence in right)

    best, threshold = 0, 0.0
    for confidence in sorted(right):
        left_out, lost = below(confidence)
        if left_out - _PICKS_PER_LOSS * lost > best:
            best, threshold = left_out - _PICKS_PER_LOSS * lost, confidence
    threshold = int(threshold * 1000) / 1000
    left_out, lost = below(threshold)
    if best and left_out:
        yield (
            f"threshold: --min-confidence {threshold:.3f} would have left out "
            f"{share_of(left_out, len(needless), 'needless pick')} and "
            f"{share_of(lost, len(right), 'right pick')}. `crossgate calibrate` fits it, and "
            "checks it on other queries than these"
        )


def subject(report: Report) -> list[str]:
    """Return lines about the measured data: size, models, machine, notes, degraded queries."""
    header = report.header
    skipped = f", {counted(header.skipped, 'malformed row')} skipped" if header.skipped else ""
    versions = ", ".join(f"{name} {version}" for name, version in header.versions.items())
    models = f"profile {report.profile.name}; {header.embedder or 'no embedder'}; "
    models += header.reranker or "no reranker"
    return [
        f"{header.dataset} {header.split}: {counted(header.documents, 'document')}, "
        f"{counted(report.matched, 'query')} with a match, {report.no_match} without{skipped}",
        f"{models}; seed {header.seed}",
        f"{header.machine['processor']}, {counted(header.machine['cores'], 'core')}, "
        f"{header.machine['system']}; {versions}; {header.date}",
        *(f"note: {note}" for note in report.notes),
        *(
            f"degraded: {code}, {counted(count, 'query')}"
            for code, count in report.degraded.items()
        ),
    ]


def _quality(report: Report) -> Iterator[str | Table | Chart]:
    rows = [
        _row(
            report,
            metric.name.replace("_", " "),
            metric.meaning,
            {mode: share(report.quality[mode][metric.name]) for mode in report.modes},
        )
        for metric in METRICS
        if metric.name not in _DERIVED
    ]
    for name, explanation, cells in (
        (
            "against always",
            "recall@1 minus that of always, in points",
            _cells(report.against_always, points),
        ),
        (
            "without thresholds",
            "recall@1 without floor, threshold and guardrail",
            _cells(report.recall_without_thresholds, share),
        ),
        (
            "gain of stage 2",
            "recall@1 without thresholds minus that of never, in points",
            _cells(report.stage2_gain, points),
        ),
        (
            "recall@1 after thresholds",
            "share of the recall@1 without thresholds",
            {mode: percentage(report.kept(mode)) for mode in report.modes},
        ),
    ):
        rows += [_row(report, name, explanation, cells)] if report.matched else []
    yield _of_modes(report, "95 % interval", _merged(rows))
    if not report.no_match:
        yield "Abstention was not measured: there are no no-match queries."
    if not report.matched:
        yield "Recall was not measured: no query has a match."
    if report.ceiling is not None:
        yield (
            f"Stage 1 has {share(report.ceiling)} of the fitting documents among its first "
            f"{counted(report.pool_size, 'candidate')}, the most that stage 2 can reach, and "
            f"{share(report.found)} among all candidates."
        )


def _gate(report: Report) -> Iterator[str | Table | Chart]:
    account = report.economics
    if account is None:
        return

    if report.abstention:
        yield _threshold_curve(report)
    skipped = account.queries - account.reranked
    yield f"Stage 2 was skipped for {share_of(skipped, account.queries, 'query')}."
    if account.reasons:
        rows = (
            Row(name=reason, cells=(str(number),), explanation=REASONS.get(reason, ""))
            for reason, number in account.reasons.items()
        )
        yield Table(head=("rule that decided", "queries"), rows=tuple(rows))
    if account.tightened is not None:
        yield f"Tail of the pool cut below a score cliff: {_tail_cut(account)}."
    always = "" if account.pairs_always is None else f" of {account.pairs_always:,} without a gate"
    yield f"Stage 2 scored {counted(account.pairs, 'pair')}{always}."
    latencies = [
        (
            _path_name(latency.path),
            str(latency.count),
            *(f"{value:.1f}" for value in (latency.p50, latency.p95, latency.p99)),
        )
        for latency in account.latencies
    ]
    yield _table(("milliseconds", "queries", "p50", "p95", "p99"), latencies)


def _path_name(path: str) -> str:
    """Return the name of a query's path in a report."""
    return f"gated, {path}" if path in ("skipped", "reranked") else path


def _threshold_curve(report: Report) -> Chart:
    return _curve(
        charts.abstention_chart,
        report.abstention,
        ("as the threshold varies", "false positive", "right picks"),
        lambda point: (
            f"at least {point.least:.3f}",
            percentage(point.false_positive_rate),
            f"{point.right_picks:.3f}",
        ),
        "Right first picks as the threshold of an answer's probability varies and all else "
        "stays the same. Further left means fewer false positives, further up is better.",
        most=8,
    )


def _curve(
    chart: Callable[[Sequence[_Point]], str],
    points: Sequence[_Point],
    head: tuple[str, ...],
    cells: Callable[[_Point], tuple[str, ...]],
    caption: str,
    *,
    most: int,
) -> Chart:
    """Return a curve with a table of about `most` points, among them the last and the shipped."""
    step = max(1, len(points) // most)
    rows = [
        (*cells(point), "<- shipped" if point.shipped else "")
        for position, point in enumerate(points)
        if point.shipped or position % step == 0 or position == len(points) - 1
    ]
    return Chart(svg=partial(chart, points), caption=caption, table=_table((*head, ""), rows))


def _shortlists(report: Report) -> Iterator[str | Table | Chart]:
    fitted = report.profile.shortlist
    if not fitted.stage1:
        return
    yield (
        f"At most {counted(fitted.most, 'document')}, which contain a fitting one for "
        f"{fitted.coverage:.0%} of the queries with a match, as the profile promises for queries "
        "like those that it was fitted on."
    )
    rows = [
        _row(
            report,
            name,
            explanation,
            {mode: text(getattr(of, figure)) for mode, of in report.shortlists.items()},
        )
        for name, explanation, text, figure in _OF_SHORTLISTS
    ]
    yield _of_modes(report, "queries with a match", rows)
    if report.coverage_curve:
        yield _curve(
            charts.coverage_chart,
            report.coverage_curve,
            ("as the promise varies", "coverage", "mean length"),
            lambda point: (f"{point.promised:.0%}", f"{point.coverage:.3f}", f"{point.size:.2f}"),
            "Coverage as the promise varies. Further left is shorter, further up is better.",
            most=len(report.coverage_curve),
        )


_OF_SHORTLISTS: tuple[tuple[str, str, Callable[[Any], str], str], ...] = (
    ("coverage", "lists with a fitting document", share, "coverage"),
    ("all that fit", "lists with all fitting documents", share, "coverage_all"),
    ("mean length", "", length, "size"),
    ("one document", "share of the lists", percentage, "single"),
    ("empty", "", share, "empty"),
    ("not empty, no match", "", share, "shown"),
    ("full, no match", "", share, "full"),
    ("mean length, no match", "", length, "size_no_match"),
    ("characters", "of the listed texts, per query", count, "characters"),
    ("tokens", "estimated from the characters", count, "tokens"),
)
"""Name, explanation, format and attribute of the figures of shortlists."""


def _probabilities(report: Report) -> Iterator[str | Table | Chart]:
    if not report.reliability:
        return
    names = {
        each.rank: "any document fits" if each.rank == 0 else f"relevance at rank {each.rank}"
        for each in report.reliability
    }
    yield _table(
        ("", "stated", "observed", "calibration error"),
        [
            (
                names[each.rank],
                *(f"{value:.3f}" for value in (each.stated, each.observed, each.error)),
            )
            for each in report.reliability
        ],
    )
    for each in report.reliability[:2]:
        yield Chart(
            svg=partial(charts.reliability_chart, each.bins),
            caption=f"{names[each.rank]}: stated against observed share; on the dashed line they "
            f"agree. Mean distance {each.error:.3f}.",
        )


def _losses(report: Report) -> Iterator[str | Table | Chart]:
    if not report.matched:
        return
    rows = [
        _row(
            report,
            meaning,
            "",
            {mode: str(lost.get(place, 0)) for mode, lost in report.lost.items()},
        )
        for place, meaning in PLACES.items()
        if any(place in lost for lost in report.lost.values())
    ]
    yield _of_modes(report, "first pick does not fit", rows)
    for moved, moves in report.moves.items():
        yield (
            f"{moved}: stage 2 pushed {moves.pushed_out} of {moves.first} right answers out of "
            f"rank 1, and pulled {moves.pulled_in} of {moves.deep} from below rank {DEPTH} into "
            f"the first {DEPTH}."
        )


def _groups(report: Report) -> Iterator[Table]:
    """Yield the figures of each kind, those with the worst figure of the reference mode first."""
    for title, figure, sign in (
        ("recall@1, lowest first", "recall", 1),
        ("false positives, highest first", "false_positive_rate", -1),
    ):
        rows = []
        for group in report.groups:
            intervals: Mapping[str, Interval | None] = getattr(group, figure)
            if any(intervals.values()):
                place = intervals[reference(report)]
                number = counted(group.queries, "query")
                row = _row(report, group.name, number, _cells(intervals, share))
                rows.append((0.0 if place is None else sign * place.value, row))
        if rows:
            rows.sort(key=lambda pair: pair[0])
            yield _of_modes(report, title, [row for _, row in rows])


def _noise(floor: float | None) -> Iterator[str]:
    if floor is not None:
        yield (
            "Two samples of this size from the same system differ by up to "
            f"{100 * floor:.1f} points of recall@1."
        )


def reference(report: Report) -> str:
    """Return the mode whose answers are listed: gated, or else the last."""
    return "gated" if "gated" in report.modes else report.modes[-1]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    """Return a table of rows that are a name and its cells."""
    return Table(head=head, rows=tuple(Row(name=row[0], cells=row[1:]) for row in rows))


def _row(report: Report, name: str, explanation: str, cells: Mapping[Any, str]) -> Row:
    """Return a row with a cell for each mode of the report."""
    texts = tuple(cells.get(mode, "-") for mode in report.modes)
    return Row(name=name, cells=texts, explanation=explanation)


def _cells(
    values: Mapping[str, Interval | None], text: Callable[[Interval | None], str]
) -> dict[str, str]:
    return {mode: text(value) for mode, value in values.items()}


def _of_modes(report: Report, title: str, rows: Sequence[Row]) -> Table:
    """Return a table with a column per mode, without the rows that have no value."""
    return Table(
        head=(title, *report.modes), rows=tuple(row for row in rows if set(row.cells) != {"-"})
    )


def _merged(rows: Sequence[Row]) -> list[Row]:
    """Return one row for all figures of a ranking, such as recall@3, with equal cells."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        of_ranking = "@" in row.name and not row.name.startswith("wrong")
        groups.setdefault(row.cells if of_ranking else (row.name,), []).append(row)
    return [
        replace(first, same=tuple(row.name for row in others)) for first, *others in groups.values()
    ]


def _tail_cut(account: Economics) -> str:
    """Return how often the tail of the pool was cut, compared with how often it should be."""
    rate = account.tighten_apply_rate
    if rate is None:
        return "no pool was read"
    low, high = _CUT_RATES
    where = "below" if rate < low else "above" if rate > high else "within"
    return (
        f"{account.tightened} of {account.reranked} ({rate:.1%}) of the pools, {where} the "
        f"expected {low:.0%} to {high:.0%}"
    )
