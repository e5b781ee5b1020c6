"""A report as a page: figures, charts, examples and all queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from crossgate._core import Signals
from crossgate._evaluation.measures.losses import DEPTH, PLACES
from crossgate._evaluation.measures.per_query import Answered
from crossgate._evaluation.measures.quality import METRICS
from crossgate._evaluation.measures.worst_answers import Shown, WorstAnswer
from crossgate._evaluation.report.answers import (
    LABELS,
    advice,
    gate_sentence,
    headline,
    misses,
    sorted_answers,
)
from crossgate._evaluation.report.charts import (
    abstention_chart,
    coverage_chart,
    curve_chart,
    flow_chart,
    histogram_chart,
    latency_chart,
    path_name,
    reliability_chart,
)
from crossgate._evaluation.report.page import explained, figure, legend, page, table
from crossgate._evaluation.report.query_table import SCRIPT, STYLE, queries_table
from crossgate._evaluation.report.summary import Group, Report
from crossgate._evaluation.report.text import (
    count,
    length,
    percentage,
    points,
    share,
    subject,
    tail_cut,
)
from crossgate._support.wording import counted, share_of
from crossgate._values.messages import REASONS

_OPEN = 3  # examples that are shown without a click

# A share that another row states: 1 minus the false-positive rate.
_DERIVED = {"abstention_recall"}


def html_report(reports: Sequence[Report]) -> str:
    """Return one HTML page with all reports; the texts of queries and documents are escaped."""
    names = ", ".join(f"{report.header.dataset} {report.header.split}" for report in reports)
    parts = (part for report in reports for part in _report(report))
    return page(f"crossgate eval: {names}", parts, style=STYLE, script=SCRIPT)


def _report(report: Report) -> Iterator[str]:
    header = report.header
    yield f"<h1>{escape(header.dataset)}, split {escape(header.split)}</h1>"
    yield f'<p class="headline">{escape(headline(report))}</p>'
    yield from _misses(report)
    sentence = gate_sentence(report)
    kind = "headline warning" if sentence.startswith("WARNING") else "headline"
    yield f'<p class="{kind}">{escape(sentence)}</p>'
    for pair in (
        (_quality(report), _gate(report)),
        (_shortlists(report), _probabilities(report)),
        (_losses(report), _groups(report)),
        (
            _examples("Misses in detail", report.missed),
            _examples("Needless picks in detail", report.picked_for_nothing),
        ),
    ):
        yield from _columns(*pair)
    yield from _signals(report)
    yield from queries_table(sorted_answers(report), _mode(report))
    yield from _subject(report)


def _mode(report: Report) -> str:
    return "gated" if "gated" in report.modes else report.modes[-1]


def _columns(*parts: Iterator[str]) -> Iterator[str]:
    """Put parts side by side on a wide page, below each other on a narrow one."""
    sections = [f"<section>{markup}</section>" for part in parts if (markup := "".join(part))]
    if sections:
        yield f'<div class="columns">{"".join(sections)}</div>'


def _misses(report: Report) -> Iterator[str]:
    """Yield the queries with a wrong answer, and advice."""
    found = misses(report)
    if found:
        yield "<h2>Queries to look at</h2>"
        yield '<div class="misses">'
        yield table(["", "query", "picked", "fits"], [_miss(query) for query in found])
        yield "</div>"
    suggestions = "".join(f"<li>{_code(escape(line))}</li>" for line in advice(report))
    if suggestions:
        yield f"<h2>What to try</h2><ul>{suggestions}</ul>"


def _miss(query: Answered) -> list[str]:
    label = f'<span class="outcome {query.outcome}">{LABELS[query.outcome]}</span>'
    picked, fitting = (
        ", ".join(f"<code>{escape(id)}</code>" for id in ids) or "nothing"
        for ids in (query.picked, query.fits)
    )
    sure = "" if query.confidence is None else f"<small>confidence {query.confidence:.2f}</small>"
    return [label, escape(query.text), f"{picked}{sure}", fitting]


def _code(markup: str) -> str:
    """Mark the commands between backticks as code."""
    parts = markup.split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _subject(report: Report) -> Iterator[str]:
    header = report.header
    size, models, machine, *rest = subject(report)
    yield (
        "<h2>How this was measured</h2>"
        f"<p>{size}. Brackets contain 95 % of bootstrap replicates.</p>"
        "<p>Stage 1 scores all documents by meaning and words. Stage 2, the cross-encoder, reads "
        "the best of them together with the query. The gate decides which queries it reads.</p>"
    )
    lines = [
        f"{models}; seed {header.seed}",
        f"{machine}; {header.machine['system']}; {header.date}",
        *report.notes,
        *rest,
    ]
    yield "".join(f'<p class="soft">{escape(line)}</p>' for line in lines)


def _quality(report: Report) -> Iterator[str]:
    yield "<h2>Quality</h2>"
    rows: list[list[str]] = []
    same: dict[tuple[str, ...], list[str]] = {}
    for metric in METRICS:
        intervals = [report.quality[mode][metric.name] for mode in report.modes]
        if not any(intervals) or metric.name in _DERIVED:
            continue
        shares = tuple(_stacked(share(interval)) for interval in intervals)
        name = escape(metric.name.replace("_", " "))
        if shares in same:  # one row per fact
            same[shares][0] += f"<small>the same: {name}</small>"
            continue
        row = [f"{name}<small>{escape(metric.meaning)}</small>", *shares]
        same[shares] = row
        rows.append(row)
    if report.against_always and report.matched:
        cells = [_stacked(points(report.against_always.get(mode))) for mode in report.modes]
        rows.append(["recall@1 against always<small>in points</small>", *cells])
        cells = [_stacked(share(report.recall_without_thresholds[mode])) for mode in report.modes]
        label = "recall@1, without thresholds<small>no floor, threshold or guardrail</small>"
        rows.append([label, *cells])
        cells = [_stacked(points(report.stage2_gain.get(mode))) for mode in report.modes]
        rows.append(["difference of stage 2 to it<small>in points, against never</small>", *cells])
    if report.no_match and report.matched:
        cells = [percentage(report.kept(mode)) for mode in report.modes]
        rows.append(["recall@1 kept<small>of recall@1 without thresholds</small>", *cells])
    yield table(["", *report.modes], rows)
    if not report.no_match:
        yield "<p>Abstention was not measured: there are no no-match queries.</p>"
    if not report.matched:
        yield "<p>Recall was not measured: no query has a match.</p>"
    if report.ceiling is not None:
        yield (
            f"<p>Stage 1 has {share(report.ceiling)} of the fitting documents among its first "
            f"{counted(report.pool_size, 'candidate')}: stage 2 can reach no more.</p>"
        )


def _shortlists(report: Report) -> Iterator[str]:
    fitted = report.profile.shortlist
    if not fitted.stage1:
        return
    yield (
        f"<h2>Shortlist</h2><p>At most {counted(fitted.most, 'document')}, which contain a fitting "
        f"one for {fitted.coverage:.0%} of the queries with a match, as the profile promises for "
        "queries like those that it was fitted on.</p>"
    )
    figures = [report.shortlists[mode] for mode in report.modes]
    rows = [
        ("coverage", "a fitting document is listed", [share(of.coverage) for of in figures]),
        ("all", "it contains all that fit", [share(of.coverage_all) for of in figures]),
        ("length", "mean, with a match", [length(of.size) for of in figures]),
        ("one document", "share of these lists", [percentage(of.single) for of in figures]),
        ("empty", "although something fits", [share(of.empty) for of in figures]),
        ("not empty", "although nothing fits", [share(of.shown) for of in figures]),
        ("full", "although nothing fits", [share(of.full) for of in figures]),
        ("length", "mean, without a match", [length(of.size_no_match) for of in figures]),
        ("characters", "of the listed texts, per query", [count(of.characters) for of in figures]),
        ("tokens", "estimated from the characters", [count(of.tokens) for of in figures]),
    ]
    yield table(
        ["", *report.modes],
        [
            [f"{name}<small>{meaning}</small>", *map(_stacked, cells)]
            for name, meaning, cells in rows
            if set(cells) != {"-"}
        ],
    )
    if report.coverage_curve:
        chart = figure(
            coverage_chart(report.coverage_curve),
            "Coverage as the promise varies. Further left is shorter, further up is better.",
        )
        yield f'<div class="charts">{chart}</div>'


def _probabilities(report: Report) -> Iterator[str]:
    if not report.reliability:
        return
    yield "<h2>Probabilities</h2>"
    yield table(
        ["", "stated", "observed", "calibration error"],
        [
            [
                _probability(known.rank),
                f"{known.stated:.3f}",
                f"{known.observed:.3f}",
                f"{known.error:.3f}",
            ]
            for known in report.reliability
        ],
    )
    yield '<div class="charts">'
    for known in report.reliability[:2]:
        yield figure(
            reliability_chart(known.bins),
            f"{_probability(known.rank)}: stated against observed share; on the dashed line they "
            f"agree. Mean distance {known.error:.3f}.",
        )
    yield "</div>"


def _probability(rank: int) -> str:
    return "any document fits" if rank == 0 else f"relevance at rank {rank}"


def _gate(report: Report) -> Iterator[str]:
    account = report.economics
    if account is None:
        return
    yield "<h2>Savings of the gate</h2>"
    if report.curve and report.matched:
        yield '<div class="charts">'
        yield figure(
            curve_chart(report.curve),
            "recall@1 as the gate's leads vary and all else stays the same. Further right is "
            "cheaper, further up is better.",
        )
        if report.abstention:
            yield figure(
                abstention_chart(report.abstention),
                "precision@1 as the threshold of an answer's probability varies and all else stays "
                "the same. Further left means fewer false positives, further up is better.",
            )
        yield "</div>"
    reasons = "".join(
        f"<li><code>{escape(reason)}</code>: {count}"
        f'<span class="soft">, {escape(REASONS.get(reason, ""))}</span></li>'
        for reason, count in account.reasons.items()
    )
    skipped = account.queries - account.reranked
    yield f"<p>Stage 2 was skipped for {share_of(skipped, account.queries, 'query')}.</p>"
    yield f"<ul>{reasons}</ul>" if reasons else ""
    always = "" if account.pairs_always is None else f" of {account.pairs_always} without a gate"
    if account.tightened is not None:
        yield f"<p>Tail of the pool cut below a score cliff: {escape(tail_cut(account))}.</p>"
    yield f"<p>Stage 2 scored {counted(account.pairs, 'pair')}{always}.</p>"
    yield table(
        ["milliseconds", "queries", "p50", "p95", "p99"],
        [
            [
                path_name(latency.path),
                str(latency.count),
                *(f"{value:.1f}" for value in (latency.p50, latency.p95, latency.p99)),
            ]
            for latency in account.latencies
        ],
    )
    timed = [latency for latency in account.latencies if latency.spread]
    if timed:
        keys = legend(
            (f"of-{position}", path_name(latency.path)) for position, latency in enumerate(timed)
        )
        chart = figure(latency_chart(timed), f"Further left is faster. {keys}")
        yield f'<div class="charts">{chart}</div>'
    noise = report.noise
    if noise.first_ms is not None and noise.second_ms is not None:
        yield (
            f'<p class="soft">Routed twice: {counted(noise.repeated, "query")}, of which '
            f"{noise.same} were decided the same, p50 {noise.first_ms:.1f} and "
            f"{noise.second_ms:.1f} ms.</p>"
        )
    if noise.recall_floor is not None:
        yield (
            '<p class="soft">Two samples of this size from the same system differ by up to '
            f"{100 * noise.recall_floor:.1f} points of recall@1.</p>"
        )


def _losses(report: Report) -> Iterator[str]:
    if not report.matched:
        return
    yield "<h2>Where right answers get lost</h2>"
    shown = _mode(report)
    flow = figure(
        flow_chart(report.matched, report.lost[shown]),
        f"{shown}: the width of a band is its number of queries.",
    )
    yield f'<div class="wide">{flow}</div>'
    yield table(
        ["first pick does not fit", *report.modes],
        [
            [
                f"{escape(meaning)}<small>{place}</small>",
                *(str(report.lost[mode].get(place, 0)) for mode in report.modes),
            ]
            for place, meaning in PLACES.items()
            if any(report.lost[mode].get(place) for mode in report.modes)
        ],
    )
    for mode, moves in report.moves.items():
        yield (
            f"<p>{mode}: stage 2 pushed {moves.pushed_out} of {moves.first} right answers out of "
            f"rank 1, and pulled {moves.pulled_in} of {moves.deep} from below rank {DEPTH} into "
            f"the first {DEPTH}.</p>"
        )


def _groups(report: Report) -> Iterator[str]:
    for title, name in (
        ("recall@1 by kind, lowest first", "recall"),
        ("False-positive rate by kind, highest first", "false_positive_rate"),
    ):
        rows = []
        for group in _sorted_groups(report, name):
            shares = group.recall if name == "recall" else group.false_positive_rate
            if any(shares.values()):
                count = counted(group.queries, "query")
                label = f"{escape(group.name)}<small>{count}</small>"
                rows.append([label, *(_stacked(share(shares[mode])) for mode in report.modes)])
        if rows:
            yield f"<h2>{title}</h2>" + table(["", *report.modes], rows)


def _sorted_groups(report: Report, name: str) -> list[Group]:
    """Return the kinds, those with the worst figure in the shown mode first."""
    mode, sign = _mode(report), 1 if name == "recall" else -1

    def figure_of(group: Group) -> float:
        interval = (group.recall if name == "recall" else group.false_positive_rate)[mode]
        return 0.0 if interval is None else sign * interval.value

    return sorted(report.groups, key=figure_of)


def _signals(report: Report) -> Iterator[str]:
    if not report.strengths:
        return
    yield "<h2>Signals</h2><p>Area under the ROC curve for the gate's two questions: does a low "
    yield "value predict that stage 2 is needed, and a high one that there is a match? 0.5 is "
    yield "chance.</p>"
    yield table(
        ["", "rerank?", "anything relevant?"],
        [
            [
                explained(strength.name, _meaning(strength.name)),
                _stacked(share(strength.rerank)),
                _stacked(share(strength.answer)),
            ]
            for strength in report.strengths
        ],
    )
    yield '<div class="charts">'
    key = legend([("match", "with a match"), ("no-match", "without")])
    for histogram in report.histograms:
        yield figure(histogram_chart(histogram), key)
    yield "</div>"


def _meaning(signal: str) -> str | None:
    """Return the meaning of a signal, for those of the gate as the core documents it."""
    field = getattr(Signals, signal, None)
    return _AFTER_THE_GATE.get(signal) if field is None else " ".join(field.__doc__.split())


_AFTER_THE_GATE = {
    "rerank_score": "the cross-encoder's score of the first document",
    "any_fits": "the profile's probability that any document fits",
    "confidence": "the profile's probability that the first document fits",
}


def _examples(title: str, examples: Sequence[WorstAnswer]) -> Iterator[str]:
    if not examples:
        return
    yield f"<h2>{title}</h2>"
    for position, example in enumerate(examples):
        what = explained(example.reason, REASONS.get(example.reason))
        if example.lost:
            what += f", {escape(PLACES[example.lost])}"
        shown = [("picked", example.picked), *(("fits", expected) for expected in example.expected)]
        documents = "".join(_document(role, document) for role, document in shown)
        yield (
            f"<details{' open' if position < _OPEN else ''}><summary>{escape(example.text)} "
            f'<span class="soft">({what})</span></summary><dl>{documents}</dl></details>'
        )


def _document(role: str, document: Shown | None) -> str:
    if document is None:
        return f"<dt>{role}</dt><dd>nothing</dd>"
    rank = "not found by stage 1" if document.rank is None else f"rank {document.rank}"
    score = "" if document.logit is None else f", rerank score {document.logit:.2f}"
    return (
        f"<dt>{role}: <code>{escape(document.id)}</code>, {rank}{score}</dt>"
        f"<dd>{escape(document.excerpt)}</dd>"
    )


def _stacked(cell: str) -> str:
    """Put the interval of a cell on a separate line."""
    value, bracket, interval = cell.partition(" [")
    return f"{value}<small>[{interval}</small>" if bracket else value
