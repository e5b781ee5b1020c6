"""Scales and shifts a cross-encoder's logits, so that 0 means "as likely to fit as not"."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from hashes import check_weights, list_weights
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

Numbers = NDArray[np.float64]


def read_logits(run: Path) -> tuple[Numbers, Numbers]:
    """Returns the logits [n] of all candidates of a stored run and which of them fit, 0 or 1.

    Args:
        run: A run stored by `crossgate eval --modes always --runs`; queries that name a fitting
            document are left out.
    """
    logits, fits = [], []
    for line in run.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("stage2") and not row.get("mentions_name"):
            logits += [logit for _, logit, _ in row["stage2"]]
            fits += [float(id in row["relevant"]) for id, _, _ in row["stage2"]]
    if not 0 < sum(fits) < len(fits):
        raise SystemExit(f"{run}: needs logits of fitting candidates and of others")
    return np.array(logits), np.array(fits)


def fit_boundary(sets: list[tuple[Numbers, Numbers]], rounds: int = 50) -> tuple[float, float]:
    """Returns scale and shift of the likeliest logistic model (Platt 1999), by Newton's method.

    Args:
        sets: Logits [n], each with a label of 0 or 1; every set has the same weight.
        rounds: Newton steps; ten are plenty.
    """
    logits = np.concatenate([part for part, _ in sets])
    fits = np.concatenate([part for _, part in sets])
    weights = np.concatenate([np.full(len(part), 1 / len(part)) for part, _ in sets])
    inputs = np.stack([logits, np.ones_like(logits)], axis=1)
    found = np.array([1.0, 0.0])
    right, wrong = logits[fits == 1], logits[fits == 0]
    if wrong.max() <= right.min() or right.max() <= wrong.min():
        raise SystemExit(
            "a logit separates all fitting candidates from all others, so no scale has the highest "
            "likelihood; give runs of more queries"
        )
    for _ in range(rounds):
        shares = 1 / (1 + np.exp(-inputs @ found))
        slope = inputs.T @ (weights * (fits - shares))
        bend = (inputs * (weights * shares * (1 - shares))[:, np.newaxis]).T @ inputs
        found += np.linalg.solve(bend, slope)
    return float(found[0]), float(found[1])


def main() -> None:
    """Reads the arguments, fits, and writes the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path, help="folder of the cross-encoder's weights")
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    parser.add_argument("runs", type=Path, nargs="+", help="stored runs with these weights")
    arguments = parser.parse_args()
    check_weights(arguments.weights)
    scale, shift = fit_boundary([read_logits(run) for run in arguments.runs])
    print(f"logit = {scale:.4f} * former logit + {shift:.4f}")
    weights = load_file(arguments.weights / "model.safetensors")
    weights["classifier.weight"] *= np.float32(scale)
    weights["classifier.bias"] = np.float32(scale) * weights["classifier.bias"] + np.float32(shift)
    arguments.output.mkdir(parents=True, exist_ok=True)
    save_file(weights, arguments.output / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        (arguments.output / name).write_bytes((arguments.weights / name).read_bytes())
    list_weights(arguments.output)


if __name__ == "__main__":
    main()
