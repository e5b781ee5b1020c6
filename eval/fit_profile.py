"""Fits the default profile from runs that routing.py stored.

python eval/routing.py DATASET --split train --limit 600 -o train.jsonl
python eval/fit_profile.py train.jsonl -o python/crossgate/profiles/default.json
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from crossgate import models
from crossgate.embedding import DEFAULT_EMBEDDER
from crossgate.profile import Blend, Combine, Gate, Guardrails, Pool, Profile

Array = NDArray[np.float64]

# Recall that the gate may lose against reranking everything, as a share of the queries with a
# match; half of it where cosine and BM25 agree, half where they do not.
RECALL_LOSS = 0.005
# What the gate calls confident is right at least this often, where something fits.
CONFIDENT = 0.8
# Recall that a blend may lose against the best one.
BLEND_LOSS = 0.01
# Recall that a smaller pool may lose against one of 20.
POOL_LOSS = 0.002
# Share of the queries with a match that the relevance bar, and then the least score, may lose.
REJECTED = 0.02
# A second pick must be right at least this often to be worth its place.
SECOND_PICK = 0.2


@dataclass(frozen=True)
class Run:
    """The stored scores of one query, one row per candidate."""

    cosine: Array
    bm25: Array
    logit: Array
    right: NDArray[np.bool_]


def read(path: Path) -> list[Run]:
    """Read stored runs."""
    runs = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        logits = {id: logit for id, logit, _ in row["trace"]["stage2"]}
        stage1 = [one for one in row["trace"]["stage1"] if one[0] in logits]
        gold = set(row["gold"])
        runs.append(
            Run(
                cosine=np.array([one[1] for one in stage1]),
                bm25=np.array([one[2] for one in stage1]),
                logit=np.array([logits[one[0]] for one in stage1]),
                right=np.array([one[0] in gold for one in stage1]),
            )
        )
    return runs


def fit_blend(runs: Sequence[Run]) -> Blend:
    """Return the blend with the largest cosine weight that costs at most a point of recall@1.

    Words carry skill prompts further than short requests, on which cosine does better; where the
    data hardly cares, the weight goes to where other corpora want it.
    """
    choices = [
        Blend(cosine_weight=weight / 20, bm25_weight=1 - weight / 20, bm25_half=half)
        for weight in range(4, 18)
        for half in (4.0, 6.0, 8.0, 12.0, 16.0)
    ]
    recalls = [_right_first(runs, blend) for blend in choices]
    good = [
        (blend.cosine_weight, recall, -blend.bm25_half, blend)
        for blend, recall in zip(choices, recalls, strict=True)
        if recall >= max(recalls) - BLEND_LOSS
    ]
    return max(good, key=lambda one: one[:3])[3]


def fit_combine(runs: Sequence[Run], blend: Blend) -> Combine:
    """Return the weights with the largest likelihood of a right candidate among all (listwise)."""
    lists = [(_features(run, blend), run.right) for run in runs]

    def loss(weights: Array) -> float:
        total = 0.0
        for features, right in lists:
            scores = features @ weights
            peak = scores.max()
            everything = peak + math.log(np.exp(scores - peak).sum())
            total += everything - np.mean(scores[right])
        # A little ridge keeps weights finite where one feature separates everything.
        return total / len(lists) + 1e-4 * float(weights @ weights)

    cosine, bm25, logit = minimize(loss, np.ones(3)).x
    return Combine(mode="weighted", cosine=_round(cosine), bm25=_round(bm25), logit=_round(logit))


def fit_pool(runs: Sequence[Run], blend: Blend, combine: Combine) -> Pool:
    """Return the smallest pool that finds as much as the largest, but for a little."""
    weights = np.array([combine.cosine, combine.bm25, combine.logit])

    def right_first(size: int) -> float:
        found = []
        for run in runs:
            pool = np.argsort(-_blend(run, blend), kind="stable")[:size]
            found.append(run.right[pool[np.argmax((_features(run, blend) @ weights)[pool])]])
        return float(np.mean(found))

    sizes = (4, 6, 8, 10, 12, 16, 20)
    enough = right_first(sizes[-1]) - POOL_LOSS
    return Pool(rerank_top_k=next(size for size in sizes if right_first(size) >= enough))


def fit_gate(matched: Sequence[Run], empty: Sequence[Run], blend: Blend, combine: Combine) -> Gate:
    """Return the thresholds: a bar for relevance, and the least margins that lose little recall."""
    weights = np.array([combine.cosine, combine.bm25, combine.logit])
    groups: dict[bool, list[tuple[float, int, int]]] = {True: [], False: []}
    for run in matched:
        scores = _blend(run, blend)
        first, second = np.sort(scores)[::-1][:2]
        right = int(run.right[np.argmax(scores)])
        lost = int(run.right[np.argmax(_features(run, blend) @ weights)]) - right
        agreed = bool(np.argmax(run.cosine) == np.argmax(run.bm25))
        groups[agreed].append((float(first - second), right, lost))
    allowed = RECALL_LOSS / 2 * len(matched)
    # Words alone make something relevant where they do so for few queries that nothing fits.
    words = np.quantile([run.bm25.max() for run in empty or matched], 0.95)
    return Gate(
        relevance_cosine=_round(np.quantile([run.cosine.max() for run in matched], REJECTED)),
        relevance_bm25=_round(words),
        agreed_margin=_least_margin(groups[True], allowed),
        disagreed_margin=_least_margin(groups[False], allowed),
    )


def fit_guardrails(matched: Sequence[Run], scores: Sequence[Array], minimum: bool) -> Guardrails:
    """Return the bars on scores: the least that a right answer has, and the lead it may lack."""
    best = [float(one[run.right].max()) for run, one in zip(matched, scores, strict=True)]
    pairs = []
    for run, one in zip(matched, scores, strict=True):
        first, second = np.argsort(-one, kind="stable")[:2]
        pairs.append((float(one[first] - one[second]), bool(run.right[second])))
    pairs.sort()
    right = np.cumsum([good for _, good in pairs]) / np.arange(1, len(pairs) + 1)
    enough = np.flatnonzero(right >= SECOND_PICK)
    margin = pairs[enough[-1]][0] if len(enough) else 0.0
    return Guardrails(
        minimum=_round(np.quantile(best, REJECTED)) if minimum else None, margin=_round(margin)
    )


def main() -> None:
    """Fit and write the profile."""
    parser = argparse.ArgumentParser(description="Fits the default profile from stored runs.")
    parser.add_argument("runs", type=Path, help="JSON lines that routing.py wrote")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--data", default="skill-triggers dev, half 0", help="what the runs are of")
    options = parser.parse_args()
    runs = read(options.runs)
    matched = [run for run in runs if run.right.any()]
    empty = [run for run in runs if not run.right.any()]
    blend = fit_blend(matched)
    combine = fit_combine(matched, blend)
    weights = np.array([combine.cosine, combine.bm25, combine.logit])
    combined = [_features(run, blend) @ weights for run in matched]
    fitted: dict[str, Any] = {
        "data": options.data,
        "queries": len(matched),
        "queries_without_match": len(empty),
        "confident": CONFIDENT,
        "recall_loss": RECALL_LOSS,
        "rejected": REJECTED,
        "command": "python eval/fit_profile.py",
    }
    profile = Profile(
        name="default",
        embedder=models.identity(DEFAULT_EMBEDDER),
        reranker=models.identity(models.ROUTING_RERANKER),
        blend=blend,
        gate=fit_gate(matched, empty, blend, combine),
        pool=fit_pool(matched, blend, combine),
        combine=combine,
        stage1_guardrails=fit_guardrails(matched, [_blend(run, blend) for run in matched], False),
        stage2_guardrails=fit_guardrails(matched, combined, True),
        fitted=fitted,
    )
    options.output.write_text(json.dumps(profile.to_dict(), indent=2) + "\n")


def _blend(run: Run, blend: Blend) -> Array:
    bounded = run.bm25 / (run.bm25 + blend.bm25_half)
    return blend.cosine_weight * run.cosine + blend.bm25_weight * bounded


def _features(run: Run, blend: Blend) -> Array:
    return np.stack([run.cosine, run.bm25 / (run.bm25 + blend.bm25_half), run.logit], axis=1)


def _right_first(runs: Sequence[Run], blend: Blend) -> float:
    return float(np.mean([run.right[np.argmax(_blend(run, blend))] for run in runs]))


def _least_margin(group: Sequence[tuple[float, int, int]], allowed: float) -> float | None:
    """Return the smallest margin from which on stage 1 is right often and loses little."""
    ranked = sorted(group, reverse=True)
    margins, right, lost = (np.array(column) for column in zip(*ranked, strict=True))
    often = np.cumsum(right) / np.arange(1, len(ranked) + 1) >= CONFIDENT
    good = np.flatnonzero(often & (np.cumsum(lost) <= allowed))
    return _round(max(margins[good[-1]], 1e-4)) if len(good) else None


def _round(value: float) -> float:
    return round(float(value), 4)


if __name__ == "__main__":
    main()
