"""LangChain's agents: a middleware that sends a model only the nearest tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, HumanMessage

from crossgate.integrations._tools import ToolSearcher

__all__ = ["CrossgateToolSelector"]


class CrossgateToolSelector(AgentMiddleware[Any, Any, Any]):
    """Sends the tools nearest to the user's last message, as `LLMToolSelectorMiddleware` does.

    It asks no model. Tools that a provider runs are always sent.

    Args:
        max_tools: Maximum number of selected tools.
        always_include: Names of tools to send besides them.
        options: Arguments of `ToolRouter` besides the tools.
    """

    def __init__(
        self, *, max_tools: int = 8, always_include: Collection[str] = (), **options: Any
    ) -> None:
        super().__init__()
        self._max_tools = max_tools
        self._always = frozenset(always_include)
        self._searcher = ToolSearcher(options)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | AIMessage:
        """Call the model with the nearest tools."""
        return handler(self._narrowed(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | AIMessage:
        """Do what `wrap_model_call` does without blocking the event loop."""
        return await handler(await asyncio.to_thread(self._narrowed, request))

    def _narrowed(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        said = [message for message in request.messages if isinstance(message, HumanMessage)]
        by_name = {
            tool.name: tool
            for tool in request.tools
            if not isinstance(tool, dict) and tool.name not in self._always
        }
        prompt = str(said[-1].text) if said else ""
        if not prompt.strip() or len(by_name) <= self._max_tools:
            return request  # an image, say, does not tell which tools it needs
        names = self._searcher.find([prompt], list(by_name.values()), self._max_tools)
        if not names:  # no character of the prompt can be read
            return request
        others = [
            tool for tool in request.tools if isinstance(tool, dict) or tool.name in self._always
        ]
        return request.override(tools=[*(by_name[name] for name in names), *others])
