"""A headless Chromium, driven over a pipe with its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
"""Path of the browser; None if it is not installed."""

SECONDS = 60.0

# The browser reads commands from descriptor 3 and writes replies to 4.
_START = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(given), fcntl.F_DUPFD, 10) for given in sys.argv[1:3])
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Page:
    """One page of the browser.

    Attributes:
        said: Warnings and errors of the console, refusals by the security policy among them, since
            the last `open`.
    """

    def __init__(self, to: int, back: int) -> None:
        self._to = to
        self._back = os.fdopen(back, "rb")
        self._number = 0
        self._session: str | None = None
        self.said: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply
                return reply["result"]

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._back.read(1)) != b"\0":
            assert byte, "the browser has ended"
            data += byte
        reply: dict[str, Any] = json.loads(data)
        if reply.get("method") == "Log.entryAdded":
            entry = reply["params"]["entry"]
            if entry["level"] in {"warning", "error"}:
                self.said.append(entry["text"])
        if reply.get("method") == "Runtime.exceptionThrown":
            self.said.append(json.dumps(reply["params"]["exceptionDetails"]))
        return reply

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression in the page is true."""
        until = time.monotonic() + SECONDS
        while not self.evaluate(condition):
            assert time.monotonic() < until, condition
            time.sleep(0.05)

    def open(
        self, url: str, *, width: int = 1280, height: int = 900, scheme: str = "light"
    ) -> None:
        """Open an address at a size and in a colour scheme."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.said.clear()
        self.send("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href.startsWith({url!r})")

    def close(self) -> None:
        """Stop reading replies."""
        self._back.close()

    def picture(self, path: Path) -> None:
        """Write a picture of the visible part."""
        data = self.send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start the browser, with its own files in a folder."""
    assert CHROMIUM
    read_there, write_here = os.pipe()
    read_here, write_there = os.pipe()
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", _START, str(read_there), str(write_there), CHROMIUM),
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run"),
        ],
        pass_fds=(read_there, write_there),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_there)
    os.close(write_there)
    try:
        page = Page(write_here, read_here)
        yield page
        page.close()
    finally:
        process.terminate()
        process.wait(10)
        os.close(write_here)
