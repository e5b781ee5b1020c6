"""The first part of a report: counts of right answers, the other queries, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from crossgate._evaluation.metrics import Answered
from crossgate._evaluation.statistics import Interval
from crossgate._evaluation.summary import Report
from crossgate._support.wording import counted, share_of

LABELS = {
    "wrong": "wrong pick",
    "injected": "needless pick",
    "missed": "held back",
    "right": "right",
    "silent": "rightly none",
}
"""The names of the outcomes for a reader, misses first."""

_ORDER = list(LABELS)

_ALWAYS_SKIPS = "WARNING: the gate never asked stage 2: it skipped all {count}."
_NEVER_SKIPS = "WARNING: the gate never skipped: stage 2 read the pool of all {count}."

# A threshold that leaves out needless picks may cost one right pick for each two of them.
_PICKS_PER_LOSS = 2


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
        return _ALWAYS_SKIPS.format(count=count)
    if account.reranked == account.queries:
        return _NEVER_SKIPS.format(count=count)
    skipped = f"The gate skipped stage 2 for {account.skip_rate:.1%} of {count}"
    difference = report.against_always.get("gated")
    if difference is None:
        return f"{skipped}."
    low, high = 100 * difference.low, 100 * difference.high
    if is_noise(difference):
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


def is_noise(difference: Interval) -> bool:
    """Return whether a difference may be zero."""
    return difference.low <= 0 <= difference.high


def sorted_answers(report: Report) -> list[Answered]:
    """Return all queries: misses first, those with a pick by descending confidence."""
    return sorted(
        report.answers,
        key=lambda query: (_ORDER.index(query.outcome), -(query.confidence or 0.0), query.id),
    )


def misses(report: Report) -> list[Answered]:
    """Return the queries with a wrong answer."""
    return [
        query
        for query in sorted_answers(report)
        if query.outcome in ("wrong", "injected", "missed")
    ]


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
            "calibrate DOCUMENTS LABELS -o PROFILE --keep-recall 0.95` fits a threshold that keeps "
            "more of them"
        )
    confused = Counter(
        (query.picked[0], query.fits[0]) for query in report.answers if query.outcome == "wrong"
    )
    if confused:
        (picked, fitting), times = confused.most_common(1)[0]
        yield (
            f"descriptions: {picked} was picked for {counted(times, 'prompt')} of {fitting}"
            f"{'' if len(confused) == 1 else f', and {_others(len(confused) - 1)}'}. `crossgate "
            "lint DOCUMENTS LABELS` shows the sentences that they share"
        )


def _others(number: int) -> str:
    return f"{counted(number, 'other pair')} of documents confused"


def _threshold_advice(answers: Sequence[Answered]) -> Iterator[str]:
    """Yield the threshold that leaves out most needless picks for few right ones, if any."""

    def picks(outcome: str) -> list[float]:
        return [
            query.confidence
            for query in answers
            if query.outcome == outcome and query.confidence is not None
        ]

    needless, right = picks("injected"), picks("right")
    best, threshold = 0, 0.0
    for least in sorted(right):
        left_out = sum(confidence < least for confidence in needless)
        lost = sum(confidence < least for confidence in right)
        if left_out - _PICKS_PER_LOSS * lost > best:
            best, threshold = left_out - _PICKS_PER_LOSS * lost, least
    if best:
        least = int(threshold * 1000) / 1000
        left_out = sum(confidence < least for confidence in needless)
        lost = sum(confidence < least for confidence in right)
        if left_out:
            yield (
                f"threshold: --min-confidence {least:.3f} would have left out "
                f"{share_of(left_out, len(needless), 'needless pick')} and "
                f"{share_of(lost, len(right), 'right pick')}. `crossgate calibrate` fits it, and "
                "checks it on other queries than these"
            )


def _plain(value: float) -> str:
    return f"{value + 0.0:.1f}".replace("-0.0", "0.0")
