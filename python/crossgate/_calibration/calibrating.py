"""Moves a profile as far as labelled queries support, and checks it by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc

from crossgate._calibration.fits import (
    Array,
    Flags,
    Known,
    Outcomes,
    Stated,
    fit_any_fits,
    fit_skipping,
    fit_weights,
    folds,
    is_chained,
    least_for_false_positives,
    least_for_recall,
    negatives_needed,
    outcomes,
    rounded,
    stated,
)
from crossgate._calibration.shortlist_promises import SIGNIFICANCE, fit_shortlist
from crossgate._core import Answer, Profile, RunnerUpRule, __version__
from crossgate._evaluation.economics import Shortlists
from crossgate._evaluation.label_files import BACKGROUND
from crossgate._evaluation.metrics import measure_answer
from crossgate._evaluation.statistics import CONFIDENCE, Interval, area_interval, mean, means
from crossgate._evaluation.stored_runs import (
    MODES,
    STAGES,
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

GATE_LABELS = 200
"""Fewest queries with a match to fit gate, second picks and shortlist to, if a profile has them.

With fewer, a single lost pick is more than half of the loss of recall@1 that is allowed by default.
"""
LEAST_CHECKED = 10
"""Fewest queries with a match to compare the first picks with random ones."""
HARDLY_APART = 0.6
"""Right picks and others are not told apart if their AUC is clearly below this."""
SECOND_PICK = 0.3
"""A second pick must be right at least this often.

At such leads the first pick is hardly right more often. With 0.2, the previous value, four of five
second picks on `eval/skills` were wrong.
"""
CHANCE = 0.001
"""Labels belong to their queries only if noise would give as good a result less often than this."""

_SHOWN = ("recall@1", "false_positive_rate", "wrong_pick@1", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The objective of a fit.

    Attributes:
        max_false_positive_rate: The false-positive rate to allow, in (0, 1): the share of no-match
            queries for which something is selected.
        keep_recall: The share of the right first picks that the threshold must keep in every
            dataset, in (0, 1); used if no false-positive rate is given.
        cost_ratio: The cost R of a wrong pick, above 0; a missed right pick costs 1. Then the first
            candidate must fit with a probability of R / (R + 1). Used if neither share is given.
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
    """The figures of a profile, all datasets together.

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
            "recall_loss": triple(self.recall_loss),
            "kept": triple(self.kept),
            "separation": triple(self.separation),
            "modes": {
                mode: {
                    name: triple(interval)
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
        report: Its figures; each query is decided by the profile fitted on the other folds.
        before: The figures of the profile to start from, on the same queries.
        change: How many more of 1 queries are decided rightly than before, paired by query: the
            first pick fits, or nothing fits and nothing is picked. None without a query.
        shortlists: The figures of the shortlists by mode, of the datasets that they promise for,
            each query with promises that were fitted on the other folds; empty if the shortlist is
            that of the profile to start from.
        notes: Remarks for the reader.
    """

    profile: Profile
    report: Figures
    before: Figures
    change: Interval | None
    shortlists: Mapping[str, Shortlists]
    notes: tuple[str, ...]


FOLDS = 5
"""Each query is decided by a profile that was fitted on the other folds."""


def _no_gate(reason: str) -> CalibrationError:
    return CalibrationError("no_gate", f"the gate cannot be fitted: {reason}")


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
    """Move a profile as far as labelled queries support, and report on queries that did not fit it.

    A profile that was fitted for these models is the prior: few labels move the level of its
    probabilities, more their slope, and many the weights. Without one, the labels alone decide.
    Gate, second picks and shortlist are fitted anew if the queries can show a loss as small as the
    objective allows. Five folds, with all queries about one document in the same, give the report.

    Args:
        runs: Stored runs with the mode `always`, all by the same models. The order of runs and
            queries does not matter, and a query that occurs in several runs counts once. Everyday
            prompts set the threshold for a false-positive rate, and nothing else.
        objective: The objective.
        before: The profile to start from and to compare with; None for that of the first run, in
            the order of the datasets' names.
        name: Name of the new profile.
        any_corpus: Whether the profile may be used for other documents; routers then do not warn.
        seed: Seed of the folds and of the intervals; at least 0.
        command: The command that was run, to be kept in the profile.

    Raises:
        CalibrationError: `too_few_negatives` if the objective needs more no-match queries, naming
            how many; `no_gate` if right and wrong picks cannot be told apart; `promise_broken` if
            held-out queries contradict the objective; `too_few_labels` or `promise_impossible` if
            the shortlist cannot promise the coverage.
        InputError: `out_of_range` for a seed below 0, or for a dataset without a run.
        ProfileError: `profile_mismatch` if the profile to compare with is for other models.
        SourceError: `unsuitable_run` if a run lacks logits or vectors, or if two runs were made by
            different models.
    """
    runs, before = _checked(runs, before, seed)
    queries, corpora, notes = usable(runs)
    if not queries:
        raise SourceError(
            "unsuitable_run",
            "no query has a candidate and the logits of all its candidates: measure the queries "
            "with the mode always, on documents that they can find",
        )
    queries = [reblended(query, before) for query in queries]
    start = _start(before, runs[0].header)
    held_out = _cross_fitted(queries, corpora, start, seed)
    _check_labels(held_out.seen, objective)
    if len(held_out.folds) == 1 and start.refits(held_out.seen):
        raise _no_gate("all queries are about one document; add queries about others")
    everything = np.arange(len(queries))
    weighed, known, moved = _weighed(queries, start)
    gated = _with_thresholds(weighed, held_out, everything, start, objective)
    parts = [
        (
            fold,
            _with_thresholds(profile, held_out, np.setdiff1d(everything, fold), start, objective),
        )
        for fold, profile in held_out.folds
    ]
    # No figure depends on the shortlist, which takes longer to fit than the figures to count.
    found = _joined(
        [measured([held_out.queries[at] for at in fold], profile) for fold, profile in parts],
        np.concatenate([fold for fold, _ in parts]),
    )
    figures = found.figures(seed)
    refits = start.refits(held_out.seen)
    _check_promise(figures, objective, refits)
    covered = _promised_for(runs, objective, held_out.queries, corpora)
    shortlist, shortlists = gated.shortlist, dict[str, Shortlists]()
    if objective.coverage is not None or refits:
        listed = fit_shortlist(
            [
                ([held_out.queries[at] for at in fold if covered[at]], profile)
                for fold, profile in parts
            ],
            coverage=objective.coverage,
            most=objective.max_shortlist,
            seed=seed,
        )
        shortlist, shortlists = listed.shortlist, dict(listed.held_out)
        notes += listed.notes
    profile = gated.replace(name=name, shortlist=shortlist)
    earlier = measured(queries, before)
    change = mean(found.right - earlier.right, seed=seed)
    calibration = Calibration(
        profile=profile,
        report=figures,
        before=earlier.figures(seed),
        change=change,
        shortlists=shortlists,
        notes=(*_moved(start, known, moved, held_out.seen), *notes, *_fell(change)),
    )
    return _documented(
        calibration, runs, objective, any_corpus=any_corpus, seed=seed, command=command
    )


def _moved(
    start: _Start, known: Known | None, moved: tuple[float, float, float], seen: Outcomes
) -> Iterator[str]:
    """Yield what the labels decide, and how many would decide more."""
    matched, name = int(seen.matched.sum()), start.profile.name
    labels = f"{counted(len(seen), 'query')}, {matched} with a match,"
    if not start.prior:
        yield f"no profile suits these models, so {labels} decide everything"
        return
    if known is None:
        yield f"without a match for any query, only the threshold moved; the rest is that of {name}"
        return
    yield (
        f"{labels} decide {known.level:.0%} of the level of the probabilities, {known.slope:.0%} "
        f"of their slope and {known.weights:.0%} of the weights; {name} decides the rest"
    )
    if known.level:
        yield "the level moves by {:+.2f} log-odds [{:+.2f}, {:+.2f}]".format(*moved)
    if 1e-4 <= known.weights < 0.5:
        half = matched * (1 - known.weights) / known.weights
        yield f"about {half:.2g} queries with a match would decide half of the weights"
    if not start.refits(seen):
        yield (
            f"gate, second picks and shortlist are those of {name}: fitting them takes "
            f"{GATE_LABELS} queries with a match"
        )


def _fell(change: Interval | None) -> list[str]:
    """Return a note if fewer queries are decided rightly than before, beyond noise."""
    if change is None or change.high >= 0:
        return []
    return [
        f"on held-out queries, {-100 * change.value:.1f} points fewer are decided rightly than "
        "before, beyond noise: keep the previous profile, unless the objective is worth it"
    ]


def _check_labels(seen: Outcomes, objective: Objective) -> None:
    """Refuse labels whose first picks are no better than random ones, or too few for a rate."""
    matched, empty = int(seen.matched.sum()), int((~seen.matched).sum())
    right, expected = int(seen.stage2_right.sum()), float(seen.chance.sum())
    spread = math.sqrt(float((seen.chance * (1 - seen.chance)).sum()))
    least = expected + NormalDist().inv_cdf(1 - CHANCE) * spread
    if matched >= LEAST_CHECKED and right <= least:
        raise _no_gate(
            f"the first pick fits for {counted(right, 'query')}, and a random "
            f"pick for {expected:.0f}. Do the labels belong to these queries?",
        )
    level = objective.max_false_positive_rate
    if level is None and objective.keep_recall is not None and not right:
        raise _no_gate("no first pick fits, so none can be kept")
    if level is not None and empty < (needed := negatives_needed(level)):
        best = f"This many can promise {1 / (empty + 1):.2g} at best. " if empty else ""
        raise CalibrationError(
            "too_few_negatives",
            f"there {noun_for(empty, 'is', 'are')} {counted(empty, 'no-match query')}: a "
            f"false-positive rate of {level:g} needs {needed}. {best}Give more, or allow a higher "
            "rate",
        )


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
        if problem := _unsuitable(first, header):
            raise SourceError("unsuitable_run", problem)
    before = first.profile if before is None else before
    check_models(before, embedder=first.embedder, reranker=first.reranker)
    return runs, before


def _unsuitable(first: RunHeader, header: RunHeader) -> str:
    """Return why no profile can be fitted on a run beside the first; empty if one can."""
    if header.profile.session:
        return (
            f"{header.dataset} was measured with the profile {header.profile.name!r} for sessions: "
            "name it with --profile"
        )
    if "always" not in header.modes or header.reranker is None or not header.embedder:
        return (
            f"the run of {header.dataset} lacks vectors, or logits for every query: measure it "
            "with an embedder, a reranker and the mode always"
        )
    if (header.embedder, header.reranker) != (first.embedder, first.reranker):
        return (
            f"{first.dataset} was run by {first.embedder} and {first.reranker}, "
            f"{header.dataset} by {header.embedder} and {header.reranker}: a profile belongs "
            "to one pair of models"
        )
    sizes = [each.profile.per_channel for each in (first, header)]
    if sizes[0] != sizes[1]:
        return (
            f"{first.dataset} was run with a per_channel of {sizes[0]}, {header.dataset} with "
            f"one of {sizes[1]}: a profile has only one"
        )
    if header.profile.evidence != first.profile.evidence:
        return (
            f"{first.dataset} and {header.dataset} were run with different weights of the "
            "evidence: a profile has only one set"
        )
    return ""


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
            "labels connect most queries into one group: the folds share documents, except for "
            "those that fit a query best"
        )
    if len(runs) > 1:
        notes.append("all queries have equal weight, so the largest dataset counts most")
    return queries, corpora, notes


def _key(query: StoredQuery, corpus: str) -> tuple[str, str, str]:
    """Return what tells a query apart from the others."""
    return corpus, query.id, query.text


@dataclass(frozen=True, slots=True)
class _Start:
    """The profile that a fit starts from; with a prior, it was fitted for the same models."""

    profile: Profile
    prior: bool

    def refits(self, seen: Outcomes) -> bool:
        """Return whether gate, second picks and shortlist are fitted anew."""
        return not self.prior or int(seen.matched.sum()) >= GATE_LABELS


def _start(before: Profile, header: RunHeader) -> _Start:
    relevance = before.relevance
    # A model with an intercept allows several candidates to fit, and is fitted in another way.
    fitted = [stage for stage in (relevance.stage1, relevance.stage2) if stage is not None]
    prior = (
        None not in (before.embedder, before.reranker)
        and len(fitted) == len(STAGES)
        and all(stage.intercept is None for stage in fitted)
    )
    profile = before if prior else Profile(blend=before.blend)
    return _Start(
        profile.replace(
            embedder=header.embedder,
            reranker=header.reranker,
            per_channel=header.profile.per_channel,
            evidence=header.profile.evidence,
        ),
        prior,
    )


@dataclass(frozen=True, slots=True)
class _HeldOut:
    """What profiles say of queries that they were not fitted on.

    Attributes:
        queries: The queries, each ordered by the profile of the other folds.
        corpora: The corpus of each.
        folds: The positions of each fold's queries, and the profile of the other folds.
        seen: The outcomes.
        known: The probabilities after each stage.
    """

    queries: Sequence[StoredQuery]
    corpora: Sequence[str]
    folds: Sequence[tuple[NDArray[np.intp], Profile]]
    seen: Outcomes
    known: tuple[Stated, Stated]


def _cross_fitted(
    queries: Sequence[StoredQuery], corpora: Sequence[str], start: _Start, seed: int
) -> _HeldOut:
    parts = folds(queries, corpora, count=FOLDS, seed=seed)
    ordered = list(queries)
    fitted, seen, known = [], [], []
    for fold in parts:
        rest = set(fold)
        others = [query for at, query in enumerate(queries) if at not in rest]
        profile, *_ = _weighed(others, start)
        held_out = [reblended(queries[at], profile) for at in fold]
        for at, query in zip(fold, held_out, strict=True):
            ordered[at] = query
        fitted.append((np.array(fold, np.intp), profile))
        seen.append(outcomes(held_out, profile))
        known.append(stated(held_out, profile))
    order = np.argsort(np.concatenate([fold for fold, _ in fitted]))
    stages = [
        Stated(*_columns([of_fold[stage] for of_fold in known], order))
        for stage in range(len(STAGES))
    ]
    return _HeldOut(
        ordered, corpora, fitted, Outcomes(*_columns(seen, order)), (stages[0], stages[1])
    )


def _columns(parts: Sequence[Outcomes] | Sequence[Stated], order: NDArray[np.intp]) -> list[Any]:
    """Return the columns of the folds' tables, in the order of the queries."""
    names = [field.name for field in fields(parts[0])]
    return [np.concatenate([getattr(part, name) for part in parts])[order] for name in names]


_UNMOVED = (0.0, 0.0, 0.0)


def _weighed(
    queries: Sequence[StoredQuery], start: _Start
) -> tuple[Profile, Known | None, tuple[float, float, float]]:
    """Return the profile with its weights and models moved as far as queries support.

    Returns:
        The profile; how far the queries decide it; how far the level of stage 2 moved, in log-odds.
    """
    # Their share says nothing about the prompts of the library.
    own = [query for query in queries if query.kind != BACKGROUND]
    profile, known = fit_weights(own, start.profile, prior=start.prior)
    if profile.relevance.stage1 is None:
        raise _no_gate("no query has a match that stage 1 finds, and no profile suits the models")
    own = [reblended(query, profile) for query in own]
    any_fits, fitted = fit_any_fits(own, profile, prior=start.prior)
    profile = profile.replace(any_fits=any_fits)
    if known is None or fitted is None or fitted.known is None:
        return profile, known, _UNMOVED
    return profile, known._replace(level=fitted.known.level), fitted.moved


def _with_thresholds(
    weighed: Profile,
    held_out: _HeldOut,
    positions: NDArray[np.intp],
    start: _Start,
    objective: Objective,
) -> Profile:
    """Return a profile with thresholds and gate that fit what is held out at some positions."""
    seen = Outcomes(*_columns([held_out.seen], positions))
    first, second = (Stated(*_columns([known], positions)) for known in held_out.known)
    corpora = [held_out.corpora[at] for at in positions]
    queries = [held_out.queries[at] for at in positions]
    answer = _answer(objective, start.profile.answer, queries, corpora, seen, (first, second))
    if not start.refits(held_out.seen):
        return weighed.replace(answer=answer)
    threshold, winner = fit_skipping(
        seen,
        first.any_fits,
        (_answered(first, answer), _answered(second, answer)),
        1.0 if answer.threshold is None else answer.threshold,
        corpora,
        objective.max_recall_loss,
    )
    has_model = weighed.any_fits.stage1 is not None
    return weighed.replace(
        answer=answer.replace(rerank_threshold=threshold if has_model else None),
        winner=winner,
        runner_up=RunnerUpRule(
            stage1=_second_picks(seen.stage1_margin, seen.stage1_second, seen.matched),
            stage2=_second_picks(seen.stage2_margin, seen.stage2_second, seen.matched),
        ),
    )


def _answer(
    objective: Objective,
    before: Answer,
    queries: Sequence[StoredQuery],
    corpora: Sequence[str],
    seen: Outcomes,
    known: tuple[Stated, Stated],
) -> Answer:
    """Return the threshold that meets an objective on held-out queries.

    A share to keep, or of no-match queries to answer, is met by the probability that any candidate
    fits, or by the confidence if there is no model of it.
    """
    first, second = known
    level, keep = objective.max_false_positive_rate, objective.keep_recall
    if level is None and keep is None:
        # The probabilities were moved instead, so that this is where a pick begins to pay.
        ratio = objective.cost_ratio
        return before.replace(confidence=rounded(ratio / (ratio + 1)))
    modelled = bool((second.any_fits < 1).any())
    of_first, of_second = (
        (first.any_fits, second.any_fits) if modelled else (first.confidence, second.confidence)
    )
    if level is not None:
        # Whichever stage answers, its probability is not above the larger of the two.
        least = least_for_false_positives(np.maximum(of_first, of_second)[~seen.matched], level)
        if least > 1:
            raise _no_gate(
                "a no-match query has the highest possible probability, so no threshold "
                "excludes it; allow a higher rate"
            )
        if all(query.kind == BACKGROUND for query in queries if not query.relevant):
            # Everyday prompts are far from a library's subject, and say nothing of near misses.
            least = max(least, (before.threshold if modelled else before.confidence) or 0.0)
        return before.replace(**{"threshold" if modelled else "confidence": least})
    assert keep is not None
    least = least_for_recall(of_second, seen.stage2_right, corpora, keep)
    return Answer(**{"threshold" if modelled else "confidence": least})


def _answered(known: Stated, answer: Answer) -> Flags:
    """Return whether the probabilities of a stage reach the thresholds of an answer."""
    least, confidence = answer.threshold or 0.0, answer.confidence or 0.0
    reached: Flags = (known.any_fits >= least) & (known.confidence >= confidence)
    return reached


def _promised_for(
    runs: Sequence[Run],
    objective: Objective,
    queries: Sequence[StoredQuery],
    corpora: Sequence[str],
) -> list[bool]:
    """Return whether the shortlist promises for each query.

    Raises:
        InputError: `out_of_range` for a dataset without a run.
    """
    names = {run.header.dataset for run in runs}
    unknown = sorted(set(objective.covered) - names)
    if unknown:
        raise InputError(
            "out_of_range", f"no run is of {unknown[0]!r}: name {', '.join(sorted(names))}"
        )
    covered = {
        _key(query, run.header.corpus)
        for run in runs
        if run.header.dataset in (objective.covered or names)
        for query in run.queries
    }
    return [_key(query, corpus) in covered for query, corpus in zip(queries, corpora, strict=True)]


def _second_picks(lead: Array, right: Flags, matched: Flags) -> float:
    """Return the largest lead within which a second pick is right often enough."""
    order = np.argsort(lead[matched], kind="stable")
    often = np.cumsum(right[matched][order]) / np.arange(1, len(order) + 1) >= SECOND_PICK
    enough = np.flatnonzero(often)
    return rounded(float(lead[matched][order][enough[-1]])) if len(enough) else 0.0


@dataclass(frozen=True)
class Measured:
    """Queries with the results of a profile in every mode, in the order of the queries."""

    queries: Sequence[StoredQuery]
    results: Mapping[Mode, Sequence[RouteResult]]

    @property
    def right(self) -> Array:
        """1 for each query whose first pick fits, or that nothing fits and gets none, else 0."""
        return np.array(
            [
                float(result.ids[0] in query.relevant if result.ids else not query.relevant)
                for query, result in zip(self.queries, self.results["gated"], strict=True)
            ]
        )

    def figures(self, seed: int) -> Figures:
        """Count over all queries; the seed is that of the intervals."""
        always = self.results["always"]
        matched = np.array([bool(query.relevant) for query in self.queries])
        right = np.array(
            [
                bool(result.hits) and result.hits[0].id in query.relevant
                for query, result in zip(self.queries, always, strict=True)
            ]
        )
        picked = np.array([bool(result.ids) for result in always])
        tables = [
            np.array(
                [
                    [measure_answer(query, answer)[name] for name in _SHOWN]
                    for query, answer in zip(self.queries, answers, strict=True)
                ],
                dtype=np.float64,
            )
            for answers in self.results.values()
        ]
        recalls = {mode: table[:, 0] for mode, table in zip(self.results, tables, strict=True)}
        probability = [
            result.any_fits if result.any_fits is not None else result.confidence or 0.0
            for result in always
        ]
        against = ~matched if not matched.all() else ~right
        judged = right | against
        # All modes share the resampled queries, which take longer to draw than to count.
        intervals = iter(means(np.hstack(tables), seed=seed, shares=True))
        return Figures(
            matched=int(matched.sum()),
            no_match=int((~matched).sum()),
            modes={mode: {name: next(intervals) for name in _SHOWN} for mode in self.results},
            recall_loss=mean(recalls["always"] - recalls["gated"], seed=seed),
            kept=mean(picked[right], seed=seed, shares=True),
            separation=area_interval(np.array(probability)[judged], right[judged], seed=seed),
        )


def measured(queries: Sequence[StoredQuery], profile: Profile) -> Measured:
    """Decide each query in every mode with the cascade."""
    return Measured(queries, {mode: decide_all(queries, profile, mode) for mode in MODES})


def _joined(parts: Sequence[Measured], positions: NDArray[np.intp]) -> Measured:
    """Return parts as one whole, in the order of the positions of their queries."""
    order = np.argsort(positions)
    queries = [query for part in parts for query in part.queries]
    results = {mode: [result for part in parts for result in part.results[mode]] for mode in MODES}
    return Measured(
        queries=[queries[at] for at in order],
        results={mode: [of_mode[at] for at in order] for mode, of_mode in results.items()},
    )


def _check_promise(report: Figures, objective: Objective, gate: bool) -> None:
    """Refuse a fit that held-out queries contradict; `gate` is whether the gate was fitted."""
    apart = report.separation
    if apart is not None and _bound(apart.value, apart.high, CHANCE) < HARDLY_APART:
        raise _no_gate(
            "on held-out queries, right picks are hardly more probable than "
            f"others (AUC is {apart.value:.2f}, and 0.5 is chance). Do the labels belong to these "
            "queries?",
        )
    level, injected = (
        objective.max_false_positive_rate,
        report.modes["gated"]["false_positive_rate"],
    )
    if level is not None and injected is not None:
        count = round(injected.value * injected.count)
        if bdtrc(count - 1, injected.count, level) < SIGNIFICANCE:
            raise CalibrationError(
                "promise_broken",
                f"a pick for {share_of(count, injected.count, 'no-match query')} of the "
                "held-out queries: "
                f"too many for {level:.1%}. Nothing was written; are these queries of one kind?",
            )
    share, kept = objective.keep_recall, report.kept
    if level is None and share is not None and kept is not None:
        count = round(kept.value * kept.count)
        if bdtr(count, kept.count, share) < SIGNIFICANCE:
            raise CalibrationError(
                "promise_broken",
                f"{count} of {kept.count} right picks of held-out queries pass the threshold, too "
                f"few for {share:.1%}. Nothing was written; give more queries, or keep less",
            )
    lost = report.recall_loss
    most = objective.max_recall_loss
    if gate and lost is not None and _bound(lost.value, lost.low, SIGNIFICANCE) > most:
        raise CalibrationError(
            "promise_broken",
            f"on held-out queries, skipping costs {lost.value:.1%} of recall@1, clearly more than "
            f"{most:.1%}. Nothing was written; give more queries, or "
            "allow a larger loss",
        )


def _bound(value: float, end: float, level: float) -> float:
    """Return the one-sided confidence bound of an estimate on the side of an interval's end."""
    tail = NormalDist().inv_cdf(1 - level) / NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return value + tail * (end - value)


def _documented(
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
        "report": calibration.report.to_dict(),
        "before": calibration.before.to_dict(),
        "change": triple(calibration.change),
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
            **{name: triple(getattr(of, name)) for name in names},
        }
        for mode, of in figures.items()
    }


def triple(interval: Interval | None) -> list[float] | None:
    """Return an estimate and the two ends of its interval."""
    if interval is None:
        return None
    return [round(number, 4) for number in (interval.value, interval.low, interval.high)]
