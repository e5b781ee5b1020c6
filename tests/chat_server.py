"""A chat model for tests: serves an OpenAI-compatible endpoint over real sockets, with faults."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

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
class ChatServer:
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
        self._released = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def url(self) -> str:
        """The address of the interface."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def release(self) -> None:
        """Send the answers that are on hold."""
        self._released.set()

    def wait(self) -> None:
        """Block until `release` is called, if answers are on hold."""
        if self.held:
            self._released.wait()

    def __enter__(self) -> Self:
        """Start to listen."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the port and release the answers on hold."""
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep stderr clean if a client disconnects after its timeout."""


def _handler_of(model: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model.requests.append(request)
            model.authorizations.append(self.headers.get("Authorization"))
            model.wait()
            if self.path != "/v1/chat/completions":
                self.reply(404, b"{}")
            elif model.status != 200:
                self.reply(model.status, b'{"error": {"message": "your key sk-secret-key"}}')
            elif model.body is not None:
                self.reply(200, model.body)
            else:
                message = {"role": "assistant", "content": model.answer(request)}
                self.reply(200, json.dumps({"choices": [{"message": message}]}).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Keep stderr clean: the log is `ChatServer.requests`."""

        def reply(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                for name, value in {**model.headers, "Content-Type": "application/json"}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if model.broken:
                    model.broken -= 1
                    body, self.close_connection = body[: len(body) // 2], True
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the client has disconnected after its timeout

    return Handler
