"""Prints how often the right tool is on the shortlist of `ToolRouter`.

    python eval/shortlist.py eval/tools

`on it` is the share of the prompts with a match whose tool is among the `limit` nearest, `route`
the share of those for which `route` selects it with the same limit. With a threshold on the
probability that any fits, `none` is the share of the prompts without a match that get no tools.
With a coverage, `tools` is the mean number of tools on the shortlist, at most 20, `any right` and
`all right` the shares of the prompts whose shortlist has one or all of their tools, and
`characters` the mean length of the listed descriptions.
"""

from __future__ import annotations

import sys

from crossgate import Index, Router
from crossgate._decision.orderings import nearest
from crossgate.evaluation import read_dataset

LIMITS = (1, 3, 5, 8, 12, 16)
BARS = (0.05, 0.1, 0.2, 0.3, 0.5)
DEFAULT = 8
COVERAGES = (0.8, 0.9, 0.95)
MOST = 20


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
                f"  limit {DEFAULT}, least probability {bar:.2f}  on it {near / len(matched):.3f}  "
                + (f"none {none / len(others):.3f}" if others else "")
            )
        for coverage in COVERAGES:
            lists = [
                router.route(query.text, limit=MOST, coverage=coverage, max_shortlist=MOST)
                for query in matched
            ]
            listed = [{hit.id for hit in result.shortlist} for result in lists]
            right = [set(query.relevant) for query in matched]
            any_right = sum(bool(ids & fits) for ids, fits in zip(listed, right, strict=True))
            all_right = sum(ids >= fits for ids, fits in zip(listed, right, strict=True))
            sent = sum(map(len, listed)) / len(matched)
            characters = sum(
                len(hit.document.content) for result in lists for hit in result.shortlist
            )
            print(
                f"  coverage {coverage:.2f}  tools {sent:.2f}  any right "
                f"{any_right / len(matched):.3f}  all right {all_right / len(matched):.3f}  "
                f"characters {characters / len(matched):.0f}"
            )


if __name__ == "__main__":
    main()
