"""Prints what the prompt hook injects by its least confidence: rightly, and where nothing fits.

    python eval/hook_bar.py eval/skills eval/skills:conversation

A hook injects one skill at most. Measured are the two answers that it can come to: stage 1 alone,
which is all that the default budget leaves time for in a new process, and the whole cascade.
`wrong` is the share of the prompts without a match for which something is injected, `kept` the
share of `route`'s right first picks that are injected, and `astray` the share of what is injected
for prompts with a match that is another skill.
"""

from __future__ import annotations

import sys

from crossgate import Index, Router
from crossgate._hook.options import MIN_CONFIDENCE
from crossgate.evaluation import LabelledQuery, read_dataset

BARS = (0.0, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)

Pick = tuple[float, bool]
"""The confidence of a first pick, and whether it is right."""


def picks(router: Router, queries: list[LabelledQuery], budget: float | None) -> list[Pick]:
    """Return the first picks; a query without one has none."""
    found = []
    for query in queries:
        result = router.route(query.text, limit=1, budget_ms=budget)
        if result.selected:
            found.append((result.confidence or 0.0, result.ids[0] in query.relevant))
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
        routed = sum(right for _, right in picks(router, matched, None))
        for name, budget in (("stage 1", 0.0), ("cascade", None)):
            asked, unasked = (picks(router, queries, budget) for queries in (matched, others))
            for bar in sorted({*BARS, MIN_CONFIDENCE}):
                told = [right for sure, right in asked if sure >= bar]
                wrong = sum(sure >= bar for sure, _ in unasked)
                mark = "  default" if bar == MIN_CONFIDENCE else ""
                print(
                    f"  {name}  bar {bar:.2f}  wrong {wrong / len(others):.3f} ({wrong})  "
                    f"kept {sum(told) / routed:.3f} of {routed}  "
                    f"astray {1 - sum(told) / len(told):.3f} of {len(told)}{mark}"
                )


if __name__ == "__main__":
    main()
