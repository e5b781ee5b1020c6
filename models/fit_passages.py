"""Fits the bundled profile for passages: the probability that a candidate of `rerank` fits.

    python fit_passages.py DATA OUTPUT

For questions of public sets it asks `rerank` as a user does, for the passages that BM25 finds best,
half of the time without those that answer, and fits the combination of BM25 and logit, and the
probability that a passage answers. Needs crossgate installed, no torch.
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
from scipy.special import expit

from crossgate import Document, Index, Profile, rerank
from crossgate._calibration.answer_threshold import fit_logistic
from crossgate._calibration.relevance import RIDGE
from crossgate._calibration.weights import Scores, fit_combine
from crossgate._core import Combine, Relevance, Stage2Relevance
from crossgate._runtime.models import cache
from crossgate._runtime.models.manifest import PASSAGE_RERANKER
from crossgate._values.profile_files import write_profile

HERE = Path(__file__).parent
# Sets whose labels name all or nearly all answering passages; and others, to test the threshold.
FITTED = (("scifact", "train"), ("medquad", "train"))
HELD_OUT = (("scifact", "test"), ("pubmedqa", "train"), ("cosqa", "test"))
CANDIDATES = 10


@dataclass(frozen=True, slots=True)
class Read:
    """One candidate that was read: its scores, and whether it answers."""

    bm25: float
    rerank_score: float
    answers: bool


def asked(data: Path, name: str, split: str, count: int, seed: int) -> Iterator[list[Read]]:
    """Yield the scores of the candidates of `count` questions of a set."""
    chance = random.Random(f"{seed} {name}")
    documents = {row["_id"]: document_text(row) for row in read_rows(data / name / "corpus.jsonl")}
    index = Index.build(
        [Document(id=id, text=text) for id, text in documents.items()], embedder=None
    )
    answering: dict[str, set[str]] = {}
    for line in (data / name / f"qrels/{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, _ = line.split("\t")
        answering.setdefault(query, set()).add(document)
    texts = {row["_id"]: row["text"] for row in read_rows(data / name / "queries.jsonl")}
    open_gate = Profile(pool=CANDIDATES)
    for id in chance.sample(sorted(answering), min(count, len(answering))):
        found = [
            candidate.id for candidate in index.search(texts[id], per_channel=CANDIDATES).scored
        ]
        if chance.random() < 0.5:
            found = [candidate for candidate in found if candidate not in answering[id]]
        candidates = [
            Document(id=candidate, text=documents[candidate]) for candidate in found[:CANDIDATES]
        ]
        result = rerank(texts[id], candidates, profile=open_gate)
        yield [
            Read(hit.bm25, hit.rerank_score, hit.id in answering[id])
            for hit in result.hits
            if hit.rerank_score is not None
        ]


def fit(questions: list[list[Read]], keep: float) -> tuple[Combine.Weighted, Relevance]:
    """Returns the combination, and the model of relevance with its threshold.

    Args:
        questions: The scored candidates of each question.
        keep: The share of the answering passages that pass the threshold.
    """
    rows = [
        Scores(
            cosine=np.zeros(len(read)),
            bm25=np.array([passage.bm25 for passage in read]),
            rerank_score=np.array([passage.rerank_score for passage in read]),
            right=np.array([passage.answers for passage in read]),
        )
        for read in questions
        if any(passage.answers for passage in read)
    ]
    combine = fit_combine(rows, Profile().blend)
    passages = [passage for read in questions for passage in read]
    # Without BM25, whose scores depend on which other candidates there are, and on how many.
    scores = np.array([[passage.rerank_score] for passage in passages])
    answers = np.array([float(passage.answers) for passage in passages])
    intercept, (weight,) = fit_logistic(scores, answers, RIDGE)
    model = Stage2Relevance(intercept=intercept, rerank_score=weight)
    known = np.sort(expit(intercept + weight * scores[answers > 0, 0]))
    bar = math.floor(float(known[math.floor((1 - keep) * len(known))]) * 1e4) / 1e4
    return combine, Relevance(stage2=model, threshold=bar)


def kept(questions: list[list[Read]], relevance: Relevance) -> dict[str, float]:
    """Returns the share of the passages, of both kinds, above the threshold."""
    model, bar = relevance.stage2, relevance.threshold
    assert model is not None
    assert bar is not None
    shares = {}
    for name, answers in (("answers", True), ("others", False)):
        scores = [
            passage.rerank_score
            for read in questions
            for passage in read
            if passage.answers == answers
        ]
        known = expit(model.intercept + model.rerank_score * np.array(scores))
        shares[name] = round(float(np.mean(known >= bar)), 3)
    return shares


def main() -> None:
    """Reads the arguments, scores the candidates, and fits and writes the profile."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("output", type=Path, help="file to write, passages.json")
    parser.add_argument("--questions", type=int, default=150, help="how many of each set")
    parser.add_argument("--keep", type=float, default=0.95, help="share of answers above the bar")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    check_hashes(options.data, HERE / "data.sha256", [name for name, _ in (*FITTED, *HELD_OUT)])

    def of(name: str, split: str) -> list[list[Read]]:
        found = list(asked(options.data, name, split, options.questions, options.seed))
        print(f"{name} {split}: {len(found)} questions", flush=True)
        return found

    questions = [question for name, split in FITTED for question in of(name, split)]
    combine, relevance = fit(questions, options.keep)
    profile = Profile(
        name="passages",
        reranker=cache.identity(PASSAGE_RERANKER),
        combine=combine,
        relevance=relevance,
        fitted={
            "command": "python fit_passages.py DATA passages.json",
            "sets": [f"{name} {split}" for name, split in FITTED],
            "questions": len(questions),
            "passages": sum(len(question) for question in questions),
            "keep": options.keep,
            "kept": {
                f"{name} {split}": kept(of(name, split), relevance) for name, split in HELD_OUT
            },
        },
    )
    write_profile(options.output, profile)
    print(json.dumps({**profile.to_dict()["relevance"], **profile.fitted}))


if __name__ == "__main__":
    main()
