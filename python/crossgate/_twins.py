"""A call and its async twin from one definition, the function that prepares the request."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import crossgate._cascade as cascade
from crossgate._types import RouteResult

P = ParamSpec("P")
Result = TypeVar("Result")


def decides(name: str) -> Callable[[Callable[P, cascade.Request]], Callable[P, RouteResult]]:
    """Return what makes, of a function that prepares a request, the one that decides it.

    Args:
        name: Of the function that decides; its signature and docstring are those of the other.
    """

    def twin(prepare: Callable[P, cascade.Request]) -> Callable[P, RouteResult]:
        def decide(*args: P.args, **kwargs: P.kwargs) -> RouteResult:
            return cascade.run(prepare(*args, **kwargs))

        return _like(prepare, decide, name, prepare.__doc__)

    return twin


def adecides(
    name: str, doc: str
) -> Callable[[Callable[P, cascade.Request]], Callable[P, Coroutine[Any, Any, RouteResult]]]:
    """Return what makes the async twin, which leaves the event loop free."""

    def twin(
        prepare: Callable[P, cascade.Request],
    ) -> Callable[P, Coroutine[Any, Any, RouteResult]]:
        async def decide(*args: P.args, **kwargs: P.kwargs) -> RouteResult:
            return await cascade.arun(prepare(*args, **kwargs))

        return _like(prepare, decide, name, doc)

    return twin


def _like(
    prepare: Callable[P, cascade.Request], decide: Callable[P, Result], name: str, doc: str | None
) -> Callable[P, Result]:
    """Give a function the face of another, but for what it returns."""
    shown = prepare
    if isinstance(prepare, FunctionType):
        face = FunctionType(prepare.__code__, prepare.__globals__, name, prepare.__defaults__)
        face.__kwdefaults__ = prepare.__kwdefaults__
        face.__annotations__ = {**prepare.__annotations__, "return": "RouteResult"}
        shown = face
    decide.__name__ = name
    decide.__qualname__ = (
        prepare.__qualname__.rpartition(".")[0] + "." * ("." in prepare.__qualname__) + name
    )
    decide.__module__ = prepare.__module__
    decide.__doc__ = doc
    decide.__wrapped__ = shown  # type: ignore[attr-defined]
    return decide
