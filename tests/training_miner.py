"""Prints as JSON which documents models/ takes for wrong ones, given the folder of a tiny embedder.

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
import train_cross_encoder
import train_embedder
from corpora import Example, TrainingData
from mining import Miner
from train_cross_encoder import draw_group
from train_embedder import draw_batch
from training import Decks, Encoder, embed, load_embedder

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
    facts["stop words"] = Miner(data, folder, {}).stage1("how is it of the", "pool")
    mining.NEAREST = 1
    nearest = sorted(miner.wrong(example, "pool"))
    mining.NEAREST = 16
    train_cross_encoder.MIXTURE = {source: 1.0}
    rng = random.Random(1)
    decks = Decks(data, rng)
    groups = [draw_group(data, decks, miner, rng) for _ in range(50)]
    train_cross_encoder.HARDEST = 1
    hardest = [draw_group(data, decks, miner, rng) for _ in range(50)]
    train_cross_encoder.HARDEST = 12
    train_embedder.KINDS = {"pool": (1.0, {source: 1.0})}
    batch, fits = draw_batch(data, decks, miner, rng)[2:]
    names = {text: name for name, text in TEXTS.items()}
    facts[source] = {
        "nearest": nearest,
        "wrong": sorted(miner.wrong(example, "pool")),
        "matched": [group.matched for group in groups],
        "batch": batch,
        "fits": [[batch[place] for place in row.nonzero()[:, 0].tolist()] for row in fits],
        "groups": [[names[text] for text in group.documents] for group in groups],
        "hardest": [[names[text] for text in group.documents] for group in hardest],
        "stage1": {
            names[text]: score
            for group in groups
            for text, score in zip(group.documents, group.stage1, strict=True)
        },
    }
before = set(folder.glob("vectors-*.npz"))
with contextlib.redirect_stdout(sys.stderr):
    for text in ("mend a bicycle", "mend a boat", "mend a bicycle"):
        mining.embed_pools(folder, TrainingData(pools={"pool": TEXTS | {"far": text}}))
facts["vectors"] = len(set(folder.glob("vectors-*.npz")) - before)
json.dump(facts, sys.stdout)
