"""Remote rerankers over real sockets: requests, faults and secrets."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import logging
import pickle
import socket
import ssl
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from commands import python
from conftest import refused
from crossgate import InputError, PairScore, RerankerError
from crossgate._reranking import http
from crossgate._reranking.providers import PROVIDERS, RequestLimits
from crossgate._reranking.remote import HOSTED, _batches, checked, count_tokens, cut_to_tokens
from crossgate.rerankers import (
    CircuitBreaker,
    CohereReranker,
    Deadline,
    GuardedReranker,
    JinaReranker,
    LatencyEstimate,
    RemoteReranker,
    Scores,
    TransportError,
    VoyageReranker,
    passages_of,
    shut_down,
)
from providers_server import FAULTS, KEY, ProvidersServer, relevance

# Its own library says so whenever a connection breaks off in mid-body.
pytestmark = pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated")

Make = Callable[..., GuardedReranker]

DOCUMENTS = [f"document {number}" for number in range(5)]
PASSAGES = passages_of(DOCUMENTS)
EXPECTED = [relevance(one) for one in DOCUMENTS]


def maker(provider: str, server: ProvidersServer) -> Make:
    """Return a factory for rerankers of a provider, each with its own breaker."""

    def make(**options: Any) -> GuardedReranker:
        url = server.voyage if provider == "voyage" else server.url
        bounds: dict[str, Any] = {
            "breaker": CircuitBreaker(),
            "latency": LatencyEstimate(ms_per_pair=1.0),
        }
        for name in ("breaker", "latency"):
            if name in options:
                bounds[name] = options.pop(name)
        options = {"api_key": KEY, "base_url": url, **options}
        return GuardedReranker(HOSTED[provider](**options), **bounds)

    return make


@pytest.fixture(params=PROVIDERS)
def make(request: pytest.FixtureRequest, server: ProvidersServer) -> Make:
    """Makes a tier of each provider."""
    return maker(request.param, server)


@pytest.fixture
def cohere(server: ProvidersServer) -> Make:
    """Makes a tier of one provider, where all are alike."""
    return maker("cohere", server)


def transport_of(admitted: GuardedReranker) -> Any:
    assert isinstance(admitted.reranker, RemoteReranker)
    return admitted.reranker._transport


def scores(pairs: Sequence[PairScore | None]) -> list[float | None]:
    return [None if pair is None else pair.score for pair in pairs]


# Requests and responses.


def test_scores_come_in_the_order_of_the_documents(make: Make) -> None:
    assert scores(make().score("query", PASSAGES)) == EXPECTED


def test_request_of_each_provider(make: Make, server: ProvidersServer) -> None:
    tier = make()
    tier.score("query", PASSAGES)
    (request,) = server.requests
    bodies = {
        "voyage": ("/voyage/v1/rerank", {"model": "rerank-2.5", "truncation": True}),
        "cohere": ("/v2/rerank", {"model": "rerank-v4.0-pro", "max_tokens_per_doc": 4_096}),
        "jina": (
            "/v1/rerank",
            {"model": "jina-reranker-v2-base-multilingual", "return_documents": False},
        ),
    }
    path, options = bodies[tier.name]
    assert request.path == path
    assert request.body == {"query": "query", "documents": DOCUMENTS, **options}
    assert request.authorization == f"Bearer {KEY}"


def test_no_documents_need_no_request(make: Make, server: ProvidersServer) -> None:
    tier = make(breaker=CircuitBreaker(failures=1, cooldown=0), attempts=1)
    server.plan.append("500")
    refused("api_error", tier.score, "query", PASSAGES)
    assert tier.score("query", []) == ()
    assert asyncio.run(tier.ascore("query", [], deadline=Deadline(0))) == ()
    assert len(server.requests) == 1
    assert tier.breaker.state == "open"  # no request was sent, so the state is unchanged


def test_calls_inside_and_outside_of_running_loops(make: Make) -> None:
    tier = make()

    async def inside() -> list[list[float | None]]:
        synchronous = tier.score("query", PASSAGES)  # holds this loop up, and works
        native = await tier.ascore("query", PASSAGES, deadline=Deadline(5000))
        return [scores(synchronous), scores(native)]

    for _ in range(2):  # another loop each time
        assert asyncio.run(inside()) == [EXPECTED, EXPECTED]
    assert scores(tier.score("query", PASSAGES)) == EXPECTED


def test_connections_stay_open_between_calls(make: Make, server: ProvidersServer) -> None:
    async def twice() -> None:
        for _ in range(2):
            await make().ascore("query", PASSAGES, deadline=Deadline(5000))

    for _ in range(3):
        make().score("query", PASSAGES)  # another reranker each time
    asyncio.run(twice())
    assert len({one.connection for one in server.requests}) == 2  # of the threads, and of the loop


def test_event_loop_leaves_no_connection_behind(cohere: Make) -> None:
    async def once() -> None:
        await cohere().ascore("query", PASSAGES, deadline=Deadline(5000))
        assert http._of_loops

    http._of_loops.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for _ in range(2):
            asyncio.run(once())
            gc.collect()
            assert len(http._of_loops) == 1  # a closed one, which the next loop removes


@pytest.mark.parametrize(
    ("documents", "sizes"),
    [(80, [80]), (81, [21, 60]), (120, [60, 60]), (121, [1, 60, 60]), (300, [60] * 5)],
)
def test_large_pools_go_in_batches(
    make: Make, server: ProvidersServer, documents: int, sizes: list[int]
) -> None:
    texts = [f"document {number}" for number in range(documents)]
    server.delay = 0.05 if documents == 300 else 0.0
    assert scores(make().score("query", passages_of(texts))) == [relevance(one) for one in texts]
    sent = [one.body["documents"] for one in server.requests]
    assert sorted(map(len, sent)) == sizes
    assert sorted(one for batch in sent for one in batch) == sorted(texts)  # all of them, once
    if documents == 300:
        assert server.most_at_once > 1  # in parallel


def test_some_batches_may_fail(make: Make, server: ProvidersServer) -> None:
    texts = [f"document {number}" for number in range(121)]
    server.plan += [None, "fewer", None]
    tier = make(attempts=1)
    found = tier.score("query", passages_of(texts), deadline=Deadline(5000))
    missing = [place for place, pair in enumerate(found) if pair is None]
    assert missing in _batches(121, None)
    assert found.missing is not None
    assert found.missing.code == "partial_scores"
    assert f"{121 - len(missing)} of 121" in found.missing.detail
    for place, pair in enumerate(found):
        assert pair is None or pair.score == relevance(texts[place])
    assert tier.breaker._counted == 0  # the endpoint did answer


def test_all_rerankers_of_an_endpoint_share_its_limit(server: ProvidersServer) -> None:
    shut_down()  # the first use of an address sets its limit
    make = maker("jina", server)
    server.delay = 0.02
    tiers = [make(concurrency=3) for _ in range(4)]
    with ThreadPoolExecutor(20) as executor:
        calls = [executor.submit(tier.score, "query", PASSAGES) for tier in tiers for _ in range(5)]
        assert all(scores(call.result()) == EXPECTED for call in calls)
    assert (len(server.requests), server.most_at_once) == (20, 3)
    server.requests.clear()
    server.most_at_once = 0

    async def together() -> None:
        calls = [tier.ascore("query", PASSAGES) for tier in tiers for _ in range(5)]
        await asyncio.gather(*calls)

    asyncio.run(together())
    assert (len(server.requests), server.most_at_once) == (20, 3)


def test_waiting_for_a_free_connection_is_not_a_failure_of_the_endpoint(
    cohere: Make, server: ProvidersServer
) -> None:
    first, second = (cohere(concurrency=1, timeout=seconds) for seconds in (20.0, 0.3))
    server.plan.append("slow_headers")

    async def together() -> None:
        holds = asyncio.create_task(first.ascore("query", PASSAGES))
        while not server.requests:
            await asyncio.sleep(0.002)
        with pytest.raises(RerankerError) as caught:
            await second.ascore("query", PASSAGES)
        assert caught.value.code == "budget"
        holds.cancel()
        await asyncio.wait([holds])

    asyncio.run(together())
    assert (first.breaker._counted, second.breaker._counted) == (0, 0)


# Faults.


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_an_api_error_and_the_next_call_works(
    make: Make, server: ProvidersServer, fault: str
) -> None:
    tier = make(attempts=1, timeout=1.0 if "slow" in fault else 5.0)
    server.plan.append(fault)
    message = refused("api_error", tier.score, "query", PASSAGES)
    assert message.startswith(tier.name)
    assert tier.breaker._counted == 1
    assert scores(tier.score("query", PASSAGES)) == EXPECTED
    assert tier.breaker._counted == 0


@pytest.mark.parametrize("fault", ["endless", "bomb"])
def test_no_answer_fills_the_memory(make: Make, server: ProvidersServer, fault: str) -> None:
    server.plan.append(fault)
    message = refused("api_error", make(timeout=60.0).score, "query", PASSAGES)
    assert "exceeds 8,388,608 bytes" in message


@pytest.mark.parametrize("fault", ["429", "429:0.05", "500", "503", "reset", "truncated"])
def test_temporary_failures_are_retried(make: Make, server: ProvidersServer, fault: str) -> None:
    server.plan += [fault, fault]
    assert scores(make().score("query", PASSAGES)) == EXPECTED
    assert [one.fault for one in server.requests] == [fault, fault, None]


def test_it_is_tried_so_often_and_no_more(make: Make, server: ProvidersServer) -> None:
    server.plan += ["503"] * 9
    message = refused("api_error", make(attempts=3).score, "query", PASSAGES)
    assert len(server.requests) == 3
    assert "sent 3 times" in message


@pytest.mark.parametrize(
    "fault", ["fewer", "nan", "duplicate", "out_of_range", "missing", "slow_headers"]
)
def test_permanent_failures_are_not_retried(
    make: Make, server: ProvidersServer, fault: str
) -> None:
    server.plan.append(fault)
    # Where an answer comes, a busy machine may take its time over it.
    tier = make(timeout=1.0 if "slow" in fault else 5.0)
    refused("api_error", tier.score, "query", PASSAGES)
    assert len(server.requests) == 1


def test_retry_after_is_not_waited_for_beyond_the_deadline(
    make: Make, server: ProvidersServer
) -> None:
    server.plan.append("429:3600")
    message = refused("api_error", make().score, "query", PASSAGES)
    assert "429" in message  # and not that the time was over
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("", 0, 0),
        ("7", 7, 7),
        ("0.5", 0.5, 0.5),
        ("-3", 0, 0),
        ("inf", 0, 0),
        ("nan", 0, 0),
        ("soon", 0, 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0, 0),
        ("Fri, 32 Foo 2026", 0, 0),
        (formatdate(4e9, usegmt=True), 1e6, 4e9),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str, least: float, most: float) -> None:
    assert least <= http.seconds_of(header) <= most


def test_no_server_listens(make: Make) -> None:
    tier = make(base_url="http://localhost:9/v1", attempts=2)
    assert "connection" in refused("api_error", tier.score, "query", PASSAGES)
    assert tier.breaker._counted == 1


def test_a_certificate_that_cannot_be_trusted(make: Make) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with ProvidersServer(tls=context) as server:
        tier = make(base_url=server.url)
        message = refused("api_error", tier.score, "query", PASSAGES)
        assert "certificate" in message
        assert server.requests == []
        assert server.connections <= 1  # a bad certificate stays bad


@pytest.mark.parametrize(
    "answer",
    [b"", b"\x15\x03\x03\x00\x02\x02\x28", b"HTTP/1.1 200 OK\r\n\r\n{}", bytes(999)],
    ids=["nothing", "an alert", "plain HTTP", "zeros"],
)
def test_what_is_no_tls_is_an_api_error(make: Make, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(9999)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        address = f"https://127.0.0.1:{listener.getsockname()[1]}"
        refused("api_error", make(base_url=address, attempts=1).score, "query", PASSAGES)


@pytest.mark.parametrize("explicit", [False, True])
def test_bad_certificate_is_found_behind_other_errors(explicit: bool) -> None:
    error, cause = OSError("no connection"), ssl.SSLError("certificate verify failed")
    error.__context__ = RuntimeError("something else")
    if explicit:
        error.__cause__ = cause
    else:
        error.__context__.__context__ = cause
    problem = http.problem_of_connection(error)
    assert "the certificate is not trusted" in str(problem)
    assert not problem.retryable
    assert http.problem_of_connection(OSError("no connection")).retryable


@pytest.mark.parametrize("host", ["localhost", "elsewhere.example"])
def test_a_certificate_must_be_for_the_host(host: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    script = f"""
import sys
from crossgate import RerankerError
from crossgate.rerankers import CohereReranker, VoyageReranker, passages_of
for kind, url in ((CohereReranker, sys.argv[1]), (VoyageReranker, sys.argv[2])):
    try:
        print(len(kind(api_key={KEY!r}, base_url=url).score("query", passages_of(["a", "b"]))))
    except RerankerError as error:
        print(error)
"""
    with ProvidersServer(tls=context) as server:
        authorities = {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        lines = python(script, server.url, server.voyage, **authorities).splitlines()
        if host == "localhost":
            assert lines == ["2", "2"]
        else:
            assert len(lines) == 2
            assert all("certificate" in line for line in lines)
            assert server.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        "ab",
        [1, 2],
        [(0, 0.5)],
        [(0, 0.5), (0, 0.5)],
        [(0, 0.5), (2, 0.5)],
        [(0, 0.5), (-1, 0.5)],
        [(0, 0.5), (1, float("nan"))],
        [(0, 0.5), (1, float("inf"))],
        [(0, 0.5), (1, 10**400)],
        [(0, 0.5), (True, 0.5)],
        [(0, 0.5), (1.0, 0.5)],
        [(0, 0.5), (1, "0.5")],
        [(0, 0.5), (1, None)],
        [(0, 0.5), (1, True)],
        [(0, 0.5), (1, 0.5), (2, 0.5)],
        [(0, 0.5), (1, 0.5), (0, 0.9)],
    ],
)
def test_invalid_results_are_refused(answer: object) -> None:
    with pytest.raises(TransportError):
        checked(answer, 2)


@given(st.permutations(range(6)), st.lists(st.floats(-9, 9), min_size=6, max_size=6))
def test_answers_in_any_order(order: list[int], values: list[float]) -> None:
    assert checked([(place, values[place]) for place in order], 6) == values


# Breaker and budget.


def test_rerankers_of_one_endpoint_share_a_breaker() -> None:
    # Latency estimates are shared by model, so this model is not used by any other test.
    first = CohereReranker("shared", api_key=KEY, base_url="http://one.invalid")
    again = CohereReranker("another", api_key=KEY, base_url="http://one.invalid")
    other = CohereReranker("shared", api_key=KEY, base_url="http://two.invalid")
    assert GuardedReranker(first).breaker is GuardedReranker(again).breaker
    assert GuardedReranker(first).breaker is not GuardedReranker(other).breaker
    assert GuardedReranker(first).latency is not GuardedReranker(again).latency
    assert GuardedReranker(first).latency is GuardedReranker(other).latency
    assert (
        GuardedReranker(first).latency.ms_per_pair,
        GuardedReranker(first).latency.absolute_floor_ms,
    ) == (
        25.0,
        100.0,
    )


def call(remote: RemoteReranker, native: bool) -> Scores:
    """Score the passages from a thread or from an event loop."""
    if native:
        return asyncio.run(remote.ascore("query", PASSAGES))
    return remote.score("query", PASSAGES)


@pytest.mark.parametrize("native", [False, True], ids=["sync", "async"])
def test_a_transport_that_ignores_its_end_does_not_delay_the_deadline(native: bool) -> None:
    leave = threading.Event()

    def block(query: str, documents: Sequence[str], *, timeout: float) -> Any:
        leave.wait(20)
        return []

    names: Any = {"name": "own", "identity": "own@1", "endpoint": "blocked"}
    try:
        refused("api_error", call, RemoteReranker(block, **names, timeout=0.2), native)
        assert not leave.is_set()
    finally:
        leave.set()


@pytest.mark.parametrize("native", [False, True], ids=["sync", "async"])
def test_a_server_that_sends_byte_by_byte_does_not_delay_the_deadline(native: bool) -> None:
    ended = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            for byte in b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 10_000:
                if ended.wait(0.02):
                    break
                connection.send(bytes([byte]))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=[listening])
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            start = time.monotonic()
            tier = CohereReranker(api_key=KEY, base_url=url, timeout=0.5, attempts=1)
            assert "no answer within" in refused("api_error", call, tier, native)
            assert time.monotonic() - start < 5
        finally:
            ended.set()
            thread.join()


def test_cancelling_gives_everything_back(make: Make, server: ProvidersServer) -> None:
    tier = make(breaker=CircuitBreaker(failures=1, cooldown=0), attempts=1)
    server.plan.append("500")
    refused("api_error", tier.score, "query", PASSAGES)
    texts = [f"document {number}" for number in range(300)]

    async def cancelled() -> None:
        for _ in range(5):
            server.requests.clear()
            server.plan += ["slow_headers"] * 5
            task = asyncio.create_task(
                tier.ascore("query", passages_of(texts), deadline=Deadline(60000))
            )
            while len(server.requests) < 5:
                await asyncio.sleep(0.002)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
            while tier.breaker._trials_out:
                await asyncio.sleep(0.002)

    asyncio.run(cancelled())
    assert tier.breaker.state == "half_open"
    for _ in range(2):
        assert tier.score("query", PASSAGES)
    assert tier.breaker.state == "closed"


def test_an_interrupt_is_not_a_failure_of_the_endpoint() -> None:
    script = """
import os, signal, threading, time
from crossgate.rerankers import GuardedReranker, RemoteReranker, passages_of
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
sent = threading.Event()
def transport(query, documents, *, timeout):
    sent.set()
    time.sleep(3_600)
def interrupt():
    sent.wait()
    while True:  # a signal just before the main thread waits for a lock is not noticed
        os.kill(os.getpid(), signal.SIGINT)
        if ended.wait(5):
            return
ended = threading.Event()
tier = GuardedReranker(
    RemoteReranker(transport, name="own", identity="own", endpoint="own", timeout=3_600)
)
threading.Thread(target=interrupt).start()
try:
    tier.score("query", passages_of(["a", "b"]))
except KeyboardInterrupt:
    ended.set()
    print("interrupted", tier.breaker._counted)
"""
    assert python(script).split() == ["interrupted", "0"]


def test_shutting_down_closes_connections_and_the_next_call_opens_new_ones(
    cohere: Make, server: ProvidersServer
) -> None:
    for _ in range(2):
        assert scores(cohere().score("query", PASSAGES)) == EXPECTED
        shut_down()
        shut_down()  # twice is fine
    assert len({one.connection for one in server.requests}) == 2


def test_a_forked_child_has_connections_of_its_own(server: ProvidersServer) -> None:
    script = f"""
import os, signal
from crossgate.rerankers import CohereReranker, VoyageReranker, passages_of
tiers = [
    CohereReranker(api_key={KEY!r}, base_url={server.url!r}),
    VoyageReranker(api_key={KEY!r}, base_url={server.voyage!r}),
]
expected = [tier.score("query", passages_of(["a", "b"])) for tier in tiers]
child = os.fork()
if not child:
    signal.alarm(20)
    again = [tier.score("query", passages_of(["a", "b"])) for tier in tiers]
    os._exit(17 if again == expected else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 17, status
assert [tier.score("query", passages_of(["a", "b"])) for tier in tiers] == expected
"""
    before = server.connections
    python(script, PYTHONWARNINGS="error,ignore::DeprecationWarning")
    assert server.connections - before == 4  # of each process, one to each address


# Long texts.


def test_long_documents_are_cut_and_say_so(cohere: Make, server: ProvidersServer) -> None:
    long = "word " * 50_000
    found = cohere().score("query", passages_of(["short", long, "x" * 20_000]))
    assert [pair.truncated for pair in found.complete()] == [False, True, True]
    sent = server.requests[0].body["documents"]
    assert sent[0] == "short"
    assert long.startswith(sent[1])
    assert len(sent[1].split()) == 4_096
    assert len(sent[2]) == 4_096  # no word of the vocabulary: counted by its bytes


def test_a_query_that_the_provider_does_not_take(cohere: Make, server: ProvidersServer) -> None:
    tier = cohere()
    refused("query_too_long", tier.score, "word " * 3_000, PASSAGES)
    assert tier.score("word " * 2_000, PASSAGES)
    assert len(server.requests) == 1
    assert tier.breaker._counted == 0


def test_a_long_query_makes_smaller_batches() -> None:
    limits = RequestLimits(query_tokens=8_000, document_tokens=8_000, request_tokens=600_000)
    assert (limits.batch(10), limits.batch(8_000)) == (74, 37)
    assert RequestLimits(query_tokens=1, document_tokens=1).batch(1) is None


@given(st.text(max_size=400), st.integers(1, 60))
def test_cutting_takes_a_beginning_that_fits(text: str, most: int) -> None:
    kept, was_cut = cut_to_tokens(text, most)
    assert text.startswith(kept)
    assert was_cut == (kept != text)
    assert count_tokens(kept, most) <= most
    if not was_cut:
        assert cut_to_tokens(kept, most) == (kept, False)
    assert count_tokens(text, most) > most or not was_cut


# Keys.


def places_of_a_secret(error: BaseException) -> Iterator[str]:
    """Yield everything about an error that a log or a report may show."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        waiting += [one.__cause__, one.__context__]
        yield repr(one)
        yield str(one)
        yield repr(one.args)
        yield repr(vars(one))
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if frame.f_code.co_filename != __file__:  # this file contains the key
                yield repr(frame.f_locals)


@pytest.mark.parametrize("fault", [*FAULTS, "401", None, "nobody", "budget", "open"])
def test_a_key_shows_nowhere(
    make: Make, server: ProvidersServer, fault: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    secret = KEY if fault != "401" else "another-secret-77"
    slow = fault is not None and "slow" in fault
    options: dict[str, Any] = {"attempts": 2, "timeout": 0.2 if slow else 5.0, "api_key": secret}
    if fault == "nobody":
        options["base_url"] = "http://localhost:9"
    if fault == "open":
        options["breaker"] = CircuitBreaker(failures=1)
    tier = make(**options)
    if fault in FAULTS or fault == "open":
        server.plan += ["500" if fault == "open" else fault] * 2
    shown = [
        repr(tier),
        repr(vars(tier.reranker)),
        repr(transport_of(tier)),
        repr(vars(transport_of(tier))),
    ]
    with caplog.at_level(logging.DEBUG):
        for _ in range(2 if fault == "open" else 1):
            try:
                tier.score(
                    "query", PASSAGES, deadline=Deadline(1e-6 if fault == "budget" else None)
                )
            except RerankerError as error:
                shown += places_of_a_secret(error)
                shown.append(repr(pickle.dumps(error)))
            else:
                assert fault is None
    shown += [
        caplog.text,
        repr(pickle.dumps(transport_of(tier))),
        repr(copy.copy(vars(tier.reranker))),
    ]
    for text in shown:
        assert secret not in text


def test_a_pickled_transport_looks_for_the_key_again(
    server: ProvidersServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = CohereReranker(api_key=KEY, base_url=server.url)._transport
    monkeypatch.setenv("CO_API_KEY", "from-the-environment")
    assert pickle.loads(pickle.dumps(transport))._key.reveal() == "from-the-environment"


def test_a_key_of_another_type_is_refused_and_not_quoted() -> None:
    key: Any = [KEY]
    message = refused("out_of_range", CohereReranker, api_key=key)
    assert "the key must be a string, not a list" in message
    assert KEY not in message


@pytest.mark.parametrize(
    ("kind", "variable"),
    [
        (VoyageReranker, "VOYAGE_API_KEY"),
        (CohereReranker, "COHERE_API_KEY"),
        (CohereReranker, "CO_API_KEY"),
        (JinaReranker, "JINA_API_KEY"),
    ],
)
def test_keys_from_the_environment(
    kind: Any, variable: str, server: ProvidersServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VOYAGE_API_KEY", "COHERE_API_KEY", "CO_API_KEY", "JINA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert kind.from_environment() is None
    assert "API key" in refused("no_key", kind)
    monkeypatch.setenv(variable, f" {KEY}\n")
    url = server.voyage if kind is VoyageReranker else server.url
    assert scores(kind.from_environment(base_url=url).score("query", PASSAGES)) == EXPECTED
    for off in ("0", "false", "OFF"):
        monkeypatch.setenv("CROSSGATE_REMOTE", off)
        assert kind.from_environment() is None
    monkeypatch.setenv("CROSSGATE_REMOTE", "1")
    assert kind.from_environment() is not None


# Transports of the user's own.


def own(answer: Callable[[Sequence[str]], Any], **options: Any) -> GuardedReranker:
    """Return a reranker whose transport is a function."""

    def transport(
        query: str, documents: Sequence[str], *, timeout: float
    ) -> Sequence[tuple[int, float]]:
        assert 0 < timeout <= 10
        found: Sequence[tuple[int, float]] = answer(documents)
        return found

    defaults: dict[str, Any] = {"name": "own", "identity": "own@1", "endpoint": "own"}
    reranker = RemoteReranker(transport, **{**defaults, **options})
    return GuardedReranker(reranker, breaker=CircuitBreaker())


@pytest.mark.parametrize("native", [False, True], ids=["sync", "async"])
def test_custom_transport(native: bool) -> None:
    tier = own(lambda documents: [(place, -len(one)) for place, one in enumerate(documents)])
    assert isinstance(tier.reranker, RemoteReranker)
    assert scores(call(tier.reranker, native)) == [-float(len(text)) for text in DOCUMENTS]


@pytest.mark.parametrize("native", [False, True], ids=["sync", "async"])
def test_preparation_that_takes_too_long_does_not_count_against_the_endpoint(
    cohere: Make, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    monkeypatch.setattr(http, "_certificates", lambda: time.sleep(0.3))
    hurried = cohere(timeout=0.1).reranker
    assert isinstance(hurried, RemoteReranker)
    refused("budget", call, hurried, native)


def test_errors_of_a_transport_are_not_quoted() -> None:
    def raising(documents: Sequence[str]) -> Any:
        raise RuntimeError("key=secret")

    message = refused("api_error", own(raising).score, "query", PASSAGES)
    assert "RuntimeError" in message
    assert "secret" not in message


@pytest.mark.parametrize("kind", [VoyageReranker, CohereReranker])
def test_missing_library_degrades_the_result(kind: Any, server: ProvidersServer) -> None:
    script = f"""
import sys
sys.modules["httpx2"] = None
from crossgate import rerank
from crossgate.rerankers import GuardedReranker, {kind.__name__}
tier = {kind.__name__}(api_key={KEY!r}, base_url={server.url!r})
for _ in range(4):
    result = rerank("query", ["a", "b"], reranker=tier)
    print(result.degraded[-1].code, result.degraded[-1].detail)
assert GuardedReranker(tier).breaker.state == "closed"
"""
    output = python(script)
    assert output.count("reranker_unavailable") == 4
    assert "pip install 'crossgate[remote]'" in output


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"timeout": float("nan")}, {"attempts": 0}, {"concurrency": 0}]
)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        CohereReranker(api_key=KEY, **options)
