"""The sections of the benchmark; each yields figures, and none needs a network."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import crossgate._core as _core
from crossgate._cli.benchmarks import peers
from crossgate._cli.benchmarks.process_usage import usage_of
from crossgate._cli.benchmarks.texts import Texts
from crossgate._cli.benchmarks.timing import OURS, Figure, Run, side_by_side
from crossgate._cli.samples import SKILLS
from crossgate._decision.router import Router
from crossgate._reranking.contract import NO_DEADLINE, passages_of
from crossgate._reranking.cross_encoder import CrossEncoder
from crossgate._retrieval.document_index import Index
from crossgate._retrieval.embedding import OnnxEmbedder
from crossgate._runtime.models.manifest import BUNDLED, EMBEDDER, PASSAGE_RERANKER, ROUTING_RERANKER
from crossgate._support.wording import counted

_NULL = subprocess.DEVNULL

# Without -P, Python would import a module of this name from the current folder.
_PYTHON = [sys.executable, "-P"]
_CROSSGATE = [*_PYTHON, "-c", "from crossgate._cli import main; main()"]

# Two prompts of the demo: stage 1 decides the first; the cross-encoder decides the second.
_CLEAR = "merge these three PDF files into one"
_UNCLEAR = "describe what this pull request changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the sections measure.

    Attributes:
        repetitions: How often each contender is timed.
        sizes: Numbers of documents.
        against: The libraries to compare with.
    """

    repetitions: int
    sizes: tuple[int, ...]
    against: tuple[str, ...]


def processes(settings: Settings) -> Iterator[Figure]:
    """Time and peak memory of whole processes, since a prompt hook starts one per prompt."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "skills.cgx"
        _library(1_000).save(file)
        route = [*_CROSSGATE, "route", "-i", str(file)]
        commands = {
            "python -c pass": [*_PYTHON, "-c", "pass"],
            "import crossgate": [*_PYTHON, "-c", "import crossgate"],
            "from crossgate import Router": [*_PYTHON, "-c", "from crossgate import Router"],
            "crossgate route, 1,000 skills, stage 1 decides": [*route, _CLEAR],
            "crossgate route, 1,000 skills, reranked": [*route, _UNCLEAR],
        }
        for name in settings.against:
            commands[f"import {name}"] = [*_PYTHON, "-c", f"import {name}"]
        times = {case: partial(_ended, command) for case, command in commands.items()}
        yield from _alone(side_by_side("", times, settings.repetitions))
        for case, command in commands.items() if sys.platform != "win32" else ():
            values = tuple(usage_of(command).peak for _ in range(3))
            yield Figure(case=case, contender=OURS, unit="MiB", values=values)


def routes(settings: Settings) -> Iterator[Figure]:
    """Warm routes over 1,000 skills: the time per prompt in a server or a notebook."""
    index = _library(1_000)
    router, alone = Router(index), Router(index, reranker=None)
    router.warm_up()
    cases: dict[str, Run] = {
        "stage 1 alone": lambda: alone.route(_UNCLEAR),
        "the gate: stage 1 decides": lambda: router.route(_CLEAR),
        "the gate: reranked": lambda: router.route(_UNCLEAR),
        "embedding the prompt alone": lambda: index.load_embedder().embed([_CLEAR]),
    }
    yield from _alone(side_by_side("", cases, settings.repetitions))


def pairs(settings: Settings) -> Iterator[Figure]:
    """Stage 2: a query of 10 words and 16 passages, pairs per second on all cores."""
    models = {name: CrossEncoder(name) for name in (ROUTING_RERANKER, PASSAGE_RERANKER)}
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, Callable[[str, Sequence[str]], object]] = {}
        if "flashrank" in settings.against:
            runs["flashrank, same file"] = peers.flashrank(BUNDLED / PASSAGE_RERANKER, Path(folder))
        for case, lengths in {
            "15 words": [15] * 16,
            "100 words": [100] * 16,
            "10 to 160 words": list(range(10, 170, 10)),
            "250 words": [250] * 16,
        }.items():
            for name, model in models.items():
                others = runs if name == PASSAGE_RERANKER else {}
                yield from _pairs(f"{name}, {case}", lengths, model, others, settings)


def _pairs(
    case: str,
    lengths: Sequence[int],
    model: CrossEncoder,
    others: Mapping[str, Callable[[str, Sequence[str]], object]],
    settings: Settings,
) -> Iterator[Figure]:
    texts = Texts(_english())
    query, passages = texts.text(10), [texts.text(length) for length in lengths]
    read = passages_of(passages)
    runs: dict[str, Run] = {OURS: lambda: model.score(query, read, deadline=NO_DEADLINE)}
    runs |= {name: partial(score, query, passages) for name, score in others.items()}
    yield from side_by_side(case, runs, settings.repetitions, each=len(passages))


def bm25(settings: Settings) -> Iterator[Figure]:
    """BM25 in one thread: the ten best of documents of 60 words, by 12 words."""
    for size in settings.sizes:
        yield from _bm25(size, settings)


def _bm25(size: int, settings: Settings) -> Iterator[Figure]:
    texts = Texts()
    documents = [texts.text(60) for _ in range(size)]
    queries = [texts.text(12) for _ in range(50)]
    core = _core.Index("none", "", 0)
    core.upsert([(str(at), "", text, "", [], "{}", None) for at, text in enumerate(documents)])
    runs: dict[str, Run] = {OURS: _each(queries, lambda query: _search(core, query, None))}
    if "bm25s" in settings.against:
        search = peers.bm25s(documents)
        runs["bm25s"] = _each(queries, lambda query: search(query, 10))
    yield from side_by_side(counted(size, "document"), runs, 10 * settings.repetitions)


def cosine(settings: Settings) -> Iterator[Figure]:
    """Cosine: the ten nearest of vectors of 384 numbers; crossgate's with their documents."""
    for size in settings.sizes:
        yield from _cosine(size, settings)


def _cosine(size: int, settings: Settings) -> Iterator[Figure]:
    vectors = _vectors(size)
    queries = list(_vectors(50, seed=1))
    core = _core.Index("none", "bench", 384)
    core.upsert([(str(at), "", "", "", [], "{}", row) for at, row in enumerate(vectors)])
    runs: dict[str, Run] = {OURS: _each(queries, lambda vector: _search(core, "", vector))}
    if "numpy" in settings.against:
        search = peers.numpy(vectors)
        runs["numpy"] = _each(queries, lambda vector: search(vector, 10))
    yield from side_by_side(counted(size, "vector"), runs, 10 * settings.repetitions)


def indexing(settings: Settings) -> Iterator[Figure]:
    """Making an index, including the embedding: documents per second on all cores."""
    texts = Texts(_english())
    for head, body, count in ((15, 0, 100), (60, 0, 100), (60, 600, 20)):
        rows = [
            {"id": str(at), "text": texts.text(head), "body": texts.text(body)}
            for at in range(count)
        ]
        case = counted(head, "word") + (f" and a body of {body}" if body else "")
        # It takes seconds, and its spread is small.
        times = max(1, settings.repetitions // 5)
        yield from side_by_side(case, {OURS: partial(Index.build, rows)}, times, each=count)


def growth(settings: Settings) -> Iterator[Figure]:
    """An index of growing size: documents of 60 words with given vectors."""
    for size in settings.sizes:
        yield from _grown(size, settings)


def _grown(size: int, settings: Settings) -> Iterator[Figure]:
    figure = partial(Figure, case=f"{size:,}", unit="documents")
    texts = Texts()
    words = [texts.text(12) for _ in range(20)]
    queries = list(zip(words, _vectors(20, seed=1), strict=True))
    vectors = _vectors(size)
    rows: list[Any] = [
        (str(at), "", texts.text(60), "", [], "{}", row) for at, row in enumerate(vectors)
    ]
    core = _core.Index("none", "bench", 384)
    yield figure(contender="index, s", values=(_seconds(partial(core.upsert, rows)),))
    rows.clear()
    del vectors
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "index.cgx"
        yield figure(contender="save, s", values=(_seconds(lambda: core.save(file)),))
        yield figure(contender="file, MB", values=(file.stat().st_size / 1e6,))
        opened, first = [], []
        for _ in range(max(3, settings.repetitions // 5)):
            opened.append(1e3 * _seconds(lambda: _core.Index.open(file)))
            index = _core.Index.open(file)
            first.append(1e3 * _seconds(partial(_search, index, *queries[0])))
        yield figure(contender="open, ms", values=tuple(opened))
        yield figure(contender="first search, ms", values=tuple(first))
        warm = tuple(1e3 * _seconds(partial(_search, core, *query)) for query in queries)
        yield figure(contender="search, ms", values=warm)
        script = (
            "import sys; from crossgate import _core\n"
            "index = _core.Index.open(sys.argv[1])\n"
            "index.search(sys.argv[2], [1.0] * 384, per_channel=10)"
        )
        if sys.platform != "win32":
            peak = usage_of([*_PYTHON, "-c", script, str(file), words[0]]).peak
            yield figure(contender="memory of one search, MiB", values=(peak,))


SECTIONS: Mapping[str, Callable[[Settings], Iterator[Figure]]] = {
    "processes": processes,
    "routes": routes,
    "pairs": pairs,
    "bm25": bm25,
    "cosine": cosine,
    "indexing": indexing,
    "growth": growth,
}


def _ended(command: Sequence[str]) -> None:
    subprocess.run(command, stdin=_NULL, stdout=_NULL, stderr=_NULL, check=False)  # noqa: S603, ours


def _seconds(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _library(size: int) -> Index:
    """Return an index of the demo's skills and of generated documents with random vectors."""
    embedder = OnnxEmbedder(EMBEDDER)
    texts = Texts()
    made = [f"{skill.title}\n{skill.text}" for skill in SKILLS]
    core = _core.Index("english", embedder.identity, embedder.dimension)
    core.upsert(
        [
            (skill.id, skill.title, skill.text, "", [], "{}", vector)
            for skill, vector in zip(SKILLS, embedder.embed(made), strict=True)
        ]
        + [
            (str(at), texts.text(2), texts.text(60), "", [], "{}", row)
            for at, row in enumerate(_vectors(size - len(SKILLS)))
        ]
    )
    return Index(core, embedder)


def _english() -> list[str]:
    """Return words of the demo, since models cut made-up words into many pieces."""
    return list(dict.fromkeys(word for skill in SKILLS for word in skill.text.split()))


def _vectors(count: int, seed: int = 0) -> Any:
    """Return unit vectors in clusters, as those of texts are, of shape [count, 384]."""
    import numpy

    centres = numpy.random.default_rng(7).standard_normal((300, 384), dtype=numpy.float32)
    draw = numpy.random.default_rng(seed)
    found = draw.standard_normal((count, 384), dtype=numpy.float32)
    found += 0.8 * centres[draw.integers(0, len(centres), count)]
    return found / numpy.linalg.norm(found, axis=1, keepdims=True)


def _search(core: _core.Index, query: str, vector: Any) -> object:
    return core.search(query, vector, per_channel=10)


def _each(queries: Sequence[Any], search: Callable[[Any], object]) -> Run:
    """Return a function that searches for the next query at each call, in the same order."""
    turns = cycle(queries)
    return lambda: search(next(turns))


def _alone(figures: Iterator[Figure]) -> Iterator[Figure]:
    """Make each contender a row, for sections whose contenders are different tasks."""
    for measured in figures:
        yield replace(measured, case=measured.contender, contender=OURS)
