"""Prints as JSON the losses of models/ for the numbers on standard input.

torch is large, so `test_training.py` starts this in an interpreter of its own.
"""

import json
import sys

import torch
from train_cross_encoder import group_loss
from train_embedder import batch_loss

given = json.load(sys.stdin)
vectors = {name: torch.tensor(given[name]) for name in ("queries", "documents")}
facts = {
    "groups": [
        group_loss(torch.tensor(logits), torch.tensor(stage1), matched).item()
        for logits, stage1, matched in zip(
            given["logits"], given["stage1"], given["matched"], strict=True
        )
    ],
    "batch": batch_loss(torch.zeros(1), **vectors, fits=torch.tensor(given["fits"])).item(),
}
sys.stdout.write(json.dumps(facts))
