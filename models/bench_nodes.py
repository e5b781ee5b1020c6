"""Prints the time that each operator of a cross-encoder's graph takes.

    python bench_nodes.py FOLDER [--tokens 42 128] [--pairs 40]

One thread. The time of a node is the median over the pairs, so that other work on the machine
hardly counts. Needs onnxruntime and numpy.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime


def profiled(model: Path, tokens: int, pairs: int) -> list[dict[str, Any]]:
    """Return onnxruntime's events for pairs of random word pieces."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = f"{folder}/events"
        session = onnxruntime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )
        draw = np.random.default_rng(0)
        for _ in range(pairs):
            pair = {
                "input_ids": draw.integers(1_000, 28_000, tokens),
                "attention_mask": np.ones(tokens),
                "token_type_ids": np.arange(tokens) > tokens // 8,
                "position_ids": np.arange(tokens),
            }
            feed = {
                node.name: pair[node.name].astype(np.int64)[np.newaxis]
                for node in session.get_inputs()
            }
            session.run(None, feed)
        return list(json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")))


def main() -> None:
    """Print a table for each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=[42, 128])
    parser.add_argument("--pairs", type=int, default=40)
    options = parser.parse_args()
    for tokens in options.tokens:
        times: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for event in profiled(options.folder / "model.onnx", tokens, options.pairs):
            if event.get("cat") == "Node" and str(event["name"]).endswith("kernel_time"):
                times[event["args"]["op_name"], str(event["name"])].append(event["dur"])
        of_operator: Counter[str] = Counter()
        for (operator, _), durations in times.items():
            of_operator[operator] += round(median(durations))
        total = sum(of_operator.values())
        print(f"{tokens} tokens: {total / 1000:.1f} ms")
        for operator, microseconds in of_operator.most_common():
            print(f"  {operator:<22} {microseconds / total:6.1%}")


if __name__ == "__main__":
    main()
