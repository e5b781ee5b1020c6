"""Results and indexes in a REPL and in another process."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from conftest import LIBRARY, LengthReranker, WordEmbedder, build, refused
from crossgate import Document, Index, PrecomputedVectors, Profile, Router, RouteResult, rerank
from crossgate._values.results import why

HOSTILE = "<script>alert('x')</script> & \x1b[31m\nred fox"


def decided(count: int = 3) -> RouteResult:
    rows = [{"id": f"row {place}", "text": f"red fox {place} " * 2_000} for place in range(count)]
    return rerank("red fox", rows, reranker=LengthReranker())


def test_repr_is_one_short_line() -> None:
    for count in (0, 1, 3, 50):
        line = repr(decided(count))
        assert len(line) < 300
        assert "\n" not in line
        assert f"{count} of {count} selected" in line
    assert repr(decided(1)).startswith(
        "<RouteResult 1 of 1 selected: 'row 0'; ambiguous (reranked)"
    )
    assert "no_profile" in repr(decided(1))
    (hit,) = decided(1).hits
    assert repr(hit).startswith("<Hit 'row 0' at 0: selected, score ")


def test_names_in_the_repr_are_cut_and_have_no_control_characters() -> None:
    result = rerank("red fox", [{"id": HOSTILE * 50, "text": "red fox"}], reranker=None)
    assert len(repr(result)) < 300
    assert "\x1b" not in repr(result) + repr(result.hits[0])
    assert "\n" not in repr(result) + repr(result.hits[0])


@pytest.mark.parametrize("lead", [0.0, 1.0])
def test_reason_with_two_picks_does_not_claim_a_clear_winner(lead: float) -> None:
    """A profile may have a clear winner and still select the runner-up."""
    profile = Profile(winner={"agreed": 0.0, "disagreed": 0.0}, runner_up={"stage1": lead})
    texts = {"one": "red fox den", "two": "red fox", "three": "hen house"}
    result = Router(build(texts), reranker=None, profile=profile).route("red fox den", limit=2)
    assert (result.reason, len(result)) == ("confident_winner", 2 if lead else 1)
    ahead = "one document leads"
    assert (ahead in why(result.reason, len(result))) is not bool(lead)

    assert "confident" not in why(result.reason, len(result))  # that would name a probability


def test_result_is_a_sequence_of_selected_hits() -> None:
    result = rerank("red fox", ["red", "red fox", "hen"], limit=2, reranker=LengthReranker())
    assert len(result) == 2
    assert list(result) == [result[0], result[1]] == list(result.selected)
    assert result[:1] == result.selected[:1]
    assert [hit.index for hit in result] == [0, 1]
    with pytest.raises(IndexError):
        result[2]
    nothing = rerank("red fox", [], reranker=None)
    assert not nothing
    assert list(nothing) == []


def test_json_has_texts_and_indexes() -> None:
    result = rerank("fox", ["hen", "a fox ü"], reranker=None)
    values = json.loads(result.to_json())
    assert values == result.to_dict(text=True)
    assert [(hit["index"], hit["text"]) for hit in values["hits"]] == [(1, "a fox ü"), (0, "hen")]
    assert result.to_json().isascii()
    assert "\n" not in result.to_json()
    assert "\n" in result.to_json(indent=2)
    assert "trace" in json.loads(result.to_json(trace=True))
    assert "text" not in json.loads(result.to_json(text=False))["hits"][0]
    (hit, *_) = Router(build(), reranker=None, profile=Profile()).route("pdf files").hits
    assert hit.to_dict()["index"] is None


def test_command_line_prints_texts_and_indexes() -> None:
    script = "import sys; from crossgate._cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script, "rerank", "fox", "--json", "--reranker", "none"],
        input='{"content": "hen"}\n{"page_content": "a fox"}\n',
        capture_output=True,
        text=True,
        check=True,
    )
    hits = json.loads(done.stdout)["hits"]
    assert [(hit["index"], hit["id"], hit["text"]) for hit in hits] == [
        (1, "1", "a fox"),
        (0, "0", "hen"),
    ]


@pytest.mark.parametrize("text", ["text", "description", "content", "page_content"])
@pytest.mark.parametrize("title", ["title", "name"])
@pytest.mark.parametrize("id", ["id", "_id"])
def test_candidates_of_all_kinds_have_the_same_fields(text: str, title: str, id: str) -> None:
    from crossgate._sources.rows import read_candidates

    row = {id: "a", title: "T", text: "red fox", "body": "long", "kind": 1, "metadata": {"b": 2}}
    (read,) = read_candidates([json.dumps(row)], name="c")
    (hit,) = rerank("fox", [row], reranker=None).hits
    built = Index.build([row], embedder=None)
    assert hit.document == read
    assert built["a"] == Document(
        id="a", title="T", text="red fox", body="long", metadata={"kind": 1, "b": 2}
    )
    assert row == {id: "a", title: "T", text: "red fox", "body": "long", "kind": 1} | {
        "metadata": {"b": 2}
    }


def test_row_without_a_text_is_refused_with_the_accepted_fields() -> None:
    line = refused("malformed_candidate", rerank, "fox", ["a fox", {"chunk": "a fox", "n": 1}])
    assert "candidate 1 has no text" in line
    assert "page_content" in line
    assert "chunk, n" in line


def test_index_is_built_from_texts() -> None:
    index = Index.build(["red fox", {"content": "hen"}], embedder=None)
    assert list(index) == index.ids == ["0", "1"]
    assert index["1"].text == "hen"
    assert "document 0 has no id" in refused("malformed_candidate", index.upsert, ["cow"])
    index.upsert([{"id": "c", "text": "cow"}])
    assert [index[id].text for id in index] == ["red fox", "hen", "cow"]
    for single in ("red fox", {"text": "red fox"}, Document(id="a", text="b")):
        assert "pass a list" in refused("malformed_candidate", Index.build, single)
    message = refused("malformed_candidate", Index.build, ["a", 5])
    assert message.startswith("document 1 must be a string, a mapping or a Document, not an int")


def test_index_supports_lookup_by_id(index: Index) -> None:
    assert index["csv-cleaner"].text == LIBRARY["csv-cleaner"]
    with pytest.raises(KeyError, match="'csv'"):
        index["csv"]
    with pytest.raises(TypeError, match="a str, not 0"):
        index[0]  # type: ignore[index]


def test_router_opens_a_file(tmp_path: Path) -> None:
    build().save(tmp_path / "a.cgx")
    for path in (tmp_path / "a.cgx", str(tmp_path / "a.cgx")):
        router = Router(path, embedder=WordEmbedder(), reranker=None, profile=Profile())
        assert router.route("merge pdf files").ids[0] == "pdf-toolkit"
    refused("index_missing", Router, tmp_path / "none.cgx")
    line = refused("out_of_range", Router, ["merge pdf files"])
    assert "index must be an Index or the path of its file, not a list" in line
    assert "Index.build" in line


def ids_of(index: Index, query: str) -> RouteResult:
    return Router(index, reranker=None, profile=Profile()).route(query, limit=2)


def test_index_and_results_can_be_pickled() -> None:
    index = build({**LIBRARY, "long": "a book"}, embedder=None)
    index.upsert([Document(id="fox", text="an animal", body="the red fox " * 20)])
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = pool.submit(ids_of, index, "red fox").result()
    here = ids_of(index, "red fox")
    assert there.ids == here.ids
    assert there.trace == here.trace
    assert there[0].passage is not None
    assert there[0].excerpt == here[0].excerpt


def test_copy_of_an_index_is_independent() -> None:
    red = Document(id="a", text="red", vector=[1.0, 0.0])
    index = Index.build([red], embedder=PrecomputedVectors("elsewhere", 2))
    again = copy.deepcopy(index)
    assert (again.fingerprint, again.embedder) == (index.fingerprint, "elsewhere")
    assert again.search("red", [1.0, 0.0]).scored[0].cosine == 1.0
    again.delete(["a"])
    assert "a" in index


def test_index_with_an_unpicklable_embedder_is_refused(index: Index) -> None:
    with pytest.raises(TypeError, match=r"embedder words@1 .* cannot be pickled .*Index\.open"):
        pickle.dumps(index)
