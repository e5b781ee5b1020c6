"""The bindings: numbers against numpy and plain Python, and values that the core accepts."""

from __future__ import annotations

import math
import platform
import shutil
import subprocess
import sys
from array import array
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import GetSetDescriptorType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import SCHEMAS, python
from conftest import refused
from crossgate import Policy, Profile, _core
from crossgate._core import Blend
from crossgate._sources.projects import DEPENDENCIES, NAMES, SUFFIXES

COSINE_ALONE = Blend(cosine_weight=1.0, bm25_weight=0.0)


def search(
    core: _core.Index, query: str, vector: Any, *, blend: Blend, per_channel: int
) -> list[_core.Scored]:
    """Search, and check that each candidate came with what its document says."""
    found, documents = core.search(query, vector, blend=blend, per_channel=per_channel)
    assert documents == [core.get(one.id) for one in found]
    return found


@pytest.mark.parametrize("dimension", [1, 2, 15, 16, 17, 384])
def test_cosines_equal_numpy(dimension: int) -> None:
    generator = np.random.default_rng(dimension)
    matrix = generator.normal(size=(300, dimension)).astype(np.float32) * 37
    query = generator.normal(size=dimension).astype(np.float32)
    core = _core.Index("none", "test", dimension)
    core.upsert([(f"{place:03}", "", "", "", [], "{}", row) for place, row in enumerate(matrix)])
    found = search(core, "", array("f", query), blend=COSINE_ALONE, per_channel=300)
    wide, narrow = matrix.astype(np.float64), query.astype(np.float64)
    expected = wide @ narrow / (np.linalg.norm(wide, axis=1) * np.linalg.norm(narrow))
    cosines = {one.id: one.cosine for one in found}
    assert [cosines[f"{place:03}"] for place in range(300)] == pytest.approx(
        expected.tolist(), abs=1e-6
    )
    # The best blend first, and every cosine inside its bounds.
    assert [one.blend for one in found] == sorted((one.blend for one in found), reverse=True)
    assert all(one.cosine is not None and -1 <= one.cosine <= 1 for one in found)


NUMBERS = [0.25, -1.0, 3.5]
VECTORS: dict[str, Callable[[], Any]] = {
    "list": lambda: list(NUMBERS),
    "list of int and float": lambda: [1, -4.0, 14],
    "tuple": lambda: tuple(NUMBERS),
    "array of float32": lambda: array("f", NUMBERS),
    "array of float64": lambda: array("d", NUMBERS),
    "memoryview": lambda: memoryview(array("f", NUMBERS)),
    "numpy float16": lambda: np.array(NUMBERS, np.float16),
    "numpy float32": lambda: np.array(NUMBERS, np.float32),
    "numpy float64": lambda: np.array(NUMBERS, np.float64),
    "numpy int64": lambda: np.array([1, -4, 14]),
    "numpy big-endian": lambda: np.array(NUMBERS, ">f4"),
    "numpy read-only": lambda: np.frombuffer(array("f", NUMBERS).tobytes(), np.float32),
    "numpy every other": lambda: np.repeat(np.array(NUMBERS, np.float32), 2)[::2],
    "numpy column": lambda: np.array([NUMBERS, NUMBERS], np.float32).T[:, 1],
    "numpy reversed": lambda: np.array(NUMBERS[::-1], np.float32)[::-1],
    "list of numpy scalars": lambda: list(np.array(NUMBERS, np.float32)),
}


@pytest.mark.parametrize("kind", VECTORS)
def test_a_vector_may_come_as(kind: str) -> None:
    core = _core.Index("none", "test", 3)
    core.upsert(
        [("given", "", "", "", [], "{}", VECTORS[kind]()), ("plain", "", "", "", [], "{}", NUMBERS)]
    )
    assert core.vector("given") == core.vector("plain")
    length = math.sqrt(sum(number * number for number in NUMBERS))
    assert core.vector("plain") == pytest.approx([number / length for number in NUMBERS], abs=1e-7)
    found = search(core, "", VECTORS[kind](), blend=COSINE_ALONE, per_channel=2)
    assert [one.cosine for one in found] == pytest.approx([1.0, 1.0], abs=1e-6)


REFUSED: dict[str, tuple[Any, str]] = {
    "NaN": ([0.0, math.nan, 1.0], "not_finite"),
    "NaN in a float32 buffer": (array("f", [0.0, math.nan, 1.0]), "not_finite"),
    "infinity": ([math.inf, 0.0, 1.0], "not_finite"),
    "negative infinity": (np.array([0, 1, -np.inf], np.float32), "not_finite"),
    "beyond float32": ([1e39, 0.0, 1.0], "not_finite"),
    "zeros": ([0.0, 0.0, 0.0], "zero_vector"),
    "zeros of both signs": ([0.0, -0.0, 0.0], "zero_vector"),
    "zero in float32": ([1e-60, 0.0, 0.0], "zero_vector"),
    "too short": ([1.0, 2.0], "wrong_dimension"),
    "too long": ([1.0, 2.0, 3.0, 4.0], "wrong_dimension"),
    "empty": ([], "wrong_dimension"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_vector_is_refused(kind: str) -> None:
    vector, code = REFUSED[kind]
    core = _core.Index("none", "test", 3)
    core.upsert([("kept", "", "", "", [], "{}", NUMBERS)])
    said = refused(
        code,
        core.upsert,
        [("good", "", "", "", [], "{}", NUMBERS), ("bad one", "", "", "", [], "{}", vector)],
    )
    assert "bad one" in said
    assert core.ids() == ["kept"]
    said = refused(code, search, core, "", vector, blend=Blend(), per_channel=2)
    assert "the query" in said


def test_a_vector_is_missing_or_not_wanted() -> None:
    with_vectors = _core.Index("none", "test", 3)
    refused("wrong_dimension", with_vectors.upsert, [("a", "", "", "", [], "{}", None)])
    without = _core.Index("none", "", 0)
    refused("wrong_dimension", without.upsert, [("a", "", "", "", [], "{}", NUMBERS)])


def test_extreme_vectors_have_a_direction() -> None:
    core = _core.Index("none", "test", 2)
    core.upsert(
        [
            ("large", "", "", "", [], "{}", [3e38, 3e38]),
            ("small", "", "", "", [], "{}", [1e-45, 1e-45]),
        ]
    )
    for one in search(core, "", [1.0, 1.0], blend=COSINE_ALONE, per_channel=2):
        assert one.cosine == pytest.approx(1.0, abs=1e-6)


def test_values_from_the_core_are_plain() -> None:
    core = _core.Index("english", "test", 2)
    core.upsert([("a", "title", "red fox", "", [], '{"key": 1}', [3.0, 4.0])])
    assert core.get("a") == ("title", "red fox", "", '{"key": 1}', False, [[], [], []])
    assert core.get("b") is None
    assert core.vector("b") is None
    assert ("a" in core, "b" in core, len(core)) == (True, False, 1)
    assert (core.language, core.embedder, core.dimension) == ("english", "test", 2)
    (one,) = search(core, "fox", [1.0, 0.0], blend=Blend(), per_channel=2)
    assert [type(value) for value in (one.cosine, one.bm25, one.overlap, one.blend)] == [
        float,
        float,
        int,
        float,
    ]
    assert "Scored" in repr(one)


@pytest.mark.parametrize("place", ["cosine", "bm25", "blend"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_no_score_without_an_order_reaches_the_gate(place: str, value: float) -> None:
    scores: dict[str, Any] = {"cosine": 0.5, "bm25": 1.0, "blend": 0.5, place: value}
    fine = _core.Scored(id="fine", cosine=0.9, bm25=2.0, overlap=1, blend=0.9)
    for make in (_core.Scored, fine.replace):
        said = refused("malformed_trace", make, id="bad one", overlap=1, **scores)
        assert "scored" in said


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_no_rerank_score_without_an_order_reaches_the_conclusion(value: float) -> None:
    refused("malformed_trace", _core.Pair, id="bad one", score=value, truncated=False)


@pytest.mark.parametrize("value", [1.1e100, -1.1e100])
def test_a_rerank_score_that_no_sum_can_hold_is_refused(value: float) -> None:
    one = _core.Scored(id="bad one", cosine=0.5, bm25=1.0, overlap=1, blend=0.5)
    gated = _core.gate([one], Profile(), Policy(), _core.Request())
    pair = _core.Pair(id="bad one", score=value, truncated=False)
    said = refused("out_of_range", _core.conclude, gated, [pair], None, Profile(), Policy())
    assert "bad one" in said


def without_surrogates(text: str) -> bool:
    return text.isprintable() or all(not "\ud800" <= letter <= "\udfff" for letter in text)


@given(st.text())
def test_any_text_can_be_analysed(text: str) -> None:
    if not without_surrogates(text):
        return
    for language in ("none", "english", "german"):
        terms = _core.analyze(text, language)
        assert all(term and not term.isspace() for term in terms)
        # The query is the document: every document is found by its own words.
        core = _core.Index(language, "", 0)
        core.upsert([("a", "", text, "", [], "{}", None)])
        (one,) = search(core, text, None, blend=Blend(), per_channel=2)
        assert one.overlap == len(set(terms))


_SUBINTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

CODE = '''
import sys
try:
    from crossgate import rerank
except ImportError as error:
    print("refused" if "subinterpreter" in str(error) else error)
else:
    print(rerank("a csv with rows", ["a pdf", "a csv"]).ids)
'''
# The second kind shares the lock of the main interpreter; Python 3.13 names it.
for options in ({"isolated": True}, {"isolated": False}):
    try:
        inner = interpreters.create(**options)
    except TypeError:
        inner = interpreters.create(*([] if options["isolated"] else ["legacy"]))
    getattr(interpreters, "exec", interpreters.run_string)(inner, CODE)
    interpreters.destroy(inner)
"""


def test_a_subinterpreter_is_refused_by_an_import_error() -> None:
    """The process would abort at its end, if a thread of a model still ran in it."""
    done = subprocess.run(
        [sys.executable, "-c", _SUBINTERPRETER], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "refused\nrefused\n", "")


_DECISIONS = """
from crossgate import Document, Index, Router

texts = ("Merge and split PDF files", "Clean up CSV files", "Squash commits of a branch")
index = Index.build([Document(id=str(n), text=text, body=text) for n, text in enumerate(texts)])
for query in ("merge these PDF files", "tidy up the history before the review"):
    result = Router(index, reranker=None).route(query)
    print({key: value for key, value in result.trace.items() if key != "timings_ms"})
"""


@pytest.mark.parametrize("processor", ["Nehalem", "Haswell"])  # without AVX2, and without VNNI
def test_older_processors_decide_the_same(processor: str) -> None:
    found = map(shutil.which, ("qemu-x86_64-static", "qemu-x86_64"))
    emulator = next(filter(None, found), None)
    if emulator is None or platform.machine() != "x86_64":
        pytest.skip("qemu-x86_64 is not installed")
    command = [emulator, "-cpu", processor, sys.executable, "-c", _DECISIONS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == python(_DECISIONS)


def test_profile_page_names_every_piece_of_evidence() -> None:
    page = (Path(__file__).parent.parent / "docs" / "profile.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `evidence` |"))
    assert [name for name, _ in _core.evidence() if f"`{name}`" not in row] == []


def test_schema_of_traces_has_the_signals_of_the_core() -> None:
    signals = {
        name: field.__doc__
        for name, field in vars(_core.Signals).items()
        if isinstance(field, GetSetDescriptorType)
    }
    described = SCHEMAS["trace"]["$defs"]["signals"]
    assert set(described["properties"]) == set(described["required"]) == set(signals)
    assert all(signals.values())


def test_files_and_dependencies_name_technologies_that_heads_are_searched_for() -> None:
    named = {*SUFFIXES.values(), *chain(*NAMES.values()), *DEPENDENCIES.values()}
    assert named - set(_core.technologies()) == set()
