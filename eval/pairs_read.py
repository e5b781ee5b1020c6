"""Compares reading until the rest cannot change the pick with reading all, on stored runs.

    crossgate eval eval/skills --runs runs && python eval/pairs_read.py runs/*.run.jsonl

`gated` is the gate as it is. `one pick` asks for one document, as `limit=1` does, so that reading
may stop; `one pick, all read` is the same without that rule. `always` reads the pool of every
query. recall@1 and nDCG@10 are without thresholds; the shortlist is that of the profile.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crossgate import Profile
from crossgate._evaluation.metrics import measure_answer
from crossgate._evaluation.stored_runs import Mode, Run, decide, read_run


def row(run: Run, profile: Profile, mode: Mode) -> tuple[float, ...]:
    """Return pairs per query, pairs per reranked query, recall@1, nDCG@10 and shortlist length."""
    read, listed, recalls, gains = [], [], [], []
    for query in run.queries:
        result = decide(query, profile, mode)
        read.append(len(result.trace["stage2"]))
        listed.append(len(result.shortlist))
        if query.relevant:
            answer = measure_answer(query, decide(query, profile, mode, hold_back=False))
            recalls.append(answer["recall@1"])
            gains.append(answer["ndcg@10"])
    reranked = [count for count in read if count]
    columns: tuple[Sequence[float | None], ...] = (read, reranked, recalls, gains, listed)
    return tuple(_mean(column) for column in columns)


def _mean(values: Sequence[float | None]) -> float:
    return float(np.mean([value for value in values if value is not None] or [0.0]))


def main() -> None:
    """Print a table."""
    print("| run | | pairs per query | per reranked query | recall@1 | nDCG@10 | shortlist |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for path in map(Path, sys.argv[1:]):
        run = read_run(path)
        profile = run.header.profile
        one = profile.replace(runner_up=profile.runner_up.replace(stage2=0.0))
        cases: tuple[tuple[str, Profile, Mode], ...] = (
            ("gated", profile, "gated"),
            ("one pick", one, "gated"),
            ("one pick, all read", one.replace(anytime=None), "gated"),
            ("always", profile, "always"),
        )
        for name, used, mode in cases:
            pairs, each, recall, gain, listed = row(run, used, mode)
            print(
                f"| {run.header.dataset} | {name} | {pairs:.2f} | {each:.2f} | {recall:.3f} "
                f"| {gain:.3f} | {listed:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
