"""Compares lengths of the cross-encoder's input: word pieces read, and the order of the pool.

    python eval/input_length.py eval/skills eval/chunks [--split S] [--limit N] [--most 256 128 64]

Each pair is cut at the end of the passage, and the query at half of the length. recall@1 and
nDCG@10 are those of the default profile without thresholds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from crossgate._evaluation.metrics import measure_answer
from crossgate._evaluation.stored_runs import decide
from crossgate._reranking.cross_encoder import CrossEncoder
from crossgate._runtime.onnx import OnnxModel
from crossgate._runtime.onnx_library import Tensor
from crossgate._runtime.tokenizer import Input
from crossgate.evaluation import Dataset, measure, read_dataset, read_run


class Counted(OnnxModel):
    """Counts the word pieces of all inputs."""

    pieces_read = 0

    def run(self, *inputs: Input) -> Tensor:
        """Run the model."""
        self.pieces_read += sum(len(each.ids) for each in inputs)
        return super().run(*inputs)


def rows(dataset: Dataset, lengths: Sequence[int]) -> None:
    """Measure one dataset with each length."""
    for most in lengths:
        reranker = CrossEncoder()
        reranker._local = replace(reranker._local, max_length=most, query_length=most // 2)
        model = reranker._model = Counted(reranker._local)
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "run.jsonl"
            measure(dataset, output, modes=["always"], reranker=reranker)
            run = read_run(output)
        queries = [query for query in run.queries if query.relevant]
        figures = []
        for mode in ("gated", "always"):
            answers = [
                measure_answer(query, decide(query, run.header.profile, mode, hold_back=False))
                for query in queries
            ]
            figures += [
                np.mean([answer[name] for answer in answers]) for name in ("recall@1", "ndcg@10")
            ]
        cells = " | ".join(f"{figure:.3f}" for figure in figures)
        print(f"| {dataset.name} | {most} | {model.pieces_read:,} | {cells} |", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+", type=Path)
    parser.add_argument("--split")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--most", nargs="+", type=int, default=[256, 128, 64])
    options = parser.parse_args()
    print(
        "| set | longest input | pieces | gated: recall@1 | nDCG@10 | always: recall@1 | nDCG@10 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for path in options.datasets:
        rows(read_dataset(path, split=options.split, limit=options.limit), options.most)


if __name__ == "__main__":
    main()
