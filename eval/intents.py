"""Prints whether prompts with several right documents gain from routing each clause on its own.

    python eval/intents.py eval/skills BFCL SEAL-TOOLS

The script counts the prompts with two right documents or more. For them it prints the share whose
documents are all on the shortlist, with its mean length, in three ways: `whole`, the shortlist of
the prompt; `longer`, the first documents of the prompt, as many as `added` lists; and `added`, the
shortlist of the prompt and the first document for each clause, as `ToolRouter` lists them. Stage 1
alone decides.
"""

from __future__ import annotations

from shortlist import given_datasets

from crossgate import Index, Router
from crossgate._decision.tool_router import clauses

MOST = 5


def main() -> None:
    """Measure the given datasets."""
    for folder, dataset in given_datasets():
        router = Router(Index.build(dataset.documents), reranker=None)
        matched = [query for query in dataset.queries if query.relevant]
        several = [query for query in matched if len(query.relevant) > 1]
        print(f"{folder}: {len(matched)} prompts with a match, {len(several)} with several")
        covered = {"whole": 0, "longer": 0, "added": 0}
        listed = dict.fromkeys(covered, 0)
        for query in several:
            result = router.route(query.text, max_shortlist=MOST)
            whole = [hit.id for hit in result.shortlist]
            firsts = [router.route(clause).hits[:1] for clause in clauses(query.text)]
            added = dict.fromkeys([*whole, *(hit.id for hits in firsts for hit in hits)])
            found = {
                "whole": whole,
                "longer": [hit.id for hit in result.hits][: len(added)],
                "added": list(added),
            }
            for way, ids in found.items():
                covered[way] += set(ids) >= set(query.relevant)
                listed[way] += len(ids)
        for way in covered if several else ():
            share, length = covered[way] / len(several), listed[way] / len(several)
            print(f"  {way:8} all right {share:.3f}  mean length {length:.2f}", flush=True)


if __name__ == "__main__":
    main()
