"""The same candidates through library, command line, server and adapters give the same answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from crossgate import PairScore, Passage, RouteResult, arerank, rerank
from crossgate._cli import run
from crossgate.integrations.sentence_transformers import rank
from crossgate.rerankers import CrossEncoder, Deadline

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("prometheus_client", reason="the extra serve is not installed")
client = pytest.importorskip("starlette.testclient", reason="starlette is not installed")

QUERIES = (
    "how many berths does the harbour of Ulm Sound have",
    "how many berths does the harbur have",  # misspelt
    "which mooring does not need a permit",
    "what was decided on 9 July 2031",
)
TEXTS = (
    "",
    "The harbour of Ulm Sound has 40 berths.",
    "Berths are free. " * 120 + "The harbour has 40 of them.",  # read in windows
    "A permit is needed for every mooring but the blue buoy.",
    "2031-07-09: the harbour fee rises to 12 euros.",
    "Ropes are coiled at dusk.",
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"text": st.sampled_from(TEXTS)},
        optional={
            "title": st.sampled_from(["", "Harbour"]),
            "body": st.sampled_from(["", "The harbour has 40 berths.\n\n" * 300]),
            "score": st.integers(0, 3),
            "cosine": st.sampled_from([-0.1, 0.2, 0.7, 1.0000001]),
            "vector": st.just([0.6, 0.8]),
            "triggers": st.just(["berths"]),
            "page": st.just(7),
        },
    ),
    max_size=4,
    unique_by=lambda row: row["text"],
)
UNSORTED = [{"text": TEXTS[1], "score": 1}, {"text": TEXTS[5], "score": 3}, {"text": TEXTS[4]}]
"""In the decision's order, the relevances of these candidates are not sorted."""

Answer = list[tuple[int | None, float | None]]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    from crossgate._serving.app import application
    from crossgate._serving.request_limits import Limits

    app = application(router=None, limits=Limits(), key=None, hosts=None, options={})
    with client.TestClient(app) as asked:
        yield asked


@pytest.fixture(scope="module", autouse=True)
def scored_once() -> Iterator[None]:
    """Let the cross-encoder read each pair once, since each surface asks for the same pairs."""
    known: dict[tuple[str, str], PairScore] = {}
    read = CrossEncoder.score

    def score(
        self: CrossEncoder, query: str, passages: Sequence[Passage], *, deadline: Deadline
    ) -> list[PairScore]:
        new = [passage for passage in passages if (query, passage.text) not in known]
        if new:
            for passage, found in zip(new, read(self, query, new).complete(), strict=True):
                known[query, passage.text] = found
        return [known[query, passage.text] for passage in passages]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrossEncoder, "score", score)
        yield


def numbers(result: RouteResult) -> Answer:
    return [(hit.index, hit.relevance) for hit in result.hits]


def numbers_of_others(result: RouteResult) -> Answer:
    """Return the numbers in formats that have no null; a hit that was not read has 0."""
    return [(hit.index, hit.relevance or 0.0) for hit in result.hits]


@pytest.mark.timeout(600)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(QUERIES), ROWS)
@example(QUERIES[0], UNSORTED)
def test_all_surfaces_give_the_same_answer(
    server: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    query: str,
    rows: list[dict[str, Any]],
) -> None:
    result = rerank(query, rows)
    expected = numbers(result)
    dropped = [hit.dropped for hit in result.hits]
    assert numbers(asyncio.run(arerank(query, rows))) == expected

    path = tmp_path / "candidates.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(["rerank", query, str(path), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert [(hit["index"], hit["relevance"]) for hit in printed["hits"]] == expected
    assert [hit["dropped"] for hit in printed["hits"]] == dropped
    assert printed["selected"] == result.ids
    assert printed["warnings"] == result.to_dict()["warnings"]

    for path_, key in (
        ("/v1/rerank", "results"),
        ("/v2/rerank", "results"),
        ("/rerank", "results"),
    ):
        if rows:
            answer = server.post(path_, json={"query": query, "documents": rows}).json()[key]
            found = [(row["index"], row["relevance_score"]) for row in answer]
            assert found == numbers_of_others(result)

    texts = [row["text"] for row in rows]
    plain = rerank(query, texts)
    expected = numbers_of_others(plain)
    if rows:
        answer = server.post("/rerank", json={"query": query, "texts": texts}).json()
        assert [(row["index"], row["score"]) for row in answer] == expected
        asked = {"query": query, "documents": texts}
        answer = server.post("/voyage/rerank", json=asked).json()["data"]
        assert [(row["index"], row["relevance_score"]) for row in answer] == expected
    assert [(row["corpus_id"], row["score"]) for row in rank(query, texts)] == expected
    chosen = [(hit.index, hit.relevance or 0.0) for hit in plain.selected]
    for ordered, kept in adapters(query, texts):
        assert kept == (expected if ordered else chosen)


def adapters(query: str, texts: list[str]) -> Iterator[tuple[bool, Answer]]:
    """Yield, for each installed framework, whether it keeps all texts, and its answer."""
    try:
        from langchain_core.documents import Document

        from crossgate.integrations.langchain import CrossgateCompressor
    except ImportError:
        pass
    else:
        given_ = [Document(text, metadata={"at": at}) for at, text in enumerate(texts)]
        found = CrossgateCompressor().compress_documents(given_, query)
        yield False, [(of.metadata["at"], of.metadata["relevance_score"]) for of in found]
    try:
        from haystack import Document as HaystackDocument

        from crossgate.integrations.haystack import CrossgateRanker
    except ImportError:
        pass
    else:
        rows = [HaystackDocument(content=text, meta={"at": n}) for n, text in enumerate(texts)]
        kept = CrossgateRanker().run(query, rows)["documents"]
        yield False, [(of.meta["at"], of.score) for of in kept]
    try:
        from llama_index.core.schema import NodeWithScore, TextNode

        from crossgate.integrations.llama_index import CrossgatePostprocessor
    except ImportError:
        pass
    else:
        nodes = [
            NodeWithScore(node=TextNode(text=text, id_=str(n)), score=0.5)
            for n, text in enumerate(texts)
        ]
        chosen = CrossgatePostprocessor().postprocess_nodes(nodes, query_str=query)
        yield False, [(int(of.node.node_id), of.score) for of in chosen]
    try:
        from crossgate.integrations.answerdotai import CrossgateRanker as OfRerankers
    except ImportError:
        pass
    else:
        yield True, [(row.doc_id, row.score) for row in OfRerankers().rank(query, texts)]
