"""Trains the cross-encoder of stage 2 on the groups that `mine_groups.py` wrote.

    python train_cross_encoder.py START GROUPS OUTPUT

Each group is seen once, in the order of the file. An interrupted run continues from its last
checkpoint and gives the same weights.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from hashes import check_weights, sha256_of
from safetensors.torch import load_file
from torch import Tensor
from training import (
    Encoder,
    Optimiser,
    fill,
    freeze,
    products,
    rank,
    run_workers,
    save,
    world_size,
)
from transformers import BertConfig, BertForSequenceClassification

# Documents of a group that are read, the fitting document first: more take time and add little.
GROUP = 4
GROUPS_PER_BATCH = 10
PAIRS_PER_PASS = 12

CHARACTERS_PER_TOKEN = 5

# Share of the layers, the lowest, that are frozen: they take a fifth of the time and learn little.
FROZEN = 1 / 3

# Weight of the squared distance from the teacher's logits, in the loss of passages.
TAUGHT = 0.05
PASSAGES = ("scifact", "cosqa", "medquad", "markdown-sections-weak", "written passage questions")

CHECKPOINT = "checkpoint.pt"
CHECKPOINT_EVERY = 50


@dataclass(frozen=True, slots=True)
class Group:
    """A query with documents to tell apart; the first fits if `matched`, the others do not.

    Attributes:
        source: The set that it comes from.
        query: The query.
        documents: The texts of the documents, as stage 2 reads them.
        matched: Whether the first document fits.
        stage1: The score of stage 1 for each document, in units of the logit.
    """

    source: str
    query: str
    documents: tuple[str, ...]
    matched: bool
    stage1: tuple[float, ...]


def read_groups(path: Path) -> list[Group]:
    """Returns the groups of a file, cut to the documents that are read."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Group(
            source=row["source"],
            query=row["query"],
            documents=tuple(row["documents"][:GROUP]),
            matched=row["matched"],
            stage1=tuple(row["stage1"][:GROUP]),
        )
        for row in rows
    ]


def group_loss(logits: Tensor, stage1: Tensor, matched: bool) -> Tensor:
    """Returns the loss of one group, whose first document fits if `matched`.

    The sum of three cross-entropies. The first is the task of the cascade: picking the right
    document by the score of stage 1 and the logit together, so that the model learns to correct
    stage 1. The others make 0 the boundary between fitting and other documents: half of the
    cross-entropy of picking by the logit alone among the documents and "nothing fits", whose logit
    is 0, and a quarter of the cross-entropy of each single pair.

    Args:
        logits: Float [documents].
        stage1: Float [documents], in units of the logit.
        matched: Whether the first document fits; otherwise none does.
    """
    functional = torch.nn.functional
    wanted = torch.tensor(0 if matched else len(logits))
    listwise = functional.cross_entropy(torch.cat([logits, torch.zeros(1)]), wanted)
    fits = torch.zeros_like(logits)
    fits[0] = float(matched)
    loss = 0.5 * listwise + 0.25 * functional.binary_cross_entropy_with_logits(logits, fits)
    if matched:
        loss = loss + functional.cross_entropy(logits + stage1, wanted)
    return loss


def score(
    model: BertForSequenceClassification, encoder: Encoder, pairs: Sequence[tuple[str, str]]
) -> Tensor:
    """Returns the logits [n] of pairs, computed in batches of similar length."""
    order = sorted(range(len(pairs)), key=lambda place: len(pairs[place][0]) + len(pairs[place][1]))
    parts = []
    for start in range(0, len(order), PAIRS_PER_PASS):
        inputs = encoder([pairs[place] for place in order[start : start + PAIRS_PER_PASS]])
        with products():
            parts.append(model(**inputs).logits[:, 0].float())
    return torch.cat(parts)[torch.tensor(order).argsort()]


def new_model(start: Path, layers: int | None = None) -> BertForSequenceClassification:
    """Returns the model with the weights found in `start`.

    Args:
        start: Folder of the weights; without a pooler or a classifier they start at random.
        layers: Number of layers to keep, at least 2, evenly spread from the lowest to the highest;
            all by default.
    """
    config = BertConfig.from_json_file(start / "config.json")
    kept = np.linspace(0, config.num_hidden_layers - 1, layers or config.num_hidden_layers)
    config.num_hidden_layers = len(kept)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    config.num_labels = 1
    # The fused attention is slower than the plain one in bfloat16.
    config._attn_implementation = "eager"
    model = BertForSequenceClassification(config)
    weights = load_file(start / "model.safetensors")
    new: tuple[str, ...] = ()
    if not any(name.startswith("bert.") for name in weights):
        weights = {f"bert.{name}": weight for name, weight in weights.items()}
        new = ("bert.pooler.", "classifier.")
    for place, layer in enumerate(kept.round().astype(int)):
        # From low to high, so that none is overwritten before it was read: place <= layer.
        for name in [name for name in weights if f".layer.{layer}." in name]:
            weights[name.replace(f".layer.{layer}.", f".layer.{place}.")] = weights[name]
    fill(model, weights, start, new)
    freeze(model.bert, FROZEN)
    return model.train()


def train(arguments: argparse.Namespace) -> None:
    """Trains in this worker; the first worker writes the weights."""
    torch.manual_seed(arguments.seed)
    groups = read_groups(arguments.groups)
    model = new_model(arguments.start, arguments.layers)
    teacher = new_model(arguments.teacher).eval() if arguments.teacher else None
    encoder = Encoder(arguments.start / "tokenizer.json", arguments.tokens)
    steps = len(groups) // (GROUPS_PER_BATCH * world_size())
    optimiser = Optimiser(model, arguments.rate, steps, arguments.warm_up, last=arguments.last)
    made_of = [sha256_of(arguments.groups), sha256_of(arguments.start / "model.safetensors")]
    smooth = optimiser.resume(arguments.output / CHECKPOINT, made_of)
    for step in range(optimiser.done, steps):
        first = (step * world_size() + rank()) * GROUPS_PER_BATCH
        batch = groups[first : first + GROUPS_PER_BATCH]
        pairs = [
            (example.query, text[: CHARACTERS_PER_TOKEN * arguments.tokens])
            for example in batch
            for text in example.documents
        ]
        sizes = [len(example.documents) for example in batch]
        logits = score(model, encoder, pairs)
        loss = torch.stack(
            [
                group_loss(found, torch.tensor(example.stage1), example.matched)
                for example, found in zip(batch, logits.split(sizes), strict=True)
            ]
        ).mean()
        passages = [
            size * [example.source in PASSAGES] for example, size in zip(batch, sizes, strict=True)
        ]
        known = [
            place for place, is_passage in enumerate(chain.from_iterable(passages)) if is_passage
        ]
        if teacher is not None and known:
            with torch.no_grad():
                taught = score(teacher, encoder, [pairs[place] for place in known])
            distance = ((logits[known] - taught) ** 2).sum() / len(pairs)
            loss = loss + TAUGHT * distance
        optimiser.step(loss)
        smooth = 0.98 * smooth + 0.02 * loss.item() if step else loss.item()
        if step % 10 == 9:
            optimiser.report(smooth)
        if step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 or step == steps - 1:
            save(model, arguments.start, arguments.output)
            optimiser.save(arguments.output / CHECKPOINT, made_of, smooth)


def main() -> None:
    """Reads the arguments, checks the weights' hashes and trains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start", type=Path, help="folder of weights to start from")
    parser.add_argument("groups", type=Path, help="file that `mine_groups.py` wrote")
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    parser.add_argument("--rate", type=float, default=6e-5)
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("--last", type=float, default=0.02, help="share of the rate at the end")
    parser.add_argument("--tokens", type=int, default=160, help="most tokens of a pair")
    parser.add_argument(
        "--layers", type=int, help="number of layers to keep of the start, 2 or more"
    )
    parser.add_argument("--teacher", type=Path, help="folder of a model whose logits are learnt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    check_weights(arguments.start, *([arguments.teacher] if arguments.teacher else []))
    run_workers(arguments.workers, train, arguments)


if __name__ == "__main__":
    main()
