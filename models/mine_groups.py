"""Writes groups of one query and the documents that stage 1 finds best, to train stage 2 on.

    python mine_groups.py DATA EMBEDDER OUTPUT --half 1

Stage 1 is crossgate itself, with its bundled profile, so that stage 2 learns from the candidates,
the passages and the mistakes of stage 1 in use. An embedder makes fewer mistakes on the requests
that it was trained on, so one half of the examples is searched with an embedder that was trained on
the other half. Needs crossgate installed, no torch.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from corpora import (
    Decks,
    Example,
    TrainingData,
    document_text,
    read_rows,
    read_training_data,
    shingles,
)
from hashes import check_hashes
from pack_training_data import LIBRARIES, dev_queries, session_rows

from crossgate import Document, Index, OnnxEmbedder
from crossgate._core import Blend
from crossgate._decision.router import DEFAULT_PROFILE
from crossgate._decision.stage1 import readable

HERE = Path(__file__).parent

# Relative frequency of the groups of a source: 36,000 draws contain each example of most sources
# once, since a model that sees a request twice overfits to it.
MIXTURE: dict[str, float] = {
    "skill-triggers": 0.087,
    "written skills": 0.096,
    "written tasks": 0.077,
    "written topic_swap": 0.020,
    "written jargon": 0.019,
    "written more": 0.032,
    "written requests": 0.225,
    "skill-examples-weak": 0.040,
    "metatool": 0.100,
    "bfcl": 0.050,
    "seal-tools": 0.019,
    "acebench": 0.017,
    "toolalpaca": 0.006,
    "clinc150": 0.090,
    "written near misses": 0.012,
    "nlupp": 0.020,
    "scifact": 0.020,
    "cosqa": 0.014,
    "markdown-sections-weak": 0.020,
    "written passage questions": 0.029,
    "session": 0.085,
}

PASSAGE_POOLS = ("scifact", "cosqa", "markdown-sections-weak")
"""Searched by BM25 alone, so that as many passages are reranked without a cosine as with it."""

WITH_BODIES = ("skills", "skill-triggers", *(f"session {library}" for library in LIBRARIES))

GROUP = 8
"""Documents per group: at most one of them fits."""

POOL = 5_000
"""Most documents of a pool that are indexed: those that examples name, and others at random."""

QUERY_CHARACTERS = 400

TRUSTED = 0.1
"""A candidate whose cosine is higher than the right document's by this much is more likely an
unlabelled answer than a wrong document (positive-aware mining, NV-Retriever, arXiv 2407.15831)."""

COPY = 0.3
"""A copy of the right document under another id shares this many of its shingles (Jaccard)."""


def draw(data: TrainingData, count: int, chance: random.Random) -> list[tuple[str, Example]]:
    """Returns pool and example of a number of draws from the mixture."""
    decks = Decks(data, chance)
    drawn = []
    for _ in range(count):
        example = decks.draw(MIXTURE)
        pool = example.pool
        if pool == "clinc150":
            pool = chance.choice([pool, f"{pool} described 0", f"{pool} described 1"])
        drawn.append((pool, example))
    return drawn


def documents_of(
    data: TrainingData, drawn: list[tuple[str, Example]], seed: int
) -> Iterator[tuple[str, list[Document]]]:
    """Yields each pool's name and its searched documents."""
    named: dict[str, set[str]] = defaultdict(set)
    for pool, example in drawn:
        named[pool].update(example.positives, example.negatives)
    for pool, ids in named.items():
        texts = data.pools[pool]
        kept = [id for id in texts if id in ids]
        others = [id for id in texts if id not in ids]
        chance = random.Random(f"{seed} {pool}")
        kept += chance.sample(others, min(len(others), max(0, POOL - len(kept))))
        bodies = data.bodies if pool in WITH_BODIES else {}
        yield pool, [Document(id=id, text=texts[id], body=bodies.get(id, "")) for id in kept]


def group_of(
    index: Index, example: Example, vector: Sequence[float] | None, profile: dict[str, Any]
) -> dict[str, Any] | None:
    """Returns the group of an example, or None if stage 2 would not read a fitting document."""
    query = example.query[:QUERY_CHARACTERS]
    found = index.search(query, vector, blend=profile["blend"], per_channel=10)
    scored = {candidate.id: candidate for candidate in found.scored}
    fitting = [id for id in example.positives if id in scored]
    if example.positives and not fitting:
        return None
    right = [shingles(found.documents[id].content) for id in fitting]
    limit = max((scored[id].cosine or 0.0 for id in fitting), default=1.0) + TRUSTED
    ruled_out = [id for id in example.negatives if id in scored]
    wrong = [
        candidate.id
        for candidate in found.scored
        if candidate.id not in example.positives
        and candidate.id not in ruled_out
        and (candidate.cosine or 0.0) <= limit
        and not any(_alike(found.documents[candidate.id].content, known) for known in right)
    ]
    if example.negatives and not fitting:
        # No document is known to fit, and the rest of the pool was not judged.
        wrong = []
    chosen = [*fitting[:1], *ruled_out, *wrong][:GROUP]
    if len(chosen) < 2 and not (ruled_out and not fitting):
        return None
    combine = profile["combine"]

    def weighed(id: str) -> float:
        candidate = scored[id]
        bm25 = candidate.bm25 / (candidate.bm25 + profile["pivot"]) if candidate.bm25 > 0 else 0.0
        return float(combine["cosine"] * (candidate.cosine or 0.0) + combine["bm25"] * bm25)

    return {
        "source": example.source,
        "query": query,
        "matched": bool(fitting),
        "documents": [readable(found.documents[id], scored[id].passage) for id in chosen],
        "stage1": [round(weighed(id), 4) for id in chosen],
    }


def _alike(text: str, known: set[str]) -> bool:
    other = shingles(text)
    shared = len(known & other)
    return shared >= COPY * (len(known) + len(other) - shared)


def add_sessions(data: TrainingData, folder: Path, more: Sequence[Path]) -> None:
    """Adds the training prompts of sessions; an arguably useful skill counts as a fitting one."""
    bodies = {row["_id"]: row["body"] for row in read_rows(folder / "skill-bodies/bodies.jsonl")}
    for library in LIBRARIES:
        pool = f"session {library}"
        rows = list(read_rows(folder / "sessions/libraries" / f"{library}.jsonl"))
        data.pools[pool] = {row["_id"]: document_text(row) for row in rows}
        data.bodies |= {row["_id"]: bodies.get(row["_id"], "") for row in rows}
        found = session_rows([folder / "sessions", *more], library, "train")
        data.examples += [
            Example("session", pool, text, (*must, *may)) for text, must, may in found
        ]


def dev_data(folder: Path) -> TrainingData:
    """Returns the prompts of the dev splits that judge the training, two sets of them."""
    data = TrainingData()
    bodies = {row["_id"]: row["body"] for row in read_rows(folder / "skill-bodies/bodies.jsonl")}
    for name in ("skill-triggers", "metatool"):
        rows, queries = dev_queries(folder / name, "dev", name)
        data.pools[name] = {row["_id"]: document_text(row) for row in rows}
        data.bodies |= {id: bodies[id] for id in data.pools[name] if id in bodies}
        data.examples += [Example(name, name, text, tuple(fits)) for text, fits in queries]
    return data


def main() -> None:
    """Reads the arguments, checks the data's hashes and writes the groups."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("embedder", type=Path, help="model folder of the embedder")
    parser.add_argument("output", type=Path, help="file to write, one group per line")
    parser.add_argument("--half", type=int, choices=(0, 1), help="only this half of the examples")
    parser.add_argument("--dev", action="store_true", help="groups of dev splits, for judging")
    parser.add_argument("--groups", type=int, default=36_000, help="how many are drawn")
    parser.add_argument(
        "--more", type=Path, nargs="*", default=[], help="folders of further session prompts"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    check_hashes(options.data, HERE / "data.sha256")
    chance = random.Random(options.seed)
    if options.dev:
        data = dev_data(options.data)
        drawn = [(example.pool, example) for example in data.examples]
    else:
        data = read_training_data(options.data, HERE / "prompts")
        add_sessions(data, options.data, options.more)
        drawn = draw(data, options.groups, chance)
        drawn = [one for one in drawn if options.half in (None, data.half(one[1]))]
    print(f"{len(data.examples)} examples; left out: {dict(data.removed)}", flush=True)
    profile = json.loads(DEFAULT_PROFILE.read_text(encoding="utf-8"))
    settings = {
        "blend": Blend(**profile["blend"]),
        "combine": profile["combine"],
        "pivot": profile["blend"]["pivot"],
    }
    embedder = OnnxEmbedder(options.embedder)
    groups: dict[int, dict[str, Any]] = {}
    for pool, documents in documents_of(data, drawn, options.seed):
        places = [place for place, (name, _) in enumerate(drawn) if name == pool]
        print(f"{pool}: {len(documents)} documents, {len(places)} examples", flush=True)
        words = pool in PASSAGE_POOLS
        index = Index.build(documents, embedder=None if words else embedder)
        queries = [drawn[place][1].query[:QUERY_CHARACTERS] for place in places]
        vectors = [None] * len(queries) if words else embedder.embed(queries)
        for place, vector in zip(places, vectors, strict=True):
            group = group_of(index, drawn[place][1], vector, settings)
            if group is not None:
                groups[place] = group
    with options.output.open("w", encoding="utf-8") as lines:
        for place in sorted(groups):
            lines.write(json.dumps(groups[place], ensure_ascii=False) + "\n")
    print(
        f"{options.output}: {len(groups)} of {len(drawn)} groups; "
        "the others lack a fitting document"
    )


if __name__ == "__main__":
    main()
