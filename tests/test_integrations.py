"""The adapters inside the frameworks that they are for."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Sequence
from contextlib import suppress
from inspect import iscoroutine, signature
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import build
from crossgate import PairScore, Profile, Router
from crossgate.integrations._selection import aselect, select
from crossgate.integrations._tools import ToolSearcher
from crossgate.integrations.sentence_transformers import rank

with suppress(ImportError):
    # At once: after a test that ran into the limit of recursion, CPython 3.11 may not compile it.
    import langchain_tests.integration_tests  # noqa: F401

QUERY = "how many nodes does staging have"
TEXTS = ["Lunch is at noon.", "The staging cluster has five nodes.", "  ", "Bread needs yeast."]
ELSEWHERE = "who won the cup final in 1966"


class Failing:
    """A reranker that never answers."""

    identity = "failing"
    name = "failing"

    def score(self, query: str, passages: Sequence[Any]) -> list[PairScore]:
        """Fail."""
        raise OSError("no answer")


def test_langchain_compressor() -> None:
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from langchain_core.documents import Document

    from crossgate.integrations.langchain import CrossgateCompressor

    found = [Document(id=f"d{n}", page_content=t, metadata={"n": n}) for n, t in enumerate(TEXTS)]
    before = copy.deepcopy(found)
    compressor = CrossgateCompressor(top_n=2)
    (kept,) = compressor.compress_documents(found, QUERY)
    assert (kept.id, kept.page_content, kept.metadata["n"]) == ("d1", TEXTS[1], 1)
    assert 0.1 < kept.metadata["relevance_score"] <= 1
    assert kept.metadata["crossgate_reason"] == "reranked"
    assert asyncio.run(compressor.acompress_documents(found, QUERY)) == [kept]
    assert found == before
    assert compressor.compress_documents(found, ELSEWHERE) == []
    assert compressor.compress_documents([], QUERY) == []
    with pytest.raises(ValueError, match="the query is empty"):
        compressor.compress_documents(found, " ")
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        CrossgateCompressor(top_n=0)
    failing = CrossgateCompressor(reranker=Failing())
    assert len(failing.compress_documents(found, QUERY)) == 3
    assert pickle.loads(pickle.dumps(compressor)) == compressor


def test_langchain_retriever() -> None:
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from crossgate.integrations.langchain import CrossgateRetriever

    router = Router(build(), reranker=None, profile=Profile())
    retriever = CrossgateRetriever(router=router, k=3)
    found = retriever.invoke("merge pdf files")
    assert [one.id for one in found] == router.route("merge pdf files", limit=3).ids
    assert found[0].metadata.keys() >= {"title", "relevance_score", "crossgate_reason"}
    assert len(retriever.invoke("merge pdf files", k=1)) == 1
    assert asyncio.run(retriever.ainvoke("merge pdf files")) == found
    chain = retriever | (lambda docs: [one.id for one in docs])
    assert chain.invoke("merge pdf files")[0] == "pdf-toolkit"


def test_langchain_standard_tests() -> None:
    """The retriever passes what LangChain asks of every retriever."""
    pytest.importorskip("langchain_tests", reason="langchain-tests is not installed")
    from langchain_core.retrievers import BaseRetriever
    from langchain_tests.integration_tests import RetrieversIntegrationTests

    from crossgate.integrations.langchain import CrossgateRetriever

    router = Router(build(), reranker=None, profile=Profile())

    class OfOurs(RetrieversIntegrationTests):
        @property
        def retriever_constructor(self) -> type[BaseRetriever]:
            return CrossgateRetriever

        @property
        def retriever_constructor_params(self) -> dict[str, Any]:
            return {"router": router}

        @property
        def retriever_query_example(self) -> str:
            return "merge clean pdf csv files"

    tests = OfOurs()
    retriever = CrossgateRetriever(router=router)
    ran = []
    for name in sorted(dir(tests)):
        if name.startswith("test_"):
            ask = getattr(tests, name)
            wanted = {"retriever": retriever} if "retriever" in signature(ask).parameters else {}
            answer = ask(**wanted)
            if iscoroutine(answer):
                asyncio.run(answer)
            ran.append(name)
    assert len(ran) >= 5


def test_llama_index_postprocessor() -> None:
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

    from crossgate.integrations.llama_index import CrossgatePostprocessor

    nodes = [
        NodeWithScore(node=TextNode(id_=f"n{n}", text=t, metadata={"page": n}), score=0.5)
        for n, t in enumerate(TEXTS)
    ]
    before = copy.deepcopy(nodes)
    processor = CrossgatePostprocessor(top_n=1)
    (kept,) = processor.postprocess_nodes(nodes, query_str=QUERY)
    assert (kept.node.node_id, kept.node.metadata["page"]) == ("n1", 1)
    assert kept.score is not None
    assert 0.01 < kept.score <= 1
    assert kept.node.metadata["crossgate_reason"] == "reranked"
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert "crossgate" not in kept.node.get_content(metadata_mode=mode)
    assert nodes == before
    again = asyncio.run(processor.apostprocess_nodes(nodes, query_bundle=QueryBundle(QUERY)))
    assert again == [kept]
    assert processor.postprocess_nodes([], query_str=QUERY) == []
    with pytest.raises(ValueError, match="Missing query bundle"):
        processor.postprocess_nodes(nodes)
    failing = CrossgatePostprocessor(reranker=Failing())
    assert len(failing.postprocess_nodes(nodes, query_str=QUERY)) >= 3
    assert CrossgatePostprocessor.from_dict(processor.to_dict()).top_n == 1


def test_haystack_ranker() -> None:
    pytest.importorskip("haystack", reason="haystack-ai is not installed")
    from haystack import Document, Pipeline

    from crossgate.integrations.haystack import CrossgateRanker

    found = [Document(id=f"d{n}", content=t, meta={"n": n}) for n, t in enumerate([*TEXTS, None])]
    before = copy.deepcopy(found)
    pipeline = Pipeline()
    pipeline.add_component("ranker", CrossgateRanker(top_k=2))
    ours = ["crossgate.integrations.haystack"]
    pipeline = Pipeline.loads(pipeline.dumps(), allowed_modules=ours)
    given = {"ranker": {"query": QUERY, "documents": found}}
    (kept,) = pipeline.run(given)["ranker"]["documents"]
    assert (kept.id, kept.content, kept.meta["n"]) == ("d1", TEXTS[1], 1)
    assert 0.1 < kept.score <= 1
    assert kept.meta["crossgate_reason"] == "reranked"
    assert found == before
    answer = asyncio.run(pipeline.run_async(given))
    assert answer["ranker"]["documents"] == [kept]
    ranker = CrossgateRanker(reranker=None)
    assert len(ranker.run(QUERY, found, top_k=1)["documents"]) == 1
    assert ranker.run(QUERY, [])["documents"] == []
    with pytest.raises(ValueError, match="must be at least 1"):
        ranker.run(QUERY, found, top_k=0)
    with pytest.raises(ValueError, match="must be at least 1"):
        CrossgateRanker(top_k=0)


def test_rerankers_ranker() -> None:
    pytest.importorskip("rerankers", reason="rerankers is not installed")
    from rerankers.documents import Document
    from rerankers.models.ranker import BaseRanker

    from crossgate.integrations.answerdotai import CrossgateRanker

    texts = [TEXTS[0], TEXTS[1], TEXTS[3]]
    ranker = CrossgateRanker()
    assert isinstance(ranker, BaseRanker)
    found = ranker.rank(QUERY, texts)
    assert [one.rank for one in found] == [1, 2, 3]
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)
    assert 0.1 < scores[0] <= 1
    assert found[0].text == texts[1] == found.top_k(1)[0].text
    assert found.get_score_by_docid(1) == scores[0]
    assert ranker.score(QUERY, texts[1]) > 0.1 > ranker.score(QUERY, texts[0])

    again = asyncio.run(ranker.rank_async(QUERY, texts, ["a", "b", "c"], [{"n": n} for n in "123"]))
    assert [one.doc_id for one in again] == ["abc"[one.doc_id] for one in found]
    assert [one.metadata["n"] for one in again] == ["123"["abc".index(i.doc_id)] for i in again]

    given = [Document(texts[0]), Document(texts[1], doc_id="x", metadata={"page": 2})]
    before = copy.deepcopy([vars(one) for one in given])
    kept = ranker.rank(QUERY, given)
    assert [(one.doc_id, one.metadata) for one in kept] == [("x", {"page": 2}), (0, {})]
    assert [one.doc_id for one in ranker.rank(QUERY, given, doc_ids=[7, 8])] == [8, 7]
    assert [vars(one) for one in given] == before

    assert ranker.rank(QUERY, texts[1])[0].doc_id == 0
    assert list(ranker.rank(QUERY, [])) == []
    with pytest.raises(ValueError, match="the query is empty"):
        ranker.rank(" ", texts)
    assert ranker.rank(f"{QUERY} \ud800", [f"{text} \ud800" for text in texts])[0].doc_id == 1
    with pytest.raises(ValueError, match="1 doc_ids for 3 documents"):
        ranker.rank(QUERY, texts, doc_ids=[1])
    assert len(list(CrossgateRanker(Failing()).rank(QUERY, texts))) == 3


def test_rank_of_sentence_transformers_shape() -> None:
    texts = [TEXTS[0], TEXTS[1], TEXTS[3]]
    rows = rank(QUERY, texts, return_documents=True)
    assert [row["text"] for row in rows] == [texts[row["corpus_id"]] for row in rows]
    assert sorted(row["corpus_id"] for row in rows) == [0, 1, 2]
    assert rows[0]["corpus_id"] == 1
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    assert all(0 <= row["score"] <= 1 for row in rows)
    assert rank(QUERY, texts, top_k=1) == [{"corpus_id": 1, "score": rows[0]["score"]}]


def test_scores_replace_unknown_relevances() -> None:
    rows = rank(QUERY, [TEXTS[0], TEXTS[1]], reranker=Failing())
    assert [row["corpus_id"] for row in rows] == [1, 0]
    assert rows[0]["score"] > rows[1]["score"]


def weather(place: str) -> str:
    """Forecast of rain for a place."""
    return f"rain in {place}"


def mail(to: str) -> str:
    """Send an e-mail."""
    return "sent"


def invoice(customer: str) -> str:
    """Write an invoice for a customer."""
    return "written"


NEED = "will it rain in Oslo tomorrow"
STAGE1: dict[str, Any] = {"reranker": None}


def test_a_searcher_keeps_its_router_until_a_tool_changes() -> None:
    tools = [{"name": "rain", "description": "Forecast."}, {"name": "mail", "description": "Send."}]
    searcher = ToolSearcher(STAGE1)
    assert searcher.find([], tools, 2) == searcher.find([NEED], [], 2) == []
    assert searcher.find(["send a mail", "forecast"], tools, 2) == ["mail", "rain"]
    kept = searcher._router
    assert searcher.find(["send a mail"], [dict(tool) for tool in tools], 1) == ["mail"]
    assert searcher._router is kept
    tools[0] = {"name": "rain", "description": "Send a mail about the rain."}
    searcher.find(["send a mail"], tools, 1)
    assert searcher._router is not kept
    with pytest.raises(ValueError, match="occurs twice"):
        searcher.find([NEED], tools * 2, 1)


def test_lone_surrogates_keep_no_adapter_from_its_answer() -> None:
    searcher = ToolSearcher(STAGE1)
    tools = [{"name": "rain", "description": "Forecast."}, {"name": "mail", "description": "Send."}]
    assert searcher.find(["send \ud800 a mail"], tools, 1) == ["mail"]
    unreadable = [SimpleNamespace(name=name, description="\udfff") for name in ("rain", "mail")]
    assert searcher.find([NEED], unreadable, 1) == ["rain", "mail"]
    texts = [f"{TEXTS[0]} \ud800", f"{TEXTS[1]} \ud800"]
    assert [place for place, _, _ in select(f"{QUERY} \udc00", texts, None, {})] == [1]
    assert [place for place, _, _ in asyncio.run(aselect(f"{QUERY} \udc00", texts, None, {}))] == [
        1
    ]


def test_pydantic_ai_tool_search() -> None:
    pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, Tool, ToolCallPart
    from pydantic_ai.capabilities import ToolSearch
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from crossgate.integrations.pydantic_ai import CrossgateToolSearch

    seen: list[list[str]] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append([tool.name for tool in info.function_tools])
        if len(seen) > 1:
            return ModelResponse([TextPart("done")])
        queries = {"queries": [NEED, "write an invoice for Ada"]}
        return ModelResponse([ToolCallPart("search_tools", queries)])

    agent = Agent(
        FunctionModel(model),
        tools=[Tool(function, defer_loading=True) for function in (mail, weather, invoice)],
        capabilities=[ToolSearch(strategy=CrossgateToolSearch(**STAGE1), max_results=2)],
    )
    assert asyncio.run(agent.run(NEED)).output == "done"
    assert seen[0] == ["search_tools"]
    assert set(seen[1]) == {"search_tools", "weather", "invoice"}


def test_fastmcp_search_transform() -> None:
    pytest.importorskip("fastmcp", reason="fastmcp is not installed")
    from fastmcp import Client, FastMCP

    from crossgate.integrations.fastmcp import CrossgateSearchTransform

    server = FastMCP("office", tools=[mail, weather])
    server.add_transform(
        CrossgateSearchTransform(max_results=1, always_visible=["mail"], options=STAGE1)
    )

    async def act() -> None:
        async with Client(server) as client:
            listed = [tool.name for tool in await client.list_tools()]
            assert listed == ["mail", "search_tools", "call_tool"]
            for query, name in ((NEED, "weather"), ("write an invoice for Ada", "invoice")):
                if name == "invoice":
                    server.add_tool(invoice)
                found = await client.call_tool("search_tools", {"query": query})
                assert [tool["name"] for tool in found.structured_content["result"]] == [name]
            call = {"name": "weather", "arguments": {"place": "Oslo"}}
            assert (await client.call_tool("call_tool", call)).content[0].text == "rain in Oslo"

    asyncio.run(act())


def test_langchain_tool_selector() -> None:
    pytest.importorskip("langchain", reason="langchain is not installed")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    from crossgate.integrations.langchain_agents import CrossgateToolSelector

    seen: list[list[str]] = []

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **more: Any) -> Any:
            seen.append([tool["type"] if isinstance(tool, dict) else tool.name for tool in tools])
            return self

    given: list[Any] = [mail, weather, invoice, {"type": "web_search"}]
    asked: Any = {"messages": [("user", "hello"), ("assistant", "yes?"), ("user", NEED)]}
    for selector, names in (
        (CrossgateToolSelector(max_tools=1, **STAGE1), ["weather", "web_search"]),
        (
            CrossgateToolSelector(max_tools=1, always_include=["invoice"], **STAGE1),
            ["weather", "invoice", "web_search"],
        ),
        (CrossgateToolSelector(max_tools=3), ["mail", "weather", "invoice", "web_search"]),
    ):
        for run in (0, 1):
            model = Model(messages=iter([AIMessage("done")]))
            agent = create_agent(model, tools=given, middleware=[selector])
            answer = asyncio.run(agent.ainvoke(asked)) if run else agent.invoke(asked)
            assert answer["messages"][-1].text == "done"
            assert seen.pop() == names
            image = {"type": "image", "url": "https://example.com/a.png"}
            unread: Any
            for unread in ([("user", [image])], [("user", "\0")]):
                model = Model(messages=iter([AIMessage("done")]))
                create_agent(model, tools=given, middleware=[selector]).invoke({"messages": unread})
                assert len(seen.pop()) == len(given)
            broken: Any = {"messages": [("user", f"{NEED} \ud800")]}
            model = Model(messages=iter([AIMessage("done")]))
            create_agent(model, tools=given, middleware=[selector]).invoke(broken)
            assert seen.pop() == names
