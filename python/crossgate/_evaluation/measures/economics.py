"""Savings and costs of the gate: skips, cuts, pairs, latencies and trade-off curves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import crossgate._core as _core
from crossgate._core import Answer, Policy, Profile
from crossgate._evaluation.measures.losses import is_right
from crossgate._evaluation.runs.stored_runs import Mode, StoredQuery
from crossgate._values.results import RouteResult, Verdict

POINTS = 40
"""Maximum number of points of a curve, besides the shipped one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latency of the queries that took one path, including embedding, with warm models.

    Attributes:
        path: `skipped` or `reranked` for the two paths of the gated mode, or the name of a mode.
        count: How many queries took this path.
        p50: Median.
        p95: 95th percentile.
        p99: 99th percentile.
        spread: Every fifth percentile, in ascending order.
    """

    path: str
    count: int
    p50: float
    p95: float
    p99: float
    spread: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One setting of the winner's leads.

    Attributes:
        factor: Factor of the profile's leads; if it has none, the lead itself.
        skip_rate: Share of the queries that skip stage 2.
        recall: recall@1; None without queries with a match.
        false_positive_rate: Share of the no-match queries that get a pick; None without any.
        shipped: Whether this is the profile's own setting.
    """

    factor: float
    skip_rate: float
    recall: float | None
    false_positive_rate: float | None
    shipped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstentionPoint:
    """One threshold on the probability of an answer.

    Attributes:
        least: The smallest probability that is answered.
        precision: precision@1.
        false_positive_rate: Share of the no-match queries that get a pick.
        shipped: Whether this is the profile's own threshold.
    """

    least: float
    precision: float
    false_positive_rate: float
    shipped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Economics:
    """The gate's decisions and their cost.

    Attributes:
        queries: How many queries were routed.
        reranked: For how many of them stage 2 was asked.
        reasons: How many queries skipped stage 2, by the rule that decided.
        tightened: For how many reranked queries the tail below a score cliff was cut; None if the
            policy sets no `cliff_core`, so that no cliff is searched for.
        tighten_skips: How many of the others kept their tail, by reason.
        pairs: How many pairs stage 2 read.
        pairs_always: How many it reads without a gate; None if that was not measured.
        latencies: Milliseconds by path.
    """

    queries: int
    reranked: int
    reasons: dict[str, int]
    tightened: int | None
    tighten_skips: dict[str, int]
    pairs: int
    pairs_always: int | None
    latencies: tuple[Latency, ...]

    @property
    def skip_rate(self) -> float:
        """Share of the queries that skip stage 2, in [0, 1]."""
        return 1 - self.reranked / self.queries

    @property
    def tighten_apply_rate(self) -> float | None:
        """Share of the pools, in [0, 1], whose tail was cut; None if none could be."""
        if self.tightened is None or not self.reranked:
            return None
        return self.tightened / self.reranked


def account(
    queries: Sequence[StoredQuery],
    gated: Sequence[RouteResult],
    always: Sequence[RouteResult] | None,
    *,
    as_measured: bool,
) -> Economics:
    """Count the gate's decisions and their cost.

    Args:
        queries: The stored queries.
        gated: The gate's decisions.
        always: The decisions without a gate; None if unknown.
        as_measured: Whether the gate is the one that the run was measured with. Otherwise a query's
            time is that of `never` or `always`, by the path that it takes now.
    """
    skipped = [result.verdict is not Verdict.AMBIGUOUS for result in gated]
    spent = [
        _total(query, "gated" if as_measured else "never" if skip else "always")
        for query, skip in zip(queries, skipped, strict=True)
    ]
    paths = {
        "skipped": [time for time, skip in zip(spent, skipped, strict=True) if skip],
        "reranked": [time for time, skip in zip(spent, skipped, strict=True) if not skip],
        "gated": spent,
        "never": [_total(query, "never") for query in queries],
        "always": [_total(query, "always") for query in queries],
        "remote": [_total(query, "remote") for query in queries],
    }
    cuts = [cut for result in gated if (cut := result.trace["gate"]["cliff"]) is not None]
    return Economics(
        queries=len(queries),
        reranked=skipped.count(False),
        reasons=dict(
            Counter(
                result.reason for result, skip in zip(gated, skipped, strict=True) if skip
            ).most_common()
        ),
        tightened=None
        if all(result.trace["policy"]["cliff_core"] is None for result in gated)
        else sum(cut["skip_reason"] is None for cut in cuts),
        tighten_skips=dict(
            Counter(cut["skip_reason"] for cut in cuts if cut["skip_reason"]).most_common()
        ),
        pairs=sum(len(result.trace["stage2"]) for result in gated),
        pairs_always=None
        if always is None
        else sum(len(result.trace["stage2"]) for result in always),
        latencies=tuple(
            latency
            for path, times in paths.items()
            if (latency := _latency(path, times)) is not None
        ),
    )


def trade_off(
    queries: Sequence[StoredQuery],
    profile: Profile,
    policy: Policy,
    stage1_values: Sequence[tuple[float | None, float | None]],
    stage2_values: Sequence[tuple[float | None, float | None]],
) -> tuple[CurvePoint, ...]:
    """Return skip rate and quality as the winner's leads vary and all else stays the same.

    Both leads are multiplied by one factor, so the curve passes through the shipped point at 1. A
    profile without leads gets 1 for both, and its shipped point is the one without a winner.

    Args:
        queries: The stored queries.
        profile: The profile whose leads vary.
        policy: The policy in use.
        stage1_values: For each query, recall@1 and whether it is a false positive if stage 1
            decides; None where the query does not count.
        stage2_values: The same if stage 2 decides.
    """
    winner = profile.winner
    fitted = winner.agreed is not None
    agreed, disagreed = (winner.agreed, winner.disagreed) if fitted else (1.0, 1.0)
    asked = [
        _core.Request(require_overlap=True, documents=query.documents, needs_document=query.need)
        for query in queries
    ]

    def gated(setting: Profile) -> list[_core.Gated]:
        return [
            _core.gate(query.scored, setting, policy, request)
            for query, request in zip(queries, asked, strict=True)
        ]

    def moved(factor: float) -> Profile:
        leads = {"agreed": agreed, "disagreed": disagreed}
        return profile.replace(
            winner={name: None if lead is None else lead * factor for name, lead in leads.items()}
        )

    needed = []
    for decided in gated(profile):
        lead = agreed if decided.signals is not None and decided.signals.agreement else disagreed
        if decided.signals is not None and lead:
            needed.append(decided.signals.margin / lead)
    factors = set(np.quantile(needed, np.linspace(0, 1, POINTS - 2)).tolist()) if needed else set()
    # Beyond the largest lead there is no winner left.
    settings = [
        (factor, moved(factor), False)
        for factor in sorted({0.0, *factors, 2 * max(factors, default=0.5) + 1})
    ]
    settings.append((1.0 if fitted else settings[-1][0], profile, True))
    points = []
    for factor, setting, shipped in settings:
        verdicts = [decided.verdict for decided in gated(setting)]
        outcomes = [
            _outcome(verdict, stage1, stage2)
            for verdict, stage1, stage2 in zip(verdicts, stage1_values, stage2_values, strict=True)
        ]
        points.append(
            CurvePoint(
                factor=factor,
                skip_rate=sum(verdict != Verdict.AMBIGUOUS for verdict in verdicts) / len(queries),
                recall=_mean([recall for recall, _ in outcomes]),
                false_positive_rate=_mean([injected for _, injected in outcomes]),
                shipped=shipped,
            )
        )
    return tuple(sorted(points, key=lambda point: (point.skip_rate, point.shipped)))


def abstention(
    queries: Sequence[StoredQuery],
    gated: Sequence[RouteResult],
    without_thresholds: Mapping[Mode, Sequence[RouteResult]],
    answer: Answer,
) -> tuple[AbstentionPoint, ...]:
    """Return the trade-off of the threshold: fewer false positives, fewer right answers.

    The threshold is on the probability that any candidate fits or, if the profile has none on it,
    on the confidence. A clear winner below it goes to stage 2, as in the gate. Candidates below the
    floor stay there.

    Args:
        queries: The stored queries.
        gated: Their results by the profile itself.
        without_thresholds: Their results in each mode by the profile without its thresholds.
        answer: The profile's own thresholds.

    Returns:
        Points from the lowest threshold to the highest; none without a model of the probability, or
        without queries of both kinds.
    """
    by_confidence = answer.threshold is None and answer.confidence is not None
    least = answer.confidence if by_confidence else answer.threshold
    first, second = (
        np.array(
            [
                _or_nan(result.confidence if by_confidence else result.any_fits)
                for result in without_thresholds[mode]
            ]
        )
        for mode in _BOTH
    )
    matched = np.array([bool(query.relevant) for query in queries])
    if np.isnan(first).all() or np.isnan(second).all() or matched.all() or not matched.any():
        return ()
    right = {
        mode: np.array(
            [is_right(*pair) for pair in zip(queries, without_thresholds[mode], strict=True)]
        )
        for mode in _BOTH
    }
    # A guardrail may have left nothing, however confident the stage is.
    picked = {
        mode: np.array([bool(result.ids) for result in without_thresholds[mode]]) for mode in _BOTH
    }
    clear = np.array(
        [result.verdict is Verdict.CONFIDENT for result in without_thresholds["gated"]]
    )
    open_ = np.array([result.verdict is not Verdict.NOTHING_RELEVANT for result in gated])
    thresholds = {
        float(threshold): False
        for threshold in np.nanquantile(second, np.linspace(0, 1, POINTS - 1))
    }
    if least is not None:
        thresholds[least] = True
    points = []
    for threshold, shipped in sorted(thresholds.items()):
        alone = open_ & clear & (first >= threshold)
        read = open_ & ~alone & (second >= threshold)
        right_picks = (alone & right["never"]) | (read & right["always"])
        picks = (alone & picked["never"]) | (read & picked["always"])
        points.append(
            AbstentionPoint(
                least=threshold,
                precision=float(right_picks[matched].mean()),
                false_positive_rate=float(picks[~matched].mean()),
                shipped=shipped,
            )
        )
    return tuple(points)


_BOTH: tuple[Mode, Mode] = ("never", "always")


def _or_nan(probability: float | None) -> float:
    return math.nan if probability is None else probability


def _outcome(
    verdict: str,
    stage1: tuple[float | None, float | None],
    stage2: tuple[float | None, float | None],
) -> tuple[float | None, float | None]:
    if verdict == Verdict.NOTHING_RELEVANT:  # an empty answer is neither right nor injected
        recall, injected = stage1
        return None if recall is None else 0.0, None if injected is None else 0.0
    return stage1 if verdict == Verdict.CONFIDENT else stage2


def _total(query: StoredQuery, mode: str) -> float | None:
    steps = query.milliseconds.get(mode)
    return None if steps is None else steps["total"]


def _latency(path: str, times: Sequence[float | None]) -> Latency | None:
    known = [time for time in times if time is not None]
    if not known:
        return None
    p50, p95, p99 = np.percentile(known, [50, 95, 99]).tolist()
    spread = tuple(np.percentile(known, range(0, 101, 5)).round(3).tolist())
    return Latency(path=path, count=len(known), p50=p50, p95=p95, p99=p99, spread=spread)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
