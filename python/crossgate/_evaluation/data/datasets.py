"""Reads labelled datasets: BEIR folders and `.jsonl` files, whole or a sample."""

from __future__ import annotations

import os
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from crossgate._evaluation.data.beir import read_beir
from crossgate._evaluation.data.labelled_lines import read_labelled_lines
from crossgate._evaluation.data.labels import Dataset, LabelledQuery, ProblemLog
from crossgate._support.checks import check_path, check_text
from crossgate._support.errors import InputError, SourceError
from crossgate._support.wording import share_of

__all__ = ["Dataset", "LabelledQuery", "read_dataset", "sample"]


def read_dataset(
    path: str | PathLike[str],
    *,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    strict: bool = False,
) -> Dataset:
    """Read a labelled dataset.

    Args:
        path: A BEIR folder (see `crossgate._evaluation.data.beir`) or a `.jsonl` file (see
            `crossgate._evaluation.data.labelled_lines`).
        split: Name of the split; None for `test`, else `dev`, else the only one.
        limit: Keep a sample of at most this many queries; None for all.
        seed: Seed of the sample.
        strict: Whether a malformed row is fatal. Otherwise it is skipped and counted.

    Raises:
        InputError: `out_of_range` if the limit is below 1.
        SourceError: `source_missing`, `source_unreadable`, `source_unknown`, `malformed_row`,
            `unknown_split`, `unknown_document`, `unknown_query`, `no_documents`, or `empty_split`
            if no query of the split is left.
    """
    path = Path(check_path("the dataset", path))
    if split is not None:
        check_text("the split", split)
    log = ProblemLog(strict=strict)
    if os.path.isdir(path):
        dataset = read_beir(path, split, log)
    elif not os.path.exists(path):
        raise SourceError("source_missing", f"no such file or folder: {path}")
    elif path.suffix in (".jsonl", ".ndjson"):
        dataset = read_labelled_lines(path, split, log)
    else:
        message = f"{path} is neither a BEIR folder nor a .jsonl file of documents and queries"
        raise SourceError("source_unknown", message)
    if not dataset.documents:
        raise SourceError("no_documents", f"{path} holds no documents{log.hint()}")
    if not dataset.queries:
        message = f"no query of {path} is labelled in the split {dataset.split!r}{log.hint()}"
        raise SourceError("empty_split", message)
    return dataset if limit is None else sample(dataset, limit, seed=seed)


def sample(dataset: Dataset, limit: int, *, seed: int) -> Dataset:
    """Return a dataset with at most `limit` of its queries, chosen by the seed, in their order.

    Raises:
        InputError: `out_of_range` if the limit is below 1.
    """
    if limit < 1:
        raise InputError("out_of_range", f"the limit is {limit}: it must be at least 1")
    count = len(dataset.queries)
    if limit >= count:
        return dataset
    chosen = np.random.default_rng(seed).choice(count, size=limit, replace=False)
    return replace(
        dataset,
        queries=tuple(dataset.queries[position] for position in sorted(chosen.tolist())),
        notes=(
            *dataset.notes,
            f"a sample of {share_of(limit, count, 'query')}, chosen by the seed",
        ),
    )
