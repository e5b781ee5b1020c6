"""The share of somebody's prompts that need a document, fitted to labelled prompts of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import bisect
from scipy.special import expit, logit

import crossgate._core as _core
from crossgate._calibration.calibrating import FOLDS
from crossgate._calibration.fits import Array
from crossgate._core import Profile
from crossgate._evaluation.stored_runs import Run, check_kind, decide_all
from crossgate._support.errors import CalibrationError
from crossgate._support.wording import counted

LEAST_PROMPTS = 20
"""Number of prompts from which a fit helps, as for requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRate:
    """A profile for sessions, fitted to how often prompts need a document.

    Attributes:
        profile: The profile.
        prompts: Number of labelled prompts.
        fitting: Share of them that a document fits.
        before: Mean probability that any fits, by the former profile.
        after: The same for each prompt by a profile fitted on the other folds.
        log_loss: Mean logarithmic loss of these probabilities, before and after.
    """

    profile: Profile
    prompts: int
    fitting: float
    before: float
    after: float
    log_loss: tuple[float, float]


def fit_base_rate(runs: Sequence[Run], profile: Profile, *, name: str) -> BaseRate:
    """Move the level of `any_fits` of a profile for sessions, and leave all else.

    One number is added to the log-odds that any document fits, the maximum a posteriori under a
    standard normal prior. The order of the candidates does not change.

    Args:
        runs: Measured or stored runs of labelled prompts.
        profile: The profile for sessions.
        name: Name of the new profile.

    Raises:
        CalibrationError: `no_labels` for fewer than 20 prompts whose probability is known.
        SourceError: `unsuitable_run` if a run was measured with a profile for requests.
    """
    for run in runs:
        check_kind(run.header, profile)
    queries = [query for run in runs for query in run.queries]
    results = zip(queries, decide_all(queries, profile, "never"), strict=True)
    known = [
        (result.any_fits, bool(query.relevant))
        for query, result in results
        if result.any_fits is not None and 0 < result.any_fits < 1
    ]
    model = profile.any_fits.stage1
    if len(known) < LEAST_PROMPTS or model is None:
        raise CalibrationError(
            "no_labels",
            f"the profile gives {counted(len(known), 'prompt')} a probability that a document "
            f"fits: a fit needs {LEAST_PROMPTS}. Label more",
        )
    odds = logit(np.array([probability for probability, _ in known]))
    fits = np.array([float(label) for _, label in known])
    fold = np.arange(len(fits)) % FOLDS
    held_out = np.empty(len(fits))
    for number in range(FOLDS):
        own = fold == number
        held_out[own] = expit(odds[own] + shift(odds[~own], fits[~own]))
    moved = _core.Stage1AnyFits(
        intercept=model.intercept + shift(odds, fits),
        log_mean=model.log_mean,
        cosine=model.cosine,
        need=model.need,
    )
    return BaseRate(
        profile=profile.replace(
            name=name, any_fits=_core.AnyFits(stage1=moved, stage2=profile.any_fits.stage2)
        ),
        prompts=len(fits),
        fitting=float(fits.mean()),
        before=float(expit(odds).mean()),
        after=float(held_out.mean()),
        log_loss=(_log_loss(expit(odds), fits), _log_loss(held_out, fits)),
    )


def shift(odds: Array, fits: Array) -> float:
    """Return the number to add to log-odds, under a standard normal prior.

    Args:
        odds: Log-odds that any document fits, [n].
        fits: 1 if one does, otherwise 0, [n].
    """
    # The derivative of the loss rises with the number, and is zero within this bound.
    bound = float(len(fits))
    return float(bisect(lambda value: (expit(odds + value) - fits).sum() + value, -bound, bound))


def _log_loss(probabilities: Array, fits: Array) -> float:
    return float(-np.mean(np.log(np.where(fits == 1, probabilities, 1 - probabilities))))
