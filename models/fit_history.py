"""Fit the weights by which the core tells whether a prompt leans on earlier requests.

    python fit_history.py

Prints intercept and weights for `MODEL` in `rust/core/src/history.rs`, the log loss and the errors
of a cross-validation with ten parts, and the prompts that are judged wrong. It needs crossgate
installed but not torch.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

import crossgate._core as _core

Array = NDArray[np.float64]

PROMPTS = Path(__file__).parent / "prompts" / "history.jsonl"
RIDGE = 5e-3
PARTS = 10


def read_prompts() -> list[tuple[str, bool]]:
    """Return the prompts, and whether each one leans on earlier requests."""
    rows = map(json.loads, PROMPTS.read_text(encoding="utf-8").splitlines())
    return [(row["text"], row["leans"]) for row in rows]


def fit(features: Array, labels: Array) -> Array:
    """Return intercept and weights of a logistic model in which both labels weigh the same."""
    weight = np.where(labels == 1, 0.5 / labels.sum(), 0.5 / (1 - labels).sum())
    spread = features.std(axis=0)
    scaled = features / spread

    def loss(model: Array) -> float:
        odds = model[0] + scaled @ model[1:]
        fit = weight @ (np.logaddexp(0, odds) - labels * odds)
        return float(fit + RIDGE * model[1:] @ model[1:])

    model = minimize(loss, np.zeros(1 + features.shape[1])).x
    return np.concatenate([model[:1], model[1:] / spread])


def main() -> None:
    """Fit the model and print it."""
    prompts = read_prompts()
    random.Random(0).shuffle(prompts)
    features = np.array([_core.history_features(text) for text, _ in prompts])
    labels = np.array([float(leans) for _, leans in prompts])
    part = np.arange(len(prompts)) % PARTS
    found = np.empty(len(prompts))
    for held_out in range(PARTS):
        model = fit(features[part != held_out], labels[part != held_out])
        chosen = features[part == held_out]
        found[part == held_out] = expit(model[0] + chosen @ model[1:])
    losses = -np.log(np.where(labels == 1, found, 1 - found))
    wrong = (found > 0.5) != (labels == 1)
    for (text, leans), probability, is_wrong in zip(prompts, found, wrong, strict=True):
        if is_wrong:
            print(f"{'leans' if leans else 'complete':9} {probability:.2f}  {text}")
    print(f"{len(prompts)} prompts, {wrong.sum()} wrong, log loss {losses.mean():.3f}")
    print("MODEL =", [round(float(weight), 2) for weight in fit(features, labels)])


if __name__ == "__main__":
    main()
