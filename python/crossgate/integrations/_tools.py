"""Shared by the adapters of tool search: keeps a router as long as the tools stay the same."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

from crossgate._decision.tool_router import ToolRouter
from crossgate._sources.tools import own_tools
from crossgate._support.checks import without_surrogates
from crossgate._support.errors import InputError
from crossgate._values.results import Document


class ToolSearcher:
    """Finds tools in a list that may change; threads may share it.

    Args:
        options: Arguments of `ToolRouter` besides the tools.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._documents: list[Document] = []
        self._router: ToolRouter[Any] | None = None
        self._names: dict[int, str] = {}

    def find(self, queries: Sequence[str], tools: Sequence[Any], limit: int) -> list[str]:
        """Return the names of the tools nearest to any of the queries, best first.

        Names of all tools if one of them has no name, or text that is not Unicode.

        Raises:
            InputError: As `ToolRouter` and its `select`; it is a ValueError.
        """
        if not tools:
            return []
        with self._lock:
            try:
                defined = own_tools(tools)
            except InputError as error:
                if error.code != "malformed_tool":
                    raise
                return [tool.name for tool in tools]
            documents = [document for document, _ in defined]
            if self._router is None or documents != self._documents:
                self._router = ToolRouter([tool for _, tool in defined], **self._options)
                self._names = {id(tool): document.id for document, tool in defined}
                self._documents = documents
            router, names = self._router, self._names
        found = [router.select(without_surrogates(query), limit=limit) for query in queries]
        in_turn = chain.from_iterable(zip_longest(*found))
        return list(dict.fromkeys(names[id(tool)] for tool in in_turn if tool is not None))[:limit]
