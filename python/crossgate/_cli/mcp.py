"""`crossgate mcp`: a server of the Model Context Protocol over stdin and stdout."""

from __future__ import annotations

import argparse
import os
import signal
from types import FrameType
from typing import NoReturn

from crossgate._cli import DONE
from crossgate._cli.input import model_or_none
from crossgate._cli.output import say
from crossgate._support.errors import InputError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.set_defaults(run=run)
    parser.add_argument("-i", "--index", metavar="FILE", help="index of skills for find_skill")
    parser.add_argument("--tools", metavar="FILE", help="index of tools for find_tool")
    parser.add_argument(
        "--reranker",
        metavar="MODEL",
        type=model_or_none,
        default="default",
        help="see crossgate rerank",
    )
    parser.add_argument(
        "--proxy",
        metavar="FILE",
        help="act as a proxy for the servers in this file (mcpServers) instead",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until stdin is closed or the process is interrupted."""
    from crossgate._support.extras import package

    if options.proxy and (options.index or options.tools):
        raise InputError(
            "out_of_range", "--proxy finds tools itself: leave out --index and --tools"
        )
    package("mcp", "crossgate mcp", extra="mcp", major=2)
    if options.proxy:
        from crossgate._agents.mcp.proxy import serve

        serve(options.proxy)
        return DONE
    from crossgate._agents.mcp.server import IndexHandle, serve_stdio, server

    for path in filter(None, (options.index, options.tools)):
        if not os.path.exists(path):  # it may be built later
            say(f"there is no index at {path}: searches fail until it is built")
    given = {"reranker": options.reranker}
    made = server(
        skills=IndexHandle(options.index, **given) if options.index else None,
        tools=IndexHandle(options.tools, **given) if options.tools else None,
        options=given,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    serve_stdio(made)
    return DONE


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    # The thread that reads stdin would keep the interpreter from ending.
    os._exit(DONE)
