"""The servers behind the proxy; each runs in a task of its own."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

import anyio
import mcp
import pydantic
from mcp import types
from mcp.client.stdio import stdio_client
from mcp_types import CONNECTION_CLOSED

from crossgate._agents.mcp.listing import failure, tools_of
from crossgate._agents.mcp.unparsable_messages import repaired
from crossgate._sources.common import Unusable
from crossgate._support.errors import InputError
from crossgate._support.files import read_source
from crossgate._support.limits import SETTINGS_BYTES
from crossgate._support.sanitize import sanitize_line
from crossgate._support.wording import counted


def read_servers(path: str) -> dict[str, mcp.StdioServerParameters]:
    """Read the servers of a file in the format of agents, under `mcpServers`.

    Raises:
        InputError: `source_missing` or `malformed_servers`.
    """
    try:
        values = json.loads(read_source(path, SETTINGS_BYTES))
    except OSError as error:
        raise InputError("source_missing", f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError, Unusable) as error:
        raise InputError("malformed_servers", f"{path} is not JSON: {error}") from error
    servers = values.get("mcpServers") if isinstance(values, dict) else None
    if not isinstance(servers, dict) or not servers:
        raise InputError(
            "malformed_servers",
            f'{path} names no servers: expected {{"mcpServers": {{"name": {{"command": ...}}}}}}',
        )
    return {name: _parameters(path, name, value) for name, value in servers.items()}


def _parameters(path: str, name: str, value: object) -> mcp.StdioServerParameters:
    try:
        found = mcp.StdioServerParameters.model_validate(value)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the entry"
        raise InputError(
            "malformed_servers",
            f"{path}: the server {name!r} cannot be started over stdio: {where}: {first['msg']}",
        ) from None
    # A line that is not UTF-8 is skipped, not fatal.
    changes = {"env": {**os.environ, **(found.env or {})}, "encoding_error_handler": "replace"}
    return found.model_copy(update=changes)


class Upstream:
    """One server behind the proxy, from its start to its end, in its own task.

    Attributes:
        name: The server's name in the file.
        tools: The tools by name; empty before the first answer and after a failure.
        problem: The reason why the server cannot be used; None if it can be used.
        changes: Number of changes of the tools.
        settled: Set once the server has answered or failed.
        ended: Set once the process has ended.
    """

    def __init__(self, name: str, target: mcp.StdioServerParameters, seconds: float) -> None:
        self.name = name
        self.tools: dict[str, types.Tool] = {}
        self.problem: str | None = None
        self.changes = 0
        self.settled = anyio.Event()
        self.ended = anyio.Event()
        self._scope = anyio.CancelScope()
        self._target = target
        self._seconds = seconds
        self._client: mcp.Client | None = None
        self._stale = False
        self._wanted = anyio.Event()
        self._listed = anyio.Event()
        self._listed.set()

    async def run(self) -> None:
        """Start the server, and run it until it is stopped. Never raises."""
        try:
            with self._scope as scope:
                # The deadline applies to the start and is removed after the first answer. A
                # separate scope could not be left while the connection inside it stays open.
                scope.deadline = anyio.current_time() + self._seconds
                await self._keep()
            if scope.cancelled_caught and scope.deadline < math.inf:
                self.fail(TimeoutError())
        except Exception as error:
            self.fail(error)
        finally:
            self._client = None
            self._listed.set()
            self.settled.set()
            self.ended.set()

    async def _keep(self) -> None:
        transport = repaired(stdio_client(self._target, errlog=sys.stderr), self._warn)
        # With this handshake, a server notifies the client when its tools have changed.
        async with mcp.Client(transport, mode="legacy", message_handler=self._hear) as client:
            self._client = client
            await self._list()
            self._scope.deadline = math.inf
            self.settled.set()
            while self.problem is None:
                await self._wanted.wait()
                self._wanted = anyio.Event()
                try:
                    with anyio.fail_after(self._seconds):
                        await self._list()
                except Exception as error:
                    self.fail(error)
                self._listed.set()
            await anyio.sleep_forever()  # calls in progress continue

    def stop(self) -> None:
        """Make `run` stop the server and return."""
        self._scope.deadline = math.inf  # so that it does not count as a timeout
        self._scope.cancel()

    async def refresh(self) -> None:
        """Wait until the tools are listed again, if the server has notified a change.

        Listing runs in the server's own task and continues if the wait is cancelled.
        """
        for _ in range(2):  # a list that was requested earlier may lack the last change
            if self._listed.is_set() and self._stale and self.problem is None:
                self._listed = anyio.Event()
                self._wanted.set()
            await self._listed.wait()

    async def call(self, tool: str, arguments: dict[str, Any] | None) -> types.CallToolResult:
        """Call a tool; arguments and result are passed on as they are."""
        if self._client is None or self.problem is not None:
            return failed_call(
                f"server_failed: the server {self.name!r} {self.problem or 'has ended'}"
            )
        try:
            return await self._client.call_tool(tool, arguments)
        except mcp.MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise  # the server's own error
            self.fail(error)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            self.fail(error)
        return failed_call(f"server_failed: the server {self.name!r} {self.problem}")

    def fail(self, error: BaseException) -> None:
        """Record a failure; the server is not used again."""
        self.problem = failure(error, self._seconds)
        self.tools = {}
        self.changes += 1
        self._warn(self.problem)

    def _warn(self, text: str) -> None:
        print(f"crossgate: the server {self.name!r} {text}", file=sys.stderr, flush=True)  # noqa: T201

    async def _list(self) -> None:
        assert self._client is not None
        self._stale = False  # before listing, so that a change meanwhile is not missed
        listed = await tools_of(self._client)
        # Of two tools with the same name, the first is kept, as in an index. Names with hidden
        # characters are left out, since a call uses the name as shown.
        plain = [tool for tool in listed if sanitize_line(tool.name) == tool.name]
        before, self.tools = self.tools, {tool.name: tool for tool in reversed(plain)}
        if self.tools == before and self.changes:
            return
        if len(self.tools) < len(listed):
            self._warn(
                f"lists {counted(len(listed), 'tool')}, {len(self.tools):,} with a usable name"
            )
        self.changes += 1

    async def _hear(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._stale = True


def failed_call(text: str) -> types.CallToolResult:
    """Return the error result of a call that did not reach the tool."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
