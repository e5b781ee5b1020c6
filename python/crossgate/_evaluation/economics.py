"""Figures of all queries: costs of the gate, shortlists, probabilities and curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crossgate._core import Answer, Profile
from crossgate._evaluation.metrics import is_right
from crossgate._evaluation.statistics import Interval, mean, means
from crossgate._evaluation.stored_runs import STAGES, Mode, StoredQuery
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
    """

    path: str
    count: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstentionPoint:
    """One threshold on the probability of an answer.

    Attributes:
        least: The smallest probability that is answered.
        right_picks: Share of the queries with a match whose first pick fits.
        false_positive_rate: Share of the no-match queries that get a pick.
        shipped: Whether this is the profile's own threshold.
    """

    least: float
    right_picks: float
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

    `as_measured` is whether the gate is the one that the run was measured with. Otherwise a query's
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


def abstention(
    queries: Sequence[StoredQuery],
    gated: Sequence[RouteResult],
    without_thresholds: Mapping[Mode, Sequence[RouteResult]],
    answer: Answer,
) -> tuple[AbstentionPoint, ...]:
    """Return the trade-off of the threshold: fewer false positives, fewer right answers.

    The threshold is on the probability that any candidate fits or, if the profile has none on it,
    on the confidence. A clear winner below it goes to stage 2, as in the gate. Candidates below the
    floor stay there. `gated` are the results by the profile itself, `without_thresholds` those in
    each mode by the profile without its thresholds.

    Returns:
        Points from the lowest threshold to the highest; none without a model of the probability, or
        without queries of both kinds.
    """
    by_confidence = answer.threshold is None and answer.confidence is not None
    least = answer.confidence if by_confidence else answer.threshold
    first, second = (
        np.array(
            [
                result.confidence if by_confidence else result.any_fits
                for result in without_thresholds[mode]
            ],
            dtype=np.float64,
        )
        for mode in STAGES
    )
    matched = np.array([bool(query.relevant) for query in queries])
    if np.isnan(first).all() or np.isnan(second).all() or matched.all() or not matched.any():
        return ()
    fits = {
        mode: np.array(
            [is_right(*pair) for pair in zip(queries, without_thresholds[mode], strict=True)]
        )
        for mode in STAGES
    }
    # A guardrail may have left nothing, however confident the stage is.
    picked = {
        mode: np.array([bool(result.ids) for result in without_thresholds[mode]]) for mode in STAGES
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
        by_stage1 = open_ & clear & (first >= threshold)
        by_stage2 = open_ & ~by_stage1 & (second >= threshold)
        right = (by_stage1 & fits["never"]) | (by_stage2 & fits["always"])
        picks = (by_stage1 & picked["never"]) | (by_stage2 & picked["always"])
        points.append(
            AbstentionPoint(
                least=threshold,
                right_picks=float(right[matched].mean()),
                false_positive_rate=float(picks[~matched].mean()),
                shipped=shipped,
            )
        )
    return tuple(points)


def _total(query: StoredQuery, mode: str) -> float | None:
    steps = query.milliseconds.get(mode)
    return None if steps is None else steps["total"]


def _latency(path: str, times: Sequence[float | None]) -> Latency | None:
    milliseconds = [time for time in times if time is not None]
    if not milliseconds:
        return None
    p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99]).tolist()
    return Latency(path=path, count=len(milliseconds), p50=p50, p95=p95, p99=p99)


CURVE = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
"""The promised coverages of a curve, besides that of the profile."""
CHARACTERS_PER_TOKEN = 4
"""English text has about four characters per token of a large model's tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortlists:
    """Figures of the shortlists of one mode.

    Attributes:
        promised: The coverage that the profile promises; None without a promise.
        coverage: Share of the queries with a match whose shortlist contains a fitting document.
        coverage_all: Share of the queries with a match whose shortlist contains all of them.
        size: Mean length for queries with a match.
        size_no_match: Mean length for no-match queries.
        lengths: Number of queries with a match by length.
        empty: Share of the queries with a match whose shortlist is empty.
        shown: Share of the no-match queries whose shortlist is not empty.
        full: Share of the no-match queries whose shortlist has the maximum length.
        characters: Mean number of characters of the listed documents' texts, over all queries; None
            if the run does not hold their lengths.
    """

    promised: float | None
    coverage: Interval | None
    coverage_all: Interval | None
    size: Interval | None
    size_no_match: Interval | None
    lengths: Mapping[int, int]
    empty: Interval | None
    shown: Interval | None
    full: Interval | None
    characters: float | None

    @property
    def single(self) -> float | None:
        """Share of the queries with a match whose shortlist has one document."""
        total = sum(self.lengths.values())
        return self.lengths.get(1, 0) / total if total else None

    @property
    def tokens(self) -> float | None:
        """Estimated tokens of the listed documents' texts."""
        return None if self.characters is None else self.characters / CHARACTERS_PER_TOKEN


def measure_shortlists(
    queries: Sequence[StoredQuery], results: Sequence[RouteResult], *, most: int, seed: int
) -> Shortlists:
    """Return the figures of the shortlists of results, one per query."""
    matched = np.array([bool(query.relevant) for query in queries])
    sizes = np.array([float(len(result.shortlist)) for result in results])
    lists = [{hit.id for hit in result.shortlist} for result in results]
    fitting = [set(query.relevant) for query in queries]
    any_listed, all_listed = np.array(
        [(bool(ids & fits), ids >= fits) for ids, fits in zip(lists, fitting, strict=True)]
    ).T
    promised = {result.coverage for result in results} - {None}
    characters = [
        float(sum(query.lengths[id] for id in ids))
        for ids, query in zip(lists, queries, strict=True)
        if ids <= query.lengths.keys()
    ]

    # Columns of one table share the resampled queries, which take longer to draw than to count.
    coverage, coverage_all, empty = means(
        np.column_stack([any_listed, all_listed, sizes == 0])[matched], seed=seed, shares=True
    )
    shown, full = means(
        np.column_stack([sizes > 0, sizes >= most])[~matched], seed=seed, shares=True
    )
    return Shortlists(
        promised=max(filter(None, promised), default=None),
        coverage=coverage,
        coverage_all=coverage_all,
        size=mean(sizes[matched], seed=seed) if matched.any() else None,
        size_no_match=mean(sizes[~matched], seed=seed) if not matched.all() else None,
        lengths=dict(sorted(Counter(map(int, sizes[matched])).items())),
        empty=empty,
        shown=shown,
        full=full,
        characters=float(np.mean(characters)) if len(characters) == len(queries) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveragePoint:
    """One point of the curve of coverage against size.

    Attributes:
        promised: The coverage that was asked for.
        size: Mean length of the shortlists of queries with a match.
        coverage: Share of them that contain a fitting document.
        shipped: Whether it is the profile's own coverage.
    """

    promised: float
    size: float
    coverage: float
    shipped: bool


def coverage_curve(
    queries: Sequence[StoredQuery],
    profile: Profile,
    decide_all: Callable[[Sequence[StoredQuery], Profile], Sequence[RouteResult]],
) -> tuple[CoveragePoint, ...]:
    """Return coverage against size, as the promised coverage varies.

    Returns:
        Points from the lowest coverage to the highest; none without a promise, or without a query
        that has a match.
    """
    fitted = profile.shortlist
    matched = [query for query in queries if query.relevant]
    if not fitted.stage1 or not matched:
        return ()
    points = []
    for promised in sorted({*CURVE, fitted.coverage}):
        varied = profile.replace(shortlist=fitted.replace(coverage=promised))
        results = decide_all(matched, varied)
        covered = [
            any(hit.id in query.relevant for hit in result.shortlist)
            for query, result in zip(matched, results, strict=True)
        ]
        points.append(
            CoveragePoint(
                promised=promised,
                size=sum(len(result.shortlist) for result in results) / len(results),
                coverage=sum(covered) / len(covered),
                shipped=promised == fitted.coverage,
            )
        )
    return tuple(points)


TENTHS = 10
RANKS = 5
"""The ranks whose relevance is compared; nearly all others are close to 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """The probabilities in one tenth of [0, 1].

    Attributes:
        count: How many there are.
        stated: Their mean.
        observed: Share of the cases that came true.
    """

    count: int
    stated: float
    observed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How well calibrated one probability is.

    Attributes:
        rank: The rank of the hits whose relevance it is, from 1; 0 for the probability that any hit
            fits.
        bins: The tenths that hold a query, in ascending order.
    """

    rank: int
    bins: tuple[ReliabilityBin, ...]

    @property
    def count(self) -> int:
        """The number of queries."""
        return sum(tenth.count for tenth in self.bins)

    @property
    def stated(self) -> float:
        """The mean of the probabilities."""
        return sum(tenth.count * tenth.stated for tenth in self.bins) / self.count

    @property
    def observed(self) -> float:
        """The share of the cases that came true."""
        return sum(tenth.count * tenth.observed for tenth in self.bins) / self.count

    @property
    def error(self) -> float:
        """The expected calibration error, in [0, 1].

        The mean distance of stated and observed share, weighted by count: Naeini, Cooper and
        Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", 2015.
        """
        distances = (tenth.count * abs(tenth.stated - tenth.observed) for tenth in self.bins)
        return sum(distances) / self.count


def reliability(
    queries: Sequence[StoredQuery], results: Sequence[RouteResult]
) -> tuple[Reliability, ...]:
    """Return the reliability of `any_fits` and of the relevance at each of the first ranks.

    A probability that no query has is left out.
    """
    pairs = list(zip(queries, results, strict=True))
    cases = {
        0: [
            (result.any_fits, any(hit.id in query.relevant for hit in result.hits))
            for query, result in pairs
            if result.any_fits is not None
        ]
    }
    for rank in range(1, RANKS + 1):
        cases[rank] = [
            (hit.relevance, hit.id in query.relevant)
            for query, result in pairs
            for hit in result.hits[rank - 1 : rank]
            if hit.relevance is not None
        ]
    return tuple(
        Reliability(rank=rank, bins=_bins(of_rank)) for rank, of_rank in cases.items() if of_rank
    )


def _bins(cases: Iterable[tuple[float, bool]]) -> tuple[ReliabilityBin, ...]:
    tenths: dict[int, list[tuple[float, bool]]] = {}
    for stated, came_true in cases:
        tenths.setdefault(min(int(stated * TENTHS), TENTHS - 1), []).append((stated, came_true))
    return tuple(
        ReliabilityBin(
            count=len(tenth),
            stated=sum(stated for stated, _ in tenth) / len(tenth),
            observed=sum(came_true for _, came_true in tenth) / len(tenth),
        )
        for _, tenth in sorted(tenths.items())
    )
