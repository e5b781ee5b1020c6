"""Prints how well `rerank` answers questions over passages, and abstains without an answer.

    python eval/answerable.py [--split test] [--questions N] [--embed yes|no|auto] [--vectors]

Candidates are the ten that an index of the corpus finds best, by words or, with `--vectors`, also
by the bundled embedder. For each split it prints recall@1, how often the shortlist contains one of
the candidates that answer, and with unanswerable questions the false-positive rate, the share of
the answers in first place that are selected, and the area under the ROC curve of the confidence.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import Any

from crossgate import Document, Index, rerank

FOLDER = Path(__file__).parent / "answers"
CANDIDATES = 10
EMBED = {"yes": True, "no": False, "auto": None}


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def labels(folder: Path, split: str) -> dict[str, set[str]]:
    """Return the relevant documents of each question; none for an unanswerable one."""
    found: dict[str, set[str]] = {}
    for kind in ("qrels", "negatives"):
        path = folder / kind / f"{split}.tsv"
        for line in path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []:
            query, document, *_ = line.split("\t")
            answers = found.setdefault(query, set())
            if kind == "qrels":
                answers.add(document)
    if not (folder / "negatives").exists():
        for row in rows(folder / "queries.jsonl"):
            if row.get("metadata", {}).get("no_match"):
                found.setdefault(row["_id"], set())
    return found


def area(positive: list[float], negative: list[float]) -> float:
    """Return the area under the ROC curve: the share of pairs in order, ties as one half."""
    pairs = [(one > other) + (one == other) / 2 for one in positive for other in negative]
    return sum(pairs) / len(pairs)


def main() -> None:
    """Rerank, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="a set in BEIR's layout")
    parser.add_argument("--split", default="test")
    parser.add_argument("--questions", type=int, help="every n-th question, N in all")
    parser.add_argument("--embed", choices=EMBED, default="auto")
    parser.add_argument("--vectors", action="store_true", help="search by meaning, too")
    options = parser.parse_args()
    documents = [
        Document(id=row["_id"], title=row.get("title", ""), text=row["text"])
        for row in rows(options.folder / "corpus.jsonl")
    ]
    index = Index.build(documents) if options.vectors else Index.build(documents, embedder=None)
    questions = {row["_id"]: row for row in rows(options.folder / "queries.jsonl")}
    relevant = labels(options.folder, options.split)
    asked = sorted(relevant)
    if options.questions:
        asked = asked[:: max(1, len(asked) // options.questions)]
    first: dict[str, list[bool]] = defaultdict(list)
    kept: list[bool] = []
    listed: list[tuple[bool, int]] = []
    selected: list[bool] = []
    milliseconds: list[float] = []
    confidence: dict[bool, list[float]] = {True: [], False: []}
    for id in asked:
        text = questions[id]["text"]
        kind = questions[id].get("metadata", {}).get("kind", "question")
        candidates = index.search(text, limit=CANDIDATES).candidates
        start = perf_counter()
        result = rerank(text, candidates, embed=EMBED[options.embed])
        milliseconds.append(1000 * (perf_counter() - start))
        confidence[bool(relevant[id])].append(result.confidence or 0.0)
        if not relevant[id]:
            selected.append(bool(result))
            continue
        if relevant[id].intersection(hit.id for hit in result.hits):
            ids = {hit.id for hit in result.shortlist}
            listed.append((bool(ids & relevant[id]), len(ids)))
        right = bool(result.hits) and result.hits[0].id in relevant[id]
        first[kind].append(right)
        if right:
            kept.append(result.hits[0].dropped is None)

    def share(values: list[bool]) -> float | None:
        return round(sum(values) / len(values), 3) if values else None

    def mean(values: list[int]) -> float | None:
        return round(sum(values) / len(values), 2) if values else None

    figures = {
        "split": options.split,
        "questions": len(asked),
        "recall@1": share([right for rights in first.values() for right in rights]),
        "by kind": {kind: [share(rights), len(rights)] for kind, rights in sorted(first.items())},
        "shortlist": [share([found for found, _ in listed]), mean([count for _, count in listed])],
        "answers kept": share(kept),
        "false positives": share(selected),
        "auc": round(area(confidence[True], confidence[False]), 3) if selected else None,
        "median ms": round(sorted(milliseconds)[len(milliseconds) // 2]),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
