"""Sets only the threshold, from no-match queries, for libraries with few labels or none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossgate._calibration import answer_threshold
from crossgate._calibration.calibrating import (
    Calibration,
    Objective,
    check_false_positives,
    check_runs,
    documented,
    figures_of,
    usable,
)
from crossgate._calibration.fitted_outcomes import stated
from crossgate._calibration.halves import split
from crossgate._core import Profile
from crossgate._evaluation.runs.modes import decide_all, reblended
from crossgate._evaluation.runs.stored_runs import Run, StoredQuery
from crossgate._support.errors import CalibrationError
from crossgate._support.wording import counted, noun_for
from crossgate._values.profile_files import check_models

_SHOWN = 3


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
    check_runs(runs)
    header = runs[0].header
    before = header.profile if before is None else before
    check_models(before, embedder=header.embedder, reranker=header.reranker)
    if before.any_fits.stage1 is None or before.any_fits.stage2 is None:
        raise CalibrationError(
            "no_gate",
            f"the profile {before.name} has no model of the probability that any document fits, so "
            "there is no threshold to set: fit a profile on labels first",
        )
    labelled, notes = usable(runs)
    queries = [reblended(query, before) for query, _ in labelled]
    corpora = [corpus for _, corpus in labelled]
    matched = [query for query in queries if query.relevant]
    empty = [position for position, query in enumerate(queries) if not query.relevant]
    halves = split(
        [queries[position] for position in empty],
        [corpora[position] for position in empty],
        seed=seed,
    )
    fit, held_out = ([queries[empty[position]] for position in half] for half in halves)
    needed = answer_threshold.negatives_needed(max_false_positive_rate)
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
            "all to set the threshold on, so none is left to check the threshold on: give more. "
            "Queries that share labels are kept in one half",
        )
    highest = np.maximum(*(known.any_fits for known in stated(fit, before)))
    least = answer_threshold.least_for_false_positives(highest, max_false_positive_rate)
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
        notes=(*notes, *_notes(before, least, matched, fit, reason)),
    )
    check_false_positives(calibration.report, max_false_positive_rate)
    return documented(
        calibration, runs, objective, any_corpus=any_corpus, seed=seed, command=command
    )


def _notes(
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
        shown = "; ".join(
            f"{text!r} for {id} ({probability:.2f})"
            for probability, id, text in sorted(closest, reverse=True)[:_SHOWN]
        )
        notes.append(
            f"closest to a pick were {shown}. If the library is about such everyday matters, this "
            "threshold may suppress right answers"
        )
    return notes
