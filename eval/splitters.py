"""Splits the documents of a BEIR folder of chunks again, and measures retrieval of the chunks.

    pip install semantic-text-splitter
    python eval/splitters.py eval/chunks

The chunks of each document are joined to Markdown, and split by crossgate and by
semantic-text-splitter's MarkdownSplitter, at several sizes. A new chunk answers a question if the
answering text fills half of it, or if it contains half of the answering text. The output is for
stage 1 alone (`--modes never`).
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from semantic_text_splitter import MarkdownSplitter

from crossgate._sources.markdown import chunk_markdown

CUTS = [("crossgate", 1_500), ("other", 1_500), ("other", 600), ("other", 480), ("other", 300)]
CUTS += [("crossgate", 300)]


def cut(text: str, title: str, splitter: str, size: int) -> Iterator[tuple[str, str]]:
    """Yield title and text of each chunk."""
    if splitter == "crossgate":
        for chunk in chunk_markdown(text, name=title, max_chars=size):
            yield chunk.title, chunk.text
    else:
        for piece in MarkdownSplitter(size).chunks(text):
            yield title, piece


def write(source: Path, folder: Path, splitter: str, size: int) -> tuple[int, int]:
    """Write a BEIR folder of new chunks; return how many there are, and their characters."""
    documents: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (source / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        documents[row["metadata"]["document"]].append(row)
    asked: dict[str, list[tuple[str, int]]] = defaultdict(list)
    with (source / "qrels" / "test.tsv").open(encoding="utf-8") as stream:
        for label in csv.DictReader(stream, delimiter="\t"):
            asked[label["corpus-id"]].append((label["query-id"], int(label["score"])))
    rows: list[dict[str, str]] = []
    labels: dict[tuple[str, str], int] = {}
    for number, (title, parts) in enumerate(documents.items()):
        text, places = f"# {title}\n\n", {}
        for part in parts:
            text += f"## {part['title'].rpartition(' > ')[2]}\n\n"
            places[part["_id"]] = (len(text), len(text) + len(part["text"]))
            text += f"{part['text']}\n\n"
        at = 0
        for heading, piece in cut(text, title, splitter, size):
            at = text.index(piece, at)
            end = at + len(piece)
            rows.append({"_id": f"{number}-{len(rows)}", "title": heading, "text": piece})
            for id, (first, last) in places.items():
                shared = min(last, end) - max(first, at)
                if shared > 0 and shared >= min(last - first, end - at) / 2:
                    for query, score in asked[id]:
                        key = query, rows[-1]["_id"]
                        labels[key] = max(score, labels.get(key, 0))
            at = end
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_bytes((source / "queries.jsonl").read_bytes())
    lines = [f"{query}\t{id}\t{score}\n" for (query, id), score in labels.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    return len(rows), sum(len(row["text"]) for row in rows)


def main() -> None:
    """Print one row per splitter and size."""
    crossgate = f"{Path(sys.executable).parent}/crossgate"
    print("| splitter | at most | chunks | mean | recall@1 | recall@5 | nDCG@10 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for splitter, size in CUTS:
        with tempfile.TemporaryDirectory() as name:
            count, characters = write(Path(sys.argv[1]), Path(name), splitter, size)
            command = [crossgate, "eval", name, "--modes", "never", "--json"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        found = json.loads(done.stdout)["reports"][0]["quality"]["never"]
        shown = [f"{found[name]['value']:.3f}" for name in ("recall@1", "recall@5", "ndcg@10")]
        row = [splitter, str(size), str(count), str(characters // count), *shown]
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
