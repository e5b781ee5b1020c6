"""Compares late interaction with the bundled cross-encoder on the best candidates of stage 1.

    python eval/late_interaction.py COLBERT eval/chunks SCIFACT COSQA --limit 200

COLBERT is a folder with the `model.onnx` and `tokenizer.json` of a ColBERT-like model that returns
one vector per token. Texts are encoded as in ColBERT: `[unused0]` before a query, which is padded
with `[MASK]` to 32 tokens that get no attention, `[unused1]` before a document of at most 300
tokens, whose punctuation is left out. MaxSim: the sum over the query's vectors of their best cosine
with a vector of the document; Khattab and Zaharia, "ColBERT", 2020. The output has each model's
order alone and fused with that of stage 1 by rank, and pairs per second on one processor.
"""

from __future__ import annotations

import argparse
import math
import string
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from crossgate import Index
from crossgate._decision.router import DEFAULT_PROFILE
from crossgate._runtime.threads import run_all
from crossgate._values.profile_files import read_profile
from crossgate.evaluation import Dataset, read_dataset
from crossgate.rerankers import CrossEncoder, passages_of

QUERY_TOKENS, DOCUMENT_TOKENS = 32, 300
RANK_CONSTANT = 60

Array = NDArray[np.float32]


class Colbert:
    """Token vectors by an ONNX graph, one text at a time on each thread."""

    def __init__(self, folder: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(folder / "model.onnx", options)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @cached_property
    def _skipped(self) -> set[int]:
        return {self._id(mark) for mark in string.punctuation}

    def _id(self, token: str) -> int:
        found = self._tokenizer.token_to_id(token)
        assert found is not None, token
        return found

    def query(self, text: str) -> Array:
        """Return unit vectors of shape (32, dimension)."""
        ids = self._ids("[unused0]", text, QUERY_TOKENS)
        missing = QUERY_TOKENS - len(ids)
        masked = [self._id("[MASK]")] * missing
        return self._run([*ids, *masked], [1] * len(ids) + [0] * missing)

    def document(self, text: str) -> Array:
        """Return unit vectors of shape (tokens, dimension)."""
        ids = self._ids("[unused1]", text, DOCUMENT_TOKENS)
        vectors = self._run(ids, [1] * len(ids))
        return vectors[[id not in self._skipped for id in ids]]

    def _ids(self, marker: str, text: str, most: int) -> list[int]:
        pieces = self._tokenizer.encode(text, add_special_tokens=False).ids[: most - 3]
        first, second, last = map(self._id, ("[CLS]", marker, "[SEP]"))
        return [first, second, *pieces, last]

    def _run(self, ids: list[int], attention: list[int]) -> Array:
        given = {"input_ids": ids, "attention_mask": attention, "token_type_ids": [0] * len(ids)}
        made = self._session.run(
            None, {name: np.array([value], dtype=np.int64) for name, value in given.items()}
        )[0][0]
        unit: Array = made / np.linalg.norm(made, axis=1, keepdims=True)
        return unit


def measure(dataset: Dataset, colbert: Colbert, shown: int) -> None:
    """Print one line per order of the first `shown` documents of stage 1."""
    index = Index.build(dataset.documents)
    contents = {document.id: document.content for document in dataset.documents}
    blend = read_profile(DEFAULT_PROFILE).blend
    cross_encoder = CrossEncoder("crossgate-passages-minilm-l12")
    cross_encoder.score("warm", passages_of(["up", "now"]))
    queries = [query for query in dataset.queries if query.relevant]
    vectors = index.load_embedder().embed([query.text for query in queries])
    quality: dict[str, list[tuple[float, float]]] = {}
    seconds = dict.fromkeys(("cross-encoder", "prepared", "late"), 0.0)
    pairs = 0
    for query, vector in zip(queries, vectors, strict=True):
        found = index.search(query.text, vector, blend=blend).scored
        ids = [
            candidate.id
            for candidate in sorted(found, key=lambda candidate: (-candidate.blend, candidate.id))[
                :shown
            ]
        ]
        texts = [contents[id] for id in ids]
        start = time.process_time()
        logits = [
            score.score for score in cross_encoder.score(query.text, passages_of(texts)).complete()
        ]
        seconds["cross-encoder"] += time.process_time() - start
        start = time.process_time()
        documents = run_all(colbert.document, texts)
        seconds["late"] += time.process_time() - start
        start = time.process_time()
        tokens = colbert.query(query.text)
        sums = [float((tokens @ document.T).max(axis=1).sum()) for document in documents]
        seconds["prepared"] += time.process_time() - start
        pairs += len(ids)
        orders: dict[str, Sequence[int]] = {
            "stage 1": range(len(ids)),
            "cross-encoder": _order(logits),
            "late": _order(sums),
        }
        for name in ("cross-encoder", "late"):
            orders[f"stage 1 + {name}"] = _joined(orders["stage 1"], orders[name])
        for name, order in orders.items():
            ranked = [query.relevant.get(ids[place], 0) for place in order]
            quality.setdefault(name, []).append(
                (float(any(ranked[:1])), _ndcg(ranked, query.relevant.values()))
            )
    print(f"{dataset.name}: {len(queries)} queries, the {shown} best of {len(contents)} documents")
    for name, values in quality.items():
        first, ndcg = np.mean(values, axis=0)
        print(f"  {name:<20} recall@1 {first:.3f}  nDCG@10 {ndcg:.3f}")
    seconds["late"] += seconds["prepared"]
    print(
        "  pairs/s: " + ", ".join(f"{key} {pairs / took:.0f}" for key, took in seconds.items()),
        flush=True,
    )


def _order(scores: Sequence[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda place: -scores[place])


def _joined(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Return the order by the sum of reciprocal ranks."""
    total = [0.0] * len(first)
    for order in (first, second):
        for rank, place in enumerate(order, start=1):
            total[place] += 1 / (RANK_CONSTANT + rank)
    return _order(total)


def _ndcg(ranked: Sequence[int], relevant: Iterable[int]) -> float:
    def gain(grades: Sequence[int]) -> float:
        return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades[:10], start=1))

    return gain(ranked) / gain(sorted(relevant, reverse=True))


def main() -> None:
    """Measure each dataset."""
    parser = argparse.ArgumentParser(description="Compares late interaction and a cross-encoder.")
    parser.add_argument("model", type=Path, help="folder of a ColBERT-like model")
    parser.add_argument("dataset", nargs="+", help="BEIR folder or .jsonl file")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--best", type=int, default=10)
    options = parser.parse_args()
    colbert = Colbert(options.model)
    for path in options.dataset:
        dataset = read_dataset(path, limit=options.limit)
        measure(dataset, colbert, options.best)


if __name__ == "__main__":
    main()
