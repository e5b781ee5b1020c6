"""Fits when to rerank: the leads at which stage 1 decides alone, and the threshold of stage 1.

A logistic model over all signals of stage 1 was tried instead of the two leads. On held-out halves
it never skipped more at the same loss, so the leads stayed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from crossgate._calibration.fitted_outcomes import Array, Flags, Outcomes
from crossgate._calibration.weights import rounded

STEPS = 24
"""How many leads are tried, for agreement and disagreement each."""
CAUTION = 0.5
"""Share of the allowed loss that a fit uses: a choice looks better on the data it was made on."""


@dataclass(frozen=True, slots=True)
class Skipping:
    """When stage 2 is not asked.

    Attributes:
        rerank_threshold: Below this probability after stage 1 that any candidate fits, nothing is
            relevant; None for no limit.
        agreed: The least lead of a winner on which cosine and BM25 agree; None for never.
        disagreed: The same if they disagree.
    """

    rerank_threshold: float | None
    agreed: float | None
    disagreed: float | None


def fit_skipping(
    seen: Outcomes,
    any_fits: Array,
    answered: tuple[Flags, Flags],
    threshold: float,
    corpora: Sequence[str],
    loss: float,
) -> Skipping:
    """Return the thresholds that skip the most queries within a loss of recall@1 in every corpus.

    A quarter of the loss that may be used goes to `rerank_threshold`, the rest to the leads. What
    the leads lose is counted both with and without the threshold, since many users ask for the
    best hit however weak: queries of weak answers are where stage 2 gains most.

    Args:
        seen: The outcomes of the queries.
        any_fits: The probability after stage 1 that any candidate fits.
        answered: Whether the answer of each stage reaches the thresholds.
        threshold: The least probability that any candidate fits of an answer.
        corpora: The corpus of each query.
        loss: The recall@1 that may be lost compared with reranking everything.
    """
    names = sorted(set(corpora))
    member = np.array([[name == corpus for corpus in corpora] for name in names])
    allowed = CAUTION * loss * (member & seen.matched).sum(axis=1)
    gained1 = seen.stage1_right & answered[0]
    gained2 = seen.stage2_right & answered[1]
    least = min(
        threshold,
        *(
            _least(any_fits[gained2 & of_corpus], int(most / 4))
            for of_corpus, most in zip(member, allowed, strict=True)
        ),
    )
    least = math.floor(least * 1e6) / 1e6
    below = any_fits < least
    agrees = seen.agreement
    lead = seen.stage1_margin
    clear = ~below & answered[0]
    worse = gained2.astype(int) - gained1
    worse_in_order = seen.stage2_right.astype(int) - seen.stage1_right
    spent = (member & below & gained2).sum(axis=1)
    best: tuple[int, int, float | None, float | None] = (0, 0, None, None)
    for agreed, disagreed in product(_leads(lead[agrees]), _leads(lead[~agrees])):
        # A winner on which the channels disagree never needs a smaller lead.
        if _or_never(disagreed) < _or_never(agreed):
            continue
        leads = (lead > 0) & (lead >= np.where(agrees, _or_never(agreed), _or_never(disagreed)))
        skipped = clear & leads
        lost = member @ (worse * skipped)
        lost_in_order = member @ (worse_in_order * leads)
        if np.all(lost + spent <= allowed) and np.all(lost_in_order <= allowed):
            gain = (int(skipped.sum()), -int(lost.sum()), agreed, disagreed)
            best = max(best, gain, key=lambda tried: tried[:2])
    return Skipping(rerank_threshold=least or None, agreed=best[2], disagreed=best[3])


def _least(of_right: Array, lost: int) -> float:
    """Return the highest threshold with at most `lost` of these probabilities below it."""
    return float(np.sort(of_right)[lost]) if lost < len(of_right) else 1.0


def _leads(leads: Array) -> list[float | None]:
    """Return the leads to try, with None for no winner."""
    if not len(leads):
        return [None]
    tried = np.quantile(leads, np.linspace(0, 1, STEPS))
    return [None, *sorted({rounded(float(lead)) for lead in tried})]


def _or_never(lead: float | None) -> float:
    return np.inf if lead is None else lead
