"""Makes a report from a stored run: decides every query in every mode, then counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crossgate._core import Policy, Profile
from crossgate._evaluation import economics, metrics, statistics
from crossgate._evaluation.economics import (
    AbstentionPoint,
    CoveragePoint,
    Economics,
    Reliability,
    Shortlists,
    coverage_curve,
    measure_shortlists,
    reliability,
)
from crossgate._evaluation.metrics import (
    METRICS,
    Answered,
    Moves,
    answered,
    measure_answer,
)
from crossgate._evaluation.statistics import Array, Interval
from crossgate._evaluation.stored_runs import (
    MODES,
    Mode,
    Run,
    RunHeader,
    StoredQuery,
    check_suitable,
    decide_all,
    reblended,
    without_thresholds,
)
from crossgate._support.errors import InputError
from crossgate._support.wording import counted
from crossgate._values.profile_files import profile_values
from crossgate._values.results import RouteResult

SCHEMA = "crossgate-eval/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The queries of one kind.

    Attributes:
        name: The dataset's word for the kind, or whether the query names the document.
        queries: How many there are.
        recall: recall@1 by mode; None if none of them has a match.
        false_positive_rate: Share of the no-match queries among them with a pick, by mode.
    """

    name: str
    queries: int
    recall: Mapping[str, Interval | None]
    false_positive_rate: Mapping[str, Interval | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All figures of one run.

    Attributes:
        header: The data, models, settings and machine of the run.
        profile: The profile that decided; the run's own unless another was asked for.
        policy: The policy that decided; the run's own unless another was asked for.
        notes: Remarks for a reader of the figures.
        queries: How many queries there are.
        matched: How many of them have a match.
        modes: The modes that are compared.
        quality: Every metric by mode; None if the dataset cannot show it.
        against_always: recall@1 of a mode minus that of always, paired by query.
        recall_without_thresholds: recall@1 without thresholds, floors and guardrails.
        stage2_gain: The same of a mode minus that of never, paired by query: the gain from stage 2
            over the order of stage 1.
        pool_size: How many candidates stage 2 reads at most.
        ceiling: The recall of stage 1 among them: the most that stage 2 can reach.
        found: The recall of stage 1 among all candidates that it found.
        lost: Queries whose first pick does not fit, by mode and by where the right answer was lost.
        moves: How stage 2 changed the order of stage 1, by mode.
        economics: Savings and costs of the gate; None if the gate was not run.
        abstention: Right picks against the false-positive rate as the threshold varies; empty
            without a model of the probability, or if the dataset cannot show it.
        shortlists: The figures of the shortlists, by mode.
        coverage_curve: Coverage of the shortlists against their size as the promise varies, in the
            gated mode if it is compared, else in the last; empty without a promise.
        groups: The figures by kind of query; empty if the dataset names none.
        reliability: Stated against observed probabilities, in the same mode.
        noise_floor: Two samples of as many queries from the same system differ by up to this much
            recall@1, in 95 of 100 cases.
        answers: Every query with its answer, in the gated mode if it is compared, else in the last.
        degraded: How many queries did not run as configured, by code.
        per_query: The value of every metric by mode, in the order of `ids`.
        ids: The ids of the queries.
    """

    header: RunHeader
    profile: Profile
    policy: Policy
    notes: tuple[str, ...]
    queries: int
    matched: int
    modes: tuple[Mode, ...]
    quality: Mapping[str, Mapping[str, Interval | None]]
    against_always: Mapping[str, Interval | None]
    recall_without_thresholds: Mapping[str, Interval | None]
    stage2_gain: Mapping[str, Interval | None]
    pool_size: int
    ceiling: Interval | None
    found: Interval | None
    lost: Mapping[str, Mapping[str, int]]
    moves: Mapping[str, Moves]
    economics: Economics | None
    abstention: tuple[AbstentionPoint, ...]
    shortlists: Mapping[str, Shortlists]
    coverage_curve: tuple[CoveragePoint, ...]
    groups: tuple[Group, ...]
    reliability: tuple[Reliability, ...]
    noise_floor: float | None
    answers: tuple[Answered, ...]
    degraded: Mapping[str, int]
    per_query: Mapping[str, Mapping[str, tuple[float | None, ...]]]
    ids: tuple[str, ...]

    def kept(self, mode: str) -> float | None:
        """Return the share of recall@1 that a mode keeps although it may abstain."""
        recall, without = self.quality[mode]["recall@1"], self.recall_without_thresholds[mode]
        if recall is None or without is None or not without.value:
            return None
        return recall.value / without.value

    @property
    def no_match(self) -> int:
        """The number of no-match queries."""
        return self.queries - self.matched

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, without the queries, which the stored run holds."""
        values = asdict(self)
        del values["answers"]
        values["header"]["profile"] = profile_values(self.header.profile)
        values["header"]["policy"] = self.header.policy.to_dict()
        values["profile"] = profile_values(self.profile)
        values["policy"] = self.policy.to_dict()
        if self.economics is not None:
            values["economics"]["skip_rate"] = self.economics.skip_rate
            values["economics"]["tighten_apply_rate"] = self.economics.tighten_apply_rate
        return {"schema": SCHEMA, **values}


def summarize(
    run: Run,
    *,
    profile: Profile | None = None,
    policy: Policy | None = None,
    modes: Sequence[Mode] = MODES,
) -> Report:
    """Compute the report of a stored run; no model is needed.

    Args:
        run: The run.
        profile: Decide by this profile; None for the run's own.
        policy: Decide by this policy; None for the run's own.
        modes: Compare these modes; those that the run lacks are left out.

    Raises:
        InputError: `out_of_range` if the run has none of the modes.
        ProfileError: `profile_mismatch` if the profile was fitted for other models.
        SourceError: `unsuitable_run` if the run lacks scores that the profile or the policy needs.
    """
    header = run.header
    profile = header.profile if profile is None else profile
    policy = header.policy if policy is None else policy
    as_measured = (profile, policy) == (header.profile, header.policy)
    queries = run.queries
    notes = (*header.notes, *_fitted_on(run, profile), *_bounds(queries))
    notes += check_suitable(header, profile, policy)
    if profile.blend != header.profile.blend:
        queries = tuple(reblended(query, profile) for query in queries)
    # The other modes need each mode that was measured, shown or not.
    present = header.modes
    results: dict[Mode, list[RouteResult]] = {
        mode: decide_all(queries, profile, mode, policy=policy, traced=True) for mode in present
    }
    compared = tuple(mode for mode in present if mode in modes)
    if not compared:
        raise InputError("out_of_range", f"the run has only the modes {', '.join(present)}")
    never, gated, always = (results.get(mode) for mode in MODES)
    tables = {mode: _table(queries, results[mode]) for mode in results}
    seed = header.seed
    quality: dict[str, dict[str, Interval | None]] = {
        mode: dict(zip(_NAMES, statistics.means(tables[mode], seed=seed, shares=True), strict=True))
        for mode in compared
    }
    recalls = {mode: table[:, _NAMES.index("recall@1")] for mode, table in tables.items()}
    recall_without_thresholds = {
        mode: _recalls_without_thresholds(queries, profile, mode) for mode in present
    }
    reference: Mode = "gated" if "gated" in compared else compared[-1]
    abstention: tuple[AbstentionPoint, ...] = ()
    if never is not None and gated is not None and always is not None:
        open_profile = without_thresholds(profile)
        answered_all = {
            mode: decide_all(queries, open_profile, mode, policy=policy) for mode in MODES
        }
        abstention = economics.abstention(queries, gated, answered_all, profile.answer)
    return Report(
        header=header,
        profile=profile,
        policy=policy,
        notes=notes,
        queries=len(queries),
        matched=sum(bool(query.relevant) for query in queries),
        modes=compared,
        quality=quality,
        against_always={
            mode: statistics.mean(recalls[mode] - recalls["always"], seed=seed)
            for mode in compared
            if mode != "always" and "always" in recalls
        },
        recall_without_thresholds={
            mode: statistics.mean(recall_without_thresholds[mode], seed=seed, shares=True)
            for mode in compared
        },
        stage2_gain={
            mode: statistics.mean(
                recall_without_thresholds[mode] - recall_without_thresholds["never"], seed=seed
            )
            for mode in compared
            if mode != "never" and "never" in recall_without_thresholds
        },
        pool_size=profile.pool,
        ceiling=_recall_of_stage1(queries, profile.pool, seed),
        found=_recall_of_stage1(queries, None, seed),
        lost={mode: _lost(queries, results[mode], always) for mode in compared},
        moves={
            mode: metrics.count_moves(queries, never, results[mode])
            for mode in compared
            if mode != "never" and never is not None
        },
        economics=None
        if gated is None
        else economics.account(queries, gated, always, as_measured=as_measured),
        abstention=abstention,
        shortlists={
            mode: measure_shortlists(queries, results[mode], most=profile.shortlist.most, seed=seed)
            for mode in compared
        },
        coverage_curve=coverage_curve(
            queries,
            profile,
            lambda matched, varied: decide_all(matched, varied, reference, policy=policy),
        ),
        groups=_groups(queries, {mode: tables[mode] for mode in compared}, seed),
        reliability=reliability(queries, results[reference]),
        noise_floor=statistics.noise_floor(recalls[reference], seed=seed),
        answers=answered(queries, results[reference]),
        degraded=dict(Counter(code for query in queries for code in query.degraded)),
        per_query={
            mode: {
                name: tuple(None if np.isnan(value) else round(value, 6) for value in column)
                for name, column in zip(_NAMES, tables[mode].T.tolist(), strict=True)
                if not np.isnan(column).all()
            }
            for mode in compared
        },
        ids=tuple(query.id for query in queries),
    )


_NAMES = [metric.name for metric in METRICS]


def _fitted_on(run: Run, profile: Profile) -> list[str]:
    data = profile.fitted.get("data")
    fitted = [
        (dataset.get("corpus"), dataset.get("labels"))
        for dataset in (data if isinstance(data, list) else ())
        if isinstance(dataset, dict)
    ]
    if (run.header.corpus, run.header.labels) not in fitted:
        return []
    return [
        "the profile was fitted on these queries, so these figures flatter it; calibrate printed "
        "those of held-out ones"
    ]


def _bounds(queries: Sequence[StoredQuery]) -> list[str]:
    named = sum(bool(query.wrong) and not query.relevant for query in queries)
    if not named:
        return []
    return [
        f"{counted(named, 'no-match query')} with labels only for documents that do not fit: if "
        "others fit, the false-positive rate is an upper bound"
    ]


def _table(queries: Sequence[StoredQuery], results: Sequence[RouteResult]) -> Array:
    """Return the metrics of each query in the order of `_NAMES`; NaN where it does not count."""
    rows = (measure_answer(*pair) for pair in zip(queries, results, strict=True))
    return np.array([[row[name] for name in _NAMES] for row in rows], dtype=np.float64)


def _recalls_without_thresholds(
    queries: Sequence[StoredQuery], profile: Profile, mode: Mode
) -> Array:
    matched = [query for query in queries if query.relevant]
    results = decide_all(matched, profile, mode, hold_back=False)
    recalls = [
        metrics.recall(result.ids, query.relevant, 1)
        for query, result in zip(matched, results, strict=True)
    ]
    return np.array(recalls, dtype=np.float64)


def _recall_of_stage1(queries: Sequence[StoredQuery], k: int | None, seed: int) -> Interval | None:
    shares = [
        metrics.recall([hit.id for hit in query.scored], query.relevant, k or 1 + len(query.scored))
        for query in queries
        if query.relevant
    ]
    return statistics.mean(shares, seed=seed, shares=True) if shares else None


def _lost(
    queries: Sequence[StoredQuery],
    results: Sequence[RouteResult],
    always: Sequence[RouteResult] | None,
) -> dict[str, int]:
    places = Counter(
        metrics.where_lost(query, result, None if always is None else always[position])
        for position, (query, result) in enumerate(zip(queries, results, strict=True))
        if query.relevant
    )
    return {place: places[place] for place in metrics.PLACES if places[place]}


def _groups(
    queries: Sequence[StoredQuery], tables: Mapping[str, Array], seed: int
) -> tuple[Group, ...]:
    members: dict[str, list[int]] = {}
    for position, query in enumerate(queries):
        if query.mentions_name is not None:
            naming = "names the document" if query.mentions_name else "does not name it"
            members.setdefault(naming, []).append(position)
        if query.kind:
            members.setdefault(query.kind, []).append(position)

    def figures(name: str, positions: Sequence[int]) -> dict[str, Interval | None]:
        return {
            mode: statistics.mean(table[positions, _NAMES.index(name)], seed=seed, shares=True)
            for mode, table in tables.items()
        }

    return tuple(
        Group(
            name=name,
            queries=len(positions),
            recall=figures("recall@1", positions),
            false_positive_rate=figures("false_positive_rate", positions),
        )
        for name, positions in members.items()
    )
