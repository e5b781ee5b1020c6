"""Measures routing on a BEIR folder: stage 1, always reranking, and the gate, side by side.

python eval/routing.py DATASET --split dev
python eval/routing.py DATASET --split train --limit 900 -o runs.jsonl   # for fit_profile.py
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from crossgate import CrossEncoder, Hit, Index, PairScore, Profile, Router, RouteResult
from crossgate.profile import Gate, Guardrails
from crossgate.router import DEFAULT_PROFILE
from crossgate.sources import read_sources


@dataclass(frozen=True)
class Query:
    """One labelled query; `gold` is empty where nothing fits."""

    id: str
    text: str
    metadata: dict[str, Any]
    gold: frozenset[str]
    wrong: frozenset[str]


class Remembering:
    """A reranker that reads each pair once, so that all modes share the same logits."""

    def __init__(self, reranker: CrossEncoder) -> None:
        self.name, self.identity = reranker.name, reranker.identity
        self._reranker = reranker
        self._known: dict[tuple[str, str], PairScore] = {}

    def score(self, query: str, documents: Sequence[str]) -> list[PairScore]:
        """Return one score per document."""
        new = [one for one in documents if (query, one) not in self._known]
        for one, score in zip(new, self._reranker.score(query, new) if new else (), strict=True):
            self._known[query, one] = score
        return [self._known[query, one] for one in documents]


def read_queries(folder: Path, split: str) -> list[Query]:
    """Read the queries of a split, those that fit nothing among them."""
    gold: dict[str, set[str]] = {}
    wrong: dict[str, set[str]] = {}
    for kind, pairs in (("qrels", gold), ("negatives", wrong)):
        path = folder / kind / f"{split}.tsv"
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            query, document = line.split("\t")[:2]
            pairs.setdefault(query, set()).add(document)
    rows = [json.loads(line) for line in (folder / "queries.jsonl").open()]
    return [
        Query(
            id=row["_id"],
            text=row["text"],
            metadata=row.get("metadata", {}),
            gold=frozenset(gold.get(row["_id"], ())),
            wrong=frozenset(wrong.get(row["_id"], ())),
        )
        for row in rows
        if row["_id"] in gold
        or row["_id"] in wrong
        or (row.get("metadata", {}).get("no_match") and row["metadata"].get("split") == split)
    ]


def half_of(query: Query) -> int:
    """Return 0 or 1; all queries about one document stand in the same half."""
    about = min(query.gold | query.wrong, default=query.id)
    return hashlib.sha256(about.encode()).digest()[0] % 2


def recall(
    results: Sequence[tuple[Query, RouteResult]], k: int, order: Callable[[Hit], float]
) -> float:
    """Return recall@k, the share of queries with a right document among the first k."""
    found = [
        any(hit.id in query.gold for hit in sorted(result.hits, key=order)[:k])
        for query, result in results
        if query.gold
    ]
    return statistics.mean(found)


def main() -> None:
    """Run the measurement and print it."""
    options = _options()
    queries = read_queries(options.dataset, options.split)
    if options.half is not None:
        queries = [query for query in queries if half_of(query) == options.half]
    random.Random(options.seed).shuffle(queries)
    queries = queries[: options.limit]
    bar = tqdm(desc="embedding", delay=0.5, leave=False, disable=None)

    def progress(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    documents = read_sources([options.dataset], kind="beir").documents
    index = Index.build(documents, progress=progress)
    bar.close()
    profile = Profile.from_file(options.profile)
    open_gate = replace(
        profile, gate=Gate(), stage1_guardrails=Guardrails(), stage2_guardrails=Guardrails()
    )
    reranker = Remembering(CrossEncoder())
    # Gated first, so that its timings are those of pairs that nobody has read before.
    routers = {
        "gated": Router(index, reranker=reranker, profile=profile),
        "always": Router(index, reranker=reranker, profile=open_gate),
        "never": Router(index, reranker=None, profile=open_gate),
    }
    results: dict[str, list[tuple[Query, RouteResult]]] = {mode: [] for mode in routers}
    for query in tqdm(queries, desc="routing", leave=False, disable=None):
        vector = index.load_embedder().embed([query.text])[0]
        for mode, router in routers.items():
            limit = 1 if mode == "gated" else None
            results[mode].append((query, router.route(query.text, vector=vector, limit=limit)))
    if options.output:
        with options.output.open("w") as stream:
            for query, result in results["always"]:
                row = {
                    "query": query.id,
                    "metadata": query.metadata,
                    "gold": sorted(query.gold),
                    "wrong": sorted(query.wrong),
                    "trace": result.trace,
                }
                stream.write(json.dumps(row) + "\n")
    unnamed = {
        mode: [pair for pair in pairs if not pair[0].metadata.get("mentions_name")]
        for mode, pairs in results.items()
    }
    print(f"{platform.machine()}, {platform.processor() or 'unknown processor'}")
    what = f"{options.dataset.name} {options.split}, {len(documents)} documents"
    print(f"{what}, profile {profile.name}, embedding of the query not counted in times")
    _report("all queries", results)
    if len(unnamed["never"]) < len(queries):
        _report("queries that do not name the document", unnamed)


def _report(title: str, results: dict[str, list[tuple[Query, RouteResult]]]) -> None:
    matched = sum(bool(query.gold) for query, _ in results["never"])
    empty = len(results["never"]) - matched
    print(f"\n{title}: {matched} with a match, {empty} without\n")
    never = results["never"]
    orders: dict[str, Callable[[Hit], float]] = {
        "cosine": lambda hit: -(hit.cosine or 0),
        "BM25": lambda hit: -hit.bm25,
        "blend": lambda hit: hit.stage1_rank,
    }
    for name, order in orders.items():
        shares = ", ".join(f"@{k} {recall(never, k, order):.3f}" for k in (1, 3, 12))
        print(f"  {name:<8} recall {shares}")
    ceiling, size = recall(never, 1_000, orders["blend"]), _mean(len(r.hits) for _, r in never)
    print(f"  pool     recall {ceiling:.3f} in {size:.1f} candidates")
    always = recall(results["always"], 1, lambda hit: hit.stage2_rank or 1_000)
    print(f"  always   recall @1 {always:.3f}")
    gated = results["gated"]
    right = _mean(bool(query.gold & {*result.ids}) for query, result in gated if query.gold)
    print(f"  gated    recall @1 {right:.3f}, stage 2 skipped {_skipped(gated):.1%}")
    print(f"           reasons {dict(Counter(result.reason for _, result in gated))}")
    if empty:
        false = _mean(bool(result.selected) for query, result in gated if not query.gold)
        print(f"           picks for queries that fit nothing: {false:.1%}")
    if any(query.wrong for query, _ in gated):
        wrong = _mean(bool(query.wrong & {*result.ids}) for query, result in gated if query.wrong)
        print(f"           picks that the author calls wrong: {wrong:.1%}")
    for stage in (1, 2):
        times = [result.timings["total"] for _, result in gated if result.stage == stage]
        if times:
            print(f"           stage {stage}: median {statistics.median(times):.1f} ms")


def _skipped(results: Sequence[tuple[Query, RouteResult]]) -> float:
    return _mean(result.stage == 1 for _, result in results)


def _mean(values: Any) -> float:
    values = list(values)
    return statistics.mean(values) if values else float("nan")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("dataset", type=Path, help="BEIR folder")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--half", type=int, choices=(0, 1), help="split again, by document")
    parser.add_argument("--limit", type=int, help="route a sample of this many queries")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", type=Path, default=DEFAULT_PROFILE)
    parser.add_argument("-o", "--output", type=Path, help="store one JSON line per query")
    options = parser.parse_args()
    if not (options.dataset / "corpus.jsonl").exists():
        sys.exit(f"{options.dataset} holds no corpus.jsonl: it is no BEIR folder")
    return options


if __name__ == "__main__":
    main()
