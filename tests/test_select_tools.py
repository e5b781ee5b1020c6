"""Filtering the tools of a model's call: the caller's own objects, sent by the real clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from conftest import LIBRARY
from crossgate import InputError, Router

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
def test_what_comes_back_is_what_was_given(tools: list[Any]) -> None:
    router = Router.for_tools(tools, **STAGE1)
    selected = router.select_tools(PROMPT)
    assert selected[0] is tools[list(LIBRARY).index("git-history")]
    assert {id(one) for one in selected} <= {id(one) for one in tools}
    assert router.select_tools(PROMPT, limit=1) == selected[:1]
    assert router.select_tools("what a lovely morning", min_confidence=0.5) == []


def test_a_tool_that_route_is_too_unsure_of_is_on_the_shortlist() -> None:
    router = Router.for_tools(openai_tools(), **STAGE1)
    prompt = "the pictures for the web page are far too big"
    for limit in (1, 2, 8):
        names = [one["function"]["name"] for one in router.select_tools(prompt, limit=limit)]
        assert names == [hit.id for hit in router.route(prompt).hits][:limit]
    assert router.route("hello there").ids == []
    assert router.select_tools("hello there") != []
    confidence = router.route(prompt).confidence
    assert confidence is not None
    assert router.select_tools(prompt, min_confidence=confidence) != []
    assert router.select_tools(prompt, min_confidence=confidence + 1e-9) == []


def test_what_a_person_pastes_is_answered() -> None:
    router = Router.for_tools(openai_tools(), **STAGE1)
    assert router.select_tools(PROMPT + " " * 70_000, limit=1) == router.select_tools(
        PROMPT, limit=1
    )
    assert router.select_tools("") == router.select_tools(" \n") == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"prompt": None}, "invalid_text"),
        ({"prompt": PROMPT, "limit": 0}, "out_of_range"),
        ({"prompt": PROMPT, "min_confidence": 2}, "out_of_range"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(InputError) as caught:
        Router.for_tools(openai_tools(), **STAGE1).select_tools(**arguments)
    assert caught.value.code == code


def test_a_parameter_can_decide() -> None:
    tools = [
        {"name": name, "description": "Update a record.", "input_schema": schema}
        for name, schema in (
            ("first", {"properties": {"kind": {"enum": ["holiday", "sick leave"]}}}),
            ("second", {"properties": {"kind": {"enum": ["invoice", "credit note"]}}}),
        )
    ]
    router = Router.for_tools(tools, **STAGE1)
    assert router.select_tools("correct the invoice", limit=1) == tools[1:]
    assert router.select_tools("enter my holiday", limit=1) == tools[:1]


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
def test_a_list_that_cannot_be_used_is_refused(tools: list[Any], code: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        Router.for_tools(tools, **STAGE1)
    assert caught.value.code == code
    assert said in str(caught.value)


def test_a_router_over_documents_has_no_tools() -> None:
    from conftest import build

    with pytest.raises(InputError) as caught:
        Router(build(embedder=None), reranker=None).select_tools(PROMPT)
    assert caught.value.code == "no_tools"


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
    """Serve the answers in turn, the last one again and again, and keep the requests."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps(answers[min(len(requests), len(answers)) - 1]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep stderr clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()
        thread.join()


def test_openai_is_sent_the_tools_that_fit() -> None:
    openai = pytest.importorskip("openai")
    tools = openai_tools()
    router = Router.for_tools(tools, **STAGE1)
    answer = completion({"role": "assistant", "content": "done"})
    with recording(answer) as (url, requests), openai.OpenAI(api_key="k", base_url=url) as client:
        for prompt in (PROMPT, "what a lovely morning"):
            client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": prompt}],
                tools=router.select_tools(prompt, limit=1, min_confidence=0.5) or openai.omit,
            )
    assert requests[0]["tools"] == [tools[4]]
    assert "tools" not in requests[1]


def test_anthropic_is_sent_the_tools_that_fit() -> None:
    anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")
    tools = anthropic_tools()
    router = Router.for_tools(tools, **STAGE1)
    answer = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "done"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    with (
        recording(answer) as (url, requests),
        anthropic.Anthropic(api_key="k", base_url=url) as client,
    ):
        client.messages.create(
            model="m",
            max_tokens=9,
            messages=[{"role": "user", "content": PROMPT}],
            tools=router.select_tools(PROMPT, limit=2),
        )
    assert requests[0]["tools"][0] == tools[4]
    assert len(requests[0]["tools"]) == 2


def test_pydantic_ai_offers_the_tools_that_fit() -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    from pydantic_ai.capabilities import PrepareTools
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def fitting(context: Any, tools: list[Any]) -> list[Any]:
        return Router.for_tools(tools, **STAGE1).select_tools(context.prompt, limit=2)

    def tool(name: str, text: str) -> Any:
        def act(target: str) -> str:
            return target

        return pydantic_ai.Tool(act, name=name, description=text)

    call = {"name": "git-history", "arguments": '{"target": "main"}'}
    called = {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": call}],
    }
    answers = [completion(called), completion({"role": "assistant", "content": "done"})]
    with recording(*answers) as (url, requests):
        agent = pydantic_ai.Agent(
            OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="k")),
            tools=[tool(*one) for one in LIBRARY.items()],
            capabilities=[PrepareTools(fitting)],
        )
        assert agent.run_sync(PROMPT).output == "done"
    for request in requests:  # one that asks for the tool, one that has its result
        assert request["tools"][0]["function"]["name"] == "git-history"
        assert len(request["tools"]) == 2
    assert len(requests) == 2
