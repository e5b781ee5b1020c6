"""Fits when to answer: the probability that a pick fits, and the threshold on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from crossgate._calibration.fitted_outcomes import Array, Flags
from crossgate._calibration.weights import rounded


def fit_logistic(
    signals: Array, labels: Array, ridge: float, *, offset: Array | float = 0.0
) -> tuple[float, list[float]]:
    """Return intercept and non-negative weights of a logistic model.

    No weight is below 0, so that noise in the data can never make a stronger signal count against
    an answer.

    Args:
        signals: The signals, of shape (rows, signals).
        labels: 1 or 0 for each row.
        ridge: Factor of the sum of squared weights of the standardised signals, added to the mean
            loss of a row.
        offset: Added to the log-odds, with a weight of 1, of shape (rows,).
    """
    mean, spread = signals.mean(axis=0), signals.std(axis=0)
    spread[spread == 0] = 1.0
    standard = (signals - mean) / spread

    def loss(weights: Array) -> tuple[float, Array]:
        odds = weights[0] + standard @ weights[1:] + offset
        error = expit(odds) - labels
        value = np.mean(np.logaddexp(0, odds) - labels * odds) + ridge * np.sum(weights[1:] ** 2)
        slope = standard.T @ error / len(labels) + 2 * ridge * weights[1:]
        return float(value), np.concatenate([[error.mean()], slope])

    width = signals.shape[1]
    bounds = [(None, None), *([(0, None)] * width)]
    fitted = minimize(loss, np.zeros(width + 1), jac=True, bounds=bounds).x
    weights = fitted[1:] / spread
    return rounded(float(fitted[0] - weights @ mean)), [
        rounded(float(weight)) for weight in weights
    ]


def least_for_false_positives(empty: Array, level: float) -> float:
    """Return the threshold that bounds the false-positive rate.

    Split conformal prediction: with k = floor(level (n + 1)), only queries above the k-th largest
    of n probabilities are answered. Then a further no-match query is answered with a probability
    of at most k / (n + 1), for any distribution, if it is exchangeable with these n. The bound
    holds on average over samples, not for each sample. Vovk, Gammerman and Shafer,
    "Algorithmic Learning in a Random World", 2005; as a test for outliers: Bates, Candès, Lei,
    Romano and Sesia, "Testing for outliers with conformal p-values", Annals of Statistics 51, 2023.

    Args:
        empty: The highest probability that any stage gives to each no-match query, of shape (n,);
            none of these queries was used to fit the model.
        level: The share of no-match queries that may be answered, in (0, 1).

    Raises:
        ValueError: If there are fewer than `negatives_needed` of them.
    """
    k = math.floor(_decimal(level) * (len(empty) + 1))
    if k < 1:
        raise ValueError(f"{len(empty)} are too few for {level}: {negatives_needed(level)} needed")
    return float(_above(np.sort(empty)[-k:][:1])[0])


def negatives_needed(level: float) -> int:
    """Return how many no-match queries the threshold needs: ceil(1 / level) - 1."""
    return math.ceil(1 / _decimal(level)) - 1


def least_for_recall(
    probability: Array, right: Flags, corpora: Sequence[str], share: float
) -> float:
    """Return the highest threshold that keeps a share of the right picks of every corpus.

    Args:
        probability: The probability of each pick.
        right: Whether it fits.
        corpora: The corpus of each query.
        share: The share of the right picks to keep, in (0, 1).
    """
    names = np.array(corpora)
    of_right = [probability[right & (names == name)] for name in sorted(set(corpora))]
    thresholds = [
        np.sort(values)[math.floor((1 - _decimal(share)) * len(values))]
        for values in of_right
        if len(values)
    ]
    return math.floor(float(min(thresholds)) * 1e6) / 1e6


def least_for_cost(probability: Array, right: Flags, ratio: float) -> float:
    """Return the threshold with the lowest cost on these queries.

    Args:
        probability: The probability of each pick.
        right: Whether it fits.
        ratio: The cost of a wrong pick; a missed right pick costs 1.
    """
    thresholds = np.concatenate([[0.0], _above(np.unique(probability))])
    picked = (~right).sum() - np.searchsorted(np.sort(probability[~right]), thresholds)
    missed = np.searchsorted(np.sort(probability[right]), thresholds)
    return float(thresholds[np.argmin(ratio * picked + missed)])


def _decimal(level: float) -> Fraction:
    """Return a share as the decimal fraction that was written: 0.1 is exactly a tenth."""
    return Fraction(str(float(level)))


def _above(probability: Array) -> Array:
    """Return the next larger number with six digits, since a threshold passes its own value."""
    above = (np.floor(probability * 1e6) + 1) / 1e6
    return np.where(above > probability, above, (np.floor(probability * 1e6) + 2) / 1e6)
