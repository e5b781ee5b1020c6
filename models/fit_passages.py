"""Fit the bundled profile for passages, the probability that a candidate of `rerank` fits.

    python fit_passages.py DATA OUTPUT

Calls `rerank` for the questions of `eval/answers`, split `fit`, with the passages that BM25 finds
best. Fits the combination of BM25 and logit, the probability that a passage answers, given its
logit and its coverage of the question, and the promises of the shortlist. Prints how many passages
of public sets the threshold keeps; half of their questions lose the passages that answer. Needs
crossgate, not torch.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from corpora import document_text, read_rows
from hashes import check_hashes
from scipy.special import expit, softmax

from crossgate import Document, Index, Profile, rerank
from crossgate._calibration.fits import Scores, fit_likeliest, fit_logistic, rounded
from crossgate._core import (
    Combine,
    Promise,
    Relevance,
    Shortlist,
    Stage2Relevance,
    fit_shortlist,
)
from crossgate._runtime import model_files
from crossgate._runtime.model_files import PASSAGE_RERANKER
from crossgate._values.profile_files import write_profile

HERE = Path(__file__).parent
OWN = HERE.parent / "eval/answers"
HELD_OUT = (("scifact", "test"), ("pubmedqa", "train"), ("cosqa", "test"))
CANDIDATES = 10
COVERAGE = ("covered", "rarest", "facts")


@dataclass(frozen=True, slots=True)
class Read:
    """One passage with its scores.

    Attributes:
        bm25: BM25 score among the candidates.
        signals: Rerank score, then the signals of coverage.
        evidence: Log-odds of the evidence: dates of the question that the passage lacks.
        answers: Whether the passage answers the question.
        is_first: Whether it was ranked first.
    """

    bm25: float
    signals: tuple[float, ...]
    evidence: float
    answers: bool
    is_first: bool


def labels(folder: Path, split: str) -> dict[str, set[str]]:
    """Return the relevant documents of each question; none for an unanswerable one."""
    found: dict[str, set[str]] = {}
    for kind in ("qrels", "negatives"):
        path = folder / kind / f"{split}.tsv"
        if not path.exists():
            continue
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            query, document, *_ = line.split("\t")
            answers = found.setdefault(query, set())
            if kind == "qrels":
                answers.add(document)
    return found


def asked(
    folder: Path, split: str, count: int | None, seed: int, hide: float
) -> Iterator[list[Read]]:
    """Yield the scored passages of `count` questions of a set in BEIR's layout.

    Args:
        folder: The set.
        split: The split.
        count: Maximum number of questions; None for all.
        seed: Seed of the sample.
        hide: Share of the questions whose relevant passages are left out.
    """
    chance = random.Random(f"{seed} {folder.name}")
    documents = {row["_id"]: document_text(row) for row in read_rows(folder / "corpus.jsonl")}
    index = Index.build(
        [Document(id=id, text=text) for id, text in documents.items()], embedder=None
    )
    relevant = labels(folder, split)
    texts = {row["_id"]: row["text"] for row in read_rows(folder / "queries.jsonl")}
    open_gate = Profile(pool=CANDIDATES, relevance=Relevance(stage2=Stage2Relevance()))
    for id in chance.sample(sorted(relevant), min(count or len(relevant), len(relevant))):
        found = [
            one.id for one in index.search(texts[id], per_channel=CANDIDATES, embed=False).scored
        ]
        if chance.random() < hide:
            found = [one for one in found if one not in relevant[id]]
        candidates = [Document(id=one, text=documents[one]) for one in found[:CANDIDATES]]
        result = rerank(texts[id], candidates, profile=open_gate, embed=False)
        coverage = {row["id"]: row["coverage"] for row in result.trace["stage1"]}
        lacks = {row["id"]: row.get("evidence", {}) for row in result.trace["stage1"]}
        yield [
            Read(
                hit.bm25,
                (hit.rerank_score, *(coverage[hit.id][name] for name in COVERAGE)),
                open_gate.evidence.other_date * lacks[hit.id].get("other_date", 0.0),
                hit.id in relevant[id],
                rank == 0,
            )
            for rank, hit in enumerate(result.hits)
            if hit.rerank_score is not None
        ]


def fit(questions: list[list[Read]], keep: float) -> tuple[Combine.Weighted, Relevance]:
    """Return the combination, and the model of relevance with its threshold.

    Args:
        questions: The scored passages of each question.
        keep: Share of the answering passages in first place that the threshold keeps.
    """
    rows = [
        Scores(
            cosine=np.zeros(len(read)),
            bm25=np.array([one.bm25 for one in read]),
            rerank_score=np.array([one.signals[0] for one in read]),
            evidence=np.array([one.evidence for one in read]),
            right=np.array([one.answers for one in read]),
        )
        for read in questions
        if any(one.answers for one in read)
    ]
    found = fit_likeliest(
        [row.features(Profile().blend) for row in rows],
        [row.right for row in rows],
        offset=[row.evidence for row in rows],
    )
    combine = Combine.Weighted(*map(rounded, found.weights))
    passages = [one for read in questions for one in read]
    # Without BM25, which depends on the other candidates.
    signals = np.array([one.signals for one in passages])
    answers = np.array([float(one.answers) for one in passages])
    # Without the evidence: a model fitted around it takes from a lacking date what evidence adds.
    intercept, *weights = fit_logistic(signals, answers).weights
    names = ("rerank_score", *COVERAGE)
    model = Stage2Relevance(intercept=intercept, **dict(zip(names, weights, strict=True)))
    known = np.sort(
        [
            probability(model, one)
            for read in questions
            for one in read
            if one.is_first and one.answers
        ]
    )
    threshold = math.floor(float(known[math.floor((1 - keep) * len(known))]) * 1e4) / 1e4
    return combine, Relevance(stage2=model, threshold=threshold)


def probability(model: Stage2Relevance, passage: Read) -> float:
    """Return the relevance of a passage."""
    return float(expit((model.intercept or 0.0) + log_weight(model, passage)))


def log_weight(model: Stage2Relevance, passage: Read) -> float:
    """Return the log-weight of a passage."""
    weights = (model.rerank_score, *(getattr(model, name) for name in COVERAGE))
    return float(np.dot(weights, passage.signals)) + passage.evidence


def promises(questions: list[list[Read]], model: Stage2Relevance) -> list[Promise]:
    """Return the promises of a shortlist of passages, from the questions with an answer."""
    found = []
    for read in questions:
        if any(one.answers for one in read):
            shares = softmax([log_weight(model, one) for one in read])
            line = sorted(
                zip(read, shares, strict=True), key=lambda of: (not of[0].is_first, -of[1])
            )
            ranks = enumerate(line, start=1)
            found.append(next((rank, float(share)) for rank, (one, share) in ranks if one.answers))
    return fit_shortlist(found)


def kept(questions: list[list[Read]], relevance: Relevance) -> dict[str, float]:
    """Return the shares of passages above the threshold, and of questions with a selection."""
    model, threshold = relevance.stage2, relevance.threshold
    assert model is not None
    assert threshold is not None
    above = {id(one): probability(model, one) >= threshold for read in questions for one in read}
    groups = {
        "answers": [above[id(one)] for read in questions for one in read if one.answers],
        "others": [above[id(one)] for read in questions for one in read if not one.answers],
        "answered": [
            above[id(one)] for read in questions for one in read if one.is_first and one.answers
        ],
        "false_positives": [
            any(above[id(one)] for one in read)
            for read in questions
            if not any(one.answers for one in read)
        ],
    }
    return {name: round(float(np.mean(group)), 3) for name, group in groups.items() if group}


def main() -> None:
    """Reads the arguments, asks, fits and writes the profile."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("output", type=Path, help="file to write, passages.json")
    parser.add_argument("--questions", type=int, default=100, help="maximum number per public set")
    parser.add_argument("--keep", type=float, default=0.87, help="share of first answers to keep")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    check_hashes(options.data, HERE / "data.sha256", [name for name, _ in HELD_OUT])

    questions = list(asked(OWN, "fit", None, options.seed, 0.0))
    combine, relevance = fit(questions, options.keep)
    held_out = {
        f"{name} {split}": kept(
            list(asked(options.data / name, split, options.questions, options.seed, 0.5)), relevance
        )
        for name, split in HELD_OUT
    }
    profile = Profile(
        name="passages",
        reranker=model_files.identity(PASSAGE_RERANKER),
        combine=combine,
        relevance=relevance,
        shortlist=Shortlist(stage2=promises(questions, relevance.stage2 or Stage2Relevance())),
        fitted={
            "command": "python fit_passages.py DATA passages.json",
            "sets": ["answers fit"],
            "questions": len(questions),
            "passages": sum(len(one) for one in questions),
            "keep": options.keep,
            "kept": {"answers fit": kept(questions, relevance), **held_out},
        },
    )
    write_profile(options.output, profile)
    print(json.dumps({**profile.to_dict()["relevance"], **profile.fitted}))


if __name__ == "__main__":
    main()
