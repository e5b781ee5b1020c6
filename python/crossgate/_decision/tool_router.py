"""`ToolRouter` returns the tools of an agent that come closest to a prompt."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any

from crossgate._decision.context import Context
from crossgate._decision.orderings import nearest
from crossgate._decision.router import Router
from crossgate._retrieval.index import Index
from crossgate._sources.tools import own_tools
from crossgate._support.checks import MAX_QUERY_CHARACTERS

if TYPE_CHECKING:
    from crossgate._retrieval.embedding import Embedder
    from crossgate._values.prompts import Material


class ToolRouter:
    """Returns the tools of an agent that come closest to a prompt; threads may share it.

    The tools are embedded when the router is made: make it once, where the list of tools is made.

    Args:
        tools: The definitions as a model's API takes them (OpenAI, Anthropic, Bedrock, Gemini), as
            an MCP server lists them, or objects with `name`, `description` and such a schema, like
            PydanticAI's `ToolDefinition`.
        embedder: As in `Index.build`; None to search by words alone.
        options: Further arguments of `Router`: reranker, profile, policy, telemetry.

    Attributes:
        router: Decides over the tools' documents.

    Raises:
        InputError: `malformed_tool` for a tool without a name, `duplicate_id` for two tools of one
            name, `no_documents` without any.
    """

    def __init__(
        self,
        tools: Iterable[Any],
        *,
        embedder: Embedder | str | PathLike[str] | None = "default",
        **options: Any,
    ) -> None:
        defined = own_tools(tools)
        documents = [document for document, _ in defined]
        self.router = Router(Index.build(documents, embedder=embedder), **options)
        self._tools = {document.id: tool for document, tool in defined}

    def select(
        self,
        prompt: str,
        *,
        limit: int = 8,
        min_confidence: float | None = None,
        material: Material | None = None,
        context: Context | None = None,
    ) -> list[Any]:
        """Return the tools that come closest to a prompt, best first: the same objects.

        The model picks from this list: unlike with `Router.route`, a tool can be on it even if it
        is not certain to fit. A prompt that is too long is cut; an empty prompt gets no tools.

        Args:
            prompt: The prompt.
            limit: Maximum number; the bundled profile considers at most twenty.
            min_confidence: Return no tools if the probability that any of them fits is lower, in
                [0, 1]; None to return the list in any case.
            material: As in `Router.route`.
            context: As in `Router.route`.

        Raises:
            InputError: As `Router.route`.
        """
        if isinstance(prompt, str):  # route refuses any other type
            prompt = prompt[:MAX_QUERY_CHARACTERS]
        result = self.router.route(
            prompt,
            limit=limit,
            min_confidence=min_confidence,
            material=material,
            context=context,
        )
        return [self._tools[hit.id] for hit in nearest(result, limit, min_confidence)]
