"""Heavy packages that a decision must not import, since a hook imports them for every prompt."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

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
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script) + report, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    names, outcome = json.loads(run.stdout.splitlines()[-1])
    return HEAVY & set(names), outcome


ROUTE = """
    import sys
    from crossgate import Index, Profile, Router
    index = Index.open(sys.argv[1])
    profile = Profile(winner={"agreed": 0.0}) if sys.argv[2] == "gated" else Profile()
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


def test_importing_loads_nothing_heavy() -> None:
    assert loaded("import crossgate")[0] == set()


def test_inspecting_an_index_loads_nothing_heavy() -> None:
    assert loaded("import crossgate; outcome = dir(crossgate)")[0] == set()


def test_building_with_given_vectors_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy, outcome = loaded(
        """
        import sys
        from crossgate import Document, Index, PrecomputedVectors, Profile, Router, rerank
        index = Index.build(
            [Document(id="a", text="red fox", vector=[1.0, 0.0])],
            embedder=PrecomputedVectors("elsewhere", 2),
        )
        index.save(sys.argv[1])
        router = Router(Index.open(sys.argv[1]), reranker=None, profile=Profile())
        outcome = [
            router.route("fox", vector=[1.0, 0.0]).ids,
            rerank("fox", ["red fox", "hen"], reranker=None).ids,
        ]
        """,
        tmp_path / "a.cgx",
    )
    assert outcome == [["a"], ["0", "1"]]
    assert heavy == set()


def test_stage_1_decision_loads_nothing_heavy(path: Path) -> None:
    heavy, outcome = loaded(ROUTE, path, "gated")
    assert outcome == ["csv-cleaner", 1, "confident_winner", []]
    assert heavy == set()


def test_prompt_that_the_gate_decides_loads_nothing_heavy(path: Path) -> None:
    # Its vector is made here, by the core.
    heavy, outcome = loaded(ROUTE.replace(", vector=vector", ""), path, "gated")
    assert outcome == ["csv-cleaner", 1, "confident_winner", []]
    assert heavy == set()


def test_route_command_without_stage_2_loads_nothing_heavy(path: Path) -> None:
    prompt = "repair a csv with duplicate rows"
    heavy, outcome = loaded(
        """
        import sys
        from crossgate import _cli as cli
        outcome = cli.run(["route", "-i", sys.argv[1], "--reranker", "none", sys.argv[2]])
        """,
        path,
        prompt,
    )
    assert outcome == 0
    assert heavy == set()


def test_indexing_loads_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text(json.dumps({"id": "a", "text": "red fox"}))
    heavy, outcome = loaded(
        """
        import sys
        from crossgate import _cli as cli
        outcome = cli.run(["index", sys.argv[1], "-o", sys.argv[2]])
        """,
        tmp_path / "notes.jsonl",
        tmp_path / "notes.cgx",
    )
    assert outcome == 0
    assert heavy == set()


def test_logged_decision_with_floors_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy, outcome = loaded(
        """
        import sys
        from crossgate import Policy, Profile, rerank
        from crossgate._decision.log_replay import check_decision
        from crossgate._telemetry.log import JsonLinesLog, read_log
        policy = Policy(floors={"default": 0.2}, cliff_core=1)
        rows = [{"text": "red fox", "cosine": 0.9}, {"text": "hen", "cosine": 0.1}]
        options = {"profile": Profile(), "policy": policy, "telemetry": JsonLinesLog(sys.argv[1])}
        result = rerank("fox", rows, reranker=None, **options)
        logged, = read_log(sys.argv[1])
        outcome = [result.ids, [note.code for note in result.degraded], check_decision(logged)]
        """,
        tmp_path / "log.jsonl",
    )
    assert outcome == [["0"], [], None]
    assert heavy == set()


def test_disabled_telemetry_loads_no_module() -> None:
    _, outcome = loaded(
        """
        import sys
        from crossgate import rerank
        rerank("fox", ["red fox"], reranker=None)
        telemetry = {"crossgate._telemetry.events", "crossgate._telemetry.log"}
        outcome = sorted(set(sys.modules) & telemetry)
        """
    )
    assert outcome == []


def test_unused_remote_tiers_load_nothing_heavy(path: Path) -> None:
    # The provider's library is loaded by the first call; asyncio is loaded with the classes.
    script = ROUTE.replace(
        "profile=profile)",
        "profile=profile, reranker=[VoyageReranker(api_key='k'), CohereReranker(api_key='k')])",
    )
    start = "    from crossgate.rerankers import CohereReranker, VoyageReranker\n"
    heavy, outcome = loaded(start + script.lstrip("\n"), path, "gated")
    assert outcome == ["csv-cleaner", 1, "confident_winner", []]
    assert heavy == {"asyncio"}


def test_recipe_without_a_model_loads_nothing_heavy() -> None:
    heavy, outcome = loaded(
        """
        from datetime import UTC, datetime
        from crossgate import Candidate
        from crossgate._pipelines.recipes import Switches, context_engine
        hits = [Candidate(id=text, text=text) for text in ("red fox", "hen")]
        switches = Switches(enabled=False)
        outcome = context_engine(
            "fox", lambda query, limit: [hits, hits], now=datetime.now(UTC), switches=switches
        ).ids
        """
    )
    assert outcome == ["red fox", "hen"]
    assert heavy == set()


def test_stage_2_decision_loads_nothing_heavy(path: Path) -> None:
    heavy, outcome = loaded(ROUTE, path, "ungated")
    assert outcome == ["csv-cleaner", 2, "reranked", []]
    # onnxruntime runs by its library, and bundled models have the core's tokenizer.
    assert heavy == set()


def test_heavy_packages_are_found(path: Path) -> None:
    heavy, outcome = loaded("import tokenizers; outcome = 1", path)
    assert (heavy, outcome) == ({"tokenizers"}, 1)


def test_refused_command_loads_nothing_heavy(path: Path) -> None:
    heavy, outcome = loaded(
        """
        import sys
        from crossgate import _cli as cli
        outcome = cli.run(["route", "-i", sys.argv[1], "--reranker", "none", ""])
        """,
        path,
    )
    assert outcome == 1
    assert heavy == set()
