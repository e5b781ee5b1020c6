"""Trains the embedder of stage 1 on packed data, on a GPU if there is one.

    python train_embedder.py START PACK OUTPUT --steps 600 --seed 1

START is a folder of weights, and PACK the file that `pack_training_data.py` wrote. Half of the loss
is that of picking by cosine alone, half that of picking by the blend with BM25 that stage 1 uses.
An interrupted run continues from its last checkpoint and gives the same weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from hashes import check_weights, sha256_of
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from training import DEVICE, Optimiser, load_embedder, pool_mean, save

Numbers = NDArray[np.int64]

# A batch holds documents of one pool, so that the wrong documents in it are not too easy.
# Source: share of the queries. Six or ten passes over prompts for skills, two to four over others.
SHARES: dict[str, float] = {
    "skill-triggers": 0.10,
    "written skills": 0.065,
    "written tasks": 0.05,
    "written topic_swap": 0.015,
    "written jargon": 0.015,
    "written more": 0.02,
    "written requests": 0.15,
    "skill-examples-weak": 0.035,
    "metatool": 0.09,
    "bfcl": 0.05,
    "seal-tools": 0.015,
    "acebench": 0.01,
    "toolalpaca": 0.005,
    "clinc150": 0.05,
    "clinc150 described 0": 0.03,
    "clinc150 described 1": 0.03,
    "written near misses": 0.005,
    "nlupp": 0.015,
    "scifact": 0.015,
    "cosqa": 0.015,
    "medquad": 0.025,
    "markdown-sections-weak": 0.04,
    "written passage questions": 0.02,
    "debian": 0.06,
    "session": 0.075,
}

QUERIES = 512
"""Queries of a batch; fewer if the pool has fewer."""

MINED_PER_QUERY = 2
"""Mined wrong documents of each query; those of the whole batch count for each query."""

NEAREST = 24
"""Wrong documents are drawn from the best of this many by the blend."""

TRUSTED = 0.08
"""A candidate whose cosine is higher than the right document's by this much is more likely an
unlabelled answer than a wrong document (positive-aware mining, NV-Retriever, arXiv 2407.15831)."""

ROUNDS = 6
"""How often wrong documents are mined anew, with the weights of that moment."""

WITH_BODIES = 0.7
"""Share of the batches in which bodies move the documents' vectors, as crossgate does it."""

BODY_SHARE = 0.3
TEMPERATURE = 0.05

OF_COSINE, OF_BM25 = 16.8, 18.1
"""Log-odds of the default profile's blend per unit of the cosine and of BM25's share."""

DROPOUT = 0.1
TOKENS_PER_PASS = 32_768


class Pack:
    """The packed data; its rows are lists of numbers of different lengths."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as stored:
            self._arrays = {name: stored[name] for name in stored.files}
        self.sources = [str(name) for name in self._arrays["source_names"]]
        self.source, self.pool, self.half = (
            self._arrays[f"of_{name}"] for name in ("source", "pool", "half")
        )
        self.pools = self._arrays["pool"].reshape(-1, 2)

    def row(self, name: str, place: int) -> NDArray[np.generic]:
        """Returns one list, such as the word pieces of a query."""
        ends = self._arrays[f"{name}_ends"]
        row: NDArray[np.generic] = self._arrays[name][ends[place - 1] if place else 0 : ends[place]]
        return row

    def queries_of(self, source: str) -> Numbers:
        """Returns the numbers of a source's queries."""
        return np.flatnonzero(self.source == self.sources.index(source))


def schedule(pack: Pack, steps: int, seed: int, half: int | None) -> list[Numbers]:
    """Returns the queries of each step, drawn so that none comes again before all others did."""
    chance = np.random.default_rng(seed)
    decks: dict[tuple[int, str], Numbers] = {}
    share: dict[tuple[int, str], float] = {}
    for source in SHARES:
        named = [place for place, name in enumerate(pack.sources) if name == source]
        queries = np.flatnonzero(np.isin(pack.source, named))
        if half is not None:
            queries = queries[pack.half[queries] == half]
        # A source with several pools, such as the libraries of sessions, is split by size.
        for pool in np.unique(pack.pool[queries]):
            deck = queries[pack.pool[queries] == pool]
            decks[pool, source] = deck
            share[pool, source] = SHARES[source] * len(deck) / len(queries)
    pools = sorted({pool for pool, _ in decks})
    of_pool = np.array([sum(share[key] for key in decks if key[0] == pool) for pool in pools])
    left: dict[tuple[int, str], list[int]] = {key: [] for key in decks}
    found = []
    for _ in range(steps):
        pool = pools[chance.choice(len(pools), p=of_pool / of_pool.sum())]
        keys = [key for key in decks if key[0] == pool]
        weights = np.array([share[key] for key in keys])
        size = min(QUERIES, sum(len(decks[key]) for key in keys))
        counts = chance.multinomial(size, weights / weights.sum())
        drawn: list[int] = []
        for key, count in zip(keys, counts, strict=True):
            while len(left[key]) < count:
                left[key] += chance.permutation(decks[key]).tolist()
            drawn += left[key][:count]
            del left[key][:count]
        found.append(np.unique(drawn))
    return found


class Batches:
    """The batches of the steps, with mined wrong documents."""

    def __init__(
        self, pack: Pack, steps: Sequence[tuple[int, Numbers]], mined: Numbers, seed: int
    ) -> None:
        """Takes the steps' numbers and queries, and the mined documents [queries, NEAREST]."""
        self._pack, self._steps, self._mined, self._seed = pack, steps, mined, seed

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, place: int) -> dict[str, NDArray[np.generic]]:
        """Returns queries, documents, and per pair: fits, counts at all, and BM25's share."""
        step, queries = self._steps[place]
        pack, chance = self._pack, np.random.default_rng([self._seed, step])
        fits = [pack.row("fits", query) for query in queries]
        wrong = [pack.row("wrong", query) for query in queries]
        allowed = [
            {*right.tolist(), *(copy for id in right for copy in pack.row("copies", id).tolist())}
            for right in fits
        ]
        chosen: dict[int, int] = {}
        for query, right, ruled_out, allow in zip(queries, fits, wrong, allowed, strict=True):
            ids = [*right[:2].tolist(), *ruled_out[:1].tolist()]
            if len(right) or not len(ruled_out):
                near = [id for id in self._mined[query].tolist() if id >= 0 and id not in allow]
                ids += chance.permutation(near)[:MINED_PER_QUERY].tolist()
            for id in ids:
                chosen.setdefault(id, len(chosen))
        shape = len(queries), len(chosen)
        right_of, counts = np.zeros(shape, bool), np.ones(shape, bool)
        bm25 = np.zeros(shape, np.float32)
        for row, (query, right, ruled_out, allow) in enumerate(
            zip(queries, fits, wrong, allowed, strict=True)
        ):
            if len(ruled_out) and not len(right):
                # Nothing is known to fit, and the rest of the pool was not judged.
                counts[row] = False
                counts[row, [chosen[id] for id in ruled_out.tolist() if id in chosen]] = True
            counts[row, [chosen[id] for id in allow if id in chosen]] = False
            if pack.sources[pack.source[query]] == "session":
                counts[row, [chosen[id] for id in ruled_out.tolist() if id in chosen]] = False
            columns = [chosen[id] for id in right.tolist() if id in chosen]
            right_of[row, columns] = counts[row, columns] = True
            matched, values = pack.row("matched", query), pack.row("bm25", query)
            for id, value in zip(matched.tolist(), values.tolist(), strict=True):
                if id in chosen:
                    bm25[row, chosen[id]] = value
        return {
            "queries": queries,
            "documents": np.fromiter(chosen, np.int64, len(chosen)),
            "fits": right_of,
            "counts": counts,
            "bm25": bm25,
            "with_bodies": np.array(chance.random() < WITH_BODIES),
        }


def embed(model: torch.nn.Module, texts: Sequence[NDArray[np.generic]]) -> Tensor:
    """Returns unit vectors [n, width] of word pieces, in passes of texts of similar length."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    parts, start = [], 0
    while start < len(order):
        end = start + 1
        while end < len(order) and len(texts[order[end]]) * (end + 1 - start) <= TOKENS_PER_PASS:
            end += 1
        some = [texts[place] for place in order[start:end]]
        ids = np.zeros((len(some), max(1, *map(len, some))), np.int64)
        for row, text in enumerate(some):
            ids[row, : len(text)] = text
        pieces = torch.from_numpy(ids).to(DEVICE)
        parts.append(
            pool_mean(
                model,
                {
                    "input_ids": pieces,
                    "attention_mask": (pieces != 0).long(),
                    "token_type_ids": torch.zeros_like(pieces),
                },
            )
        )
        start = end
    return torch.cat(parts)[torch.tensor(order, device=DEVICE).argsort()]


def embed_documents(
    model: torch.nn.Module, pack: Pack, ids: Sequence[int] | Numbers, with_bodies: bool
) -> Tensor:
    """Returns unit vectors [n, width] of documents, moved towards their bodies if asked."""
    vectors = embed(model, [pack.row("head", id) for id in ids])
    bodies = [pack.row("body", id) for id in ids]
    places = [place for place, body in enumerate(bodies) if with_bodies and len(body)]
    if not places:
        return vectors
    drawn = torch.zeros_like(vectors)
    drawn[places] = embed(model, [bodies[place] for place in places])
    shares = torch.zeros(len(bodies), 1, device=DEVICE)
    shares[places] = BODY_SHARE
    return torch.nn.functional.normalize((1 - shares) * vectors + shares * drawn, dim=-1)


def scores_of(
    model: torch.nn.Module, pack: Pack, chosen: Numbers
) -> Iterator[tuple[Numbers, int, Tensor, Tensor]]:
    """Yields queries of one pool, its first document, their cosines and their blends [n, m].

    The caller turns gradients off.
    """
    for pool in np.unique(pack.pool[chosen]):
        first, end = (int(number) for number in pack.pools[pool])
        documents = embed_documents(model, pack, range(first, end), with_bodies=True)
        queries = chosen[pack.pool[chosen] == pool]
        vectors = embed(model, [pack.row("query", query) for query in queries])
        for start in range(0, len(queries), 2_048):
            some = queries[start : start + 2_048]
            cosines = vectors[start : start + 2_048] @ documents.T
            rows = [np.full(len(pack.row("matched", one)), row) for row, one in enumerate(some)]
            places = [pack.row("matched", one) - first for one in some]
            values = [pack.row("bm25", one).astype(np.float32) for one in some]
            bm25 = torch.zeros_like(cosines)
            bm25[
                torch.from_numpy(np.concatenate(rows)).to(DEVICE),
                torch.from_numpy(np.concatenate(places)).long().to(DEVICE),
            ] = torch.from_numpy(np.concatenate(values)).to(DEVICE)
            yield some, first, cosines, OF_COSINE * cosines + OF_BM25 * bm25


def mine(model: torch.nn.Module, pack: Pack, queries: Numbers) -> Numbers:
    """Returns the documents [all queries, NEAREST] that the blend finds best; -1 is none.

    Candidates whose cosine exceeds that of the right document by more than `TRUSTED` are left out.
    """
    model.eval()
    mined = np.full((len(pack.pool), NEAREST), -1)
    for some, first, cosines, blends in scores_of(model, pack, queries):
        best = blends.topk(min(NEAREST, blends.shape[1])).indices
        limits = torch.full((len(some),), 2.0, device=DEVICE)
        for row, query in enumerate(some):
            right = torch.from_numpy(pack.row("fits", query) - first).long().to(DEVICE)
            if len(right):
                limits[row] = cosines[row, right].max() + TRUSTED
        near = cosines.gather(1, best) <= limits[:, None]
        mined[some, : best.shape[1]] = torch.where(near, best + first, -1).cpu().numpy()
    model.train()
    return mined


def judge(model: torch.nn.Module, pack: Pack, step: int) -> None:
    """Prints the recall@1 of each dev set by cosine and by the blend, without thresholds."""
    model.eval()
    rows = []
    for source in pack.sources:
        if source.startswith("dev "):
            right: list[tuple[bool, bool]] = []
            for some, first, cosines, blends in scores_of(model, pack, pack.queries_of(source)):
                tops = cosines.argmax(1).cpu().numpy() + first, blends.argmax(1).cpu().numpy()
                right += [
                    (tops[0][row] in (fits := pack.row("fits", one)), tops[1][row] + first in fits)
                    for row, one in enumerate(some)
                ]
            cosine, blend = np.mean(right, axis=0)
            rows.append(f"{source[4:]} {cosine:.3f} {blend:.3f}")
    print(f"dev {step}: {'; '.join(rows)}", flush=True)
    model.train()


def batch_loss(
    nulls: Tensor, cosines: Tensor, bm25: Tensor, fits: Tensor, counts: Tensor
) -> Tensor:
    """Returns the mean cross-entropy of picking a right document, or nothing, among all.

    Args:
        nulls: Logits of "nothing fits", by cosine and by blend, [2], in units of ten.
        cosines: [n, m].
        bm25: Shares of BM25, [n, m].
        fits: Which document fits which query, [n, m].
        counts: Which pairs count at all, [n, m].

    Returns:
        A scalar. If several documents fit, any of them counts as right.
    """
    nothing = ~fits.any(1, keepdim=True)
    wanted = torch.cat([fits, nothing], 1)
    kept = torch.cat([counts, torch.ones_like(nothing)], 1)
    losses = []
    for null, logits in zip(
        nulls, (cosines / TEMPERATURE, OF_COSINE * cosines + OF_BM25 * bm25), strict=True
    ):
        every = torch.cat([logits, (10 * null).expand(len(logits), 1)], 1)
        every = torch.log_softmax(every.masked_fill(~kept, -torch.inf), 1)
        losses.append(-torch.logsumexp(every.masked_fill(~wanted, -torch.inf), 1).mean())
    return torch.stack(losses).mean()


def train(options: argparse.Namespace, pack: Pack) -> None:
    """Trains and writes the weights."""
    torch.manual_seed(options.seed)
    model = load_embedder(options.start, DROPOUT)
    model.embeddings.requires_grad_(False)
    nulls = torch.nn.ParameterList([torch.full((2,), 0.7, device=DEVICE)])
    both = torch.nn.ModuleList([model, nulls])
    optimiser = Optimiser(both, options.rate, options.steps, max(1, options.steps // 10))
    made_of = [sha256_of(options.pack), sha256_of(options.start / "model.safetensors")]
    options.output.mkdir(parents=True, exist_ok=True)
    checkpoint = options.output / "checkpoint.pt"
    smooth = optimiser.resume(checkpoint, made_of)
    steps = schedule(pack, options.steps, options.seed, options.half)
    used = np.unique(np.concatenate(steps))
    round_length = -(-options.steps // ROUNDS)
    for first in range(0, options.steps, round_length):
        end = min(first + round_length, options.steps)
        if end <= optimiser.done:
            continue
        if options.half is None:
            with torch.inference_mode():
                judge(model, pack, first)
        # A round begins with a checkpoint, so that a resumed one mines the same documents.
        optimiser.save(checkpoint, made_of, smooth)
        torch.manual_seed(options.seed + first)
        numbered = list(enumerate(steps))[first:end]
        with torch.inference_mode():
            mined = mine(model, pack, used)
        batches = Batches(pack, numbered, mined, options.seed)
        for batch in DataLoader(batches, batch_size=None, num_workers=options.workers):
            queries = embed(model, [pack.row("query", one) for one in batch["queries"].tolist()])
            with_bodies = bool(batch["with_bodies"])
            documents = embed_documents(model, pack, batch["documents"].tolist(), with_bodies)
            loss = batch_loss(
                nulls[0],
                queries @ documents.T,
                *(batch[name].to(DEVICE) for name in ("bm25", "fits", "counts")),
            )
            optimiser.step(loss)
            smooth = loss.item() if optimiser.done == 1 else 0.95 * smooth + 0.05 * loss.item()
            if optimiser.done % 20 == 0:
                optimiser.report(smooth)
    if options.half is None:
        with torch.inference_mode():
            judge(model, pack, options.steps)
    save(model, options.start, options.output)
    checkpoint.unlink(missing_ok=True)


def main() -> None:
    """Reads the arguments, checks the start's hashes and trains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start", type=Path, help="folder with all-MiniLM-L6-v2's weights")
    parser.add_argument("pack", type=Path, help="file that `pack_training_data.py` wrote")
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rate", type=float, default=1.2e-4)
    parser.add_argument("--half", type=int, choices=(0, 1), help="see this half of the queries")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4, help="processes that draw batches")
    options = parser.parse_args()
    check_weights(options.start)
    train(options, Pack(options.pack))


if __name__ == "__main__":
    main()
