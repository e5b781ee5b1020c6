"""No remote tier follows a redirect: query and passages stay with the address that was chosen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from crossgate import Reranker
from crossgate.rerankers import (
    CircuitBreaker,
    CohereReranker,
    GuardedReranker,
    JinaReranker,
    LLMReranker,
    TransportError,
    VoyageReranker,
    passages_of,
    shut_down,
)


class Server(ThreadingHTTPServer):
    """Answers every request with one status, and records the bodies."""

    daemon_threads = True

    def __init__(self, status: int = 200, location: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.location = location
        self.bodies: list[bytes] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def end(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """Reads the body and answers with the server's status."""

    def _answer(self) -> None:
        assert isinstance(self.server, Server)
        self.server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def stranger() -> Iterator[Server]:
    """The target of the redirects, which must get no request."""
    server = Server()
    yield server
    shut_down()
    server.end()


@pytest.fixture(params=[301, 302, 303, 307, 308])
def endpoint(request: pytest.FixtureRequest, stranger: Server) -> Iterator[Server]:
    """The server that was chosen, which sends every request on to the stranger."""
    server = Server(request.param, f"{stranger.url}/elsewhere")
    yield server
    server.end()


@pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated")
@pytest.mark.parametrize(
    "make",
    [
        VoyageReranker,
        lambda **options: LLMReranker("tiny", **options),
        CohereReranker,
        JinaReranker,
    ],
    ids=["voyage", "llm", "cohere", "jina"],
)
def test_no_tier_follows_a_redirect(
    make: Callable[..., Reranker], endpoint: Server, stranger: Server
) -> None:
    options: dict[str, Any] = {"base_url": endpoint.url, "api_key": "secret-key", "attempts": 1}
    tier = GuardedReranker(make(**options), breaker=CircuitBreaker())
    with pytest.raises(Exception, match="redirects are not followed") as caught:
        tier.score("query", passages_of(["one", "two"]))
    assert not isinstance(caught.value, TransportError)
    assert len(endpoint.bodies) == 1
    assert b"query" in endpoint.bodies[0]
    assert stranger.bodies == []
    assert "secret-key" not in str(caught.value)
