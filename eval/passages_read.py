"""Prints what it costs that `rerank` stops reading when the rest can hardly be selected.

    python eval/passages_read.py SCIFACT:test COSQA:test CLAPNQ:dev SQUAD:dev --questions 50

The candidates are the twelve that an index of the corpus finds best: `search` is their order, and
`all` reads all of them. Unanswerable questions count for the pairs, and for those with a selection.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean, median

from answerable import labels, rows

from crossgate import Document, Index, Profile, read_profile, rerank
from crossgate._evaluation.metrics import ndcg
from crossgate._values.results import RouteResult

CANDIDATES = 12
ROW = "{:22}{:>6}{:>12}{:>12}{:>12}{:>10}{:>10}{:>10}{:>10}"


def figures(asked: list[tuple[set[str], RouteResult]]) -> list[str]:
    """Return the figures of the results of one profile as texts."""
    gains, firsts, kept, selected, wrong, pairs = [], [], [], [], [], []
    for relevant, result in asked:
        pairs.append(sum(hit.rerank_score is not None for hit in result.hits))
        if not relevant:
            wrong.append(bool(result.selected))
            continue
        gains.append(ndcg([hit.id for hit in result.hits], dict.fromkeys(relevant, 1), 10))
        firsts.append(result.hits[0].id in relevant)
        selected.append(len(result.selected))
        if firsts[-1]:
            kept.append(result.hits[0].dropped is None)
    return [
        f"{mean(gains):.3f}",
        f"{mean(firsts):.3f}",
        f"{mean(kept):.2f}",
        f"{mean(wrong):.2f}" if wrong else "-",
        f"{median(selected):g}",
        f"{mean(pairs):.1f}",
        f"{mean(count == 1 for count in pairs):.0%}",
    ]


def main() -> None:
    """Print three lines for each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", help="folder of a set in BEIR's layout, and its split")
    parser.add_argument("--questions", type=int, help="every n-th question, N in all")
    options = parser.parse_args()
    stopping = read_profile("passages")
    reading = stopping.replace(anytime=None, runner_up=Profile().runner_up)
    names = ("nDCG@10", "first", "kept", "answered", "selected", "pairs", "one pair")
    print(ROW.format("set", "", *names))
    for given in options.sets:
        folder, _, split = given.rpartition(":")
        documents = [
            Document(id=row["_id"], title=row.get("title", ""), text=row["text"])
            for row in rows(Path(folder) / "corpus.jsonl")
        ]
        index = Index.build(documents)
        questions = {row["_id"]: row["text"] for row in rows(Path(folder) / "queries.jsonl")}
        relevant = labels(Path(folder), split)
        asked = sorted(relevant)
        if options.questions:
            asked = asked[:: max(1, len(asked) // options.questions)][: options.questions]
        found = {id: index.search(questions[id], limit=CANDIDATES).candidates for id in asked}
        answerable = [id for id in asked if relevant[id]]
        orders = [[candidate.id for candidate in found[id]] for id in answerable]
        gains = [
            ndcg(order, dict.fromkeys(relevant[id], 1), 10)
            for id, order in zip(answerable, orders, strict=True)
        ]
        firsts = [order[0] in relevant[id] for id, order in zip(answerable, orders, strict=True)]
        unread = f"{mean(gains):.3f}", f"{mean(firsts):.3f}"
        print(ROW.format(Path(folder).name, "search", *unread, *"-----"), flush=True)
        for name, profile in (("stops", stopping), ("all", reading)):
            results = [
                (relevant[id], rerank(questions[id], found[id], profile=profile)) for id in asked
            ]
            print(ROW.format(Path(folder).name, name, *figures(results)), flush=True)


if __name__ == "__main__":
    main()
