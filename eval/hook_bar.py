"""Prints what the prompt hook injects by its least confidence: rightly, and where nothing fits.

    python eval/hook_bar.py eval/skills eval/skills:conversation

A hook injects one skill at most. Measured are the two answers that it can come to: stage 1 alone,
which is all that the default budget leaves time for in a new process, and the whole cascade.
`wrong` is the share of the prompts without a match for which something is injected, `kept` the
share of `route`'s right first picks that are still injected.
"""

from __future__ import annotations

import sys

from crossgate import Index, Router
from crossgate._hook.options import MIN_CONFIDENCE
from crossgate.evaluation import LabelledQuery, read_dataset

BARS = (0.0, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)


def picks(router: Router, queries: list[LabelledQuery], budget: float | None) -> list[float]:
    """Return the confidence of each query's first pick; -1 where there is none."""
    found = []
    for query in queries:
        result = router.route(query.text, limit=1, budget_ms=budget)
        sure = -1.0 if not result.selected else result.confidence or 0.0
        right = bool(result.selected) and result.ids[0] in query.relevant
        found.append(sure if right or not query.relevant else -1.0)
    return found


def main() -> None:
    """Measure the datasets that are named, `FOLDER` or `FOLDER:SPLIT`."""
    for argument in sys.argv[1:]:
        folder, _, split = argument.partition(":")
        dataset = read_dataset(folder, split=split or None)
        router = Router(Index.build(dataset.documents))
        matched = [one for one in dataset.queries if one.relevant]
        others = [one for one in dataset.queries if not one.relevant]
        print(f"{argument}: {len(matched)} prompts with a match, {len(others)} without")
        for name, budget in (("stage 1", 0.0), ("cascade", None)):
            right, wrong = (picks(router, queries, budget) for queries in (matched, others))
            routed = sum(one >= 0 for one in right)
            for bar in sorted({*BARS, MIN_CONFIDENCE}):
                kept = sum(one >= bar for one in right)
                injected = sum(one >= bar for one in wrong)
                mark = "  default" if bar == MIN_CONFIDENCE else ""
                print(
                    f"  {name}  bar {bar:.2f}  wrong {injected / len(others):.3f} ({injected})  "
                    f"kept {kept / routed:.3f} of {routed}{mark}"
                )


if __name__ == "__main__":
    main()
