"""Lists the tools of MCP servers with the protocol's own client."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING

from crossgate._sources.reading import Served
from crossgate._support.errors import CrossgateError, InputError, SourceError, first_line
from crossgate._support.extras import package
from crossgate._support.sanitize import sanitize_line

if TYPE_CHECKING:
    import mcp

START_SECONDS = 30.0
"""Time limit for a server to start and to list its tools."""

_PAGES = 1_000
"""Maximum number of pages of a list, against servers whose list never ends."""


def list_served(
    command: str, *, seconds: float = START_SECONDS, warn: Callable[[str], None] = lambda line: None
) -> Served:
    """Start a server, and return its tools and skills in the forms of the protocol's lists.

    The server is stopped before this function returns.

    Args:
        command: The command line that starts it, split as a shell would; no shell runs.
        seconds: Time limit.
        warn: Called with one line for each part of the list that is not valid and not used.

    Raises:
        InputError: `out_of_range` for an empty command.
        SourceError: `server_failed` if it cannot be started, ends, or takes too long.
        ModelError: `dependency_missing` without the extra `mcp`.
    """
    package("mcp", "reading an MCP server", extra="mcp", major=2)
    import anyio

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError("out_of_range", f"--mcp {command!r}: {error}") from None
    if not words:
        raise InputError("out_of_range", "--mcp is empty: pass the command that starts a server")
    quiet()
    return anyio.run(_list, words, command, seconds, warn)


async def _list(
    words: list[str], command: str, seconds: float, warn: Callable[[str], None]
) -> Served:
    import anyio
    import mcp
    from mcp.client.stdio import stdio_client

    from crossgate._agents.mcp.served_skills import skills_of
    from crossgate._agents.mcp.unparsable_messages import repaired

    server = mcp.StdioServerParameters(
        command=words[0],
        args=words[1:],
        env=dict(os.environ),
        encoding_error_handler="replace",  # a line that is not UTF-8 is skipped, not fatal
    )
    try:
        with anyio.fail_after(seconds):
            transport = repaired(stdio_client(server), lambda line: warn(f"{command}: {line}"))
            async with mcp.Client(transport) as client:
                skills = await skills_of(client, _PAGES)
                # A server of skills alone need not know the request for tools.
                only_skills = skills and client.server_capabilities.tools is None
                tools = [] if only_skills else await tools_of(client)
                info = client.server_info
    except CrossgateError:
        raise
    except Exception as error:
        reason = failure(error, seconds)
        raise SourceError(
            "server_failed",
            f"the MCP server {command!r} {reason}; run the command by hand to see its output",
        ) from error
    name = sanitize_line(info.name if info is not None else "") or PurePath(words[0]).name
    dumped = [tool.model_dump(by_alias=True, exclude_none=True) for tool in tools]
    return Served(name, dumped, skills)


async def tools_of(client: mcp.Client) -> list[mcp.Tool]:
    """Return all tools of a server, from all pages.

    Raises:
        SourceError: `server_failed` if the list has too many pages.
    """
    tools: list[mcp.Tool] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            return tools
    raise SourceError("server_failed", f"the list of tools has more than {_PAGES:,} pages")


def quiet() -> None:
    """Keep the SDK from printing a traceback for each invalid line."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def failure(error: BaseException, seconds: float) -> str:
    """Return a phrase that describes how a server failed."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"did not answer within {seconds:g} s"
    return f"failed: {sanitize_line(first_line(error))}"
