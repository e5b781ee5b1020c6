"""Pydantic AI: a strategy of its `ToolSearch` capability."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crossgate.integrations._tools import ToolSearcher

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.tools import ToolDefinition

__all__ = ["CrossgateToolSearch"]


class CrossgateToolSearch:
    """Finds deferred tools, as in `ToolSearch(strategy=CrossgateToolSearch())`.

    Models of providers that let a client search, and all others, search by it. The capability
    limits the number of tools.

    Args:
        options: Arguments of `ToolRouter` besides the tools.
    """

    def __init__(self, **options: Any) -> None:
        self._searcher = ToolSearcher(options)

    async def __call__(
        self, ctx: RunContext[Any], queries: Sequence[str], tools: Sequence[ToolDefinition]
    ) -> list[str]:
        """Return the names of the nearest tools, best first."""
        return await asyncio.to_thread(self._searcher.find, queries, tools, len(tools) or 1)
