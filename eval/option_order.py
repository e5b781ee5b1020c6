"""How much the order of the options changes the pick of a decision model.

Each query is put to the model twice, with the same candidates in two orders. Printed are the
agreement of the picks, and the share of queries for which the model prefers "none".

    python eval/option_order.py eval/skills --base-url http://127.0.0.1:8000 --model laya
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

from crossgate import Document, Index, Router
from crossgate.rerankers import DecisionReranker, Passage

POOL = 20


def rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a JSON lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def pick(reranker: DecisionReranker, query: str, passages: Sequence[Passage]) -> str:
    """Return the id of the best passage, or an empty text if "none" is more probable."""
    scores = reranker.score(query, passages).complete()
    best = min(range(len(passages)), key=lambda place: (-scores[place].score, passages[place].id))
    return passages[best].id if scores[best].score > 0 else ""


def main() -> None:
    """Compare two orders on a sample of a BEIR folder's queries."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with corpus.jsonl and queries.jsonl")
    parser.add_argument("--limit", type=int, default=200, help="number of queries (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    options = parser.parse_args()
    corpus = rows(options.folder / "corpus.jsonl")
    index = Index.build(
        Document(id=row["_id"], title=row.get("title", ""), text=row["text"]) for row in corpus
    )
    router = Router(index, reranker=None)
    queries = [row["text"] for row in rows(options.folder / "queries.jsonl")]
    sample = random.Random(options.seed).sample(queries, min(options.limit, len(queries)))
    first, second = (
        DecisionReranker(options.model, base_url=options.base_url, shuffle=shuffle)
        for shuffle in (0, 1)
    )
    same = nothing = 0
    for query in sample:
        hits = router.route(query, limit=None).hits[:POOL]
        passages = [Passage(id=hit.id, text=hit.document.content) for hit in hits]
        picks = [pick(reranker, query, passages) for reranker in (first, second)]
        same += picks[0] == picks[1]
        nothing += picks[0] == ""
    print(f"{len(sample)} queries, up to {POOL} options: {same / len(sample):.1%} equal picks,")
    print(f'"none" in {nothing / len(sample):.1%}')


if __name__ == "__main__":
    main()
