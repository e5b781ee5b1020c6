"""Fit the bundled profile for passages, by which `rerank`, and `Router` over passages, decide.

    python fit_passages.py DATA READS OUTPUT

Asks questions of `eval/answers` (split `fit`), and of the training splits of SQuAD, CoSQA and
SciFact, whose passages the bundled embedder and BM25 find and the cross-encoder reads; READS keeps
the scores, so that an interrupted run continues. Fits the order, the probability that a passage
answers, when reading stops, and how far behind the first a further passage is still selected.
Questions that the cross-encoder was trained on are left out, so `train_passages` is imported, which
needs torch.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from hashes import check_hashes
from numpy.typing import NDArray
from scipy.special import expit, softmax

from crossgate import Document, Index, Profile, rerank
from crossgate._calibration.calibrating import SECOND_PICK
from crossgate._calibration.fits import Scores, fit_anytime, fit_logistic
from crossgate._core import (
    Answer,
    Combine,
    Promise,
    Relevance,
    RunnerUpRule,
    Shortlist,
    Stage2Relevance,
    fit_shortlist,
)
from crossgate._evaluation.metrics import ndcg
from crossgate._runtime import model_files
from crossgate._runtime.model_files import PASSAGE_RERANKER
from crossgate._values.profile_files import write_profile

HERE = Path(__file__).parent
OWN = "answers"
SETS = (OWN, "squad", "cosqa", "scifact")
WITH_UNANSWERABLE = (OWN, "squad")
"""The sets whose other passages were judged; in the others, unlabelled passages may answer."""

COVERAGE = ("covered", "rarest", "facts")
PER_CHANNEL, CANDIDATES = 8, 12
QUESTIONS = {OWN: 140, "cosqa": 50, "scifact": 50}
ARTICLES, ANSWERABLE, UNANSWERABLE = 10, 100, 80
OTHER_PASSAGES = {"squad": 200, "cosqa": 600, "scifact": 600}

RERANK_SCORE = 0.5
"""Weight of the logit in the order, which makes it a sum of log-odds as the evidence is."""
COSINES, BM25S = (8, 16, 24, 32, 40, 50, 60, 80), (6, 12, 18, 24, 32)
"""Weights to try, as multiples of that of the logit."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Read:
    """The read passages of one question, as arrays of one number per passage.

    Attributes:
        cosine: Cosines.
        bm25: BM25 scores among the candidates.
        signals: Rerank score, then the signals of coverage; of shape (passages, 4).
        evidence: Log-odds of the evidence: dates of the question that the passage lacks.
        right: Whether the passage answers the question.
        relevant: How many passages of the corpus answer it; 0 for an unanswerable question.
    """

    cosine: Array
    bm25: Array
    signals: Array
    evidence: Array
    right: NDArray[np.bool_]
    relevant: int

    def order(self, weights: Combine.Weighted) -> tuple[NDArray[np.intp], Array]:
        """Return the positions of the passages, best first, and their combined scores."""
        bounded = self.bm25 / (self.bm25 + Profile().blend.pivot)
        scores = weights.cosine * self.cosine + weights.bm25 * bounded + self.evidence
        scores = scores + weights.rerank_score * self.signals[:, 0]
        return np.argsort(-scores, kind="stable"), scores


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def labels(folder: Path, split: str) -> dict[str, set[str]]:
    """Return the relevant documents of each question; none for an unanswerable one."""
    found: dict[str, set[str]] = {}
    for kind in ("qrels", "negatives"):
        path = folder / kind / f"{split}.tsv"
        for line in path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []:
            query, document, *_ = line.split("\t")
            answers = found.setdefault(query, set())
            if kind == "qrels":
                answers.add(document)
    return found


def trained_on(data: Path) -> set[str]:
    """Return the questions that the shipped cross-encoder was trained on."""
    from train_passages import PAIRS_PER_STEP, all_pairs

    first = all_pairs(data, None, 2)[: 700 * PAIRS_PER_STEP]
    second = all_pairs(data, HERE / "prompts" / "passages.jsonl", 6)[: 260 * PAIRS_PER_STEP]
    return {pair.question for pair in first + second}


def chosen(
    name: str, data: Path
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]], dict[str, set[str]], list[str]]:
    """Return passages, questions, labels, and ids of the questions to ask of a set."""
    folder = HERE.parent / "eval" / OWN if name == OWN else data / name
    documents = rows(folder / "corpus.jsonl")
    questions = {row["_id"]: row for row in rows(folder / "queries.jsonl")}
    relevant = labels(folder, "fit" if name == OWN else "train")
    chance = random.Random(7)
    if name == "squad":
        about = {id: row["metadata"] for id, row in questions.items()}
        for id, of in about.items():
            if of["split"] == "train" and of["no_match"]:
                relevant[id] = set()
        seen = trained_on(data)
        unseen = {id: of for id, of in relevant.items() if questions[id]["text"] not in seen}
        seemingly = sorted({about[id]["article"] for id in unseen if not unseen[id]})
        others = sorted({about[id]["article"] for id in unseen if unseen[id]} - set(seemingly))
        articles = {*chance.sample(seemingly, ARTICLES), *chance.sample(others, ARTICLES)}
        relevant = {id: of for id, of in unseen.items() if about[id]["article"] in articles}
        answerable = sorted(id for id in relevant if relevant[id])
        unanswerable = sorted(id for id in relevant if not relevant[id])
        asked = chance.sample(answerable, min(len(answerable), ANSWERABLE))
        asked += chance.sample(unanswerable, min(len(unanswerable), UNANSWERABLE))
        kept = {of["near"] for of in about.values() if of["article"] in articles}
    else:
        asked = chance.sample(sorted(relevant), min(len(relevant), QUESTIONS[name]))
        kept = set().union(*(relevant[id] for id in asked))
    if name in OTHER_PASSAGES:
        others = [row for row in documents if row["_id"] not in kept]
        documents = [row for row in documents if row["_id"] in kept]
        documents += chance.sample(others, OTHER_PASSAGES[name])
    random.Random(3).shuffle(asked)
    return documents, questions, relevant, asked


def read(name: str, data: Path, reads: Path) -> list[Read]:
    """Ask the questions of a set that were not asked yet, and return the scores of all."""
    reads.mkdir(parents=True, exist_ok=True)
    file = reads / f"{name}.jsonl"
    documents, questions, relevant, asked = chosen(name, data)
    done = {row["id"]: row for row in rows(file)} if file.exists() else {}
    if set(asked) - set(done):
        index = Index.build(
            Document(id=row["_id"], title=row.get("title", ""), text=row["text"])
            for row in documents
        )
        open_gate = Profile(pool=CANDIDATES, relevance=Relevance(stage2=Stage2Relevance()))
        with file.open("a", encoding="utf-8") as stream:
            for id in asked:
                if id in done:
                    continue
                text = questions[id]["text"]
                vector = index.load_embedder().embed([text])[0]
                found = index.search(text, vector, per_channel=PER_CHANNEL, limit=CANDIDATES)
                result = rerank(text, found.candidates, profile=open_gate)
                stage1 = {row["id"]: row for row in result.trace["stage1"]}
                passages = [
                    {
                        "cosine": hit.cosine,
                        "bm25": hit.bm25,
                        "signals": [hit.rerank_score]
                        + [stage1[hit.id]["coverage"][name] for name in COVERAGE],
                        "other_date": stage1[hit.id].get("evidence", {}).get("other_date", 0.0),
                        "right": hit.id in relevant[id],
                    }
                    for hit in result.hits
                    if hit.rerank_score is not None
                ]
                done[id] = {"id": id, "relevant": len(relevant[id]), "passages": passages}
                stream.write(json.dumps(done[id]) + "\n")
                stream.flush()
    return [
        Read(
            cosine=np.array([one["cosine"] for one in row["passages"]]),
            bm25=np.array([one["bm25"] for one in row["passages"]]),
            signals=np.array([one["signals"] for one in row["passages"]]),
            evidence=Profile().evidence.other_date
            * np.array([one["other_date"] for one in row["passages"]]),
            right=np.array([one["right"] for one in row["passages"]]),
            relevant=row["relevant"],
        )
        for row in (done[id] for id in asked)
        if len(row["passages"]) > 1
    ]


def gain(questions: Sequence[Read], weights: Combine.Weighted) -> float:
    """Return the mean nDCG@10 of the answerable questions of a set."""
    gains = []
    for one in questions:
        if one.relevant:
            order, _ = one.order(weights)
            right = [str(place) for place in np.flatnonzero(one.right)]
            missed = [f"missed {number}" for number in range(one.relevant - len(right))]
            relevant = dict.fromkeys([*right, *missed], 1)
            gains.append(ndcg([str(place) for place in order], relevant, 10))
    return float(np.mean(gains))


def fit_order(sets: dict[str, list[Read]]) -> Combine.Weighted:
    """Return the weights with the best mean nDCG@10 over the sets, with cosines and without."""
    without = {
        name: [replace(one, cosine=np.zeros_like(one.cosine)) for one in read]
        for name, read in sets.items()
    }
    tried = [
        Combine.Weighted(
            cosine=RERANK_SCORE * cosine, bm25=RERANK_SCORE * bm25, rerank_score=RERANK_SCORE
        )
        for cosine in COSINES
        for bm25 in BM25S
    ]
    alike = [*sets.values(), *without.values()]
    return max(tried, key=lambda of: np.mean([gain(read, of) for read in alike]))


def fit_relevance(
    sets: dict[str, list[Read]], order: Combine.Weighted, keep: float
) -> tuple[Relevance, float]:
    """Return the model of relevance, and how far behind the first a further pick may be.

    Args:
        sets: The scores of each set.
        order: The weights of the order.
        keep: Share of the answers in first place that the threshold keeps.
    """
    # Only on our own questions: those of SQuAD were written to share the words of a paragraph, and
    # with them, names and dates that a passage lacks hardly count.
    signals = np.concatenate([one.signals for one in sets[OWN]])
    right = np.concatenate([one.right for one in sets[OWN]])
    # Without the evidence: a model fitted around it takes from a lacking date what evidence adds.
    intercept, *weights = fit_logistic(signals, right.astype(np.float64)).weights
    names = ("rerank_score", *COVERAGE)
    # An unread candidate counts as an average one on the shortlist.
    unread = float(weights[0] * signals[:, 0].mean())
    model = Stage2Relevance(
        intercept=intercept, unread=round(unread, 4), **dict(zip(names, weights, strict=True))
    )
    firsts, leads = [], []
    for one in (one for name in WITH_UNANSWERABLE for one in sets[name]):
        best = one.order(order)[0][0]
        if one.right[best]:
            firsts.append(float(probabilities(model, one)[best]))
    for one in (one for read in sets.values() for one in read if one.relevant):
        places, scores = one.order(order)
        leads.append((scores[places[0]] - scores[places[1]], bool(one.right[places[1]])))
    leads.sort()
    often = np.cumsum([right for _, right in leads]) / np.arange(1, len(leads) + 1)
    behind = leads[int(np.flatnonzero(often >= SECOND_PICK)[-1])][0]
    threshold = math.floor(np.quantile(firsts, 1 - keep) * 1e4) / 1e4
    return Relevance(stage2=model, threshold=threshold), round(float(behind), 4)


def log_weights(model: Stage2Relevance, one: Read) -> Array:
    """Return the log-weights of a question's passages."""
    weights = [model.rerank_score, *(getattr(model, name) for name in COVERAGE)]
    found: Array = one.signals @ np.array(weights) + one.evidence
    return found


def probabilities(model: Stage2Relevance, one: Read) -> Array:
    """Return the relevances of a question's passages."""
    found: Array = expit((model.intercept or 0.0) + log_weights(model, one))
    return found


def promises(
    questions: Sequence[Read], model: Stage2Relevance, order: Combine.Weighted
) -> list[Promise]:
    """Return the promises of a shortlist of passages, from the questions with an answer."""
    found = []
    for one in questions:
        if one.right.any():
            first = one.order(order)[0][0]
            shares = softmax(log_weights(model, one))
            line = sorted(range(len(shares)), key=lambda at: (at != first, -shares[at]))
            rank = next(rank for rank, at in enumerate(line, start=1) if one.right[at])
            found.append((rank, float(shares[line[rank - 1]])))
    return fit_shortlist(found)


def main() -> None:
    """Reads the arguments, asks, fits and writes the profile."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("reads", type=Path, help="folder of the scores")
    parser.add_argument("output", type=Path, help="file to write, passages.json")
    parser.add_argument("--keep", type=float, default=0.935, help="share of first answers to keep")
    options = parser.parse_args()
    check_hashes(options.data, HERE / "data.sha256", [name for name in SETS if name != OWN])

    sets = {name: read(name, options.data, options.reads) for name in SETS}
    order = fit_order(sets)
    relevance, behind = fit_relevance(sets, order, options.keep)
    model = relevance.stage2
    assert model is not None
    scores = [
        Scores(one.cosine, one.bm25, one.signals[:, 0], one.evidence, one.right)
        for read in sets.values()
        for one in read
    ]
    profile = Profile(
        name="passages",
        reranker=model_files.identity(PASSAGE_RERANKER),
        combine=order,
        pool=CANDIDATES,
        # If the first passage does not answer, another that seems to is mostly chance.
        answer=Answer(confidence=relevance.threshold),
        relevance=relevance,
        runner_up=RunnerUpRule(stage2=behind),
        anytime=fit_anytime(scores),
        shortlist=Shortlist(stage2=promises(sets[OWN], model, order)),
        fitted={
            "command": "python fit_passages.py DATA READS passages.json",
            "keep": options.keep,
            "questions": {name: len(read) for name, read in sets.items()},
            "passages": sum(len(one.right) for read in sets.values() for one in read),
            "ndcg@10": {name: round(gain(read, order), 3) for name, read in sets.items()},
        },
    )
    write_profile(options.output, profile)
    values = profile.to_dict()
    shown = ("combine", "relevance", "runner_up", "anytime", "fitted")
    print(json.dumps({name: values[name] for name in shown}))


if __name__ == "__main__":
    main()
