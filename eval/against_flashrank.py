"""Compares `rerank` with FlashRank on the same model file: time per query and nDCG@10.

    python eval/against_flashrank.py SCIFACT --split test --limit 60 --words 200 300

Both libraries get the texts of the 20 documents that BM25 finds best, in turn.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import cast

from peers import flashrank

from crossgate import Index, rerank
from crossgate._evaluation.metrics import ndcg
from crossgate.evaluation import read_dataset

MODEL = Path(str(files("crossgate"))) / "_weights/crossgate-passages-minilm-l12"
CANDIDATES = 20


def main() -> None:
    """Prints the median time and the mean nDCG@10 of both."""
    parser = argparse.ArgumentParser(description="Compares rerank with FlashRank.")
    parser.add_argument("dataset", help="BEIR folder")
    parser.add_argument("--split")
    parser.add_argument("--limit", type=int, default=60, help="maximum number of queries")
    parser.add_argument(
        "--words", type=int, nargs=2, default=(0, 10**6), help="words of a document, from and to"
    )
    options = parser.parse_args()
    least, most = options.words
    dataset = read_dataset(options.dataset, split=options.split)
    documents = {
        document.id: document
        for document in dataset.documents
        if least <= len(document.content.split()) <= most
    }
    index = Index.build(documents.values(), embedder=None)
    queries = [
        query
        for query in dataset.queries
        if query.relevant and query.relevant.keys() <= documents.keys()
    ][: options.limit]

    with tempfile.TemporaryDirectory() as folder:
        peer = flashrank(MODEL, Path(folder))

        def by_crossgate(query: str, texts: Sequence[str]) -> list[str]:
            return [texts[hit.index] for hit in rerank(query, texts).hits if hit.index is not None]

        def by_flashrank(query: str, texts: Sequence[str]) -> list[str]:
            return [passage["text"] for passage in cast("list[dict[str, str]]", peer(query, texts))]

        libraries: dict[str, Callable[[str, Sequence[str]], list[str]]]
        libraries = {"crossgate": by_crossgate, "flashrank": by_flashrank}
        seconds: dict[str, list[float]] = {name: [] for name in libraries}
        gains: dict[str, list[float]] = {name: [] for name in libraries}
        for query in queries:
            found = index.search(query.text, limit=CANDIDATES).candidates
            ids = {documents[candidate.id].content: candidate.id for candidate in found}
            for name, order in libraries.items():
                start = perf_counter()
                ranked = order(query.text, list(ids))
                seconds[name].append(perf_counter() - start)
                gains[name].append(ndcg([ids[text] for text in ranked], query.relevant, 10))
    print(f"{len(queries)} queries, {len(documents)} documents")
    for name in libraries:
        time, gain = 1000 * median(seconds[name]), mean(gains[name])
        print(f"  {name:<12}{time:>6.0f} ms  nDCG@10 {gain:.3f}")


if __name__ == "__main__":
    main()
