"""Fits a profile to stored runs: on one half, with a report on the other, which may refuse it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc

from crossgate._calibration.fits import (
    Array,
    Flags,
    Outcomes,
    Scores,
    Stated,
    fit_any_fits,
    fit_anytime,
    fit_blend,
    fit_combine,
    fit_pool,
    fit_relevance,
    fit_skipping,
    is_chained,
    least_for_cost,
    least_for_false_positives,
    least_for_recall,
    negatives_needed,
    outcomes,
    rounded,
    split,
    stated,
)
from crossgate._calibration.shortlist_promises import SIGNIFICANCE, fit_shortlist
from crossgate._core import Answer, Profile, RunnerUpRule, Winner, __version__
from crossgate._evaluation.collecting import read_ahead
from crossgate._evaluation.economics import Shortlists
from crossgate._evaluation.metrics import measure_answer
from crossgate._evaluation.statistics import CONFIDENCE, Interval, area_interval, mean, means
from crossgate._evaluation.stored_runs import (
    MODES,
    Mode,
    Run,
    RunHeader,
    StoredQuery,
    decide_all,
    reblended,
)
from crossgate._support.checks import check_count, check_coverage, check_number
from crossgate._support.errors import CalibrationError, InputError, SourceError
from crossgate._support.wording import counted, noun_for, share_of
from crossgate._values.profile_files import check_models
from crossgate._values.results import RouteResult

LEAST_RIGHT = 20
"""Minimum number of right first picks in each half, to tell when picks are right."""
SECOND_PICK = 0.3
"""A second pick must be right at least this often.

At such leads the first pick is hardly right more often. With 0.2, the previous value, four of five
second picks on `eval/skills` were wrong.
"""
CHANCE = 0.001
"""A gate counts as established only if noise would give the result less often than this."""

_SHOWN = ("recall@1", "false_positive_rate", "wrong_pick@1", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The objective of a fit.

    Attributes:
        max_false_positive_rate: The false-positive rate to allow, in (0, 1): the share of no-match
            queries for which something is selected.
        keep_recall: The share of the right first picks that the threshold must keep in every
            dataset, in (0, 1); used if no false-positive rate is given.
        cost_ratio: The cost of a wrong pick, above 0; a missed right pick costs 1. Used if neither
            share is given.
        max_recall_loss: The recall@1 that skipping stage 2 may cost, in [0, 1].
        coverage: The coverage that the shortlist must promise, in (0, 1); None for 0.9, or for as
            much as the labels allow if that is less.
        max_shortlist: Maximum length of the shortlist, at least 1.
        covered: Names of the datasets that the shortlist promises for; empty for all.

    Raises:
        InputError: `out_of_range`.
    """

    max_false_positive_rate: float | None = None
    keep_recall: float | None = None
    cost_ratio: float = 1.0
    max_recall_loss: float = 0.01
    coverage: float | None = None
    max_shortlist: int = 5
    covered: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for option in ("max_false_positive_rate", "keep_recall"):
            share = getattr(self, option)
            if share is not None:
                check_number(option, share, 0, math.nextafter(1, 0), above=True)
        check_number("cost_ratio", self.cost_ratio, 0, above=True)
        check_number("max_recall_loss", self.max_recall_loss, 0, 1)
        if self.coverage is not None:
            check_coverage(self.coverage)
        check_count("max_shortlist", self.max_shortlist)

    def describe(self) -> str:
        """Return the objective in words."""
        if self.max_false_positive_rate is not None:
            answer = f"at most {self.max_false_positive_rate:.1%} of no-match queries get a pick"
        elif self.keep_recall is not None:
            answer = f"at least {self.keep_recall:.1%} of recall@1 is kept"
        else:
            answer = f"a wrong pick costs {self.cost_ratio:g} missed ones"
        skipping = f"skipping costs at most {self.max_recall_loss:.1%} of recall@1"
        if self.coverage is None:
            return f"{answer}; {skipping}"
        listed = f"at most {counted(self.max_shortlist, 'document')} contain a fitting one"
        return f"{answer}; {skipping}; {listed} for {self.coverage:.0%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a profile on one half, all datasets together.

    Attributes:
        matched: Number of queries with a match.
        no_match: Number of no-match queries.
        modes: Per mode and metric the mean with its interval; None if the data cannot show it.
        recall_loss: recall@1 of always minus that of gated, paired by query.
        kept: The share of the right first picks of always that the threshold keeps.
        separation: AUC of the probability that any candidate fits, of right picks against no-match
            queries; without such queries, of the confidence of right picks against wrong ones.
    """

    matched: int
    no_match: int
    modes: Mapping[str, Mapping[str, Interval | None]]
    recall_loss: Interval | None
    kept: Interval | None
    separation: Interval | None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values; an interval is a list of three."""
        return {
            "matched": self.matched,
            "no_match": self.no_match,
            "recall_loss": _triple(self.recall_loss),
            "kept": _triple(self.kept),
            "separation": _triple(self.separation),
            "modes": {
                mode: {
                    name: _triple(interval)
                    for name, interval in values.items()
                    if interval is not None
                }
                for mode, values in self.modes.items()
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted profile with its figures.

    Attributes:
        profile: The profile.
        fit: Its figures on the half that it was fitted on.
        report: Its figures on the held-out half.
        before: The figures of the profile compared with, on the held-out half.
        shortlists: The figures of the shortlists by mode, of the datasets that they promise for:
            each half with weights and promises that were fitted on the other half.
        notes: Remarks for the reader.
    """

    profile: Profile
    fit: Figures
    report: Figures
    before: Figures
    shortlists: Mapping[str, Shortlists]
    notes: tuple[str, ...]


class TooFewLabelsError(CalibrationError):
    """Too few labels to fit the weights; `set_threshold` may still set the threshold."""


def _no_gate(reason: str, error: type[CalibrationError] = CalibrationError) -> CalibrationError:
    return error("no_gate", f"the gate cannot be fitted: {reason}")


def calibrate(
    runs: Sequence[Run],
    objective: Objective,
    *,
    before: Profile | None = None,
    name: str = "calibrated",
    any_corpus: bool = False,
    seed: int = 0,
    command: str = "",
) -> Calibration:
    """Fit a profile on one half of labelled queries, and report on the other.

    Args:
        runs: Stored runs with the mode `always`, all by the same models. The order of runs and
            queries does not matter, and a query that occurs in several runs counts once.
        objective: The objective.
        before: The profile to compare with; None for that of the first run, in the order of the
            datasets' names.
        name: Name of the new profile.
        any_corpus: Whether the profile may be used for other documents; routers then do not warn.
        seed: Seed of the halves and of the intervals; at least 0.
        command: The command that was run, to be kept in the profile.

    Raises:
        CalibrationError: `too_few_negatives` if the objective needs more no-match queries, naming
            how many; `no_gate` if right and wrong picks cannot be told apart; `promise_broken` if
            the held-out half contradicts the objective; `too_few_labels` or `promise_impossible` if
            the shortlist cannot promise the coverage.
        InputError: `out_of_range` for a seed below 0, or for a dataset without a run.
        ProfileError: `profile_mismatch` if the profile to compare with is for other models.
        SourceError: `unsuitable_run` if a run lacks logits or vectors, or if two runs were made by
            different models.
    """
    runs, before = _checked(runs, before, seed)
    queries, corpora, notes = usable(runs)
    halves = split(queries, corpora, seed=seed)
    fit, report = ([queries[position] for position in half] for half in halves)
    ranking = _fit_ranking(fit, runs[0].header)
    fit, report = ([reblended(query, ranking) for query in half] for half in (fit, report))
    fit_corpora, report_corpora = ([corpora[position] for position in half] for half in halves)
    covered = _promised_for(runs, objective, (fit, report), (fit_corpora, report_corpora))
    read_ahead([*fit, *report], ranking.pool)
    seen = outcomes(fit, ranking)
    _require(seen, outcomes(report, ranking))
    weighed = ranking.replace(relevance=fit_relevance(fit, ranking))
    answering, known = _fit_answer(seen, fit, fit_corpora, weighed, objective, seed)
    gated = _fit_gate(answering, seen, known, fit_corpora, objective)
    # No figure depends on the shortlist, which takes longer to fit than the figures to count.
    found = measured(report, gated)
    figures = found.figures(seed)
    _check_promise(figures, objective)
    listed = fit_shortlist(
        covered,
        gated,
        coverage=objective.coverage,
        most=objective.max_shortlist,
        seed=seed,
    )
    profile = gated.replace(name=name, shortlist=listed.shortlist)
    earlier = measured(_reread(report, before), before)
    calibration = Calibration(
        profile=profile,
        fit=figures_of(fit, profile, seed),
        report=figures,
        before=earlier.figures(seed),
        shortlists=listed.held_out,
        notes=(*notes, *listed.notes, *_fell(found, earlier, seed)),
    )
    return documented(
        calibration, runs, objective, any_corpus=any_corpus, seed=seed, command=command
    )


def _reread(queries: Sequence[StoredQuery], profile: Profile) -> list[StoredQuery]:
    """Return queries as a profile orders their candidates, with the scores of its pool."""
    ordered = [reblended(query, profile) for query in queries]
    read_ahead(ordered, profile.pool)
    return ordered


def _fell(after: Measured, before: Measured, seed: int) -> list[str]:
    """Return a note if recall@1 of the previous profile is better beyond noise."""
    lost = mean(before.recalls - after.recalls, seed=seed)
    if lost is None or lost.low <= 0:
        return []
    return [
        f"on the held-out half, recall@1 is {100 * lost.value:.1f} points lower than with the "
        "previous profile, beyond noise: keep that one, unless fewer false positives are worth it; "
        "more labels give a better fit"
    ]


def _checked(runs: Sequence[Run], before: Profile | None, seed: int) -> tuple[list[Run], Profile]:
    """Return the runs in an order that only their data decide, and the profile to compare with.

    Raises:
        InputError: `out_of_range` for a seed below 0.
        ProfileError: `profile_mismatch` if the profile is for other models.
        SourceError: `unsuitable_run` if no profile can be fitted on the runs.
    """
    if seed < 0:
        raise InputError("out_of_range", f"the seed is {seed}: it must be at least 0")
    runs = sorted(
        runs,
        key=lambda run: (
            run.header.dataset,
            run.header.split,
            run.header.corpus,
            run.header.labels,
        ),
    )
    if not runs:
        raise SourceError("unsuitable_run", "there is no run to fit on")
    first = runs[0].header
    for header in (run.header for run in runs):
        if "always" not in header.modes or header.reranker is None or not header.embedder:
            raise SourceError(
                "unsuitable_run",
                f"the run of {header.dataset} lacks vectors, or logits for every query: measure it "
                "with an embedder, a reranker and the mode always",
            )
        if (header.embedder, header.reranker) != (first.embedder, first.reranker):
            raise SourceError(
                "unsuitable_run",
                f"{first.dataset} was run by {first.embedder} and {first.reranker}, "
                f"{header.dataset} by {header.embedder} and {header.reranker}: a profile belongs "
                "to one pair of models",
            )
        sizes = [each.profile.per_channel for each in (first, header)]
        if sizes[0] != sizes[1]:
            raise SourceError(
                "unsuitable_run",
                f"{first.dataset} was run with a per_channel of {sizes[0]}, {header.dataset} with "
                f"one of {sizes[1]}: a profile has only one",
            )
        if header.profile.evidence != first.profile.evidence:
            raise SourceError(
                "unsuitable_run",
                f"{first.dataset} and {header.dataset} were run with different weights of the "
                "evidence: a profile has only one set",
            )
    before = first.profile if before is None else before
    check_models(before, embedder=first.embedder, reranker=first.reranker)
    return runs, before


def usable(runs: Sequence[Run]) -> tuple[list[StoredQuery], list[str], list[str]]:
    """Return the usable queries, the corpus of each, and notes on them.

    Splits of one dataset may share queries, such as no-match queries, and a run may be given twice.
    Counting a query twice would make the data look larger than it is.
    """
    once: dict[tuple[str, str, str], tuple[StoredQuery, str]] = {}
    for run in runs:
        for query in run.queries:
            corpus = run.header.corpus
            once.setdefault(_key(query, corpus), (query, corpus))
    suitable = [
        (query, corpus)
        for _, (query, corpus) in sorted(once.items(), key=lambda item: item[0])
        if query.scored and all(scored.id in query.pairs for scored in query.scored)
    ]
    queries, corpora = [query for query, _ in suitable], [corpus for _, corpus in suitable]
    notes = list(dict.fromkeys(note for run in runs for note in run.header.notes))
    if all(query.relevant for query in queries):
        notes.append(
            "every query has a match: abstention was not measured, and the confidence says whether "
            "the pick is right, not whether anything fits"
        )
    if twice := sum(len(run.queries) for run in runs) - len(once):
        notes.append(f"counted {counted(twice, 'query')} once that the runs repeat")
    if unusable := len(once) - len(queries):
        notes.append(f"left out {counted(unusable, 'query')} without a candidate or without logits")
    if is_chained(queries, corpora):
        notes.append(
            "labels connect most queries into one group: the halves share documents, except for "
            "those that fit a query best"
        )
    if len(runs) > 1:
        notes.append("all queries have equal weight, so the largest dataset counts most")
    return queries, corpora, notes


def _key(query: StoredQuery, corpus: str) -> tuple[str, str, str]:
    """Return what tells a query apart from the others."""
    return corpus, query.id, query.text


def _fit_ranking(fit: Sequence[StoredQuery], header: RunHeader) -> Profile:
    """Return a profile with only blend, pool and combination fitted."""
    queries = [query for query in fit if any(each.id in query.relevant for each in query.scored)]
    read_ahead(queries)
    scores = (Scores.of(query, header.profile.evidence) for query in queries)
    rows = [row for row in scores if row.right.any()]
    if len(rows) < LEAST_RIGHT:
        raise _no_gate(
            "stage 1 finds a fitting document for "
            f"{counted(len(rows), 'query')} of the half to fit on, and {LEAST_RIGHT} are needed",
            TooFewLabelsError,
        )
    blend = fit_blend(rows)
    combine = fit_combine(rows, blend)
    return Profile(
        embedder=header.embedder,
        reranker=header.reranker,
        blend=blend,
        combine=combine,
        per_channel=header.profile.per_channel,
        evidence=header.profile.evidence,
        pool=fit_pool(rows, blend, combine),
        anytime=fit_anytime(rows),
    )


def _require(*halves: Outcomes) -> None:
    for half, name in zip(halves, ("half to fit on", "held-out half"), strict=True):
        right = min(int(half.stage1_right.sum()), int(half.stage2_right.sum()))
        if right < LEAST_RIGHT:
            raise _no_gate(
                "the first pick fits for "
                f"{share_of(right, len(half), 'query')} of the {name}, and {LEAST_RIGHT} are "
                "needed to tell when it does. Queries that share documents are kept in one half",
                TooFewLabelsError,
            )
        expected = float(half.chance.sum())
        spread = math.sqrt(float((half.chance * (1 - half.chance)).sum()))
        if half.stage2_right.sum() <= expected + NormalDist().inv_cdf(1 - CHANCE) * spread:
            raise _no_gate(
                "the first pick fits for "
                f"{counted(int(half.stage2_right.sum()), 'query')} of the {name}, and a random "
                f"pick for {expected:.0f}. Do the labels belong to these queries?",
            )


def _promised_for(
    runs: Sequence[Run],
    objective: Objective,
    halves: tuple[Sequence[StoredQuery], Sequence[StoredQuery]],
    corpora: tuple[Sequence[str], Sequence[str]],
) -> tuple[list[StoredQuery], list[StoredQuery]]:
    """Return the queries of both halves that the shortlist promises for.

    Raises:
        InputError: `out_of_range` for a dataset without a run.
    """
    names = {run.header.dataset for run in runs}
    unknown = sorted(set(objective.covered) - names)
    if unknown:
        raise InputError(
            "out_of_range", f"no run is of {unknown[0]!r}: name {', '.join(sorted(names))}"
        )
    names_covered = set(objective.covered) or names
    covered = {
        _key(query, run.header.corpus)
        for run in runs
        if run.header.dataset in names_covered
        for query in run.queries
    }
    first, second = (
        [
            query
            for query, corpus in zip(half, of_half, strict=True)
            if _key(query, corpus) in covered
        ]
        for half, of_half in zip(halves, corpora, strict=True)
    )
    return first, second


def _fit_answer(
    seen: Outcomes,
    fit: Sequence[StoredQuery],
    corpora: Sequence[str],
    weighed: Profile,
    objective: Objective,
    seed: int,
) -> tuple[Profile, tuple[Stated, Stated]]:
    """Return the profile with the models of both stages and the threshold of an answer.

    Returns:
        The profile, and the probabilities that it states for the queries.
    """
    empty = np.flatnonzero(~seen.matched)
    level, keep = objective.max_false_positive_rate, objective.keep_recall
    for_threshold = empty
    if level is not None:
        # The threshold's promise holds only for queries that the models were not fitted on.
        for_models, for_threshold = _split_of(empty, fit, corpora, seed=seed + 1)
        needed = negatives_needed(level)
        if min(len(for_threshold), len(for_models)) < needed:
            raise CalibrationError(
                "too_few_negatives",
                f"the half to fit on has {counted(len(empty), 'no-match query')}, "
                f"{len(for_models)} for the models and {len(for_threshold)} for the threshold: a "
                f"false-positive rate of {level:g} needs {needed} of each, so about {4 * needed} "
                f"in all. {_promised(for_models, for_threshold)}Give more, or allow a higher rate",
            )
        empty = for_models
    left_out = set(np.flatnonzero(~seen.matched).tolist()) - set(empty.tolist())
    known = [query for position, query in enumerate(fit) if position not in left_out]
    profile = weighed.replace(any_fits=fit_any_fits(known, weighed))
    first, second = stated(fit, profile)
    right = seen.stage2_right
    if level is not None:
        # Whichever stage answers, its probability is not above the larger of the two.
        highest = np.maximum(first.any_fits, second.any_fits)[for_threshold]
        least = least_for_false_positives(highest, level)
        answer = Answer(threshold=least)
    elif keep is not None and profile.any_fits.stage2 is not None:
        least = least_for_recall(second.any_fits, right, corpora, keep)
        answer = Answer(threshold=least)
    elif keep is not None:
        least = least_for_recall(second.confidence, right, corpora, keep)
        answer = Answer(confidence=least)
    else:
        least = least_for_cost(second.confidence, right, objective.cost_ratio)
        answer = Answer(confidence=least)
    if least > 1:
        which, advice = (
            ("a wrong pick has", "give a lower cost ratio")
            if level is None
            else ("a no-match query has", "allow a higher rate")
        )
        raise _no_gate(
            f"{which} the highest possible probability, so no threshold excludes it; {advice}",
        )
    return profile.replace(answer=answer), (first, second)


def _split_of(
    positions: NDArray[np.intp],
    queries: Sequence[StoredQuery],
    corpora: Sequence[str],
    *,
    seed: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return two halves of the positions of some queries, with no group in both."""
    first, second = split(
        [queries[position] for position in positions],
        [corpora[position] for position in positions],
        seed=seed,
    )
    return positions[np.array(first, np.intp)], positions[np.array(second, np.intp)]


def _promised(*groups: NDArray[np.intp]) -> str:
    """Return a sentence with the lowest false-positive rate that this many queries can promise."""
    fewest = min(map(len, groups))
    return f"This many can promise {1 / (fewest + 1):.2g} at best. " if fewest else ""


def _fit_gate(
    answering: Profile,
    seen: Outcomes,
    known: tuple[Stated, Stated],
    corpora: Sequence[str],
    objective: Objective,
) -> Profile:
    answer = answering.answer
    first, second = known
    skips = fit_skipping(
        seen,
        first.any_fits,
        (_answered(first, answer), _answered(second, answer)),
        1.0 if answer.threshold is None else answer.threshold,
        corpora,
        objective.max_recall_loss,
    )
    has_model = answering.any_fits.stage1 is not None
    return answering.replace(
        answer=answer.replace(rerank_threshold=skips.rerank_threshold if has_model else None),
        winner=Winner(agreed=skips.agreed, disagreed=skips.disagreed),
        runner_up=RunnerUpRule(
            stage1=_second_picks(seen.stage1_margin, seen.stage1_second, seen.matched),
            stage2=_second_picks(seen.stage2_margin, seen.stage2_second, seen.matched),
        ),
    )


def _answered(known: Stated, answer: Answer) -> Flags:
    """Return whether the probabilities of a stage reach the thresholds of an answer."""
    least, confidence = answer.threshold or 0.0, answer.confidence or 0.0
    reached: Flags = (known.any_fits >= least) & (known.confidence >= confidence)
    return reached


def _second_picks(lead: Array, right: Flags, matched: Flags) -> float:
    """Return the largest lead within which a second pick is right often enough."""
    order = np.argsort(lead[matched], kind="stable")
    often = np.cumsum(right[matched][order]) / np.arange(1, len(order) + 1) >= SECOND_PICK
    enough = np.flatnonzero(often)
    return rounded(float(lead[matched][order][enough[-1]])) if len(enough) else 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Queries with the results of a profile in every mode.

    Attributes:
        queries: The queries.
        results: Per mode the results, in the order of the queries.
        tables: Per mode the metrics in the order of `_SHOWN`, of shape (queries, metrics).
    """

    queries: Sequence[StoredQuery]
    results: Mapping[Mode, Sequence[RouteResult]]
    tables: Mapping[Mode, Array]

    @property
    def recalls(self) -> Array:
        """The recall@1 of each query in the mode `gated`."""
        return self.tables["gated"][:, 0]

    def figures(self, seed: int) -> Figures:
        """Count over all queries.

        Args:
            seed: Seed of the intervals.
        """
        always = self.results["always"]
        matched = np.array([bool(query.relevant) for query in self.queries])
        right = np.array(
            [
                bool(result.hits) and result.hits[0].id in query.relevant
                for query, result in zip(self.queries, always, strict=True)
            ]
        )
        picked = np.array([bool(result.ids) for result in always])
        probability = [
            result.any_fits if result.any_fits is not None else result.confidence or 0.0
            for result in always
        ]
        against = ~matched if not matched.all() else ~right
        judged = right | against
        # All modes share the resampled queries, which take longer to draw than to count.
        intervals = iter(means(np.hstack(list(self.tables.values())), seed=seed, shares=True))
        return Figures(
            matched=int(matched.sum()),
            no_match=int((~matched).sum()),
            modes={mode: {name: next(intervals) for name in _SHOWN} for mode in self.tables},
            recall_loss=mean(self.tables["always"][:, 0] - self.recalls, seed=seed),
            kept=mean(picked[right], seed=seed, shares=True),
            separation=area_interval(np.array(probability)[judged], right[judged], seed=seed),
        )


def measured(queries: Sequence[StoredQuery], profile: Profile) -> Measured:
    """Decide each query in every mode with the cascade, and measure the results."""
    results = {mode: decide_all(queries, profile, mode) for mode in MODES}
    tables = {}
    for mode, answers in results.items():
        metrics = [
            measure_answer(query, answer) for query, answer in zip(queries, answers, strict=True)
        ]
        tables[mode] = np.array(
            [[values[name] for name in _SHOWN] for values in metrics], dtype=np.float64
        )
    return Measured(queries, results, tables)


def figures_of(queries: Sequence[StoredQuery], profile: Profile, seed: int) -> Figures:
    """Return the figures of a profile on queries."""
    return measured(queries, profile).figures(seed)


def _check_promise(report: Figures, objective: Objective) -> None:
    """Refuse a fit that the held-out half contradicts."""
    apart = report.separation
    if apart is None:
        raise _no_gate(
            "on the held-out half, every query has a match and every first "
            "pick fits, so nothing shows how probable a wrong pick is: give no-match queries",
        )
    if _at_least(apart, CHANCE) <= 0.5:
        raise _no_gate(
            "on the held-out half, right picks are no more probable than "
            f"others (AUC is {apart.value:.2f}, from {apart.low:.2f}, and 0.5 is chance). Do the "
            "labels belong to these queries?",
        )
    check_false_positives(report, objective.max_false_positive_rate)
    level = objective.max_false_positive_rate
    share, kept = objective.keep_recall, report.kept
    if level is None and share is not None and kept is not None:
        count = round(kept.value * kept.count)
        if bdtr(count, kept.count, share) < SIGNIFICANCE:
            raise CalibrationError(
                "promise_broken",
                f"{count} of {kept.count} right picks of the held-out half pass the threshold, too "
                f"few for {share:.1%}. Nothing was written; give more queries, or keep less",
            )
    lost = report.recall_loss
    if lost is not None and _at_least(lost, SIGNIFICANCE) > objective.max_recall_loss:
        raise CalibrationError(
            "promise_broken",
            f"on the held-out half, skipping costs {lost.value:.1%} of recall@1, clearly more than "
            f"{objective.max_recall_loss:.1%}. Nothing was written; give more queries, or "
            "allow a larger loss",
        )


def check_false_positives(report: Figures, level: float | None) -> None:
    """Refuse a threshold whose false-positive rate is clearly above the promised one."""
    injected = report.modes["gated"]["false_positive_rate"]
    if level is not None and injected is not None:
        count = round(injected.value * injected.count)
        if bdtrc(count - 1, injected.count, level) < SIGNIFICANCE:
            raise CalibrationError(
                "promise_broken",
                f"a pick for {share_of(count, injected.count, 'no-match query')} of the "
                "held-out half: "
                f"too many for {level:.1%}. Nothing was written; are these queries of one kind?",
            )


def _at_least(interval: Interval, level: float) -> float:
    """Return the one-sided lower confidence bound of an estimate at a significance level."""
    tail = NormalDist().inv_cdf(1 - level) / NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return interval.value - tail * (interval.value - interval.low)


def documented(
    calibration: Calibration,
    runs: Sequence[Run],
    objective: Objective,
    *,
    any_corpus: bool,
    seed: int,
    command: str,
) -> Calibration:
    """Return a calibration whose profile records how it was made, and for which documents."""
    fitted = {
        "objective": objective.describe(),
        "data": [
            {
                "dataset": run.header.dataset,
                "split": run.header.split,
                "documents": run.header.documents,
                "queries": len(run.queries),
                "no_match": sum(not query.relevant for query in run.queries),
                "corpus": run.header.corpus,
                "labels": run.header.labels,
            }
            for run in runs
        ],
        "fit_half": calibration.fit.to_dict(),
        "report_half": calibration.report.to_dict(),
        "shortlists": shortlist_values(calibration.shortlists),
        "notes": list(calibration.notes),
        "seed": seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "crossgate": __version__,
        "command": command,
    }
    # A run that comes from a log does not list its documents.
    corpora = dict.fromkeys(run.header.corpus for run in runs if run.header.corpus)
    profile = calibration.profile.replace(
        corpora=[] if any_corpus else list(corpora), fitted=fitted
    )
    return replace(calibration, profile=profile)


def shortlist_values(figures: Mapping[str, Shortlists]) -> dict[str, Any]:
    """Return the figures of shortlists as JSON values; an interval is a list of three."""
    names = ("coverage", "coverage_all", "size", "size_no_match", "empty", "shown", "full")
    return {
        mode: {
            "promised": of.promised,
            "lengths": {str(length): count for length, count in of.lengths.items()},
            **{name: _triple(getattr(of, name)) for name in names},
        }
        for mode, of in figures.items()
    }


def _triple(interval: Interval | None) -> list[float] | None:
    """Return an estimate and the two ends of its interval."""
    if interval is None:
        return None
    return [round(number, 4) for number in (interval.value, interval.low, interval.high)]


_CLOSEST = 3


def set_threshold(
    runs: Sequence[Run],
    max_false_positive_rate: float,
    *,
    before: Profile | None = None,
    name: str = "calibrated",
    any_corpus: bool = False,
    seed: int = 0,
    command: str = "",
    reason: str = "",
) -> Calibration:
    """Raise a profile's threshold on the probability that any document fits, and nothing else.

    The threshold is set on one half of the no-match queries, by split conformal prediction; the
    other half and all queries with a match are used to report on it. It is never lowered: everyday
    prompts are far from a library's subject, and give no information on near misses.

    Args:
        runs: As for `calibrate`, but queries with a match may be few or missing.
        max_false_positive_rate: The false-positive rate to allow, in (0, 1): the share of no-match
            queries for which something is selected.
        before: The profile to start from; None for that of the first run.
        name: Name of the new profile.
        any_corpus: Whether the profile may be used for other documents.
        seed: Seed of the halves and of the intervals; at least 0.
        command: The command that was run, to be kept in the profile.
        reason: Why nothing else was fitted, to be kept in the notes.

    Raises:
        CalibrationError: `too_few_negatives`; `no_gate` if the profile has no model of that
            probability, or no threshold excludes these queries; `promise_broken` if the other half
            contradicts it.
        InputError: `out_of_range`.
        ProfileError: `profile_mismatch` if the profile is for other models.
        SourceError: `unsuitable_run`, as for `calibrate`.
    """
    objective = Objective(max_false_positive_rate=max_false_positive_rate)
    runs, before = _checked(runs, before, seed)
    if before.any_fits.stage1 is None or before.any_fits.stage2 is None:
        raise CalibrationError(
            "no_gate",
            f"the profile {before.name} has no model of the probability that any document fits, so "
            "there is no threshold to set: fit a profile on labels first",
        )
    queries, corpora, notes = usable(runs)
    queries = [reblended(query, before) for query in queries]
    matched = [query for query in queries if query.relevant]
    empty = np.flatnonzero([not query.relevant for query in queries])
    halves = _split_of(empty, queries, corpora, seed=seed)
    fit, held_out = ([queries[position] for position in half] for half in halves)
    needed = negatives_needed(max_false_positive_rate)
    if len(fit) < needed:
        raise CalibrationError(
            "too_few_negatives",
            f"there {noun_for(len(empty), 'is', 'are')} {counted(len(empty), 'no-match query')}, "
            f"{len(fit)} of them to set the threshold on: a false-positive rate of "
            f"{max_false_positive_rate:g} needs {needed}; give more, or allow a higher rate",
        )
    if not held_out:
        raise CalibrationError(
            "too_few_negatives",
            f"there {noun_for(len(empty), 'is', 'are')} {counted(len(empty), 'no-match query')}, "
            "all in the half that sets the threshold, so none is left to check it: give more. "
            "Queries that share labels are kept in one half",
        )
    highest = np.maximum(*(known.any_fits for known in stated(fit, before)))
    least = least_for_false_positives(highest, max_false_positive_rate)
    if least > 1:
        raise CalibrationError(
            "no_gate",
            "a no-match query has the highest possible probability, so no threshold "
            "excludes it; allow a higher rate",
        )
    threshold = max(least, before.answer.threshold or 0.0)
    profile = before.replace(name=name, answer=before.answer.replace(threshold=threshold))
    report = [*matched, *held_out]
    calibration = Calibration(
        profile=profile,
        fit=figures_of(fit, profile, seed),
        report=figures_of(report, profile, seed),
        before=figures_of(report, before, seed),
        shortlists={},
        notes=(*notes, *_threshold_notes(before, least, matched, fit, reason)),
    )
    check_false_positives(calibration.report, max_false_positive_rate)
    return documented(
        calibration, runs, objective, any_corpus=any_corpus, seed=seed, command=command
    )


def _threshold_notes(
    before: Profile,
    least: float,
    matched: Sequence[StoredQuery],
    fit: Sequence[StoredQuery],
    reason: str,
) -> list[str]:
    notes = [f"only the threshold was set; everything else is that of the profile {before.name}"]
    if reason:
        notes.append(reason)
    old = before.answer.threshold or 0.0
    if least <= old:
        notes.append(
            f"the threshold was high enough already: these queries need {least:.3g}, and it is "
            f"{old:.3g}"
        )
    if not matched:
        notes.append(
            "there are no queries with a match, so the cost of this threshold is unknown: a few "
            "dozen labelled prompts would show it"
        )
    closest = [
        (result.any_fits or 0.0, result.hits[0].id, query.text)
        for result, query in zip(decide_all(fit, before, "always"), fit, strict=True)
        if result.hits
    ]
    if least > old and closest:
        texts = "; ".join(
            f"{text!r} for {id} ({probability:.2f})"
            for probability, id, text in sorted(closest, reverse=True)[:_CLOSEST]
        )
        notes.append(
            f"closest to a pick were {texts}. If the library is about such everyday matters, this "
            "threshold may suppress right answers"
        )
    return notes
