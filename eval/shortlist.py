"""Prints how often the right tools are on the list that `ToolRouter` sends.

    python eval/shortlist.py eval/tools
    python eval/shortlist.py --sample 300 BFCL TOOLBENCH SEAL-TOOLS

`nearest` is the share of the prompts with a match that have one of their tools among the `limit`
nearest. With a threshold on the probability that any fits, `none` is the share of the prompts
without a match that get no tools. With a coverage, `tools` is the mean number of tools sent, at
most 20, `any right` and `all right` the shares of the prompts whose list has one or all of their
tools, and `characters` the mean length of the definitions sent. The last rows give the same for
prompts that come with a list of tools of their own, chosen from that list.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from crossgate import Index, Router
from crossgate._decision.orderings import nearest
from crossgate._evaluation.labels import LabelledQuery
from crossgate.evaluation import Dataset, read_dataset

LIMITS = (1, 3, 5, 8, 12, 16)
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.5)
DEFAULT = 8
COVERAGES = (0.8, 0.9, 0.95)
MOST = 20


def given_datasets() -> Iterator[tuple[str, Dataset]]:
    """Yield the folders that the command names, with their datasets."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--sample", type=int, help="maximum number of prompts of each dataset")
    options = parser.parse_args()
    for folder in options.folders:
        yield folder, read_dataset(folder, limit=options.sample)


def main() -> None:
    """Measure the given datasets."""
    for folder, dataset in given_datasets():
        router = Router(Index.build(dataset.documents))
        matched = [query for query in dataset.queries if query.relevant]
        others = [query for query in dataset.queries if not query.relevant]
        print(
            f"{folder}: {len(matched)} prompts with a match, {len(others)} without, "
            f"{len(dataset.documents)} tools",
            flush=True,
        )
        print_nearest(router, matched, others)
        print_covered(router, matched, own_list=False)
        listed = [query for query in matched if len(query.candidates or ()) > 1]
        if listed:
            sizes = [len(query.candidates or ()) for query in listed]
            print(f"  {len(listed)} prompts with lists of {sum(sizes) / len(sizes):.1f} tools:")
            print_covered(router, listed, own_list=True)


def print_nearest(
    router: Router, matched: Sequence[LabelledQuery], others: Sequence[LabelledQuery]
) -> None:
    """Print how often a right tool is among the nearest, and how often none are sent."""
    results = [(query, router.route(query.text)) for query in matched]
    apart = [router.route(query.text) for query in others]
    cases = [(limit, None) for limit in LIMITS] + [(DEFAULT, least) for least in THRESHOLDS]
    for limit, least in cases:
        near = sum(
            any(hit.id in query.relevant for hit in nearest(result, limit, least))
            for query, result in results
        )
        row = f"  limit {limit:2}  nearest {near / len(matched):.3f}"
        if least is not None:
            row += f"  threshold {least:.2f}"
            none = sum(not nearest(result, limit, least) for result in apart)
            row += f"  none {none / len(apart):.3f}" if apart else ""
        print(row, flush=True)


def print_covered(router: Router, matched: Sequence[LabelledQuery], *, own_list: bool) -> None:
    """Print the size of lists that promise a coverage, and how often they hold the right tools."""
    for coverage in COVERAGES:
        sent = any_right = all_right = characters = 0
        for query in matched:
            allow = query.candidates if own_list else None
            result = router.route(
                query.text, limit=MOST, allow=allow, coverage=coverage, max_shortlist=MOST
            )
            ids, right = {hit.id for hit in result.shortlist}, set(query.relevant)
            sent += len(ids)
            any_right += bool(ids & right)
            all_right += ids >= right
            characters += sum(len(hit.document.content) for hit in result.shortlist)
        count = len(matched)
        print(
            f"  coverage {coverage:.2f}  tools {sent / count:.2f}  any right "
            f"{any_right / count:.3f}  all right {all_right / count:.3f}  "
            f"characters {characters / count:.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
