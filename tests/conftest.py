"""Shared by the test files: hypothesis profiles, a small library, and stand-ins for models."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from commands import CROSSGATE, Run, environment
from crossgate import (
    CrossgateError,
    Document,
    Index,
    PairScore,
    Passage,
    Profile,
)
from crossgate._decision import cascade
from crossgate.rerankers import Deadline, shut_down
from providers_server import ProvidersServer

# Haystack reports its use over the network; a socket that closes late would fail a test.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
# Matrices of tests are small. On them, threads of numpy wait for each other, which takes processor
# time from the tests that run beside; read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

settings.register_profile("fixed", max_examples=30, deadline=None, derandomize=True)
settings.register_profile("random", max_examples=2_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
# Hypothesis mixes constants of all loaded test modules into its draws, so they would depend on
# which tests ran before in the same process.
providers._get_local_constants = Constants

LIBRARY = {
    "csv-cleaner": "clean and repair messy csv files with duplicate rows and broken quoting",
    "pdf-toolkit": "merge split rotate and compress pdf files",
    "spreadsheet": "create and edit excel workbooks with formulas pivot tables and charts",
    "translator": "translate text and interface strings between languages",
    "git-history": "squash reorder and reword commits of a git branch",
    "image-resizer": "resize crop convert and compress pictures in bulk",
}


class WordEmbedder:
    """Counts the words of a text; the hash of a word is its position in the vector."""

    identity = "words@1"
    dimension = 32

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._lock = threading.Lock()

    def embed(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[list[float]]:
        """Return one vector per text, and record the texts."""
        vectors = []
        for done, text in enumerate(texts, start=1):
            with self._lock:
                self.texts.append(text)
            # Not all zeros, even for a text without words.
            vector = [0.125] + [0.0] * (self.dimension - 1)
            for word in text.lower().replace(":", " ").split():
                vector[zlib.crc32(word.encode()) % self.dimension] += 1.0
            vectors.append(vector)
            if progress is not None:
                progress(done)
        return vectors


class BrokenEmbedder(WordEmbedder):
    """Embeds texts, and raises once it is `broken`."""

    broken: Exception | None = None

    def embed(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> list[list[float]]:
        """Return one vector per text, or raise."""
        if self.broken is not None:
            raise self.broken
        return super().embed(texts, progress=progress)


class FunctionReranker:
    """Scores with a function of query and documents, and records its calls."""

    name = "function"
    identity = "function@1"

    def __init__(self, function: Callable[[str, Sequence[str]], Any]) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self._function = function

    def score(
        self, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> Sequence[PairScore | None]:
        """Return the function's scores of the texts."""
        texts = [passage.text for passage in passages]
        self.calls.append((query, texts))
        scores: Sequence[PairScore | None] = self._function(query, texts)
        return scores


class TableReranker(FunctionReranker):
    """Looks up the logit of a document by its text; a text that is not in the table gets -9."""

    name = "table"
    identity = "table@1"

    def __init__(self, logits: Mapping[str, float]) -> None:
        super().__init__(
            lambda _, documents: [PairScore(logits.get(document, -9.0)) for document in documents]
        )


class LengthReranker(FunctionReranker):
    """Prefers the shorter document."""

    name = "length"
    identity = "length@1"

    def __init__(self) -> None:
        super().__init__(
            lambda _, documents: [PairScore(-float(len(document))) for document in documents]
        )


def documents(texts: Mapping[str, str] = LIBRARY) -> list[Document]:
    """Return one document per id and text."""
    return [Document(id=id, text=text) for id, text in texts.items()]


def build(texts: Mapping[str, str] = LIBRARY, **options: Any) -> Index:
    """Return an index of the texts, by default with `WordEmbedder`."""
    return Index.build(documents(texts), **{"embedder": WordEmbedder(), **options})


def skills(folder: Path, texts: Mapping[str, str] = LIBRARY, *, body: str = "Do it.") -> Path:
    """Write a skill per name and description, and return the folder."""
    for name, text in texts.items():
        path = folder / name / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"---\nname: {name}\ndescription: {text}\n---\n{body}\n", "utf-8")
    return folder


def refused(code: str, call: Callable[..., object], *arguments: object, **options: object) -> str:
    """Check that a call is refused with this code and one line, and return the line."""
    with pytest.raises(CrossgateError) as caught:
        call(*arguments, **options)
    assert caught.value.code == code, str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.fixture
def embedder() -> WordEmbedder:
    """An embedder that records its texts."""
    return WordEmbedder()


@pytest.fixture
def index(embedder: WordEmbedder) -> Index:
    """The library with its vectors."""
    return build(embedder=embedder)


@pytest.fixture(scope="module")
def _providers() -> Iterator[ProvidersServer]:
    with ProvidersServer() as server:
        yield server
    shut_down()


@pytest.fixture
def server(_providers: ProvidersServer) -> ProvidersServer:
    """The remote providers, without faults; one server for all tests of a file."""
    _providers.reset()
    return _providers


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty home folder."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Any:
    """Run `crossgate` in an empty folder, its output in pipes."""

    def run(
        *arguments: str | bytes | Path,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> Run:
        done = subprocess.run(
            [*prefix, CROSSGATE, *arguments],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            env={**environment(home), **(variables or {})},
            timeout=60,
            check=False,
        )
        out, err = done.stdout.decode(errors="backslashreplace"), done.stderr.decode()
        return Run(done.returncode, out, err)

    return run


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """An index without vectors, which needs no model."""
    path = tmp_path / "words.cgx"
    Index.build([Document(id=id, text=text) for id, text in LIBRARY.items()], embedder=None).save(
        path
    )
    return path


def is_replayable(trace: Mapping[str, Any]) -> bool:
    """Return whether replaying a trace, read back from JSON, gives the same decision."""
    trace = json.loads(json.dumps(trace, allow_nan=False))
    return cascade.replay(trace) == {"gate": trace["gate"], "decision": trace["decision"]}


def without_date(profile: Profile) -> str:
    """Return a profile as JSON, without the date of its calibration."""
    fitted = {key: value for key, value in profile.fitted.items() if key != "date"}
    return json.dumps(profile.replace(fitted=fitted).to_dict())


def golden(name: str, text: str) -> None:
    """Compare a text with a file of tests/golden; write it if UPDATE_GOLDEN is set."""
    path = Path(__file__).with_name("golden") / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"UPDATE_GOLDEN=1 writes {path}"
