"""No remote tier follows a redirect: query and passages stay with the address that was chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from local_server import JsonHandler, LocalServer


class Server(LocalServer):
    """Answers every request with one status, and records the bodies."""

    def __init__(self, status: int = 200, location: str = "") -> None:
        self.bodies: list[bytes] = []
        server = self

        class Handler(JsonHandler):
            def do_POST(self) -> None:
                server.bodies.append(self.request_body())
                self.reply(b"", status, {"Location": location} if location else {})

            do_GET = do_POST

        super().__init__(Handler)
        self.url = f"{self.address}/v1"


@pytest.fixture
def stranger() -> Iterator[Server]:
    """The target of the redirects, which must get no request."""
    with Server() as server:
        yield server
        shut_down()


@pytest.fixture(params=[301, 302, 303, 307, 308])
def endpoint(request: pytest.FixtureRequest, stranger: Server) -> Iterator[Server]:
    """The server that was chosen, which sends every request on to the stranger."""
    with Server(request.param, f"{stranger.url}/elsewhere") as server:
        yield server


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
