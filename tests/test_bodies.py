"""Bodies: what follows a document's head is searched by its words, cut, kept and shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conftest import FunctionReranker, WordEmbedder, refused
from crossgate import Document, Index, Profile, Router, rerank
from crossgate._core import Blend
from crossgate._evaluation.collecting import BODY_WEIGHTS, measure
from crossgate._evaluation.labels import Dataset, LabelledQuery
from crossgate._evaluation.stored_runs import decide, read_run, reblended
from crossgate._reranking.contract import PairScore
from crossgate._retrieval.passages import BODY_CHARS, PASSAGE_CHARS, passages
from crossgate._sources.reading import read_sources

FIRST = "# Forms\n\nFills in AcroForm fields with pypdf." + " padding" * 90
SECOND = "## Scans\n\nReads scans with tesseract, page by page 🦀." + " filler" * 95
BODY = f"{FIRST}\n\n{SECOND}\n"
PDF = Document(id="pdf", title="pdf", text="Works on documents", body=BODY)
LIBRARY = [
    PDF,
    Document(id="mail", title="mail", text="Writes letters", body="Salutations and greetings."),
    Document(id="chart", title="chart", text="Draws charts"),
]
UNGATED = Profile()


def library() -> Index:
    return Index.build(LIBRARY, embedder=WordEmbedder())


# Passages.


@given(st.text() | st.text(alphabet="a \n#.`", min_size=700, max_size=8_000))
def test_passages_cover_the_indexed_text(body: str) -> None:
    found = passages(body)
    read = body[:BODY_CHARS]
    end = 0
    for start, stop in found:
        assert not read[end:start].strip()
        assert read[start:stop] == read[start:stop].strip()
        assert 0 < stop - start <= PASSAGE_CHARS
        end = stop
    assert not read[end:].strip()


@pytest.mark.parametrize("body", ["", " \n\t ", "\0", "數據" * 9_000, "x" * 20_000, "\u202e\u200b"])
def test_any_body_is_indexed_and_searched(body: str) -> None:
    index = Index.build([Document(id="a", text="b", body=body)], embedder=None)
    assert index.get("a") == Document(id="a", text="b", body=body)
    Router(index, reranker=None, profile=UNGATED).route("數據 x")


def test_half_a_surrogate_is_refused() -> None:
    bad = Document(id="a", text="b", body="\ud800")
    assert "the body of document 'a'" in refused(
        "invalid_text", lambda: Index.build([bad], embedder=None)
    )


# The index.


def test_bodies_survive_save_and_open(tmp_path: Path) -> None:
    index = library()
    index.delete(["mail"])
    index.save(tmp_path / "a.cgx")
    opened = Index.open(tmp_path / "a.cgx", embedder=WordEmbedder())
    assert opened.get("pdf") == PDF

    def decided(one: Index) -> object:
        return Router(one, reranker=None, profile=UNGATED).route("tesseract scans").hits

    assert decided(opened) == decided(index)
    opened.save(tmp_path / "b.cgx")
    assert (tmp_path / "b.cgx").read_bytes() == (tmp_path / "a.cgx").read_bytes()


def test_changed_body_changes_fingerprint_and_vector() -> None:
    earlier = library()
    embedder = WordEmbedder()
    changed = [replace(PDF, body="Now about signatures."), *LIBRARY[1:]]
    index = Index.build(changed, embedder=embedder, reuse=earlier)
    assert embedder.texts == ["pdf: Works on documents", "pdf: Now about signatures."]
    assert index.fingerprint != earlier.fingerprint
    found = Router(index, reranker=None, profile=UNGATED).route("signatures")
    assert found.hits[0].id == "pdf"
    assert found.hits[0].bm25 > 0


def test_change_after_the_embedded_part_keeps_the_vector() -> None:
    long = replace(PDF, body=f"{'x' * 999} here and nothing of this is embedded")
    earlier = Index.build([long], embedder=WordEmbedder())
    embedder = WordEmbedder()
    changed = replace(long, body=f"{'x' * 999} other words, that only BM25 reads")
    index = Index.build([changed], embedder=embedder, reuse=earlier)
    assert embedder.texts == []
    assert index.fingerprint != earlier.fingerprint


@given(
    head=st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
    body=st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
)
def test_vector_is_the_weighted_mean_of_head_and_body(head: list[float], body: list[float]) -> None:
    class Given:
        identity, dimension = "given@1", 4

        def embed(self, texts: Sequence[str], **_: Any) -> list[list[float]]:
            assert texts == ["a: head", "a: body"]
            return [head, body]

    def direction(vector: Any) -> Any:
        return np.array(vector) / np.linalg.norm(vector)

    assume(min(np.linalg.norm(head), np.linalg.norm(body)) > 1e-3)
    expected = 0.7 * direction(head) + 0.3 * direction(body)
    assume(np.linalg.norm(expected) > 1e-3)
    index = Index.build([Document(id="a", title="a", text="head", body="body")], embedder=Given())
    assert index._core.vector("a") == pytest.approx(direction(expected), abs=1e-5)


def test_zero_vector_of_a_body_is_refused_with_the_id() -> None:
    class Nothing(WordEmbedder):
        def embed(self, texts: Sequence[str], **_: Any) -> list[list[float]]:
            return [[0.0] * 32 for _ in texts]

    assert '"pdf"' in refused("zero_vector", lambda: Index.build([PDF], embedder=Nothing()))


def test_a_blank_body_is_not_embedded() -> None:
    embedder = WordEmbedder()
    Index.build([replace(PDF, body=" \n")], embedder=embedder)
    assert embedder.texts == ["pdf: Works on documents"]


def test_an_index_without_bodies_hardly_grows(tmp_path: Path) -> None:
    """What a body costs is paid by documents that have one."""
    bare = [replace(one, body="") for one in LIBRARY]
    Index.build(bare, embedder=None).save(tmp_path / "bare.cgx")
    Index.build(LIBRARY, embedder=None).save(tmp_path / "bodies.cgx")
    bodies = sum(len(one.body) for one in LIBRARY)
    assert (tmp_path / "bare.cgx").stat().st_size < 500
    assert (tmp_path / "bodies.cgx").stat().st_size < 500 + 2 * bodies


# Routing.


def test_the_words_of_a_body_decide_and_its_passage_is_named() -> None:
    words = Profile(blend={"cosine_weight": 0.0, "bm25_weight": 1.0})
    result = Router(library(), reranker=None, profile=words).route("tesseract on my scans")
    hit = result.hits[0]
    assert hit.id == "pdf"
    assert hit.passage is not None
    start, end = BODY.index("## Scans"), len(BODY) - 1
    assert (hit.passage.start, hit.passage.end) == (start, end)
    assert hit.excerpt == BODY[start:end]
    assert hit.to_dict()["passage"] == {"start": start, "end": end}
    assert result.trace["stage1"][0]["passage"] == {"start": start, "end": end}
    without = result.hits[-1]
    assert (without.passage, without.excerpt) == (None, without.document.text)


def test_a_body_that_weighs_nothing_is_not_read() -> None:
    profile = UNGATED.replace(blend=Blend(body_weight=0.0))
    result = Router(library(), reranker=None, profile=profile).route("tesseract")
    assert all(hit.bm25 == 0 for hit in result.hits)
    light, heavy = (
        library().search("tesseract", embed=False, blend=Blend(body_weight=weight)).scored[0].bm25
        for weight in (0.1, 1.0)
    )
    assert 0 < light < heavy


def test_stage_2_reads_the_head_and_the_passage() -> None:
    reranker = FunctionReranker(lambda _, texts: [PairScore(float(len(one))) for one in texts])
    router = Router(library(), reranker=reranker, profile=UNGATED)
    router.route("fields of forms by pypdf")
    ((_, texts),) = reranker.calls
    assert texts[0] == f"pdf: Works on documents\n{FIRST}"
    assert "chart: Draws charts" in texts


@pytest.mark.parametrize("kind", [Document, dict])
def test_candidates_of_another_retriever_have_bodies_too(kind: Callable[..., Any]) -> None:
    given = [kind(id=one.id, title=one.title, text=one.text, body=one.body) for one in LIBRARY]
    result = rerank("pypdf fields", given, reranker=None)
    assert result.hits[0].id == "pdf"
    assert result.hits[0].excerpt == FIRST
    message = refused(
        "malformed_candidate", lambda: rerank("a", [{"text": "b", "body": 5}], reranker=None)
    )
    assert "the body of candidate 0 must be a string, not an int" in message


# Calibration.


def test_a_run_keeps_the_scores_under_each_weight_of_the_body(tmp_path: Path) -> None:
    dataset = Dataset(
        name="bodies",
        split="test",
        documents=tuple(LIBRARY),
        queries=(LabelledQuery(id="q", text="tesseract scans", relevant={"pdf": 1}),),
    )
    reranker = FunctionReranker(lambda _, texts: [PairScore(1.0) for _ in texts])
    path = tmp_path / "a.run.jsonl"
    measure(dataset, path, embedder=WordEmbedder(), reranker=reranker, profile=UNGATED)
    (query,) = read_run(path).queries
    assert set(query.reweighed) == {*BODY_WEIGHTS, Blend().body_weight}
    index = library()
    for weight in BODY_WEIGHTS:
        other = UNGATED.replace(blend=Blend(body_weight=weight))
        wanted = Router(index, reranker=reranker, profile=other).route(query.text, limit=None)
        again = decide(reblended(query, other), other, "gated")
        assert [hit.bm25 for hit in again.hits] == [hit.bm25 for hit in wanted.hits]
        assert again.ids == wanted.ids
    unknown = UNGATED.replace(blend=Blend(body_weight=0.77))
    message = refused("unsuitable_run", lambda: reblended(query, unknown))
    assert "0.77" in message
    whole = path.read_text()
    path.write_text(whole.replace('"reweighed": [[0.0, {', '"reweighed": [[0.0, {"b": -1, '))
    refused("malformed_run", lambda: read_run(path))


def test_tool_set_equals_the_output_of_the_source() -> None:
    folder = Path(__file__).parents[1] / "eval" / "tools"
    lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    read = read_sources([str(folder / "tools.json")]).documents
    assert [(one.id, one.title, one.text, one.body) for one in read] == [
        (row["_id"], row["title"], row["text"], row["body"]) for row in rows
    ]
