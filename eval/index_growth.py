"""Measures an index of growing size: documents of 60 words with precomputed vectors.

    python eval/index_growth.py --sizes 100,1000,10000

A million documents take minutes and 12 GB of memory. The memory is that of a process with one
search, and is not measured on Windows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from crossgate import _core
from crossgate._cli.bench import Texts, unit_vectors, usage_of

COLUMNS = (
    *("documents", "add, s", "save, s", "file, MB"),
    *("open, ms", "first search, ms", "next searches, ms", "memory, MiB"),
)
SEARCH = """
import sys
from crossgate import _core
index = _core.Index.open(sys.argv[1])
index.search(sys.argv[2], [1.0] * 384, per_channel=10)
"""


def seconds(run: Callable[[], object]) -> float:
    """Return the time of a call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def figures(size: int, repetitions: int) -> list[float]:
    """Return the figures of an index of a size, in the order of `COLUMNS`."""
    texts = Texts()
    words = [texts.text(12) for _ in range(20)]
    queries = list(zip(words, unit_vectors(20, seed=1), strict=True))
    vectors = enumerate(unit_vectors(size))
    rows: list[Any] = [(str(at), "", texts.text(60), "", [], "{}", row) for at, row in vectors]
    core = _core.Index("none", "growth", 384)
    added = seconds(lambda: core.upsert(rows))
    rows.clear()
    opened, first = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "index.cgx"
        saved = seconds(lambda: core.save(file))
        for _ in range(repetitions):
            opened.append(1e3 * seconds(lambda: _core.Index.open(file)))
            index = _core.Index.open(file)
            first.append(1e3 * seconds(partial(index.search, *queries[0], per_channel=10)))
        later = [1e3 * seconds(partial(core.search, *each, per_channel=10)) for each in queries]
        command = [sys.executable, "-P", "-c", SEARCH, str(file), words[0]]
        peak = usage_of(command)[1] if sys.platform != "win32" else float("nan")
        megabytes = file.stat().st_size / 1e6
    return [size, added, saved, megabytes, median(opened), median(first), median(later), peak]


def main() -> None:
    """Print a row of a table in Markdown for each size."""
    parser = argparse.ArgumentParser(description="Measures an index of growing size.")
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of documents")
    parser.add_argument("--repetitions", type=int, default=3, help="openings of each file")
    options = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for size in map(int, options.sizes.split(",")):
        print(f"| {' | '.join(f'{value:,.4g}' for value in figures(size, options.repetitions))} |")


if __name__ == "__main__":
    main()
