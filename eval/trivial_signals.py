"""Prints how well single signals separate questions with an answer from those without.

    crossgate eval eval/chunks --modes always --runs runs
    python eval/trivial_signals.py eval/chunks runs/chunks-test.run.jsonl

The output is the area under the ROC curve, with its 95 % interval, of the best BM25 score, the best
cosine, the cross-encoder's best logit, and the covered idf: the largest share of the question's
inverse document frequencies whose words are in a single document. Words are runs of letters and
digits in lower case without a final "ing", "ed", "es" or "s". 0.5 is chance; below 0.5, questions
without an answer have the higher values.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crossgate._evaluation.statistics import area_interval
from crossgate.evaluation import Dataset, StoredQuery, read_dataset, read_run

ENDING = re.compile(r"(ing|ed|es|s)$")


def words(text: str) -> frozenset[str]:
    """Return the words of a text without their endings."""
    return frozenset(ENDING.sub("", word) for word in re.findall(r"[^\W_]+", text.lower()))


def covered(dataset: Dataset) -> dict[str, float]:
    """Return for each question the share of its idf that the best document covers."""
    documents = [words(f"{document.title} {document.text}") for document in dataset.documents]
    frequency = Counter(word for document in documents for word in document)

    def idf(word: str) -> float:
        count = frequency[word]
        return math.log(1 + (len(documents) - count + 0.5) / (count + 0.5))

    shares = {}
    for query in dataset.queries:
        asked = words(query.text)
        total = sum(map(idf, asked)) or 1.0
        shares[query.id] = max(sum(map(idf, asked & document)) for document in documents) / total
    return shares


def signals(queries: Sequence[StoredQuery], shares: dict[str, float]) -> dict[str, list[float]]:
    """Return the values of each signal, one per question."""
    best = [query.signals or {} for query in queries]
    return {
        "bm25": [row.get("bm25") or 0.0 for row in best],
        "cosine": [row.get("cosine") or 0.0 for row in best],
        "logit": [
            max((pair.score for pair in query.pairs.values()), default=-math.inf)
            for query in queries
        ],
        "covered idf": [shares[query.id] for query in queries],
    }


def main() -> None:
    """Print one line per signal."""
    parser = argparse.ArgumentParser(description="Measures single signals of answerability.")
    parser.add_argument("dataset", help="BEIR folder")
    parser.add_argument("run", type=Path, help="run stored by crossgate eval --runs")
    parser.add_argument("--split")
    options = parser.parse_args()
    dataset = read_dataset(options.dataset, split=options.split)
    queries = read_run(options.run).queries
    answerable = np.array([bool(query.relevant) for query in queries])
    print(f"{answerable.sum()} questions with an answer, {(~answerable).sum()} without")
    for name, values in signals(queries, covered(dataset)).items():
        area = area_interval(np.array(values), answerable, seed=0)
        cell = "-" if area is None else f"{area.value:.3f} [{area.low:.3f}, {area.high:.3f}]"
        print(f"{name:<14}{cell}")


if __name__ == "__main__":
    main()
