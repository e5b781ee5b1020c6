"""Trains the head that predicts whether a query needs a document.

    python train_need.py EMBEDDER_FOLDER DATA OUTPUT

A logistic regression on the embedder's unit vectors: requests against other messages in a
conversation with an agent. `train_session.py` adds the part for sessions. It takes seconds, and
needs crossgate installed but not torch.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hashes import check_hashes, sha256_of
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from crossgate import OnnxEmbedder

Array = NDArray[np.float64]

HERE = Path(__file__).parent
CONVERSATION = HERE / "prompts" / "conversation.jsonl"
OWN = {"requests": ("jargon", "more", "skills", "tasks"), "questions": ("sections",)}
"""Prompts of our own, by kind."""

PUBLIC = {"skill-triggers": 1200, "metatool": 600, "clinc150": 600, "hwu64": 600}
"""Public sets whose training prompts count as requests, and how many of each are drawn."""

OWN_PROMPTS = 1000
"""How many of each are drawn."""

RIDGE = 3e-4


def rows(path: Path) -> list[dict[str, object]]:
    """Returns the lines of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def requests_of(folder: Path, count: int, chance: random.Random) -> list[str]:
    """Returns prompts of the training split with a match, drawn at random."""
    labels = (folder / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    matched = {line.split("\t")[0] for line in labels}
    found = [str(row["text"]) for row in rows(folder / "queries.jsonl") if row["_id"] in matched]
    return chance.sample(found, count)


def unit(vectors: Sequence[Sequence[float]]) -> Array:
    """Returns vectors scaled to length 1, of shape (texts, dimension)."""
    array = np.asarray(vectors, dtype=np.float64)
    return np.asarray(array / np.linalg.norm(array, axis=1, keepdims=True))


def fit(asking: Sequence[Array], other: Array) -> Array:
    """Returns intercept and weights of the logistic regression, of shape (1 + dimension,).

    Each group of requests has the same weight, whatever its size, and the other messages have the
    weight of one group: most queries to a router are requests, and it must not miss them.

    Args:
        asking: Unit vectors of requests, group by group.
        other: Unit vectors of other messages.
    """
    groups = [*asking, other]
    vectors = np.concatenate(groups)
    labels = np.concatenate([np.ones(sum(map(len, asking))), np.zeros(len(other))])
    weights = np.concatenate([np.full(len(group), 1 / len(group)) for group in groups]) / len(
        groups
    )

    def loss(head: Array) -> tuple[float, Array]:
        odds = head[0] + vectors @ head[1:]
        error = weights * (expit(odds) - labels)
        value = weights @ (np.logaddexp(0, odds) - labels * odds) + RIDGE * head[1:] @ head[1:]
        slope = np.concatenate([[error.sum()], vectors.T @ error + 2 * RIDGE * head[1:]])
        return float(value), slope

    start = np.zeros(vectors.shape[1] + 1)
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B").x)


def main() -> None:
    """Trains and writes the head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embedder", type=Path, help="folder of the embedder")
    parser.add_argument("data", type=Path, help="folder with the public sets")
    parser.add_argument("output", type=Path, help="file to write, need.json")
    options = parser.parse_args()
    check_hashes(options.data, HERE / "data.sha256", PUBLIC)

    chance = random.Random(0)
    asking = [requests_of(options.data / name, count, chance) for name, count in PUBLIC.items()]
    for files in OWN.values():
        own = [row for name in files for row in rows(HERE / "prompts" / f"{name}.jsonl")]
        asking.append([str(row["text"]) for row in chance.sample(own, OWN_PROMPTS)])
    conversation = rows(CONVERSATION)
    asking.append([str(row["text"]) for row in conversation if row["asks"]])
    other = [str(row["text"]) for row in conversation if not row["asks"]]

    embedder = OnnxEmbedder(options.embedder)
    head = fit([unit(embedder.embed(texts)) for texts in asking], unit(embedder.embed(other)))
    # The part for sessions is kept until `train_session.py` makes it anew.
    values = json.loads(options.output.read_text()) if options.output.exists() else {}
    values |= {
        "schema": "crossgate-need/3",
        "request": {
            "intercept": round(float(head[0]), 5),
            "weights": [round(float(weight), 5) for weight in head[1:]],
        },
    }
    options.output.write_text(json.dumps(values) + "\n", encoding="utf-8")
    print(f"{options.output}: {sum(map(len, asking))} requests, {len(other)} others")
    print(f"size = {options.output.stat().st_size:_}")
    print(f'sha256 = "{sha256_of(options.output)}"')


if __name__ == "__main__":
    main()
