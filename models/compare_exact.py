"""Counts the first picks that change where the cross-encoder is not rounded to eight bits."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from crossgate import CrossEncoder

PROFILE = Path(__file__).parents[1] / "python/crossgate/profiles/default.json"


def compare(reranker: CrossEncoder, run: Path, dataset: Path) -> str:
    """Returns a line with the recall@1 of both, nothing held back, and what changed.

    Args:
        reranker: The cross-encoder in float32.
        run: What `crossgate eval --runs` stored of the dataset with the rounded one.
        dataset: Its BEIR folder.
    """
    profile = json.loads(PROFILE.read_text(encoding="utf-8"))
    blend, combine, pool = profile["blend"], profile["combine"], profile["pool"]["rerank_top_k"]
    texts = {row["_id"]: _text(row) for row in _rows(dataset / "corpus.jsonl")}
    right = {"eight bits": 0, "float32": 0}
    moved: list[float] = []
    changed = queries = 0
    for row in _rows(run):
        if not row.get("stage2") or row.get("mentions_name") or not row["relevant"]:
            continue
        bounded = {one[0]: one[2] / (one[2] + blend["bm25_half"]) for one in row["stage1"]}
        cosine = {one[0]: one[1] for one in row["stage1"]}
        ids = sorted(
            cosine,
            key=lambda id: (
                -blend["cosine_weight"] * cosine[id] - blend["bm25_weight"] * bounded[id]
            ),
        )[:pool]
        stored = {id: logit for id, logit, _ in row["stage2"]}
        rounded = np.array([stored[id] for id in ids])
        pairs = reranker.score(row["text"], [texts[id] for id in ids])
        exact = np.array([pair.logit for pair in pairs])
        base = np.array([combine["cosine"] * cosine[i] + combine["bm25"] * bounded[i] for i in ids])
        picks = [
            ids[int(np.argmax(base + combine["logit"] * logits))] for logits in (rounded, exact)
        ]
        for name, pick in zip(right, picks, strict=True):
            right[name] += pick in row["relevant"]
        changed += picks[0] != picks[1]
        queries += 1
        moved += np.abs(rounded - exact).tolist()
    shares = ", ".join(f"{name} {count / queries:.3f}" for name, count in right.items())
    return (
        f"{dataset.name}: recall@1 {shares}; first pick changed {changed} of {queries}; "
        f"logits moved {max(moved):.3f} at most, {np.mean(moved):.3f} on average"
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _text(row: dict[str, Any]) -> str:
    title, text = row.get("title", ""), row["text"]
    return f"{title}: {text}" if title and text else title or text


def main() -> None:
    """Reads the arguments and prints a line for each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exact", help="folder that `build.py --float32` wrote")
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("runs", type=Path, nargs="+", help="stored runs, named SET-SPLIT.run.jsonl")
    arguments = parser.parse_args()
    reranker = CrossEncoder(arguments.exact)
    for run in arguments.runs:
        name = run.name.removesuffix(".run.jsonl").rpartition("-")[0]
        print(compare(reranker, run, arguments.data / name), flush=True)


if __name__ == "__main__":
    main()
