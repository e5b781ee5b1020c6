"""Heavy packages that a decision must not import, since a hook imports them for every prompt."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from commands import python
from conftest import LIBRARY

# Loading these costs tens to hundreds of milliseconds, or reaches for a network.
HEAVY = {
    "aiohttp",
    "asyncio",
    "filelock",
    "fsspec",
    "google",
    "hf_xet",
    "httpx",
    "httpx2",
    "huggingface_hub",
    "numpy",
    "onnxruntime",
    "opentelemetry",
    "requests",
    "tokenizers",
    "tqdm",
    "urllib3",
    "voyageai",
    "yaml",
}


def loaded(script: str, *arguments: object) -> tuple[set[str], Any]:
    """Run a script on a fresh interpreter; return the heavy packages it loaded, and `outcome`."""
    report = """
import json, sys
names = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps([names, globals().get("outcome")]))
"""
    output = python("import sys\n" + textwrap.dedent(script) + report, *arguments)
    names, outcome = json.loads(output.splitlines()[-1])
    return HEAVY & set(names), outcome


GATED = 'Profile(winner={"agreed": 0.0})'
ROUTE = """
    from crossgate import Index, Profile, Router
    index = Index.open(sys.argv[1])
    profile = {profile}
    router = Router(index, profile=profile)
    vector = index._core.vector("csv-cleaner")
    result = router.route("repair a csv with duplicate rows", vector=vector)
    outcome = [result.ids[0], result.stage, result.reason, [note.code for note in result.degraded]]
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with the vectors of the bundled embedder."""
    from crossgate import Document, Index

    path = tmp_path_factory.mktemp("cold") / "skills.cgx"
    Index.build(Document(id=id, text=text) for id, text in LIBRARY.items()).save(path)
    return path


GIVEN_VECTORS = """
    from crossgate import Document, Index, PrecomputedVectors, Profile, Router, rerank
    index = Index.build(
        [Document(id="a", text="red fox", vector=[1.0, 0.0])],
        embedder=PrecomputedVectors("elsewhere", 2),
    )
    index.save(sys.argv[2])
    router = Router(Index.open(sys.argv[2]), reranker=None, profile=Profile())
    outcome = [
        router.route("fox", vector=[1.0, 0.0]).ids,
        rerank("fox", ["red fox", "hen"], reranker=None).ids,
    ]
"""
LOGGED = """
    from crossgate import Policy, Profile, rerank
    from crossgate._decision.log_replay import check_decision
    from crossgate._telemetry.log import JsonLinesLog, read_log
    policy = Policy(floors={"default": 0.2}, cliff_core=1)
    rows = [{"text": "red fox", "cosine": 0.9}, {"text": "hen", "cosine": 0.1}]
    options = {"profile": Profile(), "policy": policy, "telemetry": JsonLinesLog(sys.argv[2])}
    result = rerank("fox", rows, reranker=None, **options)
    logged, = read_log(sys.argv[2])
    outcome = [result.ids, [note.code for note in result.degraded], check_decision(logged)]
"""
RECIPE = """
    from datetime import UTC, datetime
    from crossgate import Candidate
    from crossgate._pipelines.recipes import Switches, context_engine
    hits = [Candidate(id=text, text=text) for text in ("red fox", "hen")]
    switches = Switches(enabled=False)
    outcome = context_engine(
        "fox", lambda query, limit: [hits, hits], now=datetime.now(UTC), switches=switches
    ).ids
"""
COMMAND = """
    from crossgate import _cli as cli
    outcome = cli.run({arguments})
"""
WITHOUT_STAGE_2 = '["route", "-i", sys.argv[1], "--reranker", "none", {query!r}]'
WINNER = ["csv-cleaner", 1, "confident_winner", []]
CASES: dict[str, tuple[str, object]] = {
    "import": ("import crossgate", None),
    "names of the package": ("import crossgate; outcome = len(dir(crossgate)) > 9", True),
    "given vectors": (GIVEN_VECTORS, [["a"], ["0", "1"]]),
    "stage 1": (ROUTE.format(profile=GATED), WINNER),
    # The vector is made here, by the core.
    "stage 1 with its embedder": (
        ROUTE.format(profile=GATED).replace(", vector=vector", ""),
        WINNER,
    ),
    # onnxruntime runs by its library, and bundled models have the core's tokenizer.
    "stage 2": (ROUTE.format(profile="Profile()"), ["csv-cleaner", 2, "reranked", []]),
    "command": (COMMAND.format(arguments=WITHOUT_STAGE_2.format(query="repair a csv")), 0),
    "refused command": (COMMAND.format(arguments=WITHOUT_STAGE_2.format(query="")), 1),
    "indexing": (COMMAND.format(arguments='["index", sys.argv[3], "-o", sys.argv[2]]'), 0),
    "logged decision with floors": (LOGGED, [["0"], [], None]),
    "recipe without a model": (RECIPE, ["red fox", "hen"]),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_heavy_is_loaded(case: str, path: Path, tmp_path: Path) -> None:
    script, expected = CASES[case]
    notes = tmp_path / "notes.jsonl"
    notes.write_text(json.dumps({"id": "a", "text": "red fox"}))
    heavy, outcome = loaded(script, path, tmp_path / "output", notes)
    assert outcome == expected
    assert heavy == set()


def test_heavy_packages_are_found(path: Path) -> None:
    assert loaded("import tokenizers; outcome = 1", path) == ({"tokenizers"}, 1)


def test_disabled_telemetry_loads_no_module() -> None:
    _, outcome = loaded(
        """
        from crossgate import rerank
        rerank("fox", ["red fox"], reranker=None)
        telemetry = {"crossgate._telemetry.events", "crossgate._telemetry.log"}
        outcome = sorted(set(sys.modules) & telemetry)
        """
    )
    assert outcome == []


def test_unused_remote_tiers_load_no_library_of_a_provider(path: Path) -> None:
    # The provider's library is loaded by the first call; asyncio is loaded with the classes.
    script = ROUTE.format(profile=GATED).replace(
        "profile=profile)",
        "profile=profile, reranker=[VoyageReranker(api_key='k'), CohereReranker(api_key='k')])",
    )
    start = "    from crossgate.rerankers import CohereReranker, VoyageReranker\n"
    assert loaded(start + script.lstrip("\n"), path) == ({"asyncio"}, WINNER)
