"""Signs that a result is worth less than it looks, read off its scores."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import pstdev

from crossgate import _core
from crossgate._profile import Health
from crossgate._types import ResultWarning

_LEAST_LOGITS = 3
"""Two logits say nothing about how scores are spread."""


def examine(
    scored: Sequence[_core.Scored], logits: Collection[float], health: Health
) -> tuple[ResultWarning, ...]:
    """Return what the thresholds of a profile call suspicious; nothing where they are None.

    Args:
        scored: The candidates of stage 1.
        logits: The logits of the pairs that stage 2 read; empty where it read none.
        health: The thresholds.
    """
    warnings = []
    if health.flat_logits is not None and len(logits) >= _LEAST_LOGITS:
        spread = pstdev(logits)
        if spread < health.flat_logits:
            warnings.append(
                ResultWarning(
                    code="flat_scores",
                    detail=f"the {len(logits)} logits deviate by {spread:.3g} from their mean, "
                    f"less than {health.flat_logits:g}: it may be that none of the candidates fits",
                )
            )
    weak = []
    cosines = [one.cosine for one in scored if one.cosine is not None]
    if health.weak_cosine is not None and cosines and max(cosines) < health.weak_cosine:
        weak.append(f"the best cosine is {max(cosines):.3g}, below {health.weak_cosine:g}")
    if health.weak_logit is not None and logits and max(logits) < health.weak_logit:
        weak.append(f"the best logit is {max(logits):.3g}, below {health.weak_logit:g}")
    if weak:
        warnings.append(
            ResultWarning(
                code="weak_retrieval",
                detail=f"{' and '.join(weak)}: the retriever may have missed what fits, and "
                "reranking cannot bring it back; search wider, or measure its recall",
            )
        )
    return tuple(warnings)
