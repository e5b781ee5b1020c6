"""Compares the pick of prompts with material with the pick of their request alone.

    python eval/request_alone.py [SET]

Each row of a set with the field `request`, such as `eval/material`, is routed twice: whole, and its
request without the material. Prints the number of rows with the same pick, or with none both times,
and the rows that differ.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from crossgate import Index, Router
from crossgate._evaluation.label_files import read_dataset


def main() -> None:
    """Print a line per row that differs, and one per kind of row."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "eval/material")
    router = Router(Index.build(read_dataset(folder).documents))

    def pick(prompt: str) -> str:
        selected = router.route(prompt).selected
        return selected[0].id if selected else "nothing"

    rows: Counter[str] = Counter()
    same: Counter[str] = Counter()
    with open(folder / "queries.jsonl", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            kind = row["_id"].partition("-")[0]
            whole, alone = pick(row["text"]), pick(row["request"])
            rows[kind] += 1
            same[kind] += whole == alone
            if whole != alone:
                print(f"{row['_id']}: {whole}; {alone} for the request alone")
    for kind, count in rows.items():
        print(f"{kind}: the same pick in {same[kind]} of {count} rows")


if __name__ == "__main__":
    main()
