"""`crossgate bench`: time and memory of crossgate on this machine, without a network or data."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from crossgate._cli import DONE
from crossgate._cli.demo import SKILLS
from crossgate._cli.output import say, show, show_json
from crossgate._decision.router import Router
from crossgate._reranking.contract import NO_DEADLINE, passages_of
from crossgate._reranking.cross_encoder import CrossEncoder
from crossgate._retrieval.document_index import Index
from crossgate._retrieval.embedding import OnnxEmbedder
from crossgate._runtime.model_files import EMBEDDER, PASSAGE_RERANKER, ROUTING_RERANKER
from crossgate._support.arguments import whole
from crossgate._support.wording import counted
from crossgate._values.results import Document

SCHEMA = "crossgate-bench/2"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "sections",
        nargs="*",
        metavar="SECTION",
        type=_section,
        help=f"sections to measure: {', '.join(SECTIONS)} (default: all)",
    )
    parser.add_argument(
        "--repetitions",
        type=whole(1),
        default=15,
        metavar="N",
        help="timings of each measurement (default: 15)",
    )


def run(options: argparse.Namespace) -> int:
    """Measure section by section, and print each when it is done."""
    # Every search runs in one thread; numpy, which makes the vectors, reads these when imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from crossgate._evaluation.stored_runs import describe_machine, describe_versions

    machine, versions = describe_machine(), describe_versions()
    values = {}
    for name in options.sections or SECTIONS:
        say(f"measuring {name}")
        figures = list(SECTIONS[name](options))
        values[name] = [figure.to_dict() for figure in figures]
        if not options.json:
            title, _, _ = (SECTIONS[name].__doc__ or "").partition("\n")
            show(f"{title}\n\n{table(figures)}\n")
    if options.json:
        show_json({"schema": SCHEMA, "machine": machine, "versions": versions, "sections": values})
    else:
        texts = ", ".join(f"{name} {version}" for name, version in versions.items())
        cores = counted(int(machine["cores"]), "core")
        show(f"{machine['processor']}, {cores}, {machine['system']}; {texts}")
    return DONE


# Not by `choices`: with `nargs="*"`, argparse of Python 3.11 requires the empty list among them.
def _section(text: str) -> str:
    if text not in SECTIONS:
        raise argparse.ArgumentTypeError(f"{text}: choose from {', '.join(SECTIONS)}")
    return text


Run = Callable[[], object]
"""A function to time."""

_NULL = subprocess.DEVNULL

# Without -P, Python would import a module of this name from the current folder.
_PYTHON = [sys.executable, "-P"]
_CROSSGATE = [*_PYTHON, "-c", "from crossgate._cli import main; main()"]

# Two prompts of the demo: stage 1 decides the first; the cross-encoder decides the second.
_CLEAR = "merge these three PDF files into one"
_UNCLEAR = "write up what changed in this branch"


class Figure(NamedTuple):
    """The time, memory or size of one case, such as `1,000 documents`, at each repetition."""

    case: str
    unit: str
    values: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as JSON values."""
        low = high = self.values[0]
        if len(self.values) > 1:
            low, _, high = quantiles(self.values, n=4, method="inclusive")
        return {
            "case": self.case,
            "unit": self.unit,
            "median": median(self.values),
            "quartiles": [low, high],
            "repetitions": len(self.values),
        }


def timed(
    cases: Mapping[str, Run], repetitions: int, *, each: float | None = None
) -> Iterator[Figure]:
    """Time functions in turns, so that other work on the machine slows all of them.

    Each runs once untimed before, to load and cache its data. If one run does `each` units, the
    figure is a rate per second.
    """
    values: dict[str, list[float]] = {name: [] for name in cases}
    for run in cases.values():
        run()
    for _ in range(repetitions):
        for name, run in cases.items():
            seconds = _seconds(run)
            values[name].append(each / seconds if each else seconds * 1e3)
    for name, measurements in values.items():
        unit = "per second" if each else "ms"
        yield Figure(name, unit, tuple(measurements))


def table(figures: Sequence[Figure]) -> str:
    """Return figures as a table in Markdown."""
    rows = ["| | median | quartiles | |", "| --- | --- | --- | --- |"]
    for figure in figures:
        values = figure.to_dict()
        low, high = map(_number, values["quartiles"])
        middle = _number(values["median"])
        rows.append(f"| {figure.case} | {middle} | {low} to {high} | {figure.unit} |")
    return "\n".join(rows)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def processes(options: argparse.Namespace) -> Iterator[Figure]:
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
        cases = {case: partial(_finished, command) for case, command in commands.items()}
        yield from timed(cases, options.repetitions)
        for case, command in commands.items() if sys.platform != "win32" else ():
            yield Figure(case, "MiB", tuple(usage_of(command)[1] for _ in range(3)))


def routes(options: argparse.Namespace) -> Iterator[Figure]:
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
    yield from timed(cases, options.repetitions)


def pairs(options: argparse.Namespace) -> Iterator[Figure]:
    """Stage 2: a query of 10 words and 16 passages, pairs per second on all cores."""
    texts = Texts(_english())
    models = {name: CrossEncoder(name) for name in (ROUTING_RERANKER, PASSAGE_RERANKER)}
    for case, lengths in {
        "15 words": [15] * 16,
        "100 words": [100] * 16,
        "10 to 160 words": list(range(10, 170, 10)),
        "250 words": [250] * 16,
    }.items():
        query = texts.text(10)
        passages = passages_of([texts.text(length) for length in lengths])
        cases: dict[str, Run] = {
            f"{name}, {case}": partial(model.score, query, passages, deadline=NO_DEADLINE)
            for name, model in models.items()
        }
        yield from timed(cases, options.repetitions, each=len(passages))


def indexing(options: argparse.Namespace) -> Iterator[Figure]:
    """Making an index, including the embedding: documents per second on all cores."""
    texts = Texts(_english())
    for head, body, count in ((15, 0, 100), (60, 0, 100), (60, 600, 20)):
        rows = [
            {"id": str(at), "text": texts.text(head), "body": texts.text(body)}
            for at in range(count)
        ]
        case = counted(head, "word") + (f" and a body of {body}" if body else "")
        # It takes seconds, and its spread is small.
        times = max(1, options.repetitions // 5)
        yield from timed({case: partial(Index.build, rows)}, times, each=count)


SECTIONS: Mapping[str, Callable[[argparse.Namespace], Iterator[Figure]]] = {
    "processes": processes,
    "routes": routes,
    "pairs": pairs,
    "indexing": indexing,
}


def unit_vectors(count: int, seed: int = 0) -> Any:
    """Return unit vectors in clusters, as those of texts are, of shape [count, 384]."""
    import numpy

    centres = numpy.random.default_rng(7).standard_normal((300, 384), dtype=numpy.float32)
    draw = numpy.random.default_rng(seed)
    vectors = draw.standard_normal((count, 384), dtype=numpy.float32)
    vectors += 0.8 * centres[draw.integers(0, len(centres), count)]
    return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)


def _finished(command: Sequence[str]) -> None:
    subprocess.run(command, stdin=_NULL, stdout=_NULL, stderr=_NULL, check=False)  # noqa: S603, ours


def _seconds(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _library(size: int) -> Index:
    """Return an index of the demo's skills and of random documents with random vectors."""
    texts = Texts()
    others = [
        Document(
            id=str(at),
            title=texts.text(2),
            text=texts.text(60),
            vector=row,
            is_description=True,
        )
        for at, row in enumerate(unit_vectors(size - len(SKILLS)))
    ]
    return Index.build([*SKILLS, *others], embedder=OnnxEmbedder(EMBEDDER))


def _english() -> list[str]:
    """Return words of the demo, since models cut made-up words into many pieces."""
    return list(dict.fromkeys(word for skill in SKILLS for word in skill.text.split()))


WORDS = 50_000
"""Number of made-up words."""

_SYLLABLES = [a + b for a in "bcdfghklmnprstvw" for b in "aeiou"]


def _word(rank: int) -> str:
    """Return the word of a rank; each rank has its own word, and frequent words are short."""
    parts = [_SYLLABLES[rank % len(_SYLLABLES)]]
    while rank := rank // len(_SYLLABLES):
        parts.append(_SYLLABLES[rank % len(_SYLLABLES)])
    return "".join(parts)


class Texts:
    """Random texts by Mandelbrot's law: the word of rank r has a share of 1 / (r + 2.7).

    Mandelbrot, "An informational theory of the statistical structure of language" (1953).

    Args:
        words: The words, the most frequent first; None for made-up words.
        seed: The same seed draws the same texts.
    """

    def __init__(self, words: Sequence[str] | None = None, *, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311, a sample and no secret
        self._words = words or [_word(rank) for rank in range(WORDS)]
        self._shares = list(accumulate(1 / (rank + 2.7) for rank in range(len(self._words))))

    def text(self, words: int) -> str:
        """Return a text with this number of words."""
        return " ".join(self._random.choices(self._words, cum_weights=self._shares, k=words))


# A process inherits the peak memory of its parent, so a small process starts the measured command.
_STARTER = """
import os, sys
null = os.open(os.devnull, os.O_RDWR)
streams = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=streams)
used = os.wait4(child, 0)[2]
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def usage_of(command: Sequence[str]) -> tuple[float, float]:
    """Run a command without input and output; not on Windows.

    Returns:
        The processor time of all its threads in ms, and its peak memory in MiB.
    """
    starter = [sys.executable, "-P", "-S", "-c", _STARTER, *command]
    done = subprocess.run(starter, capture_output=True, check=True)  # noqa: S603, the caller's
    seconds, peak = done.stdout.split()
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return 1e3 * float(seconds), int(peak) / unit
