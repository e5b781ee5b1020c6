"""A server on a free port of this machine for tests, over real sockets."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class LocalServer:
    """Listens while it is used as a context manager; answers may wait until `release`."""

    def __init__(
        self, handler: type[BaseHTTPRequestHandler], *, tls: ssl.SSLContext | None = None
    ) -> None:
        """Bind a port, without listening yet."""
        self.released = threading.Event()
        self._server = _Server(("127.0.0.1", 0), handler)
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def address(self) -> str:
        """The URL without a path."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def release(self) -> None:
        """Send the answers that are on hold."""
        self.released.set()

    def __enter__(self) -> Self:
        """Start to listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the port and release the answers on hold."""
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class JsonHandler(BaseHTTPRequestHandler):
    """Reads JSON and answers with JSON; logs nothing."""

    protocol_version = "HTTP/1.1"

    def request_body(self) -> bytes:
        """Return the body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def reply(
        self,
        body: bytes,
        status: int = 200,
        headers: Mapping[str, str] = {},
        *,
        cut: int | None = None,
    ) -> None:
        """Send an answer, of its body only the first bytes if it is cut."""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut])

    def log_message(self, format: str, *args: object) -> None:
        """Keep stderr clean."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep stderr clean if a client disconnects after its timeout."""
