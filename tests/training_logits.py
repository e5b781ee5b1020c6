"""Prints as JSON the logits that torch gives for the pairs on standard input, in one batch.

torch is large, so `test_training.py` starts this in an interpreter of its own.
"""

import json
import sys
from pathlib import Path

import torch
from train_cross_encoder import new_model
from training import Encoder

folder = Path(sys.argv[1])
model, encoder = new_model(folder).eval(), Encoder(folder / "tokenizer.json", 128)
with torch.inference_mode():
    inputs = encoder([tuple(pair) for pair in json.load(sys.stdin)])
    logits = model(**inputs).logits[:, 0]
layers = [layer.output.dense.weight for layer in model.bert.encoder.layer]
kept = [layer.output.dense.weight for layer in new_model(folder, 2).bert.encoder.layer]
facts = {
    "logits": logits.tolist(),
    "kept_of_three_layers": [
        place
        for place, layer in enumerate(layers)
        if any(torch.equal(layer, other) for other in kept)
    ],
}
sys.stdout.write(json.dumps(facts))
