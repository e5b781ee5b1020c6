"""Print what one example for each misrouted prompt mends, and what else it changes.

    python eval/taught.py [--none] [--list]

Routes all prompts of `eval/taught`, teaches the 60 examples at once, and routes them again. A
misrouted prompt is mended if the right skill is the first pick. For the other prompts, every other
first pick counts as a change, and so does a pick where there was none. `--none` uses stage 1 alone;
`--list` also prints the prompts that are not mended or that changed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from crossgate import Document, Index, Router

FOLDER = Path(__file__).parent / "taught"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--none", action="store_true", help="use stage 1 alone")
    parser.add_argument("--list", action="store_true", help="print the prompts that went wrong")
    options = parser.parse_args()
    rows = [json.loads(line) for line in (FOLDER / "queries.jsonl").open(encoding="utf-8")]
    corpus = [json.loads(line) for line in (FOLDER / "corpus.jsonl").open(encoding="utf-8")]
    index = Index.build(
        Document(id=row["_id"], title=row["title"], text=row["text"], body=row.get("body", ""))
        for row in corpus
    )
    router = Router(index, reranker=None if options.none else "default")
    texts = [row["text"] for row in rows]
    before = [result.ids[:1] for result in router.route_many(texts, progress=False)]
    for row in rows:
        if row["metadata"]["kind"] == "misroute":
            index.teach(row["example"], row["skill"])
    after = router.route_many(texts, progress=False)
    count: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for row, first, result in zip(rows, before, after, strict=True):
        kind, now = row["metadata"]["kind"], result.ids[:1]
        groups = [kind, f"{kind}, {row['wording']}"] if kind == "misroute" else [kind, "others"]
        is_wrong = now != [row["skill"]] if kind == "misroute" else now != first
        count.update(groups)
        wrong.update(groups if is_wrong else ())
        if is_wrong and options.list:
            place = f"{first} -> {now} ({result.reason}, {result.confidence or 0:.2f})"
            print(f"{kind}: {row['text']}: {place}; {row.get('skill') or row.get('phrasing_of')}")
    for group, total in sorted(count.items()):
        what = "not mended" if group.startswith("misroute") else "changed"
        print(f"{group}: {wrong[group]} of {total} {what}, {wrong[group] / total:.1%}")


if __name__ == "__main__":
    main()
