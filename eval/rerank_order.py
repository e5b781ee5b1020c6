"""Compares ways for `rerank` to combine a retriever's cosines with the cross-encoder's scores.

    python eval/rerank_order.py eval/chunks SCIFACT COSQA --limit 200

The candidates of a query are the ten best by cosine and the ten best by BM25, with the cosines of
the bundled embedder. `rerank` gets them with its default profile, and with others that differ in
`combine`. The last line is for the texts alone. The output has recall@1 and nDCG@10.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from crossgate import Index, Profile, rerank
from crossgate._core import Combine
from crossgate._decision.rerank_candidates import BY_COSINE
from crossgate._evaluation.metrics import ndcg, recall
from crossgate._values.results import RouteResult
from crossgate.evaluation import LabelledQuery, read_dataset
from crossgate.rerankers import CrossEncoder, Deadline, PairScore, Passage

WEIGHTS = (0.25, 0.5, 0.8, 1.1, 1.5)


class Remembering:
    """The cross-encoder, with a cache of its scores."""

    name, identity = "remembering", "remembering@1"

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._model = CrossEncoder("crossgate-passages-minilm-l12")
        self._read: dict[tuple[str, str], PairScore] = {}

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> list[PairScore]:
        """Return the model's scores."""
        new = [passage for passage in passages if (query, passage.text) not in self._read]
        for passage, score in zip(new, self._model.score(query, new).complete(), strict=True):
            self._read[query, passage.text] = score
        return [self._read[query, passage.text] for passage in passages]


def line(name: str, answers: Sequence[tuple[LabelledQuery, RouteResult]]) -> str:
    """Return the figures of one order."""
    ranked = [([hit.id for hit in result.hits], query.relevant) for query, result in answers]
    first = sum(recall(order, relevant, 1) for order, relevant in ranked) / len(ranked)
    gain = sum(ndcg(order, relevant, 10) for order, relevant in ranked) / len(ranked)
    return f"  {name:<36}recall@1 {first:.3f}  nDCG@10 {gain:.3f}"


def main() -> None:
    """Print a line for each order of each dataset."""
    parser = argparse.ArgumentParser(description="Compares ways to combine both stages.")
    parser.add_argument("dataset", nargs="+", help="BEIR folder or .jsonl file")
    parser.add_argument("--split")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    orders = {"cosine and BM25": None, "their ranks and the logits'": Profile().combine}
    orders |= {f"standard scores, logits {weight:g}": Combine.ZScore(weight) for weight in WEIGHTS}
    orders["logits alone"] = Combine.Replace()
    for path in options.dataset:
        dataset = read_dataset(path, split=options.split, limit=options.limit)
        index, queries = Index.build(dataset.documents), [q for q in dataset.queries if q.relevant]
        vectors = index.load_embedder().embed([query.text for query in queries])
        asked = []
        for query, vector in zip(queries, vectors, strict=True):
            found = index.search(query.text, vector, per_channel=10)
            rows = [
                {
                    "id": candidate.id,
                    "text": found.documents[candidate.id].content,
                    "cosine": candidate.cosine,
                }
                for candidate in found.scored
                if candidate.cosine is not None
            ]
            asked.append((query, rows))
        print(f"{dataset.name}: {len(asked)} queries, {sum(len(r) for _, r in asked)} candidates")
        model = Remembering()
        for name, combine in orders.items():
            profile = Profile(combine=combine or Profile().combine, pool=100)
            used = None if combine is None else model
            answers = [
                (query, rerank(query.text, rows, reranker=used, profile=profile))
                for query, rows in asked
            ]
            mark = "  taken by default" if combine == BY_COSINE else ""
            print(line(name, answers) + mark, flush=True)
        texts = [
            (query, [{"id": row["id"], "text": row["text"]} for row in rows])
            for query, rows in asked
        ]
        alone = [(query, rerank(query.text, rows)) for query, rows in texts]
        print(line("texts alone", alone), flush=True)


if __name__ == "__main__":
    main()
