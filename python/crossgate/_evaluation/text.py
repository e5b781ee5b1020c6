"""A report as text, at most 100 columns wide: answer, misses, advice, then all figures."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence

from crossgate._core import fits
from crossgate._evaluation.charts import path_name
from crossgate._evaluation.economics import Economics
from crossgate._evaluation.metrics import DEPTH, PLACES
from crossgate._evaluation.sections import LABELS, advice, gate_sentence, headline, misses
from crossgate._evaluation.statistics import Interval
from crossgate._evaluation.summary import Report
from crossgate._support.sanitize import columns, fit
from crossgate._support.wording import counted

WIDTH = 100
_APPLY_BAND = (0.02, 0.40)
"""The share of pools that a well-chosen `cliff_core` cuts: with less, cliffs are hardly ever found;
with more, the pools are too large."""

_LABEL = 24
_COLUMN = 22
_NARROW = 16
_MOST_WIDE = 3  # how many columns fit with all their digits
_BRACKET = re.compile(r"\[(\S+), (\S+)\]")

_RANKING = ("recall@1", "recall@3", "recall@5", "recall@10", "precision@1", "mrr@10", "ndcg@10")
_ABSTENTION = ("false_positive_rate", "abstention_precision")
_WRONG = ("wrong_pick@1", "wrong_pick@2")

_MISSES = 10  # shown in a terminal; a page shows all
_QUERY, _PICK = 44, 22


def text_report(report: Report, *, signals: bool = False) -> str:
    """Return the report for a terminal.

    Args:
        report: The report.
        signals: Whether to show how well each signal answers the gate's questions.
    """
    sections = [
        _wrapped([headline(report)]),
        list(_misses(report)),
        list(_advice(report)),
        [*_wrapped([gate_sentence(report)]), *_subject(report)],
        list(_quality(report)),
        list(_shortlists(report)),
        list(_probabilities(report)),
        list(_losses(report)),
        list(_economics(report)),
        list(_groups(report)),
        list(_curve(report)),
        list(_signals(report)) if signals else [],
        list(_noise(report)),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _misses(report: Report) -> Iterator[str]:
    """Yield the queries with a wrong answer, with their picks and the fitting documents."""
    found = misses(report)
    if not found:
        return
    yield f"{'':<14}{'query':<{_QUERY}} {'picked':<{_PICK}} fits"
    for query in found[:_MISSES]:
        text, picked, fits_it = (
            fit(" ".join(text.split()), width)
            for text, width in (
                (query.text, _QUERY),
                (", ".join(query.picked) or "-", _PICK),
                (", ".join(query.fits) or "-", WIDTH - 16 - _QUERY - _PICK),
            )
        )
        text, picked = (
            cell + " " * (width - columns(cell))
            for cell, width in ((text, _QUERY), (picked, _PICK))
        )
        yield f"{LABELS[query.outcome]:<14}{text} {picked} {fits_it}".rstrip()
    if len(found) > _MISSES:
        yield f"and {len(found) - _MISSES} more: --html FILE lists all"


def _advice(report: Report) -> Iterator[str]:
    suggestions = _wrapped([f"- {line}" for line in advice(report)])
    if suggestions:
        yield "what to try"
        yield from suggestions


def _subject(report: Report) -> Iterator[str]:
    header = report.header
    size, models, machine, *degraded = subject(report)
    first = f"{header.dataset} {header.split}: {size}"
    notes = (f"note: {note}" for note in report.notes)
    yield from _wrapped([first, models, machine, *notes, *degraded])


def subject(report: Report) -> list[str]:
    """Return lines about the measured data: size, models, machine, and degraded queries."""
    header = report.header
    skipped = f", {header.skipped} malformed rows skipped" if header.skipped else ""
    versions = ", ".join(f"{name} {version}" for name, version in header.versions.items())
    return [
        f"{counted(header.documents, 'document')}, {counted(report.matched, 'query')} with a "
        f"match, {report.no_match} without{skipped}",
        f"profile {report.profile.name}; {header.embedder or 'no embedder'}; "
        f"{header.reranker or 'no reranker'}{_remote_reranker(report)}",
        f"{header.machine['processor']}, {counted(header.machine['cores'], 'core')}; {versions}",
        *(
            f"degraded: {code}, {counted(count, 'query')}"
            for code, count in report.degraded.items()
        ),
    ]


def _quality(report: Report) -> Iterator[str]:
    yield _of_modes(report, "quality, 95 % interval", report.modes)
    yield from _metrics(report, _RANKING)
    if any(report.recall_without_thresholds.values()):
        cells = [share(report.recall_without_thresholds[mode]) for mode in report.modes]
        yield _of_modes(report, "  without thresholds: @1", cells)
    if any(report.stage2_gain.values()):
        cells = [points(report.stage2_gain.get(mode)) for mode in report.modes]
        yield _of_modes(report, "  stage 2 - 1, points", cells)
    if report.against_always:
        cells = [points(report.against_always.get(mode)) for mode in report.modes]
        yield _of_modes(report, "recall@1 - always, points", cells)
    if report.ceiling is not None:
        yield f"recall of stage 1: {share(report.ceiling)} in its first {report.pool_size},"
        yield f"{share(report.found)} in all its candidates: an upper bound for stage 2"
    yield ""
    yield _of_modes(report, "abstention", report.modes)
    if report.no_match:
        yield from _metrics(report, _ABSTENTION, blank=True)
        kept = [percentage(report.kept(mode)) for mode in report.modes]
        yield _of_modes(report, "recall@1 kept", kept)
    else:
        yield "not measured: this dataset has no queries without a match"
    yield from _metrics(report, _WRONG)


def _metrics(report: Report, names: Iterable[str], *, blank: bool = False) -> Iterator[str]:
    """Yield a row for these metrics with a value in some mode; with `blank` for all.

    Metrics with equal figures share a row.
    """
    rows: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        cells = tuple(share(report.quality[mode][name]) for mode in report.modes)
        if blank or set(cells) != {"-"}:
            rows.setdefault(cells, []).append(name.replace("_", " "))
    for cells, (first, *others) in rows.items():
        yield _of_modes(report, first, cells)
        if others:
            yield f"  the same: {', '.join(others)}"


def _shortlists(report: Report) -> Iterator[str]:
    fitted = report.profile.shortlist
    if not fitted.stage1:
        return
    figures = [report.shortlists[mode] for mode in report.modes]
    yield _of_modes(report, f"shortlist of at most {fitted.most}", report.modes)
    yield f"promised: a fitting document for {fitted.coverage:.0%} of the queries with a match"
    rows: list[tuple[str, list[str]]] = [
        ("  coverage", [share(of.coverage) for of in figures]),
        ("  all that fit are on it", [share(of.coverage_all) for of in figures]),
        ("  mean length", [length(of.size) for of in figures]),
        ("  has one document", [percentage(of.single) for of in figures]),
        ("  empty, with a match", [share(of.empty) for of in figures]),
        ("  not empty, no match", [share(of.shown) for of in figures]),
        ("  full, no match", [share(of.full) for of in figures]),
        ("  mean length, no match", [length(of.size_no_match) for of in figures]),
        ("  characters per query", [count(of.characters) for of in figures]),
        ("  tokens, about", [count(of.tokens) for of in figures]),
    ]
    for label, cells in rows:
        if set(cells) != {"-"}:
            yield _of_modes(report, label, cells)
    if report.coverage_curve:
        yield ""
        yield _row("as the promise varies", ["coverage", "mean length", ""], width=14)
        for point in report.coverage_curve:
            mark = "<- shipped" if point.shipped else ""
            cells = [f"{point.coverage:.3f}", f"{point.size:.2f}", mark]
            yield _row(f"  {point.promised:.0%}", cells, width=14)


def _probabilities(report: Report) -> Iterator[str]:
    if not report.reliability:
        return
    yield _row("probabilities", ["stated", "observed", "calibration error"], width=18)
    for known in report.reliability:
        name = "any document fits" if known.rank == 0 else f"relevance at rank {known.rank}"
        cells = [f"{known.stated:.3f}", f"{known.observed:.3f}", f"{known.error:.3f}"]
        yield _row(f"  {name}", cells, width=18)


def _losses(report: Report) -> Iterator[str]:
    if not report.matched:
        return
    moves = report.moves
    yield _of_modes(report, "first pick does not fit", report.modes)
    for place, meaning in PLACES.items():
        counts = [report.lost[mode].get(place, 0) for mode in report.modes]
        if any(counts):
            yield _of_modes(report, f"  {meaning}", map(str, counts))
    for what, cells in (
        ("pushed out of rank 1", [_of(moved.pushed_out, moved.first) for moved in moves.values()]),
        (
            f"pulled into first {DEPTH}",
            [_of(moved.pulled_in, moved.deep) for moved in moves.values()],
        ),
    ):
        yield _of_modes(report, what, [*[""] * (len(report.modes) - len(cells)), *cells])


def _economics(report: Report) -> Iterator[str]:
    account = report.economics
    if account is None:
        return
    skipped = account.queries - account.reranked
    reasons = ", ".join(f"{reason} {count}" for reason, count in account.reasons.items())
    yield f"stage 2 skipped  {_of(skipped, account.queries)} {f'({reasons})' if reasons else ''}"
    if account.pairs_always is not None:
        always = f" of the {account.pairs_always} that always scores"
    else:
        always = ""
    yield f"tail cut         {tail_cut(account)}"
    yield f"pairs scored     {account.pairs}{always}"
    yield ""
    yield _row("milliseconds", ["queries", "p50", "p95", "p99"], width=10)
    for latency in account.latencies:
        cells = [
            str(latency.count),
            f"{latency.p50:.1f}",
            f"{latency.p95:.1f}",
            f"{latency.p99:.1f}",
        ]
        yield _row(f"  {path_name(latency.path)}", cells, width=10)


def _curve(report: Report) -> Iterator[str]:
    if not report.curve:
        return
    yield _row("as the leads vary", ["skipped", "recall@1", "false positive", ""], width=14)
    # Ten points of the curve, and the shipped one.
    step = max(1, len(report.curve) // 10)
    for position, point in enumerate(report.curve):
        if point.shipped or position % step == 0 or position == len(report.curve) - 1:
            cells = [
                f"{point.skip_rate:.1%}",
                "-" if point.recall is None else f"{point.recall:.3f}",
                percentage(point.false_positive_rate),
                "<- shipped" if point.shipped else "",
            ]
            yield _row(f"  times {point.factor:.3g}", cells, width=14)
    if not report.abstention:
        return
    yield ""
    yield _row("as the threshold varies", ["false positive", "precision@1", ""], width=14)
    step = max(1, len(report.abstention) // 8)
    for position, threshold in enumerate(report.abstention):
        if threshold.shipped or position % step == 0:
            cells = [percentage(threshold.false_positive_rate), f"{threshold.precision:.3f}"]
            mark = "<- shipped" if threshold.shipped else ""
            yield _row(f"  at least {threshold.least:.3f}", [*cells, mark], width=14)


def _groups(report: Report) -> Iterator[str]:
    if not report.groups:
        return
    yield _of_modes(report, "recall@1 by kind", report.modes)
    for group in report.groups:
        label = f"  {group.name}"[: _LABEL - 6] + f" {group.queries}"
        if any(group.recall.values()):
            yield _of_modes(report, label, [share(group.recall[mode]) for mode in report.modes])
    rows = [group for group in report.groups if any(group.false_positive_rate.values())]
    if rows:
        yield _of_modes(report, "false positives by kind", report.modes)
    for group in rows:
        label = f"  {group.name}"[: _LABEL - 6] + f" {group.queries}"
        yield _of_modes(
            report, label, [share(group.false_positive_rate[mode]) for mode in report.modes]
        )


def _signals(report: Report) -> Iterator[str]:
    yield _row("AUC of a signal", ["rerank? (low value)", "anything relevant?"])
    for strength in report.strengths:
        yield _row(f"  {strength.name}", [share(strength.rerank), share(strength.answer)])


def _noise(report: Report) -> Iterator[str]:
    noise = report.noise
    if noise.recall_floor is not None:
        yield from _wrapped(
            [
                f"noise: two samples of this size from the same system "
                f"differ by up to {100 * noise.recall_floor:.1f} points of recall@1"
            ]
        )
    if noise.first_ms is not None and noise.second_ms is not None:
        yield (
            f"A/A: {counted(noise.repeated, 'query')} routed twice, {noise.same} decided the same, "
            f"p50 {noise.first_ms:.1f} and {noise.second_ms:.1f} ms"
        )


def _of_modes(report: Report, label: str, cells: Iterable[str]) -> str:
    """Return a row with one cell per mode; with four modes, cells lose digits."""
    if len(report.modes) <= _MOST_WIDE:
        return _row(label, list(cells))
    narrow = [_BRACKET.sub(_narrowed, cell).partition(" (")[0] for cell in cells]
    return _row(label, narrow, width=_NARROW)


def _narrowed(bracket: re.Match[str]) -> str:
    low, high = bracket[1], bracket[2]
    if low.startswith(("+", "-")):  # points
        return f"[{float(low):+.0f},{float(high):+.0f}]"
    return f"[{float(low):.2f},{float(high):.2f}]".replace("0.", ".")


def _row(label: str, cells: Sequence[str] | Iterator[str], *, width: int = _COLUMN) -> str:
    return f"{label:<{_LABEL}}  {' '.join(f'{cell:>{width}}' for cell in cells)}".rstrip()


def length(interval: Interval | None) -> str:
    """Return a mean length with its interval."""
    if interval is None:
        return "-"
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def count(value: float | None) -> str:
    """Return a mean count as a whole number."""
    return "-" if value is None else f"{value:.0f}"


def share(interval: Interval | None) -> str:
    """Return a share with its interval."""
    if interval is None:
        return "-"
    return f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _remote_reranker(report: Report) -> str:
    """Return the remote reranker, to follow the models; empty without the mode `remote`."""
    identity = report.header.remote
    if identity is None or "remote" not in report.modes:
        return ""
    fitted = fits(report.profile, identity)
    return f"; remote {identity}{'' if fitted else ', for which the profile was not fitted'}"


def tail_cut(account: Economics) -> str:
    """Return how often the tail of the pool was cut, compared with how often it should be."""
    rate = account.tighten_apply_rate
    if rate is None:
        off = account.tightened is None
        return "off: the policy sets no cliff_core" if off else "no pool was read"
    low, high = _APPLY_BAND
    where = "below" if rate < low else "above" if rate > high else "within"
    return (
        f"{_of(account.tightened or 0, account.reranked)} of the pools, {where} the expected "
        f"{low:.0%} to {high:.0%}"
    )


def percentage(value: float | None) -> str:
    """Return a share as a percentage."""
    return "-" if value is None else f"{value:.1%}"


def points(interval: Interval | None) -> str:
    """Return a difference of shares with its interval, in percentage points."""
    if interval is None:
        return "-"
    value, low, high = (100 * number for number in (interval.value, interval.low, interval.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def _of(count: int, total: int) -> str:
    return f"{count} of {total}" + (f" ({count / total:.1%})" if total else "")


def _wrapped(lines: Sequence[str]) -> list[str]:
    fill: Callable[[str], list[str]] = textwrap.TextWrapper(
        width=WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ).wrap
    return [part for line in lines for part in fill(line)]
