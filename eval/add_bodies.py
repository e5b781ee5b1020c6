"""Writes a copy of a BEIR folder whose documents have the bodies of another file.

    python eval/add_bodies.py FOLDER BODIES OUTPUT

`BODIES` holds JSON lines with `_id` and `body`; a document without a line there keeps no body.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path


def main() -> None:
    """Reads the arguments and writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder in BEIR's layout")
    parser.add_argument("bodies", type=Path, help="JSON lines with _id and body")
    parser.add_argument("output", type=Path, help="the folder to write; it must not exist")
    options = parser.parse_args()
    bodies = {row["_id"]: row["body"] for row in rows(options.bodies)}
    shutil.copytree(options.folder, options.output)
    documents = [
        row | {"body": bodies.get(row["_id"], "")} for row in rows(options.folder / "corpus.jsonl")
    ]
    corpus = options.output / "corpus.jsonl"
    corpus.write_text(
        "".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8"
    )
    print(
        f"{sum(bool(document['body']) for document in documents)} of {len(documents)} documents "
        "have a body"
    )


def rows(path: Path) -> list[dict[str, str]]:
    """Returns the JSON lines of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


if __name__ == "__main__":
    main()
