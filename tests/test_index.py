"""The index: stored values, refused input, and files that stay whole after any failure."""

from __future__ import annotations

import math
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import LIBRARY, BrokenEmbedder, WordEmbedder, build, documents, refused
from crossgate import (
    Document,
    Index,
    IndexFileError,
    PrecomputedVectors,
    Profile,
    Router,
)
from crossgate._retrieval import document_index as index_module

REBUILD = "crossgate index"


def run_script(script: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start a script on a fresh interpreter."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


# What an index holds.


def test_saved_index_opens_unchanged(index: Index, tmp_path: Path) -> None:
    index.upsert(
        [
            Document(
                id="🦀 odd/id\n",
                title="Tïtle",
                text="naïve café\0 數據",
                metadata={"deep": {"list": [1, 2.5, None, True, "ü"]}},
            )
        ]
    )
    index.delete(["translator"])
    path = tmp_path / "skills.cgx"
    index.save(path)
    opened = Index.open(path, embedder=WordEmbedder())
    assert opened.ids == [*(id for id in LIBRARY if id != "translator"), "🦀 odd/id\n"]
    for id in index.ids:
        assert opened.get(id) == index.get(id)
        assert opened._core.vector(id) == index._core.vector(id)
    assert (opened.embedder, opened.dimension) == ("words@1", 32)
    assert opened.fingerprint == index.fingerprint
    assert len(opened) == len(LIBRARY)

    def decided(one: Index) -> object:
        return Router(one, reranker=None, profile=Profile()).route("merge pdf").hits

    assert decided(opened) == decided(index)
    again = tmp_path / "again.cgx"
    opened.save(str(again))
    assert again.read_bytes() == path.read_bytes()


def test_an_index_without_vectors(tmp_path: Path) -> None:
    index = build(embedder=None, language="none")
    index.save(tmp_path / "words.cgx")
    opened = Index.open(tmp_path / "words.cgx")
    assert (opened.embedder, opened.dimension) == ("", 0)
    assert opened._core.language == "none"
    assert opened.ids == list(LIBRARY)


def test_properties_describe_the_index(index: Index) -> None:
    assert len(index) == len(LIBRARY)
    assert "csv-cleaner" in index
    assert "nobody" not in index
    assert 5 not in index
    assert index.get("nobody") is None
    assert repr(index) == "<Index of 6 documents, embedder words@1>"
    assert repr(build(embedder=None)) == "<Index of 6 documents, embedder none>"
    assert index.get("csv-cleaner") == Document(
        id="csv-cleaner", text=LIBRARY["csv-cleaner"], metadata={}
    )


def test_an_id_that_no_document_can_have_is_not_there(index: Index) -> None:
    assert "half \ud83d" not in index
    assert index.get("half \ud83d") is None
    assert index.delete(["half \ud83d"]) == 0


def test_deleting(index: Index) -> None:
    assert index.delete([]) == 0
    assert index.delete(["csv-cleaner", "csv-cleaner", "nobody"]) == 1
    assert index.delete(iter(["translator", "spreadsheet"])) == 2
    assert len(index) == 3
    refused("out_of_range", lambda: index.delete("pdf-toolkit"))
    assert "pdf-toolkit" in index


# Building and changing.


def test_given_vectors_are_not_made(embedder: WordEmbedder) -> None:
    given = [Document(id=id, text=id, vector=[1.0] * 32) for id in "ab"]
    index = Index.build([*given, Document(id="c", text="made")], embedder=embedder)
    assert embedder.texts == ["made"]
    assert index._core.vector("a") == pytest.approx([1 / math.sqrt(32)] * 32)


def test_vectors_from_elsewhere() -> None:
    given = PrecomputedVectors("elsewhere@3", 2)
    index = Index.build([Document(id="a", text="b", vector=[1.0, 0.0])], embedder=given)
    assert (index.embedder, index.dimension) == ("elsewhere@3", 2)
    message = refused("model_missing", lambda: index.upsert([Document(id="b", text="c")]))
    assert "elsewhere@3" in message
    assert index.ids == ["a"]
    result = Router(index, reranker=None, profile=Profile()).route("b", vector=[0.0, 1.0])
    assert result.degraded == ()
    assert result.hits[0].cosine == 0.0


def test_reuse_keeps_the_vectors_of_unchanged_documents() -> None:
    earlier = build()
    changed = {
        **LIBRARY,
        "pdf-toolkit": "another text",
        "new": "a new one",
    }
    del changed["translator"]
    embedder = WordEmbedder()
    seen: list[tuple[int, int]] = []
    index = build(
        changed,
        embedder=embedder,
        reuse=earlier,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert sorted(embedder.texts) == ["a new one", "another text"]
    assert seen == [(1, 2), (2, 2)]
    assert index.ids == list(changed)
    fresh = build(changed)
    for id in changed:
        assert index._core.vector(id) == pytest.approx(fresh._core.vector(id), abs=1e-6)
    assert "translator" in earlier


def test_reuse_sees_a_changed_title() -> None:
    earlier = Index.build([Document(id="a", text="b")], embedder=WordEmbedder())
    embedder = WordEmbedder()
    Index.build([Document(id="a", title="T", text="b")], embedder=embedder, reuse=earlier)
    assert embedder.texts == ["T: b"]


def test_reuse_takes_nothing_from_another_embedder() -> None:
    class Other(WordEmbedder):
        identity = "words@2"

    other = Other()
    build(embedder=other, reuse=build())
    assert len(other.texts) == len(LIBRARY)
    assert build(embedder=None, reuse=build()).dimension == 0


def test_a_vector_that_is_given_wins_over_reuse() -> None:
    vector = [0.0] * 31 + [1.0]
    index = Index.build(
        [Document(id="pdf-toolkit", text=LIBRARY["pdf-toolkit"], vector=vector)],
        embedder=WordEmbedder(),
        reuse=build(),
    )
    assert index._core.vector("pdf-toolkit") == vector


BAD_DOCUMENTS: dict[str, tuple[list[Document], str]] = {
    "none": ([], "no_documents"),
    "two of one id": (
        [Document(id="a", text="b"), Document(id="a", text="c")],
        "duplicate_id",
    ),
    "an empty id": ([Document(id="", text="b")], "malformed_candidate"),
    "neither title nor text": ([Document(id="a", text="")], "empty_document"),
    "blanks": ([Document(id="a", text=" \n\t", title="\u3000")], "empty_document"),
    "half a letter in the text": ([Document(id="a", text="\ud83d")], "invalid_text"),
    "half a letter in the title": (
        [Document(id="a", text="b", title="\udc80")],
        "invalid_text",
    ),
    "half a letter in the id": ([Document(id="\ud83d", text="b")], "invalid_text"),
    "a number for a text": ([Document(id="a", text=5)], "invalid_text"),  # type: ignore[arg-type]
    "a number for an id": ([Document(id=5, text="a")], "invalid_text"),  # type: ignore[arg-type]
    "metadata that JSON cannot represent": (
        [Document(id="a", text="b", metadata={"c": {1}})],
        "malformed_candidate",
    ),
    "metadata with NaN": (
        [Document(id="a", text="b", metadata={"c": math.nan})],
        "malformed_candidate",
    ),
    "a short vector": ([Document(id="a", text="b", vector=[1.0])], "wrong_dimension"),
    "a vector of NaN": ([Document(id="a", text="b", vector=[math.nan] * 32)], "not_finite"),
    "a vector of zeros": ([Document(id="a", text="b", vector=[0.0] * 32)], "zero_vector"),
}


@pytest.mark.parametrize("kind", BAD_DOCUMENTS)
def test_bad_documents_are_refused_and_change_nothing(
    index: Index, kind: str, tmp_path: Path
) -> None:
    bad, code = BAD_DOCUMENTS[kind]
    message = refused(code, lambda: Index.build(bad, embedder=WordEmbedder()))
    if not bad:
        return
    assert bad[0].id != "a" or "'a'" in message or '"a"' in message
    index.save(tmp_path / "before.cgx")
    change = [
        Document(id="new", text="new"),
        Document(id="csv-cleaner", text="changed"),
        *bad,
    ]
    refused(code, lambda: index.upsert(change))
    index.save(tmp_path / "after.cgx")
    assert (tmp_path / "after.cgx").read_bytes() == (tmp_path / "before.cgx").read_bytes()


def test_an_upsert_without_documents_changes_nothing(index: Index) -> None:
    before = index.fingerprint
    index.upsert([])
    index.upsert(iter(()))
    assert index.fingerprint == before


def test_bad_documents_are_refused_before_any_is_embedded(embedder: WordEmbedder) -> None:
    bad = [*documents(), Document(id="a", text="")]
    refused("empty_document", lambda: Index.build(bad, embedder=embedder))
    assert embedder.texts == []


def test_an_embedder_that_fails_changes_nothing() -> None:
    embedder = BrokenEmbedder()
    index = build(embedder=embedder)
    before = index.fingerprint
    embedder.broken = RuntimeError("it broke")
    with pytest.raises(RuntimeError):
        index.upsert([Document(id="new", text="new")])
    assert index.fingerprint == before
    assert "new" not in index


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_embedder_that_miscounts_is_named(count: int) -> None:
    class Miscounting(WordEmbedder):
        def embed(self, texts: Sequence[str], **options: Any) -> list[list[float]]:
            return [[1.0] * 32] * count

    refused(
        "model_failed",
        Index.build,
        [Document(id=id, text=id) for id in "ab"],
        embedder=Miscounting(),
    )


def test_unknown_names() -> None:
    one = [Document(id="a", text="b")]
    message = refused("out_of_range", lambda: Index.build(one, embedder=None, language="x"))
    assert "english" in message
    message = refused("unknown_model", lambda: Index.build(one, embedder="no-such-model"))
    assert "crossgate-embedder-minilm-l6" in message


def test_odd_texts_are_kept_and_found() -> None:
    odd = {
        "long": "needle " + "hay " * 250_000,
        "nul": "a\0b needle",
        "right-to-left": "שלום needle עולם",
        "cjk": "數據清理 needle",
        "emoji": "🧹🦀 needle ✨",
        "marks": "!!! ... --- ???",
    }
    index = build(odd)
    result = Router(index, reranker=None, profile=Profile()).route("needle", limit=None)
    assert {hit.id for hit in result.hits if hit.bm25 > 0} == set(odd) - {"marks"}
    assert {hit.id for hit in result.hits} == set(odd)
    for id, text in odd.items():
        found = index.get(id)
        assert found is not None
        assert found.text == text


# The embedder that made the vectors.


def test_another_embedder_is_refused(index: Index, tmp_path: Path) -> None:
    class Other(WordEmbedder):
        identity = "words@2"

    path = tmp_path / "skills.cgx"
    index.save(path)
    message = refused("embedder_mismatch", lambda: Index.open(path, embedder=Other()))
    for part in ("words@1", "words@2", REBUILD, str(path)):
        assert part in message


def test_another_version_of_a_known_model_is_refused(tmp_path: Path) -> None:
    class Older(WordEmbedder):
        identity = "crossgate-embedder-minilm-l6@sha256:0000000000000000"

    path = tmp_path / "old.cgx"
    build(embedder=Older()).save(path)
    index = Index.open(path)
    message = refused("embedder_mismatch", index.load_embedder)
    assert "sha256:0000000000000000" in message
    assert REBUILD in message
    result = Router(index, reranker=None, profile=Profile()).route("merge pdf")
    assert [one.code for one in result.degraded] in (
        ["embedder_failed"],
        ["embedder_unavailable"],
    )
    assert result.ids[0] == "pdf-toolkit"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """An index file without vectors, small enough to be damaged in every place."""
    path = tmp_path / "saved.cgx"
    build({"fox": "red fox", "hen": "red hen"}, embedder=None).save(path)
    return path


def damaged(path: Path, content: bytes) -> tuple[str, str]:
    """Return code and message of reading a file with this content."""
    path.write_bytes(content)
    with pytest.raises(IndexFileError) as caught:
        Index.open(path).load()
    return caught.value.code, str(caught.value)


# Damaged files.


def test_damaged_block_fails_only_the_calls_that_read_it(saved: Path) -> None:
    """A server asks before it starts, and a change is refused before it changes anything."""
    whole = saved.read_bytes()
    opened = 0
    for place in range(52, len(whole)):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            router = Router(Index.open(saved), reranker=None)
        except IndexFileError:
            continue
        opened += 1
        uses = (
            router.warm_up,
            partial(router.route, "red hens"),
            partial(router.index.upsert, [{"id": "new", "text": "new"}]),
        )
        for use in uses:
            with pytest.raises(IndexFileError, match=str(saved)) as caught:
                use()
            assert caught.value.code == "index_corrupt"
        assert router.index.ids == ["fox", "hen"]
    assert opened > 20


@pytest.mark.parametrize("content", [b"", b"{}", b"PK\x03\x04" * 9, bytes(100), b"\x89CGX"])
def test_open_refuses_a_file_that_is_not_an_index(saved: Path, content: bytes) -> None:
    code, message = damaged(saved, content)
    assert code == "not_an_index"
    assert str(saved) in message
    assert REBUILD in message


def test_a_path_that_cannot_be_opened_is_named(saved: Path) -> None:
    for path, code in (
        (saved.with_name("absent.cgx"), "index_missing"),
        (saved.parent, "index_unreadable"),
        (saved / "below.cgx", "index_(missing|unreadable)"),
        (Path("nul\0byte"), "index_unreadable"),
    ):
        with pytest.raises(IndexFileError) as caught:
            Index.open(path)
        assert re.fullmatch(code, caught.value.code)
        assert path.name in str(caught.value)
        assert REBUILD in str(caught.value) or code != "index_missing"
    refused("index_unwritable", lambda: build(embedder=None).save("nul\0byte"))


def test_where_nothing_can_be_written_the_path_is_named(saved: Path) -> None:
    for path in (saved.parent / "absent" / "new.cgx", saved / "below.cgx", saved.parent):
        message = refused("index_unwritable", Index.open(saved).save, path)
        assert f"cannot write the index {path}: " in message
        # The file aside is none of the caller's.
        assert ".crossgate-" not in message
    assert list(saved.parent.iterdir()) == [saved]


# Writing.


def test_saving_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "skills.cgx"
    build().save(path)
    before = path.read_bytes()
    script = """
        import resource, signal, sys
        from crossgate import Document, Index, IndexFileError
        # A process may not write files beyond this size; the signal would end it.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, resource.RLIM_INFINITY))
        index = Index.build(
            [Document(id=str(number), text="word " * 50) for number in range(200)],
            embedder=None,
        )
        try:
            index.save(sys.argv[1])
        except IndexFileError as error:
            print(error.code)
            print(error)
    """
    run = run_script(script, path)
    output, errors = run.communicate(timeout=60)
    assert run.returncode == 0, errors
    code, message = output.splitlines()
    assert code == "index_unwritable"
    assert str(path) in message
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_s_mode_is_the_usual_one(index: Index, tmp_path: Path) -> None:
    usual, path = tmp_path / "usual", tmp_path / "skills.cgx"
    usual.write_bytes(b"")
    index.save(path)
    assert oct(path.stat().st_mode) == oct(usual.stat().st_mode)


SAVE_AGAIN_AND_AGAIN = """
    import sys
    from crossgate import Document, Index
    path, rounds, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    index = Index.build(
        [Document(id=f"{name}{number}", text="word " * 100) for number in range(300)],
        embedder=None,
    )
    index.save(path)
    print("saved", flush=True)
    for _ in range(rounds):
        index.save(path)
"""


# Others at the same time.


def test_two_processes_write_one_file_while_a_third_reads(tmp_path: Path) -> None:
    path = tmp_path / "skills.cgx"
    writers = [run_script(SAVE_AGAIN_AND_AGAIN, path, 50, name) for name in "ab"]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "saved\n"
    reads = 0
    while any(writer.poll() is None for writer in writers) or not reads:
        # Raises if it ever meets half an index.
        ids = Index.open(path).ids
        assert len(ids) == 300
        assert len({id[0] for id in ids}) == 1
        reads += 1
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    assert len(Index.open(path)) == 300
    assert [one.name for one in tmp_path.iterdir()] == ["skills.cgx"]


def test_a_process_is_killed_while_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "skills.cgx"
    chance = random.Random(0)
    for _ in range(6):
        writer = run_script(SAVE_AGAIN_AND_AGAIN, path, 1_000_000, "x")
        assert writer.stdout is not None
        assert writer.stdout.readline() == "saved\n"
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(chance.uniform(0.001, 0.05))
        writer.kill()
        writer.communicate()
        assert writer.returncode == -signal.SIGKILL
        assert len(Index.open(path)) == 300


def test_threads_change_search_and_save_one_index(index: Index, tmp_path: Path) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(6)

    def run(action: Callable[[int], object]) -> None:
        start.wait()
        try:
            for round in range(30):
                action(round)
        except BaseException as error:
            failures.append(error)

    def change(name: str) -> Callable[[int], object]:
        def action(round: int) -> None:
            index.upsert([Document(id=f"{name}{round}", text=f"{name} word {round}")])
            if round % 2:
                assert index.delete([f"{name}{round}"]) == 1

        return action

    def save(round: int) -> None:
        path = tmp_path / f"{round % 3}.cgx"
        index.save(path)
        assert len(Index.open(path)) >= len(LIBRARY)

    router = Router(index, reranker=None, profile=Profile())
    actions: list[Callable[[int], object]] = [
        change("a"),
        change("b"),
        save,
        lambda _: router.route("word"),
        lambda _: [index.get(id) for id in index.ids],
        lambda _: (index.fingerprint, len(index), repr(index)),
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(action,)) for action in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failures == []
    kept = {f"{name}{round}" for name in "ab" for round in range(0, 30, 2)}
    assert set(index.ids) == set(LIBRARY) | kept


def test_threads_load_one_embedder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Index.build([Document(id="a", text="red fox")]).save(tmp_path / "a.cgx")
    index = Index.open(tmp_path / "a.cgx")
    load, second = index_module._embedder, threading.Event()
    begun: list[Any] = []

    def slow(name: Any) -> Any:
        begun.append(name)
        if len(begun) > 1:
            second.set()
        second.wait(0.5)  # a second one would come now
        return load(name)

    monkeypatch.setattr(index_module, "_embedder", slow)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: index.load_embedder(), range(4)))
    assert len(begun) == 1
    assert all(one is found[0] for one in found)


def test_search_checks_its_arguments() -> None:
    index = build(embedder=None)
    found = index.search("merge pdf files")
    assert found.scored[0].id == "pdf-toolkit"
    assert {one.id for one in found.scored} == set(found.documents)
    assert [one.id for one in index.search("pdf", allow=["translator"]).scored] == ["translator"]
    refused("invalid_text", index.search, "\ud800")
    refused("out_of_range", index.search, "pdf", allow="translator")
    refused("out_of_range", index.search, "pdf", deny="translator")
    for count in (1, 0, -1, 10**30, 2.5, True):
        refused("out_of_range", index.search, "pdf", per_channel=count)


def test_search_embeds_the_query_by_default() -> None:
    index = Index.build(["The crimson boat.", "A blue house.", "Green tea."])
    found = index.search("a red ship")
    assert found.scored[0].id == "0"
    assert all(candidate.cosine is not None for candidate in found.scored)
    assert {candidate.cosine for candidate in index.search("a red ship", embed=False).scored} == {
        None
    }
    elsewhere = Index.build(
        [Document(id="a", text="red", vector=[1.0, 0.0])], embedder=PrecomputedVectors("x@1", 2)
    )
    message = refused("model_missing", elsewhere.search, "red")
    assert "vector" in message


@pytest.mark.parametrize("embedder", [None, "default"])
def test_search_corrects_misspelt_words_to_words_of_the_documents(embedder: str | None) -> None:
    library = [Document(id=str(number), text=f"Boat {number} is red.") for number in range(30)]
    fee = Document(id="fee", text="Each reminder costs three pounds.")
    index = Index.build([*library, fee], embedder=embedder)
    right = index.search("cost of a reminder", limit=5)
    misspelt = index.search("cost of a remminder", limit=5)
    assert misspelt == right
    assert right.scored[0].id == "fee"
    assert index.search("cost of a remminder", limit=5, embed=False) != misspelt


def test_search_returns_at_most_limit_candidates() -> None:
    index = Index.build([f"red boat {number}" for number in range(30)], embedder=None)
    for limit in (1, 7, 25):
        found = index.search("red boat", limit=limit)
        assert len(found.scored) == len(found.documents) == len(found.candidates) == limit
    assert [c.id for c in found.candidates] == [scored.id for scored in found.scored]
    assert found.candidates[0].text == index[found.candidates[0].id].text
    for wrong in (0, -1, True, 2.5):
        refused("out_of_range", index.search, "red", limit=wrong)


def test_load_of_a_path_names_open(tmp_path: Path) -> None:
    message = refused("out_of_range", Index.load, str(tmp_path / "a.cgx"))
    assert "Index.open(path)" in message


def test_interrupted_indexing_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "_BLOCK", 2)
    monkeypatch.setattr(index_module, "_SAVED_EVERY", -1.0)
    documents = [Document(id=f"part-{n}", text=f"red fox {n}") for n in range(5)]
    embedded: list[str] = []

    class Counting(WordEmbedder):
        def embed(self, texts: Sequence[str], **options: Any) -> Any:
            if len(embedded) >= limit:
                raise KeyboardInterrupt
            embedded.extend(texts)
            return super().embed(texts, **options)

    options: dict[str, Any] = {"embedder": Counting(), "language": "english", "reuse": None}
    file, limit, done = tmp_path / "unfinished", 4, []
    with pytest.raises(KeyboardInterrupt):
        index_module.build_in_blocks(documents, file, progress=print, **options)
    assert len(embedded) == 4
    limit = 9
    built = index_module.build_in_blocks(
        documents, file, progress=lambda *counts: done.append(counts), **options
    )
    assert embedded == [document.text for document in documents]
    whole = Index.build(documents, embedder=WordEmbedder())
    other = tmp_path / "other"
    other.write_text("of the user")
    (tmp_path / "link").symlink_to(other)
    (tmp_path / "folder").mkdir()
    for name in ("other", "link", "folder", "missing/file"):
        embedded.clear()
        in_spite = index_module.build_in_blocks(
            documents, tmp_path / name, progress=lambda *_: None, **options
        )
        assert (in_spite.fingerprint, other.read_text()) == (whole.fingerprint, "of the user")
    assert built.fingerprint == whole.fingerprint
    assert done[-1] == (5, 5)
