"""Trains the passage reranker on the pairs that `passage_pairs.py` wrote.

    python train_passages.py START PAIRS OUTPUT

START holds the weights of ms-marco-MiniLM-L-12-v2. The label of a pair says whether the passage
answers the question. Uses a GPU if there is one. An interrupted run continues from its last
checkpoint and gives the same weights.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from hashes import check_weights, sha256_of
from torch import Tensor
from train_cross_encoder import CHECKPOINT, CHECKPOINT_EVERY, DROPOUT, new_model, score
from training import DEVICE, Encoder, Optimiser, save

PAIRS_PER_STEP = 192

# Weight of the squared distance from the logit of the start.
TAUGHT = 0.05


@dataclass(frozen=True, slots=True)
class Pair:
    """A question and a passage.

    Attributes:
        question: The question.
        passage: Title and text of the passage.
        answers: 1 if the passage answers the question, otherwise 0; None if only the logit of the
            start is to be kept.
        taught: Whether the logit of the start is to be kept.
    """

    question: str
    passage: str
    answers: float | None
    taught: bool


def loss_of(logits: Tensor, batch: Sequence[Pair], start: Tensor | None) -> Tensor:
    """Returns the loss of a batch: of its labels, and of its distance from the start's logits.

    Args:
        logits: Float [pairs].
        batch: The pairs.
        start: Float [pairs], the logits of the start; None if no pair keeps them.
    """
    labelled = torch.tensor([pair.answers is not None for pair in batch], device=DEVICE)
    answers = torch.tensor([pair.answers or 0.0 for pair in batch], device=DEVICE)
    each = torch.nn.functional.binary_cross_entropy_with_logits(logits, answers, reduction="none")
    loss = (each * labelled).sum() / len(batch)
    if start is not None:
        taught = torch.tensor([float(pair.taught) for pair in batch], device=DEVICE)
        loss = loss + TAUGHT * (taught * (logits - start) ** 2).sum() / len(batch)
    return loss


def train(arguments: argparse.Namespace) -> None:
    """Trains and writes the weights."""
    torch.manual_seed(arguments.seed)
    lines = arguments.pairs.read_text(encoding="utf-8").splitlines()
    pairs = [Pair(**json.loads(line)) for line in lines]
    model = new_model(arguments.start, dropout=DROPOUT)
    teacher = new_model(arguments.start).eval()
    encoder = Encoder(arguments.start / "tokenizer.json", arguments.tokens)
    each = len(pairs) // PAIRS_PER_STEP
    steps = arguments.steps or each * arguments.passes
    optimiser = Optimiser(model, arguments.rate, steps, arguments.warm_up)
    made_of = [sha256_of(arguments.pairs), sha256_of(arguments.start / "model.safetensors")]
    made_of.append(f"{steps} steps, seed {arguments.seed}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    smooth = optimiser.resume(arguments.output / CHECKPOINT, made_of)
    for step in range(optimiser.done, steps):
        torch.manual_seed(arguments.seed * steps + step)
        order = np.random.default_rng([arguments.seed, step // each]).permutation(len(pairs))
        first = step % each * PAIRS_PER_STEP
        batch = [pairs[place] for place in order[first : first + PAIRS_PER_STEP]]
        texts = [(pair.question, pair.passage[: 5 * arguments.tokens]) for pair in batch]
        logits = score(model, encoder, texts)
        start = None
        if taught := [place for place, pair in enumerate(batch) if pair.taught]:
            start = torch.zeros(len(batch), device=DEVICE)
            with torch.no_grad():
                start[taught] = score(teacher, encoder, [texts[place] for place in taught])
        loss = loss_of(logits, batch, start)
        optimiser.step(loss)
        smooth = 0.98 * smooth + 0.02 * loss.item() if step else loss.item()
        if step % 50 == 49:
            optimiser.report(smooth)
        if arguments.checkpoints and step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            optimiser.save(arguments.output / CHECKPOINT, made_of, smooth)
    save(model, arguments.start, arguments.output)
    (arguments.output / CHECKPOINT).unlink(missing_ok=True)


def main() -> None:
    """Reads the arguments, checks the weights' hashes and trains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start", type=Path, help="folder of weights to start from")
    parser.add_argument("pairs", type=Path, help="file that `passage_pairs.py` wrote")
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    parser.add_argument("--passes", type=int, default=2, help="how often each pair is seen")
    parser.add_argument("--steps", type=int, help="stop after this many steps")
    parser.add_argument("--rate", type=float, default=6e-5)
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=176, help="most tokens of a pair")
    parser.add_argument("--no-checkpoints", dest="checkpoints", action="store_false")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    check_weights(arguments.start)
    train(arguments)


if __name__ == "__main__":
    main()
