"""Prints how well single signals answer the gate's two questions, from a stored run.

    crossgate eval eval/skills --runs runs
    python eval/signals.py runs/skills-test.run.jsonl

The output is the area under the ROC curve, with its 95 % interval: of a low value for queries that
stage 2 gets right and stage 1 does not, against the other queries with a match; and of a high value
for queries with a match against no-match queries. 0.5 is chance.
"""

from __future__ import annotations

import argparse

import numpy as np

from crossgate._evaluation.metrics import is_right
from crossgate._evaluation.sections import share
from crossgate._evaluation.statistics import area_interval
from crossgate._evaluation.stored_runs import decide
from crossgate.evaluation import StoredQuery, read_run


def main() -> None:
    """Print a line for each signal."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run")
    run = read_run(parser.parse_args().run)

    def is_improved(query: StoredQuery) -> bool:
        """Return whether stage 2 is right where stage 1 is not."""
        first, second = (decide(query, run.header.profile, mode) for mode in ("never", "always"))
        return not is_right(query, first) and is_right(query, second)

    signals = [query.signals or {} for query in run.queries]
    matched = np.array([bool(query.relevant) for query in run.queries])
    improved = np.array([bool(query.relevant) and is_improved(query) for query in run.queries])
    for name in dict.fromkeys(name for values in signals for name in values):
        known = np.array([values.get(name) is not None for values in signals])
        values = np.array([float(row.get(name) or 0.0) for row in signals])
        rerank = area_interval(-values[known & matched], improved[known & matched], seed=0)
        fits = area_interval(values[known], matched[known], seed=0)
        print(f"{name:24} rerank? {share(rerank):24} anything relevant? {share(fits)}")


if __name__ == "__main__":
    main()
