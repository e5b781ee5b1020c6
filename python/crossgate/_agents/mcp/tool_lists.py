"""Repairs lists of tools that the SDK would refuse as a whole because of one tool."""

from __future__ import annotations

from typing import Any

import pydantic
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from crossgate._support.sanitize import sanitize_line

_ROUNDS = 3
"""Maximum number of repairs; a tool that is still invalid is left out."""
_NAMED = 5
"""Maximum number of invalid parts that are named."""
_DEPTH = 3
"""Maximum length of the path of an invalid part, such as `inputSchema.properties.city`."""

_SCHEMA = "inputSchema"


def repair_tools(result: Any) -> list[str]:
    """Make the tools in an answer to `tools/list` valid, in place; other answers are not changed.

    An invalid part of a tool is removed. An input schema always describes an object, so its `type`
    is set, and a schema that is none accepts any object. An entry without a name is left out.

    Returns:
        One line for each part that was changed, with the name of the tool.
    """
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(tools, list):
        return []
    left_out: list[str] = []
    repaired: dict[str, None] = {}
    for step in range(_ROUNDS + 1):
        parts = _invalid_parts(tools)
        unusable = {at for at, *path in parts if step == _ROUNDS or not path or path[0] == "name"}
        for position, *path in parts:
            if position not in unusable:
                name = sanitize_line(str(tools[position].get("name")))
                part = ".".join(map(str, path))
                repaired[f"the tool {name!r} has an invalid {part}, which is not used"] = None
                _remove(tools[position], path)
        left_out += [f"tool {at + 1} is left out, since it is not valid" for at in sorted(unusable)]
        tools[:] = [tool for at, tool in enumerate(tools) if at not in unusable]
        if not left_out and not repaired:
            return []
    lines = [*left_out, *repaired]
    more = len(lines) - _NAMED
    return [*lines[:_NAMED], *([f"{more:,} more parts of tools are not valid"] if more > 0 else [])]


def _invalid_parts(tools: list[Any]) -> list[tuple[Any, ...]]:
    """Return the invalid parts: the position of the tool and the keys that lead to the part."""
    try:
        parse_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": tools})
    except pydantic.ValidationError as error:
        places = [problem["loc"][1:] for problem in error.errors(include_input=False)]
        return list(dict.fromkeys(place[: 1 + _DEPTH] for place in places if place))
    return []


def _remove(tool: dict[str, Any], path: list[Any]) -> None:
    """Remove a part of a tool; of a list, or a part that is missing, all of the part around it."""
    container: dict[str, Any] = tool
    for key in path[:-1]:
        inner = container.get(key)
        if not isinstance(inner, dict) or (inner.keys().isdisjoint(path) and key != _SCHEMA):
            path = [key]
            break
        container = inner
    container.pop(path[-1], None)
    if path[0] == _SCHEMA:
        schema = tool.get(_SCHEMA)
        tool[_SCHEMA] = {**(schema if isinstance(schema, dict) else {}), "type": "object"}
