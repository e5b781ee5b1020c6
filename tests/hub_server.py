"""A model hub for tests: serves models over real sockets, with faults on demand."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from local_server import LocalServer


@dataclass(kw_only=True)
class Fault:
    """A fault that is applied to the requests that it matches.

    Attributes:
        path: Only files whose path ends with this text.
        method: Only this method, or any if empty.
        times: Number of requests to which it is applied.
        status: HTTP status, sent instead of the file.
        headers: Sent with the status, or with the description of the repository.
        content: Sent instead of the file's content.
        cut: Close the connection after this number of bytes of the answer's body.
        hold: Send this number of bytes of the body, then nothing until `release` is called.
        ignore_range: Answer a range with the whole file.
    """

    path: str = ""
    method: str = "GET"
    times: int = 1_000_000
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    cut: int | None = None
    hold: int | None = None
    ignore_range: bool = False


@dataclass(frozen=True, kw_only=True)
class Request:
    """The values of one request, and the status of its answer."""

    method: str
    path: str
    range: str | None
    authorization: str | None
    user_agent: str | None
    status: int


class HubServer(LocalServer):
    """A hub on a free port of this machine, with one revision of one repository.

    Use it as a context manager, with `endpoint` as HF_ENDPOINT. Files below `large` are redirected
    to another host, as the hub does with files in its object store. The description of the
    repository lists them with their sha256, and the others with their git blob id.

    Attributes:
        faults: The first fault that matches a request is applied.
        requests: Every request so far, in the order of the answers.
    """

    def __init__(
        self,
        repository: str,
        revision: str,
        files: Mapping[str, bytes],
        *,
        large: tuple[str, ...] = ("onnx/",),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Bind a port, without listening yet."""
        self.repository = repository
        self.revision = revision
        self.files = dict(files)
        self.large = large
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        super().__init__(_handler_of(self), tls=tls)

    @property
    def endpoint(self) -> str:
        """The address to give as HF_ENDPOINT."""
        return self.address

    def description(self) -> bytes:
        """Return the hub's description of the repository, with its files."""
        siblings: list[dict[str, object]] = []
        for path, content in self.files.items():
            blob = b"blob %d\0" % len(content) + content
            entry: dict[str, object] = {"rfilename": path, "size": len(content)}
            entry["blobId"] = hashlib.sha1(blob).hexdigest()
            if path.startswith(self.large):
                digest = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        values = {"id": self.repository, "sha": self.revision, "siblings": siblings}
        return json.dumps(values).encode()

    def got(self, path: str) -> list[Request]:
        """Return the requests that were answered with content of a file, or spoiled doing so."""
        return [
            request
            for request in self.requests
            if request.path.endswith(path) and request.method == "GET" and request.status != 302
        ]

    def fault_for(self, method: str, path: str) -> Fault | None:
        """Return the fault to apply to a request, and use it up by one."""
        with self._lock:
            for fault in self.faults:
                if fault.times and path.endswith(fault.path) and fault.method in ("", method):
                    fault.times -= 1
                    return fault
        return None


def _handler_of(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    resolve = f"/{hub.repository}/resolve/{hub.revision}/"
    store = "/store/"
    described = f"/api/models/{hub.repository}?blobs=true"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def log_message(self, format: str, *args: object) -> None:
            """Keep stderr clean: the log is `HubServer.requests`."""

        def answer(self) -> None:
            if self.path == described:
                self.describe()
                return
            prefix = resolve if self.path.startswith(resolve) else store
            path = self.path.removeprefix(prefix)
            content = hub.files.get(path)
            if content is None or path == self.path:
                self.reply(404, {"X-Error-Code": "EntryNotFound"}, b"Entry not found")
                return
            digest = hashlib.sha256(content).hexdigest()
            metadata = {
                "X-Repo-Commit": hub.revision,
                "ETag": f'"{digest}"',
                "Accept-Ranges": "bytes",
                "Content-Type": "application/octet-stream",
            }
            if prefix == resolve and path.startswith(hub.large):
                metadata |= {
                    "X-Linked-Etag": f'"{digest}"',
                    "X-Linked-Size": str(len(content)),
                    # Another name for the same machine is another host to a client.
                    "Location": hub.endpoint.replace("127.0.0.1", "localhost") + store + path,
                }
                self.reply(302, metadata, b"Found")
                return
            fault = hub.fault_for(self.command, path) or Fault()
            if fault.status is not None:
                self.reply(fault.status, dict(fault.headers), b"spoiled on purpose")
                return
            if fault.content is not None:
                content = fault.content
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if asked is None or fault.ignore_range:
                self.reply(200, metadata, content, fault)
                return
            start = int(asked[1])
            if start >= len(content):
                self.reply(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
                return
            metadata["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.reply(206, metadata, content[start:], fault)

        def describe(self) -> None:
            fault = hub.fault_for(self.command, self.path) or Fault()
            if fault.status is not None:
                self.reply(fault.status, dict(fault.headers), b"spoiled on purpose")
                return
            content = hub.description() if fault.content is None else fault.content
            headers = {"Content-Type": "application/json", **fault.headers}
            self.reply(200, headers, content, fault)

        def reply(
            self, status: int, headers: dict[str, str], body: bytes, fault: Fault | None = None
        ) -> None:
            hub.requests.append(
                Request(
                    method=self.command,
                    path=self.path,
                    range=self.headers.get("Range"),
                    authorization=self.headers.get("Authorization"),
                    user_agent=self.headers.get("User-Agent"),
                    status=status,
                )
            )
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            try:
                if fault and fault.cut is not None:
                    self.wfile.write(body[: fault.cut])
                    self.close_connection = True
                elif fault and fault.hold is not None:
                    self.wfile.write(body[: fault.hold])
                    hub.released.wait()
                    self.wfile.write(body[fault.hold :])
                else:
                    self.wfile.write(body)
            except OSError:
                self.close_connection = (
                    True  # the client was killed, or disconnected after its timeout
                )

    return Handler
