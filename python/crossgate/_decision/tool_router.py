"""`ToolRouter` returns the tools of an agent that come closest to a prompt, or to its clauses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

from crossgate._decision.context import Context
from crossgate._decision.orderings import nearest
from crossgate._decision.router import Router
from crossgate._retrieval.document_index import Index
from crossgate._sources.tools import own_tools
from crossgate._support.checks import MAX_QUERY_CHARACTERS, check_confidence
from crossgate._support.errors import InputError
from crossgate._values.inputs import read_prompt
from crossgate._values.results import Hit

if TYPE_CHECKING:
    from typing import Unpack

    from crossgate._core import Policy, Profile
    from crossgate._decision.explain import Explanation
    from crossgate._reranking.chain import Choice
    from crossgate._retrieval.embedding import Embedder
    from crossgate._telemetry.events import TelemetryHook
    from crossgate._values.inputs import Material
    from crossgate._values.options import RouteKeywords

Tool = TypeVar("Tool")


class ToolKeywords(TypedDict, total=False):
    """The keyword arguments of `ToolRouter.select`, which describes them."""

    limit: int | None
    coverage: float | None
    min_any_fits: float | None
    material: Material | None
    context: Context | None


_BREAK = re.compile(
    r"[.;!?\n。；！？]+|\b(?:and then|and also|and|then|also|plus)\b",
    re.IGNORECASE,
)
_LEAST_WORDS = 3
_MOST_CLAUSES = 8


def clauses(request: str) -> list[str]:
    """Return the clauses of a request, at most eight; empty if it has only one.

    Sentences and the English words "and", "then", "also" and "plus" separate clauses. A clause of
    fewer than three words, as in "merge and split", is left out.
    """
    parts = (part.strip(" ,") for part in _BREAK.split(request))
    found = [part for part in parts if len(part.split()) >= _LEAST_WORDS]
    return found[:_MOST_CLAUSES] if len(found) > 1 else []


_NEAREST = 8
"""The default number of tools without a coverage."""
_MOST_TOOLS = 20
"""The default maximum number of tools with a coverage."""


class ToolRouter(Generic[Tool]):
    """Returns the tools of an agent that come closest to a prompt; threads may share it.

    The tools are embedded when the router is made: make it once, where the list of tools is made.

    Args:
        tools: The definitions as a model's API takes them (OpenAI, Anthropic, Bedrock, Gemini), as
            an MCP server lists them, or objects with `name`, `description` and such a schema, like
            PydanticAI's `ToolDefinition`.
        embedder: As in `Index.build`; None to search by words alone.
        reranker: As in `Router`.
        profile: As in `Router`.
        policy: As in `Router`.
        telemetry: As in `Router`.

    Attributes:
        router: Decides over the tools' documents.

    Raises:
        InputError: `malformed_tool` for a tool without a name, `duplicate_id` for two tools of one
            name, `no_documents` without any.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        embedder: Embedder | str | PathLike[str] | None = "default",
        reranker: Choice = "default",
        profile: Profile | str | PathLike[str] | None = None,
        policy: Policy | str | PathLike[str] | None = None,
        telemetry: TelemetryHook | None = None,
    ) -> None:
        defined = own_tools(tools)
        documents = [document for document, _ in defined]
        self.router = Router(
            Index.build(documents, embedder=embedder),
            reranker=reranker,
            profile=profile,
            policy=policy,
            telemetry=telemetry,
        )
        # A model can decline every tool on a list, so the list is empty only if the caller asks.
        used = self.router.profile
        self.router.profile = used.replace(shortlist=used.shortlist.replace(least=None))
        self._stage1 = Router(self.router.index, reranker=None, profile=self.router.profile)
        self._tools: dict[str, Tool] = {document.id: tool for document, tool in defined}

    def select(
        self,
        prompt: str,
        *,
        limit: int | None = None,
        coverage: float | None = None,
        min_any_fits: float | None = None,
        material: Material | None = None,
        context: Context | None = None,
    ) -> list[Tool]:
        """Return the tools that come closest to a prompt, best first: the same objects.

        The model picks from this list: unlike with `Router.route`, a tool can be on it even if it
        is not certain to fit. If the prompt has several clauses, the tools that come closest to
        each of them follow the first tool, or the tools that a coverage requires, since a
        prompt can need several. A prompt that is too long is cut; an empty prompt gets no tools.

        Args:
            prompt: The prompt.
            limit: Maximum number, by default 8, or 20 with a coverage; the bundled profile
                considers at most about twenty.
            coverage: Return the fewest tools that contain a fitting tool with this probability, in
                (0, 1), given that any tool fits; None for `limit` tools. If `limit` tools cannot
                promise it, the highest probability that they can promise counts.
            min_any_fits: Return no tools if the probability that any of them fits is lower, in
                [0, 1]; None to return the list in any case.
            material: As in `Router.route`.
            context: As in `Router.route`.

        Raises:
            InputError: As `Router.route`; `out_of_range` for a coverage if the profile was fitted
                without a shortlist.
        """
        if limit is None:
            limit = _NEAREST if coverage is None else _MOST_TOOLS
        if isinstance(prompt, str):  # route refuses any other type
            prompt = prompt[:MAX_QUERY_CHARACTERS]
        profile = self.router.profile
        check_confidence(min_any_fits, profile, "min_any_fits")
        if coverage is not None and not (profile.shortlist.stage1 or profile.shortlist.stage2):
            message = (
                f"coverage cannot be promised, as profile {profile.name!r} has no fitted "
                "shortlist: omit it, or use a profile fitted by `crossgate calibrate`"
            )
            raise InputError("out_of_range", message)
        result = self.router.route(
            prompt,
            limit=limit,
            coverage=coverage,
            max_shortlist=limit,
            material=material,
            context=context,
        )
        hits = nearest(result, limit, min_any_fits)
        if coverage is not None and hits:
            # Without vectors, nothing can be promised, and the nearest tools by words remain.
            hits = hits[:_NEAREST] if result.coverage is None else result.shortlist
        if hits:
            nearest_to_each = self._nearest_to_clauses(read_prompt(prompt, material).request)
            # A promise holds for the whole shortlist: clauses may not replace its last tools.
            kept = 1 if coverage is None else len(hits)
            hits = (*hits[:kept], *nearest_to_each, *hits[kept:])
        ids = dict.fromkeys(hit.id for hit in hits)
        return [self._tools[id] for id in ids][:limit]

    async def aselect(self, prompt: str, **options: Unpack[ToolKeywords]) -> list[Tool]:
        """Like `select`, with the same arguments, on a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.select, prompt, **options)

    def explain(self, prompt: str, name: str, **options: Unpack[RouteKeywords]) -> Explanation:
        """Explain at which step of the decision one tool was lost, or that it is selected.

        The decision is that of `Router.route`, whose thresholds do not keep a tool from the list of
        `select`.

        Args:
            prompt: The prompt.
            name: The tool's name.
            options: As in `Router.route`.

        Raises:
            InputError: As `Router.explain`.
        """
        return self.router.explain(prompt, name, **options)

    def teach(self, prompt: str, name: str | None, *, fits: bool = True) -> bool:
        """Add a prompt as an example of a tool, which counts from the next prompt on.

        It lasts as long as this router: teach a new one again.

        Args:
            prompt: The prompt.
            name: The tool's name; None if no tool fits the prompt.
            fits: Whether the tool fits; False if it does not.

        Returns:
            Whether anything changed, as in `Index.teach`.

        Raises:
            InputError: As `Index.teach`.
        """
        return self.router.index.teach(prompt, name, fits=fits)

    def _nearest_to_clauses(self, request: str) -> list[Hit]:
        """Return the first candidate of stage 1 for each clause of a request with several."""
        results = [self._stage1.route(clause, limit=1) for clause in clauses(request)]
        return [result.hits[0] for result in results if result.hits]
