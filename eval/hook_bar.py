"""Prints the prompt hook's right and wrong injections by its confidence threshold.

    python eval/hook_bar.py eval/skills eval/skills:conversation
    python eval/hook_bar.py eval/skills:conversation --over SKILLS

A hook injects one skill at most. The script measures both kinds of answers: that of stage 1 alone,
since the default budget leaves no more time in a new process, and that of the whole cascade.
`wrong` is the share of the prompts without a match for which a skill is injected, by kind if there
are several, `kept` the share of `route`'s right first picks that are injected, and `astray` the
share of wrong skills among those injected for prompts with a match. With `--over`, the prompts
without a match are routed over other documents, for which the other prompts have no labels.
"""

from __future__ import annotations

import argparse
from collections import Counter

from crossgate import Index, Router
from crossgate._agents.hook.options import MIN_CONFIDENCE
from crossgate.evaluation import LabelledQuery, read_dataset

BARS = sorted({0.0, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, MIN_CONFIDENCE})

Pick = tuple[float, bool, str]
"""The confidence of a first pick, whether it is right, and the kind of its prompt."""


def picks(router: Router, queries: list[LabelledQuery], budget: float | None) -> list[Pick]:
    """Return the first picks; a query without one has none."""
    found = []
    for query in queries:
        result = router.route(query.text, limit=1, budget_ms=budget)
        if result.selected:
            right = result.ids[0] in query.relevant
            found.append((result.confidence or 0.0, right, query.kind))
    return found


def main() -> None:
    """Measure the given datasets."""
    parser = argparse.ArgumentParser(description="Prints the hook's injections by its threshold.")
    parser.add_argument("dataset", nargs="+", help="FOLDER or FOLDER:SPLIT, in BEIR's layout")
    parser.add_argument("--over", help="a folder whose documents are routed over instead")
    options = parser.parse_args()
    for argument in options.dataset:
        folder, _, split = argument.partition(":")
        dataset = read_dataset(folder, split=split or None)
        matched = [query for query in dataset.queries if query.relevant and not options.over]
        others = [query for query in dataset.queries if not query.relevant]
        kinds = Counter(query.kind for query in others)
        print(f"{argument}: {len(matched)} prompts with a match, {len(others)} without")
        searched = read_dataset(options.over) if options.over else dataset
        router = Router(Index.build(searched.documents))
        routed = sum(right for _, right, _ in picks(router, matched, None))
        for name, budget in (("stage 1", 0.0), ("cascade", None)):
            asked, unasked = (picks(router, queries, budget) for queries in (matched, others))
            for bar in BARS:
                told = [right for sure, right, _ in asked if sure >= bar]
                wrong = Counter(kind for sure, _, kind in unasked if sure >= bar)
                cells = [f"wrong {wrong.total() / len(others):.3f} ({wrong.total()})"]
                if len(kinds) > 1:
                    cells += [f"{kind} {wrong[kind] / kinds[kind]:.3f}" for kind in sorted(kinds)]
                if told:
                    cells += [
                        f"kept {sum(told) / routed:.3f} of {routed}",
                        f"astray {1 - sum(told) / len(told):.3f} of {len(told)}",
                    ]
                mark = "  default" if bar == MIN_CONFIDENCE else ""
                print(f"  {name}  bar {bar:.2f}  {'  '.join(cells)}{mark}")


if __name__ == "__main__":
    main()
