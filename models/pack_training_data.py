"""Packs the training data and dev sets of the embedder, so that training needs nothing else.

    python pack_training_data.py DATA TOKENIZER OUTPUT [--more FOLDER]

Needs crossgate installed for its BM25 and its reader of prompts, but no torch. The packed file has
word pieces instead of texts. `train_embedder.py` reads it, on this machine or on one with a GPU.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from corpora import Example, TrainingData, document_text, read_rows, read_training_data, shingles
from hashes import check_hashes
from tokenizers import Tokenizer

from crossgate import Document, Index
from crossgate._values.inputs import read_prompt

HERE = Path(__file__).parent
LIBRARIES = ("specialists", "workflows", "everything")

QUERY_PIECES, HEAD_PIECES, BODY_PIECES = 64, 128, 192
BODY_CHARACTERS = 1_000
QUERY_CHARACTERS = 2_000

PIVOT = 32.0
"""BM25 at which its share of the blend is one half, as in the default profile."""

MATCHES = 64
"""Documents per query whose BM25 is packed; all others count as 0."""

COPY = 0.3
"""Two documents with this share of common shingles (Jaccard) are copies: neither is wrong for a
query that the other fits."""

DEV_QUERIES = 600


@dataclass(slots=True)
class Pack:
    """Ragged arrays by name; documents are numbered over all pools.

    Attributes:
        tokenizer: Cuts texts into word pieces.
        lists: Name, and a list of numbers for each document or query.
        columns: Name, and one number for each query.
        names: Name, and a list of texts.
    """

    tokenizer: Tokenizer
    lists: dict[str, list[Sequence[float]]] = field(default_factory=lambda: defaultdict(list))
    columns: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    names: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def pieces(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """Returns the word pieces of texts, with the marks of start and end, cut at `most`."""
        self.tokenizer.enable_truncation(most)
        return [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]

    def add_pool(self, texts: dict[str, str], bodies: dict[str, str]) -> dict[str, int]:
        """Adds the documents of a pool, and returns their numbers."""
        first = len(self.lists["head"])
        self.lists["head"] += self.pieces(list(texts.values()), HEAD_PIECES)
        starts = [bodies.get(id, "")[:BODY_CHARACTERS] for id in texts]
        cut = self.pieces(starts, BODY_PIECES)
        self.lists["body"] += [
            found if start else [] for found, start in zip(cut, starts, strict=True)
        ]
        numbers = {id: first + place for place, id in enumerate(texts)}
        self.lists["copies"] += [[numbers[id] for id in ids] for ids in copies(texts)]
        self.lists["pool"].append([first, first + len(texts)])
        return numbers

    def add_queries(
        self,
        source: str,
        queries: Iterable[tuple[str, Sequence[str], Sequence[str], int]],
        numbers: dict[str, int],
        words: Index,
    ) -> None:
        """Adds (text, fitting ids, wrong ids, half) of one source, all about the latest pool."""
        rows = list(queries)
        place = len(self.names["source"])
        self.names["source"].append(source)
        self.lists["query"] += self.pieces([text for text, *_ in rows], QUERY_PIECES)
        for text, fits, wrong, half in rows:
            self.columns["source"].append(place)
            self.columns["pool"].append(len(self.lists["pool"]) - 1)
            self.columns["half"].append(half)
            self.lists["fits"].append([numbers[id] for id in fits])
            self.lists["wrong"].append([numbers[id] for id in wrong])
            found = words.search(text[:QUERY_CHARACTERS] or " ", embed=False, per_channel=MATCHES)
            best = [one for one in found.scored if one.bm25 > 0]
            self.lists["matched"].append([numbers[one.id] for one in best])
            self.lists["bm25"].append([one.bm25 / (one.bm25 + PIVOT) for one in best])

    def write(self, path: Path) -> None:
        """Writes the arrays; a list becomes its values and the ends of its rows."""
        arrays: dict[str, np.ndarray] = {}
        for name, rows in self.lists.items():
            kind = {"bm25": np.float16, "head": np.uint16, "body": np.uint16, "query": np.uint16}
            flat = [value for row in rows for value in row]
            arrays[name] = np.array(flat, kind.get(name, np.int32))
            arrays[f"{name}_ends"] = np.cumsum([len(row) for row in rows], dtype=np.int64)
        for name, column in self.columns.items():
            arrays[f"of_{name}"] = np.array(column, np.int32)
        for name, texts in self.names.items():
            arrays[f"{name}_names"] = np.array(texts)
        np.savez_compressed(path, **arrays)  # type: ignore[arg-type]  # no name is `allow_pickle`


def copies(texts: dict[str, str]) -> Iterator[list[str]]:
    """Yields for each document the ids of the others that nearly copy it."""
    sets = {id: shingles(text) for id, text in texts.items()}
    places: dict[str, list[str]] = defaultdict(list)
    for id, found in sets.items():
        for shingle in found:
            places[shingle].append(id)
    for id, found in sets.items():
        shared: dict[str, int] = defaultdict(int)
        for shingle in found:
            if len(places[shingle]) <= 200:
                for other in places[shingle]:
                    shared[other] += 1
        yield [
            other
            for other, count in shared.items()
            if other != id and count >= COPY * (len(found) + len(sets[other]) - count)
        ]


def index_of(texts: dict[str, str], bodies: dict[str, str]) -> Index:
    """Returns an index of words alone."""
    documents = [Document(id=id, text=text, body=bodies.get(id, "")) for id, text in texts.items()]
    return Index.build(documents, embedder=None)


def add_training_data(pack: Pack, data: TrainingData) -> None:
    """Adds all pools and their queries, intents also under their described names."""
    by_pool: dict[str, list[Example]] = defaultdict(list)
    for example in data.examples:
        by_pool[example.pool].append(example)
    for pool, texts in data.pools.items():
        examples = by_pool[pool.split(" described")[0]]
        bodies = data.bodies if pool == "skills" else {}
        numbers, words = pack.add_pool(texts, bodies), index_of(texts, bodies)
        by_source: dict[str, list[Example]] = defaultdict(list)
        for example in examples:
            by_source[example.source].append(example)
        for source, found in by_source.items():
            rows = [
                (
                    example.query,
                    [id for id in example.positives if id in numbers],
                    [id for id in example.negatives if id in numbers],
                    data.half(example),
                )
                for example in found
                if not example.positives or any(id in numbers for id in example.positives)
            ]
            variant = pool.removeprefix("clinc150") if pool.startswith("clinc150") else ""
            pack.add_queries(source + variant, rows, numbers, words)
        print(f"{pool}: {len(texts)} documents, {len(examples)} queries", flush=True)


def session_rows(
    folders: Sequence[Path], library: str, split: str
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields the searched text, the musts and the arguably useful skills of prompts of sessions."""
    for folder in folders:
        labels = {row["id"]: row for row in read_rows(folder / "labels" / f"{library}.jsonl")}
        for row in read_rows(folder / "prompts.jsonl"):
            if row["split"] == split:
                label = labels[row["id"]]
                text = read_prompt(row["text"][:65_536], None).searched
                yield text or " ", label["must"], label["may"]


def add_sessions(pack: Pack, data: Path, more: Sequence[Path], halves: TrainingData) -> None:
    """Adds the libraries of sessions, with the prompts of training and of dev.

    `wrong` of these queries holds the arguably useful skills, which are neither right nor wrong;
    a prompt with these alone has them as its fitting ones. `halves` says which half a prompt is in.
    """
    bodies = {row["_id"]: row["body"] for row in read_rows(data / "skill-bodies/bodies.jsonl")}
    for library in LIBRARIES:
        rows = read_rows(data / "sessions/libraries" / f"{library}.jsonl")
        texts = {row["_id"]: document_text(row) for row in rows}
        numbers, words = pack.add_pool(texts, bodies), index_of(texts, bodies)
        training = [
            (
                text,
                must or may,
                may if must else [],
                halves.half(Example("session", f"session {library}", text, ())),
            )
            for text, must, may in session_rows([data / "sessions", *more], library, "train")
        ]
        dev: list[tuple[str, list[str], list[str], int]] = [
            (text, must, [], 0)
            for text, must, _ in session_rows([data / "sessions"], library, "dev")
            if must
        ]
        pack.add_queries("session", training, numbers, words)
        pack.add_queries(f"dev session {library}", dev, numbers, words)


def dev_queries(
    folder: Path, split: str, name: str
) -> tuple[list[dict[str, Any]], list[tuple[str, list[str]]]]:
    """Returns the documents of a set in BEIR's layout, and queries with their fitting documents.

    Prompts that name the fitting document are left out; `name` seeds the choice of the others.
    """
    fits: dict[str, list[str]] = defaultdict(list)
    for line in (folder / f"qrels/{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, *grade = line.split("\t")
        if not grade or float(grade[0]) > 0:
            fits[query].append(document)
    queries = [
        (row["text"], fits[row["_id"]])
        for row in read_rows(folder / "queries.jsonl")
        if fits.get(row["_id"]) and not (row.get("metadata") or {}).get("mentions_name")
    ]
    random.Random(name).shuffle(queries)
    return list(read_rows(folder / "corpus.jsonl")), queries[:DEV_QUERIES]


def add_dev_set(pack: Pack, name: str, folder: Path, split: str, bodies: dict[str, str]) -> None:
    """Adds a set whose queries judge the training and are never trained on."""
    rows, queries = dev_queries(folder, split, name)
    texts = {row["_id"]: document_text(row) for row in rows}
    bodies = bodies | {row["_id"]: row["body"] for row in rows if row.get("body")}
    numbers, words = pack.add_pool(texts, bodies), index_of(texts, bodies)
    pack.add_queries(f"dev {name}", [(text, fit, (), 0) for text, fit in queries], numbers, words)
    print(f"dev {name}: {len(texts)} documents, {len(queries)} queries", flush=True)


def main() -> None:
    """Reads the arguments, checks the data's hashes and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json of the embedder")
    parser.add_argument("output", type=Path, help="file to write, .npz")
    parser.add_argument(
        "--more", type=Path, nargs="*", default=[], help="folders of further session prompts"
    )
    options = parser.parse_args()
    check_hashes(options.data, HERE / "data.sha256")
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    tokenizer.no_padding()
    pack = Pack(tokenizer)
    data = read_training_data(options.data, HERE / "prompts")
    print(f"{len(data.examples)} examples; left out: {dict(data.removed)}", flush=True)
    add_training_data(pack, data)
    add_sessions(pack, options.data, options.more, data)
    bodies = {
        row["_id"]: row["body"] for row in read_rows(options.data / "skill-bodies/bodies.jsonl")
    }
    own = HERE.parent / "eval"
    for name, folder, split in (
        ("skill-triggers", options.data / "skill-triggers", "dev"),
        ("metatool", options.data / "metatool", "dev"),
        ("clinc150", options.data / "clinc150", "dev"),
        ("hwu64", options.data / "hwu64", "dev"),
        ("own skills", own / "skills", "test"),
        ("own tools", own / "tools", "test"),
        ("own chunks", own / "chunks", "test"),
    ):
        add_dev_set(pack, name, folder, split, bodies if name == "skill-triggers" else {})
    pack.write(options.output)
    print(f"{options.output}: {options.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
