"""Plug-ins: real packages on the path, whole ones and such as fail in every way."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from conftest import LIBRARY, build, refused
from crossgate import ModelError, PluginError, Router, RouteResult, arerank, rerank
from crossgate._cli.doctor import examine
from crossgate._reranking import chain, plugins, shared_state

MODULE = """
import threading

from crossgate import PairScore, rerank

class Longest:
    name = "longest"
    identity = "longest@1"

    def score(self, query, passages, *, deadline):
        return [PairScore(float(len(one.text))) for one in passages]

class Nameless:
    def score(self, query, passages, *, deadline):
        return []

entered, leave = threading.Event(), threading.Event()

class Slow(Longest):
    name = identity = "slow"

    def __init__(self):
        entered.set()
        if not leave.wait(20):
            raise TimeoutError("not released")

class Nested(Longest):
    name = identity = "nested"

    def __init__(self):
        self.result = rerank("red fox", ["a fox"], reranker="longest")

def broken():
    raise RuntimeError("no key\\nsecond line")

not_callable = 3
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path with one module, and nothing loaded before or after."""
    (tmp_path / "acme_plugins.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(shared_state, "loaded", {})
    yield tmp_path
    sys.modules.pop("acme_plugins", None)


def install(folder: Path, package: str, points: dict[str, str]) -> None:
    """Write what an installer writes of a package with these entry points."""
    info = folder / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[crossgate.rerankers]", *lines]))


def test_a_plugin_is_a_name_like_any_other(packages: Path) -> None:
    install(packages, "acme", {"longest": "acme_plugins:Longest"})
    result = rerank("red fox", ["a fox", "a very long red fox"], reranker="longest")
    assert result.ids == ["1", "0"]
    assert {hit.provider for hit in result.hits} == {"longest"}
    assert Router(build(), reranker="longest").route("pdf").degraded[0].code == "no_profile"
    assert chain.load("longest") is chain.load("longest")


def test_plugins_are_listed_without_being_imported(packages: Path) -> None:
    install(packages, "zeta", {"b": "nowhere:Nothing"})
    install(packages, "acme", {"b": "nowhere:Nothing", "a": "acme_plugins:Longest"})
    mine = [one for one in plugins.available() if one.package.endswith(" 1.2")]
    assert [(one.name, one.package) for one in mine] == [
        ("a", "acme 1.2"),
        ("b", "acme 1.2"),
        ("b", "zeta 1.2"),
    ]
    assert "acme_plugins" not in sys.modules


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("nowhere:Nothing", "ModuleNotFoundError: No module named 'nowhere'"),
        ("acme_plugins:Missing", "AttributeError: module 'acme_plugins' has no attribute"),
        ("acme_plugins:broken", "RuntimeError: no key"),
        ("acme_plugins:not_callable", "TypeError: 'int' object is not callable"),
        ("acme_plugins:Nameless", "it returns a Nameless, which lacks name, identity or score"),
    ],
)
def test_a_failed_load_names_the_plugin_and_the_cause(
    packages: Path, value: str, cause: str
) -> None:
    install(packages, "acme", {"mine": value})
    message = refused("plugin_failed", chain.load, "mine")
    assert message.startswith(f"plug-in 'mine' of acme 1.2 ({value}) cannot be used: {cause}")


def test_one_name_in_two_packages(packages: Path) -> None:
    install(packages, "acme", {"longest": "acme_plugins:Longest"})
    install(packages, "zeta", {"longest": "acme_plugins:broken"})
    message = refused("plugin_ambiguous", chain.load, "longest")
    assert "acme 1.2 and zeta 1.2" in message


def test_a_failed_load_is_tried_again(packages: Path) -> None:
    install(packages, "acme", {"later": "later_plugin:Longest"})
    refused("plugin_failed", chain.load, "later")
    (packages / "later_plugin.py").write_text(MODULE, encoding="utf-8")
    import importlib

    importlib.invalidate_caches()
    assert chain.load("later").name == "longest"
    sys.modules.pop("later_plugin")


def test_the_order_is_manifest_then_plugin_then_folder(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        packages,
        "acme",
        {name: "acme_plugins:Longest" for name in ("crossgate-router-minilm-l12", "box")},
    )
    monkeypatch.chdir(packages)
    (packages / "box").mkdir()
    assert chain.load("crossgate-router-minilm-l12").name == "crossgate-router-minilm-l12"
    assert chain.load("box").name == "longest"
    assert "box has neither model.onnx" in refused("model_incomplete", chain.load, "./box")
    assert "known models" in refused("unknown_model", chain.load, "no-such-name")


def test_a_folder_is_loaded_from_where_it_lies(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("here", "there"):
        for name in ("box", "crossgate-passages-minilm-l12"):
            folder = packages / place / name
            folder.mkdir(parents=True)
            (folder / "model.onnx").write_bytes(place.encode())
            (folder / "tokenizer.json").write_bytes(b"{}")
    monkeypatch.chdir(packages / "here")
    here = chain.load("box")
    assert chain.load(packages / "here" / "box").identity == here.identity
    assert chain.load("./box") is chain.load(f"{packages}/here/box") is here
    bundled = chain.load("crossgate-passages-minilm-l12")
    for path in (Path("./crossgate-passages-minilm-l12"), "./crossgate-passages-minilm-l12"):
        assert chain.load(path).identity != bundled.identity
    assert chain.load("crossgate-passages-minilm-l12") is bundled
    monkeypatch.chdir(packages / "there")
    assert chain.load("box").identity != here.identity
    refused("unknown_model", chain.load, "no\0bytes")
    # A name refers to the plug-in, even if a folder of this name was loaded before.
    plain = chain.load(Path("box"))
    install(packages, "acme", {"box": "acme_plugins:Longest"})
    monkeypatch.chdir(packages)
    (packages / "there" / "box").rename(packages / "box")
    assert chain.load(Path("box")).identity == plain.identity
    assert chain.load("box").name == "longest"


def test_a_model_is_loaded_off_the_loop_and_holds_up_no_other(packages: Path) -> None:
    install(packages, "acme", {"slow": "acme_plugins:Slow", "longest": "acme_plugins:Longest"})
    longest = chain.load("longest")
    module = sys.modules["acme_plugins"]

    async def both() -> RouteResult:
        waiting = asyncio.create_task(arerank("red fox", ["a fox", "a hen"], reranker=["slow"]))
        while not module.entered.is_set():
            await asyncio.sleep(0.001)
        assert chain.load("longest") is longest
        module.leave.set()  # only a loop that is free gets here
        return await waiting

    assert {hit.provider for hit in asyncio.run(both()).hits} == {"slow"}
    refused("unknown_model", asyncio.run, arerank("red fox", ["a fox"], reranker="nothing"))


def test_a_plugin_may_load_another_by_name(packages: Path) -> None:
    install(packages, "acme", {"nested": "acme_plugins:Nested", "longest": "acme_plugins:Longest"})
    made: Queue[Any] = Queue()
    # A thread of its own, which a lock that is never free would hold for ever.
    threading.Thread(target=lambda: made.put(chain.load("nested")), daemon=True).start()
    assert made.get(timeout=20).result.hits[0].provider == "longest"


def test_an_error_of_a_plugin_is_a_model_error(packages: Path) -> None:
    install(packages, "acme", {"mine": "acme_plugins:broken"})
    with pytest.raises(ModelError) as caught:
        chain.load("mine")
    assert isinstance(caught.value, PluginError)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_doctor_loads_every_plugin(packages: Path) -> None:
    install(packages, "acme", {"good": "acme_plugins:Longest", "bad": "acme_plugins:broken"})
    found = {one["what"]: one for one in examine()}
    assert (found["plug-in good"]["state"], found["plug-in good"]["detail"]) == (
        "ok",
        "of acme 1.2",
    )
    assert found["plug-in bad"]["state"] == "broken"
    assert "RuntimeError: no key" in found["plug-in bad"]["detail"]


def test_names_of_the_library_are_looked_up_without_plugins(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lookup(name: str) -> None:
        raise AssertionError(f"{name} is in the manifest")

    monkeypatch.setattr(plugins, "load", lookup)
    assert Router(build(LIBRARY)).route("merge pdf files", limit=1).ids == ["pdf-toolkit"]
    assert chain.load("crossgate-router-minilm-l12").name == "crossgate-router-minilm-l12"
