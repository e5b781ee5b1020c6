"""Fitting when to answer: the probability that a pick fits, and how probable it must be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from crossgate._calibration.outcomes import STAGE1_SIGNALS, STAGE2_SIGNALS, Array, Flags, Outcomes
from crossgate._calibration.weights import rounded
from crossgate._core import Stage1Confidence, Stage2Confidence

Model = TypeVar("Model", Stage1Confidence, Stage2Confidence)

_RIDGE = 1e-2
_SIGNALS: Mapping[type, Sequence[str]] = {
    Stage1Confidence: STAGE1_SIGNALS,
    Stage2Confidence: STAGE2_SIGNALS,
}


def fit_confidence(found: Outcomes, right: Flags, against: Flags, kind: type[Model]) -> Model:
    """Fit a monotone logistic model that tells right picks from others.

    No weight is below 0: more of a signal never makes an answer less probable, whatever chance
    did to the data. The ridge is on standardised signals.

    Args:
        found: What the cascade saw.
        right: The queries whose pick fits.
        against: The queries that stand for the other class; those in neither are left out.
        kind: The model of which stage.
    """
    names: Sequence[str] = _SIGNALS[kind]
    kept = right | against
    signals = np.stack([found.column(name)[kept] for name in names], axis=1)
    labels = right[kept].astype(np.float64)
    intercept, weights = fit_logistic(signals, labels, _RIDGE)
    return kind(intercept=intercept, **dict(zip(names, weights, strict=True)))


def fit_logistic(signals: Array, labels: Array, ridge: float) -> tuple[float, list[float]]:
    """Return intercept and weights, none of these below 0, of a logistic model.

    Args:
        signals: What is weighed, of shape (rows, signals).
        labels: 1 or 0 for each row.
        ridge: What the sum of the squared weights costs, for signals of unit spread, beside the
            mean loss of a row.
    """
    mean, spread = signals.mean(axis=0), signals.std(axis=0)
    spread[spread == 0] = 1.0
    standard = (signals - mean) / spread

    def loss(weights: Array) -> tuple[float, Array]:
        odds = weights[0] + standard @ weights[1:]
        error = expit(odds) - labels
        value = np.mean(np.logaddexp(0, odds) - labels * odds) + ridge * np.sum(weights[1:] ** 2)
        slope = standard.T @ error / len(labels) + 2 * ridge * weights[1:]
        return float(value), np.concatenate([[error.mean()], slope])

    width = signals.shape[1]
    bounds = [(None, None), *([(0, None)] * width)]
    found = minimize(loss, np.zeros(width + 1), jac=True, bounds=bounds).x
    weights = found[1:] / spread
    return rounded(float(found[0] - weights @ mean)), [rounded(float(one)) for one in weights]


def probabilities(found: Outcomes, model: Stage1Confidence | Stage2Confidence) -> Array:
    """Return the model's probability for each query; equal to what the core computes."""
    names = _SIGNALS[type(model)]
    odds = model.intercept + sum(
        (getattr(model, name) * found.column(name) for name in names), np.zeros(len(found))
    )
    return np.asarray(expit(odds)) * found.need


def least_for_false_injects(empty: Array, level: float) -> float:
    """Return the least probability that an answer must have, so that few are false injects.

    Split conformal: with k = floor(level (n + 1)), only what exceeds the k-th largest of n
    probabilities is answered. Then the chance of an answer to a further query that nothing fits is
    at most k / (n + 1), for any distribution, as long as that query is exchangeable with these n.
    It holds on average over such samples, not for each one. Vovk, Gammerman and Shafer,
    "Algorithmic Learning in a Random World", 2005; as a test for outliers: Bates, Candès, Lei,
    Romano and Sesia, "Testing for outliers with conformal p-values", Annals of Statistics 51, 2023.

    Args:
        empty: The highest probability that any stage gives to each query that nothing fits, of
            shape (n,); none of them was used to fit the model.
        level: The share of such queries that may be answered, in (0, 1).

    Raises:
        ValueError: If there are fewer than `negatives_needed` of them.
    """
    k = math.floor(_decimal(level) * (len(empty) + 1))
    if k < 1:
        raise ValueError(f"{len(empty)} are too few for {level}: {negatives_needed(level)} needed")
    return float(_above(np.sort(empty)[-k:][:1])[0])


def negatives_needed(level: float) -> int:
    """Return how many queries that nothing fits the least bar needs: ceil(1 / level) - 1."""
    return math.ceil(1 / _decimal(level)) - 1


def least_for_recall(
    probability: Array, right: Flags, corpora: Sequence[str], share: float
) -> float:
    """Return the largest bar that lets a share of the right picks of every corpus through.

    Args:
        probability: How probable each pick is.
        right: Whether it fits.
        corpora: The corpus of each query.
        share: The share of the right picks to keep, in (0, 1).
    """
    names = np.array(corpora)
    of_right = [probability[right & (names == name)] for name in sorted(set(corpora))]
    bars = [np.sort(one)[math.floor((1 - share) * len(one))] for one in of_right if len(one)]
    return math.floor(float(min(bars)) * 1e6) / 1e6


def least_for_cost(probability: Array, right: Flags, ratio: float) -> float:
    """Return the least probability of an answer that costs least on these queries.

    Args:
        probability: How probable each pick is.
        right: Whether it fits.
        ratio: What a wrong pick costs, where a missed right one costs 1.
    """
    bars = np.concatenate([[0.0], _above(np.unique(probability))])
    picked = (~right).sum() - np.searchsorted(np.sort(probability[~right]), bars)
    missed = np.searchsorted(np.sort(probability[right]), bars)
    return float(bars[np.argmin(ratio * picked + missed)])


def _decimal(level: float) -> Fraction:
    """Return a share as it is written: 0.1 is a tenth, though no float is."""
    return Fraction(str(float(level)))


def _above(probability: Array) -> Array:
    """Return for each probability the next number with six digits; a bar lets itself through."""
    above = (np.floor(probability * 1e6) + 1) / 1e6
    return np.where(above > probability, above, (np.floor(probability * 1e6) + 2) / 1e6)
