"""How much a few labels help on prompts that were not labelled, without a model.

crossgate eval eval/skills --modes always --runs runs
python eval/few_labels.py runs/skills-test.run.jsonl
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from crossgate import CalibrationError
from crossgate._calibration.calibrating import measured
from crossgate._calibration.fits import groups
from crossgate._decision.router import DEFAULT_PROFILE
from crossgate._evaluation.stored_runs import reblended
from crossgate._values.profile_files import read_profile
from crossgate.calibration import Objective, calibrate
from crossgate.evaluation import Run, read_run


def main() -> None:
    """Print the change of the queries that are decided rightly, for each number of labels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a stored run with the mode always")
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 64, 200])
    parser.add_argument("--draws", type=int, default=6)
    options = parser.parse_args()
    run, before = read_run(options.run), read_profile(DEFAULT_PROFILE)
    queries = [query for query in run.queries if query.scored and not query.mentions_name]
    # A document that has labels is not asked for by the other prompts, as long as enough are left.
    of = np.array(groups(queries, [""] * len(queries), loosely=True))
    random = np.random.default_rng(1)
    for size in options.sizes:
        changes, refused = [], 0
        for _ in range(options.draws):
            order = random.permutation(len(queries))
            labelled = [queries[place] for place in order[:size]]
            taken = set(of[order[:size]]) if size < 100 else set()
            others = [queries[place] for place in order[size:] if of[place] not in taken]
            try:
                fitted = calibrate(
                    [Run(header=run.header, queries=tuple(labelled))], Objective(), before=before
                )
            except CalibrationError:  # too few of these labels; the profile stays as it is
                changes.append(0.0)
                refused += 1
                continue
            right = [
                measured([reblended(query, profile) for query in others], profile).right.mean()
                for profile in (before, fitted.profile)
            ]
            changes.append(100 * (right[1] - right[0]))
        print(
            f"{size:5} labels: {np.mean(changes):+.1f} points [worst {min(changes):+.1f}], "
            f"{refused} of {options.draws} draws refused"
        )


if __name__ == "__main__":
    main()
