"""Fitting when to rerank: the leads from which on stage 1 decides alone, and the floor.

A logistic model over all signals of stage 1 was tried in place of the two leads. On half of a set
that it was not fitted on it never skipped more at the same loss, so the leads stayed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from crossgate._calibration.answering import probabilities
from crossgate._calibration.outcomes import Array, Outcomes
from crossgate._calibration.weights import rounded
from crossgate._core import Confidence

STEPS = 24
"""How many leads are tried for each of agreement and disagreement."""
CAUTION = 0.5
"""Share of the allowed loss that a fit uses: what was chosen on data looks better there."""


@dataclass(frozen=True, slots=True)
class Skipping:
    """When stage 2 is not asked.

    Attributes:
        rerank_threshold: Below this probability by stage 1 nothing is relevant; None for none.
        agreed: The least lead of a winner on which cosine and BM25 agree; None for never.
        disagreed: The same where they disagree.
    """

    rerank_threshold: float | None
    agreed: float | None
    disagreed: float | None


def fit_skipping(
    found: Outcomes,
    confidence: Confidence,
    threshold: float,
    corpora: Sequence[str],
    loss: float,
) -> Skipping:
    """Return the bars that skip the most queries within a loss of recall@1 in every corpus.

    A quarter of the loss that may be used goes to the floor, the rest to the leads.

    Args:
        found: What the cascade saw.
        confidence: The models of both stages.
        threshold: The least probability of an answer.
        corpora: The corpus of each query.
        loss: The recall@1 that may be lost against reranking everything.
    """
    names = sorted(set(corpora))
    member = np.array([[name == corpus for corpus in corpora] for name in names])
    allowed = CAUTION * loss * (member & found.matched).sum(axis=1)
    stage1, stage2 = (
        np.ones(len(found)) if model is None else probabilities(found, model)
        for model in (confidence.stage1, confidence.stage2)
    )
    gained1 = found.stage1_right & (stage1 >= threshold)
    gained2 = found.stage2_right & (stage2 >= threshold)
    floor = min(
        threshold,
        *(
            _floor(stage1[gained2 & one], int(most / 4))
            for one, most in zip(member, allowed, strict=True)
        ),
    )
    floor = math.floor(floor * 1e6) / 1e6
    below = stage1 < floor
    agrees = found.column("agreement") > 0
    lead = found.stage1_lead
    clear = ~below & (stage1 >= threshold) & (lead > 0)
    worse = gained2.astype(int) - gained1
    spent = (member & below & gained2).sum(axis=1)
    best: tuple[int, int, float | None, float | None] = (0, 0, None, None)
    for agreed, disagreed in product(_leads(lead[agrees]), _leads(lead[~agrees])):
        # A winner on which the channels disagree never needs less of a lead.
        if _or_never(disagreed) < _or_never(agreed):
            continue
        skipped = clear & (lead >= np.where(agrees, _or_never(agreed), _or_never(disagreed)))
        lost = (member * (worse * skipped)).sum(axis=1)
        if np.all(lost + spent <= allowed):
            gain = (int(skipped.sum()), -int(lost.sum()), agreed, disagreed)
            best = max(best, gain, key=lambda one: one[:2])
    return Skipping(rerank_threshold=floor or None, agreed=best[2], disagreed=best[3])


def _floor(of_right: Array, lost: int) -> float:
    """Return the highest floor under which only so many of these probabilities lie."""
    return float(np.sort(of_right)[lost]) if lost < len(of_right) else 1.0


def _leads(leads: Array) -> list[float | None]:
    """Return the leads to try, and None to have none."""
    if not len(leads):
        return [None]
    tried = np.quantile(leads, np.linspace(0, 1, STEPS))
    return [None, *sorted({rounded(float(one)) for one in tried})]


def _or_never(lead: float | None) -> float:
    return np.inf if lead is None else lead
