"""Compares the first picks of a cross-encoder with those of a stored run."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

from corpora import document_text, read_rows

from crossgate import CrossEncoder, Profile
from crossgate._evaluation.stored_runs import decide, read_run, reblended
from crossgate._values.profile_files import read_profile
from crossgate.rerankers import passages_of

PROFILE = Path(__file__).parents[1] / "python/crossgate/profiles/default.json"


def compare(reranker: CrossEncoder, run: Path, dataset: Path, profile: Profile) -> str:
    """Returns a line with the recall@1 of both, of the cascade and by the logit alone.

    Args:
        reranker: The other cross-encoder.
        run: The run of the dataset by `crossgate eval --modes always --runs`; queries that name
            a fitting document are left out.
        dataset: Its BEIR folder.
        profile: The profile that decides, which always reranks and has no thresholds.
    """
    texts = {row["_id"]: document_text(row) for row in read_rows(dataset / "corpus.jsonl")}
    right: Counter[str] = Counter()
    moved: list[float] = []
    changed = queries = 0
    for stored in read_run(run).queries:
        if not stored.pairs or stored.mentions_name or not stored.relevant:
            continue
        query = reblended(stored, profile)
        pool = [candidate.id for candidate in query.scored[: profile.pool]]
        scores = reranker.score(query.text, passages_of(texts[id] for id in pool)).complete()
        other = dict(zip(pool, scores, strict=True))
        picks = {}
        for name, pairs in (("stored", query.pairs), ("other", other)):
            scored = replace(query, pairs=pairs)
            picks[name] = decide(scored, profile, "always", hold_back=False).ids[0]
            right[name] += picks[name] in query.relevant
            right[f"{name} alone"] += max(pool, key=lambda id: pairs[id].score) in query.relevant
        changed += picks["stored"] != picks["other"]
        queries += 1
        moved += [abs(query.pairs[id].score - other[id].score) for id in pool]
    if not queries:
        raise SystemExit(
            f"{run}: no query with logits and a fitting document that it does not name"
        )
    shares = ", ".join(f"{name} {count / queries:.3f}" for name, count in right.items())
    return (
        f"{dataset.name}: recall@1 {shares}; first pick changed {changed} of {queries}; "
        f"logits moved {max(moved):.3f} at most, {sum(moved) / len(moved):.3f} on average"
    )


def main() -> None:
    """Reads the arguments and prints a line for each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", help="folder of the other cross-encoder, as `build.py` wrote it")
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("runs", type=Path, nargs="+", help="stored runs, named SET-SPLIT.run.jsonl")
    parser.add_argument("--profile", type=Path, default=PROFILE, help="default: the bundled one")
    arguments = parser.parse_args()
    reranker = CrossEncoder(arguments.other)
    profile = read_profile(arguments.profile)
    for run in arguments.runs:
        name = run.name.removesuffix(".run.jsonl").rpartition("-")[0]
        print(compare(reranker, run, arguments.data / name, profile), flush=True)


if __name__ == "__main__":
    main()
