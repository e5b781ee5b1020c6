"""Handles messages that the SDK cannot parse and would drop, so that each request gets an answer.

A message is valid JSON but not valid for the SDK if it contains half of a surrogate pair, or is
nested deeper than about 200 levels. One tool of a server may be enough for that.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from crossgate._agents.mcp.tool_lists import repair_tools

_DEPTH = 100
"""Deeper parts of an answer are replaced with an empty object."""

_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*"|\d+)')

_Item = SessionMessage | Exception
_Streams = tuple[Any, Any]


@asynccontextmanager
async def repaired(
    transport: AbstractAsyncContextManager[_Streams], warn: Callable[[str], None]
) -> AsyncIterator[_Streams]:
    """Yield the streams of a client, with unparsable answers of the server repaired.

    Lone surrogates are replaced, and deep parts are cut off. An answer that cannot be repaired
    becomes an error for its request. Invalid parts of tools are removed, and passed to `warn`.
    """

    async def repair(item: _Item) -> _Item:
        line = _unparsed_line(item)
        item = item if line is None else _repaired_answer(line) or item
        answer = item.message if isinstance(item, SessionMessage) else None
        for problem in repair_tools(getattr(answer, "result", None)):
            warn(problem)
        return item

    async with transport as (read, write):
        yield _MappedStream(read, repair), write


@asynccontextmanager
async def answering(transport: AbstractAsyncContextManager[_Streams]) -> AsyncIterator[_Streams]:
    """Yield the streams of a server; a request that cannot be parsed gets an error with its id."""
    async with transport as (read, write):

        async def answer(item: _Item) -> _Item:
            line = _unparsed_line(item)
            error = None if line is None else _error_for_request(line)
            if error is not None:
                await write.send(SessionMessage(error))
            return item

        yield _MappedStream(read, answer), write


class _MappedStream:
    """A stream of messages, each passed through a function.

    Args:
        inner: The stream.
        function: Returns the message to use instead.
    """

    def __init__(self, inner: Any, function: Callable[[_Item], Awaitable[_Item]]) -> None:
        self._inner = inner
        self._function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def receive(self) -> _Item:
        return await self._function(await self._inner.receive())

    def __aiter__(self) -> _MappedStream:
        return self

    async def __anext__(self) -> _Item:
        return await self._function(await self._inner.__anext__())

    async def __aenter__(self) -> _MappedStream:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        result: bool | None = await self._inner.__aexit__(*error)
        return result


def _unparsed_line(item: _Item) -> str | None:
    """Return the line that the SDK could not parse; None for any other item."""
    errors = getattr(item, "errors", None)
    if not isinstance(item, Exception) or errors is None:
        return None
    line = errors(include_url=False, include_context=False)[0]["input"]
    return line if isinstance(line, str) else None


def _repaired_answer(line: str) -> SessionMessage | None:
    try:
        values = json.loads(line)
        if not isinstance(values, dict) or values.get("jsonrpc") != "2.0":
            return None
        text = json.dumps(_pruned(values, _DEPTH))
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except RecursionError:
        return _failed_answer(line)
    except ValueError:
        return None


def _failed_answer(line: str) -> SessionMessage | None:
    """Return an error for the request of an answer that is nested too deeply for Python, too."""
    found = _ID.search(line)
    if found is None:
        return None
    error = ErrorData(code=PARSE_ERROR, message="the answer is nested too deeply")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=json.loads(found[1]), error=error))


def _error_for_request(line: str) -> JSONRPCError | None:
    """Return the error for a request that could not be parsed; None if it is not a request."""
    try:
        values = json.loads(line)
    except RecursionError:
        found = _ID.search(line)
        values = {"method": "", "id": json.loads(found[1])} if found else None
    except ValueError:
        return None
    if not isinstance(values, dict) or "method" not in values:
        return None
    id = values.get("id")
    if not isinstance(id, str | int) or isinstance(id, bool):
        return None
    message = "invalid_text: the request has half of a surrogate pair, or is nested too deeply"
    id = id if isinstance(id, int) else _unicode(id)
    return JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=PARSE_ERROR, message=message))


def _pruned(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _unicode(value)
    if isinstance(value, dict):
        if depth <= 0:
            return {}
        return {_unicode(key): _pruned(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_pruned(item, depth - 1) for item in value] if depth > 0 else []
    return value


def _unicode(text: str) -> str:
    """Return a text with question marks in place of lone surrogates."""
    return text.encode("utf-8", "replace").decode()
