"""Compares the first picks of a cross-encoder with those of the one that a run was stored with."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from corpora import document_text, read_rows

from crossgate import CrossEncoder

PROFILE = Path(__file__).parents[1] / "python/crossgate/profiles/default.json"


def compare(reranker: CrossEncoder, run: Path, dataset: Path) -> str:
    """Returns a line with the recall@1 of both among the candidates of the default profile's pool.

    Args:
        reranker: The other cross-encoder.
        run: What `crossgate eval --runs` stored of the dataset; queries that name what fits are
            left out.
        dataset: Its BEIR folder.
    """
    profile = json.loads(PROFILE.read_text(encoding="utf-8"))
    blend, combine, pool = profile["blend"], profile["combine"], profile["pool"]["rerank_top_k"]
    texts = {row["_id"]: document_text(row) for row in read_rows(dataset / "corpus.jsonl")}
    right: Counter[str] = Counter()
    moved: list[float] = []
    changed = queries = 0
    for row in read_rows(run):
        if not row.get("stage2") or row.get("mentions_name") or not row["relevant"]:
            continue
        cosine = {id: value for id, value, *_ in row["stage1"]}
        bm25 = {id: value / (value + blend["bm25_half"]) for id, _, value, *_ in row["stage1"]}
        fitted = {id: combine["cosine"] * cosine[id] + combine["bm25"] * bm25[id] for id in cosine}
        blended = {
            id: blend["cosine_weight"] * cosine[id] + blend["bm25_weight"] * bm25[id]
            for id in cosine
        }
        ids = sorted(blended, key=lambda id: -blended[id])[:pool]
        kept = {id: logit for id, logit, _ in row["stage2"]}
        scores = reranker.score(row["text"], [texts[id] for id in ids])
        other = {id: pair.logit for id, pair in zip(ids, scores, strict=True)}
        picks = {}
        for name, logits in (("stored", kept), ("other", other)):
            picks[name] = max(ids, key=lambda id: fitted[id] + combine["logit"] * logits[id])
            right[name] += picks[name] in row["relevant"]
            right[f"{name} alone"] += max(ids, key=logits.__getitem__) in row["relevant"]
        changed += picks["stored"] != picks["other"]
        queries += 1
        moved += [abs(kept[id] - other[id]) for id in ids]
    shares = ", ".join(f"{name} {count / queries:.3f}" for name, count in right.items())
    return (
        f"{dataset.name}: recall@1 {shares}; first pick changed {changed} of {queries}; "
        f"logits moved {max(moved):.3f} at most, {sum(moved) / len(moved):.3f} on average"
    )


def main() -> None:
    """Reads the arguments and prints a line for each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", help="folder of the other cross-encoder, as `build.py` wrote it")
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("runs", type=Path, nargs="+", help="stored runs, named SET-SPLIT.run.jsonl")
    arguments = parser.parse_args()
    reranker = CrossEncoder(arguments.other)
    for run in arguments.runs:
        name = run.name.removesuffix(".run.jsonl").rpartition("-")[0]
        print(compare(reranker, run, arguments.data / name), flush=True)


if __name__ == "__main__":
    main()
