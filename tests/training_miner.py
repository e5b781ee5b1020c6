"""Prints as JSON the documents that models/ mines as wrong, given the folder of a tiny embedder.

torch is large, so `test_training.py` starts this in an interpreter of its own.
"""

import contextlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import mining
import numpy as np
import torch
import train_embedder
from corpora import Decks, Example, TrainingData
from mining import Miner
from train_embedder import draw_batch
from training import Encoder, embed, load_embedder

TEXTS = {
    "right": "cook a soup of leek and potato in one pot",
    "copy": "cook a soup of leek and potato in one pot today",
    "nearer": "anything warm with a spoon",
    "near": "a cold drink from the fridge",
    "ruled out": "cook a stew of beef",
    "far": "mend a bicycle",
}
# How near each lies to the query by cosine.
COSINES = {"right": 0.5, "copy": 0.5, "nearer": 0.7, "near": 0.55, "ruled out": 0.3, "far": 0.0}
QUERY = "how do i cook a soup"

folder = Path(sys.argv[1])
encoder = Encoder(folder / "tokenizer.json", mining.EMBEDDER_TOKENS)
with torch.inference_mode():
    query = embed(load_embedder(folder), encoder, [QUERY])[0].numpy()
aside = np.eye(len(query), dtype=np.float32)[0]
aside -= (aside @ query) * query
aside /= np.linalg.norm(aside)
vectors = np.stack([c * query + np.sqrt(1 - c * c) * aside for c in COSINES.values()])


facts: dict[str, Any] = {}
for source, positives, negatives in (
    ("matched", ("right",), ("ruled out",)),
    ("judged", (), ("ruled out",)),
    ("outside", (), ()),
):
    example = Example(source, "pool", QUERY, positives, negatives)
    data = TrainingData(pools={"pool": TEXTS}, examples=[example])
    miner = Miner(data, folder, {"pool": vectors})
    mining.NEAREST = 1
    nearest = sorted(miner.wrong(example, "pool"))
    mining.NEAREST = 16
    rng = random.Random(1)
    decks = Decks(data, rng)
    train_embedder.KINDS = {"pool": (1.0, {source: 1.0})}
    batch, fits = draw_batch(data, decks, miner, rng)[2:]
    facts[source] = {
        "nearest": nearest,
        "wrong": sorted(miner.wrong(example, "pool")),
        "batch": batch,
        "fits": [[batch[place] for place in row.nonzero()[:, 0].tolist()] for row in fits],
    }
before = set(folder.glob("vectors-*.npz"))
with contextlib.redirect_stdout(sys.stderr):
    for text in ("mend a bicycle", "mend a boat", "mend a bicycle"):
        mining.embed_pools(folder, TrainingData(pools={"pool": TEXTS | {"far": text}}))
facts["vectors"] = len(set(folder.glob("vectors-*.npz")) - before)
json.dump(facts, sys.stdout)
