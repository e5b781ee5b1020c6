"""A small BEIR folder of labelled queries for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conftest import LIBRARY

QUERIES: list[dict[str, Any]] = [
    {"_id": "q1", "text": "repair this messy csv", "metadata": {"kind": "direct"}},
    {"_id": "q2", "text": "merge pdf files", "metadata": {"kind": "direct", "mentions_name": True}},
    {"_id": "q3", "text": "my pictures are too big", "metadata": {"kind": "indirect"}},
    {"_id": "n1", "text": "what is the weather", "metadata": {"no_match": True}},
    {"_id": "n2", "text": "write a csv parser"},
    {"_id": "u1", "text": "a query without a label"},
]
QRELS = ["q1\tcsv-cleaner\t2", "q1\tspreadsheet\t1", "q2\tpdf-toolkit\t1", "q3\timage-resizer\t1"]
NEGATIVES = ["n2\tcsv-cleaner", "q3\tpdf-toolkit"]


def write_beir(
    folder: Path,
    *,
    queries: Sequence[Mapping[str, Any] | str] = QUERIES,
    qrels: Mapping[str, Sequence[str]] | None = None,
    negatives: Mapping[str, Sequence[str]] | None = None,
    candidates: Sequence[Mapping[str, Any]] = (),
    texts: Mapping[str, str] = LIBRARY,
) -> Path:
    """Write a BEIR folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = [json.dumps({"_id": id, "title": "", "text": text}) for id, text in texts.items()]
    (folder / "corpus.jsonl").write_text("\n".join(corpus) + "\n")
    rows = [row if isinstance(row, str) else json.dumps(row) for row in queries]
    (folder / "queries.jsonl").write_text("\n".join(rows) + "\n")
    tables = {
        "qrels": ("query-id\tcorpus-id\tscore", {"test": QRELS} if qrels is None else qrels),
        "negatives": (
            "query-id\tcorpus-id",
            {"test": NEGATIVES} if negatives is None else negatives,
        ),
    }
    for kind, (header, splits) in tables.items():
        (folder / kind).mkdir(exist_ok=True)
        for split, lines in splits.items():
            (folder / kind / f"{split}.tsv").write_text("\n".join([header, *lines]) + "\n")
    if candidates:
        lines = [json.dumps(row) for row in candidates]
        (folder / "candidates.jsonl").write_text("\n".join(lines) + "\n")
    return folder
