"""Fine-tunes the embedder of stage 1 on queries and the documents that fit them."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from corpora import SKILL_PROMPTS, Decks, Example, TrainingData, read_training_data
from hashes import check_hashes, check_weights
from mining import Miner, embed_pools, new_miner
from torch import Tensor
from training import (
    Encoder,
    Optimiser,
    embed,
    freeze,
    load_embedder,
    rank,
    run_workers,
    save,
)

HERE = Path(__file__).parent

# A batch holds documents of one kind, so that the wrong documents in it are not too easy.
# Kind: share of the batches, and the sources that it mixes.
KINDS: dict[str, tuple[float, dict[str, float]]] = {
    "skills": (
        0.5,
        {
            "skill-triggers": 0.48,
            "written skills": 0.08,
            "written tasks": 0.08,
            "written topic_swap": 0.06,
            "written jargon": 0.04,
            "written more": 0.06,
            "written requests": 0.15,
            "skill-examples-weak": 0.05,
        },
    ),
    "metatool": (0.06, {"metatool": 1.0}),
    "bfcl": (0.05, {"bfcl": 1.0}),
    "seal-tools": (0.03, {"seal-tools": 1.0}),
    "acebench": (0.02, {"acebench": 1.0}),
    "toolalpaca": (0.01, {"toolalpaca": 1.0}),
    "clinc150": (0.08, {"clinc150": 0.92, "written near misses": 0.08}),
    "nlupp": (0.02, {"nlupp": 1.0}),
    "scifact": (0.03, {"scifact": 1.0}),
    "cosqa": (0.02, {"cosqa": 1.0}),
    "medquad": (0.02, {"medquad": 1.0}),
    "sections": (0.08, {"markdown-sections-weak": 0.3, "written passage questions": 0.7}),
    "debian": (0.08, {"debian": 1.0}),
}

QUERIES_PER_BATCH = 32
HARD_NEGATIVES_PER_BATCH = 16
QUERY_TOKENS = 64
DOCUMENT_TOKENS = 128
BODY_TOKENS = 192

# How often documents with bodies are read with them, since crossgate moves a document's vector
# towards that of the start of its body. The other batches train on heads alone.
WITH_BODIES = 0.7
BODY_CHARACTERS = 1_000
BODY_SHARE = 0.3
TEMPERATURE = 0.05

# Share of the layers, the lowest, that are frozen: a step takes a quarter less time.
FROZEN = 1 / 3

# The cosine of "nothing fits", a virtual document that every right document must exceed: its first
# value, and a factor that lets it change at the weights' small learning rate.
NULL_COSINE = 0.3
NULL_FACTOR = 50.0


def batch_loss(null: Tensor, queries: Tensor, documents: Tensor, fits: Tensor) -> Tensor:
    """Returns the mean cross-entropy of picking a right document, or nothing, among all.

    Args:
        null: Change of the cosine of "nothing fits", [1], before the factor.
        queries: Unit vectors [n, width].
        documents: Unit vectors [m, width].
        fits: Bool [n, m], which document fits which query.

    Returns:
        A scalar. If several documents fit, any of them counts as right.
    """
    nothing = ~fits.any(1, keepdim=True)
    cosine = NULL_COSINE + NULL_FACTOR * null
    cosines = torch.cat([queries @ documents.T, cosine.expand(len(queries), 1)], 1)
    wanted = torch.cat([fits, nothing], 1)
    # Right documents do not compete with each other.
    logits = torch.log_softmax(cosines / TEMPERATURE, 1)
    return -torch.logsumexp(logits.masked_fill(~wanted, -torch.inf), 1).mean()


def draw_batch(
    data: TrainingData, decks: Decks, miner: Miner, rng: random.Random
) -> tuple[list[Example], str, list[str], Tensor]:
    """Returns examples, the pool of their documents, the documents' ids, and which of them fit."""
    kinds = list(KINDS)
    kind = rng.choices(kinds, [KINDS[kind][0] for kind in kinds])[0]
    examples = [decks.draw(KINDS[kind][1]) for _ in range(QUERIES_PER_BATCH)]
    pool = examples[0].pool
    if pool == "clinc150":
        pool = rng.choice([pool, pool, f"{pool} described 0", f"{pool} described 1"])
    ids: dict[str, None] = {}
    for example in examples:
        ids.update(dict.fromkeys(example.positives[:2]))
        ids.update(dict.fromkeys(example.negatives[:1]))
    if pool.startswith("clinc150"):
        ids.update(dict.fromkeys(data.pools[pool]))
    else:
        for example in examples[:HARD_NEGATIVES_PER_BATCH]:
            if wrong := miner.wrong(example, pool):
                ids.setdefault(rng.choice(wrong))
    documents = [id for id in ids if id in data.pools[pool]]
    fits = torch.tensor([[id in example.positives for id in documents] for example in examples])
    return examples, pool, documents, fits


def embed_documents(
    model: torch.nn.Module,
    encode_head: Encoder,
    encode_body: Encoder,
    heads: Sequence[str],
    bodies: Sequence[str],
) -> Tensor:
    """Returns unit vectors [n, width] of documents, moved towards their bodies if these are given.

    Args:
        model: Computes the vectors.
        encode_head: Turns heads into tokens.
        encode_body: Turns bodies into tokens.
        heads: Names and descriptions.
        bodies: The body of each head, empty if it has none.
    """
    vectors = embed(model, encode_head, heads)
    places = [place for place, body in enumerate(bodies) if body]
    if not places:
        return vectors
    starts = [bodies[place][:BODY_CHARACTERS] for place in places]
    drawn = torch.zeros_like(vectors)
    drawn[places] = embed(model, encode_body, starts)
    shares = torch.zeros(len(heads), 1)
    shares[places] = BODY_SHARE
    return torch.nn.functional.normalize((1 - shares) * vectors + shares * drawn, dim=-1)


def train(arguments: argparse.Namespace, data: TrainingData) -> None:
    """Trains in this worker; the first worker writes the weights."""
    rng = random.Random(f"{arguments.seed} {rank()}")
    torch.manual_seed(arguments.seed)
    model = load_embedder(arguments.start)
    freeze(model, FROZEN)
    null = torch.nn.ParameterList([torch.zeros(1)])
    both = torch.nn.ModuleList([model, null])
    tokenizer = arguments.start / "tokenizer.json"
    encode_query = Encoder(tokenizer, QUERY_TOKENS)
    encode_head, encode_body = Encoder(tokenizer, DOCUMENT_TOKENS), Encoder(tokenizer, BODY_TOKENS)
    miner, decks = new_miner(data, arguments.embedder), Decks(data, rng)
    optimiser = Optimiser(
        both, arguments.rate, arguments.steps, arguments.warm_up, last=arguments.last
    )
    smooth = 0.0
    for step in range(arguments.steps):
        examples, pool, ids, fits = draw_batch(data, decks, miner, rng)
        queries = embed(model, encode_query, [example.query for example in examples])
        bodies = data.bodies if pool == "skills" and rng.random() < WITH_BODIES else {}
        documents = embed_documents(
            model,
            encode_head,
            encode_body,
            [data.pools[pool][id] for id in ids],
            [bodies.get(id, "") for id in ids],
        )
        loss = batch_loss(null[0], queries, documents, fits)
        optimiser.step(loss)
        smooth = loss.item() if not step else 0.95 * smooth + 0.05 * loss.item()
        if step % 10 == 9:
            optimiser.report(smooth)
        if step % 100 == 99 or step == arguments.steps - 1:
            save(model, arguments.start, arguments.output)


def main() -> None:
    """Reads the arguments, checks the data's hashes and trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("start", type=Path, help="folder with all-MiniLM-L6-v2's weights")
    parser.add_argument(
        "embedder", type=Path, help="folder of the embedder that finds hard negatives"
    )
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--rate", type=float, default=8e-5)
    parser.add_argument("--warm-up", type=int, default=15)
    parser.add_argument("--last", type=float, default=0.02, help="share of the rate at the end")
    parser.add_argument(
        "--written", nargs="+", default=SKILL_PROMPTS, help="files of skill prompts"
    )
    parser.add_argument(
        "--half", type=int, choices=(0, 1), help="see this half of the examples only"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    check_hashes(arguments.data, HERE / "data.sha256")
    check_weights(arguments.start, arguments.embedder)
    data = read_training_data(arguments.data, HERE / "prompts", arguments.written)
    print(f"{len(data.examples)} examples; left out: {dict(data.removed)}", flush=True)
    if arguments.half is not None:
        data.examples = [
            example for example in data.examples if data.half(example) == arguments.half
        ]
        print(f"{len(data.examples)} of them in half {arguments.half}", flush=True)
    embed_pools(arguments.embedder, data)
    run_workers(arguments.workers, train, arguments, data)


if __name__ == "__main__":
    main()
