"""Prints as JSON which documents models/ takes for wrong ones, given the folder of a tiny embedder.

torch is large, so `test_training.py` starts this in an interpreter of its own.
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
import train_cross_encoder
from corpora import Example, TrainingData
from train_cross_encoder import Miner, draw_group
from train_embedder import load_embedder
from training import Decks, Encoder, embed

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
encoder = Encoder(folder / "tokenizer.json", train_cross_encoder.EMBEDDER_TOKENS)
with torch.inference_mode():
    query = embed(load_embedder(folder), encoder, [QUERY])[0].numpy()
aside = np.eye(len(query), dtype=np.float32)[0]
aside -= (aside @ query) * query
aside /= np.linalg.norm(aside)
vectors = np.stack([c * query + np.sqrt(1 - c * c) * aside for c in COSINES.values()])


class CountingMiner(Miner):
    """Counts how often it is asked."""

    asked = 0

    def wrong(self, example: Example, pool: str) -> list[str]:
        """Returns what the miner does."""
        self.asked += 1
        return super().wrong(example, pool)


facts = {}
for source, positives, negatives in (
    ("matched", ("right",), ("ruled out",)),
    ("judged", (), ("ruled out",)),
    ("outside", (), ()),
):
    example = Example(source, "pool", QUERY, positives, negatives)
    data = TrainingData(pools={"pool": TEXTS}, examples=[example])
    miner = CountingMiner(data, folder, {"pool": vectors})
    train_cross_encoder.NEAREST = 1
    nearest = sorted(miner.wrong(example, "pool"))
    train_cross_encoder.NEAREST = 16
    train_cross_encoder.MIXTURE = {source: 1.0}
    rng = random.Random(1)
    decks = Decks(data, rng)
    miner.asked = 0
    groups = [draw_group(data, decks, miner, rng) for _ in range(50)]
    asked = miner.asked
    names = {text: name for name, text in TEXTS.items()}
    facts[source] = {
        "nearest": nearest,
        "mined": asked,
        "wrong": sorted(miner.wrong(example, "pool")),
        "matched": [group.matched for group in groups],
        "groups": [[names[text] for text in group.documents] for group in groups],
    }
sys.stdout.write(json.dumps(facts))
