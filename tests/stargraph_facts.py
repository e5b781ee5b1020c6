"""Runs the fusers with stargraph's protocol and loader, and prints the results as JSON.

stargraph needs Python 3.13 and thirty packages, and its protocol needs one of them, pydantic. So
`test_stargraph.py` starts this in an interpreter of its own, and the parts of stargraph are entered
beside the `__init__` that would import everything.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import random
import sys
import types
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

found = find_spec("stargraph")
assert found is not None
assert found.origin is not None
for name in ("stargraph", "stargraph.stores"):
    module = types.ModuleType(name)
    module.__path__ = [str(Path(found.origin).parent.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = module

from stargraph.stores._rerank_loader import load_reranker  # noqa: E402
from stargraph.stores.rerankers import Reranker, RRFReranker  # noqa: E402
from stargraph.stores.vector import Hit  # noqa: E402

import crossgate  # noqa: E402
from crossgate import pipelines as fusion  # noqa: E402
from crossgate.rerankers import Deadline  # noqa: E402

NAMES = ("crossgate-rrf", "crossgate-scores", "crossgate-cross-encoder")


class Longest:
    """Prefers the longer text."""

    name = "longest"
    identity = "longest@1"

    def score(
        self, query: str, passages: Sequence[crossgate.Passage], *, deadline: Deadline
    ) -> list[crossgate.PairScore]:
        """Return the lengths."""
        return [crossgate.PairScore(float(len(passage.text))) for passage in passages]


def hits(ids: str, **scores: float) -> list[Any]:
    """Return one of stargraph's hits per letter, whose text is longer the later the letter."""
    return [
        Hit(
            id=id,
            score=scores.get(id, 1.0 / place),
            metadata={"text": f"fox {id * (ord(id) - 96)}", "place": place},
        )
        for place, id in enumerate(ids, start=1)
    ]


def as_json(found: list[Any]) -> list[Any]:
    """Return hits as JSON values, checking that they are stargraph's own."""
    assert all(type(candidate) is Hit for candidate in found)
    return [[candidate.id, candidate.score, candidate.metadata] for candidate in found]


def fuse(reranker: Any, per_store: list[list[Any]], **options: Any) -> list[Any]:
    """Run a fuser on an event loop."""
    fused: list[Any] = asyncio.run(reranker.fuse(per_store, **options))
    return fused


def random_cases() -> int:
    """Return in how many of 300 random cases our fusion and stargraph's agree."""
    draw = random.Random(7)
    alike = 0
    for _ in range(300):
        lists = [
            hits("".join(draw.sample("abcdefghijkl", draw.randint(0, 12))))
            for _ in range(draw.randint(0, 5))
        ]
        k, k_param = draw.randint(1, 14), draw.choice([1, 10, 60])
        theirs = fuse(RRFReranker(k_param), lists, k=k, query="fox")
        ours = fuse(fusion.RRFReranker(k_param), lists, k=k, query="fox")
        # stargraph uses Python's sum, which compensates for rounding from Python 3.12 on.
        alike += len(theirs) == len(ours) and all(
            (their.id, their.metadata) == (other.id, other.metadata)
            and math.isclose(their.score, other.score, rel_tol=1e-15)
            for their, other in zip(theirs, ours, strict=True)
        )
    return alike


def main() -> None:
    """Print the facts."""
    rankers = {name: load_reranker(name) for name in NAMES}
    theirs = set(inspect.signature(Reranker.fuse).parameters)
    stores = [hits("abc"), hits("cb")]
    reading = fusion.CrossEncoderFusion(Longest())
    facts = {
        "version": version("stargraph"),
        "loaded": {name: type(ranker).__name__ for name, ranker in rankers.items()},
        "protocol": {name: isinstance(ranker, Reranker) for name, ranker in rankers.items()},
        "parameters": {
            name: sorted(theirs - {"self"} - set(inspect.signature(ranker.fuse).parameters))
            for name, ranker in rankers.items()
        },
        "alike": random_cases(),
        "cross_encoder": as_json(fuse(reading, stores, k=2, query="fox")),
        "scores": as_json(fuse(rankers["crossgate-scores"], stores, k=3)),
        "empty": {name: fuse(ranker, [], k=3, query="fox") for name, ranker in rankers.items()},
        "inputs_kept": as_json(stores[0]) == as_json(hits("abc")),
    }
    json.dump(facts, sys.stdout)


main()
