"""Handles messages that the SDK cannot parse and would drop, so that each request gets an answer.

The SDK refuses batches, lines that are not JSON, and messages with half of a surrogate pair, with a
number of more than 4,300 digits, or with more than about 200 levels. One tool of a server may be
enough for that.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pydantic
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from crossgate._agents.mcp.tool_lists import repair_tools
from crossgate._support.checks import without_surrogates

_DEPTH = 100
"""Deeper parts of an answer are replaced with an empty object."""

_DIGITS = 4_300
"""Python and the SDK read no longer integer; a longer id is not answered."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]')
_VALUE = re.compile(r'\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)')

_Item = SessionMessage | Exception
_Streams = tuple[Any, Any]


@asynccontextmanager
async def repaired(
    transport: AbstractAsyncContextManager[_Streams], warn: Callable[[str], None]
) -> AsyncIterator[_Streams]:
    """Yield the streams of a client, with unparsable answers of the server repaired.

    Lone surrogates are replaced, integers that are too long become texts, and deep parts are cut
    off. An answer that cannot be repaired becomes an error for its request. Invalid parts of tools
    are removed, and passed to `warn`.
    """

    async def repair(item: _Item) -> _Item:
        if isinstance(item, Exception):
            item = next(filter(None, map(_repaired_answer, _values_of(item))), item)
        answer = item.message if isinstance(item, SessionMessage) else None
        for problem in repair_tools(getattr(answer, "result", None)):
            warn(problem)
        return item

    async with transport as (read, write):
        yield _MappedStream(read, repair), write


@asynccontextmanager
async def answering(transport: AbstractAsyncContextManager[_Streams]) -> AsyncIterator[_Streams]:
    """Yield the streams of a server; a request that cannot be parsed gets an error with its id.

    A message without a usable id is dropped, and reported on stderr.
    """
    async with transport as (read, write):

        async def answer(item: _Item) -> _Item:
            if isinstance(item, Exception):
                errors = list(filter(None, map(_error_for_request, _values_of(item))))
                for error in errors:
                    await write.send(SessionMessage(error))
                if not errors:
                    _log("dropped a message that is no valid request")
            return item

        yield _MappedStream(read, answer), write


class _MappedStream:
    """A stream of messages, each passed through a function.

    Args:
        inner: The stream.
        function: Returns the message to use instead. If it fails, the message is used as it is.
    """

    def __init__(self, inner: Any, function: Callable[[_Item], Awaitable[_Item]]) -> None:
        self._inner = inner
        self._function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def receive(self) -> _Item:
        return await self._mapped(await self._inner.receive())

    def __aiter__(self) -> _MappedStream:
        return self

    async def __anext__(self) -> _Item:
        return await self._mapped(await self._inner.__anext__())

    async def _mapped(self, item: _Item) -> _Item:
        try:
            return await self._function(item)
        except Exception as error:  # one message must not end the connection
            _log(f"cannot handle a message: {type(error).__name__}")
            return item

    async def __aenter__(self) -> _MappedStream:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        result: bool | None = await self._inner.__aexit__(*error)
        return result


def _values_of(error: Exception) -> list[dict[str, Any]]:
    """Return the values of a message that the SDK could not parse; of a batch, each message's."""
    if not isinstance(error, pydantic.ValidationError):
        return []
    for problem in error.errors(include_url=False, include_context=False):
        values = problem["input"]
        if problem["type"] == "json_invalid":
            values = _loaded(values)
        # A message lacks a field of at least one kind of message, or is none.
        elif problem["type"] != "model_type" and (
            problem["type"] != "missing" or len(problem["loc"]) != 2
        ):
            continue
        messages = values if isinstance(values, list) else [values]
        return [message for message in messages if isinstance(message, dict)]
    return []


def _loaded(line: str) -> Any:
    """Return the values of a line; of one that Python cannot parse, those of its top level."""
    try:
        return json.loads(line, parse_int=_integer)
    except (ValueError, RecursionError):
        return _outline(line)


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _DIGITS else digits


def _outline(line: str) -> dict[str, Any]:
    """Return the texts and integers at the top level of an object that is broken or too deep."""
    values: dict[str, Any] = {}
    depth = 0
    for token in _TOKEN.finditer(line):
        if token[0] in ("[", "{"):
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
        elif depth == 1 and (value := _VALUE.match(line, token.end())):
            with suppress(ValueError):
                values[json.loads(token[0])] = json.loads(value[1], parse_int=_integer)
    return values


def _repaired_answer(values: dict[str, Any]) -> SessionMessage | None:
    """Return an answer as the SDK takes it, or an error for its request; None if it is neither."""
    if values.get("jsonrpc") != "2.0" and values.keys().isdisjoint(("result", "error")):
        return None
    id = _usable_id(values)
    with suppress(ValueError):
        known = {"jsonrpc": "2.0"} if id is None else {"jsonrpc": "2.0", "id": id}
        text = json.dumps(_pruned({**values, **known}, _DEPTH))
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    if id is None or "method" in values:
        return None
    error = ErrorData(code=PARSE_ERROR, message="the answer is not valid, or nested too deeply")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=error))


def _error_for_request(values: dict[str, Any]) -> JSONRPCError | None:
    """Return the error for a request that could not be parsed; None if it is not a request."""
    id = _usable_id(values)
    if id is None or "method" not in values:
        return None
    message = (
        "invalid_text: the request is not valid, is in a batch, has half of a surrogate pair or a "
        f"number of more than {_DIGITS:,} digits, or is nested too deeply"
    )
    return JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=PARSE_ERROR, message=message))


def _usable_id(values: dict[str, Any]) -> int | str | None:
    id = values.get("id")
    if isinstance(id, str):
        return without_surrogates(id) if len(id) <= _DIGITS else None
    if isinstance(id, float) and id.is_integer():  # as Lua writes integers
        return int(id)
    return id if isinstance(id, int) and not isinstance(id, bool) else None


def _pruned(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, dict):
        if depth <= 0:
            return {}
        return {without_surrogates(key): _pruned(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_pruned(item, depth - 1) for item in value] if depth > 0 else []
    return value


def _log(text: str) -> None:
    print(f"crossgate: {text}", file=sys.stderr, flush=True)  # noqa: T201
