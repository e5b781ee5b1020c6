"""A chat model for tests: serves an OpenAI-compatible endpoint over real sockets, with faults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from local_server import JsonHandler, LocalServer

_PASSAGE = re.compile(r'<passage-(\w+) number="(\d+)">(.*?)</passage-\1>')
_QUERY = re.compile(r"<query-(\w+)>(.*?)</query-\1>")


def passages_of(request: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the query and the passages in a request to the model."""
    content = request["messages"][-1]["content"]
    query = _QUERY.search(content)
    assert query is not None
    return query[2], [match[2] for match in _PASSAGE.findall(content)]


def judge(request: dict[str, Any]) -> str:
    """Answer like a model that ranks passages by the number of words shared with the query."""
    query, passages = passages_of(request)
    words = set(query.lower().split())
    shared = [len(words & set(passage.lower().split())) for passage in passages]
    order = sorted(range(len(passages)), key=lambda place: -shared[place])
    return " > ".join(f"[{place + 1}]" for place in order)


@dataclass
class ChatServer(LocalServer):
    """A chat model on a free port of this machine; use it as a context manager.

    Attributes:
        answer: Returns the model's answer to a request.
        status: HTTP status; if it is not 200, it replaces the model's answer.
        headers: Sent with the status.
        body: The whole body, in place of one with the model's answer.
        broken: Number of next answers that break off in the middle of their body.
        held: Whether answers wait until `release` is called.
        requests: Every request so far.
        authorizations: The Authorization header of each request.
    """

    answer: Callable[[dict[str, Any]], str | None] = judge
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    broken: int = 0
    held: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Bind a port, without listening yet."""
        super().__init__(_handler_of(self))

    @property
    def url(self) -> str:
        """The address of the interface."""
        return f"{self.address}/v1"

    def wait(self) -> None:
        """Block until `release` is called, if answers are on hold."""
        if self.held:
            self.released.wait()


def _handler_of(model: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(JsonHandler):
        def do_POST(self) -> None:
            request = json.loads(self.request_body())
            model.requests.append(request)
            model.authorizations.append(self.headers.get("Authorization"))
            model.wait()
            if self.path != "/v1/chat/completions":
                self.answer(404, b"{}")
            elif model.status != 200:
                self.answer(model.status, b'{"error": {"message": "your key sk-secret-key"}}')
            elif model.body is not None:
                self.answer(200, model.body)
            else:
                message = {"role": "assistant", "content": model.answer(request)}
                self.answer(200, json.dumps({"choices": [{"message": message}]}).encode())

        def answer(self, status: int, body: bytes) -> None:
            cut = len(body)
            if model.broken:
                model.broken -= 1
                cut, self.close_connection = cut // 2, True
            try:
                self.reply(body, status, model.headers, cut=cut)
            except OSError:
                self.close_connection = True  # the client has disconnected after its timeout

    return Handler
