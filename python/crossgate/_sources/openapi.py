"""OpenAPI 3 and Swagger 2.0: each operation as a tool, in the form of a function schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from crossgate._sources.common import Unusable
from crossgate._sources.tools import named_by

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_REFERENCES = 8
"""Maximum length of a chain of references that is followed."""
_PARAMETERS = 500
"""How many parameters of a path, and of an operation, are read."""
_OPERATIONS = 50_000
"""How many operations of a document are read."""


class Operation(NamedTuple):
    """An operation: its label, as `METHOD /path`, and its tool."""

    place: str
    tool: object


def is_openapi(value: object) -> bool:
    """Return whether a JSON value claims to be an OpenAPI document, of any version."""
    return isinstance(value, dict) and ("openapi" in value or "swagger" in value)


def operations_of(document: Mapping[str, Any]) -> Iterator[Operation]:
    """Yield the operations below `paths`, in their order.

    Webhooks and callbacks are left out, since the service makes those calls itself. References are
    followed only inside the document.

    Raises:
        Unusable: If it is neither OpenAPI 3 nor Swagger 2.0, or it has no paths.
    """
    version = document.get("openapi", document.get("swagger"))
    if not str(version).startswith(("2.0", "3.")):  # 3.1 without quotes is a number
        raise Unusable(f"OpenAPI {version!r:.40} is not read: convert the document to OpenAPI 3")
    paths = document.get("paths")
    if not isinstance(paths, dict):
        raise Unusable('an OpenAPI document without operations: expected an object "paths"')
    count = 0
    for path, value in paths.items():
        if not path.startswith("/"):  # an extension, x-...
            continue
        item = _followed(document, value)
        if not item and value != {}:
            yield Operation(_printable(path), None)
        for method in _METHODS:
            if method in item:
                count += 1
                if count > _OPERATIONS:
                    raise Unusable(
                        f"it has more than {_OPERATIONS:,} operations: the rest is left out"
                    )
                place = f"{method.upper()} {path}"
                yield Operation(_printable(place), _tool(document, place, item, item[method]))


def _printable(place: str) -> str:
    return place if place.isprintable() else repr(place)


def _tool(
    document: Mapping[str, Any], place: str, item: Mapping[str, Any], value: object
) -> object:
    """Return an operation as a tool; a malformed one is returned as it is, to be refused later.

    Its name is its `operationId`, or else its label.
    """
    if not isinstance(value, dict):
        return value
    # Parameters of the operation override those of its path.
    properties: dict[str, Any] = {}
    bodies = [_content(_followed(document, value.get("requestBody")))]
    for parameters in (item.get("parameters"), value.get("parameters")):
        for value_or_reference in islice(
            parameters if isinstance(parameters, list) else (), _PARAMETERS
        ):
            parameter = _followed(document, value_or_reference)
            name = parameter.get("name")
            if parameter.get("in") == "body":  # Swagger
                bodies.append(parameter.get("schema"))
            elif isinstance(name, str):
                # Swagger has no schema around these.
                own = {key: parameter[key] for key in ("enum", "items") if key in parameter}
                schemas = [parameter.get("schema"), _content(parameter)]
                description = parameter.get("description")
                properties[name] = {"description": description, "allOf": schemas, **own}
    texts = [value.get("summary"), value.get("description")]
    return {
        "name": value.get("operationId") or place,
        "title": place,
        "description": "\n\n".join(dict.fromkeys(text for text in texts if isinstance(text, str))),
        "parameters": {
            "properties": properties,
            "allOf": bodies,
            "components": document.get("components"),
            "definitions": document.get("definitions"),
        },
    }


def _content(value: Mapping[str, Any]) -> object:
    """Return the schema of a body or parameter: that of JSON, or else of its first media type."""
    content = value.get("content")
    if not isinstance(content, dict) or not content:
        return None
    kind = "application/json" if "application/json" in content else next(iter(content))
    media = content[kind]
    return media.get("schema") if isinstance(media, dict) else None


def _followed(document: Mapping[str, Any], value: object) -> dict[str, Any]:
    """Return an object, or the target of its reference; an empty object if there is none."""
    for _ in range(_REFERENCES):
        if not isinstance(value, dict):
            return {}
        if "$ref" not in value:
            return value
        value = named_by(document, value["$ref"])
    return {}
