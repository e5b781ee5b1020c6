"""Reads the labelled sets that the models are trained on, checked, deduplicated and in one form."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Licences under which a skill, and with it the prompts about it, may be trained on.
LICENCES = (
    "MIT",
    "Apache-2.0",
    "CC-BY-4.0 (docs/skills; code Apache-2.0)",
    "BSD",
    "MPL-2.0",
    "CC0",
)

# A training text that shares this much of its three-word shingles (Jaccard) with one of a hold-out
# is left out. Copies and forks of a skill lie above 0.5, unrelated skills below 0.1; prompts are
# shorter and share phrases such as "can you help me with".
NEAR_DUPLICATE_DOCUMENT = 0.3
NEAR_DUPLICATE_QUERY = 0.5


@dataclass(frozen=True, slots=True)
class Example:
    """One query with the documents that fit it, and those that its author marks as wrong.

    Attributes:
        source: The set it comes from.
        pool: The corpus that its other candidates are drawn from.
        query: Its text.
        positives: Ids in the pool that fit. With none, and negatives, nothing is known to fit
            but the rest of the pool was not judged; with neither, nothing in the pool fits.
        negatives: Ids in the pool that are known not to fit.
    """

    source: str
    pool: str
    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()


def shingles(text: str) -> set[str]:
    """Returns the runs of three words, or the words if there are fewer."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {" ".join(words[i : i + 3]) for i in range(len(words) - 2)} or set(words)


class NearDuplicates:
    """Finds texts that nearly copy one of the given texts."""

    def __init__(self, texts: Iterable[str], least: float) -> None:
        """Takes the texts and the least Jaccard similarity of their shingles that counts."""
        self._least = least
        self._sizes: list[int] = []
        self._places: dict[str, list[int]] = defaultdict(list)
        for text in texts:
            found = shingles(text)
            for shingle in found:
                self._places[shingle].append(len(self._sizes))
            self._sizes.append(len(found))

    def holds(self, text: str) -> bool:
        """Returns whether the text nearly copies a given one."""
        found = shingles(text)
        shared = Counter(place for shingle in found for place in self._places.get(shingle, ()))
        return any(
            count >= self._least * (len(found) + self._sizes[place] - count)
            for place, count in shared.items()
        )


@dataclass(slots=True)
class TrainingData:
    """All pools of documents (pool, then id, then text) and the examples about them.

    Skills may have a body and come from a repository, both by their id.
    """

    pools: dict[str, dict[str, str]] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    repositories: dict[str, str] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    removed: Counter[str] = field(default_factory=Counter)
    held_queries: NearDuplicates = field(default_factory=lambda: NearDuplicates((), 1.0))

    def add(
        self, source: str, pool: str, rows: Iterable[tuple[str, Iterable[str], Iterable[str]]]
    ) -> None:
        """Adds (query, positives, negatives), without ids that the pool lacks."""
        known = self.pools[pool]
        for query, positives, negatives in rows:
            if self.held_queries.holds(query):
                self.removed[f"{source}: prompts near a hold-out's"] += 1
                continue
            wanted = tuple(positives)
            fitting = tuple(id for id in wanted if id in known)
            ruled_out = tuple(id for id in negatives if id in known)
            if wanted and not fitting:
                self.removed[source] += 1
                continue
            self.examples.append(Example(source, pool, query, fitting, ruled_out))

    def half(self, example: Example) -> int:
        """Returns 0 or 1: which half of the examples this one is in.

        Examples about documents of one repository, or about one tool, are in the same half, since
        a model that has seen some of them has learnt about the rest. Intents are used for new
        requests of a known intent, so they are split by request, and so are passages.
        """
        key = example.query
        documents = example.positives or example.negatives
        if documents and example.pool in BY_DOCUMENT:
            key = self.repositories.get(documents[0], documents[0])
        return hashlib.sha256(key.encode()).digest()[0] % 2


class Deck:
    """Deals the items of a list in random order, each once before any comes again."""

    def __init__(self, items: Sequence[Example], rng: random.Random) -> None:
        self._items = list(items)
        self._rng = rng
        self._left: list[Example] = []

    def draw(self) -> Example:
        """Returns the next item."""
        if not self._left:
            self._left = self._rng.sample(self._items, len(self._items))
        return self._left.pop()


class Decks:
    """Deals examples by source, so that a mixture decides how often each source is seen."""

    def __init__(self, data: TrainingData, rng: random.Random) -> None:
        by_source: dict[str, list[Example]] = defaultdict(list)
        for example in data.examples:
            by_source[example.source].append(example)
        self._decks = {source: Deck(found, rng) for source, found in by_source.items()}
        self._rng = rng

    def draw(self, mixture: dict[str, float]) -> Example:
        """Returns an example of a source drawn by its weight in the mixture.

        Raises:
            KeyError: A source of the mixture has no examples.
        """
        source = self._rng.choices(list(mixture), list(mixture.values()))[0]
        return self._decks[source].draw()


# Pools whose documents are new where a model is used.
BY_DOCUMENT = ("skills", "metatool", "bfcl", "seal-tools", "acebench", "toolalpaca")

# The prompts written for this project about public skills.
SKILL_PROMPTS = ("skills", "tasks", "topic_swap", "jargon", "more", "requests")


def read_training_data(
    data: Path, prompts: Path, written: Iterable[str] = SKILL_PROMPTS
) -> TrainingData:
    """Returns the training data of both models.

    Args:
        data: Folder of the public sets, each in BEIR's layout.
        prompts: Folder of the prompts written for this project.
        written: Which of its files about skills to read, without `.jsonl`.

    Returns:
        The pools and examples, near-duplicates of the hold-outs removed. CLINC150's dev and test
        splits, MetaTool's dev, skill-triggers' dev, SciFact's and CoSQA's test, and all of HWU64,
        PubMedQA, ToolBench and LIMIT are left for measuring.
    """
    found = TrainingData(held_queries=_held_queries(data, prompts.parents[1] / "eval"))
    held_repositories = _add_skills(found, data, prompts, written)
    _add_tools(found, data)
    _add_intents(found, data, prompts)
    _add_passages(found, data, prompts, held_repositories)
    _add_packages(found, data)
    return found


def _held_queries(data: Path, own: Path) -> NearDuplicates:
    """Returns the queries of all hold-outs whose sets are trained on, and of the project's own."""
    held: list[str] = []
    for name, listings in (
        ("skill-triggers", ("qrels/dev.tsv", "negatives/dev.tsv")),
        ("metatool", ("qrels/dev.tsv",)),
        ("seal-tools", ("qrels/dev.tsv",)),
        ("clinc150", ("qrels/dev.tsv", "qrels/test.tsv")),
        ("scifact", ("qrels/test.tsv",)),
        ("cosqa", ("qrels/test.tsv",)),
        ("hwu64", ("qrels/dev.tsv",)),
    ):
        judged = {query for path in listings for query, _ in _pairs(data / name / path)}
        held += [
            row["text"]
            for row in read_rows(data / name / "queries.jsonl")
            if row["_id"] in judged or (_no_match(row) and row["metadata"].get("split") != "train")
        ]
    for queries in sorted(own.glob("*/queries.jsonl")):
        held += [row["text"] for row in read_rows(queries)]
    return NearDuplicates(held, NEAR_DUPLICATE_QUERY)


def _add_skills(found: TrainingData, data: Path, prompts: Path, written: Iterable[str]) -> set[str]:
    """Adds the skills that are not held out, and returns the repositories of those that are."""
    corpus = {row["_id"]: row for row in read_rows(data / "skill-triggers/corpus.jsonl")}
    held_ids = {id for _, id in _pairs(data / "skill-triggers/qrels/dev.tsv")}
    held_ids |= {id for _, id in _pairs(data / "skill-triggers/negatives/dev.tsv")}
    held_texts = [document_text(corpus[id]) for id in sorted(held_ids)]
    held_texts += [
        document_text(row) for row in read_rows(prompts.parents[1] / "eval/skills/corpus.jsonl")
    ]
    held = NearDuplicates(held_texts, NEAR_DUPLICATE_DOCUMENT)
    held_repositories = {corpus[id]["metadata"]["repo"] for id in held_ids}

    rows = list(corpus.values())
    rows += read_rows(data / "skill-examples-weak/corpus.jsonl")
    rows += read_rows(data / "skills/corpus.jsonl")
    pool: dict[str, str] = {}
    near: set[str] = set()
    for row in rows:
        metadata = row["metadata"]
        if row["_id"] in pool or metadata.get("licence") not in LICENCES:
            continue
        text = document_text(row)
        if metadata["repo"] in held_repositories or held.holds(text):
            near.add(row["_id"])
        else:
            pool[row["_id"]] = text
            found.repositories[row["_id"]] = metadata["repo"]
    found.bodies = {
        row["_id"]: row["body"]
        for row in read_rows(data / "skill-bodies/bodies.jsonl")
        if row["_id"] in pool
    }
    found.removed["skills of a hold-out or near one"] = len(near)
    found.pools["skills"] = pool

    for name, folder in (("skill-triggers", "skill-triggers"), ("skill-examples-weak",) * 2):
        negatives = data / folder / "negatives/train.tsv"
        found.add(name, "skills", _judged(data / folder, "train", negatives))
    for file in written:
        found.add(f"written {file}", "skills", _written(prompts / f"{file}.jsonl"))
    return held_repositories


def _add_tools(found: TrainingData, data: Path) -> None:
    held_tools = {id for _, id in _pairs(data / "metatool/qrels/dev.tsv")}
    for name in ("metatool", "bfcl", "seal-tools", "acebench", "toolalpaca"):
        rows = read_rows(data / name / "corpus.jsonl")
        found.pools[name] = {
            row["_id"]: document_text(row)
            for row in rows
            if name != "metatool" or row["_id"] not in held_tools
        }
        found.add(name, name, _judged(data / name, "train"))
    for name in ("bfcl", "acebench"):
        lists = {
            row["query"]: row["candidates"] for row in read_rows(data / name / "candidates.jsonl")
        }
        matched = {example.query for example in found.examples if example.source == name}
        outside = [
            (row["text"], (), lists[row["_id"]])
            for row in read_rows(data / name / "queries.jsonl")
            if _no_match(row) and row["_id"] in lists and row["text"] not in matched
        ]
        found.add(name, name, outside)


def _add_intents(found: TrainingData, data: Path, prompts: Path) -> None:
    descriptions: dict[str, list[str]] = defaultdict(list)
    for row in read_rows(prompts / "intents.jsonl"):
        if row["set"] == "clinc150":
            descriptions[row["doc"]].append(row["text"])
    for name in ("clinc150", "nlupp"):
        rows = list(read_rows(data / name / "corpus.jsonl"))
        found.pools[name] = {row["_id"]: document_text(row) for row in rows}
        found.add(name, name, _judged(data / name, "train"))
    # The same intents a second time as a tool's author would describe them.
    for which in (0, 1):
        pool = f"clinc150 described {which}"
        found.pools[pool] = {
            id: text.split(": ", 1)[-1] + ": " + descriptions[id][which]
            for id, text in found.pools["clinc150"].items()
            if len(descriptions[id]) > which
        }
    near = [(row["text"], (), (row["near"],)) for row in read_rows(prompts / "intents_near.jsonl")]
    found.add("written near misses", "clinc150", near)
    outside = [
        (row["text"], (), ())
        for row in read_rows(data / "clinc150/queries.jsonl")
        if _no_match(row) and row["metadata"]["split"] == "train"
    ]
    found.add("clinc150", "clinc150", outside)


def _add_passages(
    found: TrainingData, data: Path, prompts: Path, held_repositories: set[str]
) -> None:
    for name, split in (("scifact", "train"), ("cosqa", "train"), ("medquad", "train")):
        rows = read_rows(data / name / "corpus.jsonl")
        # SciFact's abstracts repeat their title in the text.
        found.pools[name] = {
            row["_id"]: row["text"] if name == "scifact" else document_text(row) for row in rows
        }
        found.add(name, name, _judged(data / name, split))
    name = "markdown-sections-weak"
    asked = {row["doc"] for row in read_rows(prompts / "sections.jsonl")}
    found.pools[name] = {
        row["_id"]: document_text(row)
        for row in read_rows(data / name / "corpus.jsonl")
        if row["_id"] in asked or _is_prose(row["text"])
        if row["metadata"]["repo"] not in held_repositories
    }
    found.add(name, name, _judged(data / name, "train"))
    found.add("written passage questions", name, _written(prompts / "sections.jsonl"))


# Mostly libraries, fonts, data and parts, which the package of the program describes better; a few
# programs are lost with them.
PART_OF_A_PROGRAM = re.compile(
    r"^(lib|node-|golang-|ruby-|python3?-|r-|fonts-|texlive|haskell|librust|rust-|php-|gcc-|linux-|"
    r"task-|language|hunspell|aspell|myspell|elpa-|ocaml|gir1|cross|binutils|qt|puppet-|xfonts)|"
    r"-(dev|dbg|doc|data|common|plugins?|modules?|l10n|i18n|bin|headers|examples|tests|core|all)(-|$)"
)
NO_PROGRAM = re.compile(r"transitional|dummy package|meta-?package", re.IGNORECASE)


def _add_packages(found: TrainingData, data: Path) -> None:
    """Adds Debian's programs: the summary line of a package is the query for its description.

    All of them are of Debian's main section and so under licences that the Debian Free Software
    Guidelines allow, each package under its own.
    """
    pool: dict[str, str] = {}
    asking: dict[str, list[str]] = defaultdict(list)
    beginnings: set[str] = set()
    text = (data / "debian/Translation-en").read_text(encoding="utf-8")
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if len(lines) < 4 or PART_OF_A_PROGRAM.search(name := lines[0].removeprefix("Package: ")):
            continue
        short = lines[2].removeprefix("Description-en: ")
        long = " ".join(line.strip() for line in lines[3:] if line != " .")
        if len(long) < 200 or len(short.split()) < 3 or long[:120] in beginnings:
            continue
        if NO_PROGRAM.search(short + long):
            continue
        beginnings.add(long[:120])
        pool[name] = f"{name}: {long}"
        asking[short.lower()].append(name)
    found.pools["debian"] = pool
    found.add("debian", "debian", ((short, names, []) for short, names in asking.items()))


def _judged(
    folder: Path, split: str, negatives: Path | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields text, positives and negatives of each judged query, in the order of the queries."""
    fitting: dict[str, list[str]] = defaultdict(list)
    ruled_out: dict[str, list[str]] = defaultdict(list)
    for query, document in _pairs(folder / f"qrels/{split}.tsv"):
        fitting[query].append(document)
    if negatives is not None and negatives.is_file():
        for query, document in _pairs(negatives):
            ruled_out[query].append(document)
    for row in read_rows(folder / "queries.jsonl"):
        id = row["_id"]
        if id in fitting or id in ruled_out:
            yield row["text"], fitting[id], ruled_out[id]


def _written(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for row in read_rows(path):
        if "near" in row:
            yield row["text"], [], [row["near"]]
        else:
            yield row["text"], [row["doc"]], row.get("wrong", [])


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        cells = line.split("\t")
        if len(cells) < 3 or float(cells[2]) > 0:
            yield cells[0], cells[1].strip()


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of a file of JSON lines."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def document_text(row: dict[str, Any]) -> str:
    """Returns the text of a corpus row as models read it, "title: text"."""
    title, text = row.get("title", ""), row["text"]
    return f"{title}: {text}" if title and text else title or text


def _no_match(row: dict[str, Any]) -> bool:
    return bool(row.get("metadata", {}).get("no_match"))


def _is_prose(text: str) -> bool:
    letters = sum(char.isalpha() or char == " " for char in text)
    return 200 <= len(text) <= 1_500 and letters >= 0.75 * len(text) and "```" not in text
