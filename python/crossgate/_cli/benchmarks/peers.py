"""Runs other libraries, as far as they are installed, on the same tasks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crossgate._support.errors import InputError

NAMES = ("numpy", "bm25s", "fastembed", "flashrank")
"""The values of `--against`; each is also the name of a package."""


def chosen(names: str | None) -> tuple[str, ...]:
    """Return the libraries in a comma-separated list; None for all that are installed.

    Raises:
        InputError: `out_of_range` for a name that is unknown, or not installed.
    """
    if names is None:
        return tuple(name for name in NAMES if find_spec(name) is not None)
    found = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for name in found:
        if name not in NAMES:
            raise InputError(
                "out_of_range", f"--against {name}: choose from {', '.join(NAMES)}, with commas"
            )
        if find_spec(name) is None:
            raise InputError(
                "out_of_range", f"--against {name}: it is not installed; pip install {name}"
            )
    return found


def bm25s(texts: Sequence[str]) -> Callable[[str, int], object]:
    """Return a function that searches the texts with bm25s, in one thread."""
    import logging

    import bm25s as library

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    index = library.BM25()
    index.index([text.split() for text in texts], show_progress=False)

    def search(query: str, limit: int) -> object:
        return index.retrieve([query.split()], k=limit, show_progress=False, n_threads=1)

    return search


def numpy(vectors: Any) -> Callable[[Any, int], object]:
    """Return a function that finds the nearest vectors: one product, and a partial sort."""
    import numpy as library

    def search(vector: Any, limit: int) -> object:
        cosines = vectors @ vector
        nearest = library.argpartition(cosines, -limit)[-limit:]
        return nearest[library.argsort(-cosines[nearest])]

    return search


def flashrank(model: Path, folder: Path) -> Callable[[str, Sequence[str]], object]:
    """Return a function that reranks with FlashRank and a model of crossgate.

    Args:
        model: The folder of a cross-encoder.
        folder: An empty folder; the model is copied to it as FlashRank's cache, so that nothing is
            downloaded.
    """
    from flashrank import Ranker, RerankRequest
    from flashrank.Config import model_file_map

    name = "ms-marco-MiniLM-L-12-v2"
    files = folder / name
    files.mkdir()
    shutil.copy(model / "model.onnx", files / model_file_map[name])
    shutil.copy(model / "tokenizer.json", files / "tokenizer.json")
    settings: dict[str, dict[str, object]] = {
        "config.json": {"pad_token_id": 0},
        "tokenizer_config.json": {"model_max_length": 512, "pad_token": "[PAD]"},
        "special_tokens_map.json": {"pad_token": "[PAD]"},
    }
    for file, values in settings.items():
        (files / file).write_text(json.dumps(values), encoding="utf-8")
    ranker = Ranker(model_name=name, cache_dir=str(folder), log_level="ERROR")

    def score(query: str, texts: Sequence[str]) -> object:
        return ranker.rerank(
            RerankRequest(query=query, passages=[{"text": text} for text in texts])
        )

    return score
