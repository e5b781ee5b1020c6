"""Prints how often the right tool is on the shortlist of `ToolRouter`.

    python eval/shortlist.py eval/tools

`on it` is the share of the prompts with a match whose tool is among the `limit` nearest, `route`
the share of those for which `route` selects it with the same limit. With a confidence threshold,
`none` is the share of the prompts without a match that get no tools.
"""

from __future__ import annotations

import sys

from crossgate import Index, Router
from crossgate._decision.orderings import nearest
from crossgate.evaluation import read_dataset

LIMITS = (1, 3, 5, 8, 12, 16)
BARS = (0.05, 0.1, 0.2, 0.3, 0.5)
DEFAULT = 8


def main() -> None:
    """Measure the given datasets."""
    for folder in sys.argv[1:]:
        dataset = read_dataset(folder)
        router = Router(Index.build(dataset.documents))
        matched = [query for query in dataset.queries if query.relevant]
        others = [query for query in dataset.queries if not query.relevant]
        print(f"{folder}: {len(matched)} prompts with a match, {len(others)} without")
        for limit in LIMITS:
            results = [(query, router.route(query.text, limit=limit)) for query in matched]
            near = sum(
                any(hit.id in query.relevant for hit in nearest(result, limit, None))
                for query, result in results
            )
            routed = sum(
                any(id in query.relevant for id in result.ids) for query, result in results
            )
            print(
                f"  limit {limit:2}  on it {near / len(matched):.3f}  "
                f"route {routed / len(matched):.3f}"
            )
        for bar in BARS:
            near = sum(
                any(
                    hit.id in query.relevant
                    for hit in nearest(router.route(query.text), DEFAULT, bar)
                )
                for query in matched
            )
            none = sum(not nearest(router.route(query.text), DEFAULT, bar) for query in others)
            print(
                f"  limit {DEFAULT}, least confidence {bar:.2f}  on it {near / len(matched):.3f}  "
                f"none {none / len(others):.3f}"
            )


if __name__ == "__main__":
    main()
