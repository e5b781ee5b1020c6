"""Trains the cross-encoder of stage 2 on the groups that `mine_groups.py` wrote.

    python train_cross_encoder.py START GROUPS OUTPUT [--dev GROUPS]

Uses a GPU if there is one. An interrupted run continues from its last checkpoint and gives the same
weights.
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
from training import DEVICE, Encoder, Optimiser, config_of, fill, products, save
from transformers import BertForSequenceClassification

# Documents of a group that are read, the fitting document first.
GROUP = 8
GROUPS_PER_STEP = 48
TOKENS_PER_PASS = 65_536 if DEVICE == "cuda" else 2_048

CHARACTERS_PER_TOKEN = 5
DROPOUT = 0.1

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


def groups_loss(logits: Tensor, stage1: Tensor, exists: Tensor, matched: Tensor) -> Tensor:
    """Returns the mean loss of groups, whose first document fits if `matched`.

    The sum of three cross-entropies. The first is the task of the cascade: picking the right
    document by the score of stage 1 and the logit together, so that the model learns to correct
    stage 1. The others make 0 the boundary between fitting and other documents: half of the
    cross-entropy of picking by the logit alone among the documents and "nothing fits", whose logit
    is 0, and a quarter of the mean cross-entropy of each single pair.

    Args:
        logits: Float [groups, documents].
        stage1: Float [groups, documents], in units of the logit.
        exists: Bool [groups, documents]; shorter groups have fewer documents.
        matched: Bool [groups]; where it is false, no document fits.
    """
    functional = torch.nn.functional
    absent = torch.finfo(logits.dtype).min
    with_nothing = torch.cat(
        [logits.masked_fill(~exists, absent), logits.new_zeros(len(logits), 1)], 1
    )
    wanted = torch.where(matched, 0, logits.shape[1])
    alone = functional.cross_entropy(with_nothing, wanted, reduction="none")
    fits = torch.zeros_like(logits)
    fits[:, 0] = matched.float()
    each = functional.binary_cross_entropy_with_logits(logits, fits, reduction="none")
    pairs = (each * exists).sum(1) / exists.sum(1)
    both = (logits + stage1).masked_fill(~exists, absent)
    picking = functional.cross_entropy(both, torch.zeros_like(wanted), reduction="none")
    return (0.5 * alone + 0.25 * pairs + picking * matched).mean()


def score(
    model: BertForSequenceClassification, encoder: Encoder, pairs: Sequence[tuple[str, str]]
) -> Tensor:
    """Returns the logits [n] of pairs, computed in passes of similar length."""
    order = sorted(range(len(pairs)), key=lambda place: len(pairs[place][0]) + len(pairs[place][1]))
    size = max(1, TOKENS_PER_PASS // encoder.max_length)
    parts = []
    for start in range(0, len(order), size):
        inputs = encoder([pairs[place] for place in order[start : start + size]])
        with products():
            parts.append(model(**inputs).logits[:, 0].float())
    return torch.cat(parts)[torch.tensor(order, device=DEVICE).argsort()]


def new_model(
    start: Path, layers: int | None = None, dropout: float = 0.0
) -> BertForSequenceClassification:
    """Returns the model with the weights found in `start`, without gradients for its embeddings.

    Args:
        start: Folder of the weights; without a pooler or a classifier they start at random.
        layers: Number of layers to keep, at least 2, evenly spread from the lowest to the highest;
            all by default.
        dropout: Share of dropout.
    """
    config = config_of(start, dropout)
    kept = np.linspace(0, config.num_hidden_layers - 1, layers or config.num_hidden_layers)
    config.num_hidden_layers = len(kept)
    config.num_labels = 1
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
    model.bert.embeddings.requires_grad_(False)
    return model.to(DEVICE).train()


def pairs_of(groups: Sequence[Group], tokens: int) -> list[tuple[str, str]]:
    """Returns the pairs of all documents of groups, cut to about this many tokens."""
    return [
        (group.query, text[: CHARACTERS_PER_TOKEN * tokens])
        for group in groups
        for text in group.documents
    ]


def judge(model: BertForSequenceClassification, encoder: Encoder, groups: Sequence[Group]) -> None:
    """Prints, by source, how often the fitting document has the highest score.

    The scores are that of stage 1, that of both with the best of six weights of the logit, and the
    logit alone.
    """
    model.eval()
    with torch.inference_mode():
        logits = score(model, encoder, pairs_of(groups, encoder.max_length)).cpu()
    parts = logits.split([len(group.documents) for group in groups])
    for source in dict.fromkeys(group.source for group in groups):
        rows = [
            (torch.tensor(group.stage1), part)
            for group, part in zip(groups, parts, strict=True)
            if group.source == source and group.matched
        ]
        shares = [
            (
                weight,
                np.mean([int((stage1 + weight * part).argmax() == 0) for stage1, part in rows]),
            )
            for weight in (0.0, 0.15, 0.3, 0.45, 0.6, 0.8)
        ]
        alone = np.mean([int(part.argmax() == 0) for _, part in rows])
        best = max(shares, key=lambda one: one[0])
        print(
            f"  {source}: stage 1 {shares[0][0]:.3f}, both {best[0]:.3f} with {best[1]}, "
            f"logit {alone:.3f}",
            flush=True,
        )
    model.train()


def train(arguments: argparse.Namespace) -> None:
    """Trains and writes the weights."""
    torch.manual_seed(arguments.seed)
    groups = read_groups(arguments.groups)
    dev = read_groups(arguments.dev) if arguments.dev else []
    model = new_model(arguments.start, arguments.layers, DROPOUT)
    teacher = new_model(arguments.teacher).eval() if arguments.teacher else None
    encoder = Encoder(arguments.start / "tokenizer.json", arguments.tokens)
    each = len(groups) // GROUPS_PER_STEP
    steps = arguments.steps or each * arguments.passes
    optimiser = Optimiser(model, arguments.rate, steps, arguments.warm_up, last=arguments.last)
    made_of = [sha256_of(arguments.groups), sha256_of(arguments.start / "model.safetensors")]
    made_of.append(f"{steps} steps, seed {arguments.seed}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    smooth = optimiser.resume(arguments.output / CHECKPOINT, made_of)
    for step in range(optimiser.done, steps):
        # Both depend on the step alone, so that a resumed run is the same.
        torch.manual_seed(arguments.seed * steps + step)
        order = np.random.default_rng([arguments.seed, step // each]).permutation(len(groups))
        first = step % each * GROUPS_PER_STEP
        batch = [groups[place] for place in order[first : first + GROUPS_PER_STEP]]
        pairs = pairs_of(batch, arguments.tokens)
        sizes = [len(example.documents) for example in batch]
        logits = score(model, encoder, pairs)
        exists = torch.arange(GROUP, device=DEVICE) < torch.tensor(sizes, device=DEVICE)[:, None]
        spread, stage1 = (torch.zeros(exists.shape, device=DEVICE) for _ in range(2))
        spread = spread.masked_scatter(exists, logits)
        known_scores = [score for example in batch for score in example.stage1]
        stage1 = stage1.masked_scatter(exists, torch.tensor(known_scores, device=DEVICE))
        matched = torch.tensor([example.matched for example in batch], device=DEVICE)
        loss = groups_loss(spread, stage1, exists, matched)
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
        if step % 50 == 49:
            optimiser.report(smooth)
        if arguments.checkpoints and step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            optimiser.save(arguments.output / CHECKPOINT, made_of, smooth)
        if dev and (step % each == each - 1 or step == steps - 1):
            judge(model, encoder, dev)
    save(model, arguments.start, arguments.output)
    (arguments.output / CHECKPOINT).unlink(missing_ok=True)


def main() -> None:
    """Reads the arguments, checks the weights' hashes and trains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start", type=Path, help="folder of weights to start from")
    parser.add_argument("groups", type=Path, help="file that `mine_groups.py` wrote")
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    parser.add_argument("--dev", type=Path, help="groups of dev prompts, judged after each pass")
    parser.add_argument("--passes", type=int, default=2, help="how often each group is seen")
    parser.add_argument("--steps", type=int, help="stop after this many steps")
    parser.add_argument("--rate", type=float, default=8e-5)
    parser.add_argument("--warm-up", type=int, default=60)
    parser.add_argument("--last", type=float, default=0.02, help="share of the rate at the end")
    parser.add_argument("--tokens", type=int, default=160, help="most tokens of a pair")
    parser.add_argument(
        "--layers", type=int, help="number of layers to keep of the start, 2 or more"
    )
    parser.add_argument("--teacher", type=Path, help="folder of a model whose logits are learnt")
    parser.add_argument("--no-checkpoints", dest="checkpoints", action="store_false")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    check_weights(arguments.start, *([arguments.teacher] if arguments.teacher else []))
    train(arguments)


if __name__ == "__main__":
    main()
