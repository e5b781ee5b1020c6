"""Prints recall@5 of the fused order by its constant, without and with temporal decay.

python eval/fusion_constant.py eval/memory eval/chunks
"""

from __future__ import annotations

import sys
from statistics import mean

from crossgate import Index
from crossgate._evaluation.metrics import recall
from crossgate._pipelines.hits import decay, time_of
from crossgate._pipelines.recipes import from_index, fused
from crossgate.evaluation import read_dataset

PER_STORE = 20


def main() -> None:
    """Measure the given folders."""
    for folder in sys.argv[1:]:
        dataset = read_dataset(folder)
        now = max(time for document in dataset.documents if (time := time_of(document)) is not None)
        retrieve = from_index(Index.build(dataset.documents))
        queries = [query for query in dataset.queries if query.relevant]
        found = [retrieve(query.text, PER_STORE) for query in queries]
        for k_param in (2.0, 10.0, 60.0):
            orders = [fused(stores, k_param=k_param) for stores in found]
            aged = [decay(hits, now=now) for hits in orders]
            shown = [
                mean(
                    recall([hit.id for hit in hits], query.relevant, 5)
                    for hits, query in zip(some, queries, strict=True)
                )
                for some in (orders, aged)
            ]
            print(f"{dataset.name}  k {k_param:g}  fused {shown[0]:.3f}  aged {shown[1]:.3f}")


if __name__ == "__main__":
    main()
