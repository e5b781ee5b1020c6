"""Fits the head that tells questions from orders, and what it says about tools that read or act.

    python fit_questions.py EMBEDDER_FOLDER NEED_JSON

The head is a logistic regression on the embedder's unit vectors: prompts of our own that ask to
read ("has it been merged?", "show me the invoices") against those that ask to act. The weights of
the evidence `acts` and `reads` are those that make the right tools of the split `fit` of
`eval/reads` most likely; the head that they are fitted with has not seen these prompts. Both are
printed, and belong into the profiles. It takes seconds, and needs no torch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from hashes import sha256_of
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from train_need import rows, unit

from crossgate import Document, Index, OnnxEmbedder, Router
from crossgate._values.profile_files import read_profile

Array = NDArray[np.float64]

HERE = Path(__file__).parent
READS = HERE.parent / "eval" / "reads"
RIDGE = 1e-3
FOLDS = 5


def fit(vectors: Array, reads: Array) -> Array:
    """Returns intercept and weights of the head, of shape (1 + dimension,).

    Args:
        vectors: Unit vectors of prompts, of shape (prompts, dimension).
        reads: 1 for a prompt that asks to read, else 0.
    """
    share = np.where(reads == 1, 0.5 / reads.sum(), 0.5 / (1 - reads).sum())

    def loss(head: Array) -> tuple[float, Array]:
        odds = head[0] + vectors @ head[1:]
        error = share * (expit(odds) - reads)
        value = share @ (np.logaddexp(0, odds) - reads * odds) + RIDGE * head[1:] @ head[1:]
        slope = np.concatenate([[error.sum()], vectors.T @ error + 2 * RIDGE * head[1:]])
        return float(value), slope

    start = np.zeros(vectors.shape[1] + 1)
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B").x)


def asked(head: Array, vectors: Array) -> Array:
    """Returns the probability that each prompt asks to read."""
    return np.asarray(expit(head[0] + vectors @ head[1:]))


def weights(prompts: list[str], asks: Array, right: list[str]) -> Array:
    """Returns the weights of `acts` and `reads`.

    Args:
        prompts: Prompts of the split `fit`.
        asks: The probability that each asks to read.
        right: The right tool of each.
    """
    profile = read_profile("default")
    relevance = profile.relevance.stage1
    assert relevance is not None
    documents = [
        Document(
            id=str(row["_id"]),
            title=str(row["title"]),
            text=str(row["text"]),
            metadata=dict(row["metadata"]),  # type: ignore[call-overload]
        )
        for row in rows(READS / "corpus.jsonl")
    ]
    only_reads = {document.id: document.metadata["read_only"] for document in documents}
    plain = profile.replace(evidence=profile.evidence.replace(acts=0.0, reads=0.0), per_channel=99)
    router = Router(Index.build(documents), reranker=None, profile=plain)
    cases = []
    for prompt, probability, tool in zip(prompts, asks, right, strict=True):
        hits = router.route(prompt, limit=None).hits
        base = [
            relevance.cosine * (hit.cosine or 0.0)
            + relevance.bm25 * hit.bm25 / (hit.bm25 + profile.blend.pivot)
            for hit in hits
        ]
        reads = np.asarray([only_reads[hit.id] for hit in hits])
        sure = 2 * probability - 1  # above even odds, as the core counts it
        pieces = np.stack([max(0.0, sure) * ~reads, max(0.0, -sure) * reads], axis=1)
        cases.append((np.asarray(base), pieces, [hit.id for hit in hits].index(tool)))

    def loss(pair: Array) -> float:
        lost = [
            logsumexp(base + pieces @ pair) - (base + pieces @ pair)[place]
            for base, pieces, place in cases
        ]
        return float(np.mean(lost) + RIDGE * pair @ pair)

    return np.asarray(minimize(loss, np.zeros(2)).x)


def main() -> None:
    """Fits and writes the head, and prints the weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embedder", type=Path, help="folder of the embedder")
    parser.add_argument("output", type=Path, help="the embedder's need.json, which is changed")
    options = parser.parse_args()

    judged = {
        line.split("\t")[0]: line.split("\t")[1]
        for line in (READS / "qrels" / "fit.tsv").read_text(encoding="utf-8").splitlines()[1:]
    }
    own = [row for row in rows(READS / "queries.jsonl") if row["_id"] in judged]
    prompts = [str(row["text"]) for row in own]
    kinds = [str(row["metadata"]["kind"]) for row in own]  # type: ignore[index]
    more = rows(HERE / "prompts" / "questions.jsonl")
    embedder = OnnxEmbedder(options.embedder)
    vectors = unit(embedder.embed([*prompts, *(str(row["text"]) for row in more)]))
    kinds += [str(row["kind"]) for row in more]
    reads = np.asarray([float(kind == "question") for kind in kinds])

    unseen = np.zeros(len(kinds))
    for fold in range(FOLDS):
        held = np.arange(len(kinds)) % FOLDS == fold
        unseen[held] = asked(fit(vectors[~held], reads[~held]), vectors[held])
    print(f"right, unseen: {np.mean((unseen > 0.5) == (reads == 1)):.3f} of {len(kinds)}")
    right = [judged[str(row["_id"])] for row in own]
    acts, only = weights(prompts, unseen[: len(prompts)], right)
    print(f'"acts": {acts:.1f}, "reads": {only:.1f}')

    head = fit(vectors, reads)
    values = json.loads(options.output.read_text(encoding="utf-8"))
    values["question"] = {
        "intercept": round(float(head[0]), 5),
        "weights": [round(float(weight), 5) for weight in head[1:]],
    }
    options.output.write_text(json.dumps(values) + "\n", encoding="utf-8")
    print(f"size = {options.output.stat().st_size:_}")
    print(f'sha256 = "{sha256_of(options.output)}"')


if __name__ == "__main__":
    main()
