"""Finds wrong documents that are similar to the right ones."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from corpora import Example, TrainingData, shingles
from hashes import sha256_of
from training import Encoder, Lexical, embed, load_embedder

EMBEDDER_TOKENS = 128

# Pools whose documents are too long or too many to embed here; their wrong documents are found by
# BM25 alone.
LEXICAL_POOLS = ("scifact", "cosqa", "medquad", "markdown-sections-weak", "debian")

# Wrong documents are drawn from the best of each channel.
NEAREST = 16

# A candidate this much nearer to the query than the right document is more likely an unlabelled
# answer than a wrong document (positive-aware mining, NV-Retriever, arXiv 2407.15831).
TRUSTED = 0.08

# A copy of the right document under another id shares this many of its shingles (Jaccard).
COPY = 0.3


class Miner:
    """Finds the wrong documents that are most similar to the right document."""

    def __init__(self, data: TrainingData, embedder: Path, vectors: dict[str, np.ndarray]) -> None:
        """Takes the data, the embedder's folder and, per pool, its unit vectors [n, width]."""
        self._data = data
        self._lexical = Lexical(data.pools)
        self._model = load_embedder(embedder)
        self._encoder = Encoder(embedder / "tokenizer.json", EMBEDDER_TOKENS)
        self._vectors = vectors
        self._last: tuple[str | None, np.ndarray] = None, np.empty(0)
        self._ids = {name: list(pool) for name, pool in data.pools.items()}
        self._rows = {
            name: {id: row for row, id in enumerate(ids)} for name, ids in self._ids.items()
        }

    def wrong(self, example: Example, pool: str) -> list[str]:
        """Returns ids of documents near the query that do not fit it, as far as is known.

        Without a fitting document, only the judged documents are known to be wrong, and near
        documents may fit, so none are returned. If no document was judged, none in the pool fits.
        """
        if example.negatives and not example.positives:
            return []
        near = dict.fromkeys(self._lexical.nearest(pool, [example.query], NEAREST)[0])
        if pool in self._vectors:
            cosines = self._cosines(example.query, pool)
            ids, rows = self._ids[pool], self._rows[pool]
            near.update(dict.fromkeys(ids[place] for place in np.argsort(-cosines)[:NEAREST]))
            limit = max((cosines[rows[id]] for id in example.positives), default=1.0) + TRUSTED
            near = {id: None for id in near if cosines[rows[id]] <= limit}
        texts = self._data.pools[pool]
        right = [shingles(texts[id]) for id in example.positives]
        return [
            id
            for id in near
            if id not in example.positives
            and not any(_alike(known_text, shingles(texts[id])) for known_text in right)
        ]

    def _cosines(self, query: str, pool: str) -> np.ndarray:
        # Computed twice in a row: to find the wrong documents, and to weigh them.
        if self._last[0] != query:
            with torch.inference_mode():
                self._last = query, embed(self._model, self._encoder, [query])[0].numpy()
        return np.asarray(self._vectors[pool] @ self._last[1])


def _alike(left: set[str], right: set[str]) -> bool:
    shared = len(left & right)
    return shared >= COPY * (len(left) + len(right) - shared)


def embed_pools(embedder: Path, data: TrainingData) -> None:
    """Writes the unit vectors of each pool's documents to the embedder's folder, once."""
    path = _vectors(embedder, data)
    if path.exists():
        return
    model, encoder = load_embedder(embedder), Encoder(embedder / "tokenizer.json", EMBEDDER_TOKENS)
    vectors = {}
    for name, pool in _embedded(data):
        with torch.inference_mode():
            vectors[name] = embed(model, encoder, list(pool.values())).numpy()
        print(f"embedded {name}: {len(pool)} documents", flush=True)
    unfinished = path.with_name("unfinished.npz")
    np.savez(unfinished, **vectors)
    unfinished.replace(path)


def _embedded(data: TrainingData) -> list[tuple[str, dict[str, str]]]:
    return [(name, pool) for name, pool in data.pools.items() if name not in LEXICAL_POOLS]


def _vectors(embedder: Path, data: TrainingData) -> Path:
    """Returns the path of the vectors, whose name depends on the weights and the texts."""
    made_of = json.dumps([sha256_of(embedder / "model.safetensors"), _embedded(data)])
    return embedder / f"vectors-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.npz"


def new_miner(data: TrainingData, embedder: Path) -> Miner:
    """Returns a miner with the vectors that `embed_pools` wrote."""
    with np.load(_vectors(embedder, data)) as stored:
        return Miner(data, embedder, dict(stored))
