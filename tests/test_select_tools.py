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
    assert len(selected) == 1
    assert selected[0] is tools[list(LIBRARY).index("git-history")]
    assert router.select_tools("what a lovely morning") == []


def test_it_is_what_route_selects() -> None:
    router = Router.for_tools(openai_tools())
    for prompt in (PROMPT, "merge two pdf files and translate them", "hello"):
        for limit in (1, 2, None):
            found = router.select_tools(prompt, limit=limit)
            names = [one["function"]["name"] for one in found]
            assert names == router.route(prompt, limit=limit).ids
    assert router.select_tools(PROMPT, min_confidence=1.0) == []
    assert router.select_tools(PROMPT, min_confidence=0.0) != []


def test_a_parameter_can_decide() -> None:
    tools = openai_tools()
    tools[1]["function"]["parameters"] = {
        "type": "object",
        "properties": {"zymurgy": {"type": "string", "description": "brewing of beer"}},
    }
    assert Router.for_tools(tools, **STAGE1).select_tools("brew beer, zymurgy") == [tools[1]]


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


@contextmanager
def recording(answer: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve one answer to every request, and keep the requests."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps(answer).encode()
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
    message = {"role": "assistant", "content": "done"}
    answer = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }
    with recording(answer) as (url, requests), openai.OpenAI(api_key="k", base_url=url) as client:
        for prompt in (PROMPT, "what a lovely morning"):
            client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": prompt}],
                tools=router.select_tools(prompt) or openai.omit,
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
    with recording(answer) as (url, requests):
        with anthropic.Anthropic(api_key="k", base_url=url) as client:
            client.messages.create(
                model="m",
                max_tokens=9,
                messages=[{"role": "user", "content": PROMPT}],
                tools=router.select_tools(PROMPT),
            )
    assert requests[0]["tools"] == [tools[4]]
