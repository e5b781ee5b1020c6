"""`crossgate serve`: an HTTP server with the endpoints of other rerankers."""

from __future__ import annotations

import argparse
import ipaddress
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

from crossgate._cli import DONE
from crossgate._cli.input import model_option
from crossgate._cli.output import say, show_json
from crossgate._support.arguments import whole
from crossgate._support.errors import InputError

if TYPE_CHECKING:
    from crossgate._telemetry.log import JsonLinesLog

KEY_VARIABLE = "CROSSGATE_SERVE_KEY"
"""Environment variable for the key; other users of the machine could read an option."""

_BACKLOG = 2_048


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--port", type=int, default=8787, help="0 for any (default: 8787)")
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    parser.add_argument("-i", "--index", metavar="FILE", help="index for /route")
    model_option(parser, "--reranker", "see crossgate rerank")
    parser.add_argument("--profile", metavar="FILE", help="calibration profile for reranking")
    parser.add_argument("--policy", metavar="FILE", help="policy: the settings that you choose")
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="append the decisions of /route, as hashes, and the judgements of /feedback to a log; "
        "needs a key or a loopback address",
    )
    for name, default, text in (
        ("--max-bytes", 10_000_000, "maximum size of a request"),
        ("--max-documents", 1_000, "maximum number of documents per request"),
        ("--max-waiting", 64, "maximum number of waiting requests; the next gets 429"),
        ("--stop-seconds", 30, "time that open requests get to finish on shutdown"),
    ):
        parser.add_argument(
            name, type=whole(1), default=default, metavar="N", help=f"{text} (default: {default})"
        )
    parser.add_argument(
        "--concurrency",
        type=whole(1),
        metavar="N",
        help="number of decisions at once (default: cores)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, then answer open requests and stop."""
    from crossgate._support.extras import package

    for name in ("fastapi", "prometheus_client", "uvicorn"):
        package(name, "crossgate serve", extra="serve")
    import uvicorn

    from crossgate._serving.request_limits import Connection

    with _listen(options.host, options.port) as listening:
        address, port = listening.getsockname()[:2]
        # A host such as 127.1 or a name of the machine can resolve to a loopback address.
        on_loopback = ipaddress.ip_address(address).is_loopback
        app = _application(options, _hosts(options.host) if on_loopback else None)
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            log_level="error",  # a client without the key can cause any number of warnings
            access_log=False,
            timeout_graceful_shutdown=options.stop_seconds,
        )
        server = uvicorn.Server(config)

        def stop(*_: object) -> None:
            server.should_exit = True

        # Handlers are set before the address is printed, since a caller may stop the server as soon
        # as it reads the address. uvicorn raises the signal again; that must not be a failure.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        where = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
        if not on_loopback and not os.environ.get(KEY_VARIABLE):
            say(f"warning: anyone who reaches this address can use it; set {KEY_VARIABLE} to a key")
        if options.json:
            show_json({"serving": where, "pid": os.getpid()})
            # The calling process reads the port from this line.
            print(end="", flush=True)
        say(f"serving {where}; its endpoints are at /docs")
        server.run(sockets=[listening])
    return DONE


def _application(options: argparse.Namespace, hosts: frozenset[str] | None) -> Any:
    from crossgate._decision.rerank_candidates import rerank
    from crossgate._decision.router import Router
    from crossgate._retrieval.document_index import Index
    from crossgate._runtime.threads import number_of_threads
    from crossgate._serving.app import application
    from crossgate._serving.request_limits import Limits

    limits = Limits(
        body=options.max_bytes,
        documents=options.max_documents,
        waiting=options.max_waiting,
        concurrency=options.concurrency or number_of_threads(),
    )
    router = None
    key = os.environ.get(KEY_VARIABLE) or None
    log = _log(options, allowed=bool(key or hosts))
    if options.index:
        router = Router(
            Index.open(options.index),
            reranker=options.reranker,
            policy=options.policy,
            telemetry=log,
        )
        router.warm_up()
    asked = {"reranker": options.reranker, "profile": options.profile, "policy": options.policy}
    # Loads models and checks options before the first request.
    rerank("warm up", ["one", "two"], **asked)
    return application(
        router=router,
        limits=limits,
        key=key,
        hosts=None if key else hosts,
        options=asked,
        log=log,
    )


def _log(options: argparse.Namespace, *, allowed: bool) -> JsonLinesLog | None:
    """Return the log of decisions and judgements, or None.

    Raises:
        InputError: `out_of_range` if anyone on the network could append to it.
    """
    if not options.log:
        return None
    if not allowed:
        raise InputError(
            "out_of_range",
            f"--log: anyone who reaches this address could append judgements; set {KEY_VARIABLE} "
            "to a key, or listen on a loopback address",
        )
    from crossgate._telemetry.log import JsonLinesLog

    return JsonLinesLog(options.log)


def _hosts(host: str) -> frozenset[str]:
    """Return the hosts that a request without a key may name.

    The name of a web page can be made to resolve to 127.0.0.1 (DNS rebinding). The page could then
    read the answers, but its requests name its own host.
    """
    given = f"[{host}]" if ":" in host else host
    return frozenset({"localhost", "127.0.0.1", "[::1]", given.lower()})


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        InputError: `address_unusable` if the address cannot be used.
    """
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)  # clients may connect before the event loop runs
        return made
    except BaseException as error:
        made.close()
        # TypeError: a host such as "é..".
        if not isinstance(error, OSError | OverflowError | TypeError):
            raise
        message = f"cannot listen on {host}:{port}: {error}; choose --host or --port"
        raise InputError("address_unusable", message) from error
