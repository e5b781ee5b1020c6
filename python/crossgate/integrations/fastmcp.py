"""FastMCP: a search transform, which shows a client two tools in place of all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool

from crossgate.integrations._tools import ToolSearcher

__all__ = ["CrossgateSearchTransform"]


class CrossgateSearchTransform(BM25SearchTransform):
    """Searches the tools of a server, as in `server.add_transform(CrossgateSearchTransform())`.

    Args:
        max_results: Maximum number of tools that a search returns.
        options: Arguments of `ToolRouter` besides the tools.
        given: Further arguments of FastMCP's own search transforms.
    """

    def __init__(
        self, *, max_results: int = 8, options: dict[str, Any] | None = None, **given: Any
    ) -> None:
        super().__init__(max_results=max_results, **given)
        self._searcher = ToolSearcher(options or {})

    async def _search(self, tools: Sequence[Tool], query: str) -> Sequence[Tool]:
        by_name = {tool.name: tool for tool in tools}
        names = await asyncio.to_thread(self._searcher.find, [query], tools, self._max_results)
        return [by_name[name] for name in names[: self._max_results]]
