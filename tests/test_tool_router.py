"""Selecting tools for a model's call: the given objects, sent by the real clients."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import LIBRARY, refused
from crossgate import Context, InputError, Profile, ToolRouter
from crossgate._core import AnyFits
from crossgate._decision.tool_router import clauses
from local_server import JsonHandler, LocalServer

ROOT = Path(__file__).parents[1]
PROMPT = "squash the last commits of my git branch"
STAGE1: dict[str, Any] = {"reranker": None}


def openai_tools() -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"target": {"type": "string"}}}
    return [
        {"type": "function", "function": {"name": n, "description": d, "parameters": schema}}
        for n, d in LIBRARY.items()
    ]


def anthropic_tools() -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"target": {"type": "string"}}}
    return [{"name": n, "description": d, "input_schema": schema} for n, d in LIBRARY.items()]


@dataclass
class Definition:
    """As PydanticAI's `ToolDefinition`."""

    name: str
    description: str
    parameters_json_schema: dict[str, Any]


@pytest.mark.parametrize(
    "tools",
    [
        openai_tools(),
        anthropic_tools(),
        [Definition(n, d, {"type": "object"}) for n, d in LIBRARY.items()],
    ],
    ids=["openai", "anthropic", "objects"],
)
def test_selected_tools_are_the_given_objects(tools: list[Any]) -> None:
    router = ToolRouter(tools, **STAGE1)
    selected = router.select(PROMPT)
    assert selected[0] is tools[list(LIBRARY).index("git-history")]
    assert {id(hit) for hit in selected} <= {id(tool) for tool in tools}
    assert router.select(PROMPT, limit=1) == selected[:1]
    assert router.select("what a lovely morning", min_any_fits=0.5) == []


def test_shortlist_contains_tools_below_the_threshold() -> None:
    router = ToolRouter(openai_tools(), **STAGE1)
    prompt = "the pictures for the web page are far too big"
    for limit in (1, 2, 8):
        names = [tool["function"]["name"] for tool in router.select(prompt, limit=limit)]
        assert names == [hit.id for hit in router.router.route(prompt).hits][:limit]
    assert router.router.route("hello there").ids == []
    assert router.select("hello there") != []
    any_fits = router.router.route(prompt).any_fits
    assert any_fits is not None
    assert router.select(prompt, min_any_fits=any_fits) != []
    assert router.select(prompt, min_any_fits=any_fits + 1e-9) == []


def test_router_learns_explains_and_answers_without_blocking() -> None:
    router = ToolRouter(openai_tools(), **STAGE1)
    prompt, name = "frobnicate the weekly widgets", next(iter(LIBRARY))
    assert router.teach(prompt, name)
    assert not router.teach(prompt, name)
    context = Context(history=["squash my commits"])
    found = router.select(prompt, limit=2, context=context)
    assert found[0]["function"]["name"] == name
    assert asyncio.run(router.aselect(prompt, limit=2, context=context)) == found
    assert router.explain(prompt, name).step == "selected"
    refused("unknown_document", router.teach, prompt, "no such tool")
    refused("unknown_document", router.explain, prompt, "no such tool")


def test_an_unfitted_any_fits_counts_as_certain() -> None:
    fitted = ToolRouter(openai_tools(), **STAGE1).router.profile
    router = ToolRouter(openai_tools(), **STAGE1, profile=fitted.replace(any_fits=AnyFits()))
    assert router.router.route(PROMPT).any_fits is None
    for least in (0.0, 0.5, 1.0):
        assert router.select(PROMPT, min_any_fits=least) == router.select(PROMPT) != []


def test_coverage_decides_how_many_tools_there_are() -> None:
    router = ToolRouter(openai_tools(), **STAGE1)
    prompt = "the pictures for the web page are far too big"
    for asked, limit in itertools.product((0.5, 0.8, 0.9, 0.97), (1, 2, 5)):
        names = [
            tool["function"]["name"] for tool in router.select(prompt, coverage=asked, limit=limit)
        ]
        result = router.router.route(prompt, limit=limit, coverage=asked, max_shortlist=limit)
        assert names == [hit.id for hit in result.shortlist]
        assert 1 <= len(names) <= limit
    few, many = (router.select(prompt, coverage=asked) for asked in (0.5, 0.99))
    assert many[: len(few)] == few
    # A model can decline every tool, so no prompt gets an empty list.
    assert router.select("hello there", coverage=0.9) != []


def test_each_clause_of_a_prompt_has_its_tool_on_the_list() -> None:
    router = ToolRouter(openai_tools(), **STAGE1)

    def names(prompt: str, **options: Any) -> list[str]:
        return [tool["function"]["name"] for tool in router.select(prompt, **options)]

    git, pictures = "squash the commits of my branch", "resize the pictures for the web"
    both = {"git-history", "image-resizer"}
    for prompt in (f"{git} and then {pictures}", f"{pictures}. {git}!", f"{git}\nalso {pictures}"):
        assert set(names(prompt, limit=2)) == both, prompt
        assert both <= set(names(prompt, coverage=0.5)), prompt
        assert names(prompt, limit=1) == [router.router.route(prompt).hits[0].id]
    # The tools of a promised list come before those that clauses add.
    for prompt in (f"{git}. {pictures}. Translate the text to French", f"{git} and {pictures}"):
        for coverage, limit in itertools.product((0.5, 0.8, 0.95), (1, 2, 3, 6)):
            promised = router.router.route(
                prompt, limit=limit, coverage=coverage, max_shortlist=limit
            ).shortlist
            listed = names(prompt, coverage=coverage, limit=limit)
            assert listed[: len(promised)] == [hit.id for hit in promised]
            assert len(listed) == len(set(listed)) <= limit
    # Pasted text has no intents, and a short clause is a part of another.
    log = f"{pictures}.\n" * 12
    assert names(git, material=log, limit=3) == names(git, limit=3)
    assert clauses("merge and split the files") == []
    assert clauses("one two three. " * 20) == ["one two three"] * 8


def test_coverage_without_a_fitted_shortlist_is_refused() -> None:
    router = ToolRouter(openai_tools(), **STAGE1, profile=Profile(name="plain"))
    with pytest.raises(InputError, match="'plain' has no fitted shortlist") as caught:
        router.select(PROMPT, coverage=0.9)
    assert caught.value.code == "out_of_range"


def test_pasted_text_is_accepted_as_a_query() -> None:
    router = ToolRouter(openai_tools(), **STAGE1)
    assert router.select(PROMPT + " " * 70_000, limit=1) == router.select(PROMPT, limit=1)
    assert router.select("") == router.select(" \n") == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"prompt": None}, "invalid_text"),
        ({"prompt": PROMPT, "limit": 0}, "out_of_range"),
        ({"prompt": PROMPT, "min_any_fits": 2}, "out_of_range"),
        ({"prompt": PROMPT, "coverage": 0}, "out_of_range"),
        ({"prompt": PROMPT, "coverage": math.nan}, "out_of_range"),
    ],
)
def test_invalid_query_is_refused(arguments: dict[str, Any], code: str) -> None:
    refused(code, ToolRouter(openai_tools(), **STAGE1).select, **arguments)


def test_parameters_of_a_tool_are_searched() -> None:
    values = (["holiday", "sick leave"], ["invoice", "credit note"])
    schemas = [{"properties": {"kind": {"enum": words}}} for words in values]
    tools: list[Any] = [
        {"name": name, "description": "Update a record.", "input_schema": schema}
        for name, schema in zip(("first", "second"), schemas, strict=True)
    ]
    # LangChain's tools have a mapping of their parameters.
    as_langchain: list[Any] = [
        SimpleNamespace(
            name=tool["name"], description=tool["description"], args=schema["properties"]
        )
        for tool, schema in zip(tools, schemas, strict=True)
    ]
    for given in (tools, as_langchain):
        router = ToolRouter(given, **STAGE1)
        assert router.select("correct the invoice", limit=1) == given[1:]
        assert router.select("enter my holiday", limit=1) == given[:1]


def test_functions_of_a_gemini_tool_are_selected_separately() -> None:
    functions = [tool["function"] for tool in openai_tools()]
    router = ToolRouter([{"functionDeclarations": functions}], **STAGE1)
    expected = ToolRouter(openai_tools(), **STAGE1).select(PROMPT, limit=1)
    assert router.select(PROMPT, limit=1) == [expected[0]["function"]]


@pytest.mark.parametrize(
    ("tools", "code", "said"),
    [
        ([], "no_documents", "no tools"),
        ([*anthropic_tools(), {"type": "web_search"}], "malformed_tool", "tools[6]"),
        ([7], "malformed_tool", "tools[0]"),
        ([{"name": "a", "description": 7}], "malformed_tool", "description"),
        ([*anthropic_tools(), *anthropic_tools()], "duplicate_id", "csv-cleaner"),
    ],
)
def test_invalid_tools_are_refused(tools: list[Any], code: str, said: str) -> None:
    message = refused(code, ToolRouter, tools, **STAGE1)
    assert said in message


def completion(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }


@contextmanager
def recording(*answers: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve the answers in turn, repeat the last, and record the requests."""
    requests: list[dict[str, Any]] = []

    class Handler(JsonHandler):
        protocol_version = "HTTP/1.0"  # clients leave kept connections open

        def do_POST(self) -> None:
            requests.append(json.loads(self.request_body()))
            self.reply(json.dumps(answers[min(len(requests), len(answers)) - 1]).encode())

    with LocalServer(Handler) as server:
        yield server.address, requests


NEED = "what is the weather in Oslo going to be like on Sunday?"
RIGHT = "weather_forecast"


def example_of(client: str) -> str:
    """Return the block of the page on tools that uses a client."""
    page = (ROOT / "docs/tools.md").read_text(encoding="utf-8")
    (block,) = (
        match for match in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if client in match
    )
    return str(block)


def many_tools() -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = json.loads((ROOT / "eval/tools/tools.json").read_text())["tools"]
    assert len(tools) == 66
    return tools


def test_openai_example_sends_the_nearest_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    functions = [
        {
            "name": tool["name"],
            "description": tool["description"],
            "parameters": tool["inputSchema"],
        }
        for tool in many_tools()
    ]
    tools = [{"type": "function", "function": function} for function in functions]
    with recording(completion({"role": "assistant", "content": "sunny"})) as (url, requests):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        exec(example_of("OpenAI()"), {"model": "m", "tools": tools, "prompt": NEED})
    (request,) = requests
    assert request["messages"] == [{"role": "user", "content": NEED}]
    assert RIGHT in [tool["function"]["name"] for tool in request["tools"]]
    assert len(request["tools"]) == 8
    assert all(tool in tools for tool in request["tools"])  # complete and unchanged


def test_anthropic_example_sends_the_nearest_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anthropic", reason="anthropic is not installed")
    tools = [
        {
            "name": tool["name"],
            "description": tool["description"],
            "input_schema": tool["inputSchema"],
        }
        for tool in many_tools()
    ]
    answer = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "sunny"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    with recording(answer) as (url, requests):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        exec(example_of("Anthropic()"), {"model": "m", "tools": tools, "prompt": NEED})
    (request,) = requests
    assert RIGHT in [tool["name"] for tool in request["tools"]]
    assert len(request["tools"]) == 8
    assert all(tool in tools for tool in request["tools"])
