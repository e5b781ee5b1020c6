"""Compares lengths of the cross-encoder's input: word pieces read, and the order of the pool.

    python eval/input_length.py eval/skills eval/chunks [--limit N] [--most 256 128 96 64]

Each pair is cut at the end of the passage. recall@1 and nDCG@10 are those of the mode `always` with
the default profile and without thresholds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from crossgate._evaluation.data.datasets import read_dataset, sample
from crossgate._evaluation.measures.quality import measure_answer
from crossgate._evaluation.runs.collecting import measure_for_fit
from crossgate._evaluation.runs.modes import decide
from crossgate._reranking.cross_encoder import CrossEncoder
from crossgate._runtime.onnx import OnnxModel


class Counted(OnnxModel):
    """Counts the word pieces of all inputs."""

    pieces_read = 0

    def run(self, *inputs: Encoding) -> NDArray[np.float32]:
        """Run the model."""
        self.pieces_read += sum(len(each.ids) for each in inputs)
        return super().run(*inputs)


def rows(path: Path, limit: int | None, lengths: Sequence[int]) -> None:
    """Measure one dataset with each length."""
    dataset = read_dataset(path)
    if limit is not None:
        dataset = sample(dataset, limit, seed=0)
    for most in lengths:
        reranker = CrossEncoder()
        reranker._local = replace(reranker._local, max_length=most)
        model = reranker._model = Counted(reranker._local)
        with tempfile.TemporaryDirectory() as folder:
            run = measure_for_fit(dataset, Path(folder) / "run.jsonl", reranker=reranker)
        queries = [query for query in run.queries if query.relevant]
        answers = [
            measure_answer(query, decide(query, run.header.profile, "always", hold_back=False))
            for query in queries
        ]
        recall, gain = (
            np.mean([answer[name] for answer in answers]) for name in ("recall@1", "ndcg@10")
        )
        print(
            f"| {path.name} | {most} | {model.pieces_read:,} | {recall:.3f} | {gain:.3f} |",
            flush=True,
        )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--most", nargs="+", type=int, default=[256, 128, 96, 64])
    options = parser.parse_args()
    print("| set | longest input | word pieces read | recall@1 | nDCG@10 |")
    print("| --- | --- | --- | --- | --- |")
    for path in options.datasets:
        rows(path, options.limit, options.most)


if __name__ == "__main__":
    main()
