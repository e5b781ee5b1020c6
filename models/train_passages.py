"""Trains the passage reranker on questions that a passage answers, or only seems to answer.

    python train_passages.py START DATA OUTPUT

START holds the weights of ms-marco-MiniLM-L-12-v2, DATA the public sets. A pair is a question and a
paragraph; its label says whether the paragraph answers. Pairs of documentation and medicine also
keep the logit of START, so that the order of other passages is not forgotten. An interrupted run
continues from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bm25s
import torch
from hashes import check_weights, sha256_of
from torch import Tensor
from train_cross_encoder import CHECKPOINT, CHECKPOINT_EVERY, new_model, score
from training import DEVICE, Encoder, Optimiser, save

HERE = Path(__file__).parent
PAIRS_PER_STEP = 24
SEED = 0

# Number of pairs of each kind; `unanswerable` takes all that there are.
ANSWERABLE, EDITED, UNRELATED, SECTIONS, MEDICINE = 5000, 3000, 1500, 1000, 1000

# Weight of the squared distance from the logit of START.
TAUGHT = 0.02

# The questions of a row of our own, each with the passage that answers it.
QUESTIONS = {"question": "answer", "mention_question": "mention", "sibling_question": "sibling"}

# A word that names something: capitalised, not the first of a sentence, or with a digit.
NAME = re.compile(r"(?<=[a-z,] )(?:[A-Z][\w'-]+)(?: [A-Z][\w'-]+)*|\b\d[\d,.]*\b")


class Lexical:
    """BM25 over each pool, to find wrong documents that share words with a query."""

    def __init__(self, pools: dict[str, dict[str, str]]) -> None:
        self._ids = {name: list(pool) for name, pool in pools.items()}
        self._models = {}
        for name, pool in pools.items():
            model = bm25s.BM25(k1=1.2, b=0.75)
            model.index(_tokens(list(pool.values())), show_progress=False)
            self._models[name] = model

    def nearest(self, pool: str, queries: Sequence[str], count: int) -> list[list[str]]:
        """Returns the ids of the best `count` documents for each query, best first."""
        ids = self._ids[pool]
        rows, _ = self._models[pool].retrieve(
            _tokens(queries), k=min(count, len(ids)), show_progress=False, n_threads=1
        )
        return [[ids[place] for place in row] for row in rows]


def _tokens(texts: Sequence[str]) -> bm25s.tokenization.Tokenized:
    return bm25s.tokenize(list(texts), stopwords="en", show_progress=False)


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
    taught: bool = False


def rows(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def edited(question: str, paragraph: str, others: Sequence[str], chance: random.Random) -> str:
    """Returns a question in which a name or number was replaced, so that it is not answered.

    Args:
        question: A question that the paragraph answers.
        paragraph: The paragraph.
        others: Names and numbers of the article's other paragraphs.
        chance: Draws the name and its replacement.

    Returns:
        The new question; empty if no name can be replaced.
    """
    names = [name for name in NAME.findall(question) if name in paragraph]
    if not names:
        return ""
    name = chance.choice(names)
    numeric = name[0].isdigit()
    fitting = [
        other
        for other in others
        if other not in paragraph
        and other not in question
        and other[0].isdigit() == numeric
        and (not numeric or len(other) == len(name))
        and abs(len(other.split()) - len(name.split())) <= 1
    ]
    return question.replace(name, chance.choice(fitting)) if fitting else ""


def squad_pairs(folder: Path, chance: random.Random) -> Iterator[Pair]:
    """Yields pairs of the training split of SQuAD."""
    corpus = {row["_id"]: row for row in rows(folder / "corpus.jsonl")}
    text = {id: f"{row['title']}\n{row['text']}" for id, row in corpus.items()}
    questions = [
        row for row in rows(folder / "queries.jsonl") if row["metadata"]["split"] == "train"
    ]
    articles: dict[str, set[str]] = defaultdict(set)
    for row in questions:
        articles[row["metadata"]["article"]].add(row["metadata"]["near"])
    pools = {name: {id: corpus[id]["text"] for id in sorted(ids)} for name, ids in articles.items()}
    pools = {name: pool for name, pool in pools.items() if len(pool) > 2}
    lexical = Lexical(pools)

    def neighbour(row: dict[str, Any]) -> str:
        near, article = row["metadata"]["near"], row["metadata"]["article"]
        if article not in pools:
            return ""
        best = lexical.nearest(article, [row["text"]], 3)[0]
        return chance.choice([id for id in best if id != near][:2])

    unanswerable = [row for row in questions if row["metadata"]["no_match"]]
    seemingly = {row["metadata"]["article"] for row in unanswerable}
    beside = [
        row
        for row in questions
        if row["metadata"]["article"] in seemingly and not row["metadata"]["no_match"]
    ]
    for row in unanswerable:
        yield Pair(row["text"], text[row["metadata"]["near"]], 0.0)
    for row in chance.sample(beside, min(len(beside), len(unanswerable))):
        yield Pair(row["text"], text[row["metadata"]["near"]], 1.0)
    for row in chance.sample(unanswerable, len(unanswerable) // 4):
        if other := neighbour(row):
            yield Pair(row["text"], text[other], 0.0)

    answered = [row for row in questions if row["metadata"]["article"] not in seemingly]
    chance.shuffle(answered)
    for row in answered[:ANSWERABLE]:
        if other := neighbour(row):
            yield Pair(row["text"], text[row["metadata"]["near"]], 1.0)
            yield Pair(row["text"], text[other], 0.0)
    names = {
        article: sorted({name for one in pool.values() for name in NAME.findall(one)})
        for article, pool in pools.items()
    }
    count = 0
    for row in answered[ANSWERABLE:]:
        article, near = row["metadata"]["article"], row["metadata"]["near"]
        question = edited(row["text"], corpus[near]["text"], names.get(article, ()), chance)
        if question and count < EDITED:
            count += 1
            yield Pair(question, text[near], 0.0)
            yield Pair(row["text"], text[near], 1.0)
    everything = list(text.values())
    for row in answered[-UNRELATED:]:
        yield Pair(row["text"], chance.choice(everything), 0.0, taught=True)


def other_pairs(
    folder: Path, asked: Sequence[tuple[str, str]], chance: random.Random
) -> Iterator[Pair]:
    """Yields questions of another set with their passage, and with one that shares words.

    Args:
        folder: The set.
        asked: Questions with the id of their passage.
        chance: Draws the other passage.
    """
    corpus = {row["_id"]: row for row in rows(folder / "corpus.jsonl")}
    lexical = Lexical({"all": {id: row["text"] for id, row in corpus.items()}})
    for question, id in asked:
        near = [one for one in lexical.nearest("all", [question], 6)[0] if one != id]
        for one, answers in ((id, 1.0), (chance.choice(near), None)):
            passage = f"{corpus[one].get('title', '')}\n{corpus[one]['text']}".strip()
            yield Pair(question, passage, answers, taught=True)


def written_pairs(row: dict[str, Any]) -> Iterator[Pair]:
    """Yields the pairs of a row of our own: each of its questions with each of its passages.

    A passage answers its own question alone, so the words that it shares with a question do not
    tell whether it answers.
    """
    for asked, right in QUESTIONS.items():
        for name in QUESTIONS.values():
            if row.get(asked) and row.get(name):
                yield Pair(row[asked], row[name], float(name == right))


def all_pairs(
    data: Path, written: Path | None, repeat: int, others: int | None = None
) -> list[Pair]:
    """Returns all pairs, shuffled, with pairs of similar length side by side in each step.

    Args:
        data: Folder of the public sets.
        written: Questions of our own; None for none.
        repeat: How often each of their pairs is read.
        others: How many of the other pairs are read; None for all.
    """
    chance = random.Random(SEED)
    pairs = list(squad_pairs(data / "squad", chance))
    sections = [(row["text"], row["doc"]) for row in rows(HERE / "prompts" / "sections.jsonl")]
    known = {row["_id"] for row in rows(data / "markdown-sections-weak" / "corpus.jsonl")}
    sections = [one for one in sections if one[1] in known]
    sections = chance.sample(sections, min(SECTIONS, len(sections)))
    pairs += other_pairs(data / "markdown-sections-weak", sections, chance)
    texts = {row["_id"]: row["text"] for row in rows(data / "medquad" / "queries.jsonl")}
    labels = (data / "medquad" / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()
    medicine = [(texts[line.split("\t")[0]], line.split("\t")[1]) for line in labels[1:]]
    pairs += other_pairs(data / "medquad", chance.sample(medicine, MEDICINE), chance)
    if written is not None:
        own = [pair for row in rows(written) for pair in written_pairs(row)]
        if others is not None:
            pairs = chance.sample(pairs, min(len(pairs), others))
        pairs += own * repeat
    chance.shuffle(pairs)
    chunk = 20 * PAIRS_PER_STEP
    ordered: list[list[Pair]] = []
    for start in range(0, len(pairs) - chunk + 1, chunk):
        part = sorted(pairs[start : start + chunk], key=lambda pair: len(pair.passage))
        steps = [part[at : at + PAIRS_PER_STEP] for at in range(0, chunk, PAIRS_PER_STEP)]
        chance.shuffle(steps)
        ordered += steps
    return [pair for step in ordered for pair in step]


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
    pairs = all_pairs(arguments.data, arguments.written, arguments.repeat, arguments.others)
    model = new_model(arguments.start)
    model.bert.embeddings.requires_grad_(True)
    teacher = new_model(arguments.teacher or arguments.start).eval()
    encoder = Encoder(arguments.start / "tokenizer.json", arguments.tokens)
    steps = min(arguments.steps or len(pairs), len(pairs) // PAIRS_PER_STEP)
    optimiser = Optimiser(model, arguments.rate, steps, arguments.warm_up)
    squad = arguments.data / "squad" / "queries.jsonl"
    made_of = [sha256_of(squad), sha256_of(arguments.start / "model.safetensors")]
    made_of += [f"{steps} steps", f"seed {arguments.seed}"]
    arguments.output.mkdir(parents=True, exist_ok=True)
    smooth = optimiser.resume(arguments.output / CHECKPOINT, made_of)
    for step in range(optimiser.done, steps):
        batch = pairs[step * PAIRS_PER_STEP :][:PAIRS_PER_STEP]
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
        if step % 10 == 9:
            optimiser.report(smooth)
        if step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 or step == steps - 1:
            save(model, arguments.start, arguments.output)
            optimiser.save(arguments.output / CHECKPOINT, made_of, smooth)


def main() -> None:
    """Reads the arguments, checks the weights' hashes and trains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("start", type=Path, help="folder of weights to start from")
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("output", type=Path, help="folder to write the weights to")
    parser.add_argument("--written", type=Path, help="questions of our own with three passages")
    parser.add_argument("--repeat", type=int, default=2, help="how often each of them is seen")
    parser.add_argument("--others", type=int, help="with --written: how many other pairs are read")
    parser.add_argument(
        "--teacher", type=Path, help="folder whose logits are kept (default: START)"
    )
    parser.add_argument("--rate", type=float, default=6e-5)
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=176, help="most tokens of a pair")
    parser.add_argument("--steps", type=int, help="stop after this many steps")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    check_weights(arguments.start)
    train(arguments)


if __name__ == "__main__":
    main()
