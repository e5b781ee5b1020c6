"""Compares a hubness-corrected similarity with the cosine as a signal of a match.

    python eval/hubness.py eval/skills eval/chunks

CSLS: twice the cosine, less the mean cosine of the query to its ten nearest documents and of the
document to its ten nearest; Conneau et al., "Word Translation Without Parallel Data", 2018. The
output is the area under the ROC curve of the best value for queries with a match against no-match
queries, and for queries whose nearest document fits against all others.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from crossgate import Index
from crossgate._evaluation.statistics import Interval, area_interval
from crossgate.evaluation import Dataset, read_dataset

NEIGHBOURS = 10

Array = NDArray[np.float32]


def measure(dataset: Dataset) -> dict[str, tuple[Interval | None, Interval | None]]:
    """Return both areas for cosine and CSLS."""
    index = Index.build(dataset.documents)
    documents = np.array([index._core.vector(id) for id in index.ids], dtype=np.float32)
    queries = np.array(
        index.load_embedder().embed([query.text for query in dataset.queries]), dtype=np.float32
    )
    among = documents @ documents.T
    np.fill_diagonal(among, -np.inf)
    cosine = queries @ documents.T
    csls = 2 * cosine - _nearest(cosine)[:, None] - _nearest(among)[None, :]
    matched = np.array([bool(query.relevant) for query in dataset.queries])
    found = {}
    for name, scores in (("cosine", cosine), ("CSLS", csls)):
        right = np.array(
            [
                index.ids[place] in query.relevant
                for place, query in zip(scores.argmax(axis=1), dataset.queries, strict=True)
            ]
        )
        best = scores.max(axis=1)
        found[name] = (area_interval(best, matched, seed=0), area_interval(best, right, seed=0))
    return found


def _nearest(similarities: Array) -> Array:
    """Return the mean of the largest similarities of each row."""
    kept = min(NEIGHBOURS, similarities.shape[1] - 1)
    nearest: Array = np.sort(similarities, axis=1)[:, -kept:].mean(axis=1)
    return nearest


def main() -> None:
    """Print one line per dataset and similarity."""
    parser = argparse.ArgumentParser(description="Compares cosine and CSLS.")
    parser.add_argument("dataset", nargs="+", help="BEIR folder or .jsonl file")
    parser.add_argument("--split")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    print(f"{'':<32}{'anything fits?':<24}is the first right?")
    for path in options.dataset:
        dataset = read_dataset(path, split=options.split, limit=options.limit)
        for name, areas in measure(dataset).items():
            cells = [
                "-" if area is None else f"{area.value:.3f} [{area.low:.3f}, {area.high:.3f}]"
                for area in areas
            ]
            print(f"{dataset.name + ', ' + name:<32}{cells[0]:<24}{cells[1]}")


if __name__ == "__main__":
    main()
