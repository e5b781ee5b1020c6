"""Trains the cross-encoder of stage 2 on groups of one query and a few documents."""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from corpora import TrainingData, read_training_data
from hashes import check_hashes, check_weights
from mining import Miner, embed_pools, new_miner
from pair_model import PairModel
from safetensors.torch import load_file
from torch import Tensor
from training import Decks, Encoder, Optimiser, fill, rank, run_workers, save
from transformers import BertConfig

HERE = Path(__file__).parent

# How often groups of a source are drawn, relative to the others.
MIXTURE: dict[str, float] = {
    "skill-triggers": 0.18,
    "written skills": 0.09,
    "written tasks": 0.08,
    "written topic_swap": 0.05,
    "written jargon": 0.03,
    "written more": 0.08,
    "skill-examples-weak": 0.04,
    "metatool": 0.09,
    "bfcl": 0.05,
    "seal-tools": 0.03,
    "acebench": 0.02,
    "toolalpaca": 0.01,
    "clinc150": 0.08,
    "written near misses": 0.02,
    "nlupp": 0.02,
    "scifact": 0.04,
    "cosqa": 0.02,
    "medquad": 0.01,
    "markdown-sections-weak": 0.05,
    "written passage questions": 0.05,
    "debian": 0.3,
}

# Documents to a group: one that fits and the rest that do not, or none that fits.
GROUP = 4
GROUPS_PER_BATCH = 10

# Wrong documents are drawn from so many that stage 1 finds best: what stage 2 is asked about.
HARDEST = 12

QUERY_CHARACTERS = 400
CHARACTERS_PER_TOKEN = 4

# Weight of the squared distance from a teacher's logits in the loss.
TAUGHT = 0.2


@dataclass(frozen=True, slots=True)
class Group:
    """A query with documents to tell apart; the first fits if `matched`, the others do not.

    Attributes:
        query: The query.
        documents: Their texts.
        matched: Whether one fits.
        stage1: What stage 1 makes of each, in units of the logit.
    """

    query: str
    documents: tuple[str, ...]
    matched: bool
    stage1: tuple[float, ...]


def draw_group(
    data: TrainingData,
    decks: Decks,
    miner: Miner,
    rng: random.Random,
) -> Group:
    """Returns the next group of the mixture."""
    example = decks.draw(MIXTURE)
    pool = example.pool
    if pool == "clinc150":
        pool = rng.choice([pool, pool, f"{pool} described 0", f"{pool} described 1"])
    texts = data.pools[pool]
    known = [id for id in example.negatives if id in texts]
    chosen = [rng.choice(example.positives)] if example.positives else []
    chosen += rng.sample(known, min(len(known), 2))
    stage1 = miner.stage1(example.query, pool)
    near = [id for id in miner.wrong(example, pool) if id not in chosen]
    near = sorted(near, key=lambda id: -stage1[id])[:HARDEST]
    chosen += rng.sample(near, min(len(near), GROUP - len(chosen)))
    others = list(texts)
    while len(chosen) < GROUP:
        other = rng.choice(others)
        if other not in chosen and other not in example.positives:
            chosen.append(other)
    return Group(
        query=example.query[:QUERY_CHARACTERS],
        documents=tuple(texts[id] for id in chosen),
        matched=bool(example.positives),
        stage1=tuple(stage1[id] for id in chosen),
    )


def group_loss(logits: Tensor, matched: Tensor, stage1: Tensor) -> Tensor:
    """Returns the loss of groups whose first document fits if `matched`.

    The sum of three cross-entropies. The first is what the cascade is asked: to pick the right
    document by what stage 1 knows and the logit together, so that the model learns what stage 1
    lacks. The others make 0 the boundary between what fits and what does not: half of picking by
    the logit alone among the documents of the group and "nothing fits", whose logit is 0, and a
    quarter of the one of each pair alone.

    Args:
        logits: Float [groups, documents].
        matched: Bool [groups].
        stage1: Float [groups, documents], in units of the logit.
    """
    together = torch.nn.functional.log_softmax(logits + stage1, 1)[:, 0]
    fused = -(together * matched).mean()
    nothing = torch.zeros(len(logits), 1)
    wanted = torch.where(matched, 0, logits.shape[1])
    listwise = torch.nn.functional.cross_entropy(torch.cat([logits, nothing], 1), wanted)
    fits = torch.zeros_like(logits)
    fits[:, 0] = matched.float()
    single = torch.nn.functional.binary_cross_entropy_with_logits(logits, fits)
    return fused + 0.5 * listwise + 0.25 * single


def score(
    model: PairModel,
    encoder: Encoder,
    pairs: list[tuple[str, str]],
    batch: int = 10,
) -> Tensor:
    """Returns the logits [n] of pairs, computed in batches of similar length."""
    order = sorted(range(len(pairs)), key=lambda place: len(pairs[place][0]) + len(pairs[place][1]))
    parts = [
        model(**encoder([pairs[place] for place in order[start : start + batch]]))
        for start in range(0, len(order), batch)
    ]
    return torch.cat(parts)[torch.tensor(order).argsort()]


def new_model(start: Path, layers: int | None = None) -> PairModel:
    """Returns the model with the weights found in `start`, or a new pooler and classifier.

    Args:
        start: Folder of the weights.
        layers: Keep so many, at least 2, evenly spread from the lowest to the highest; all by
            default.
    """
    config = BertConfig.from_json_file(start / "config.json")
    kept = np.linspace(0, config.num_hidden_layers - 1, layers or config.num_hidden_layers)
    config.num_hidden_layers = len(kept)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    model = PairModel(config)
    weights = load_file(start / "model.safetensors")
    new: tuple[str, ...] = ()
    if not any(name.startswith("bert.") for name in weights):
        weights = {f"bert.{name}": one for name, one in weights.items()}
        new = ("bert.pooler.", "classifier.")
    for place, layer in enumerate(kept.round().astype(int)):
        # From low to high, so that none is overwritten before it was read: place <= layer.
        for name in [name for name in weights if f".layer.{layer}." in name]:
            weights[name.replace(f".layer.{layer}.", f".layer.{place}.")] = weights[name]
    fill(model, weights, start, new)
    model.bert.embeddings.requires_grad_(False)
    model.train()
    return model


def train(arguments: argparse.Namespace, data: TrainingData) -> None:
    """Trains in this worker; the first one writes the weights."""
    rng = random.Random(f"{arguments.seed} {rank()}")
    torch.manual_seed(arguments.seed)
    model = new_model(arguments.start, arguments.layers)
    teacher = new_model(arguments.teacher).eval() if arguments.teacher else None
    encoder = Encoder(arguments.start / "tokenizer.json", arguments.tokens)
    document_characters = CHARACTERS_PER_TOKEN * arguments.tokens
    miner = new_miner(data, arguments.embedder)
    decks = Decks(data, rng)
    optimiser = Optimiser(
        model, arguments.rate, arguments.steps, arguments.warm_up, last=arguments.last
    )
    smooth = 0.0
    for step in range(arguments.steps):
        groups = [draw_group(data, decks, miner, rng) for _ in range(GROUPS_PER_BATCH)]
        pairs = [
            (group.query, text[:document_characters])
            for group in groups
            for text in group.documents
        ]
        logits = score(model, encoder, pairs).view(len(groups), GROUP)
        matched = torch.tensor([group.matched for group in groups])
        loss = group_loss(logits, matched, torch.tensor([group.stage1 for group in groups]))
        if teacher is not None:
            with torch.no_grad():
                taught = score(teacher, encoder, pairs)
            loss = loss + TAUGHT * torch.nn.functional.mse_loss(logits.flatten(), taught)
        optimiser.step(loss)
        smooth = loss.item() if not step else 0.98 * smooth + 0.02 * loss.item()
        if step % 20 == 19:
            optimiser.report(smooth)
        if step % 100 == 99 or step == arguments.steps - 1:
            save(model, arguments.start, arguments.output)


def main() -> None:
    """Reads the arguments, checks the data's hashes and trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("start", type=Path, help="folder of weights to start from")
    parser.add_argument(
        "embedder", type=Path, help="folder of the embedder that finds hard negatives"
    )
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--warm-up", type=int, default=60)
    parser.add_argument("--last", type=float, default=0.3, help="share of the rate at the end")
    parser.add_argument("--tokens", type=int, default=112, help="most tokens of a pair")
    parser.add_argument("--layers", type=int, help="keep so many layers of the start, 2 or more")
    parser.add_argument("--teacher", type=Path, help="folder of a model whose logits are learnt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    check_hashes(arguments.data, HERE / "data.sha256")
    check_weights(arguments.start, arguments.embedder)
    if arguments.teacher:
        check_weights(arguments.teacher)
    data = read_training_data(arguments.data, HERE / "prompts")
    print(f"{len(data.examples)} examples; left out: {dict(data.removed)}", flush=True)
    embed_pools(arguments.embedder, data)
    run_workers(arguments.workers, train, arguments, data)


if __name__ == "__main__":
    main()
