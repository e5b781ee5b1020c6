"""Compares crossgate's time with that of numpy, bm25s and FlashRank on the same tasks.

    python eval/peers.py --sizes 1000,10000,100000

The libraries must be installed; a library that is missing is left out. Libraries are timed in
turns, so that other work on the machine slows all of them. A ratio above 1 means that crossgate is
faster.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from crossgate import _core
from crossgate._cli.bench import (
    Run,
    Texts,
    timed,
    unit_vectors,
)
from crossgate._cli.demo import SKILLS
from crossgate._reranking.contract import NO_DEADLINE, passages_of
from crossgate._reranking.cross_encoder import CrossEncoder
from crossgate._runtime.model_files import BUNDLED, PASSAGE_RERANKER


def word_index(texts: Sequence[str]) -> _core.Index:
    """Return an index of texts without vectors."""
    core = _core.Index("none", "", 0)
    core.upsert([(str(at), "", text, "", [], "{}", None) for at, text in enumerate(texts)])
    return core


def vector_index(vectors: Any) -> _core.Index:
    """Return an index of vectors without texts."""
    core = _core.Index("none", "bench", 384)
    core.upsert([(str(at), "", "", "", [], "{}", row) for at, row in enumerate(vectors)])
    return core


def search(core: _core.Index, query: str, vector: Any = None) -> Any:
    """Search an index for the ten best documents of each channel."""
    return core.search(query, vector, per_channel=10)


def in_turn(queries: Sequence[Any], search: Callable[[Any], object]) -> Run:
    """Return a function that searches for the next query at each call, in the same order."""
    turns = cycle(queries)
    return lambda: search(next(turns))


def bm25s(texts: Sequence[str]) -> Callable[[str], object]:
    """Return a function that finds the ten best texts with bm25s, in one thread."""
    import logging

    import bm25s as library

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    index = library.BM25()
    index.index([text.split() for text in texts], show_progress=False)
    return lambda query: index.retrieve([query.split()], k=10, show_progress=False, n_threads=1)


def numpy(vectors: Any) -> Callable[[Any], object]:
    """Return a function that finds the ten nearest vectors: one product, and a partial sort."""
    import numpy as library

    def nearest(vector: Any) -> object:
        cosines = vectors @ vector
        first = library.argpartition(cosines, -10)[-10:]
        return first[library.argsort(-cosines[first])]

    return nearest


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


def pairs(lengths: Sequence[int], repetitions: int) -> None:
    """Compare a cross-encoder with FlashRank, which runs the same file."""
    english = Texts(list(dict.fromkeys(word for skill in SKILLS for word in skill.text.split())))
    query, passages = english.text(10), [english.text(length) for length in lengths]
    model, read = CrossEncoder(PASSAGE_RERANKER), passages_of(passages)
    with tempfile.TemporaryDirectory() as folder:
        score = flashrank(BUNDLED / PASSAGE_RERANKER, Path(folder))
        runs: dict[str, Run] = {
            "crossgate": partial(model.score, query, read, deadline=NO_DEADLINE),
            "flashrank": partial(score, query, passages),
        }
        show(f"16 passages of {lengths[0]} to {lengths[-1]} words", runs, repetitions)


def words(size: int, repetitions: int) -> None:
    """Compare BM25 with bm25s."""
    texts = Texts()
    documents = [texts.text(60) for _ in range(size)]
    queries = [texts.text(12) for _ in range(50)]
    runs = {
        "crossgate": in_turn(queries, partial(search, word_index(documents))),
        "bm25s": in_turn(queries, bm25s(documents)),
    }
    show(f"BM25, {size:,} documents", runs, repetitions)


def vectors(size: int, repetitions: int) -> None:
    """Compare the search by cosine with numpy."""
    rows, queries = unit_vectors(size), list(unit_vectors(50, seed=1))
    runs = {
        "crossgate": in_turn(queries, partial(search, vector_index(rows), "")),
        "numpy": in_turn(queries, numpy(rows)),
    }
    show(f"cosine, {size:,} vectors", runs, repetitions)


def show(case: str, runs: Mapping[str, Run], repetitions: int) -> None:
    """Print the median time of both libraries."""
    ours, theirs = timed(runs, repetitions)
    here, there = median(ours.values), median(theirs.values)
    print(
        f"{case}: {ours.case} {here:.3g} ms, {theirs.case} {there:.3g} ms, ratio {there / here:.2g}"
    )


def main() -> None:
    """Print one line per task and size, for the libraries that are installed."""
    parser = argparse.ArgumentParser(description="Compares crossgate's time with its peers'.")
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of documents")
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    if find_spec("flashrank"):
        for lengths in ([15] * 16, [100] * 16, list(range(10, 170, 10)), [250] * 16):
            pairs(lengths, options.repetitions)
    for size in sizes if find_spec("bm25s") else ():
        words(size, 10 * options.repetitions)
    for size in sizes:
        vectors(size, 10 * options.repetitions)


if __name__ == "__main__":
    main()
