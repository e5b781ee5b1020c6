"""Prints how decisions change with the size of the library.

    python eval/library_size.py WITH_BODIES/skill-triggers --split dev
    python eval/library_size.py eval/skills

Draws libraries of several sizes from the documents of a dataset. In each of them it routes the
prompts whose document is in the library and the prompts for which it holds nothing, because their
document was left out or because they fit no document at all. `first` is the share of the former
whose document is first, `selected` the share for which it is selected, `false positives` the share
of the latter that get a pick, and `any fits` the mean probability that any document fits, for both.
"""

from __future__ import annotations

import argparse
import random

from crossgate import Index, Router
from crossgate.evaluation import LabelledQuery, read_dataset


def main() -> None:
    """Measure the given dataset."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--split")
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 40, 100, 300])
    parser.add_argument("--draws", type=int, default=3, help="libraries of each size")
    parser.add_argument("--prompts", type=int, default=60, help="most prompts of each kind")
    options = parser.parse_args()
    dataset = read_dataset(options.folder, split=options.split)
    prompts = [query for query in dataset.queries if not query.mentions_name]
    chance = random.Random(0)
    for size in sorted(size for size in options.sizes if size <= len(dataset.documents)):
        fitting: list[tuple[bool, bool, float]] = []
        other: list[tuple[bool, float]] = []
        for _ in range(options.draws):
            documents = chance.sample(list(dataset.documents), size)
            router = Router(Index.build(documents))
            ids = {document.id for document in documents}
            inside = [query for query in prompts if ids.intersection(query.relevant)]
            outside = [query for query in prompts if not ids.intersection(query.relevant)]
            for query in _some(inside, options.prompts, chance):
                result = router.route(query.text, limit=1)
                first = bool(result.hits) and result.hits[0].id in query.relevant
                picked = bool(set(result.ids).intersection(query.relevant))
                fitting.append((first, picked, result.any_fits or 0.0))
            for query in _some(outside, options.prompts, chance):
                result = router.route(query.text, limit=1)
                other.append((bool(result.ids), result.any_fits or 0.0))
        print(
            f"{size:5} documents  {len(fitting):4} prompts that fit  "
            f"first {_mean([row[0] for row in fitting]):.3f}  "
            f"selected {_mean([row[1] for row in fitting]):.3f}  "
            f"any fits {_mean([row[2] for row in fitting]):.2f}   "
            f"{len(other):4} others  false positives {_mean([row[0] for row in other]):.3f}  "
            f"any fits {_mean([row[1] for row in other]):.2f}",
            flush=True,
        )


def _some(queries: list[LabelledQuery], most: int, chance: random.Random) -> list[LabelledQuery]:
    return chance.sample(queries, min(most, len(queries)))


def _mean(values: list[bool] | list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


if __name__ == "__main__":
    main()
