"""Runs of a small dataset for tests, measured with stand-ins for the models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beir_folder import write_beir
from conftest import FunctionReranker, WordEmbedder
from crossgate import PairScore, Policy, Profile
from crossgate._core import (
    Answer,
    AnyFits,
    Combine,
    Relevance,
    Stage1AnyFits,
    Stage1Relevance,
    Winner,
)
from crossgate._evaluation.collecting import measure
from crossgate._evaluation.label_files import read_dataset
from crossgate._evaluation.labels import Dataset
from crossgate._evaluation.stored_runs import Run, read_run

PROFILE = Profile(
    name="small",
    # An even chance at a cosine of 0.35, below which the gate finds nothing relevant.
    any_fits=AnyFits(stage1=Stage1AnyFits(intercept=-3.5, cosine=10.0)),
    relevance=Relevance(stage1=Stage1Relevance(cosine=10.0)),
    answer=Answer(rerank_threshold=0.5),
    winner=Winner(agreed=0.15),
    per_channel=4,
    pool=3,
    combine=Combine.Replace(),
)
POLICY = Policy(rerank_min=-60.0, lexical={"score": 1.8, "margin": 1.8})


class SharedWords(FunctionReranker):
    """Prefers documents that share letters with the query, which gives a deterministic order."""

    name = "shared"
    identity = "shared@1"

    def __init__(self) -> None:
        super().__init__(self._scores)

    @staticmethod
    def _scores(query: str, documents: Sequence[str]) -> list[PairScore]:
        return [
            PairScore(len(set(query) & set(document)) - 0.8 * len(document))
            for document in documents
        ]


def measured(folder: Path, dataset: Dataset | None = None, **options: Any) -> Run:
    """Measure a small dataset with stand-ins for the models and read the run."""
    made = dataset or read_dataset(write_beir(folder / "set"))
    path = folder / "set.run.jsonl"
    choices: dict[str, Any] = {
        "profile": PROFILE,
        "policy": POLICY,
        "embedder": WordEmbedder(),
        "reranker": SharedWords(),
        **options,
    }
    measure(made, path, **choices)
    return read_run(path)
